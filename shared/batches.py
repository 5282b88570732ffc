"""A Redis client that sends together what is asked for at the same moment.

Law: commands that were called in one turn of the event loop leave in one round trip, each with an answer or an error of
its own. A lone command waits for nothing. Whoever stops waiting takes no other's answer, and no connection, with it.

A round trip of redis-py costs five times what one more command in it does. When a hundred turns start at once, or a
hundred requests arrive, this is most of what Redis costs their process.
"""

import asyncio
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

#: Redis did not answer; anything else that a round trip raises says that a command is none.
_NO_ANSWER = (RedisConnectionError, RedisTimeoutError, OSError)


class _Waiting(NamedTuple):
    words: tuple[Any, ...]
    options: dict[str, Any]
    answer: "asyncio.Future[Any]"


class BatchingRedis(Redis):
    """For short commands only: one that blocks would hold up its neighbours."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: list[_Waiting] = []
        self._round_trips: set[asyncio.Task[None]] = set()

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        """As redis-py's own. Raises `redis.exceptions.RedisError`."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._leave)
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(_Waiting(words, options, answer))
        return await answer

    def _leave(self) -> None:
        batch, self._waiting = self._waiting, []
        round_trip = asyncio.create_task(self._round_trip(batch))
        self._round_trips.add(round_trip)
        round_trip.add_done_callback(self._round_trips.discard)

    async def _round_trip(self, batch: list[_Waiting]) -> None:
        try:
            answers = await self._answers(batch)
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            if len(batch) > 1 and not isinstance(error, _NO_ANSWER):
                # One of them can't be put into bytes: nothing was sent, so each finds out by itself.
                await asyncio.gather(*(self._round_trip([one]) for one in batch))
                return
            answers = [error] * len(batch)
        for (_, _, waiting), answer in zip(batch, answers, strict=True):
            if waiting.done():
                continue
            if isinstance(answer, Exception):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)

    async def _answers(self, batch: list[_Waiting]) -> list[Any]:
        if len(batch) == 1:  # the plain way costs half of a pipeline
            words, options, _ = batch[0]
            return [await super().execute_command(*words, **options)]  # type: ignore[no-untyped-call]  # redis-py's gap
        pipeline = self.pipeline(transaction=False)
        for words, options, _ in batch:
            pipeline.execute_command(*words, **options)
        return await pipeline.execute(raise_on_error=False)
