"""The client of vLLM against a raw TCP server that is scripted byte by byte, on both event loops."""

import asyncio
import contextlib
import re
import socket
import struct
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from shared.errors import UpstreamError
from shared.json_codec import decode, encode
from shared.settings import Settings
from shared.upstream_address import upstream_root
from shared.upstream_events import Finished, TextDelta, UpstreamEvent
from workers import vllm as vllm_module
from workers.vllm import IDLE_LIMIT, Vllm

BODY = {"model": "tiny", "input": "Ada's secret", "stream": True}
SECRET = b"Ada's secret"

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def event(kind: str, **body: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **body}))


def piece(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str) -> bytes:
    return event(
        "response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=text, logprobs=[]
    )


CREATED = event("response.created", response={"status": "in_progress", "output": []})
COMPLETED = event("response.completed", response={"status": "completed", "output": [], "usage": None})
ANSWER = HEAD + piece(CREATED) + piece(delta("né")) + piece(delta("北")) + piece(COMPLETED) + LAST


@dataclass
class Exchange:
    """One request, as the server sees it, and the means to answer it."""

    head: bytes
    body: bytes
    connection: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, *pieces: bytes) -> None:
        for data in pieces:
            self.writer.write(data)
            await self.writer.drain()

    async def until_left(self) -> None:
        """Wait for the client's EOF or reset."""
        with contextlib.suppress(ConnectionError):
            assert await self.reader.read(1) == b""
        self.client_left.set()

    def reset(self) -> None:
        """Break the connection with a RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Exchange], Awaitable[None]]


@dataclass
class Upstream:
    """The scripted server: every request on any connection runs the script."""

    port: int
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def exchange(self, number: int = 0) -> Exchange:
        """The request of that number, once it has arrived whole."""
        async with asyncio.timeout(5), self.arrived:
            await self.arrived.wait_for(lambda: len(self.exchanges) > number)
        return self.exchanges[number]


@asynccontextmanager
async def serving(script: Script) -> AsyncGenerator[Upstream, None]:
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream.connections += 1
        upstream.open += 1
        connection = upstream.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                exchange = Exchange(head, body, connection, reader, writer)
                async with upstream.arrived:
                    upstream.exchanges.append(exchange)
                    upstream.arrived.notify_all()
                await script(exchange)
                if exchange.client_left.is_set() or writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            upstream.open -= 1
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    upstream = Upstream(server.sockets[0].getsockname()[1])
    try:
        yield upstream
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def sends(*pieces: bytes, then: str = "wait") -> Script:
    """A script that writes, and then waits for the client to leave, is `done`, closes, or resets."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(*pieces)
        if then == "wait":
            await exchange.until_left()
        elif then == "close":
            exchange.writer.close()
        elif then == "reset":
            exchange.reset()

    return script


def settings_for(port: int, **changes: Any) -> Settings:
    values = {"vllm_url": f"http://127.0.0.1:{port}", "connect_timeout": 2.0, "first_event_timeout": 5.0}
    return Settings(**{**values, "stall_timeout": 5.0, **changes})


@asynccontextmanager
async def client(port: int, *, idle_limit: float = IDLE_LIMIT, **changes: Any) -> AsyncIterator[Vllm]:
    vllm = Vllm(settings_for(port, **changes), idle_limit=idle_limit)
    try:
        yield vllm
    finally:
        await vllm.aclose()


async def read(vllm: Vllm) -> list[list[UpstreamEvent]]:
    async with vllm.stream(BODY) as answer:
        return [events async for events in answer]


def texts(batches: list[list[UpstreamEvent]]) -> list[str]:
    return [event.delta for events in batches for event in events if isinstance(event, TextDelta)]


@pytest.fixture(
    params=[("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
    scope="module",
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


# --- what is sent


async def test_the_request() -> None:
    async with serving(sends(ANSWER, then="done")) as upstream, client(upstream.port) as vllm:
        await read(vllm)
        exchange = await upstream.exchange()
    lines = exchange.head.lower().split(b"\r\n")
    assert lines[0] == b"post /v1/responses http/1.1"
    assert b"accept: text/event-stream" in lines
    assert b"accept-encoding: identity" in lines
    assert b"content-type: application/json" in lines
    assert not any(line.startswith((b"authorization", b"cookie", b"transfer-encoding")) for line in lines)
    assert decode(exchange.body) == BODY


async def test_the_key_is_sent_where_one_is_set() -> None:
    async with (
        serving(sends(ANSWER, then="done")) as upstream,
        client(upstream.port, vllm_api_key=SecretStr("k-1")) as vllm,
    ):
        await read(vllm)
        assert b"authorization: Bearer k-1\r\n" in (await upstream.exchange()).head


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_address_may_end_in_any_way(url: str) -> None:
    assert upstream_root(Settings(vllm_url=url)) == "http://h:1"


async def test_an_address_may_have_a_path() -> None:
    async with (
        serving(sends(ANSWER, then="done")) as upstream,
        client(upstream.port, vllm_url=f"http://127.0.0.1:{upstream.port}/gpu/v1/") as vllm,
    ):
        await read(vllm)
        assert (await upstream.exchange()).head.startswith(b"POST /gpu/v1/responses ")


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(sends(ANSWER, then="done")) as upstream, client(upstream.port) as vllm:
        assert texts(await read(vllm)) == ["né", "北"]


async def test_cookies_are_not_sent_back() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nset-cookie: replica=3; Path=/\r\n\r\n")
    async with serving(sends(head, piece(COMPLETED), LAST, then="done")) as upstream, client(upstream.port) as vllm:
        await read(vllm)
        await read(vllm)
        assert b"cookie" not in (await upstream.exchange(1)).head.lower()


# --- what is read


async def test_each_read_gives_its_events_as_one_list() -> None:
    taken = asyncio.Semaphore(0)
    writes = (
        HEAD + piece(CREATED) + piece(delta("a")),
        piece(delta("b")[:9]),  # no whole event: gives nothing
        piece(delta("b")[9:] + delta("c")) + piece(delta("d")[:-1]),
        piece(b"\n" + COMPLETED) + LAST,
    )

    async def script(exchange: Exchange) -> None:
        for number, data in enumerate(writes):
            await exchange.send(data)
            if number != 1:
                await taken.acquire()

    seen: list[list[str]] = []
    async with serving(script) as upstream, client(upstream.port) as vllm, vllm.stream(BODY) as answer:
        async for events in answer:
            seen.append([event.delta if isinstance(event, TextDelta) else type(event).__name__ for event in events])
            taken.release()
    assert seen == [["Skipped", "a"], ["b", "c"], ["d", "Finished"]]


async def test_any_cut_of_the_bytes_gives_the_same_events() -> None:
    cut = 0

    async def script(exchange: Exchange) -> None:
        await exchange.send(ANSWER[:cut])
        await asyncio.sleep(0)
        await exchange.send(ANSWER[cut:])

    async with serving(script) as upstream, client(upstream.port) as vllm:
        for cut in range(1, len(ANSWER)):
            batches = await read(vllm)
            assert texts(batches) == ["né", "北"], cut
            assert isinstance(batches[-1][-1], Finished), cut


async def test_a_large_event_arrives_whole() -> None:
    text = "北" * 300_000
    async with (
        serving(sends(HEAD, piece(delta(text)), piece(COMPLETED), LAST, then="done")) as upstream,
        client(upstream.port) as vllm,
    ):
        assert texts(await read(vllm)) == [text]


async def test_an_end_without_a_terminal_event_just_ends() -> None:
    tail = delta("b")[:-2]  # its blank line never came
    async with (
        serving(sends(HEAD, piece(delta("a") + tail), LAST, then="done")) as upstream,
        client(upstream.port) as vllm,
    ):
        assert texts(await read(vllm)) == ["a", "b"]


async def test_nothing_is_waited_for_after_the_terminal_event() -> None:
    async with (
        serving(sends(HEAD + piece(COMPLETED))) as upstream,
        client(upstream.port, stall_timeout=60) as vllm,
        asyncio.timeout(2),
    ):
        assert [[type(event) for event in events] for events in await read(vllm)] == [[Finished]]
        await (await upstream.exchange()).client_left.wait()


# --- what can go wrong


def plain(status: str, body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (status.encode(), kind, len(body), body)


def vllm_error(message: str, code: int) -> bytes:
    return encode({"error": {"message": message, "type": "BadRequestError", "param": None, "code": code}})


WHOLE = encode({"object": "response", "status": "completed", "output": [], "usage": None})
CONTEXT = vllm_error(
    "This model's maximum context length is 8 tokens. However, your prompt contains 9 input tokens", 400
)
BEGUN = HEAD + piece(CREATED) + piece(delta("a"))
SERVER_ERROR = "server_error"

Case = tuple[Script, dict[str, Any], int, str]

FAULTS: dict[str, Case] = {
    "closed before the headers": (sends(then="close"), {}, 502, SERVER_ERROR),
    "reset before the headers": (sends(then="reset"), {}, 502, SERVER_ERROR),
    "closed inside the headers": (sends(HEAD[:30], then="close"), {}, 502, SERVER_ERROR),
    "no headers": (sends(), {"first_event_timeout": 0.1}, 504, SERVER_ERROR),
    "no event": (sends(HEAD), {"first_event_timeout": 0.1}, 504, SERVER_ERROR),
    "no event but comments": (sends(HEAD + piece(b": ping\n\n")), {"first_event_timeout": 0.1}, 504, SERVER_ERROR),
    "announced, never begun": (sends(HEAD + piece(CREATED)), {"first_event_timeout": 0.1}, 504, SERVER_ERROR),
    "stalled": (sends(BEGUN), {"stall_timeout": 0.1}, 504, SERVER_ERROR),
    "stalled inside an event": (sends(BEGUN + piece(delta("b")[:9])), {"stall_timeout": 0.1}, 504, SERVER_ERROR),
    "cut between chunks": (sends(BEGUN, then="close"), {}, 502, SERVER_ERROR),
    "cut inside a chunk": (sends(BEGUN + piece(delta("b"))[:20], then="close"), {}, 502, SERVER_ERROR),
    "reset": (sends(BEGUN, then="reset"), {}, 502, SERVER_ERROR),
    "broken chunk size": (sends(BEGUN + b"zz\r\n" + SECRET), {}, 502, SERVER_ERROR),
    "no HTTP": (sends(SECRET + b"\r\n\r\n"), {}, 502, SERVER_ERROR),
    "JSON, cut": (sends(plain("200 OK", WHOLE)[:-9], then="close"), {}, 502, SERVER_ERROR),
    "JSON, stalled": (sends(plain("200 OK", WHOLE)[:-9]), {"stall_timeout": 0.1}, 504, SERVER_ERROR),
    "JSON, never begun": (sends(plain("200 OK", b" " * 9)[:-1]), {"first_event_timeout": 0.1}, 504, SERVER_ERROR),
    "over-long JSON": (sends(plain("200 OK", b'{"' + SECRET * 200)[:-9]), {"max_event_bytes": 1024}, 502, SERVER_ERROR),
    "over-long event": (sends(BEGUN + piece(b"data: " + SECRET * 200)), {"max_event_bytes": 1024}, 502, SERVER_ERROR),
    "refused, body cut": (
        sends(plain("400 Bad Request", CONTEXT)[:-9], then="close"),
        {},
        400,
        "invalid_prompt",
    ),
    "refused, body never ends": (sends(plain("503 Unavailable", CONTEXT)[:-9]), {}, 503, SERVER_ERROR),
    "refused at length": (sends(plain("500 Error", SECRET * 20_000)), {}, 502, SERVER_ERROR),
}
#: Whole answers, but none that we can use: these leave their connection in the pool.
USELESS: dict[str, Case] = {
    "JSON instead of a stream": (sends(plain("200 OK", SECRET), then="done"), {}, 502, SERVER_ERROR),
    "JSON that is no Response": (sends(plain("200 OK", encode([BODY])), then="done"), {}, 502, SERVER_ERROR),
    "JSON that breaks off": (sends(plain("200 OK", WHOLE[:-9]), then="done"), {}, 502, SERVER_ERROR),
    "an empty stream": (sends(HEAD + LAST, then="done"), {}, 502, SERVER_ERROR),
    "HTML": (sends(plain("200 OK", SECRET, b"text/html"), then="done"), {}, 502, SERVER_ERROR),
    "no content": (sends(b"HTTP/1.1 204 No Content\r\n\r\n", then="done"), {}, 502, SERVER_ERROR),
    "redirect": (
        sends(b"HTTP/1.1 307 X\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", then="done"),
        {},
        502,
        SERVER_ERROR,
    ),
    "refused": (sends(plain("400 Bad Request", CONTEXT), then="done"), {}, 400, "context_length_exceeded"),
}


@pytest.mark.parametrize("name", [*FAULTS, *USELESS])
async def test_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, changes, status, code = (FAULTS | USELESS)[name]
    monkeypatch.setattr(vllm_module, "_REFUSAL_TIMEOUT", 0.1)
    async with serving(script) as upstream, client(upstream.port, **changes) as vllm, asyncio.timeout(2):
        with pytest.raises(UpstreamError) as raised:
            await read(vllm)
        assert (raised.value.status, raised.value.code) == (status, code)
        told = "".join(traceback.format_exception(raised.value)) + repr(raised.value.body())
        assert SECRET.decode() not in told
        await until(lambda: upstream.open == (name in USELESS))


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream", b"text/plain; charset=utf-8"])
async def test_a_whole_response_is_one_terminal_event(kind: bytes) -> None:
    """Whatever the content type says, and with white space before it, as servers send to keep a connection."""
    answer = plain("200 OK", b" \n" + WHOLE, kind)
    async with serving(sends(answer[:-5], answer[-5:], then="done")) as upstream, client(upstream.port) as vllm:
        for _ in range(2):
            assert await read(vllm) == [[Finished("completed", [], None, None, None, None)]]
        assert upstream.connections == 1


async def test_a_stream_may_come_under_jsons_name() -> None:
    head = HEAD.replace(b"text/event-stream", b"application/json")
    async with (
        serving(sends(head, piece(delta("a")), piece(COMPLETED), LAST, then="done")) as upstream,
        client(upstream.port) as vllm,
    ):
        assert texts(await read(vllm)) == ["a"]


async def test_leaving_closes_an_answer_in_json_at_once() -> None:
    async with serving(sends(plain("200 OK", WHOLE)[:-9])) as upstream, client(upstream.port) as vllm:
        reading = asyncio.create_task(read(vllm))
        exchange = await upstream.exchange()
        reading.cancel()
        async with asyncio.timeout(1):
            await exchange.client_left.wait()


async def test_events_before_a_break_were_given() -> None:
    taken = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.send(BEGUN)
        await taken.wait()
        exchange.reset()

    async with serving(script) as upstream, client(upstream.port) as vllm, vllm.stream(BODY) as answer:
        assert texts([await anext(answer)]) == ["a"]
        taken.set()
        with pytest.raises(UpstreamError) as raised:
            await anext(answer)
    assert raised.value.status == 502


async def test_a_steady_trickle_is_no_stall() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(BEGUN)
        for _ in range(20):
            await asyncio.sleep(0.03)
            await exchange.send(piece(b": ping\n\n"))
        await exchange.send(piece(COMPLETED), LAST)

    async with (
        serving(script) as upstream,
        client(upstream.port, stall_timeout=0.3, first_event_timeout=0.3) as vllm,
    ):
        assert isinstance((await read(vllm))[-1][-1], Finished)


async def test_a_slow_reader_is_no_stall() -> None:
    taken = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.send(BEGUN)
        await taken.wait()
        await exchange.send(piece(delta("b")), piece(COMPLETED), LAST)

    async with (
        serving(script) as upstream,
        client(upstream.port, stall_timeout=0.1, first_event_timeout=0.1) as vllm,
        vllm.stream(BODY) as answer,
    ):
        await anext(answer)
        taken.set()
        await asyncio.sleep(0.3)  # longer than both limits: the silence is ours
        assert texts([events async for events in answer]) == ["b"]


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with client(port) as vllm:
        with pytest.raises(UpstreamError) as raised:
            await read(vllm)
    assert (raised.value.status, raised.value.type) == (503, "service_unavailable_error")


async def test_no_such_place() -> None:
    async with client(0, vllm_url="http://nowhere.invalid:80", connect_timeout=2) as vllm:
        with pytest.raises(UpstreamError) as raised:
            await read(vllm)
    assert raised.value.status == 503


@asynccontextmanager
async def deaf_port() -> AsyncGenerator[int, None]:
    """A port whose queue of connections is full: a connect hangs."""
    with socket.socket() as listener, contextlib.ExitStack() as callers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_connect_timeout() -> None:
    async with deaf_port() as port, client(port, connect_timeout=0.1) as vllm, asyncio.timeout(2):
        with pytest.raises(UpstreamError) as raised:
            await read(vllm)
    assert raised.value.status == 503


# --- leaving


async def until(condition: Callable[[], bool], within: float = 2.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


MOMENTS = {
    "before the headers": sends(),
    "after the headers": sends(HEAD),
    "announced": sends(HEAD + piece(CREATED)),
    "mid-stream": sends(BEGUN),
    "inside an event": sends(BEGUN + piece(delta("b"))[:15]),
    "after the terminal event": sends(BEGUN + piece(COMPLETED)),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelling_the_task_closes_the_connection_at_once(moment: str) -> None:
    """The task is cancelled while it waits for the next byte."""
    async with serving(MOMENTS[moment]) as upstream, client(upstream.port, stall_timeout=60) as vllm:
        task = asyncio.create_task(read(vllm))
        exchange = await upstream.exchange()
        await asyncio.sleep(0.02)
        task.cancel()
        async with asyncio.timeout(0.2):
            await exchange.client_left.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("way", ["break", "raise", "cancel"])
@pytest.mark.parametrize("moment", ["after the headers", "announced", "mid-stream", "inside an event"])
async def test_leaving_the_context_closes_the_connection_at_once(moment: str, way: str) -> None:
    """The consumer leaves from its own code, between two reads."""

    async def consume(vllm: Vllm) -> None:
        async with vllm.stream(BODY) as answer:
            if moment != "after the headers":
                await anext(answer)
            if way == "raise":
                raise LookupError
            if way == "cancel":
                await asyncio.get_running_loop().create_future()

    async with serving(MOMENTS[moment]) as upstream, client(upstream.port) as vllm:
        task = asyncio.create_task(consume(vllm))
        exchange = await upstream.exchange()
        if way == "cancel":
            await asyncio.sleep(0.02)
            task.cancel()
        async with asyncio.timeout(0.2):
            await exchange.client_left.wait()
        with contextlib.suppress(asyncio.CancelledError, LookupError):
            await task


async def test_cancelled_while_connecting() -> None:
    async with deaf_port() as port, client(port, concurrency=1) as vllm:
        for _ in range(3):
            task = asyncio.create_task(read(vllm))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_the_consumers_own_timeout_is_not_ours() -> None:
    async with serving(MOMENTS["mid-stream"]) as upstream, client(upstream.port) as vllm:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await read(vllm)
        await until(lambda: upstream.open == 0)


async def test_closing_the_client_ends_what_runs() -> None:
    async with serving(MOMENTS["mid-stream"]) as upstream, client(upstream.port) as vllm:
        task = asyncio.create_task(read(vllm))
        exchange = await upstream.exchange()
        await vllm.aclose()
        async with asyncio.timeout(0.2):
            await exchange.client_left.wait()
            await asyncio.wait([task])
        assert task.exception() is not None


# --- the pool


async def test_a_finished_answers_connection_is_used_again() -> None:
    async with serving(sends(ANSWER, then="done")) as upstream, client(upstream.port) as vllm:
        for _ in range(5):
            await read(vllm)
        assert upstream.connections == 1


async def test_leaving_at_the_terminal_event_leaves_the_connection_to_the_next() -> None:
    async with serving(sends(ANSWER, then="done")) as upstream, client(upstream.port) as vllm:
        for _ in range(3):
            async with vllm.stream(BODY) as answer:
                async for events in answer:
                    if isinstance(events[-1], Finished):
                        break
        assert upstream.connections == 1


async def test_the_last_chunk_may_come_a_moment_later() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(ANSWER[: -len(LAST)])
        await asyncio.sleep(0.02)
        await exchange.send(LAST)

    async with serving(script) as upstream, client(upstream.port) as vllm:
        await read(vllm)
        await read(vllm)
        assert upstream.connections == 1


async def test_an_idle_connection_is_not_used_again() -> None:
    assert IDLE_LIMIT <= 4.0
    async with serving(sends(ANSWER, then="done")) as upstream, client(upstream.port, idle_limit=0.1) as vllm:
        await read(vllm)
        await until(lambda: upstream.open == 0)  # closed by the client: the server never ends one
        assert texts(await read(vllm)) == ["né", "北"]
        assert upstream.connections == 2


async def test_a_connection_that_the_upstream_closed_is_not_used_again() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(ANSWER)
        exchange.writer.write_eof()
        await exchange.until_left()  # the client has seen the end

    async with serving(script) as upstream, client(upstream.port) as vllm:
        await read(vllm)
        await until(lambda: upstream.open == 0)
        assert texts(await read(vllm)) == ["né", "北"]


async def test_a_left_answers_connection_is_not_used_again() -> None:
    async with serving(sends(ANSWER[: -len(LAST)])) as upstream, client(upstream.port) as vllm:
        for _ in range(2):
            async with vllm.stream(BODY) as answer:
                await anext(answer)
        await upstream.exchange(1)
        assert upstream.connections == 2


async def test_no_left_stream_keeps_its_place_in_the_pool() -> None:
    serve: dict[str, Script] = {"now": sends(BEGUN)}

    async def script(exchange: Exchange) -> None:
        await serve["now"](exchange)

    async with serving(script) as upstream, client(upstream.port, concurrency=2, connect_timeout=1) as vllm:
        for number, moment in enumerate([*MOMENTS, *FAULTS, *USELESS]):
            serve["now"] = MOMENTS[moment] if moment in MOMENTS else (FAULTS | USELESS)[moment][0]
            tasks = [asyncio.create_task(read(vllm)) for _ in range(2)]
            await upstream.exchange(2 * number + 1)
            await asyncio.sleep(0.005)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        serve["now"] = sends(ANSWER, then="done")
        async with asyncio.timeout(1):
            both = await asyncio.gather(read(vllm), read(vllm))
        assert [texts(batches) for batches in both] == [["né", "北"], ["né", "北"]]
        await until(lambda: upstream.open <= 2)


async def test_a_full_pool_is_a_clear_error() -> None:
    async with (
        serving(MOMENTS["mid-stream"]) as upstream,
        client(upstream.port, concurrency=1, connect_timeout=0.1) as vllm,
        vllm.stream(BODY),
    ):
        with pytest.raises(UpstreamError) as raised:
            await read(vllm)
        assert raised.value.status == 503
