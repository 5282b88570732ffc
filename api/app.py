"""The API as one ASGI application."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import operations, responses
from api.error_handlers import add_error_handlers, error_answer
from api.services import open_services
from shared.errors import ApiError
from shared.ids import new_request_id
from shared.settings import Settings

_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application; it opens its connections when it starts and closes them when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(settings) as services:
            app.state.services = services
            yield

    app = FastAPI(
        title="Rejoinder",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client sent, and http behind a proxy
    )
    app.include_router(responses.router)
    app.include_router(operations.router)
    add_error_handlers(app)
    app.add_middleware(RequestHeaders)
    return app


class RequestHeaders:
    """Puts OpenAI's headers on every answer; the last boundary: an unforeseen error becomes a 500 that says nothing.

    Plain ASGI: a `BaseHTTPMiddleware` would hide disconnects from streams.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        request_id = new_request_id()
        answered = False

        async def send_with_headers(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                milliseconds = int((time.monotonic() - started) * 1000)
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    (b"openai-processing-ms", b"%d" % milliseconds),
                    (b"openai-version", b"2020-10-01"),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            _log.info("%s: the client left before its answer", request_id)
        except asyncio.CancelledError:
            _log.info("%s: cut off, the server stops", request_id)  # and no traceback in the server's own log
        except Exception as error:  # noqa: BLE001 - the last boundary; the error's text may hold content
            _log.error("%s: the request broke: %s", request_id, type(error).__name__)
            if not answered:
                await error_answer(ApiError("The server had an error."))(scope, receive, send_with_headers)
