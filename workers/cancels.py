"""Hears which responses were cancelled, so that a turn that waits for tokens stops at once.

Law: this is a nudge and no more. The fence has stopped the turn already; a nudge that is lost costs the time until the
turn's next append, or until its lease is renewed.
"""

import asyncio
import logging

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.keys import Keys
from shared.redis_client import connect_blocking
from shared.settings import Settings
from workers.leases import Leases

_log = logging.getLogger(__name__)

#: Silence after which the connection is asked whether it still lives, seconds.
_SILENCE = 10.0
_RETRY_PAUSE = 0.5


class Cancels:
    """`run` listens until cancelled; an outage of Redis is waited out."""

    def __init__(self, leases: Leases, settings: Settings) -> None:
        self._leases = leases
        self._settings = settings
        self._channel = Keys(settings.key_prefix).cancels
        self._hears: bool | None = None

    async def run(self) -> None:
        """Revoke the leases of cancelled responses as they are told."""
        while True:
            try:
                await self._listen()
            except RedisError as error:
                if self._hears is not False:
                    _log.warning("cancels are heard of late, Redis is away: %s", type(error).__name__)
                self._hears = False
                await asyncio.sleep(_RETRY_PAUSE)

    async def _listen(self) -> None:
        client = connect_blocking(self._settings, _SILENCE)
        asked = False
        async with client, client.pubsub() as channel:
            await channel.subscribe(self._channel)
            self._hears = True
            while True:
                told = await channel.get_message(timeout=_SILENCE)
                if told is None and asked:
                    raise RedisTimeoutError("a connection that does not answer")
                asked = told is None
                if told is None:
                    await channel.ping()
                elif told["type"] == "message":
                    self._leases.revoke(told["data"].decode())
