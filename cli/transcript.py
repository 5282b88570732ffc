"""A response as a person reads it: events, or the stored items, in; pieces of text out. Pure.

Law: every text comes out once and whole, whatever part of it was streamed. A text ends its last line; anything else is
a line of its own. What an item is called is its `type`, so one that nobody knows is shown too.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from shared.events import IN_PROGRESS, ITEM_DONE, QUEUED
from shared.items import kind
from shared.json_codec import Wire, decode, encode
from shared.upstream_events import TextKind


class Tone(Enum):
    """What a piece is to its reader."""

    ANSWER = "what the model says: text, and refusals"
    REASONING = "what it thinks: text and summaries"
    ITEM = "any other item: one line"
    STATUS = "how the response ended: one line"
    PROGRESS = "what it waits for: one line"


class Piece(NamedTuple):
    """A piece of text; only an answer or a reasoning may end before its line does."""

    tone: Tone
    text: str


#: Output index, kind of text, and part index.
_Place: TypeAlias = tuple[int, TextKind, int]

_TONES: Final = {
    TextKind.SUMMARY_TEXT: Tone.REASONING,
    TextKind.REASONING_TEXT: Tone.REASONING,
    TextKind.OUTPUT_TEXT: Tone.ANSWER,
    TextKind.REFUSAL: Tone.ANSWER,
}
_BY_DELTA: Final = {text.delta_event: text for text in _TONES}


class Transcript:
    """Feed it events as they come, then `end` it with the response."""

    def __init__(self) -> None:
        self._shown: dict[_Place, int] = {}  # characters of each text that are out
        self._open: _Place | None = None  # the text whose last line may go on
        self._ended_line = True
        self._done: set[int] = set()  # items that are out whole

    def feed(self, event: Wire) -> Iterator[Piece]:
        """What an event adds."""
        told = event["type"]
        if text := _BY_DELTA.get(told):
            yield from self._text((event["output_index"], text, event[text.part_key or ""]), event["delta"])
        elif told == ITEM_DONE:
            yield from self._item(event["output_index"], event["item"])
        elif told == QUEUED:
            yield Piece(Tone.PROGRESS, f"queued, {event['response']['id']}\n")
        elif told == IN_PROGRESS:
            yield Piece(Tone.PROGRESS, "in progress\n")

    def end(self, response: Wire) -> Iterator[Piece]:
        """What of the response isn't out yet, and how it ended."""
        for index, item in enumerate(response.get("output") or ()):
            yield from self._item(index, item)
        yield from self._close()
        yield Piece(Tone.STATUS, f"{ending(response)}\n")

    def _item(self, index: int, item: Wire) -> Iterator[Piece]:
        if index in self._done:
            return
        self._done.add(index)
        told = False
        for text, number, whole in _texts(item):
            place = (index, text, number)
            told = told or bool(whole)
            yield from self._text(place, whole[self._shown.get(place, 0) :])
        if not told:
            yield from self._close()
            yield Piece(Tone.ITEM, f"{item_line(item)}\n")
        elif self._open is not None and self._open[0] == index:
            yield from self._close()

    def _text(self, place: _Place, fragment: str) -> Iterator[Piece]:
        if not fragment:
            return
        if place != self._open:
            yield from self._close()
            self._open = place
        self._shown[place] = self._shown.get(place, 0) + len(fragment)
        self._ended_line = fragment.endswith("\n")
        yield Piece(_TONES[place[1]], fragment)

    def _close(self) -> Iterator[Piece]:
        """End the last line of the text that is open."""
        if self._open is not None and not self._ended_line:
            yield Piece(_TONES[self._open[1]], "\n")
        self._open = None


def _texts(item: Wire) -> Iterator[tuple[TextKind, int, str]]:
    """Every text of an item that is shown as text, with its kind and part index."""
    for text in _TONES:
        parts = item.get(text.field) if kind(item) == text.item_type else None
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict) and part.get("type") == text.part_type:
                yield text, number, str(part.get(text.text_key) or "")


def item_line(item: Wire) -> str:
    """An item in one line: its type, what it calls and with what, and its status."""
    words = [kind(item) or "item"]
    words += [str(item[key]) for key in ("name",) if item.get(key)]
    if isinstance(arguments := item.get("arguments"), str):
        words.append(_one_line(arguments))
    if isinstance(given := item.get("input"), str):
        words.append(encode(given).decode())
    if status := item.get("status"):
        words.append(f"({status})")
    return " ".join(words)


def _one_line(arguments: str) -> str:
    """JSON in its shortest form; what is none, perhaps for being cut off, as a JSON string."""
    try:
        return encode(decode(arguments)).decode()
    except ValueError:
        return encode(arguments).decode()


def ending(response: Wire) -> str:
    """Status, reason, usage and id of a response, in one line."""
    error, details = response.get("error") or {}, response.get("incomplete_details") or {}
    status = str(response.get("status"))
    reason = ": ".join(str(word) for word in (error.get("code"), error.get("message")) if word) or details.get("reason")
    status = f"{status} ({reason})" if reason else status
    return ", ".join([status, *_usage(response.get("usage")), str(response.get("id"))])


def _usage(usage: Any) -> Iterator[str]:
    if not isinstance(usage, dict):
        return
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    reasoning = (usage.get("output_tokens_details") or {}).get("reasoning_tokens")
    yield f"{usage.get('input_tokens')} tokens in{f' ({cached} cached)' if cached else ''}"
    yield f"{usage.get('output_tokens')} out{f' ({reasoning} reasoning)' if reasoning else ''}"
