"""What an event stream can tell us, as frozen values: the vocabulary between `normalize` and `accumulator`. Pure.

vLLM's stream and our own event log speak the same language, so both are read through these types: the log folds back
into items by the accumulator that wrote it. Indices are as the wire says them; `None` where it says nothing.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from shared.json_codec import Wire


class TextKind(Enum):
    """Which text of an item a fragment belongs to, and how the wire spells everything about it."""

    OUTPUT_TEXT = ("output_text", "message", "content", "output_text", "text")
    REFUSAL = ("refusal", "message", "content", "refusal", "refusal")
    REASONING_TEXT = ("reasoning_text", "reasoning", "content", "reasoning_text", "text")
    SUMMARY_TEXT = ("reasoning_summary_text", "reasoning", "summary", "summary_text", "text")
    ARGUMENTS = ("function_call_arguments", "function_call", "arguments", "", "arguments")
    INPUT = ("custom_tool_call_input", "custom_tool_call", "input", "", "input")

    def __init__(self, name: str, item_type: str, field: str, part_type: str, text_key: str) -> None:
        #: The type of item that holds such a text, and its field: a list of parts, or the text itself.
        self.item_type = item_type
        self.field = field
        #: The `type` of its part; empty where the field is the text.
        self.part_type = part_type
        #: The key of the whole text, in a part and in the text's `done` event.
        self.text_key = text_key
        #: What counts parts inside the item; None where there are none.
        self.part_key = {"content": "content_index", "summary": "summary_index"}.get(field)
        self.delta_event = f"response.{name}.delta"
        self.done_event = f"response.{name}.done"
        self.part_events = "response.reasoning_summary_part" if field == "summary" else "response.content_part"


class Place(NamedTuple):
    """Where an event belongs: an item (by slot, by id, or both), and a part inside it."""

    output_index: int | None
    item_id: str | None
    part_index: int | None = None


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """`response.output_item.added`."""

    place: Place
    item: Wire


@dataclass(frozen=True, slots=True)
class ItemDone:
    """`response.output_item.done` whose item can be trusted, field by field."""

    place: Place
    item: Wire


@dataclass(frozen=True, slots=True)
class ItemMalformed:
    """`response.output_item.done` whose item can't: it ends the item, nothing else is taken from it."""

    place: Place


@dataclass(frozen=True, slots=True)
class PartAdded:
    """`content_part.added`, `reasoning_part.added` or `reasoning_summary_part.added`."""

    place: Place
    kind: TextKind
    part: Wire


class TextDelta(NamedTuple):
    """A fragment of one text. `logprobs` is None where the wire had none or an empty list.

    It and `Place` are tuples because one of each is made for every token.
    """

    place: Place
    kind: TextKind
    delta: str
    logprobs: list[Wire] | None = None


@dataclass(frozen=True, slots=True)
class TextDone:
    """The whole of one text: it replaces what the deltas gave. `name` only for a function call's arguments."""

    place: Place
    kind: TextKind
    text: str
    name: str | None = None
    logprobs: list[Wire] | None = None


@dataclass(frozen=True, slots=True)
class PartDone:
    """`content_part.done` and its kin: a whole part."""

    place: Place
    kind: TextKind
    part: Wire


@dataclass(frozen=True, slots=True)
class AnnotationAdded:
    """`response.output_text.annotation.added`."""

    place: Place
    annotation_index: int | None
    annotation: Wire


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An event of a type that we do not know: passed on in its place, renumbered, changing no state."""

    place: Place
    type: str
    body: Wire


@dataclass(frozen=True, slots=True)
class Finished:
    """The terminal event: how the upstream says the response ended, and what its final snapshot holds.

    `status` is `completed`, `incomplete`, `failed` or `cancelled`. `output` is the snapshot's items, None where it has
    no list, and None in the place of an item that can't be trusted. `usage` has all its integers, 0 where the upstream
    left one out. `error` holds only `code` and `type` of the upstream's error: its message may echo content.
    `extras` are the fields that vLLM adds to its Response on request, the rendered prompt among them.
    """

    status: str
    output: list[Wire | None] | None
    usage: Wire | None
    incomplete_details: Wire | None
    error: Wire | None
    service_tier: str | None
    extras: Wire | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing to act on. `counted` where it is a fault of the upstream worth a metric, by a fixed reason."""

    reason: str
    counted: bool = True


UpstreamEvent: TypeAlias = (
    ItemAdded
    | ItemDone
    | ItemMalformed
    | PartAdded
    | TextDelta
    | TextDone
    | PartDone
    | AnnotationAdded
    | Forwarded
    | Finished
    | Skipped
)
