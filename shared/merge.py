"""Items sent again: a chain's history and a new input as one list, each item once. Pure.

Law: what a turn generated is history and never questioned, not even when the upstream gave items of two turns one id.
What a client sends is: an item of a type and id that the history holds is left out where it agrees with what is there,
and refused where it tells something else. Items without an id can't be told apart, so they are never left out.
"""

from collections.abc import Sequence
from typing import Any

from shared.errors import InvalidRequest
from shared.items import kind, name_of, plain_text
from shared.json_codec import Wire


class Merge:
    """A history that grows turn by turn; `items` is it in order."""

    def __init__(self) -> None:
        self.items: list[Wire] = []
        self._known: dict[tuple[str, str], list[Wire]] = {}

    def keep(self, items: Sequence[Wire]) -> None:
        """Add what is history already."""
        for item in items:
            self.items.append(item)
            if isinstance(own := item.get("id"), str):
                self._known.setdefault((kind(item), own), []).append(item)

    def add(self, items: Sequence[Wire]) -> None:
        """Add what a client sent. Raises `InvalidRequest` naming the id of an item that differs from its first copy.

        Null, absent and empty lists say nothing, so they agree with anything; a status may differ.
        """
        for item in items:
            own = item.get("id")
            known = self._known.get((kind(item), own), []) if isinstance(own, str) else []
            if not known:
                self.keep([item])
            elif not any(_agree(one, item) for one in known):
                raise InvalidRequest(
                    f"Input {name_of(item)} differs from the one already in this history.", param="input"
                )


def merge_input(history: Sequence[Wire], new: Sequence[Wire]) -> list[Wire]:
    """The history, then what is new in `new`. Raises `InvalidRequest` as `Merge.add` does."""
    merge = Merge()
    merge.keep(history)
    merge.add(new)
    return merge.items


def _agree(one: Any, other: Any) -> bool:
    if one in (None, []) or other in (None, []):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_agree(one[key], other[key]) for key in one.keys() & other.keys() - {"status"})
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, list | str) and isinstance(other, list | str):
        return plain_text(one) == plain_text(other)
    return bool(one == other)
