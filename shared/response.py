"""The Response object: one shape, every key, at every moment of a response's life. Pure.

Law: every key of OpenAI's reference and the 29 of Open Responses are always there, in one order. Where strict clients
refuse a null, the value in force stands instead. `output_text` is never sent: clients compute it.
"""

from enum import StrEnum
from typing import Any, Final

from shared import events
from shared.json_codec import Wire


class Status(StrEnum):
    """The life of a response: `queued`, `in_progress`, then one terminal status that never changes."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the response has ended for good."""
        return self not in (Status.QUEUED, Status.IN_PROGRESS)


# No `response.cancelled` exists: OpenAI's own clients raise on it.
_TERMINAL_TYPES: Final = {
    Status.COMPLETED: events.COMPLETED,
    Status.INCOMPLETE: events.INCOMPLETE,
    Status.FAILED: events.FAILED,
    Status.CANCELLED: events.FAILED,
}


def terminal_type(status: Status) -> str:
    """The type of the event that ends a response of this status. A status that is not terminal raises `KeyError`."""
    return _TERMINAL_TYPES[status]


def response_object(
    *,
    response_id: str,
    created_at: int,
    options: Wire,
    status: Status,
    output: list[Wire],
    reasoning_context: str,
    usage: Wire | None = None,
    error: Wire | None = None,
    incomplete_details: Wire | None = None,
    completed_at: int | None = None,
    service_tier: str | None = None,
) -> Wire:
    """The whole object. Times are Unix seconds; `options` is the request's, `reasoning_context` the mode in force.

    `service_tier` is the tier that was used: none and `auto` (vLLM's constant answer) are `default`.
    `completed_at` is shown only by a completed response, and `error` never by a cancelled one (OpenAI reference).
    """
    echo = options.get
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": status.value,
        "background": echo("background", False),
        "completed_at": completed_at if status is Status.COMPLETED else None,
        "conversation": None,
        "error": _error(error) if status is Status.FAILED else None,
        "frequency_penalty": float(echo("frequency_penalty", 0.0)),
        "incomplete_details": incomplete_details,
        "instructions": echo("instructions"),
        "max_output_tokens": echo("max_output_tokens"),
        "max_tool_calls": echo("max_tool_calls"),
        "metadata": echo("metadata", {}),
        "model": options["model"],
        "output": output,
        "parallel_tool_calls": echo("parallel_tool_calls", True),
        "presence_penalty": float(echo("presence_penalty", 0.0)),
        "previous_response_id": echo("previous_response_id"),
        "prompt_cache_key": echo("prompt_cache_key"),
        "prompt_cache_options": _cache_options(echo("prompt_cache_options")),
        "prompt_cache_retention": echo("prompt_cache_retention"),
        "reasoning": _reasoning(echo("reasoning", {}), reasoning_context),
        "safety_identifier": echo("safety_identifier"),
        "service_tier": "default" if service_tier in (None, "auto") else service_tier,
        "store": echo("store", True),
        "temperature": float(echo("temperature", 1.0)),
        "text": _text(echo("text", {})),
        "tool_choice": _tool_choice(echo("tool_choice", "auto")),
        "tools": [_tool(tool) for tool in echo("tools", ())],
        "top_logprobs": echo("top_logprobs", 0),
        "top_p": float(echo("top_p", 1.0)),
        "truncation": echo("truncation", "disabled"),
        "usage": None if usage is None else _usage(usage),
        "user": echo("user"),
    }


def wants_summary(options: Wire) -> bool:
    """Whether a request asks for summaries of its reasoning."""
    return bool(_summary(options.get("reasoning") or {}))


def _summary(asked: Wire) -> str | None:
    return asked.get("summary") or asked.get("generate_summary")


def _reasoning(asked: Wire, context: str) -> Wire:
    return {"effort": asked.get("effort"), "summary": _summary(asked), "context": context}


def _cache_options(asked: Wire | None) -> Wire | None:
    return None if asked is None else {"mode": "implicit", "ttl": "30m"} | asked


def _text(asked: Wire) -> Wire:
    form = asked.get("format") or {"type": "text"}
    if form["type"] == "json_schema":
        form = {"type": "json_schema", "name": None, "description": None, "schema": None, "strict": None} | form
    # Strict clients refuse a null verbosity.
    return {"format": form} | ({"verbosity": asked["verbosity"]} if asked.get("verbosity") else {})


def _tool_choice(asked: Any) -> Any:
    if isinstance(asked, dict) and asked["type"] == "allowed_tools":
        return {"type": "allowed_tools", "mode": "auto"} | asked
    return asked


def _tool(asked: Wire) -> Wire:
    if asked["type"] != "function":
        return asked
    return {"type": "function", "name": None, "description": None, "parameters": None, "strict": None} | asked


def _error(error: Wire | None) -> Wire:
    given = error or {}
    return {
        "code": given.get("code") or "server_error",
        "message": given.get("message") or "The response failed.",
        "type": given.get("type") or "server_error",
        "param": given.get("param"),
    }


def _usage(usage: Wire) -> Wire:
    asked, answered = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    tokens_in, tokens_out = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {
            "cached_tokens": _count(asked, "cached_tokens"),
            "cache_write_tokens": _count(asked, "cache_write_tokens"),
        },
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": _count(answered, "reasoning_tokens")},
        "total_tokens": _count(usage, "total_tokens") or tokens_in + tokens_out,
    }


def _count(holder: Wire, key: str) -> int:
    """A token count as an integer: strict clients refuse a float."""
    return int(holder.get(key) or 0)
