"""One publisher for all turns: order kept, faults apart, an outage waited out, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import RedisError

from cli.embedded_redis import EmbeddedRedis
from records import created, record
from shared.event_log import Append, Appended, EventLog
from shared.events import PublicEvent
from shared.keys import Keys
from shared.record import Record
from shared.redis_client import connect
from shared.settings import Settings
from shared.store import ResponseStore
from shared.tasks import running
from workers.publisher import Publisher


class Bench:
    def __init__(self, settings: Settings) -> None:
        self.client = connect(settings)
        self.store = ResponseStore(self.client, settings)
        self.event_log = EventLog(self.client, settings)
        self.publisher = Publisher(self.event_log, settings)

    async def claimed(self) -> Record:
        new = record()
        await self.store.create(new, [], [created()])
        claimed = await self.store.claim(new.response_id, "t")
        assert claimed is not None
        return claimed

    async def numbers(self, claimed: Record) -> list[int]:
        return [number for number, _ in await self.event_log.read(claimed.response_id, -1, 1000)]


@asynccontextmanager
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    opened = Bench(settings)
    async with running(opened.publisher.run):
        yield opened
    await opened.client.aclose()


def event(number: int) -> PublicEvent:
    return PublicEvent("x.y", number, {"n": number})


async def test_many_turns_at_once_keep_their_order(settings: Settings) -> None:
    async with bench(settings) as house:
        claims = [await house.claimed() for _ in range(30)]

        async def turn(claimed: Record) -> None:
            for number in range(1, 21):
                assert await house.publisher.append(Append(claimed, [event(number)])) is Appended.OK

        await asyncio.gather(*(turn(claimed) for claimed in claims))
        for claimed in claims:
            assert await house.numbers(claimed) == list(range(21))


async def test_the_fault_of_one_turn_holds_up_no_other(settings: Settings) -> None:
    short = settings.model_copy(update={"lease": 1.0, "redis_timeout": 0.5})
    async with bench(short) as house:
        bad, good = await house.claimed(), await house.claimed()
        key = Keys().events(bad.response_id)
        await house.client.delete(key)
        await house.client.set(key, "no stream")
        failing = asyncio.create_task(house.publisher.append(Append(bad, [event(1)])))
        for number in range(1, 21):
            assert await house.publisher.append(Append(good, [event(number)])) is Appended.OK
        assert not failing.done(), "twenty appends of its neighbour fit into the time that one is tried again"
        with pytest.raises(RedisError):
            await failing


async def test_an_outage_is_waited_out(own_redis: Callable[[], EmbeddedRedis], settings: Settings) -> None:
    server = own_redis()
    async with bench(settings.model_copy(update={"redis_url": server.url, "lease": 10.0})) as house:
        claimed = await house.claimed()
        await asyncio.to_thread(server.stop)
        appending = asyncio.create_task(house.publisher.append(Append(claimed, [event(1)])))
        await asyncio.wait({appending}, timeout=0.3)
        assert not appending.done()
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(10):
            assert await appending is Appended.OK
        assert await house.numbers(claimed) == [0, 1]


async def test_an_outage_without_end_is_told(own_redis: Callable[[], EmbeddedRedis], settings: Settings) -> None:
    server = own_redis()
    short = settings.model_copy(update={"redis_url": server.url, "lease": 0.2, "redis_timeout": 0.2})
    async with bench(short) as house:
        claimed = await house.claimed()
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(10):
            with pytest.raises(RedisError):
                await house.publisher.append(Append(claimed, [event(1)]))
