"""Every error leaves as OpenAI's error body. No handler echoes or logs what a request held."""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.bodies import json_answer
from shared.errors import ApiError, InvalidRequest, NotFound, Unavailable

_log = logging.getLogger(__name__)


def add_error_handlers(app: FastAPI) -> None:
    """Cover our own errors, Redis's, and those that the framework raises by itself."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RedisError, _redis_error)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(HTTPException, _framework_error)


def error_answer(error: ApiError) -> Response:
    """The HTTP answer of an error."""
    headers = {"retry-after": "1"} if error.status in {429, 503} else None
    return json_answer(error.body(), error.status, headers)


def _api_error(_: Request, error: Exception) -> Response:
    return error_answer(error if isinstance(error, ApiError) else ApiError("The server had an error."))


def _redis_error(_: Request, error: Exception) -> Response:
    _log.warning("redis: %s", type(error).__name__)
    return error_answer(Unavailable("The server's store can't be reached right now. Try again shortly."))


def _bad_parameter(_: Request, error: Exception) -> Response:
    """A path or query parameter of the wrong type; bodies are read by our own code."""
    found = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    name = str(found.get("loc", ("", ""))[-1])
    return error_answer(InvalidRequest(f"Invalid value for '{name}'.", param=name, code="invalid_value"))


def _framework_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return error_answer(NotFound(f"Unknown request URL: {request.method} {request.url.path}.", code="unknown_url"))
    if status == 405:
        return error_answer(InvalidRequest(f"Method {request.method} is not allowed here.", status=405))
    return error_answer(InvalidRequest("The request could not be read.", status=status))
