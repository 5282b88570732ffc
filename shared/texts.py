"""The texts that an item is made of, while they arrive. Pure.

Law: a text belongs to one kind and one index of one item; what a `done` says of it replaces what its deltas gave.
"""

from dataclasses import dataclass, field
from enum import Enum

from shared.item_shape import tidy_part
from shared.json_codec import Wire
from shared.upstream_events import TextKind


def utf8_size(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


class Stage(Enum):
    """How far a text has come."""

    OPEN = "deltas may follow"
    WHOLE = "the text is known, its part may still say more"
    CLOSED = "nothing of it can change"


@dataclass(slots=True, eq=False)
class Text:
    """One text of an item, and its part where it has one.

    `number` is the upstream's index, `position` ours: its place in the finished list, None while a lower one may come.
    `said` are the fields of its part that part events gave, `showing` those of the item's texts that show anything.
    """

    kind: TextKind
    number: int
    position: int | None = None
    stage: Stage = Stage.OPEN
    streamed: bool = False
    blank: bool = True
    logprobs: list[Wire] = field(default_factory=list)
    annotations: list[Wire] = field(default_factory=list)
    said: Wire = field(default_factory=dict)
    showing: set["Text"] = field(default_factory=set)
    _fragments: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its text."""
        return utf8_size(self.text)

    @property
    def text(self) -> str:
        """All of it so far."""
        if len(self._fragments) > 1:
            self._fragments = ["".join(self._fragments)]
        return self._fragments[0] if self._fragments else self.said.get(self.kind.text_key, "")

    def append(self, delta: str, logprobs: list[Wire] | None) -> None:
        """One more fragment."""
        self._fragments.append(delta)
        self.streamed = True
        if self.blank and delta and not delta.isspace():
            self.blank = False
            self.showing.add(self)
        if logprobs is not None:
            self.logprobs.extend(logprobs)

    def annotate(self, annotation: Wire) -> None:
        """One more annotation."""
        self.annotations.append(annotation)
        self.showing.add(self)

    def replace(self, text: str, logprobs: list[Wire] | None = None) -> None:
        """The whole text, as a `done` gave it."""
        self._fragments = [text]
        self.blank = not text.strip()
        if self.blank and not self.annotations:
            self.showing.discard(self)
        else:
            self.showing.add(self)
        self.logprobs = self.logprobs or list(logprobs or ())

    def take(self, part: Wire, *, done: bool) -> None:
        """What a part's event says. `added` shows a part before its text: its empties say nothing.

        A text that its own done gave stands: it may have been told.
        """
        self.said |= {key: value for key, value in part.items() if done or value}
        if done and self.stage is Stage.OPEN and self.kind.text_key in part:
            self.replace(part[self.kind.text_key], part.get("logprobs"))

    def part(self) -> Wire:
        """The part as it stands."""
        part = {**self.said, "type": self.kind.part_type, self.kind.text_key: self.text}
        return self.filled(part) if self.kind is TextKind.OUTPUT_TEXT else part

    def filled(self, part: Wire) -> Wire:
        """A part of output text with what was streamed beside the text."""
        part = {**tidy_part(part), "annotations": part.get("annotations") or list(self.annotations)}
        if not part.get("logprobs") and self.logprobs:
            part["logprobs"] = list(self.logprobs)
        return part

    def opening(self) -> Wire:
        """The part as its `added` event shows it: empty."""
        part = {**self.said, "type": self.kind.part_type, self.kind.text_key: ""}
        return {**part, "annotations": [], "logprobs": []} if self.kind is TextKind.OUTPUT_TEXT else part
