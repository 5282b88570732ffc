"""Public events and their place in the event log. Pure.

A log entry is one field and one value, and the field's name says what the value is:
* a delta: a two-letter name, and `<output_index> <part index> <item id> <text>`: about a third of its JSON;
* anything else: the event's type, and its whole JSON.
Either way an entry becomes SSE bytes without being parsed as JSON, once in an API process, for any number of followers.
The entry's id is `1-<sequence_number + 1>` (Redis refuses `0-0`), so a cursor needs no lookup.
"""

import re
from typing import Any, Final, NamedTuple

from shared.json_codec import Wire, decode, encode

CREATED: Final = "response.created"
QUEUED: Final = "response.queued"
IN_PROGRESS: Final = "response.in_progress"
COMPLETED: Final = "response.completed"
FAILED: Final = "response.failed"
INCOMPLETE: Final = "response.incomplete"
ITEM_ADDED: Final = "response.output_item.added"
ITEM_DONE: Final = "response.output_item.done"

TERMINAL: Final = frozenset({COMPLETED, FAILED, INCOMPLETE})

_TYPE_NAME = re.compile(r"[A-Za-z0-9_.:-]{3,128}")


class PublicEvent(NamedTuple):
    """One event as subscribers see it. `body` is the wire event without `type` and `sequence_number`.

    `stored` is the item that an `output_item.done` saves, where that is not the one it shows (`shared/mirror`).
    """

    type: str
    sequence_number: int
    body: Wire
    stored: Wire | None = None

    def wire(self) -> Wire:
        """The whole wire event."""
        return {"type": self.type, "sequence_number": self.sequence_number, **self.body}


class LogEntry(NamedTuple):
    """One entry of the event log: what Redis holds beside the entry's id."""

    field: str
    value: bytes


class _DeltaShape(NamedTuple):
    field: str
    type: str
    part_key: str | None  # the key that counts parts inside the item
    tail: str  # constant keys at the end


_SHAPES: Final = (
    _DeltaShape("ot", "response.output_text.delta", "content_index", ',"logprobs":[]'),
    _DeltaShape("rt", "response.reasoning_text.delta", "content_index", ""),
    _DeltaShape("rs", "response.reasoning_summary_text.delta", "summary_index", ""),
    _DeltaShape("rf", "response.refusal.delta", "content_index", ""),
    _DeltaShape("fa", "response.function_call_arguments.delta", None, ""),
    _DeltaShape("ct", "response.custom_tool_call_input.delta", None, ""),
)
_BY_TYPE: Final = {shape.type: shape for shape in _SHAPES}
_BY_FIELD: Final = {shape.field: shape for shape in _SHAPES}


def is_type_name(value: object) -> bool:
    """Whether a wire `type` may stand in an `event:` line and as a field name: two letters are a delta's."""
    return isinstance(value, str) and _TYPE_NAME.fullmatch(value) is not None


def log_entry(event: PublicEvent) -> LogEntry:
    """The stored form of an event. A delta with anything unusual about it is stored as JSON."""
    shape = _BY_TYPE.get(event.type)
    if shape is not None and (value := _compact(shape, event.body)) is not None:
        return LogEntry(shape.field, value)
    return LogEntry(event.type, encode(event.wire()))


def _compact(shape: _DeltaShape, body: Wire) -> bytes | None:
    keys = 3
    part = 0
    if shape.part_key is not None:
        part = body.get(shape.part_key, -1)
        keys += 1
    if shape.tail:
        if body.get("logprobs") != []:
            return None
        keys += 1
    item_id, output_index, delta = body.get("item_id"), body.get("output_index", -1), body.get("delta")
    if len(body) != keys or not isinstance(item_id, str) or " " in item_id or not isinstance(delta, str):
        return None
    return f"{output_index} {part} {item_id} {delta}".encode()


def sse_frame(sequence_number: int, entry: LogEntry) -> bytes:
    """The entry as one SSE frame: `event:` line, one `data:` line, blank line."""
    shape = _BY_FIELD.get(entry.field)
    if shape is None:
        return b"event: %b\ndata: %b\n\n" % (entry.field.encode(), entry.value)
    output_index, part, item_id, delta = entry.value.split(b" ", 3)
    place = b"" if shape.part_key is None else b'"%b":%b,' % (shape.part_key.encode(), part)
    return b'event: %b\ndata: {"type":"%b","sequence_number":%d,"item_id":%b,"output_index":%b,%b"delta":%b%b}\n\n' % (
        shape.type.encode(),
        shape.type.encode(),
        sequence_number,
        encode(item_id.decode()),
        output_index,
        place,
        encode(delta.decode()),
        shape.tail.encode(),
    )


def public_event(sequence_number: int, entry: LogEntry) -> PublicEvent:
    """The entry read back into an event."""
    shape = _BY_FIELD.get(entry.field)
    if shape is None:
        wire: dict[str, Any] = decode(entry.value)
        return PublicEvent(wire.pop("type"), wire.pop("sequence_number"), wire)
    output_index, part, item_id, delta = entry.value.decode().split(" ", 3)
    body: Wire = {"item_id": item_id, "output_index": int(output_index)}
    if shape.part_key is not None:
        body[shape.part_key] = int(part)
    body["delta"] = delta
    if shape.tail:
        body["logprobs"] = []
    return PublicEvent(shape.type, sequence_number, body)


def entry_id(sequence_number: int) -> str:
    """The log id of an event; `XREAD` after `entry_id(N)` gives exactly what follows the cursor N, -1 everything."""
    return f"1-{sequence_number + 1}"


def sequence_number(stream_id: bytes | str) -> int:
    """The inverse of `entry_id`."""
    text = stream_id.decode() if isinstance(stream_id, bytes) else stream_id
    return int(text.partition("-")[2]) - 1
