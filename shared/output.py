"""The slots of a response's output: which item an event is about, and where it stands. Pure.

Law: an item's slot is the `output_index` that it first came with; beside the slots stands a map from (type, id), which
also knows every other id that was used for the item. A known id leads to its item whatever index comes with it, since
upstreams share one index between items; else the index leads to the item of the event's type that came with it. An item
that finds its index taken, or has none, gets the lowest free slot. Between two that fit nothing is guessed.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias, TypeVar

from shared.drafts import Draft, sole
from shared.json_codec import Wire
from shared.limits import Meter
from shared.upstream_events import Place

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Closed:
    """An item whose content is final. Its `output_item.done` is still to be said; `draft` tells what streamed.

    `blank`: it is a message of white space.
    """

    draft: Draft
    item: Wire
    blank: bool


@dataclass(frozen=True, slots=True)
class Done:
    """An item whose `output_item.done` was said: nothing of it changes any more."""

    item: Wire


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message of white space that no subscriber saw."""


State: TypeAlias = Draft | Closed | Done | Dropped


@dataclass(slots=True, eq=False)
class Slot:
    """One item's place. `index` is the public output index, None until the item is announced.

    `waiting` are events of types that we don't know, for after the announcement; `size` is the bytes kept.
    """

    number: int
    type: str
    id: str
    state: State
    index: int | None = None
    waiting: list[tuple[str, Wire]] = field(default_factory=list)
    size: int = 0

    @property
    def call_id(self) -> Any:
        """What a call answers to, if it is one and that is known."""
        match self.state:
            case Draft():
                return self.state.known.get("call_id")
            case Closed() | Done():
                return self.state.item.get("call_id")
            case _:
                return None

    @property
    def noise(self) -> bool:
        """A message of white space, so far, that nobody saw."""
        match self.state:
            case Draft() | Closed():
                return self.index is None and self.state.blank
            case _:
                return False


class Slots:
    """All slots of one response. Look-ups raise `LookupError` where several items fit.

    `meter` counts what they hold; what takes in more raises its `OverLimit`. `repaired` counts what was made good of
    the upstream's stream, by kind.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.repaired: Counter[str] = Counter()
        self._by_number: dict[int, Slot] = {}
        self._order: list[int] = []
        self._free = 0
        self._by_place: dict[tuple[str, int], Slot] = {}
        self._by_id: dict[tuple[str, str], Slot] = {}
        self._by_name: dict[str, Slot | None] = {}  # by id alone, None where items of two types have it
        self._open: dict[str, list[Slot]] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Slot]:
        """In slot order."""
        return iter([self._by_number[number] for number in self._order])

    def at(self, number: int) -> Slot | None:
        """The slot of that number."""
        return self._by_number.get(number)

    def find(self, item_type: str, place: Place, *, anew: bool = False) -> Slot | None:
        """The slot that an event of an item of that type is about; None where it is a new item.

        So it is, if `anew`, where the item that came with its index is finished and never had its id.
        """
        item_id, index = place.item_id, place.output_index
        if item_id is not None and (slot := self._by_id.get((item_type, item_id))) is not None:
            return slot
        if index is not None:
            slot = self._by_place.get((item_type, index))
        else:
            slot = self._only_open(item_type) if item_id is None else None
        if slot is not None and item_id is not None:
            if isinstance(slot.state, Draft):
                self.meter.add_apart(item_id)
                self.repaired["id_changed"] += 1
                self._name(slot, item_id)
            elif anew:
                return None
        return slot

    def find_added(self, item_type: str, place: Place) -> Slot | None:
        """As `find`, for an item's announcement: a second one at a place, under another id, is another item."""
        if place.item_id is None or (item_type, place.item_id) not in self._by_id:
            there = None if place.output_index is None else self._by_place.get((item_type, place.output_index))
            if there is None or not isinstance(there.state, Draft) or there.state.announced:
                return None
        return self.find(item_type, place)

    def named(self, place: Place) -> Slot | None:
        """The slot that an event names, which does not tell the item's type."""
        if place.item_id is not None and (slot := self._by_name.get(place.item_id)) is not None:
            return slot
        return None if place.output_index is None else self._by_number.get(place.output_index)

    def add(self, item_type: str, place: Place, draft: Draft, size: int) -> Slot:
        """A slot for a new item of so many bytes."""
        self.meter.add_item(size)
        number = place.output_index
        if number is None or number in self._by_number:
            while self._free in self._by_number:
                self._free += 1
            if number is not None:
                self.repaired["index_shared"] += 1
            number = self._free
        slot = Slot(number, item_type, draft.id, draft, size=size)
        self._by_number[number] = slot
        insort(self._order, number)
        self._open.setdefault(item_type, []).append(slot)
        self._by_place[item_type, number if place.output_index is None else place.output_index] = slot
        self._name(slot, draft.id)
        return slot

    def _name(self, slot: Slot, item_id: str) -> None:
        """From now on that id leads to the slot."""
        self._by_id[slot.type, item_id] = slot
        if self._by_name.setdefault(item_id, slot) is not slot:
            self._by_name[item_id] = None

    def matched(self, snapshot: Sequence[tuple[int, Wire]]) -> list[tuple[int, Wire, Slot | None]]:
        """The items of the final snapshot, each with its position and its slot, None where it is a new item.

        An item is known by its id, a call also by its `call_id`. What is left under ids drawn anew goes by order, where
        as many items of the type are left (messages of white space counted or not), else by place; an item that could
        then still be one of several is left out, since adding it could make it stand twice.
        """
        slots: dict[int, Slot | None] = {at: slot for at, item in snapshot if (slot := self.known(item)) is not None}
        calls = _once((slot.type, slot.call_id, slot) for slot in self)
        unknown = _once((item["type"], item.get("call_id"), at) for at, item in snapshot if at not in slots)
        slots |= {at: calls[call] for call, at in unknown.items() if call in calls}
        taken = {slot.number for slot in slots.values() if slot is not None}
        rest: dict[str, list[int]] = {}
        for at, item in snapshot:
            if at not in slots:
                rest.setdefault(item["type"], []).append(at)
        left: dict[str, list[Slot]] = {}
        for slot in self:
            if slot.number not in taken:
                left.setdefault(slot.type, []).append(slot)
        for item_type, positions in rest.items():
            slots |= _paired(positions, left.get(item_type, []))
        return [(at, item, slots[at]) for at, item in snapshot if at in slots]

    def known(self, item: Wire) -> Slot | None:
        """The slot of the item's own id."""
        own = item.get("id")
        return self._by_id.get((item["type"], own)) if isinstance(own, str) else None

    def _only_open(self, item_type: str) -> Slot | None:
        return sole(self._open.get(item_type, []), lambda slot: isinstance(slot.state, Draft))


def _paired(positions: list[int], left: list[Slot]) -> dict[int, Slot | None]:
    """Items of one type, by their positions, with the slots of that type; without those that could be several."""
    for slots in (left, [slot for slot in left if not slot.noise]):
        if len(slots) == len(positions):
            return dict(zip(positions, slots, strict=True))
    here = set(positions)
    placed: dict[int, Slot | None] = {slot.number: slot for slot in left if slot.number in here}
    others = [slot for slot in left if slot.number not in here]
    unplaced = [at for at in positions if at not in placed]
    if len(others) > 1:
        return placed
    return placed | dict(zip_longest(unplaced, others[: len(unplaced)]))


def _once(calls: Iterable[tuple[str, Any, _T]]) -> dict[tuple[str, str], _T]:
    """By type and `call_id`, what only one call has."""
    found: dict[tuple[str, str], _T | None] = {}
    for item_type, call_id, one in calls:
        if call_id and isinstance(call_id, str):
            found[item_type, call_id] = None if (item_type, call_id) in found else one
    return {call: one for call, one in found.items() if one is not None}
