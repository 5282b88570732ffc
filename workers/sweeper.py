"""The sweeper: what to do about a live response whose lease has run out. Every worker process runs one.

* never claimed: its submitter died between creating and enqueueing, or its job got lost; enqueue it (a job that still
  waits is left alone, however long the queue);
* claimed: its worker died or was cut off, or who cancelled it was: end it with what it had (`shared/takeover`).

After an outage of Redis nobody is swept for one lease: the living must get a chance to renew first.
"""

import asyncio
import logging
import random

from redis.exceptions import RedisError

from shared.ids import SHARDS
from shared.queue import TurnQueue
from shared.record import Record
from shared.takeover import Takeover
from workers.turn import TurnContext

_log = logging.getLogger(__name__)


class Sweeper:
    """`run` sweeps until cancelled, `sweep` once."""

    def __init__(self, context: TurnContext, queue: TurnQueue) -> None:
        self._context = context
        self._takeover = Takeover(context.store, context.event_log)
        self._queue = queue

    async def run(self) -> None:
        """Sweep every `sweep_interval`, spread a little so that processes don't march in step."""
        settings = self._context.settings
        while True:
            await asyncio.sleep(settings.sweep_interval * random.uniform(0.75, 1.25))  # noqa: S311 - spread, not secret
            try:
                await self.sweep()
            except RedisError as error:
                _log.warning("sweep failed: %s", type(error).__name__)
                await asyncio.sleep(settings.lease)

    async def sweep(self) -> None:
        """Look at every shard once. Raises `redis.exceptions.RedisError`."""
        shards = range(SHARDS)
        await self._context.outbox.drain(shards)
        for response_id in await self._context.store.expired(shards):
            try:
                await self._look_at(response_id)
            except RedisError:
                raise
            except Exception as error:  # noqa: BLE001 - one response that breaks us must not take every worker with it
                _log.error("%s: sweeping it broke: %s", response_id, type(error).__name__)

    async def _look_at(self, response_id: str) -> None:
        store = self._context.store
        record = await store.load(response_id)
        if record is None or record.status.terminal:
            await store.forget_live(response_id)
        elif record.fence > 0:
            if await self._takeover.end_lost(response_id):
                _log.warning("%s: its worker is gone, ended it", response_id)
        else:
            await self._requeue(record)

    async def _requeue(self, record: Record) -> None:
        parent = await self._context.store.load(record.parent) if record.parent else None
        waits = parent is not None and not parent.status.terminal
        if not waits and not await self._queue.is_waiting(record.response_id):
            _log.warning("%s: had no job, enqueued again", record.response_id)
            await self._queue.enqueue(record.response_id)
        await self._context.store.extend_unclaimed(record.response_id)
