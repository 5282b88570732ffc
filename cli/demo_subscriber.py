"""One subscriber of the demo: follows a response over HTTP, may be cut off, and resumes at its cursor.

Law: what it shows and compares is what came over the wire; it keeps every event and where each connection ended.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final

import httpx

from cli.endpoint import check, path_of
from cli.follower import read_events
from shared.json_codec import Wire

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
        """Create a response whose stream this is, and read it to its end. Raises `httpx.HTTPError` and `Refused`."""
        await self._read(client.stream("POST", "/v1/responses", json=body), lambda: False)

    async def follow(
        self, client: httpx.AsyncClient, response_id: str, *, cut: Callable[[], bool] = lambda: False
    ) -> None:
        """Read on from the cursor to the end of the stream, or leave at once where `cut` says so after an event.

        Raises `httpx.HTTPError` and `Refused`.
        """
        query = {"stream": "true"} | ({} if self.cursor is None else {"starting_after": str(self.cursor)})
        await self._read(client.stream("GET", path_of(response_id), params=query), cut)

    async def _read(self, request: AbstractAsyncContextManager[httpx.Response], cut: Callable[[], bool]) -> None:
        async with request as answer:
            await check(answer)
            self.connected = True
            try:
                async with aclosing(read_events(answer)) as events:
                    async for event in events:
                        self.events.append(event)
                        if cut():
                            self.cuts.append(event["sequence_number"])
                            return
                self.done = True
            finally:
                self.connected = False
