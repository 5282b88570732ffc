"""One subscriber of the demo: follows a response over HTTP, may be cut off, and resumes at its cursor.

Law: what it shows and compares is what came over the wire; it keeps every event and where each connection ended.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import httpx

from shared.json_codec import Wire, decode
from workers.sse import SseDecoder

_MAX_EVENT_BYTES: Final = 1024 * 1024

REASONING: Final = "response.reasoning_text.delta"
ANSWER: Final = "response.output_text.delta"


class Subscriber:
    """`events` holds all that came, over all connections; `cuts` the cursors at which a connection was cut off."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Wire] = []
        self.cuts: list[int] = []
        self.connected = False
        self.done = False

    @property
    def cursor(self) -> int | None:
        """The `sequence_number` of the last event, for `starting_after`."""
        return self.numbers[-1] if self.events else None

    @property
    def numbers(self) -> list[int]:
        """The `sequence_number` of every event, as they came."""
        return [event["sequence_number"] for event in self.events]

    def text(self, delta: str) -> str:
        """What the deltas of one type spell."""
        return "".join(event["delta"] for event in self.events if event["type"] == delta)

    async def create(self, client: httpx.AsyncClient, body: Wire) -> None:
        """Create a response whose stream this is, and read it to its end. Raises `httpx.HTTPError`."""
        await self._read(client.stream("POST", "/v1/responses", json=body), lambda: False)

    async def follow(
        self, client: httpx.AsyncClient, response_id: str, *, cut: Callable[[], bool] = lambda: False
    ) -> None:
        """Read on from the cursor to the end of the stream, or leave at once where `cut` says so after an event.

        Raises `httpx.HTTPError`.
        """
        query = {"stream": "true"} | ({} if self.cursor is None else {"starting_after": str(self.cursor)})
        await self._read(client.stream("GET", f"/v1/responses/{response_id}", params=query), cut)

    async def _read(self, request: AbstractAsyncContextManager[httpx.Response], cut: Callable[[], bool]) -> None:
        decoder = SseDecoder(_MAX_EVENT_BYTES)
        async with request as answer:
            answer.raise_for_status()
            self.connected = True
            try:
                async for read in answer.aiter_raw():
                    for data in decoder.feed(read):
                        self._take(data)
                        if cut():
                            self.cuts.append(self.events[-1]["sequence_number"])
                            return
            finally:
                self.connected = False

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
        elif (event := decode(data))["type"] != "keepalive":  # repeats the last number, and tells nothing
            self.events.append(event)
