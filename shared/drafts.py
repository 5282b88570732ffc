"""Items that are still arriving, and the presence rule that finishes them. Pure.

Law: a finished item is, field by field, what its `output_item.done` says, and presence decides: `[]` and `null` win
like any other value. A field that done leaves out is what the deltas gave, else what `output_item.added` said, whose
empties are never facts against deltas. Four things bend the rule, each because a reader needs it:
* the id is the first one shown, and so is a call's `call_id`;
* a call's empty `name` or `arguments` (custom calls: `input`) say nothing: earlier values stand;
* in a message's parts, `annotations` and `logprobs` that done leaves empty are those that were streamed;
* what the published types require is there: `annotations` on output text, `summary` on reasoning, `content`, `role` and
  `status` on messages, all strings of a call. Null `status` or `content` on a message or call say nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

from shared.json_codec import Wire
from shared.texts import Stage, Text
from shared.upstream_events import TextKind

_T = TypeVar("_T")

_KIND_OF_PART: Final = {(kind.item_type, kind.part_type): kind for kind in TextKind if kind.part_type}
_KNOWN_TYPES: Final = frozenset(kind.item_type for kind in TextKind)
_KIND_OF_CALL: Final = {kind.item_type: kind for kind in TextKind if not kind.part_type}

#: Fields that fill up while an item arrives.
_GROWING: Final = frozenset({"status", *(kind.field for kind in TextKind)})


@dataclass(slots=True, eq=False)
class _Field:
    """The texts of one field: the upstream's first and next number, how many have a position, and who waits for one."""

    offset: int
    next_number: int = 0
    placed: int = 0
    waiting: list[tuple[int, int, Text]] = field(default_factory=list)  # a heap by number, then arrival


@dataclass(slots=True, eq=False)
class Draft:
    """One item that is still arriving. `known` is what its snapshots said, `texts` what streamed."""

    type: str
    id: str
    known: Wire = field(default_factory=dict)
    texts: list[Text] = field(default_factory=list)
    _by_number: dict[tuple[TextKind, int], Text] = field(default_factory=dict)
    _by_position: dict[tuple[str, int], Text] = field(default_factory=dict)
    _fields: dict[str, _Field] = field(default_factory=dict)
    _open: dict[TextKind, list[Text]] = field(default_factory=dict)
    _showing: set[Text] = field(default_factory=set)

    @property
    def announced(self) -> bool:
        """Whether a snapshot of the item came, not only events that name it."""
        return "type" in self.known

    @property
    def blank(self) -> bool:
        """A message that shows nothing but white space."""
        return self.type == "message" and not self._showing

    @property
    def nameless(self) -> bool:
        """A call of which nobody could yet say what is called."""
        return self.type in _KIND_OF_CALL and not (self.known.get("call_id") and self.known.get("name"))

    def learn(self, snapshot: Wire) -> None:
        """One more snapshot of the item. What is known already stays; an empty value was no knowledge."""
        new = {key: value for key, value in snapshot.items() if not self.known.get(key)}
        self.known = {**self.known, **new}

    def find(self, kind: TextKind, number: int | None) -> Text | None:
        """The text that an event names, None where it is a new one. Raises `LookupError` where it may be several."""
        if not kind.part_type:
            return self.texts[0] if self.texts else None
        if number is not None:
            return self._by_number.get((kind, number))
        return sole(self._open.get(kind, []), lambda text: text.stage is not Stage.CLOSED)

    def add(self, kind: TextKind, number: int | None, items_before: int) -> Text:
        """A new text.

        Upstreams that run one counter across items (vLLM before its pull request 45742) start an item's parts at the
        number of earlier items; such a start is taken for 0.
        """
        own = self._fields.get(kind.field)
        if number is None:
            number = own.next_number if own else 0
        if own is None:
            own = self._fields[kind.field] = _Field(number if number <= items_before else 0)
        own.next_number = max(own.next_number, number + 1)
        text = Text(kind, number, showing=self._showing)
        heappush(own.waiting, (number, len(self.texts), text))
        self.texts.append(text)
        self._by_number[kind, number] = text
        self._open.setdefault(kind, []).append(text)
        return text

    def settle(self, field_name: str, *, gaps: bool) -> list[Text]:
        """Give positions to the texts of a field whose lower ones all have one, or to all of them (`gaps`)."""
        own = self._fields.get(field_name)
        settled: list[Text] = []
        while own and own.waiting and (gaps or own.waiting[0][0] <= own.offset + own.placed):
            text = heappop(own.waiting)[2]
            text.position = own.placed
            own.placed += 1
            self._by_position[field_name, text.position] = text
            settled.append(text)
        return settled

    def placed(self) -> list[Text]:
        """The texts that have a position, by position."""
        return sorted((text for text in self.texts if text.position is not None), key=lambda text: text.position or 0)

    def text_at(self, field_name: str, position: int) -> Text | None:
        """The text that stands there in the finished list."""
        return self._by_position.get((field_name, position))

    def parts_of(self, fields: Wire) -> Iterator[tuple[TextKind, int, Wire]]:
        """The texts that a finished item holds: kind, position, part. A call's text is a part of its own."""
        if (call := _KIND_OF_CALL.get(self.type)) is not None:
            yield call, 0, {call.text_key: fields[call.field]} if fields.get(call.field) else {}
            return
        for name in ("summary", "content") if self.type in _KNOWN_TYPES else ():
            for position, part in enumerate(fields.get(name) or ()):
                if (kind := _KIND_OF_PART.get((self.type, part["type"]))) is None or kind.field != name:
                    break  # a part that we don't know has no events, so those after it can't be numbered
                yield kind, position, part

    def opening(self) -> Wire:
        """The item as its `added` event shows it: as full as known, its texts empty."""
        item = {**self.known, "id": self.id, "type": self.type}
        match self.type:
            case "message":
                return {**item, "role": item.get("role") or "assistant", "status": "in_progress", "content": []}
            case "reasoning":
                item["summary"] = []
                if item.get("content"):
                    item["content"] = []
            case "function_call" | "custom_tool_call":
                item |= {
                    "call_id": self._call_id(item),
                    "name": item.get("name") or "",
                    _KIND_OF_CALL[self.type].field: "",
                }
                if self.type == "function_call":
                    item["status"] = "in_progress"
        if isinstance(item.get("status"), str):
            item["status"] = "in_progress"
        return item

    def finished(self, fields: Wire, status: str) -> Wire:
        """The item for good. `fields` is what done said, `status` what stands where nobody gave a final one."""
        if fields.get("status") == "in_progress":
            fields = {**fields, "status": status}
        item = {**self.known, **self._streamed(), **fields, "id": self.id, "type": self.type}
        match self.type:
            case "message":
                item["role"] = item.get("role") or "assistant"
                content = fields.get("content")
                content = self._first({}, "content") or [] if content is None else content
                item["content"] = [self._filled(position, part) for position, part in enumerate(content)]
            case "reasoning":
                item.setdefault("summary", [])
            case "function_call" | "custom_tool_call":
                name = _KIND_OF_CALL[self.type].field
                item |= {key: self._first(fields, key) or "" for key in ("name", name)}
                item["call_id"] = self._call_id(item)
        return self._with_status(item, fields, status)

    def _first(self, fields: Wire, key: str) -> Any:
        """Where empties say nothing: done, else the deltas, else `added`."""
        return fields.get(key) or self._streamed().get(key) or self.known.get(key)

    def _call_id(self, item: Wire) -> str:
        return self.known.get("call_id") or item.get("call_id") or self.id

    def _streamed(self) -> Wire:
        streamed: Wire = {}
        for text in self.placed():
            if text.kind.part_type:
                streamed.setdefault(text.kind.field, []).append(text.part())
            else:
                streamed[text.kind.field] = text.text
        return streamed

    def _filled(self, position: int, part: Wire) -> Wire:
        if part["type"] != TextKind.OUTPUT_TEXT.part_type:
            return part
        text = self.text_at("content", position)
        return (text or Text(TextKind.OUTPUT_TEXT, position)).filled(part)

    def _with_status(self, item: Wire, fields: Wire, status: str) -> Wire:
        # An item that we end ourselves says how, if its published type can.
        always = self.type in ("message", "function_call") or (self.type == "reasoning" and not fields)
        if fields.get("status") or ("status" in fields and not always):
            return item
        if always or status == "incomplete" or "status" in self.known:
            item["status"] = status
        return item


def sole(candidates: list[_T], is_open: Callable[[_T], bool]) -> _T | None:
    """The only open one; None where there is none. Raises `LookupError` where there are several.

    Those that are no longer open leave the list, so that each is looked at once.
    """
    still_open: list[_T] = []
    while candidates and len(still_open) < 2:
        if is_open(last := candidates.pop()):
            still_open.append(last)
    candidates.extend(reversed(still_open))
    if len(still_open) > 1:
        raise LookupError
    return still_open[0] if still_open else None


def starting(item: Wire) -> Wire:
    """What a finished item tells of its beginning, where its `added` never came."""
    known = item["type"] in _KNOWN_TYPES
    return {key: value for key, value in item.items() if not (known and key in _GROWING)}


def is_blank_message(item: Wire) -> bool:
    """A finished message that shows nothing but white space."""
    return item["type"] == "message" and all(
        part["type"] == TextKind.OUTPUT_TEXT.part_type and not part["text"].strip() and not part["annotations"]
        for part in item["content"]
    )
