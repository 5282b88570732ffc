"""Jobs for test_pool, and the worker process that runs them: `python -m pool_jobs SETTINGS_AS_JSON`."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.redis_client import connect
from shared.settings import Settings
from workers.pool import run_worker

_clients: list[Redis] = []


async def _note(key: str, what: str) -> None:
    await _clients[0].rpush(key, what)


async def nap(job_id: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await _note("ran", job_id)


async def run(job_id: str) -> None:
    await _note("ran", job_id)


async def dream(job_id: str, seconds: float) -> None:
    """No word with Redis."""
    await asyncio.sleep(seconds)


async def boom(job_id: str) -> None:
    raise ValueError("what the model thought")


async def write_ending(job_id: str) -> None:
    """What a turn does: when cancelled, it writes its ending first."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
        await _note("ended", job_id)
        raise


def not_a_coroutine(job_id: str) -> None:
    pass


@asynccontextmanager
async def context(settings: Settings) -> AsyncIterator[None]:
    client = connect(settings)
    _clients.append(client)
    with suppress(RedisError):
        await _note("context", "entered")
    yield
    with suppress(RedisError, TimeoutError):
        async with asyncio.timeout(0.5):
            await _note("context", "left")
    await client.aclose()


if __name__ == "__main__":
    # jobs are found by dotted path: this module's one copy must be the importable one
    import pool_jobs

    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    settings = Settings.model_validate_json(sys.argv[1])
    sys.exit(run_worker(settings, partial(pool_jobs.context, settings)))
