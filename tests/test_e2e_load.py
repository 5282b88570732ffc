"""Many turns in one worker process: as many at once as it may, not one more, each whole and its own."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

import stream_rules
from shared.events import PublicEvent
from shared.json_codec import decode
from stack import MODEL, Stack

Wire = dict[str, Any]
Open = Callable[..., Stack]

#: Nothing is late here, however busy the machine.
PATIENT = {"REJOINDER_FIRST_EVENT_TIMEOUT": "60", "REJOINDER_STALL_TIMEOUT": "60", "REJOINDER_LEASE": "20"}
COUNTED = " ".join(map(str, range(1, 13))) + "."


@pytest.fixture
def open_stack(tmp_path: Path) -> Iterator[Open]:
    opened: list[Stack] = []

    def begin(**environment: str) -> Stack:
        opened.append(Stack(tmp_path, **PATIENT, **environment).__enter__())
        return opened[-1]

    yield begin
    for stack in opened:
        stack.__exit__()


@asynccontextmanager
async def watched(stack: Stack) -> AsyncIterator[list[int]]:
    """How many generations ran at the simulator, asked again and again while the block runs."""
    seen: list[int] = []

    async def watch() -> None:
        while True:
            answer = await asyncio.to_thread(stack.simulator.get, "/simulator/running")
            seen.append(answer.json()["running"])
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def streamed(client: httpx.AsyncClient, number: int) -> list[PublicEvent]:
    """One stream, whole: its input names its number."""
    body = {"model": MODEL, "input": f"Count to 12. ({number})", "stream": True}
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 200
    *frames, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    wires = [decode(frame.partition("\ndata: ")[2]) for frame in frames if not frame.startswith("event: keepalive")]
    return [PublicEvent(wire.pop("type"), wire.pop("sequence_number"), wire) for wire in wires]


def check_whole(events: list[PublicEvent], number: int) -> None:
    assert [event.type for event in events][-1] == "response.completed"
    reasoning, message = output = events[-1].body["response"]["output"]
    stream_rules.check(events, output)
    for kind, text in (("reasoning_text", reasoning["content"][0]["text"]), ("output_text", COUNTED)):
        deltas = [event.body["delta"] for event in events if event.type == f"response.{kind}.delta"]
        assert "".join(deltas).strip() == text.strip()
    assert message["content"][0]["text"].strip() == COUNTED
    assert f"({number})" in reasoning["content"][0]["text"]


async def test_never_more_turns_at_once_than_allowed_and_all_complete(open_stack: Open) -> None:
    stack = open_stack(REJOINDER_CONCURRENCY="3")
    stack.faults(next=None, tokens_per_second=120)
    async with httpx.AsyncClient(base_url=stack.url, trust_env=False, timeout=60) as client, watched(stack) as seen:
        streams = await asyncio.gather(*(streamed(client, number) for number in range(9)))
    for number, events in enumerate(streams):
        check_whole(events, number)
    assert max(seen) == 3


async def test_a_hundred_and_twenty_turns_at_once_in_one_worker(open_stack: Open) -> None:
    stack = open_stack(REJOINDER_CONCURRENCY="120", REJOINDER_REDIS_CONNECTIONS="4")
    stack.faults(next=None, tokens_per_second=20, first_token_seconds=2)
    limits = httpx.Limits(max_connections=None)
    client = httpx.AsyncClient(base_url=stack.url, trust_env=False, timeout=120, limits=limits)
    async with client, watched(stack) as seen:
        streaming = asyncio.gather(*(streamed(client, number) for number in range(120)))
        await _until_running(seen, 120, streaming)
        connections = await asyncio.to_thread(_connections, stack)
        streams = await streaming
    for number, events in enumerate(streams):
        check_whole(events, number)
    assert max(seen) == 120
    # Four of each pool; a blocking one of the hub, of the fetching worker, its commands, its cancels; its books in
    # threads; this test's own. None of them is a turn's or a follower's.
    assert connections <= 2 * 4 + 4 + 4 + 1


async def _until_running(seen: list[int], count: int, streaming: "asyncio.Future[Any]") -> None:
    deadline = time.monotonic() + 60
    while not seen or seen[-1] < count:
        assert time.monotonic() < deadline, f"never {count} at once, but {max(seen, default=0)}"
        assert not streaming.done(), f"all ended, and no more than {max(seen, default=0)} ran at once"
        await asyncio.sleep(0.01)


def _connections(stack: Stack) -> int:
    with redis.Redis.from_url(stack.redis.url) as client:
        return len(client.client_list())
