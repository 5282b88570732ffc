"""One reader, many followers: a single blocking XREAD carries every followed response of this process.

The reader decodes each entry once, into SSE bytes, and keeps the newest of each followed response in a small window.
Followers hold nothing but a position: they take from the window at their own pace, and one that fell out of it reads
the log itself until it is back. So a slow follower costs neither memory nor time, and each gets the same bytes.

A blocked XREAD can't gain streams, so the reader also waits on a wake stream of its own.

Law: the numbers that a follower gets are gapless. Where the log lost some of them it is told so, never given the rest.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator

from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.topics import Follower, Frame, Topic, frame
from shared.errors import ApiError
from shared.event_log import EventLog, read_entry
from shared.events import entry_id
from shared.keys import Keys
from shared.redis_client import command, connect_blocking
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Entries taken per stream and read, from the reader's XREAD and from the log alike.
_COUNT = 200
_BLOCK = 5.0
_RETRY_PAUSE = 0.5
#: After a read, seconds. Each costs Redis and us something for every followed stream, so under load they are few and
#: bring much; what comes after a longer silence is not kept waiting.
_READ_PAUSE = 0.005


class Stopped(Exception):
    """The process ends, so its followers are let go."""


class LogNotWhole(ApiError):
    """The event log lacks events that a follower has yet to get."""

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"The event log of response '{response_id}' is no longer whole. Retrieve the response instead."
        )


class Hub:
    """`follow` from any request; `run` is the one task that reads."""

    def __init__(self, client: Redis, event_log: EventLog, settings: Settings) -> None:
        self._client = client
        self._event_log = event_log
        self._keys = Keys(settings.key_prefix)
        self._settings = settings
        self._topics: dict[str, Topic] = {}
        self._wake_key = f"{settings.key_prefix}wake:{secrets.token_hex(8)}"
        self._wake_id = "0-0"
        self._nudge_due = False
        self._nudging: asyncio.Task[None] | None = None
        self._stopped = False

    async def follow(
        self, response_id: str, after: int, patience: float, known: int = -1
    ) -> AsyncGenerator[list[Frame], None]:
        """The events after the cursor in order, each once, ending after the terminal one.

        The cursor may lie ahead of the log, which has reached the number `known`. An empty list says that nothing came
        for `patience` seconds; the caller decides what that means. Raises `redis.exceptions.RedisError` when the log
        can't be read, `LogNotWhole` when events are lost, `Stopped` once the hub was stopped.
        """
        position, reached = after, min(after, known)
        follower = Follower(patience)
        topic = self._joined(response_id, position, follower)
        try:
            while True:
                if self._stopped:
                    raise Stopped
                frames = await self._after(response_id, position, topic)
                if not frames and topic is not None and await follower.changed():
                    continue
                if frames or topic is not None:
                    yield frames
                if frames:
                    position = reached = frames[-1].sequence_number
                    if frames[-1].terminal:
                        return
                if topic is None and len(frames) < _COUNT:  # that was all there is: what follows, the reader brings
                    topic = self._join(response_id, reached, frames, follower)
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

    async def _after(self, response_id: str, position: int, topic: Topic | None) -> list[Frame]:
        """The next frames: out of the topic's window, else out of the log."""
        if topic is not None and (found := topic.after(position)) is not None:
            return found
        frames = [frame(*entry) for entry in await self._event_log.read(response_id, position, _COUNT)]
        lost = frames[0].sequence_number != position + 1 if frames else topic is not None
        if lost:
            raise LogNotWhole(response_id)
        return frames

    def _joined(self, response_id: str, position: int, follower: Follower) -> Topic | None:
        """The topic, where there is one that holds all that follows the cursor: a crowd costs Redis nothing."""
        topic = self._topics.get(response_id)
        if topic is None or topic.after(position) is None:
            return None
        topic.followers.add(follower)
        return topic

    def _join(self, response_id: str, position: int, newest: list[Frame], follower: Follower) -> Topic:
        topic = self._topics.get(response_id)
        if topic is None:
            topic = self._topics[response_id] = Topic(self._keys.events(response_id), position, newest)
            self._nudge()
        topic.followers.add(follower)
        return topic

    def _leave(self, response_id: str, topic: Topic, follower: Follower) -> None:
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
                    await asyncio.sleep(_READ_PAUSE)
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
                topic.add([frame(*read_entry(entry)) for entry in entries])

    async def aclose(self) -> None:
        """Let a nudge that is on its way arrive."""
        if self._nudging is not None:
            await asyncio.gather(self._nudging, return_exceptions=True)
