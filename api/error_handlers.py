"""Every error leaves as OpenAI's error body. No handler echoes or logs what a request held.

Not even its method and path: whoever sends a request knows them, and they may hold anything.
"""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.bodies import json_answer
from shared.checks import wrong_value
from shared.errors import ApiError, InvalidRequest, NotFound, Unavailable

_log = logging.getLogger(__name__)


def add_error_handlers(app: FastAPI) -> None:
    """Cover our own errors, Redis's, and those that the framework raises by itself."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RedisError, _redis_error)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(HTTPException, _framework_error)


def error_answer(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    """The HTTP answer of an error, with `headers` beside its own."""
    return json_answer(error.body(), error.status, error.headers() | (headers or {}))


def _api_error(_: Request, error: Exception) -> Response:
    return error_answer(error if isinstance(error, ApiError) else ApiError("The server had an error."))


def _redis_error(_: Request, error: Exception) -> Response:
    _log.warning("redis: %s", type(error).__name__)
    return error_answer(Unavailable("The server's store can't be reached right now. Try again shortly."))


def _bad_parameter(_: Request, error: Exception) -> Response:
    """A path or query parameter of the wrong type; bodies are read by our own code."""
    found = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": ("",), "msg": ""}
    # Pydantic's words for what our routes ask of a parameter; the value stands after a comma, if at all.
    rule = str(found["msg"]).partition(",")[0].removeprefix("Input ")
    return error_answer(wrong_value(str(found["loc"][-1]), rule))


def _framework_error(_: Request, error: Exception) -> Response:
    status, headers = 500, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, {name.lower(): value for name, value in (error.headers or {}).items()}
    match status:
        case 404:
            refusal: ApiError = NotFound(
                "Nothing is at this URL: see /v1/responses and /v1/models.",
                code="unknown_url",
            )
        case 405:
            refusal = InvalidRequest("This URL does not take this method.", code="method_not_allowed", status=405)
        case _:
            refusal = InvalidRequest("The request could not be read.", status=status)
    return error_answer(refusal, headers)
