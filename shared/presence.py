"""Which worker processes are alive, by their own word: a worker that stops saying so is gone within seconds.

RQ's registry keeps a killed worker for minutes, so readiness does not ask it.
"""

import asyncio
import secrets
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.settings import Settings


class Presence:
    """`announce` from a worker's heartbeat, `count` from anywhere; both raise `redis.exceptions.RedisError`."""

    def __init__(self, client: Redis, settings: Settings) -> None:
        self._client = client
        self._key = f"{settings.key_prefix}workers"
        self._lifetime = settings.lease
        self._name = secrets.token_hex(8)

    async def announce(self) -> None:
        """Say that this process is alive, for one lease."""
        seconds, _ = await self._client.time()
        await self._client.zadd(self._key, {self._name: seconds + self._lifetime})
        await self._client.zremrangebyscore(self._key, "-inf", f"({seconds}")

    async def leave(self) -> None:
        """Say that this process takes no more turns. Without Redis nobody is told: the word runs out by itself."""
        with suppress(RedisError, TimeoutError):
            async with asyncio.timeout(1):
                await self._client.zrem(self._key, self._name)

    async def count(self) -> int:
        """How many worker processes are alive."""
        seconds, _ = await self._client.time()
        return int(await self._client.zcount(self._key, seconds, "+inf"))
