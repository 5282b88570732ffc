"""Commands of one moment in one round trip, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, NoScriptError, ResponseError

from shared.redis_client import command, connect
from shared.settings import Settings


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    async with connect(settings) as client:
        yield client


async def test_each_gets_its_own_answer_and_one_connection_carries_them(client: Redis) -> None:
    before = len(await client.client_list())
    await asyncio.gather(*(client.set(f"k{n}", n) for n in range(200)))
    answers = await asyncio.gather(*(client.get(f"k{n}") for n in range(200)))
    assert answers == [str(n).encode() for n in range(200)]
    assert len(await client.client_list()) <= before


async def test_what_one_task_asks_for_is_answered_in_order(client: Redis) -> None:
    async def count(name: str) -> list[int]:
        return [await client.incr(name) for _ in range(20)]

    assert await asyncio.gather(*(count(f"c{n}") for n in range(10))) == [list(range(1, 21))] * 10


async def test_a_wrong_command_fails_alone(client: Redis) -> None:
    await client.set("word", "x")
    wrong = client.incr("word"), command(client, "EVALSHA", "0" * 40, 0)
    *errors, right = await asyncio.gather(*wrong, client.get("word"), return_exceptions=True)
    assert [type(error) for error in errors] == [ResponseError, NoScriptError]
    assert right == b"x"


async def test_a_command_that_is_none_fails_alone(client: Redis) -> None:
    await client.set("word", "x")
    none = client.get("\ud800"), client.set("word", None)
    *errors, right = await asyncio.gather(*none, client.get("word"), return_exceptions=True)
    assert [type(error) for error in errors] == [UnicodeEncodeError, DataError]
    assert right == b"x"


async def test_one_that_stops_waiting_takes_no_neighbour_with_it(client: Redis) -> None:
    before = len(await client.client_list())
    leaving = asyncio.ensure_future(client.incr("counted"))
    staying = asyncio.ensure_future(client.get("nothing"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying is None
    assert leaving.cancelled()
    assert await client.get("counted") == b"1"
    assert len(await client.client_list()) <= before


async def test_a_lost_redis_is_told_to_all_that_wait(own_redis: Any, settings: Settings) -> None:
    server = own_redis()
    async with connect(settings.model_copy(update={"redis_url": server.url})) as client:
        await client.ping()
        server.kill()
        errors = await asyncio.gather(*(client.get(f"k{n}") for n in range(20)), return_exceptions=True)
        assert {type(error) for error in errors} == {RedisConnectionError}
        server.start()
        assert await client.ping()
