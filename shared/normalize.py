"""One wire event to one `UpstreamEvent`. Pure; never raises.

Law: read what is there, trust nothing, invent nothing. What can't be read is `Skipped` with a fixed reason, and nothing
of it is used. Spellings that mean the same (aliases of older servers, `item_id` for `id`) become one here, and nowhere
else. The event's own `sequence_number` is never looked at.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from shared.events import is_type_name
from shared.item_shape import item_id, tidy, well_formed, well_formed_beside
from shared.json_codec import Wire, decode_foreign, decode_shallow, is_finite
from shared.terminal_shape import ENDINGS, answered, failed, finished
from shared.upstream_events import (
    AnnotationAdded,
    Forwarded,
    ItemAdded,
    ItemDone,
    ItemMalformed,
    PartAdded,
    PartDone,
    Place,
    Skipped,
    TextDelta,
    TextDone,
    TextKind,
    UpstreamEvent,
)

#: Indices from here on are no place in a response, but a fault.
MAX_INDEX: Final = 10_000


class _Unreadable(Exception):
    """Ends the reading of one event."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_event(data: bytes) -> UpstreamEvent:
    """The data of one SSE event. `[DONE]` and empty data mean nothing, data that is no JSON is a fault."""
    if len(data) < 16 and data.strip() in (b"", b"[DONE]"):
        return Skipped("no_event", counted=False)
    try:
        wire = decode_shallow(data)
    except ValueError:
        return Skipped("not_json")
    event = normalize(wire)
    if type(event) is TextDelta and event.logprobs is None:
        return event  # holds no number, and there is one for every token
    return event if is_finite(wire) else Skipped("not_json")


def read_answer(data: bytes) -> UpstreamEvent:
    """A whole body of JSON, as the one event that it stands for; `Skipped` where it is neither Response nor error."""
    try:
        wire = decode_foreign(data)
    except ValueError:
        return Skipped("not_json")
    ending = answered(wire) if isinstance(wire, dict) else None
    return Skipped("no_response") if ending is None else ending


def normalize(wire: object) -> UpstreamEvent:
    """Any JSON value, read as an event of a response's stream."""
    if not isinstance(wire, dict):
        return Skipped("not_an_object")
    name = wire.get("type")
    if not isinstance(name, str):
        return Skipped("no_type")
    try:
        if (kind := _DELTAS.get(name)) is not None:
            return _text_delta(wire, kind)
        reader = _READERS.get(name)
        return _forwarded(wire, name) if reader is None else reader(wire)
    except _Unreadable as unreadable:
        return Skipped(unreadable.reason)


def _index(wire: Wire, key: str) -> int | None:
    value = wire.get(key)
    if value is None or (type(value) is int and 0 <= value < MAX_INDEX):
        return value
    raise _Unreadable("bad_index")


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _object(wire: Wire, key: str, reason: str) -> Wire:
    value = wire.get(key)
    if not isinstance(value, dict):
        raise _Unreadable(reason)
    return value


def _place(wire: Wire, part_key: str | None = None) -> Place:
    part_index = None if part_key is None else _index(wire, part_key)
    return Place(_index(wire, "output_index"), item_id(wire.get("item_id")), part_index)


def _logprobs(wire: Wire) -> list[Wire] | None:
    value = wire.get("logprobs")
    return value if isinstance(value, list) and value else None


def _text_delta(wire: Wire, kind: TextKind) -> TextDelta:
    delta = wire.get("delta")
    if isinstance(delta, dict):
        delta = delta.get("text")  # OpenAI's first `reasoning.delta`
    if not isinstance(delta, str):
        raise _Unreadable("bad_delta")
    return TextDelta(_place(wire, kind.part_key), kind, delta, _logprobs(wire))


def _text_done(wire: Wire, kind: TextKind) -> TextDone:
    text = wire.get(kind.text_key)
    if not isinstance(text, str):
        raise _Unreadable("bad_text")
    return TextDone(_place(wire, kind.part_key), kind, text, _name(wire.get("name")), _logprobs(wire))


def _item_place(wire: Wire, item: Any) -> Place:
    own = (item_id(item.get("id")) or item_id(item.get("item_id"))) if isinstance(item, dict) else None
    return Place(_index(wire, "output_index"), own or item_id(wire.get("item_id")))


def _item_added(wire: Wire) -> ItemAdded:
    item = _object(wire, "item", "malformed_item")
    if not well_formed(item):
        # That an item begins is still true; of a malformed one, nothing but its name is believed.
        if (kind := _name(item.get("type"))) is None:
            raise _Unreadable("malformed_item")
        item = {"type": kind, "id": item_id(item.get("id"))}
    return ItemAdded(_item_place(wire, item), tidy(item))


def _item_done(wire: Wire) -> ItemDone | ItemMalformed:
    item = wire.get("item")
    place = _item_place(wire, item)
    return ItemDone(place, tidy(item)) if isinstance(item, dict) and well_formed(item) else ItemMalformed(place)


def _part(wire: Wire, *, done: bool) -> UpstreamEvent:
    """`content_part.*`: the part's type says which text it is.

    One of a type that we don't know has no place among the parts that we number; it comes with the whole item.
    """
    part = _object(wire, "part", "malformed_part")
    kind = _PART_KINDS.get(_name(part.get("type")) or "")
    if kind is None:
        raise _Unreadable("unknown_part")
    return _part_of(wire, part, kind, done=done)


def _known_part(wire: Wire, kind: TextKind, *, done: bool) -> UpstreamEvent:
    """`reasoning_part.*` and `reasoning_summary_part.*`: the event says which text it is, the part may be missing."""
    part = wire.get("part") or {}
    if not isinstance(part, dict):
        raise _Unreadable("malformed_part")
    return _part_of(wire, part, kind, done=done)


def _part_of(wire: Wire, part: Wire, kind: TextKind, *, done: bool) -> PartAdded | PartDone:
    if not isinstance(part.get(kind.text_key, ""), str) or not well_formed_beside(part):
        raise _Unreadable("malformed_part")
    place = _place(wire, kind.part_key)
    return PartDone(place, kind, part) if done else PartAdded(place, kind, part)


def _annotation(wire: Wire) -> AnnotationAdded:
    annotation = _object(wire, "annotation", "malformed_annotation")
    return AnnotationAdded(_place(wire, "content_index"), _index(wire, "annotation_index"), annotation)


def _forwarded(wire: Wire, name: str) -> Forwarded:
    # Both official clients raise on an event with a truthy `error`; two letters are the event log's names of deltas.
    if wire.get("error") or not is_type_name(name):
        raise _Unreadable("unfit_to_forward")
    body = {key: value for key, value in wire.items() if key not in ("type", "sequence_number")}
    return Forwarded(_place(wire), name, body)


_Reader: TypeAlias = Callable[[Wire], UpstreamEvent]


def _lifecycle(_: Wire) -> Skipped:
    return Skipped("lifecycle", counted=False)


def _readers() -> dict[str, _Reader]:
    texts: dict[str, _Reader] = {
        kind.done_event: lambda wire, kind=kind: _text_done(wire, kind)  # type: ignore[misc] # mypy: defaults in lambdas
        for kind in TextKind
    }
    texts |= {f"{alias}.done": texts[kind.done_event] for alias, kind in _ALIASES.items()}
    return texts | {
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": lambda wire: _part(wire, done=False),
        "response.content_part.done": lambda wire: _part(wire, done=True),
        "response.reasoning_part.added": lambda wire: _known_part(wire, TextKind.REASONING_TEXT, done=False),
        "response.reasoning_part.done": lambda wire: _known_part(wire, TextKind.REASONING_TEXT, done=True),
        "response.reasoning_summary_part.added": lambda wire: _known_part(wire, TextKind.SUMMARY_TEXT, done=False),
        "response.reasoning_summary_part.done": lambda wire: _known_part(wire, TextKind.SUMMARY_TEXT, done=True),
        "response.output_text.annotation.added": _annotation,
        "response.output_text_annotation.added": _annotation,
        "error": failed,
        "keepalive": _lifecycle,
        "response.created": _lifecycle,
        "response.queued": _lifecycle,
        "response.in_progress": _lifecycle,
        **dict.fromkeys(ENDINGS, finished),
    }


#: Other names of a text's events: Open Responses' and OpenAI's first ones.
_ALIASES: Final = {
    "response.reasoning": TextKind.REASONING_TEXT,
    "response.reasoning_summary": TextKind.SUMMARY_TEXT,
}
_DELTAS: Final = {kind.delta_event: kind for kind in TextKind} | {
    f"{alias}.delta": kind for alias, kind in _ALIASES.items()
}
_PART_KINDS: Final = {
    kind.part_type: kind for kind in (TextKind.OUTPUT_TEXT, TextKind.REFUSAL, TextKind.REASONING_TEXT)
}
_READERS: Final = _readers()
