"""An upstream that answers as it is told, down to its bytes: for what no vLLM, and no simulation of one, ever says."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

from shared.json_codec import decode, encode

#: What a real vLLM streamed: reasoning (4 to 18 of its events), then a message.
HELLO = [
    event + b"\n\n"
    for event in (Path(__file__).parent / "captured/hello_stream.response.sse").read_bytes().split(b"\n\n")
    if event
]


@dataclass(frozen=True)
class Reply:
    """One answer. `parts` go out in chunked encoding, each after `pause` seconds; `then` says how it ends."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    parts: Sequence[bytes] = tuple(HELLO)
    pause: float = 0.0
    before: float = 0.0  # seconds before the status line
    then: str = "end"  # "end", "break" the connection, "hang" until the server ends, "nothing" at all


def refusing(status: int, body: Any = None, **headers: str) -> Reply:
    """A refusal in plain JSON, as vLLM refuses, also where a stream was asked for."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"content-type": "application/json", **named}, [encode(body)])


class ScriptedVllm:
    """Serves on `port` while it is `up`. `replies` are used in turn, the last one for good.

    `requests` are the bodies that came, `sent` the parts that the newest was answered with so far.
    """

    def __init__(self, port: int, model: str) -> None:
        self.replies: list[Reply] = [Reply()]
        self.requests: list[Any] = []
        self.sent = 0
        self._port = port
        self._models = encode({"object": "list", "data": [{"id": model, "object": "model", "created": 1}]})
        self._server: ThreadingHTTPServer | None = None
        self._ending = Event()
        self.up()

    def up(self) -> None:
        """Listen."""
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = scripted._models if self.path == "/v1/models" else b""
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                scripted.sent = 0
                scripted.requests.append(decode(self.rfile.read(int(self.headers["content-length"]))))
                reply = scripted.replies.pop(0) if len(scripted.replies) > 1 else scripted.replies[0]
                self.close_connection = True
                with suppress(OSError):  # the client may leave
                    scripted._answer(self, reply)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._ending.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections."""
        self._ending.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        self._ending.wait(reply.before)
        if reply.then == "nothing":
            return
        handler.send_response(reply.status)
        for name, value in {**reply.headers, "transfer-encoding": "chunked"}.items():
            handler.send_header(name, value)
        handler.end_headers()
        for part in reply.parts:
            time.sleep(reply.pause)
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.sent += 1
        if reply.then == "hang":
            self._ending.wait()
        elif reply.then == "end":
            handler.wfile.write(b"0\r\n\r\n")
        else:
            time.sleep(
                0.2
            )  # what came is read by then: a client drops what it has not read yet when a connection breaks
