"""A create body, parsed and checked: what a client may ask. Pure.

Law: null means "not given" everywhere. Types are strict: no number for a text, no `true` for a 1. What we can't honour
and could mislead by ignoring is refused (`prompt`, `moderation`, …); a key that we don't know is ignored, and goes
nowhere: OpenAI's own list grew by six in a year, and Codex sends private ones. The wire values are never changed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shared.checks import (
    missing,
    text,
    unsupported_parameter,
    unsupported_value,
    wrong_type,
    wrong_value,
)
from shared.errors import InvalidRequest
from shared.items import input_items
from shared.json_codec import Wire
from shared.parameters import Parameters
from shared.tools import all_tools, check_choice, check_tools


@dataclass(frozen=True)
class ResponseRequest:
    """One create request. `input` holds the items as they came, `options` every other known value that was given.

    `options` holds no null at its top, and is all that `response_object` and `upstream_body` need beside the items.
    """

    model: str
    stream: bool
    background: bool
    store: bool
    previous_response_id: str | None
    input: list[Wire]
    options: Wire


def parse_request(body: object) -> ResponseRequest:
    """Check a create body. Raises `InvalidRequest` for its first fault, with OpenAI's `param` and `code`."""
    if not isinstance(body, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_type")
    if body.get("model") is None:
        raise missing("model")
    _refuse_unbuilt(body)
    for name, most in _MOST_KEYS.items():
        if isinstance(held := body.get(name), dict) and len(held) > most:
            raise wrong_value(name, f"should have at most {most} items")
    try:
        parsed = Parameters.model_validate(body)
    except ValidationError as fault:
        raise _refusal(fault.errors()[0]) from None
    options = {key: body[key] for key in body if key in Parameters.model_fields and body[key] is not None}
    _check_combinations(parsed)
    items = input_items(body.get("input"))
    if not items and parsed.previous_response_id is None:
        raise wrong_value("input", "must not be empty without 'previous_response_id'")
    _check_tools(options, items)
    return ResponseRequest(
        model=parsed.model,
        stream=bool(parsed.stream),
        background=bool(parsed.background),
        store=parsed.store is not False,
        previous_response_id=parsed.previous_response_id,
        input=items,
        options=options,
    )


def _refuse_unbuilt(body: Wire) -> None:
    """Parameters whose silent loss would change what the caller gets."""
    if body.get("conversation") is not None:
        if body.get("previous_response_id") is not None:
            raise InvalidRequest(
                "'conversation' and 'previous_response_id' can't be used together.", param="conversation"
            )
        raise unsupported_parameter("conversation")
    for name in ("prompt", "moderation"):
        if body.get(name) is not None:
            raise unsupported_parameter(name)
    access = body.get("access_programs")
    if isinstance(access, dict) and access.get("cyber") not in (None, "standard"):
        raise InvalidRequest(
            "The requested access program is not available here.",
            param="access_programs.cyber",
            code="unsupported_value",
            status=403,
        )


def _check_combinations(body: Parameters) -> None:
    if body.stream_options is not None and not body.stream:
        raise wrong_value("stream_options", "is only allowed when 'stream' is true")
    window = body.background_options and body.background_options.completion_window
    if window not in (None, "soonest"):
        raise unsupported_value("background_options", "only the completion window 'soonest' is supported")
    if body.prompt_cache_options is not None and body.prompt_cache_options.prewarm:
        raise unsupported_value("prompt_cache_options.prewarm", "prewarming is not supported")
    if body.multi_agent is not None and body.multi_agent.enabled:
        raise unsupported_value("multi_agent.enabled", "multi-agent responses are not supported")
    if body.reasoning is not None and body.reasoning.mode not in (None, "standard"):
        raise unsupported_value("reasoning.mode", "only 'standard' is supported")
    if body.text is not None and body.text.format is not None:
        _check_format(body.text.format)
    _check_extras(body)


def _check_extras(body: Parameters) -> None:
    """Refuse values of its own parameters that vLLM would refuse the request for."""
    form = (body.text and body.text.format) or {"type": "text"}
    if body.structured_outputs is not None and form["type"] != "text":
        raise wrong_value("structured_outputs", "can't be used together with 'text.format'")
    if body.cache_salt is not None and not _CACHE_SALT_SPOILS.isdisjoint(body.cache_salt):
        raise wrong_value("cache_salt", "must not hold @, / or \\, nor a NUL")
    if not all(isinstance(given, dict) for given in (body.media_io_kwargs or {}).values()):
        raise wrong_type("media_io_kwargs", "an object of objects")
    if not all(_TOKEN.fullmatch(token) for token in body.logit_bias or ()):
        raise wrong_value("logit_bias", "its keys are token ids")
    _check_stop(body.stop)


def _check_format(form: Wire) -> None:
    at = "text.format"
    named = text(form, "type", at)
    if named not in ("text", "json_object", "json_schema"):
        raise wrong_value(f"{at}.type", "supported values are text, json_object and json_schema")
    if named == "json_schema":
        text(form, "name", at, empty=False)
        if form.get("schema") is None:
            raise missing(f"{at}.schema")
        if not isinstance(form["schema"], dict):
            raise wrong_type(f"{at}.schema", "an object")
        if not isinstance(form.get("description"), str | None):
            raise wrong_type(f"{at}.description", "a string")
        if not isinstance(form.get("strict"), bool | None):
            raise wrong_type(f"{at}.strict", "a boolean")


def _check_stop(stop: object) -> None:
    texts = stop if isinstance(stop, list) else [stop]
    if stop is not None and not all(isinstance(each, str) for each in texts):
        raise wrong_type("stop", "a string or an array of strings")
    if len(texts) > 4:
        raise wrong_value("stop", "must have at most 4 entries")
    if "" in texts:
        raise wrong_value("stop", "must not hold an empty string")


def _check_tools(options: Wire, items: Sequence[Wire]) -> None:
    check_tools(options.get("tools", ()))
    check_choice(options.get("tool_choice"), all_tools(options, items))


_WANTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "finite_number": "a finite number",
}
#: Looked at before the keys are: a million of them would each be reported.
_MOST_KEYS = {"metadata": 16, "logit_bias": 1024}
#: What vLLM's caches would take for a separator.
_CACHE_SALT_SPOILS = frozenset("@/\\\0")
_TOKEN = re.compile(r"\d{1,9}", re.ASCII)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Objects whose keys the caller chose: a key may stand in `param`, never in a message.
_FREE_KEYS = frozenset({"metadata", "logit_bias"})


def _refusal(fault: ErrorDetails) -> InvalidRequest:
    """Pydantic's fault in OpenAI's words. Its texts for limits and enums hold our own limits and names only."""
    place, rule = fault["loc"], fault["type"]
    param = _path(place)
    said = str(place[0]) if place[0] in _FREE_KEYS else param
    if rule == "missing":
        refusal = missing(said)
    elif rule == "string_pattern_mismatch":
        refusal = wrong_value(said, "an id has 1 to 256 letters, digits, underscores or dashes")
    elif rule in _WANTED:
        refusal = wrong_type(said, _WANTED[rule])
    else:
        refusal = wrong_value(said, "should" + fault["msg"].partition("should")[2].partition(" after validation")[0])
    refusal.param = param
    return refusal


def _path(place: tuple[int | str, ...]) -> str:
    if place[0] in _FREE_KEYS:
        key = place[1] if len(place) > 1 else None
        return f"{place[0]}.{key}" if isinstance(key, str) and _PLAIN_KEY.fullmatch(key) else str(place[0])
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
