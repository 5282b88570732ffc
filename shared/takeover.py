"""Ending a response in the place of its writer: a cancel, or the turn of a worker that died.

Law: the fence is raised first, so the event log stands still, whatever the old writer still sends; then the log is
folded back into items, and the end is appended under the new fence. Who dies in between leaves a lease that runs out:
the sweeper then ends the response, as cancelled where that was asked for.
"""

import asyncio
import secrets
from contextlib import suppress

from redis.exceptions import RedisError

from shared.accumulator import Accumulator
from shared.errors import ApiError, UpstreamError
from shared.event_log import EventLog, last_append
from shared.record import Ending, Record
from shared.response import Status
from shared.store import Claim, ResponseStore

#: Before a cancel that found another under way looks again, seconds.
_PAUSE = 0.05


class Takeover:
    """Both raise `redis.exceptions.RedisError` when Redis is away; they can be called again."""

    def __init__(self, store: ResponseStore, event_log: EventLog) -> None:
        self._store = store
        self._event_log = event_log

    async def cancel(self, response_id: str) -> Record | None:
        """End a response as cancelled, with what had come; its record, or None where there is none.

        One that had ended already stays as it is. Workers that generate it close the upstream when they hear of it.
        """
        while True:
            claimed = await self._store.claim(response_id, secrets.token_hex(8), Claim.CANCEL)
            if claimed is not None:
                await self._end(claimed)
            record = await self._store.load(response_id)
            if record is None or record.status.terminal:
                return record
            await asyncio.sleep(_PAUSE)  # another cancel is ending it, or died trying: its lease runs out

    async def end_lost(self, response_id: str) -> bool:
        """End a response whose writer's lease has run out. Whether it was still to be ended."""
        claimed = await self._store.claim(response_id, secrets.token_hex(8), Claim.LOST)
        return claimed is not None and await self._end(claimed)

    async def _end(self, record: Record) -> bool:
        accumulator, ending = await self._folded(record), _ending(record)
        closing = accumulator.fail(status=ending.status.value)
        [answer] = await self._event_log.append([last_append(record, accumulator, closing, ending)])
        if isinstance(answer, RedisError):
            raise answer
        return answer.stored

    async def _folded(self, record: Record) -> Accumulator:
        with suppress(ValueError):
            accumulator = await self._event_log.folded(record)
            if accumulator.next_sequence_number == record.sequence:
                return accumulator
        # A log that can't be read: end it with nothing, but end it.
        return Accumulator(record.sequence, mirror=record.mirror)


def _ending(record: Record) -> Ending:
    if record.cancelled:
        return Ending(Status.CANCELLED)
    failure: ApiError = UpstreamError("The worker that generated this response died.", status=500)
    return Ending(Status.FAILED, error=failure.response_error(), http_status=failure.status)
