"""Cancels: asked for by a client, or because the client of a foreground response has left.

Law: only a background response is cancelled by request (OpenAI reference); nobody waits for a foreground one any more
once its client has left. What has ended stays as it ended.
"""

import asyncio
import logging

from redis.exceptions import RedisError

from shared.errors import InvalidRequest, NotFound
from shared.record import Record
from shared.response import Status
from shared.settings import Settings
from shared.takeover import Takeover

_log = logging.getLogger(__name__)

#: Before Redis is asked again, seconds.
_PAUSE = 0.5


class Cancellations:
    """`cancel` for the endpoint, `client_left` for the route that created the response."""

    def __init__(self, takeover: Takeover, settings: Settings) -> None:
        self._takeover = takeover
        self._patience = settings.outage_patience

    async def cancel(self, record: Record) -> Record:
        """The record once it has ended: as cancelled, or as it had ended before.

        Raises `InvalidRequest` for a foreground response, `NotFound` for one that vanished meanwhile, and
        `redis.exceptions.RedisError`: it may be asked for again.
        """
        if not record.background:
            raise InvalidRequest(
                "Only a response created with `background: true` can be cancelled. This one ends with its connection."
            )
        ended = await self._takeover.cancel(record.response_id)
        if ended is None:
            raise NotFound(f"Response with id '{record.response_id}' not found.")
        return ended

    async def client_left(self, response_id: str) -> None:
        """End a foreground response that nobody waits for. A Redis that is away is waited for, as turns do."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._patience
        while True:
            try:
                ended = await self._takeover.cancel(response_id)
                break
            except RedisError as error:
                if clock() > deadline:
                    _log.warning("%s: its client left, cancelling it failed: %s", response_id, type(error).__name__)
                    return
                await asyncio.sleep(_PAUSE)
        if ended is not None and ended.status is Status.CANCELLED:
            _log.info("%s: cancelled, its client left", response_id)
