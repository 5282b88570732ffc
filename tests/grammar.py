"""Event streams from a grammar, plausible and implausible, and what must be true of each.

Every choice is made by a function that is given, so that dice (`bench/fuzz.py`) and hypothesis draw from one grammar.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

from records import record
from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.fold import fold
from shared.json_codec import decode, encode
from shared.limits import Limits, OverLimit
from shared.mirror import mirrored
from shared.record import Ending
from shared.response import Status
from shared.upstream_events import Finished, UpstreamEvent
from stream_rules import check
from workers.answers import AnswerDecoder, NoAnswer
from workers.sse import EventTooLarge

T = TypeVar("T")
Wire = dict[str, Any]
Choose = Callable[[Sequence[Any]], Any]

ABSENT: Final = object()
TEXTS: Final = ("", " ", "\n\n", "a", "bc", "é", "北京", "\0", "\u2028", "\U0001f600", "x" * 40)
NO_TEXTS: Final = (None, 5, [], {"text": "t"}, True)
INDICES: Final = (0, 0, 0, 0, 1, 1, 2, 3, None, ABSENT)
NO_INDICES: Final = (-1, 9_999, 10_000, 10**9, 10**30, "0", 1.0, True, [])
IDS: Final = ("a", "a", "b", "c", None, ABSENT)
NO_IDS: Final = ("", 5, [], "i" * 600, "with space", "é\n")
ODD: Final = (None, True, -1, 1.5, -0.0, 10**40, "", "x", [], ["x"], {}, {"type": []}, [None], [[]] * 3)
STATUSES: Final = ("completed", "completed", "in_progress", "incomplete", None, ABSENT)
LOGPROBS: Final = ([], [], ABSENT, None, [{"token": "a", "logprob": -0.5}], "x")
KINDS: Final = ("message", "message", "reasoning", "reasoning", "function_call", "custom_tool_call", "acme:x")
DELTAS: Final = {
    "response.output_text": "content_index",
    "response.refusal": "content_index",
    "response.reasoning_text": "content_index",
    "response.reasoning": "content_index",
    "response.reasoning_summary_text": "summary_index",
    "response.reasoning_summary": "summary_index",
    "response.function_call_arguments": None,
    "response.custom_tool_call_input": None,
}
PARTS: Final = ("response.content_part", "response.reasoning_part", "response.reasoning_summary_part")
PART_TYPES: Final = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
OTHERS: Final = (
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.in_progress"},
    {"type": "keepalive"},
    {"type": "acme:tick", "n": 1},
    {"type": "response.mcp_call.in_progress", "output_index": 0, "item_id": "a"},
    {"type": "acme:tick", "error": {"message": "m"}},
    {"type": "!"},
    {"type": 5},
    [],
    None,
)
STATUSES_OF_ENDS: Final = ("completed", "incomplete", "failed", "cancelled", None, ABSENT)
ENDS: Final = ("response.completed", "response.completed", "response.incomplete", "response.failed", "error")


class Grammar:
    """One draw of everything that it gives; implausible values come about once in `odds`."""

    def __init__(self, choose: Choose, odds: int = 12) -> None:
        self._choose = choose
        self._rare = (True, *[False] * (odds - 1))

    def stream(self, length: int) -> list[Any]:
        """So many events, and often an end."""
        events = [self.event() for _ in range(length)]
        return [*events, self.end()] if self._choose((True, True, False)) else events

    def event(self) -> Any:
        """One event that is no end."""
        maker = self._choose(
            (self._delta, self._delta, self._delta, self._text_done, self._part, self._item, self._item, self._other)
        )
        return maker()

    def end(self) -> Wire:
        """A terminal event, with a snapshot or without."""
        output = [self.item() for _ in range(self._choose((0, 1, 2, 3)))]
        status = self._choose(STATUSES_OF_ENDS)
        response = _present(status=status, output=self._or_odd(output), usage=self._choose((None, {"input_tokens": 3})))
        return {"type": self._choose(ENDS), "response": self._or_odd(response)}

    def item(self) -> Any:
        """An item, whole or nearly so."""
        kind = self._choose(KINDS)
        fields = {"id": self._odd_or(IDS, NO_IDS), "type": kind, "status": self._choose(STATUSES)}
        if kind == "message":
            fields |= {"role": self._choose(("assistant", ABSENT)), "content": self._parts("output_text", "refusal")}
        elif kind == "reasoning":
            fields |= {"content": self._parts("reasoning_text"), "summary": self._parts("summary_text")}
            fields["encrypted_content"] = self._choose((ABSENT, None, "gAAA"))
        elif kind != "acme:x":
            key = "arguments" if kind == "function_call" else "input"
            call_id, name = self._choose(("call_1", "call_2", "", ABSENT)), self._choose(("add", "", None, ABSENT))
            fields |= {"call_id": call_id, "name": name, key: self._choose((*TEXTS, None, ABSENT))}
        item = _present(**fields)
        if self._choose(self._rare):
            item[self._choose([*item, "new"])] = self._choose(ODD)
        return self._or_odd(item)

    def _place(self, part_key: str | None) -> Wire:
        place = {"output_index": self._odd_or(INDICES, NO_INDICES), "item_id": self._odd_or(IDS, NO_IDS)}
        if part_key is not None:
            place[part_key] = self._odd_or(INDICES, NO_INDICES)
        return place

    def _delta(self) -> Wire:
        name = self._choose(list(DELTAS))
        text = self._odd_or(TEXTS, NO_TEXTS)
        return _present(**self._place(DELTAS[name]), type=f"{name}.delta", delta=text, logprobs=self._choose(LOGPROBS))

    def _text_done(self) -> Wire:
        name = self._choose(list(DELTAS))
        key = {"response.function_call_arguments": "arguments", "response.custom_tool_call_input": "input"}.get(name)
        key = key or ("refusal" if name == "response.refusal" else "text")
        said = {key: self._odd_or(TEXTS, NO_TEXTS), "name": self._choose(("add", ABSENT, None))}
        return _present(**self._place(DELTAS[name]), **said, type=f"{name}.done", logprobs=self._choose(LOGPROBS))

    def _part(self) -> Wire:
        name = self._choose((*PARTS, "response.output_text.annotation"))
        key = "summary_index" if "summary" in name else "content_index"
        if name not in PARTS:
            annotation = self._or_odd({"type": "url_citation", "url": self._choose(TEXTS)})
            return _present(**self._place(key), type=f"{name}.added", annotation=annotation)
        part = self._or_odd(self._one_part(self._choose(list(PART_TYPES))))
        return _present(**self._place(key), type=f"{name}.{self._choose(('added', 'done'))}", part=part)

    def _item(self) -> Wire:
        verb = self._choose(("added", "done"))
        index = self._odd_or(INDICES, NO_INDICES)
        return _present(type=f"response.output_item.{verb}", output_index=index, item=self.item())

    def _other(self) -> Any:
        other = self._choose(OTHERS)
        return {**other, **_present(**self._place(None))} if isinstance(other, dict) else other

    def _parts(self, *types: str) -> Any:
        count = self._choose((0, 1, 1, 2, 3))
        parts = [self._or_odd(self._one_part(self._choose((*types, *types, "acme:part")))) for _ in range(count)]
        return self._choose((parts, parts, parts, None, ABSENT))

    def _one_part(self, kind: str) -> Wire:
        part = {"type": kind, PART_TYPES.get(kind, "text"): self._choose(TEXTS)}
        if kind == "output_text":
            part |= _present(annotations=self._choose(([], ABSENT, None, [{"n": 1}])), logprobs=self._choose(LOGPROBS))
        return part

    def _or_odd(self, value: Any) -> Any:
        return self._choose(ODD) if self._choose(self._rare) else value

    def _odd_or(self, values: Sequence[Any], odd: Sequence[Any]) -> Any:
        return self._choose(odd) if self._choose(self._rare) else self._choose(values)


def _present(**fields: Any) -> Wire:
    return {key: value for key, value in fields.items() if value is not ABSENT}


# --- what must be true ---


def framed(wires: Sequence[Any]) -> bytes:
    """The stream as an upstream sends it."""
    return b"".join(b"data: %b\n\n" % encode(wire) for wire in wires)


def read(stream: bytes, cuts: Sequence[int]) -> list[list[UpstreamEvent]]:
    """What each read gives, where reads end at the cuts."""
    decoder = AnswerDecoder(1 << 24)
    reads: list[list[UpstreamEvent]] = []
    try:
        for start, end in pairwise([0, *sorted(cuts), len(stream)]):
            reads.append(decoder.feed(stream[start:end]))
        reads.append(decoder.end())
    except (NoAnswer, EventTooLarge):
        pass
    return reads


class Run:
    """A stream through one accumulator, to its end; what came out is legal, and the log folds back into it."""

    def __init__(
        self, reads: Sequence[Sequence[UpstreamEvent]], *, mirror: bool = False, limits: Limits | None = None
    ) -> None:
        accumulator = Accumulator(mirror=mirror, limits=limits)
        self.events: list[PublicEvent] = []
        self.over: str | None = None
        try:
            for events in reads:
                self.events += accumulator.feed(events)
                if accumulator.ending is not None:
                    break
        except OverLimit as over:
            self.over = over.setting
        self.events += accumulator.fail()
        assert accumulator.ending is not None
        self.status = accumulator.ending.status
        self.output = accumulator.output
        self.skipped, self.repaired = accumulator.skipped, accumulator.repaired
        seen = [mirrored(item) for item in self.output] if mirror else self.output
        check(self.events, seen)
        for before, event in pairwise(self.events):
            assert event.sequence_number == before.sequence_number + 1
        assert accumulator.next_sequence_number == len(self.events)
        folded = fold(self.events, Accumulator(mirror=mirror))
        assert folded.output == seen
        assert folded.next_sequence_number == len(self.events)
        response = record().ended(Ending(Status(self.status)), self.output).response()
        assert response["output"] == self.output
        assert decode(encode(response)) == response
        kept = sum(len(encode(item)) for item in self.output)
        assert accumulator.kept_bytes >= kept - 32 * len(self.output)


def invariants(wires: Sequence[Any], cuts: Sequence[int], limits: Limits) -> Run:
    """Whatever came, however it was cut: every run is legal, and all of them keep the same items."""
    stream = framed(wires)
    whole = read(stream, [])
    cut = read(stream, cuts)
    flat = [event for events in whole for event in events]
    assert [event for events in cut for event in events] == flat
    one, other = Run([[event] for event in flat]), Run(cut)
    assert _named(other.output) == _named(one.output)
    # Deltas that come too late are counted by reads: several of one read are one.
    assert (other.status, other.skipped.keys(), other.repaired) == (one.status, one.skipped.keys(), one.repaired)
    assert not any(isinstance(event, Finished) for event in flat) or one.status in ENDINGS
    reflected = Run(cut, mirror=True)
    assert _named(reflected.output) == _named(one.output)
    Run(cut, limits=limits)
    return one


ENDINGS: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})
_OURS: Final = {"a", "b", "c"}


def _named(output: Sequence[Wire]) -> list[Wire]:
    """The items with every id that was drawn as `?`."""
    return [
        {key: "?" if key in ("id", "call_id") and len(str(value)) > 20 else value for key, value in item.items()}
        for item in output
    ]


def counted(run: Run) -> Counter[str]:
    """What a run was about, for figures."""
    return Counter({"events": len(run.events), "items": len(run.output), run.status: 1, **run.skipped, **run.repaired})
