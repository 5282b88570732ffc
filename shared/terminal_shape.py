"""What a terminal event says of the response, read from the wire. Pure; never raises.

Law: only what strict clients can take: usage as whole integers, an error as code and type. An upstream's error message
may echo content, so it goes no further than here.
"""

import re
from typing import Final

from shared.item_shape import tidy, well_formed
from shared.json_codec import Wire
from shared.upstream_events import Finished

#: How each terminal event says that a response ended, where the response in it does not say.
ENDINGS: Final = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}

# Codes and types of errors are names ("Bad Request" is one of vLLM's); anything stranger may hold content.
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}|Bad Request")


#: What vLLM adds to its Response: the rendered prompt and the raw answer (`enable_response_messages`), transfer data.
_EXTRAS: Final = ("input_messages", "output_messages", "kv_transfer_params", "ec_transfer_params")


def finished(wire: Wire) -> Finished:
    """A terminal event is judged by the status inside it: vLLM says `completed` around an `incomplete` response."""
    response = wire.get("response")
    if not isinstance(response, dict):
        response = {}
    said = response.get("status")
    status = said if isinstance(said, str) and said in ENDINGS.values() else ENDINGS[wire["type"]]
    output, details, tier = (response.get(key) for key in ("output", "incomplete_details", "service_tier"))
    return Finished(
        status=status,
        output=[_final_item(item) for item in output] if isinstance(output, list) else None,
        usage=_usage(response.get("usage")),
        incomplete_details=details if isinstance(details, dict) else None,
        error=_error(response.get("error")) if status == "failed" else None,
        service_tier=tier if isinstance(tier, str) else None,
        extras={key: value for key in _EXTRAS if (value := response.get(key)) is not None} or None,
    )


def answered(body: Wire) -> Finished | None:
    """A JSON body in the place of a stream: a Response that has ended, or an error; None for anything else."""
    if isinstance(body.get("output"), list) and body.get("status", "completed") in ENDINGS.values():
        return finished({"type": "response.completed", "response": body})
    if body.get("error") or body.get("object") == "error":
        # `{"object": "error", "code": …}` is how vLLM before 0.10 spelled it.
        return failed(body)
    return None


def _final_item(item: object) -> Wire | None:
    return tidy(item) if isinstance(item, dict) and well_formed(item) else None


def failed(wire: Wire) -> Finished:
    """An `error` event ends the response; its fields stand flat (OpenAI) or inside `error` (Open Responses)."""
    error = wire.get("error")
    return Finished("failed", None, None, None, _error(error or {"code": wire.get("code")}), None)


def _error(error: object) -> Wire:
    named = error if isinstance(error, dict) else {}
    return {"code": _code(named.get("code")), "type": _code(named.get("type"))}


def _code(value: object) -> str | int | None:
    """A code as it came: a name, or the HTTP status that vLLM gives as a code."""
    if type(value) is int:
        return value
    return value if isinstance(value, str) and _CODE.fullmatch(value) else None


def _usage(usage: object) -> Wire | None:
    """Strict clients read these as integers and need all of them (OpenAI reference)."""
    if not isinstance(usage, dict) or not usage:
        return None
    taken, given = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    into, out = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    return {
        **usage,
        "input_tokens": taken,
        "input_tokens_details": _details(into, "cached_tokens", "cache_write_tokens"),
        "output_tokens": given,
        "output_tokens_details": _details(out, "reasoning_tokens"),
        "total_tokens": _count(usage.get("total_tokens")) or taken + given,
    }


def _details(details: object, *required: str) -> Wire:
    known = details if isinstance(details, dict) else {}
    return {**known, **{key: _count(known.get(key)) for key in required}}


def _count(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else 0
