"""One reader, many followers, on a real Redis: from every cursor exactly the rest, once, in order, the same bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.hub import Hub, LogNotWhole, Stopped
from api.topics import Frame
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


async def test_a_follower_ahead_of_the_log_holds_nobody_back(hub: tuple[Hub, Redis]) -> None:
    response_id = new_response_id()
    await write(hub[1], response_id, range(3))
    async with (
        aclosing(hub[0].follow(response_id, 9, 60, known=2)) as ahead,
        aclosing(hub[0].follow(response_id, 2, 60, known=2)) as end,
    ):
        first, second = asyncio.create_task(anext(ahead)), asyncio.create_task(anext(end))
        async with asyncio.timeout(10):
            while response_id not in hub[0]._topics or len(hub[0]._topics[response_id].followers) < 2:
                await asyncio.sleep(0.01)
            await write(hub[1], response_id, range(3, 10))
            assert numbers(await second)[0] == 3
            assert not first.done()
            await write(hub[1], response_id, range(10, 11))
            assert numbers(await first) == [10]


async def test_a_crowd_that_joins_at_the_head_of_a_response_costs_redis_nothing(hub: tuple[Hub, Redis]) -> None:
    response_id = new_response_id()
    await write(hub[1], response_id, range(EVENTS // 2))
    async with aclosing(hub[0].follow(response_id, -1, 60)) as first:
        await anext(first)
        waiting = asyncio.create_task(anext(first))
        async with asyncio.timeout(10):
            while response_id not in hub[0]._topics:
                await asyncio.sleep(0.01)
        before = (await hub[1].info("commandstats"))["cmdstat_xrange"]["calls"]
        crowd = [asyncio.create_task(read(hub[0], response_id, after)) for after in range(-1, EVENTS // 2)]
        await asyncio.sleep(0)
        assert (await hub[1].info("commandstats"))["cmdstat_xrange"]["calls"] == before
        await write(hub[1], response_id, range(EVENTS // 2, EVENTS))
        for after, frames in enumerate(await asyncio.gather(*crowd), start=-1):
            assert numbers(frames) == list(range(after + 1, EVENTS))
        await waiting


async def trim(client: Redis, response_id: str, first: int) -> None:
    """Take the events before the number `first` out of the log."""
    await client.xtrim(Keys().events(response_id), minid=f"1-{first + 1}", approximate=False)


async def test_a_slow_follower_of_a_trimmed_log_is_told_and_gets_no_gap(hub: tuple[Hub, Redis]) -> None:
    response_id, last = new_response_id(), 999
    await write(hub[1], response_id, range(10), last)
    async with aclosing(hub[0].follow(response_id, -1, 5)) as slow:
        assert numbers(await anext(slow)) == list(range(10))
        joined = asyncio.create_task(anext(slow))
        async with asyncio.timeout(10):
            while response_id not in hub[0]._topics:
                await asyncio.sleep(0.01)
        await write(hub[1], response_id, range(10, 20), last)
        assert numbers(await joined)[0] == 10
        await write(hub[1], response_id, range(20, last), last)
        async with asyncio.timeout(10):
            while hub[0]._topics[response_id].position < last - 1:
                await asyncio.sleep(0.01)
        await trim(hub[1], response_id, 900)
        with pytest.raises(LogNotWhole):
            await anext(slow)


async def test_a_log_trimmed_before_the_reader_came_is_told_to_all(hub: tuple[Hub, Redis]) -> None:
    """As the reader sees it: its own cursor lies before what is left."""
    response_id = new_response_id()
    await write(hub[1], response_id, range(3))
    follower = asyncio.create_task(read(hub[0], response_id, -1))
    async with asyncio.timeout(10):
        while response_id not in hub[0]._topics:
            await asyncio.sleep(0.01)
        pipeline = hub[1].pipeline(transaction=True)
        for number in range(3, 6):
            entry = log_entry(event(number))
            pipeline.xadd(Keys().events(response_id), {entry.field: entry.value}, id=f"1-{number + 1}")
        pipeline.xtrim(Keys().events(response_id), minid="1-6", approximate=False)
        await pipeline.execute()
        with pytest.raises(LogNotWhole):
            await follower


async def test_a_log_that_vanishes_behind_a_slow_follower_is_told(hub: tuple[Hub, Redis]) -> None:
    response_id, last = new_response_id(), 999
    await write(hub[1], response_id, range(10), last)
    async with aclosing(hub[0].follow(response_id, -1, 60)) as slow, asyncio.timeout(10):
        await anext(slow)
        joined = asyncio.create_task(anext(slow))
        while response_id not in hub[0]._topics:
            await asyncio.sleep(0.01)
        await write(hub[1], response_id, range(10, 20), last)
        await joined
        await write(hub[1], response_id, range(20, last), last)
        while hub[0]._topics[response_id].position < last - 1:
            await asyncio.sleep(0.01)
        await hub[1].delete(Keys().events(response_id))
        with pytest.raises(LogNotWhole):
            await anext(slow)


async def test_a_hub_that_stops_lets_everybody_go(hub: tuple[Hub, Redis]) -> None:
    response_id = new_response_id()
    await write(hub[1], response_id, range(3))
    followers = [asyncio.create_task(read(hub[0], response_id, -1)) for _ in range(20)]
    async with asyncio.timeout(10):
        while response_id not in hub[0]._topics or len(hub[0]._topics[response_id].followers) < len(followers):
            await asyncio.sleep(0.01)
        hub[0].stop()
        for follower in [*followers, asyncio.create_task(read(hub[0], response_id, -1))]:
            with pytest.raises(Stopped):
                await follower
    assert hub[0]._topics == {}


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
