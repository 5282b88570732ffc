"""Reasoning told as a summary too, for clients that show nothing else of it. Pure.

Law: the mirrored summary exists in what subscribers see and nowhere else: what is stored, and replayed, is what the
upstream sent. An item has one mirrored part, its reasoning texts joined by LF. A summary that the upstream gives wins:
at once where it comes before the reasoning; where it comes after, the mirror speaks until the item's end tells it.
"""

from dataclasses import dataclass
from typing import Final

from shared.events import ITEM_DONE, PublicEvent
from shared.item_events import Unnumbered
from shared.json_codec import Wire

_TEXT_DELTA: Final = "response.reasoning_text.delta"
_PART: Final = "response.reasoning_summary_part"
_TEXT: Final = "response.reasoning_summary_text"


@dataclass(slots=True)
class _Reflection:
    """Who tells of one item's summary, once somebody does. `part` is the reasoning text that the last delta was of."""

    begun: bool = False
    upstreams: bool = False
    part: int | None = None


class Mirror:
    """One for a response: it remembers what was told of each item's summary."""

    def __init__(self) -> None:
        self._items: dict[str, _Reflection] = {}

    def reflect(self, event: Unnumbered) -> list[Unnumbered]:
        """The events that are told in this one's place: itself, as a rule, and what mirrors it."""
        name, body = event
        if name == _TEXT_DELTA:
            return [event, *self._delta(body)]
        if name.startswith((_PART, _TEXT)):
            return [event] if self._is_upstreams(body) else []
        if name == ITEM_DONE and body["item"]["type"] == "reasoning":
            return self._done(body)
        return [event]

    def is_upstreams(self, event: PublicEvent) -> bool:
        """Whether an event of a log came from the upstream, rather than from a mirror, the ones before reflected."""
        return not event.type.startswith((_PART, _TEXT)) or self._is_upstreams(event.body)

    def _of(self, item_id: str) -> _Reflection:
        return self._items.setdefault(item_id, _Reflection())

    def _delta(self, body: Wire) -> list[Unnumbered]:
        reflection = self._of(body["item_id"])
        if reflection.upstreams:
            return []
        opening = [] if reflection.begun else [_opening(body)]
        gap = "\n" if reflection.begun and body["content_index"] != reflection.part else ""
        reflection.begun, reflection.part = True, body["content_index"]
        return [*opening, (f"{_TEXT}.delta", {**_place(body), "delta": gap + body["delta"]})]

    def _is_upstreams(self, body: Wire) -> bool:
        reflection = self._of(body["item_id"])
        reflection.upstreams = not reflection.begun
        return reflection.upstreams

    def _done(self, body: Wire) -> list[Unnumbered]:
        item = body["item"]
        reflection = self._items.pop(item["id"], _Reflection())
        shown = mirrored(item)
        place = {"item_id": item["id"], "output_index": body["output_index"]}
        events: list[Unnumbered] = []
        if (reflection.begun or shown is not item) and not reflection.upstreams:
            part = next(iter(shown.get("summary") or ()), None)
            if part is None or part["type"] != "summary_text":
                part = {"type": "summary_text", "text": _thoughts(item)}
            if not reflection.begun:
                events = [_opening(place), (f"{_TEXT}.delta", {**_place(place), "delta": part["text"]})]
            events.append((f"{_TEXT}.done", {**_place(place), "text": part["text"]}))
            events.append((f"{_PART}.done", {**_place(place), "part": part}))
        return [*events, (ITEM_DONE, {**body, "item": shown})]


def mirrored(item: Wire) -> Wire:
    """The item as subscribers see it: the very same where there is nothing to mirror."""
    if item["type"] != "reasoning" or item.get("summary"):
        return item
    thoughts = _thoughts(item)
    return {**item, "summary": [{"type": "summary_text", "text": thoughts}]} if thoughts else item


def _thoughts(item: Wire) -> str:
    texts = [part["text"] for part in item.get("content") or () if part["type"] == "reasoning_text"]
    return "\n".join(texts) if any(texts) else ""


def _place(body: Wire) -> Wire:
    return {"item_id": body["item_id"], "output_index": body["output_index"], "summary_index": 0}


def _opening(body: Wire) -> Unnumbered:
    return f"{_PART}.added", {**_place(body), "part": {"type": "summary_text", "text": ""}}
