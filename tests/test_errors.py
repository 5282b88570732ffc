"""Each error as an HTTP answer, and as the `error` of a failed response."""

from typing import Any

import pytest

from shared.errors import ApiError, InvalidRequest, NotFound, Unavailable, UpstreamError

#: name: (the error, its status, its `type`, `param` and `code`, what the answer says of sending the request again)
ERRORS: dict[str, tuple[ApiError, int, tuple[str, str | None, str | None], dict[str, str]]] = {
    "ours": (ApiError("m"), 500, ("server_error", None, "server_error"), {"x-should-retry": "false"}),
    "the caller's": (
        InvalidRequest("m", param="input", code="invalid_value"),
        400,
        ("invalid_request_error", "input", "invalid_value"),
        {"x-should-retry": "false"},
    ),
    "too large": (
        InvalidRequest("m", status=413),
        413,
        ("invalid_request_error", None, None),
        {"x-should-retry": "false"},
    ),
    "not found": (
        NotFound("m", param="input"),
        404,
        ("invalid_request_error", "input", None),
        {"x-should-retry": "false"},
    ),
    "away": (Unavailable("m"), 503, ("service_unavailable_error", None, "server_error"), {"retry-after": "1"}),
    "away, for longer": (
        Unavailable("m", retry_after=9),
        503,
        ("service_unavailable_error", None, "server_error"),
        {"retry-after": "9"},
    ),
    "away, after something was generated": (
        Unavailable("m", retry_after=None),
        503,
        ("service_unavailable_error", None, "server_error"),
        {"x-should-retry": "false"},
    ),
    "the upstream's": (
        UpstreamError("m", status=502),
        502,
        ("server_error", None, "server_error"),
        {"x-should-retry": "false"},
    ),
}


@pytest.mark.parametrize(("error", "status", "names", "headers"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(
    error: ApiError, status: int, names: tuple[str, str | None, str | None], headers: dict[str, str]
) -> None:
    kind, param, code = names
    assert (str(error), error.status, error.headers()) == ("m", status, headers)
    assert error.body() == {"error": {"message": "m", "type": kind, "param": param, "code": code}}
    told: dict[str, Any] = {"code": code or kind, "message": "m", "type": kind, "param": param}
    assert error.response_error() == told
