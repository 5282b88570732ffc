"""The outbox: work that follows a commit but lies in another slot, so that one script can't do both.

The last append of a response leaves an entry for each background response that waits for it; here its job is enqueued,
and only then the entry is dropped. Draining twice enqueues once (`TurnQueue.enqueue` is idempotent, a claim exclusive).
"""

import logging
from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.ids import shard_of
from shared.keys import Keys
from shared.queue import TurnQueue
from shared.redis_client import command
from shared.settings import Settings

_log = logging.getLogger(__name__)


class Outbox:
    """Drained by the worker that filled it, and by every sweeper for those that died in between."""

    def __init__(self, client: Redis, queue: TurnQueue, settings: Settings) -> None:
        self._client = client
        self._queue = queue
        self._keys = Keys(settings.key_prefix)

    async def drain_of(self, response_id: str) -> None:
        """Drain the outbox of the response's shard now. An outage leaves it to the sweeper."""
        shard = shard_of(response_id)
        if shard is None:
            return
        try:
            await self.drain([shard])
        except RedisError as error:
            _log.warning("outbox of %s left to the sweeper: %s", response_id, type(error).__name__)

    async def drain(self, shards: Sequence[int]) -> None:
        """Carry out and drop every entry of these shards. Raises `redis.exceptions.RedisError`."""
        pipeline = self._client.pipeline(transaction=False)
        for shard in shards:
            pipeline.execute_command("XRANGE", self._keys.outbox(shard), "-", "+", "COUNT", 100)
        for shard, entries in zip(shards, await pipeline.execute(), strict=True):
            for entry_id, (kind, response_id) in entries:
                if kind == b"enqueue":
                    await self._queue.enqueue(response_id.decode())
                await command(self._client, "XDEL", self._keys.outbox(shard), entry_id)
