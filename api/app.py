"""The API as one ASGI application, and the server that runs it."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import operations, responses
from api.error_handlers import add_error_handlers, error_answer
from api.services import open_services
from shared.errors import ApiError
from shared.ids import new_request_id
from shared.logs import set_up_logging
from shared.settings import Settings
from shared.tasks import new_event_loop

_log = logging.getLogger(__name__)

#: What open streams get to end by themselves when the server is told to stop, seconds.
_GRACE = 5


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
        except Exception as error:  # noqa: BLE001 - the last boundary; the error's text may hold content
            _log.error("%s: the request broke: %s", request_id, type(error).__name__)
            if not answered:
                await error_answer(ApiError("The server had an error."))(scope, receive, send_with_headers)


def serve(settings: Settings, sockets: list[socket.socket] | None = None) -> None:
    """Run the API until SIGINT or SIGTERM, on `sockets` or on the settings' host and port."""
    set_up_logging(settings)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_GRACE,
        lifespan="on",
        server_header=False,
        ws="none",
    )
    listening = sockets or [config.bind_socket()]
    host, port = listening[0].getsockname()[:2]
    _log.info("serving at http://%s:%d/v1", f"[{host}]" if ":" in host else host, port)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(listening))
