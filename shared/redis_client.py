"""How the house talks to Redis: two kinds of client, and scripts called by their digest.

* `connect`: short commands, those of one moment in one round trip; a bounded pool that waits for a free connection, a
  finite timeout, two quick retries (every script of ours can be sent twice).
* `connect_blocking`: one connection for blocking reads; no retry by the library, a deadline past the longest block.

Both speak RESP2, and give stream replies raw: the event log reads them on the hot path.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import NoScriptError

from shared.batches import BatchingRedis
from shared.settings import Settings

_SCRIPTS = Path(__file__).parent / "scripts"


def connect(settings: Settings) -> Redis:
    """A client for short commands. Raises nothing: it connects at the first command."""
    return _client(
        BatchingRedis,
        settings,
        connections=settings.redis_connections,
        timeout=settings.redis_timeout,
        retry=Retry(ExponentialWithJitterBackoff(cap=0.4, base=0.05), retries=2),
    )


def connect_blocking(settings: Settings, longest_block: float) -> Redis:
    """A client for one blocking read at a time, of at most `longest_block` seconds."""
    return _client(
        Redis,
        settings,
        connections=1,
        timeout=longest_block + settings.redis_timeout,
        retry=Retry(NoBackoff(), retries=0),
    )


def _client(kind: type[Redis], settings: Settings, *, connections: int, timeout: float, retry: Retry) -> Redis:
    pool = BlockingConnectionPool.from_url(
        settings.redis_url,
        max_connections=connections,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=settings.redis_timeout,
        retry=retry,
        protocol=2,
        client_name=f"rejoinder-{os.getpid()}",  # CLIENT LIST shows whose a connection is
    )
    client = kind.from_pool(pool)
    for command in ("XREAD", "XRANGE"):
        client.response_callbacks.pop(command, None)
    return client


async def command(client: Redis, *words: Any) -> Any:
    """One command as it stands; stream replies are raw. Raises `redis.exceptions.RedisError`."""
    return await client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis ships no type for it


class Script:
    """One Lua script: sent by its digest, with its source only where the server does not know it yet."""

    def __init__(self, name: str) -> None:
        self.source = (_SCRIPTS / f"{name}.lua").read_bytes()
        self.digest = hashlib.sha1(self.source).hexdigest()  # noqa: S324 - Redis names scripts by SHA-1

    def command(self, keys: Sequence[str], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The EVALSHA command, for a pipeline; its answer may be a `NoScriptError`."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)

    async def __call__(self, client: Redis, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run it. Raises `redis.exceptions.RedisError`."""
        try:
            return await command(client, *self.command(keys, arguments))
        except NoScriptError:
            return await command(client, "EVAL", self.source, len(keys), *keys, *arguments)


async def run_scripts(client: Redis, commands: Sequence[tuple[Any, ...]], scripts: Sequence[Script]) -> list[Any]:
    """Run script commands in one round trip, loading the scripts where the server lost them (restart, failover).

    An answer may be a `RedisError`: one command's failure is not its neighbours'. Raises when the round trip fails.
    """
    answers = await _round_trip(client, commands)
    if any(isinstance(answer, NoScriptError) for answer in answers):
        for script in scripts:
            await client.script_load(script.source)
        answers = await _round_trip(client, commands)
    return answers


async def _round_trip(client: Redis, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return await pipeline.execute(raise_on_error=False)
