"""What can go wrong, as OpenAI's clients understand it. Pure.

    ApiError            an HTTP status and OpenAI's error body
    ├── InvalidRequest  400, the caller's fault: nothing was queued, nothing was lost
    ├── NotFound        404
    ├── Unavailable     503, ours or Redis's: try again
    └── UpstreamError   vLLM refused, broke off or could not be reached

Law: a message is written by us from names, ids, numbers and types. No text that a user wrote or a model thought, and no
text that another server sent, ever stands in one.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class ApiError(Exception):
    """One refusal: what the HTTP answer, or the `error` of a failed response, says."""

    message: str
    status: int = 500
    type: str = "server_error"
    code: str | None = "server_error"
    param: str | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """The HTTP body: all four keys are always there (OpenAI reference)."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response_error(self) -> dict[str, Any]:
        """The `error` of a failed response: `type` and a string `code` are always there, strict clients need both."""
        return {"code": self.code or self.type, "message": self.message, "type": self.type, "param": self.param}


class InvalidRequest(ApiError):
    """The request can't be carried out as it stands."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        ApiError.__init__(self, message, status, "invalid_request_error", code, param)


class NotFound(ApiError):
    """The thing that the path names does not exist, or not for this caller."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        ApiError.__init__(self, message, 404, "invalid_request_error", code, param)


class Unavailable(ApiError):
    """A part we depend on is away; the same request may succeed soon."""

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, message, 503, "service_unavailable_error", "server_error", None)


class UpstreamError(ApiError):
    """vLLM could not serve the turn. `status` is what a plain call answers with."""
