"""What subscribers are told of the items, and when. Pure.

Law: an item is announced when every lower slot is, so public output indices run 0, 1, 2 … in slot order and never
change. Whatever waits is only state: announcing an item tells all of it as it stands.
"""

from collections.abc import Iterable

from shared import item_events
from shared.drafts import Draft
from shared.events import ITEM_DONE, PublicEvent
from shared.item_events import Unnumbered
from shared.json_codec import Wire
from shared.mirror import Mirror
from shared.output import Closed, Done, Dropped, Slot, Slots


class Announcer:
    """Turns states of slots into public events, in order and numbered."""

    def __init__(self, slots: Slots, next_sequence_number: int, mirror: Mirror | None) -> None:
        self.next_sequence_number = next_sequence_number
        self._mirror = mirror
        self._slots = slots
        self._announced = 0
        self._frontier = 0  # the lowest slot that is neither announced nor dropped
        self._held: Slot | None = None
        self._overtaken: list[Slot] = []  # closed, not told, and no longer the held one
        self._visible: Slot | None = None  # shows more than white space, unless it has lost it since
        self._out: list[PublicEvent] = []

    def number(self, event_type: str, body: Wire, stored: Wire | None = None) -> PublicEvent:
        """Give an event the next sequence number: the one place where they are given."""
        event = PublicEvent(event_type, self.next_sequence_number, body, stored)
        self.next_sequence_number += 1
        return event

    def say(self, event: Unnumbered) -> None:
        """Tell one event."""
        if self._mirror is None:
            self._out.append(self.number(*event))
            return
        for event_type, body in self._mirror.reflect(event):
            differs = event_type == ITEM_DONE and body["item"] is not event[1]["item"]
            self._out.append(self.number(event_type, body, event[1]["item"] if differs else None))

    def say_all(self, events: Iterable[Unnumbered]) -> None:
        """Tell several."""
        for event in events:
            self.say(event)

    def said(self) -> list[PublicEvent]:
        """What was told since the last call."""
        events, self._out = self._out, []
        return events

    def closed(self, slot: Slot) -> None:
        """The slot has just closed: its `output_item.done` is held, unless a later item waits to be told already."""
        if self._held is None or slot.number >= self._held.number:
            if self._held is not None:
                self._overtaken.append(self._held)
            self._held = slot
        elif slot.index is not None:
            self.complete(slot)
        self.advance(slot)

    def release(self, about: Slot | None) -> None:
        """An event has come about that item, or about none: tell the held `output_item.done`.

        Not if it is about that very item or an earlier one, nor if about a message of white space, that may turn out to
        be no item: the held one may be the last after all.
        """
        held = self._held
        if held is None or (about is not None and (about.number <= held.number or about.noise)):
            return
        self._held = None
        if held.index is not None:
            self.complete(held)
        self._advance()

    def advance(self, changed: Slot) -> None:
        """A slot has changed: announce what can be announced, in slot order; drop what turns out to be no item."""
        if not changed.noise:
            self._visible = changed
        self._advance()

    def _advance(self) -> None:
        while (slot := self._slots.at(self._frontier)) is not None:
            if slot.noise:
                if isinstance(slot.state, Draft) or slot is self._held or not self._something_to_show():
                    return
                self._drop(slot)
            elif isinstance(slot.state, Draft) and slot.state.nameless:
                return
            elif slot is self._held:
                self._announce(slot)
            else:
                self.complete(slot)
            self._frontier += 1

    def complete(self, slot: Slot) -> None:
        """Bring subscribers up to date with a slot: to its very end, if it is closed."""
        if slot.index is None:
            self._announce(slot)
        if isinstance(slot.state, Closed):
            if slot is self._held:
                self._held = None
            item = slot.state.item
            slot.state = Done(item)
            self.say(item_events.done(slot, item))

    def catch_up(self) -> None:
        """Bring subscribers up to date with all that came; nothing waits but behind a gap."""
        for slot in self._unsaid():
            self.complete(slot)
        while (after := self._slots.at(self._frontier)) is not None:
            self.complete(after)
            self._frontier += 1

    def complete_all(self) -> None:
        """Bring subscribers up to date with every slot, in order; nothing waits any longer."""
        self._held = None
        self._overtaken = []
        for slot in self._slots:
            if not isinstance(slot.state, Dropped):
                self.complete(slot)
            self._frontier = slot.number + 1

    def drop_noise(self) -> None:
        """Drop the messages of white space that nobody saw, unless there is nothing else."""
        noise = [slot for slot in self._slots if slot.noise]
        self._visible = self._any_visible()
        if self._something_to_show():
            for slot in noise:
                self._drop(slot)

    def forget(self, next_sequence_number: int) -> None:
        """All that was told is in the log already; go on with that number."""
        self._out.clear()
        self.next_sequence_number = next_sequence_number

    def _announce(self, slot: Slot) -> None:
        state = slot.state
        draft = state.draft if isinstance(state, Closed) else state
        if not isinstance(draft, Draft):
            return
        for lower in self._unsaid():
            self.complete(lower)
        slot.index = self._announced
        self._announced += 1
        self.say(item_events.added(slot, draft))
        for text in draft.placed():
            self.say_all(item_events.so_far(slot, draft, text))
        self.say_all(item_events.forwarded(slot, *event) for event in slot.waiting)
        slot.waiting.clear()

    def _drop(self, slot: Slot) -> None:
        slot.state = Dropped()
        self._slots.meter.weigh(slot, 0)

    def _unsaid(self) -> list[Slot]:
        """The announced slots that have closed without a word, in order."""
        self._overtaken = [slot for slot in self._overtaken if isinstance(slot.state, Closed)]
        waiting = [*self._overtaken, self._held] if self._held is not None else self._overtaken
        return sorted((slot for slot in waiting if slot.index is not None), key=lambda slot: slot.number)

    def _something_to_show(self) -> bool:
        if self._visible is not None and self._visible.noise:
            self._visible = self._any_visible()
        return self._announced > 0 or self._visible is not None

    def _any_visible(self) -> Slot | None:
        return next((slot for slot in self._slots if not isinstance(slot.state, Dropped) and not slot.noise), None)
