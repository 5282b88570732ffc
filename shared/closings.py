"""How texts, parts and items end. Pure.

Law: what was announced is closed once, from the inside out, and an item is kept as its `output_item.done` will show it.
"""

from collections import Counter
from dataclasses import replace

from shared import item_events
from shared.announcer import Announcer
from shared.drafts import Draft, is_blank_message, starting
from shared.json_codec import Wire
from shared.limits import json_size
from shared.output import Closed, Slot, Slots
from shared.texts import Stage, Text


class Closings:
    """Tells the ends of what slots hold. `skipped` is where faults of the upstream are counted."""

    def __init__(self, slots: Slots, announcer: Announcer, skipped: Counter[str]) -> None:
        self._slots = slots
        self._skipped = skipped
        self._meter = slots.meter
        self._announcer = announcer

    def settle(self, slot: Slot, draft: Draft, field: str, *, gaps: bool = False) -> None:
        """Texts get their positions; tell those that do, as they stand."""
        for text in draft.settle(field, gaps=gaps):
            if slot.index is not None:
                self._announcer.say_all(item_events.so_far(slot, draft, text))

    def make_whole(self, slot: Slot, draft: Draft, text: Text) -> None:
        """No more deltas come."""
        text.stage = Stage.WHOLE
        if slot.index is not None and text.position is not None:
            self._announcer.say(item_events.whole(slot, draft, text))

    def close_text(self, slot: Slot, draft: Draft, text: Text) -> None:
        """Nothing of the text or its part can change any more."""
        if text.stage is Stage.OPEN:
            self.make_whole(slot, draft, text)
        text.stage = Stage.CLOSED
        if slot.index is not None and text.position is not None and text.kind.part_type:
            self._announcer.say(item_events.part_done(slot, text))

    def close(self, slot: Slot, draft: Draft, fields: Wire, status: str) -> None:
        """Nothing more is to come: tell the ends of its texts, and keep the item as its done will show it."""
        if fields:
            self._meter.grow(slot, max(0, json_size(fields) - slot.size))
            draft.learn(starting(fields))
        for name in ("summary", "content"):
            self.settle(slot, draft, name, gaps=True)
        self._close_parts(slot, draft, fields)
        for text in draft.texts:
            if text.stage is not Stage.CLOSED:
                self.close_text(slot, draft, text)
        item = draft.finished(fields, status)
        slot.state = Closed(draft, item, is_blank_message(item))
        self._meter.weigh(slot, json_size(item))

    def fill(self, slot: Slot, closed: Closed, item: Wire) -> None:
        """The final snapshot of an item whose done was not told yet: what that omits, this tells."""
        filled = {**item, **closed.item}
        self._meter.grow(slot, max(0, json_size(filled) - slot.size))
        self._close_parts(slot, closed.draft, filled)
        slot.state = replace(closed, item=filled)

    def _close_parts(self, slot: Slot, draft: Draft, fields: Wire) -> None:
        """Tell the ends of the texts that the whole item holds, also of those of which nothing streamed."""
        parts = list(draft.parts_of(fields))
        new = [kind for kind, position, _ in parts if kind.part_type and draft.text_at(kind.field, position) is None]
        self._meter.add_parts(len(new))
        for kind, position, part in parts:
            text = draft.text_at(kind.field, position)
            if text is None:
                text = draft.add(kind, None, len(self._slots) - 1)
                self.settle(slot, draft, kind.field, gaps=True)
            if text.kind is kind and text.stage is not Stage.CLOSED:
                self.take_whole(slot, draft, text, part)

    def take_whole(self, slot: Slot, draft: Draft, text: Text, part: Wire) -> None:
        """A part is whole. A text that was whole before stands; that they differ is worth counting."""
        key = text.kind.text_key
        if text.stage is Stage.WHOLE and key in part and part[key] != text.text:
            self._skipped["text_changed"] += 1
        text.take(part, done=True)
        self.close_text(slot, draft, text)
