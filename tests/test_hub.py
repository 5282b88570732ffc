"""One reader, many followers, on a real Redis: from every cursor exactly the rest, once, in order, the same bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.hub import Frame, Hub
from cli.embedded_redis import EmbeddedRedis
from shared.event_log import EventLog
from shared.events import PublicEvent, log_entry
from shared.ids import new_response_id
from shared.keys import Keys
from shared.redis_client import connect
from shared.settings import Settings
from shared.tasks import running

EVENTS = 40


@asynccontextmanager
async def running_hub(settings: Settings) -> AsyncIterator[tuple[Hub, Redis]]:
    client = connect(settings)
    hub = Hub(client, EventLog(client, settings), settings)
    try:
        async with running(hub.run):
            yield hub, client
    finally:
        await hub.aclose()
        await client.aclose()


@pytest.fixture
async def hub(settings: Settings) -> AsyncIterator[tuple[Hub, Redis]]:
    async with running_hub(settings) as opened:
        yield opened


def event(number: int, last: int = EVENTS - 1) -> PublicEvent:
    if number == last:
        return PublicEvent("response.completed", number, {"response": {"status": "completed"}})
    body = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": f" {number}", "logprobs": []}
    return PublicEvent("response.output_text.delta", number, body)


async def write(client: Redis, response_id: str, numbers: range, last: int = EVENTS - 1) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in numbers:
        entry = log_entry(event(number, last))
        pipeline.xadd(Keys().events(response_id), {entry.field: entry.value}, id=f"1-{number + 1}")
    await pipeline.execute()


async def read(hub: Hub, response_id: str, after: int) -> list[Frame]:
    frames: list[Frame] = []
    async with aclosing(hub.follow(response_id, after, 5)) as reads:
        async for found in reads:
            frames += found
    return frames


def numbers(frames: list[Frame]) -> list[int]:
    return [frame.sequence_number for frame in frames]


async def test_every_cursor_of_a_finished_response_gives_exactly_the_rest(hub: tuple[Hub, Redis]) -> None:
    response_id = new_response_id()
    await write(hub[1], response_id, range(EVENTS))
    for after in range(-1, EVENTS - 1):
        assert numbers(await read(hub[0], response_id, after)) == list(range(after + 1, EVENTS))


async def test_every_cursor_of_a_running_response_gives_exactly_the_rest(hub: tuple[Hub, Redis]) -> None:
    response_id = new_response_id()
    await write(hub[1], response_id, range(EVENTS // 2))
    followers = [asyncio.create_task(read(hub[0], response_id, after)) for after in range(-1, EVENTS - 1)]
    for number in range(EVENTS // 2, EVENTS):
        await write(hub[1], response_id, range(number, number + 1))
    everything = await asyncio.gather(*followers)
    for after, frames in zip(range(-1, EVENTS - 1), everything, strict=True):
        assert numbers(frames) == list(range(after + 1, EVENTS))
        assert [frame.bytes for frame in frames] == [frame.bytes for frame in everything[0]][after + 1 :]


async def test_followers_that_join_while_events_arrive_miss_nothing(hub: tuple[Hub, Redis]) -> None:
    ids = [new_response_id() for _ in range(4)]
    last = 99

    async def writer(response_id: str) -> None:
        for number in range(last + 1):
            await write(hub[1], response_id, range(number, number + 1), last)

    writers = [asyncio.create_task(writer(response_id)) for response_id in ids]
    followers: list[asyncio.Task[list[Frame]]] = []
    while not all(task.done() for task in writers):
        followers += [asyncio.create_task(read(hub[0], response_id, -1)) for response_id in ids]
        await asyncio.sleep(0.01)
    assert len(followers) > 2 * len(ids)
    for frames in await asyncio.gather(*followers):
        assert numbers(frames) == list(range(last + 1))


async def test_a_slow_follower_catches_up_from_the_log_and_holds_nobody_back(hub: tuple[Hub, Redis]) -> None:
    response_id, last = new_response_id(), 1999
    await write(hub[1], response_id, range(1), last)
    async with aclosing(hub[0].follow(response_id, -1, 5)) as slow:
        frames = await anext(slow)
        fast = asyncio.create_task(read(hub[0], response_id, -1))
        for start in range(1, last + 1, 100):
            await write(hub[1], response_id, range(start, min(start + 100, last + 1)), last)
        assert numbers(await fast) == list(range(last + 1))
        async for found in slow:
            frames += found
    assert numbers(frames) == list(range(last + 1))


async def test_followers_that_leave_free_everything(hub: tuple[Hub, Redis]) -> None:
    ids = [new_response_id() for _ in range(20)]
    for response_id in ids:
        await write(hub[1], response_id, range(3))
    tasks_before = len(asyncio.all_tasks())
    followers = [asyncio.create_task(read(hub[0], response_id, -1)) for response_id in ids for _ in range(20)]
    async with asyncio.timeout(10):
        while len(hub[0]._topics) < len(ids) or min(len(t.followers) for t in hub[0]._topics.values()) < 20:
            await asyncio.sleep(0.01)
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    assert hub[0]._topics == {}
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > tasks_before:
            await asyncio.sleep(0.01)


async def test_a_follower_of_silence_is_told_so(hub: tuple[Hub, Redis]) -> None:
    response_id = new_response_id()
    await write(hub[1], response_id, range(1))
    async with aclosing(hub[0].follow(response_id, -1, 0.05)) as reads:
        assert numbers(await anext(reads)) == [0]
        assert await anext(reads) == []
        await write(hub[1], response_id, range(1, 2))
        async with asyncio.timeout(5):
            while not (found := await anext(reads)):
                pass
        assert numbers(found) == [1]


async def test_followers_past_the_end_of_the_log_are_told_of_silence_too(hub: tuple[Hub, Redis]) -> None:
    """One far ahead and one at the end share a topic whose window is empty."""
    response_id = new_response_id()
    await write(hub[1], response_id, range(3))
    async with (
        aclosing(hub[0].follow(response_id, 9, 0.05)) as ahead,
        aclosing(hub[0].follow(response_id, 2, 0.05)) as end,
    ):
        async with asyncio.timeout(5):
            assert await anext(ahead) == []
            assert await anext(end) == []
            await write(hub[1], response_id, range(3, 4))
            while not (found := await anext(end)):
                pass
        assert numbers(found) == [3]


async def test_a_restart_of_redis_loses_no_follower(own_redis: Callable[[], EmbeddedRedis], settings: Settings) -> None:
    server = own_redis()
    mine = settings.model_copy(update={"redis_url": server.url})
    async with running_hub(mine) as (hub, client):
        response_id = new_response_id()
        await write(client, response_id, range(EVENTS // 2))
        follower = asyncio.create_task(read(hub, response_id, -1))
        async with asyncio.timeout(10):
            while response_id not in hub._topics:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(15):
            while True:
                try:
                    await write(client, response_id, range(EVENTS // 2, EVENTS))
                    break
                except RedisError:
                    await asyncio.sleep(0.05)
            assert numbers(await follower) == list(range(EVENTS))
