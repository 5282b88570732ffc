"""What an upstream event does to the item that it is about. Pure.

Law: an event changes the state of one slot, and what subscribers may see of the change is told at once; what they may
not see yet waits as state (`shared/announcer.py`). What comes too late, or could be about several items, is counted and
changes nothing.
"""

from collections import Counter
from typing import NamedTuple, TypeAlias, assert_never

from shared import item_events
from shared.announcer import Announcer
from shared.closings import Closings
from shared.drafts import Draft, starting
from shared.ids import new_item_id
from shared.item_shape import tidy_part
from shared.json_codec import Wire
from shared.limits import json_size
from shared.output import Closed, Done, Dropped, Slot, Slots
from shared.texts import Stage, Text, utf8_size
from shared.upstream_events import (
    AnnotationAdded,
    Forwarded,
    ItemAdded,
    ItemDone,
    ItemMalformed,
    PartAdded,
    PartDone,
    Place,
    TextDelta,
    TextDone,
    TextKind,
)

Arrival: TypeAlias = (
    TextDone | PartAdded | PartDone | AnnotationAdded | ItemAdded | ItemDone | ItemMalformed | Forwarded
)


class _Found(NamedTuple):
    """A text that an event is about, and where it belongs."""

    slot: Slot
    draft: Draft
    text: Text


class Arrivals:
    """Applies events to slots. `skipped` is where faults of the upstream are counted."""

    def __init__(self, slots: Slots, announcer: Announcer, closings: Closings, skipped: Counter[str]) -> None:
        self._slots = slots
        self._announcer = announcer
        self._closings = closings
        self._skipped = skipped
        self._meter = slots.meter
        self._last: tuple[TextKind, Place, _Found] | None = None  # where the delta went that was the last event

    def take(self, event: Arrival) -> None:
        """Apply one event that is no delta."""
        self._last = None
        match event:
            case TextDone():
                self._text_done(event)
            case PartAdded():
                self._text(event.kind, event.place, event.part)
            case PartDone():
                self._part_done(event)
            case AnnotationAdded():
                self._annotation(event)
            case ItemAdded():
                self._item_added(event)
            case ItemDone():
                self._item_done(event)
            case ItemMalformed():
                self._item_malformed(event)
            case Forwarded():
                self._forward(event)
            case _:
                assert_never(event)

    # What arrives for a text.

    def delta(self, event: TextDelta) -> None:
        """Apply a fragment of a text. Most come for the text of the one before."""
        kind, place = event.kind, event.place
        if self._last is not None and self._last[0] is kind and self._last[1] == place:
            found = self._last[2]
        elif (opened := self._open_text(kind, place, anew=True)) is not None:
            found = opened
            self._last = kind, place, found
        else:
            return
        slot, _, text = found
        size = utf8_size(event.delta) + json_size(event.logprobs)
        if not size:
            return  # nothing to keep, nothing to tell: an endless stream of them costs nothing
        self._meter.grow(slot, size)
        text.append(event.delta, event.logprobs)
        if slot.index is None:
            self._announcer.advance(slot)
        elif text.position is not None:
            self._announcer.say(item_events.delta(slot, text, event.delta, event.logprobs))

    def _text_done(self, event: TextDone) -> None:
        if (found := self._open_text(event.kind, event.place)) is None:
            return
        slot, draft, text = found
        if event.name and not draft.known.get("name"):
            self._meter.grow(slot, len(event.name))
            draft.known = {**draft.known, "name": event.name}
        if event.text or event.kind.part_type:
            self._meter.grow(slot, utf8_size(event.text) - text.size + json_size(event.logprobs))
            text.replace(event.text, event.logprobs)
        self._closings.make_whole(slot, draft, text)
        self._announcer.advance(slot)

    def _part_done(self, event: PartDone) -> None:
        if (found := self._text(event.kind, event.place)) is None:
            return
        slot, draft, text = found
        if text.stage is not Stage.CLOSED:
            self._meter.grow(slot, json_size(event.part) - text.size)
            self._closings.take_whole(slot, draft, text, tidy_part(event.part))
            self._announcer.advance(slot)

    def _annotation(self, event: AnnotationAdded) -> None:
        if (found := self._text(TextKind.OUTPUT_TEXT, event.place)) is None:
            return
        slot, _, text = found
        if text.stage is Stage.CLOSED:
            self._skipped["late"] += 1
            return
        self._meter.add_apart(event.annotation)
        text.annotate(event.annotation)
        if slot.index is None:
            self._announcer.advance(slot)
        elif text.position is not None:
            self._announcer.say(item_events.annotation(slot, text, len(text.annotations) - 1))

    def _open_text(self, kind: TextKind, place: Place, *, anew: bool = False) -> _Found | None:
        """The text that an event adds to; None where its whole was given before."""
        found = self._text(kind, place, anew=anew)
        if found is not None and found.text.stage is not Stage.OPEN:
            self._skipped["late"] += 1
            return None
        return found

    def _text(self, kind: TextKind, place: Place, part: Wire | None = None, *, anew: bool = False) -> _Found | None:
        """The text that an event is about, made where there is none; None where it can't be told, or is over."""
        try:
            slot = self._slots.find(kind.item_type, place, anew=anew) or self._unannounced(kind.item_type, place, {}, 0)
            self._announcer.release(slot)
            draft = slot.state
            if not isinstance(draft, Draft):
                self._skipped["late"] += 1
                return None
            text = draft.find(kind, place.part_index)
        except LookupError:
            self._skipped["ambiguous"] += 1
            return None
        if text is None:
            self._meter.add_parts(1 if kind.part_type else 0)
            if part is None and kind.part_type:
                self._slots.repaired["part_added_missing"] += 1
            self._meter.grow(slot, json_size(part))
            text = draft.add(kind, place.part_index, len(self._slots) - 1)
            text.take(part or {}, done=False)
            self._closings.settle(slot, draft, kind.field)
        return _Found(slot, draft, text)

    # What arrives for an item.

    def _new_item(self, item_type: str, place: Place, known: Wire, size: int) -> Slot:
        draft = Draft(item_type, place.item_id or new_item_id(item_type), known)
        slot = self._slots.add(item_type, place, draft, size)
        self._announcer.release(slot)
        self._announcer.advance(slot)
        return slot

    def _unannounced(self, item_type: str, place: Place, known: Wire, size: int) -> Slot:
        slot = self._new_item(item_type, place, known, size)
        self._slots.repaired["added_missing"] += 1
        return slot

    def _item_added(self, event: ItemAdded) -> None:
        item = event.item
        slot = self._slots.find_added(item["type"], event.place)
        if slot is None:
            self._new_item(item["type"], event.place, item, json_size(item))
            return
        self._announcer.release(slot)
        if isinstance(slot.state, Draft) and not slot.state.announced:
            self._meter.grow(slot, json_size(item))
            slot.state.learn(item)
            self._announcer.advance(slot)

    def _item_done(self, event: ItemDone) -> None:
        item = event.item
        try:
            slot = self._slots.find(item["type"], event.place)
            if slot is not None and not isinstance(slot.state, Draft) and not self._repeats(slot, item):
                slot = self._slots.find(item["type"], event.place, anew=True)
        except LookupError:
            self._skipped["ambiguous"] += 1
            return
        slot = slot or self._unannounced(item["type"], event.place, starting(item), json_size(item))
        self._announcer.release(slot)
        if isinstance(slot.state, Draft):
            self._closings.close(slot, slot.state, item, "completed")
            self._announcer.closed(slot)
        else:
            self.compare(slot, item)

    def _item_malformed(self, event: ItemMalformed) -> None:
        self._skipped["malformed_item"] += 1
        slot = self._slots.named(event.place)
        if slot is not None and isinstance(slot.state, Draft):
            self._announcer.release(slot)
            self._closings.close(slot, slot.state, {}, "completed")
            self._announcer.closed(slot)

    def _forward(self, event: Forwarded) -> None:
        if event.place.output_index is None and event.place.item_id is None:
            self._meter.add_apart(event.body)
            self._announcer.release(None)
            self._announcer.say((event.type, event.body))
            return
        slot = self._slots.named(event.place)
        if slot is None:
            self._skipped["unknown_item"] += 1
            return
        self._announcer.release(slot)
        if isinstance(slot.state, Done | Dropped):
            self._skipped["late"] += 1
            return
        self._meter.add_apart(event.body)
        if slot.index is None:
            slot.waiting.append((event.type, event.body))
        else:
            self._announcer.say(item_events.forwarded(slot, event.type, event.body))

    def _repeats(self, slot: Slot, item: Wire) -> bool:
        """Whether a finished item came again, if perhaps under other ids."""
        kept = slot.state.item if isinstance(slot.state, Closed | Done) else item
        return all(value == kept.get(key) for key, value in item.items() if key not in ("id", "call_id", "status"))

    def compare(self, slot: Slot, item: Wire) -> None:
        """An item came whole a second time. The first one stands; that they differ is worth counting."""
        kept = slot.state.item if isinstance(slot.state, Closed | Done) else item
        if any(value and value != kept.get(key) for key, value in item.items() if key != "id"):
            self._skipped["item_changed"] += 1
