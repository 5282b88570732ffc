"""One publisher a process: every turn's events leave in one round trip every few milliseconds.

A lone event leaves at once; under load, what arrives while a flush is on its way leaves together with the next. A turn
waits for its own append, so it reads no faster from vLLM than Redis takes, and what queues up in its socket meanwhile
is read, merged and published as one. What fails is tried again, later and by itself: no turn waits for another's.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from redis.exceptions import RedisError

from shared.event_log import Append, Appended, EventLog
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Before what failed is tried again, seconds.
_RETRY_PAUSE = 0.2


class _Waiting(NamedTuple):
    append: Append
    stored: "asyncio.Future[Appended]"
    deadline: float


class Publisher:
    """`append` from any turn; `run` is the one task that writes."""

    def __init__(self, event_log: EventLog, settings: Settings) -> None:
        self._event_log = event_log
        self._interval = settings.flush_interval_ms / 1000
        self._patience = settings.outage_patience
        self._waiting: list[_Waiting] = []
        self._wake = asyncio.Event()

    async def append(self, append: Append) -> Appended:
        """Publish, and wait until it is stored or refused.

        Raises `redis.exceptions.RedisError` when it fails for longer than a lease lives: the turn is then somebody
        else's to end.
        """
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[Appended] = loop.create_future()
        self._put([_Waiting(append, stored, loop.time() + self._patience)])
        return await stored

    def _put(self, waiting: Sequence[_Waiting]) -> None:
        self._waiting += waiting
        self._wake.set()

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
        answers: Sequence[Appended | RedisError]
        try:
            answers = await self._event_log.append([one.append for one in waiting])
        except RedisError as error:
            answers = [error] * len(waiting)
        loop = asyncio.get_running_loop()
        again: list[_Waiting] = []
        for one, answer in zip(waiting, answers, strict=True):
            if one.stored.done():  # its turn was cancelled meanwhile
                continue
            if not isinstance(answer, RedisError):
                one.stored.set_result(answer)
            elif loop.time() < one.deadline:
                again.append(one)
            else:
                _log.error("%s: gave up publishing: %s", one.append.record.response_id, type(answer).__name__)
                one.stored.set_exception(answer)
        if again:
            loop.call_later(_RETRY_PAUSE, self._put, again)
