"""What an upstream's refusal or breakdown means to the caller. Pure.

Law: of what the upstream wrote, only numbers, and names out of closed lists, go on. Its messages may echo the input
(vLLM's validation errors print it), so each of ours is written here.

`code` stays within what clients know of a failed response's `error` (OpenAI reference: `server_error`,
`rate_limit_exceeded`, `invalid_prompt`; `context_length_exceeded` and `model_not_found` are read by agents).
"""

import re
from enum import Enum
from typing import Any, Final, NamedTuple

from shared.errors import RETRY_AFTER, UpstreamError
from shared.json_codec import Wire, decode


class Fault(Enum):
    """How the upstream can fail without saying a word; the value is the status and the message of a plain call."""

    UNREACHABLE = (503, "The model server can't be reached.")
    SILENT = (504, "The model server did not begin its answer in time.")
    STALLED = (504, "The model server stopped in the middle of its answer.")
    BROKEN = (502, "The connection to the model server broke.")
    GARBAGE = (502, "The model server's answer is no event stream.")
    OVERLONG = (502, "The model server sent an event over the size limit (max_event_bytes).")


class _Refusal(NamedTuple):
    """The parts of vLLM's error body that are read. `text` is looked at and never passed on."""

    text: str
    type: str
    param: str


#: vLLM's parameter names, and ours. Anything else names no parameter.
_PARAMS: Final = {
    name: name
    for name in (
        "cache_salt",
        "chat_template_kwargs",
        "frequency_penalty",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "min_p",
        "model",
        "parallel_tool_calls",
        "presence_penalty",
        "priority",
        "prompt",
        "reasoning",
        "repetition_penalty",
        "seed",
        "service_tier",
        "stop",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    )
} | {"input_tokens": "input", "logprobs": "top_logprobs", "max_tokens": "max_output_tokens", "type": "input"}

_NAMED_PARAM = re.compile(r"\(parameter=(\w{1,40})[,)]")
_CONTEXT = re.compile(r"This model's maximum context length is (\d{1,12}) tokens\b")
_PROMPT = re.compile(r"prompt contains (?:at least )?(\d{1,12}) input tokens|\((\d{1,12}) in the (?:messages|input)")
#: `Retry-After` in seconds. Its other form, a date, would need both clocks to agree.
_SECONDS = re.compile(r"[0-9]{1,5}")
_OLD_CONTEXT = re.compile(
    r"The (?:decoder )?prompt \(?(?:total )?\(?length (\d{1,12})\) is (?:too long|longer than)"
    r".{0,60}?maximum model length of (\d{1,12})"
)
_TOO_MANY_OUTPUT = re.compile(
    r"max_(?:output_|completion_)?tokens=(\d{1,12}) cannot be greater than max_model_len=(\d{1,12})"
)

#: The error types that vLLM writes, as the statuses that it sends with them.
_STATUS_OF_TYPE: Final = {
    "BadRequestError": 400,
    "invalid_request_error": 400,
    "NotFoundError": 404,
    "rate_limit_error": 429,
    "InternalServerError": 500,
    "ServiceUnavailableError": 503,
}
_STATUS_OF_CODE: Final = {
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "server_error": 500,
}


def breakdown(fault: Fault) -> UpstreamError:
    """The error of an upstream that could not be reached, or broke off.

    Where it could not be reached it generated nothing, so the request may be sent again.
    """
    status, message = fault.value
    return _server_error(message, status, RETRY_AFTER if fault is Fault.UNREACHABLE else None)


def over_limit(setting: str, limit: int) -> UpstreamError:
    """The error of a response that is more than this server keeps; its setting is named, and the value it has."""
    return _server_error(f"The model server's response is over a limit of this server: {setting} is {limit}.", 502)


def refusal(status: int, body: bytes, retry_after: str = "") -> UpstreamError:
    """The error of an HTTP answer that is no 200, by its status and, where vLLM wrote it, its body.

    `retry_after` is its header. Who is refused as one too many, or as too early, may send the request again.
    """
    said = _read(body)
    match status:
        case 400 | 422:
            return _bad_request(said)
        case 404 if said.type == "NotFoundError" or said.param == "model":
            return _model_not_found()
        case 413:
            return _invalid("The request, with its history, is larger than the model server takes.", "input", 413)
        case 429 | 503:
            return _by_status(status, int(retry_after) if _SECONDS.fullmatch(retry_after) else RETRY_AFTER)
        case _:
            return _by_status(status)


def reported_failure(error: Wire | None) -> UpstreamError:
    """The error of a stream that ended as failed. `error` is `Finished.error`: the upstream's `code` and `type`."""
    code, kind = (error or {}).get("code"), (error or {}).get("type")
    if code == "context_length_exceeded":
        return _context_length()
    status = code if isinstance(code, int) else _STATUS_OF_CODE.get(str(code)) or _STATUS_OF_TYPE.get(str(kind), 500)
    if status == 404:
        return _model_not_found()
    return _invalid(_REFUSED, None) if status in {400, 422} else _by_status(status)


_REFUSED: Final = "The model server refused the request as invalid."


def _bad_request(said: _Refusal) -> UpstreamError:
    if said.param == "input_tokens" or _CONTEXT.match(said.text) or _OLD_CONTEXT.match(said.text):
        return _context_length(*_lengths(said.text))
    if found := _TOO_MANY_OUTPUT.match(said.text):
        asked, limit = found.groups()
        return _invalid(f"max_output_tokens is {asked}; the model's context holds {limit}.", "max_output_tokens")
    if said.text.startswith("Grammar error: "):
        return _invalid("A JSON schema or grammar of the request (text.format, tools) is not supported.", None)
    if said.text.endswith(" is not a multimodal model"):
        return _invalid("The model takes text only.", "input")
    param = _param(said)
    return _invalid(_REFUSED if param is None else f"The model server refused the value of '{param}'.", param)


def _lengths(text: str) -> tuple[str | None, str | None]:
    """The input's tokens and the limit, where the text says them."""
    if old := _OLD_CONTEXT.match(text):
        return old[1], old[2]
    limit, prompt = _CONTEXT.match(text), _PROMPT.search(text)
    return (prompt[1] or prompt[2]) if prompt else None, limit[1] if limit else None


def _param(said: _Refusal) -> str | None:
    """Our name of the parameter at fault. Validation errors name a path: `body.reasoning.effort`."""
    name = said.param.removeprefix("body.").partition(".")[0]
    if name not in _PARAMS and (found := _NAMED_PARAM.search(said.text)):
        name = found[1]
    return _PARAMS.get(name)


def _read(body: bytes) -> _Refusal:
    """The body `{"error": {…}}` of vLLM; older ones had the same keys at the top."""
    try:
        wire: Any = decode(body)
    except ValueError:
        wire = None
    said = wire.get("error", wire) if isinstance(wire, dict) else None
    if not isinstance(said, dict):
        return _Refusal("", "", "")
    return _Refusal(*(text if isinstance(text := said.get(key), str) else "" for key in ("message", "type", "param")))


def _by_status(status: int, retry_after: int | None = None) -> UpstreamError:
    match status:
        case 401 | 403:
            return _server_error("The model server did not accept this server's credentials.", 502)
        case 404 | 405:
            return _server_error("The model server has no Responses API at the configured address.", 502)
        case 408 | 504:
            return _server_error("The model server did not answer in time.", 504)
        case 429:
            # Some agents read their wait from this very wording.
            when = "later" if retry_after is None else f"in {retry_after}s"
            message = f"The model server is at its limit. Please try again {when}."
            return UpstreamError(message, 429, "requests", _RATE_LIMIT, retry_after=retry_after)
        case 503:
            return _server_error("The model server is not available; try again later.", 503, retry_after)
        case _:
            return _server_error("The model server had an error.", 502)


_RATE_LIMIT: Final = "rate_limit_exceeded"


def _context_length(tokens: str | None = None, limit: str | None = None) -> UpstreamError:
    numbers = f" It has at least {tokens} tokens." if tokens else ""
    numbers += f" The context holds {limit}." if limit else ""
    message = f"The input exceeds the context window of the model.{numbers}"
    return UpstreamError(message, 400, "invalid_request_error", "context_length_exceeded", "input")


def _model_not_found() -> UpstreamError:
    return UpstreamError("The model does not exist.", 404, "invalid_request_error", "model_not_found", "model")


def _invalid(message: str, param: str | None, status: int = 400) -> UpstreamError:
    return UpstreamError(message, status, "invalid_request_error", "invalid_prompt", param)


def _server_error(message: str, status: int, retry_after: int | None = None) -> UpstreamError:
    kind = "service_unavailable_error" if status == 503 else "server_error"
    return UpstreamError(message, status, kind, "server_error", retry_after=retry_after)
