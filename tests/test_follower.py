"""The follower against a server that breaks in every way, one connection after the other."""

import asyncio
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from cli.endpoint import Broken, Refused, ask, connect
from cli.follower import Follower, Patience
from shared.json_codec import Wire, encode

ID = "resp_1"
STORED = {"id": ID, "status": "completed", "output": [{"type": "message", "content": []}]}
COMPLETED = {"type": "response.completed", "sequence_number": 6, "response": STORED}
EVENTS: list[Wire] = [
    {"type": "response.output_text.delta", "sequence_number": number, "delta": f"{number} "} for number in range(6)
]
EVENTS.append(COMPLETED)
FAST = Patience(first=0.01, longest=0.05, absent=0.3, unreached=0.6, silence=0.3)
HEAD = "HTTP/1.1 {} X\r\ncontent-type: {}\r\nconnection: close\r\n{}\r\n"
SSE = HEAD.format(200, "text/event-stream", "")
CHUNKED = HEAD.format(200, "text/event-stream", "transfer-encoding: chunked\r\n")

#: What one connection is answered with, and how it then ends: `close`, `reset`, or `hang` until the client leaves.
Act = tuple[bytes, str]
Answer = Callable[[int], Act]


def frames(first: int, last: int) -> bytes:
    return b"".join(b"event: x\ndata: " + encode(event) + b"\n\n" for event in EVENTS[first : last + 1])


def stream(last: int, tail: bytes = b"", end: str = "close", *, back: int = 0) -> Answer:
    """Events from the cursor to `last`, then `tail`. `back` sends some of them once more."""
    return lambda cursor: (SSE.encode() + frames(max(cursor + 1 - back, 0), last) + tail, end)


def status(code: int, message: str = "no", **headers: str) -> Answer:
    """As Rejoinder says it."""
    body = encode({"error": {"message": message, "type": "t", "param": None, "code": "c"}})
    headers.setdefault("openai_version", "2020-10-01")
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return lambda _: (HEAD.format(code, "application/json", head).encode() + body, "close")


def json(value: Any) -> Answer:
    return lambda _: (HEAD.format(200, "application/json", "").encode() + encode(value), "close")


WHOLE = stream(6, b"data: [DONE]\n\n")
HTML: Answer = lambda _: (HEAD.format(200, "text/html", "").encode() + b"<p>Welcome", "close")  # noqa: E731 - of a table


class Server:
    """Answers each request for the stream by the next of `script`, each for the response by the next of `stored`.

    The last of either goes on. None in a script stands for a server that is away until it is asked once more.
    """

    def __init__(self, script: list[Answer], stored: list[Answer]) -> None:
        self._script, self._stored = list(script), list(stored)
        self.cursors: list[int] = []
        self.looks = 0
        self.left = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        cursor = -1
        if "stream=true" in request:
            if found := re.search(r"starting_after=(\d+)", request):
                cursor = int(found[1])
            self.cursors.append(cursor)
            answers = self._script
        else:
            self.looks += 1
            answers = self._stored
        said, end = (answers.pop(0) if len(answers) > 1 else answers[0])(cursor)
        writer.write(said)
        with suppress(ConnectionError):
            await writer.drain()
        if end == "hang":
            with suppress(ConnectionError):
                await reader.read()
            self.left += 1
        if end == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()


@asynccontextmanager
async def serving(script: list[Answer], stored: list[Answer]) -> AsyncIterator[tuple[Server, str]]:
    scripted = Server(script, stored)
    async with await asyncio.start_server(scripted.serve, "127.0.0.1", 0) as server:
        yield scripted, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def follow(url: str, said: list[str]) -> tuple[list[Wire], Wire | None]:
    async with connect(url) as client:
        follower = Follower(client, ID, said.append, FAST)
        found = [event async for event in follower.events()]
        return found, follower.ended


EXPIRED = status(400, "The events are no longer kept.")
RUNNING = json(STORED | {"status": "in_progress", "output": []})
BREAKS: dict[str, list[Answer]] = {
    "none": [],
    "closed between two events": [stream(2)],
    "closed inside an event": [stream(2, frames(3, 3)[:-9])],
    "reset inside an event": [stream(2, frames(3, 3)[:20], "reset")],
    "reset before the answer": [lambda _: (b"", "reset")],
    "closed before the answer": [lambda _: (b"", "close")],
    "a chunked body cut off": [lambda _: (CHUNKED.encode() + b"40\r\n" + frames(0, 0)[:10], "close")],
    "silent from the first byte": [lambda _: (b"", "hang")],
    "silent in the middle": [stream(2, end="hang")],
    "silent inside an event": [stream(2, frames(3, 3)[:-9], "hang")],
    "503": [status(503)] * 3,
    "429 and its retry-after": [status(429, retry_after="0")],
    "502 of a proxy": [lambda _: (HEAD.format(502, "text/html", "").encode() + b"<p>", "close")],
    "an error event": [stream(2, b'data: {"type":"error","sequence_number":2,"message":"m"}\n\ndata: [DONE]\n\n')],
    "DONE before the end": [stream(2, b"data: [DONE]\n\n")],
    "repeated events": [stream(3), stream(4, back=3), stream(5, back=9)],
    "keep-alives": [stream(2, b': k\n\ndata: {"type":"keepalive","sequence_number":2}\n\n' + frames(3, 3))],
    "a keep-alive before the first event": [
        lambda _: (SSE.encode() + b'data: {"type":"keepalive","sequence_number":0}\n\n' + frames(0, 2), "close")
    ],
    "a gap": [stream(2, frames(4, 4))],
    "no event": [stream(2, b"data: <p>\n\n"), stream(3, b"data: {}\n\n"), stream(4, b"data: []\n\n")],
    "cut off after each event": [stream(last) for last in range(6)],
    "everything": [status(503), stream(0), stream(1, end="reset"), stream(2, end="hang"), stream(4, back=2)],
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS)
async def test_after_any_break_every_event_comes_once(script: list[Answer]) -> None:
    running = json(STORED | {"status": "in_progress"})
    async with serving([*script, WHOLE], [running]) as (server, url):
        found, ended = await asyncio.wait_for(follow(url, []), 10)
    assert found == EVENTS
    assert ended == STORED
    assert len(server.cursors) == len(script) + 1, "no more connections than that takes"
    assert server.cursors == sorted(server.cursors)


async def test_it_resumes_at_its_cursor_and_says_nothing_of_a_break_that_is_over_at_once() -> None:
    said: list[str] = []
    async with serving([*map(stream, range(6)), WHOLE], [RUNNING]) as (server, url):
        await asyncio.wait_for(follow(url, said), 10)
    assert (server.cursors, server.looks, said) == ([-1, 0, 1, 2, 3, 4, 5], 0, [])


async def test_it_waits_as_long_as_it_is_told() -> None:
    began = time.monotonic()
    async with serving([stream(2), status(503, retry_after="1"), WHOLE], [RUNNING]) as (_, url):
        found, _ = await asyncio.wait_for(follow(url, []), 10)
    assert (found, time.monotonic() - began >= 1) == (EVENTS, True)


async def test_a_server_that_is_away_for_a_while() -> None:
    said: list[str] = []
    scripted = Server([stream(2), WHOLE], [status(503)])
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    following = asyncio.create_task(follow(f"http://127.0.0.1:{port}", said))
    while not scripted.cursors:
        await asyncio.sleep(0.01)
    server.close()
    await server.wait_closed()
    while not said:
        await asyncio.sleep(0.01)
    await asyncio.sleep(2 * FAST.unreached)
    assert not following.done(), "a server that was there once may stay away for as long as it likes"
    async with await asyncio.start_server(scripted.serve, "127.0.0.1", port):
        found, _ = await asyncio.wait_for(following, 10)
    assert found == EVENTS
    assert said == ["Nothing answers. Trying again.", "Going on after event 2."], "one line an outage"


STORIES: dict[str, tuple[list[Answer], list[Answer], int, list[str]]] = {
    "the event log has expired": ([EXPIRED], [json(STORED)], 0, []),
    "it expires on the way": ([stream(2), EXPIRED], [json(STORED)], 3, []),
    "a foreground response": (
        [EXPIRED],
        [RUNNING, RUNNING, status(503), RUNNING, json(STORED)],
        0,
        ["This response can't be streamed any more. Waiting for its end."],
    ),
    "the log lost its end": ([stream(2, b"data: [DONE]\n\n")], [json(STORED)], 3, []),
    "the log is no longer whole": (
        [stream(2, b'data: {"type":"error","sequence_number":2,"message":"not whole"}\n\n')],
        [RUNNING, json(STORED)],
        3,
        ["The server says: not whole. Trying again."],
    ),
    "a last event without a response": (
        [stream(5, b'data: {"type":"response.failed","sequence_number":6}\n\n')],
        [json(STORED)],
        6,
        [],
    ),
}


@pytest.mark.parametrize(("script", "stored", "events", "lines"), STORIES.values(), ids=STORIES)
async def test_what_can_not_be_streamed_is_read_once_it_has_ended(
    script: list[Answer], stored: list[Answer], events: int, lines: list[str]
) -> None:
    said: list[str] = []
    async with serving(script, stored) as (server, url):
        found, ended = await asyncio.wait_for(follow(url, said), 10)
    assert (found, ended, said) == (EVENTS[:events], STORED, lines)
    assert server.looks == len(stored)
    assert len(server.cursors) == len(script) + (script[-1] is not EXPIRED) + len(stored) - 1, "a look, then a try"


@pytest.mark.parametrize(
    ("script", "stored", "says"),
    [
        ([status(404, "Response not found.")], [WHOLE], "404 c: Response not found."),
        ([stream(2), status(404, "It has\nexpired.")], [WHOLE], "404 c: It has expired."),
        ([EXPIRED], [status(404)], "404 c: no"),
        ([status(401)], [WHOLE], "401 c: no"),
        (
            [lambda _: (HEAD.format(404, "application/json", "").encode() + b"{}", "close")],
            [WHOLE],
            "404 X (no answer of Rejoinder's: is --url the address of vLLM itself, or of a proxy?)",
        ),
        ([HTML], [HTML], "what answers there is no Responses API: it sends no event stream"),
        ([EXPIRED], [HTML], "what answers at {url}/v1 is no Responses API"),
        ([status(503, "Redis is away.")], [WHOLE], "{url}/v1: 503 c: Redis is away."),
    ],
    ids=["unknown", "expired", "gone", "not allowed", "vLLM", "another server", "another answer", "never there"],
)
async def test_what_will_not_pass_is_told(script: list[Answer], stored: list[Answer], says: str) -> None:
    async with serving(script, stored) as (_, url):
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(follow(url, []), 10)
    assert str(refused.value) == says.format(url=url)


@pytest.mark.parametrize("told", ["30", "9" * 20, "9" * 400])
async def test_a_server_that_gave_nothing_yet_can_not_ask_for_more_patience_than_there_is(told: str) -> None:
    began = time.monotonic()
    async with serving([status(429, "Busy.", retry_after=told)], [RUNNING]) as (server, url):
        with pytest.raises(Refused, match="429 c: Busy"):
            await asyncio.wait_for(follow(url, []), 10)
    assert FAST.unreached <= time.monotonic() - began < 5
    assert len(server.cursors) == 2, "once more at the end of its patience"


@pytest.mark.parametrize("code", [200, 404])
async def test_an_answer_that_never_ends_is_given_up(code: int) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD.format(code, "application/json", "").encode())
        with suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server, connect(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(Broken, match=r"no whole answer within 0\.3 s"):
            await asyncio.wait_for(ask(client, "POST", "/v1/responses", {}, within=0.3), 5)
    assert ask.__kwdefaults__ == {"within": 60.0}


async def test_nobody_there() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Refused, match=f"{url}/v1: nothing answers; is `rejoinder up` running"):
        await asyncio.wait_for(follow(url, said), 10)
    assert said == ["Nothing answers. Trying again."]
    assert Patience().absent <= 3.0, "seconds that a wrong --url takes"


async def test_who_stops_following_closes_the_connection() -> None:
    async with serving([stream(2, end="hang")], [RUNNING]) as (server, url):
        async with connect(url) as client:
            follower = Follower(client, ID, print, FAST)
            events = follower.events()
            assert await anext(events) == EVENTS[0]
            await events.aclose()
        while not server.left:
            await asyncio.sleep(0.01)
    assert (follower.cursor, follower.ended) == (0, None)


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        (" https://h/v1/ ", "https://h"),
        ("http://h/behind/v1", "http://h/behind"),
        ("http://h/v1?x=1#y", "http://h"),
    ],
)
async def test_an_address_with_or_without_v1(address: str, root: str) -> None:
    async with connect(address) as client:
        assert str(client.build_request("GET", "/v1/models").url) == f"{root}/v1/models"


@pytest.mark.parametrize("address", ["", "h:8700", "ftp://h", "http://", "http://h:x", "http://h:65536", "http://h:0"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(Refused, match="--url / REJOINDER_URL"):
        connect(address)
