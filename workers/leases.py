"""The leases of the turns that run in this process: renewed together, and a turn whose lease is lost stops at once.

A lease is Redis's word that a turn is alive; ours alone decides who is dead (RQ's own verdict is not asked).
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError

from shared.presence import Presence
from shared.record import Record
from shared.settings import Settings
from shared.store import ResponseStore

_log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another writer holds the response, or it has ended: this turn writes nothing more."""


class Lease:
    """The lease of one running turn. `lost` is set before the turn's task is cancelled for it."""

    def __init__(self, fence: int, task: "asyncio.Task[object]") -> None:
        self.fence, self.task, self.lost = fence, task, False


class Leases:
    """`held` around a turn; `run` is the one task that renews."""

    def __init__(self, store: ResponseStore, presence: Presence, settings: Settings) -> None:
        self._store = store
        self._presence = presence
        self._interval = settings.lease / 3
        self._held: dict[str, Lease] = {}

    @contextmanager
    def held(self, record: Record) -> Iterator[Lease]:
        """Keep the record's lease while the block runs. Raises `LeaseLost` out of it when the lease is lost."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a turn is a task
        held = self._held[record.response_id] = Lease(record.fence, task)
        try:
            yield held
        except asyncio.CancelledError:
            if not held.lost:
                raise
            while task.uncancel():
                pass
            raise LeaseLost from None
        finally:
            if self._held.get(record.response_id) is held:
                del self._held[record.response_id]

    async def run(self) -> None:
        """Renew, and say that this process lives, until cancelled.

        An outage of Redis costs nothing but time: the fence decides afterwards.
        """
        while True:
            try:
                await self._presence.announce()
                await self._renew()
            except RedisError as error:
                _log.warning("could not renew %d leases: %s", len(self._held), type(error).__name__)
            await asyncio.sleep(self._interval)

    async def _renew(self) -> None:
        fences = {response_id: held.fence for response_id, held in self._held.items()}
        for response_id in await self._store.renew(fences) if fences else ():
            held = self._held.get(response_id)
            if held is not None and held.fence == fences[response_id]:
                _stop(held)

    def revoke(self, response_id: str) -> None:
        """Somebody else ends this response: its turn stops now, if it runs here."""
        if (held := self._held.get(response_id)) is not None:
            _stop(held)


def _stop(held: Lease) -> None:
    held.lost = True  # asked again at each renewal: a cancellation can be swallowed on its way
    held.task.cancel()
