"""What can go wrong, as OpenAI's clients understand it. Pure.

    ApiError            an HTTP status and OpenAI's error body
    ├── InvalidRequest  400, the caller's fault: nothing was queued, nothing was lost
    ├── NotFound        404
    ├── Unavailable     503, ours or Redis's: try again
    └── UpstreamError   vLLM refused, broke off or could not be reached

Law: a message is written by us from names, ids, numbers and types. No text that a user wrote or a model thought, and no
text that another server sent, ever stands in one.

Law: an HTTP answer says whether to send the request again, as clients do so by themselves and name no idempotency key.
`retry-after` where nothing was generated and the fault passes; else `x-should-retry: false`, as a copy would be
generated anew, or refused anew.
"""

from dataclasses import dataclass
from typing import Any, Final

#: Seconds that a client is asked to wait where nobody knows better.
RETRY_AFTER: Final = 1


def retry_headers(retry_after: int | None) -> dict[str, str]:
    """The header for `ApiError.retry_after`."""
    return {"x-should-retry": "false"} if retry_after is None else {"retry-after": str(retry_after)}


@dataclass(slots=True, eq=False)
class ApiError(Exception):
    """One refusal: what the HTTP answer, or the `error` of a failed response, says.

    `retry_after`: seconds until the same request may be sent again; None where it is not to be.
    """

    message: str
    status: int = 500
    type: str = "server_error"
    code: str | None = "server_error"
    param: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """The HTTP body: all four keys are always there (OpenAI reference)."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """What the HTTP answer says of sending the request again (the official clients obey both)."""
        return retry_headers(self.retry_after)

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
    """A part we depend on is away; the same request may succeed soon. `retry_after` as for every `ApiError`."""

    def __init__(self, message: str, *, retry_after: int | None = RETRY_AFTER) -> None:
        ApiError.__init__(self, message, 503, "service_unavailable_error", "server_error", None, retry_after)


class UpstreamError(ApiError):
    """vLLM could not serve the turn. `status` is what a plain call answers with."""
