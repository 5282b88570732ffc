"""A simulated vLLM: the HTTP face of vLLM 0.32, with no model behind it. For demos, tests and benchmarks.

Law: on the wire it is vLLM with `--reasoning-parser qwen3 --tool-call-parser hermes` and no response store; a test
compares it with recordings of a real one. What it says is made up from the words it was sent (`simulated_answers`).

    POST /v1/responses            streamed and plain; `"simulate": {…}` in the body sets this request's `Faults`
    GET  /v1/models /health /ping /version /load /metrics
    GET  /simulator/requests      what POST /v1/responses was sent, in order, and how each ended; DELETE clears it
    POST /simulator/faults        {"next": n, …} sets faults for the next n requests (default 1; null: until cleared)
    GET  /simulator/faults        what is set; DELETE clears it
    GET  /simulator/running       {"running": n}: generations that go on at this moment
"""

import asyncio
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cli import simulated_wire as wire
from cli.simulated_delivery import Broken, send_json, until_gone
from cli.simulated_engine import Engine, Turn
from cli.simulated_faults import FaultDesk, Faults
from cli.simulated_record import Record, Recorder
from cli.simulated_refusal import Refusal, bad_schema, server_fault
from cli.simulated_request import unknown_response
from shared.json_codec import Wire, decode

VERSION = "0.32.0"


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """How the process behaves. Seconds and bytes; `faults` is what every request gets unless it is told otherwise."""

    models: tuple[str, ...] = ("simulated",)
    max_model_len: int = 32_768
    faults: Faults = field(default_factory=Faults)
    keep_alive: int = 5
    recorded_requests: int = 1000
    recorded_bytes: int = 64 * 1024 * 1024


class _Responses:
    """POST /v1/responses as a plain ASGI app: nothing stands between a stream and its socket."""

    def __init__(self, engine: Engine, desk: FaultDesk, recorder: Recorder) -> None:
        self._engine = engine
        self._desk = desk
        self._recorder = recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive)
        record = self._recorder.open(await http.body(), scope["headers"])
        try:
            await until_gone(receive, self._serve(http, record, send), record)
        except Broken:
            record.ending = "broken"
            _break(scope)

    async def _serve(self, http: HttpRequest, record: Record, send: Send) -> None:
        try:
            body = await _decoded(record.raw, http)
            faults = self._desk.draw(body.get("simulate") if isinstance(body, dict) else None)
            await asyncio.sleep(faults.before_headers_seconds)
            if faults.drop_before_headers:
                raise Broken
            if faults.refuse is not None:
                raise _refusal(faults.refuse, faults.refuse_body)
            await self._turn(body).answer(send, faults, record)
        except Refusal as refusal:
            record.status, record.ending = refusal.status, "refused"
            await send_json(send, refusal.status, refusal.body)

    def _turn(self, body: Any) -> Turn:
        try:
            return Turn(self._engine, body)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise server_fault(str(error)) from error  # as vLLM does with what its schema let through


async def _decoded(raw: bytes, http: HttpRequest) -> Any:
    try:
        return decode(raw)
    except ValueError:
        place = 0
    try:
        await http.json()  # vLLM says where it fell over the text
    except ValueError as error:
        place = getattr(error, "pos", 0)
    raise bad_schema(f"body.{place}", "json_invalid", "JSON decode error", {})


def _refusal(status: int, body: Any) -> Refusal:
    kind = "ServiceUnavailableError" if status == 503 else "InternalServerError"
    refusal = Refusal("The simulator was told to refuse.", status=status, kind=kind)
    if body is not None:
        refusal.body = body
    return refusal


def _break(scope: Scope) -> None:
    """End the connection without ending the answer."""
    transport = scope.get("extensions", {}).get("transport")
    if transport is None:
        raise ConnectionResetError("the simulator broke off")
    transport.close()


class _Protocol(HttpToolsProtocol):
    """uvicorn's, which lets a request break its own connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"transport": self.transport}  # type: ignore[dict-item]  # not of the ASGI spec


def create_app(options: SimulatorOptions | None = None) -> FastAPI:
    """The ASGI app of a simulated server with a state of its own."""
    options = options or SimulatorOptions()
    engine = Engine(options.models, options.max_model_len)
    desk = FaultDesk(options.faults)
    recorder = Recorder(options.recorded_requests, options.recorded_bytes)
    app = FastAPI(title="Simulated vLLM", version=VERSION)
    app.router.routes.append(Route("/v1/responses", _Responses(engine, desk, recorder), methods=["POST"]))
    _add_vllm_routes(app, engine)
    _add_records(app, engine, recorder)
    _add_faults(app, desk)

    @app.exception_handler(Refusal)
    async def refuse(_: HttpRequest, refusal: Refusal) -> JSONResponse:
        return JSONResponse(refusal.body, refusal.status)

    return app


def _add_vllm_routes(app: FastAPI, engine: Engine) -> None:
    @app.get("/v1/models")
    async def models() -> Wire:
        cards = [wire.model_card(name, engine.created_at, engine.max_model_len) for name in engine.models]
        return {"object": "list", "data": cards}

    @app.get("/health")
    @app.get("/ping")
    async def health() -> Response:
        return Response()

    @app.get("/version")
    async def version() -> Wire:
        return {"version": VERSION}

    @app.get("/load")
    async def load() -> Wire:
        return {"server_load": engine.running}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(_metrics(engine))

    @app.get("/v1/responses/{response_id}")
    @app.post("/v1/responses/{response_id}/cancel")
    async def unknown(response_id: str) -> None:
        raise unknown_response(response_id)


def _add_records(app: FastAPI, engine: Engine, recorder: Recorder) -> None:
    @app.get("/simulator/requests")
    async def requests() -> Wire:
        return {"running": engine.running, **recorder.view()}

    @app.delete("/simulator/requests")
    async def forget_requests() -> Wire:
        recorder.clear()
        return {"running": engine.running, **recorder.view()}

    @app.get("/simulator/running")
    async def running() -> Wire:
        return {"running": engine.running}


def _add_faults(app: FastAPI, desk: FaultDesk) -> None:
    @app.post("/simulator/faults")
    async def file_faults(http: HttpRequest) -> Wire:
        return desk.file(await _decoded(await http.body(), http))

    @app.get("/simulator/faults")
    async def faults() -> Wire:
        return desk.view()

    @app.delete("/simulator/faults")
    async def clear_faults() -> Wire:
        desk.clear()
        return desk.view()


def _metrics(engine: Engine) -> str:
    label = f'engine="0",model_name="{engine.models[0]}"'
    totals = engine.totals
    return "".join(
        f"vllm:{name}{{{label}{extra}}} {value}\n"
        for name, extra, value in (
            ("num_requests_running", "", engine.running),
            ("num_requests_waiting", "", 0),
            ("prompt_tokens_total", "", totals["prompt_tokens"]),
            ("generation_tokens_total", "", totals["generation_tokens"]),
            ("request_success_total", ',finished_reason="stop"', totals["finished"]),
            ("request_success_total", ',finished_reason="abort"', totals["aborted"]),
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    return socket.create_server((host, port), backlog=2048)


def server(options: SimulatorOptions) -> uvicorn.Server:
    """A server to run on a socket of `listen`. When it ends it cuts running streams, as vLLM does."""
    config = uvicorn.Config(
        create_app(options),
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # answers that break off are what it is for
        access_log=False,
        timeout_keep_alive=options.keep_alive,
        timeout_graceful_shutdown=0,
    )
    return uvicorn.Server(config)


def serve(host: str, port: int, options: SimulatorOptions) -> None:
    """Serve until SIGINT or SIGTERM. One line on stderr says where, and that it is a simulator."""
    listener = listen(host, port)
    address = "{}:{}".format(*listener.getsockname()[:2])
    sys.stderr.write(f"simulated vLLM {VERSION} on http://{address}: no model runs here, every answer is made up\n")
    sys.stderr.flush()
    server(options).run(sockets=[listener])
