"""What a wire value must be, refused in OpenAI's words when it is not. Pure.

Law: a refusal names the place, the wanted type and the limit; never the value that came.
"""

from typing import Any, Final

from shared.errors import InvalidRequest
from shared.json_codec import Wire

#: Longest text that a request may carry in one place, in characters (Open Responses: 10 MiB).
MAX_TEXT: Final = 10 * 1024 * 1024


def missing(param: str) -> InvalidRequest:
    """A required value is absent or null."""
    return InvalidRequest(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def wrong_type(param: str, wanted: str) -> InvalidRequest:
    """A value has another JSON type than `wanted`, such as "a string"."""
    return InvalidRequest(f"Invalid type for '{param}': expected {wanted}.", param=param, code="invalid_type")


def wrong_value(param: str, rule: str) -> InvalidRequest:
    """A value has the right type and breaks `rule`, such as "must be at least 1"."""
    return InvalidRequest(f"Invalid value for '{param}': {rule}.", param=param, code="invalid_value")


def unsupported_value(param: str, reason: str) -> InvalidRequest:
    """OpenAI would take the value; this server can't."""
    return InvalidRequest(f"Unsupported value for '{param}': {reason}.", param=param, code="unsupported_value")


def unsupported_parameter(param: str) -> InvalidRequest:
    """OpenAI knows the parameter; this server can't honour it, and ignoring it would mislead."""
    return InvalidRequest(f"Unsupported parameter: '{param}'.", param=param, code="unsupported_parameter")


def text(holder: Wire, key: str, at: str, *, empty: bool = True) -> str:
    """The required string at `key`; `at` is the place of `holder`."""
    value = holder.get(key)
    if value is None:
        raise missing(f"{at}.{key}")
    return bounded(value, f"{at}.{key}", empty=empty)


def bounded(value: object, param: str, *, empty: bool = True) -> str:
    """`value`, if it is a string of a sane length."""
    if not isinstance(value, str):
        raise wrong_type(param, "a string")
    if len(value) > MAX_TEXT:
        raise wrong_value(param, f"must have at most {MAX_TEXT} characters")
    if not value and not empty:
        raise wrong_value(param, "must not be empty")
    return value


def optional_text(holder: Wire, key: str, at: str) -> None:
    """The string at `key` may be absent or null."""
    if holder.get(key) is not None:
        bounded(holder[key], f"{at}.{key}")


def array(value: object, param: str) -> list[Any]:
    """`value`, if it is a list."""
    if not isinstance(value, list):
        raise wrong_type(param, "an array")
    return value


def mapping(value: object, param: str) -> Wire:
    """`value`, if it is an object."""
    if not isinstance(value, dict):
        raise wrong_type(param, "an object")
    return value
