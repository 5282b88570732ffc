"""Follows one response over HTTP until it has ended, over as many connections as that takes.

    stream from the cursor ──terminal event──► ended
       ▲        └─ broke, fell silent, `error` event, a gap, 503, 400 ─► wait (0.2 s, doubled up to 2 s, or as told)
       └──────────────◄── not ended ── look at the response itself, where a stream brought nothing ── ended ──► ended

Law: every event is given once, in order, none left out: what repeats is dropped, and a gap is a break. A response that
can't be streamed (foreground, or its event log has expired) is waited for; `ended` then holds all there is to show.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import httpx

from cli.endpoint import Broken, Refused, ask, away, check, path_of, unreached, why
from shared.events import TERMINAL
from shared.json_codec import Wire, decode
from shared.response import Status
from workers.sse import SseDecoder

#: The last event holds the whole response.
_MAX_EVENT_BYTES: Final = 256 * 1024 * 1024
#: The longest wait that a server may ask for, seconds.
_LONGEST_WAIT: Final = 30.0
_LIVE: Final = frozenset({Status.QUEUED, Status.IN_PROGRESS})


@dataclass(frozen=True)
class Patience:
    """Seconds: between tries; for a server that was never there, or gave nothing yet; for a silent stream."""

    first: float = 0.2
    longest: float = 2.0
    absent: float = 3.0
    unreached: float = 10.0
    silence: float = 45.0  # three keep-alives


async def read_events(answer: httpx.Response) -> AsyncGenerator[Wire, None]:
    """The events of an SSE answer up to its `[DONE]`, without keep-alives, which repeat a number and tell nothing.

    Raises `Refused` where it is no event stream, `Broken` where it breaks off or tells of an error, and what `httpx`
    raises where the connection breaks.
    """
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        raise Refused("what answers there is no Responses API: it sends no event stream")
    decoder = SseDecoder(_MAX_EVENT_BYTES)
    async for read in answer.aiter_raw():
        for data in _framed(decoder, read):
            if data == b"[DONE]":
                return
            event = _event(data)
            if event["type"] == "error":
                raise Broken(f"the server says: {event.get('message')}")
            if event["type"] != "keepalive":
                yield event
    raise Broken("the stream broke off")


def _framed(decoder: SseDecoder, read: bytes) -> list[bytes]:
    try:
        return decoder.feed(read)
    except ValueError:
        raise Broken("an event was too large") from None


def _event(data: bytes) -> Wire:
    try:
        event: Wire = decode(data)
        if isinstance(event["type"], str) and isinstance(event["sequence_number"], int):
            return event
    except (ValueError, LookupError, TypeError):
        pass
    raise Broken("something came that is no event")


class Follower:
    """`events`, and then `ended`: the Response object as it ended.

    `say` is given a line where something keeps the user waiting. `cursor` is the number of the last event, -1 before.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        response_id: str,
        say: Callable[[str], None],
        patience: Patience = Patience(),
    ) -> None:
        self._client = client
        self._path = path_of(response_id)
        self._say = say
        self._patience = patience
        self._reached = False  # whether the server has ever given what it was asked for
        self._failures = 0  # since the last new event
        self._said = ""
        self.cursor = -1
        self.ended: Wire | None = None

    async def events(self) -> AsyncGenerator[Wire, None]:
        """Each event, until the response has ended. Raises `Refused` where that can't be had."""
        began = asyncio.get_running_loop().time()
        while self.ended is None:
            streamed = True
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        yield event
                fault: httpx.TransportError = Broken("the stream ended before the response")
            except Refused as refusal:
                if refusal.status != httpx.codes.BAD_REQUEST:
                    raise
                self._reached, streamed = True, False
                fault = Broken("this response can't be streamed any more. Waiting for its end.")
            except httpx.TransportError as error:
                fault = error
            if self.ended is None and (self._failures or not streamed):
                await self._look()
            if self.ended is None:
                limit = self._patience.absent if away(fault) else self._patience.unreached
                left = math.inf if self._reached else began + limit - asyncio.get_running_loop().time()
                if left <= 0:
                    raise Refused(unreached(self._client, fault))
                await self._bide(fault, left)

    async def _connection(self) -> AsyncGenerator[Wire, None]:
        query = {"stream": "true"} | ({"starting_after": str(self.cursor)} if self.cursor >= 0 else {})
        timeout = httpx.Timeout(self._patience.silence, connect=self._patience.absent)
        async with self._client.stream("GET", self._path, params=query, timeout=timeout) as answer:
            await check(answer)
            self._reached = True
            async with aclosing(read_events(answer)) as events:
                async for event in events:
                    if self._is_next(event):
                        yield event
                    if self.ended is not None:
                        return

    def _is_next(self, event: Wire) -> bool:
        number = event["sequence_number"]
        if number <= self.cursor:
            return False
        if number > self.cursor + 1:
            raise Broken(f"events between {self.cursor} and {number} were left out")
        if event["type"] in TERMINAL:
            if not isinstance(event.get("response"), dict):
                raise Broken("the last event holds no response")
            self.ended = event["response"]
        self.cursor = number
        self._failures = 0
        if self._said:
            self._said = ""
            self._say(f"Going on after event {number - 1}." if number else "Going on.")
        return True

    async def _bide(self, fault: httpx.TransportError, left: float) -> None:
        """Wait before the next try, for no longer than is left in seconds; the first one is made without a word."""
        self._failures += 1
        if self._failures > 1 and not self._said:
            self._said = f"{why(fault)[:1].upper()}{why(fault)[1:]}"
            self._say(self._said if self._said.endswith(".") else f"{self._said}. Trying again.")
        told = fault.retry_after if isinstance(fault, Broken) else 0.0
        backoff = min(self._patience.first * 2 ** min(self._failures - 1, 30), self._patience.longest)
        await asyncio.sleep(min(left, max(backoff, min(told, _LONGEST_WAIT))))

    async def _look(self) -> None:
        """Take the response as it is stored where it has ended: its events may not be there any more."""
        if not self._reached:
            return
        try:
            response = await ask(self._client, "GET", self._path)
        except httpx.TransportError:
            return
        if response.get("status") not in _LIVE:
            self.ended = response
