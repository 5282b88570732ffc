"""The public events of one item, made from what is known of it. Pure.

Law: every key that the published types require is there, empty where nothing is known, and a delta has exactly the keys
that the event log stores compactly.
"""

from collections.abc import Iterator
from typing import TypeAlias

from shared.drafts import Draft
from shared.events import ITEM_ADDED, ITEM_DONE
from shared.json_codec import Wire
from shared.output import Slot
from shared.texts import Stage, Text
from shared.upstream_events import TextKind

#: Type and body of an event that has no number yet.
Unnumbered: TypeAlias = tuple[str, Wire]


def added(slot: Slot, draft: Draft) -> Unnumbered:
    """`output_item.added`."""
    return ITEM_ADDED, {"output_index": slot.index, "item": draft.opening()}


def done(slot: Slot, item: Wire) -> Unnumbered:
    """`output_item.done`."""
    return ITEM_DONE, {"output_index": slot.index, "item": item}


def so_far(slot: Slot, draft: Draft, text: Text) -> Iterator[Unnumbered]:
    """A text that nobody saw yet, as it stands: from its beginning to its end, if that has come."""
    if text.kind.part_type:
        yield f"{text.kind.part_events}.added", {**_place(slot, text), "part": text.opening()}
    if text.streamed:
        yield delta(slot, text, text.text, list(text.logprobs))
    for number in range(len(text.annotations)):
        yield annotation(slot, text, number)
    if text.stage is not Stage.OPEN:
        yield whole(slot, draft, text)
    if text.stage is Stage.CLOSED and text.kind.part_type:
        yield part_done(slot, text)


def delta(slot: Slot, text: Text, fragment: str, logprobs: list[Wire] | None) -> Unnumbered:
    """The `delta` of a text."""
    kind = text.kind
    body: Wire = {"item_id": slot.id, "output_index": slot.index}
    if kind.part_key is not None:
        body[kind.part_key] = text.position
    body["delta"] = fragment
    if kind is TextKind.OUTPUT_TEXT:
        body["logprobs"] = logprobs or []
    return kind.delta_event, body


def whole(slot: Slot, draft: Draft, text: Text) -> Unnumbered:
    """The `done` of a text."""
    said = text.text if text.kind.part_type else text.text or draft.known.get(text.kind.field) or ""
    body = {**_place(slot, text), text.kind.text_key: said}
    if text.kind is TextKind.OUTPUT_TEXT:
        body["logprobs"] = list(text.logprobs)
    elif text.kind is TextKind.ARGUMENTS:
        body["name"] = draft.known.get("name") or ""
    return text.kind.done_event, body


def part_done(slot: Slot, text: Text) -> Unnumbered:
    """The `done` of a part."""
    return f"{text.kind.part_events}.done", {**_place(slot, text), "part": text.part()}


def annotation(slot: Slot, text: Text, number: int) -> Unnumbered:
    """`output_text.annotation.added`."""
    body = {**_place(slot, text), "annotation_index": number, "annotation": text.annotations[number]}
    return "response.output_text.annotation.added", body


def forwarded(slot: Slot, event_type: str, body: Wire) -> Unnumbered:
    """An event of a type that we don't know, under the item's public id and index."""
    public = {"item_id": slot.id, "output_index": slot.index}
    return event_type, {**body, **{key: value for key, value in public.items() if key in body}}


def _place(slot: Slot, text: Text) -> Wire:
    place: Wire = {"item_id": slot.id, "output_index": slot.index}
    if text.kind.part_key is not None:
        place[text.kind.part_key] = text.position
    return place
