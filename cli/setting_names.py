"""Settings as a user knows them, by variable and flag: what is wrong with one, and which variables are none at all.

Law: a name is shown, a value never is, for it may be a secret.
"""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from shared.settings import Settings

PREFIX = "REJOINDER_"

#: Where the API is unless a client is told otherwise.
API = "http://127.0.0.1:8700/v1"
#: Read by the commands that are clients of the API: no setting of a server, and no slip of the pen.
_CLIENT_VARIABLES = {"REJOINDER_URL"}

#: The flags that are not named as their setting is.
_FLAGS = {"vllm_url": "--vllm", "redis_url": "--redis"}


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{setting.upper()}"


def wrong_settings(error: ValidationError | SettingsError, flags: Collection[str]) -> str:
    """What is wrong, in one line. `flags` names the settings that the command has a flag for."""
    if isinstance(error, SettingsError):  # it holds a message only, with the setting's name in it
        named = [name for name in Settings.model_fields if f'"{name}"' in str(error)]
        return "; ".join(f"{_name(name, flags)} is not a JSON object" for name in named) or str(error)
    found = error.errors(include_url=False)
    return "; ".join(dict.fromkeys(f"{_name(str(one['loc'][0]), flags)}{_amiss(one)}" for one in found))


def _name(setting: str, flags: Collection[str]) -> str:
    if setting not in Settings.model_fields:
        return setting  # pydantic names the variable that it read where a setting has more than one
    if setting in flags:
        return f"{_FLAGS.get(setting, f'--{setting}')} / {variable(setting)}"
    return variable(setting)


def _amiss(one: Any) -> str:
    """What pydantic's finding says, without the keys and the value that it found."""
    if one["loc"] == ("vllm_url",) and one["type"] == "string_pattern_mismatch":
        if not str(one["input"]).startswith(("http://", "https://")):
            return ": begin it with http:// or https://"
        return ": write it like http://HOST:8000, without name, password or space"
    if one["type"] == "dict_type" and len(one["loc"]) == 1:
        return " is not a JSON object"
    return f"{', for a model' if len(one['loc']) > 1 else ''}: {one['msg']}"


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """The variables among these names that look like settings and are none, perhaps by a slip of the pen."""
    known = _CLIENT_VARIABLES.union(map(variable, Settings.model_fields))
    return sorted(name for name in environment if name.upper().startswith(PREFIX) and name.upper() not in known)


def warning(unknown: Iterable[str]) -> str:
    """One line that names them, with the settings that may be meant."""
    known = list(map(variable, Settings.model_fields))
    named = []
    for name in unknown:
        [near] = get_close_matches(name.upper(), known, n=1, cutoff=0.85) or [""]
        named.append(f"{name} (do you mean {near}?)" if near else name)
    return f"no such setting, ignored: {', '.join(named)}"
