"""How vLLM 0.32 says no: one exception, one body. Pure.

Messages repeat what the caller sent, as vLLM's do: a gateway in front must not pass them on unread.
"""

from typing import Any

from shared.json_codec import Wire


class Refusal(Exception):
    """An HTTP answer before any generation, plain JSON also when a stream was asked for."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Wire = {"error": {"message": message, "type": kind, "param": param, "code": status}}


def bad_parameter(message: str, param: str, value: Any = None) -> Refusal:
    """A value that vLLM itself, not its schema, refuses."""
    shown = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return Refusal(f"{message} ({shown})", param=param)


def bad_schema(loc: str, kind: str, message: str, value: Any) -> Refusal:
    """A body that does not fit the request's schema: pydantic's words, one error of perhaps many."""
    shown = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, list | dict) else str(value)
    error = {"type": kind, "loc": loc, "msg": message, "input": shown}
    return Refusal(f"1 validation error:\n  {error}", kind="Bad Request", param=loc)


def server_fault(message: str) -> Refusal:
    """An exception inside vLLM while it reads the input."""
    return Refusal(message, status=500, kind="InternalServerError")
