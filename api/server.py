"""The server that runs the application, from its listening socket to its last stream.

Law: told to stop, it lets answers that are under way end by themselves for a while, then tells who still follows that
it stops, and only cuts off who does not even take that. Always, a client may read as slowly as it likes, but one that
takes nothing for a long while, or whose machine is gone, has left.
"""

import asyncio
import logging
import signal
import socket

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from shared.logs import set_up_logging
from shared.settings import Settings
from shared.tasks import new_event_loop

_log = logging.getLogger(__name__)

#: What open streams get to end by themselves when the server is told to stop, seconds.
_GRACE = 5
#: And what they get to take the word that the server stops.
_FAREWELL = 1
#: How long a client may take nothing of what waits for it, seconds: as long as a laptop sleeps or a reader thinks.
_PATIENCE = 300
#: When a silent client's machine is asked whether it is still there, and how often again.
_PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 30}


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        farewell = asyncio.get_running_loop().call_later(_GRACE, self._app.state.services.subscriptions.stop)
        await super().shutdown(sockets)
        farewell.cancel()


def let_go_of_the_dead(listening: socket.socket, patience: float = _PATIENCE) -> None:
    """Have the kernel end connections whose client takes nothing, which accepted sockets inherit (Linux).

    Without it a client that never reads holds its connection for ever, and one that vanished without a word for as
    long as the kernel sends again: a quarter of an hour, and for ever on a silent connection. A write that waits for
    such a client fails, and the client counts as having left.
    """
    if listening.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = _PROBES | {"TCP_USER_TIMEOUT": int(patience * 1000)}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:  # other systems have only some of them
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


def serve(settings: Settings, sockets: list[socket.socket] | None = None) -> None:
    """Run the API until SIGINT or SIGTERM, on `sockets` or on the settings' host and port."""
    set_up_logging(settings)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_GRACE + _FAREWELL,
        lifespan="on",
        server_header=False,
        ws="none",
    )
    listening = sockets or [config.bind_socket()]
    for one in listening:
        let_go_of_the_dead(one)
    host, port = listening[0].getsockname()[:2]
    _log.info("serving at http://%s:%d/v1", f"[{host}]" if ":" in host else host, port)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises a signal that it has obeyed once more, and the process would end as if killed by it.
        signal.signal(number, lambda *_: None)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_Server(config, app).serve(listening))
