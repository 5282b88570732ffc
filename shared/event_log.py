"""The event log: appending under a fence, and reading from a cursor.

Law: an append that completes items saves them in the same step, and the last append ends the response in the same step
(save, then announce). A writer whose fence is no longer the response's can write nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.accumulator import Accumulator
from shared.events import ITEM_DONE, LogEntry, PublicEvent, entry_id, log_entry, public_event, sequence_number
from shared.fold import fold
from shared.json_codec import encode
from shared.keys import Keys
from shared.record import Ending, Record
from shared.redis_client import Script, command, run_scripts
from shared.response import terminal_type
from shared.settings import Settings

_APPEND = Script("append")

#: Entries that are folded in one go: a long log must not keep the event loop for long.
_FOLDED_AT_ONCE = 500


class Appended(Enum):
    """What the log says of an append."""

    OK = b"ok"
    OUTBOX = b"outbox"  # ok, and something waits in the shard's outbox
    FENCED = b"fenced"  # somebody else is the writer
    TERMINAL = b"terminal"  # the response has ended
    GAP = b"gap"  # events before these are missing
    MISSING = b"missing"  # the response is gone

    @property
    def stored(self) -> bool:
        """Whether the events are in the log."""
        return self in {Appended.OK, Appended.OUTBOX}


@dataclass(frozen=True, slots=True)
class Append:
    """Events of one response in order, without a gap, and with the last ones its ending."""

    record: Record
    events: list[PublicEvent]
    ending: Ending | None = None


def last_append(record: Record, accumulator: Accumulator, events: list[PublicEvent], ending: Ending) -> Append:
    """What ends a response: `events` close what was open, the terminal event follows them."""
    ended = record.ended(ending, accumulator.output)
    terminal = accumulator.number(terminal_type(ending.status), {"response": ended.response()})
    return Append(record, [*events, terminal], ending)


class EventLog:
    """All methods raise `redis.exceptions.RedisError` when Redis is away."""

    def __init__(self, client: Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.key_prefix)
        self._log_ttl_ms = int(settings.event_log_ttl * 1000)
        self._stored_ttl_ms = int(settings.response_ttl * 1000)
        self._unstored_ttl_ms = int(settings.unstored_ttl * 1000)

    async def append(self, appends: Sequence[Append]) -> list[Appended | RedisError]:
        """Append in one round trip. Sending the same appends again changes nothing and gives the same answer.

        Sent anew after a NOSCRIPT, appends of one response that stood behind each other must still be in order: the
        caller sends at most one append a response at a time.
        """
        commands = [command for append in appends for command in self._index(append)]
        notes = len(commands)
        commands += [self._command(append) for append in appends]
        answers = await run_scripts(self._client, commands, [_APPEND])
        return [answer if isinstance(answer, RedisError) else Appended(answer) for answer in answers[notes:]]

    def _index(self, append: Append) -> Iterator[tuple[Any, ...]]:
        """Note where finished items live, before anybody learns of them (an `item_reference` may name them at once)."""
        if append.record.store:
            for event in append.events:
                if event.type == ITEM_DONE:
                    key = self._keys.item(event.body["item"]["id"])
                    yield ("SET", key, append.record.response_id, "PX", self._stored_ttl_ms)

    def _command(self, append: Append) -> tuple[Any, ...]:
        keys, record = self._keys, append.record
        response_id = record.response_id
        names = [keys.response(response_id), keys.events(response_id)]
        arguments: list[Any] = [record.fence, append.events[0].sequence_number, len(append.events)]
        if (ending := append.ending) is not None:
            names += [keys.live_of(response_id), keys.children(response_id), keys.outbox_of(response_id)]
            record_ttl_ms = self._stored_ttl_ms if record.store else self._unstored_ttl_ms
            arguments += [ending.stored(), ending.status.value, record_ttl_ms, self._log_ttl_ms, response_id]
        items: list[Any] = []
        for event in append.events:
            arguments += log_entry(event)
            if event.type == ITEM_DONE:
                items += (event.body["output_index"], encode(event.stored or event.body["item"]))
        return _APPEND.command(names, [*arguments, *items])

    async def read(self, response_id: str, after: int, count: int) -> list[tuple[int, LogEntry]]:
        """At most `count` entries after the cursor `after` (-1: from the first), with their sequence numbers."""
        key = self._keys.events(response_id)
        found = await command(self._client, "XRANGE", key, f"({entry_id(after)}", "+", "COUNT", count)
        return [read_entry(entry) for entry in found]

    async def folded(self, record: Record) -> Accumulator:
        """The whole log of a response, folded. Raises `ValueError` where it can't be read."""
        accumulator, after = Accumulator(mirror=record.mirror), -1
        while True:
            entries = await self.read(record.response_id, after, _FOLDED_AT_ONCE)
            fold((public_event(number, entry) for number, entry in entries), accumulator)
            if len(entries) < _FOLDED_AT_ONCE:
                return accumulator
            after = entries[-1][0]

    async def exists(self, response_id: str) -> bool:
        """Whether the log is still there."""
        return bool(await self._client.exists(self._keys.events(response_id)))


def read_entry(entry: Any) -> tuple[int, LogEntry]:
    """One raw stream entry, `[id, [field, value]]`, as sequence number and log entry."""
    stream_id, (field, value) = entry
    return sequence_number(stream_id), LogEntry(field.decode(), value)
