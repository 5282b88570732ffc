"""One publisher a process: every turn's events leave in one round trip every few milliseconds.

A lone event leaves at once; under load, what arrives while a flush is on its way leaves together with the next. A turn
waits for its own append, so it reads no faster from vLLM than Redis takes, and what queues up in its socket meanwhile
is read, merged and published as one.
"""

import asyncio
import logging
from typing import TypeAlias

from redis.exceptions import RedisError

from shared.event_log import Append, Appended, EventLog
from shared.settings import Settings

_log = logging.getLogger(__name__)

_Waiting: TypeAlias = tuple[Append, "asyncio.Future[Appended]"]

#: Between two attempts to reach Redis, seconds.
_RETRY_PAUSE = 0.2


class Publisher:
    """`append` from any turn; `run` is the one task that writes."""

    def __init__(self, event_log: EventLog, settings: Settings) -> None:
        self._event_log = event_log
        self._interval = settings.flush_interval_ms / 1000
        self._patience = settings.lease + 2 * settings.redis_timeout
        self._waiting: list[_Waiting] = []
        self._wake = asyncio.Event()

    async def append(self, append: Append) -> Appended:
        """Publish, and wait until it is stored or refused.

        Raises `redis.exceptions.RedisError` when Redis stays away for longer than a lease lives: the turn is then
        somebody else's to end.
        """
        stored: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append((append, stored))
        self._wake.set()
        return await stored

    async def run(self) -> None:
        """Flush until cancelled."""
        loop = asyncio.get_running_loop()
        next_flush = 0.0
        while True:
            await self._wake.wait()
            if (pause := next_flush - loop.time()) > 0:
                await asyncio.sleep(pause)
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            next_flush = loop.time() + self._interval
            await self._flush(waiting)

    async def _flush(self, waiting: list[_Waiting]) -> None:
        """Write until each is stored or refused, or patience ends. The turns of a flush fail apart from each other."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while waiting:
            waiting, error = await self._attempt(waiting)
            if error is None:
                return
            if loop.time() > deadline:
                _log.error("gave up publishing for %d turns: %s", len(waiting), type(error).__name__)
                for _, stored in waiting:
                    if not stored.done():
                        stored.set_exception(error)
                return
            await asyncio.sleep(_RETRY_PAUSE)

    async def _attempt(self, waiting: list[_Waiting]) -> tuple[list[_Waiting], RedisError | None]:
        """One round trip; gives what is to be tried again, and why."""
        try:
            answers = await self._event_log.append([append for append, _ in waiting])
        except RedisError as error:
            return waiting, error
        again: list[_Waiting] = []
        failure: RedisError | None = None
        for (append, stored), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, RedisError):
                again.append((append, stored))
                failure = answer
            elif not stored.done():  # its turn may have been cancelled meanwhile
                stored.set_result(answer)
        return again, failure
