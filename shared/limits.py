"""What one response may hold, and the count of what it holds. Pure.

Law: what is kept is counted, in bytes, when it is about to be kept, so that nothing beyond a limit ever is. How the
upstream cut it makes no difference: a text counts as its UTF-8, anything else as its JSON.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from shared.json_codec import encode

#: What a thing of its own costs beside its JSON: an annotation, an event of an unknown type, one more id of an item.
#: Without it, an endless stream of empty ones would be free.
APART: Final = 128


def json_size(value: Any) -> int:
    """Bytes of a value's JSON; nothing is nothing."""
    return len(encode(value)) if value else 0


class OverLimit(Exception):
    """One more event would take the response over a limit. `setting` is the limit's name, `limit` its value."""

    def __init__(self, setting: str, limit: int) -> None:
        super().__init__(f"{setting} is {limit}")
        self.setting = setting
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Limits:
    """Named as their settings are."""

    max_item_bytes: int
    max_response_bytes: int
    max_items: int
    max_parts: int


class Sized(Protocol):
    """Something whose bytes are counted."""

    size: int


#: Our own log is read back without limits: what stands there was counted when it was written.
_NONE: Final = Limits(*[1 << 62] * 4)


class Meter:
    """Counts for one response. Every method that counts raises `OverLimit`, and then has counted nothing."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or _NONE
        self._items = 0
        self._parts = 0
        self.total = 0

    def add_item(self, size: int) -> None:
        """One more item, of that size."""
        if self._items >= self._limits.max_items:
            raise OverLimit("max_items", self._limits.max_items)
        self._ensure(size, size)
        self._items += 1
        self.total += size

    def add_parts(self, count: int) -> None:
        """More parts, of whichever item."""
        if self._parts + count > self._limits.max_parts:
            raise OverLimit("max_parts", self._limits.max_parts)
        self._parts += count

    def grow(self, item: Sized, more: int) -> None:
        """More of an item; less of it, if `more` is below 0."""
        size = item.size + more
        if more > 0:
            self._ensure(size, more)
        item.size = size
        self.total += more

    def add_apart(self, value: Any) -> None:
        """Something that is kept beside the items, or told and not kept."""
        more = json_size(value) + APART
        self._ensure(0, more)
        self.total += more

    def weigh(self, item: Sized, size: int) -> None:
        """What an item comes to in the end: no reason to refuse it any more."""
        self.total += size - item.size
        item.size = size

    def _ensure(self, size: int, more: int) -> None:
        if size > self._limits.max_item_bytes:
            raise OverLimit("max_item_bytes", self._limits.max_item_bytes)
        if self.total + more > self._limits.max_response_bytes:
            raise OverLimit("max_response_bytes", self._limits.max_response_bytes)
