"""One followed response inside the hub: its newest frames, and who waits for the next.

Law: a window is gapless. A follower holds a position and no frames, and wakes once for all that came.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from shared.events import TERMINAL, LogEntry, sse_frame

#: Events of one response kept for its followers; who is further behind reads the log.
_WINDOW = 256


class Frame(NamedTuple):
    """One event, ready to send. `terminal` is the log entry of the one that the response ends with."""

    sequence_number: int
    bytes: bytes
    terminal: LogEntry | None


def frame(sequence_number: int, entry: LogEntry) -> Frame:
    """A log entry as its followers get it."""
    return Frame(sequence_number, sse_frame(sequence_number, entry), entry if entry.field in TERMINAL else None)


class Topic:
    """One followed response: its newest frames, gapless, and who waits for the next."""

    def __init__(self, key: str, position: int, newest: list[Frame]) -> None:
        self.key = key
        self.position = position  # sequence number of the newest event read
        self.followers: set[Follower] = set()
        self._window: deque[Frame] = deque(newest, maxlen=_WINDOW)

    def add(self, frames: list[Frame]) -> None:
        """Take in what the reader brings, and wake everybody."""
        if frames[0].sequence_number != self.position + 1:
            self._window.clear()  # the log was trimmed: who needs what is missing finds that out by reading it
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


class Follower:
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
        """Something came, or the hub stops."""
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
        """Free the timer: call it once, at the end."""
        self._timer.cancel()
