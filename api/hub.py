"""One reader, many followers: a single blocking XREAD carries every followed response of this process.

The reader decodes each entry once, into SSE bytes, and keeps the newest of each followed response in a small window.
Followers hold nothing but a position: they take from the window at their own pace, and one that fell out of it reads
the log itself until it is back. So a slow follower costs neither memory nor time, and each gets the same bytes.

A blocked XREAD can't gain streams, so the reader also waits on a wake stream of its own.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from typing import NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.errors import Unavailable
from shared.event_log import EventLog, read_entry
from shared.events import TERMINAL, LogEntry, entry_id, sse_frame
from shared.keys import Keys
from shared.redis_client import command, connect_blocking
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Events of one response kept for its followers; who is further behind reads the log.
_WINDOW = 256
#: Entries taken per stream and read, from the reader's XREAD and from the log alike.
_COUNT = 200
_BLOCK = 5.0
_RETRY_PAUSE = 0.5


class Frame(NamedTuple):
    """One event, ready to send."""

    sequence_number: int
    bytes: bytes
    entry: LogEntry

    @property
    def terminal(self) -> bool:
        """Whether the response ends with it."""
        return self.entry.field in TERMINAL


class _Topic:
    """One followed response: its newest frames, gapless, and who waits for the next."""

    def __init__(self, key: str, position: int) -> None:
        self.key = key
        self.position = position  # sequence number of the newest event read
        self.followers: set[_Follower] = set()
        self._window: deque[Frame] = deque(maxlen=_WINDOW)

    def add(self, frames: list[Frame]) -> None:
        self._window.extend(frames)
        self.position = frames[-1].sequence_number
        for follower in self.followers:
            follower.wake()

    def after(self, position: int) -> list[Frame] | None:
        """The frames after `position`; None where the window begins later."""
        missing = self.position - position
        if missing <= 0:
            return []
        if missing > len(self._window):
            return None
        return [self._window[index] for index in range(-missing, 0)]


class _Follower:
    """Who waits for the next frames of a topic.

    Its one timer is not set anew for each frame: it looks how long ago the last one came.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] | None = None
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(patience, self._look)

    async def changed(self) -> bool:
        """Wait. True once frames came, False when none came for `patience` seconds."""
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        self._heard = self._loop.time()
        self._answer(frames=True)

    def _answer(self, *, frames: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(frames)

    def _look(self) -> None:
        left = self._heard + self._patience - self._loop.time()
        if left <= 0:
            self._heard, left = self._loop.time(), self._patience
            self._answer(frames=False)
        self._timer = self._loop.call_later(left, self._look)

    def leave(self) -> None:
        self._timer.cancel()


class Hub:
    """`follow` from any request; `run` is the one task that reads."""

    def __init__(self, client: Redis, event_log: EventLog, settings: Settings) -> None:
        self._client = client
        self._event_log = event_log
        self._keys = Keys(settings.key_prefix)
        self._settings = settings
        self._topics: dict[str, _Topic] = {}
        self._wake_key = f"{settings.key_prefix}wake:{secrets.token_hex(8)}"
        self._wake_id = "0-0"
        self._nudge_due = False
        self._nudging: asyncio.Task[None] | None = None
        self._stopped = False

    async def follow(self, response_id: str, after: int, patience: float) -> AsyncGenerator[list[Frame], None]:
        """The events after the cursor in order, each once, ending after the terminal one.

        An empty list says that nothing came for `patience` seconds; the caller decides what that means. Raises
        `redis.exceptions.RedisError` when the log can't be read, `Unavailable` once the hub was stopped.
        """
        position = after
        follower = _Follower(patience)
        topic: _Topic | None = None
        try:
            while True:
                if self._stopped:
                    raise Unavailable(
                        "The server stops. The response goes on: resume at your cursor.", retry_after=None
                    )
                frames = None if topic is None else topic.after(position)
                if frames is None:
                    frames = await self._read(response_id, position)
                if not frames and topic is not None and await follower.changed():
                    continue
                if frames or topic is not None:
                    yield frames
                if frames:
                    position = frames[-1].sequence_number
                    if frames[-1].terminal:
                        return
                if topic is None and len(frames) < _COUNT:  # that was all there is: what follows, the reader brings
                    topic = self._join(response_id, position, follower)
        finally:
            follower.leave()
            if topic is not None:
                self._leave(response_id, topic, follower)

    def stop(self) -> None:
        """End all followers, now and later."""
        self._stopped = True
        for topic in self._topics.values():
            for follower in topic.followers:
                follower.wake()

    async def holds_more(self, response_id: str, after: int) -> bool:
        """Whether the log holds events after the cursor; the reader may be a moment behind it."""
        return bool(await self._event_log.read(response_id, after, 1))

    async def _read(self, response_id: str, position: int) -> list[Frame]:
        return [_frame(*found) for found in await self._event_log.read(response_id, position, _COUNT)]

    def _join(self, response_id: str, position: int, follower: _Follower) -> _Topic:
        topic = self._topics.get(response_id)
        if topic is None:
            topic = self._topics[response_id] = _Topic(self._keys.events(response_id), position)
            self._nudge()
        topic.followers.add(follower)
        return topic

    def _leave(self, response_id: str, topic: _Topic, follower: _Follower) -> None:
        topic.followers.discard(follower)
        if not topic.followers and self._topics.get(response_id) is topic:
            del self._topics[response_id]

    def _nudge(self) -> None:
        """Make a blocked XREAD return and take in the new stream. One nudge serves all that joined before it."""
        self._nudge_due = True
        if self._nudging is None or self._nudging.done():
            self._nudging = asyncio.create_task(self._send_nudges())

    async def _send_nudges(self) -> None:
        while self._nudge_due:
            self._nudge_due = False
            try:
                pipeline = self._client.pipeline(transaction=False)
                pipeline.xadd(self._wake_key, {"w": ""}, maxlen=1, approximate=False)
                pipeline.expire(self._wake_key, 60)
                await pipeline.execute()
            except RedisError as error:
                _log.warning("could not wake the reader: %s", type(error).__name__)

    async def run(self) -> None:
        """Read until cancelled. An outage of Redis is waited out; followers find out by themselves."""
        client = connect_blocking(self._settings, _BLOCK)
        away = False
        try:
            while True:
                try:
                    await self._read_once(client)
                except RedisError as error:
                    if not away:
                        _log.warning("Redis is away (%s), trying again until it is back", type(error).__name__)
                    away = True
                    await asyncio.sleep(_RETRY_PAUSE)
                else:
                    if away:
                        _log.warning("Redis is back")
                    away = False
        finally:
            await client.aclose()

    async def _read_once(self, client: Redis) -> None:
        topics = {topic.key: topic for topic in self._topics.values()}
        cursors = [self._wake_id, *(entry_id(topic.position) for topic in topics.values())]
        found = await command(
            *(client, "XREAD", "COUNT", _COUNT, "BLOCK", int(_BLOCK * 1000)),
            *("STREAMS", self._wake_key, *topics, *cursors),
        )
        for key, entries in found or ():
            topic = topics.get(key.decode())
            if topic is None:
                self._wake_id = entries[-1][0]
            else:
                topic.add([_frame(*read_entry(entry)) for entry in entries])

    async def aclose(self) -> None:
        """Let a nudge that is on its way arrive."""
        if self._nudging is not None:
            await asyncio.gather(self._nudging, return_exceptions=True)


def _frame(sequence_number: int, entry: LogEntry) -> Frame:
    return Frame(sequence_number, sse_frame(sequence_number, entry), entry)
