"""What one response may hold: each limit met and passed, whatever the cuts; through a turn, and at the door."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.fold import fold
from shared.json_codec import encode
from shared.limits import APART, Limits, Meter, OverLimit
from shared.normalize import normalize
from stream_rules import check
from wire import (
    Wire,
    added,
    annotation,
    call,
    ct_d,
    done,
    fa_D,
    fa_d,
    message,
    ot_D,
    ot_d,
    part_added,
    part_done,
    reasoning,
    rs_d,
    rt_d,
    summary_part_added,
    terminal,
    text_part,
    thought,
)

WIDE = Limits(max_item_bytes=1 << 40, max_response_bytes=1 << 40, max_items=1 << 40, max_parts=1 << 40)
LOGPROBS = [{"token": "A", "logprob": -0.5, "top_logprobs": []}]


class Outcome:
    """A stream under limits, to its end: `over` is the limit that it passed, None where it passed none."""

    def __init__(self, wires: Iterable[Wire], limits: Limits, reads: int = 1) -> None:
        accumulator = Accumulator(limits=limits)
        self.events: list[PublicEvent] = []
        self.over: str | None = None
        left = iter(wires)
        try:
            while read := list(itertools.islice(left, reads)):
                self.events += accumulator.feed(map(normalize, read))
        except OverLimit as over:
            self.over = over.setting
        self.events += accumulator.fail()
        self.output = accumulator.output
        check(self.events, self.output)
        assert fold(self.events).output == self.output
        self.kept = accumulator.kept_bytes


def deltas(text: str, cut: int) -> list[Wire]:
    return [ot_d(0, "msg_1", 0, text[at : at + cut]) for at in range(0, len(text), cut)]


@pytest.mark.parametrize("cut", [1, 7, 1000])
@pytest.mark.parametrize("reads", [1, 3, 2000])
@pytest.mark.parametrize("text", ["x" * 1000, "é" * 500, "北" * 333 + "x"])
@pytest.mark.parametrize("name", ["max_item_bytes", "max_response_bytes"])
def test_a_thousand_bytes_are_a_thousand_bytes_however_they_come(text: str, cut: int, reads: int, name: str) -> None:
    wires = deltas(text, cut)
    assert Outcome(wires, replace(WIDE, **{name: 1000}), reads).over is None
    assert Outcome(wires, replace(WIDE, **{name: 999}), reads).over == name


X = "x" * 100
PASSED_ON = {"type": "acme:x", "x": X}
#: What takes in bytes: the stream, and how many of them are kept when it has come.
KEPT: dict[str, tuple[list[Wire], int]] = {
    "a delta of a message": ([ot_d(0, "m", 0, X)], 100),
    "a delta of reasoning": ([rt_d(0, "r", 0, X)], 100),
    "a delta of a summary": ([rs_d(0, "r", 0, X)], 100),
    "a delta of arguments": ([fa_d(0, "f", X)], 100),
    "a delta of an input": ([ct_d(0, "c", X)], 100),
    "empty deltas": ([ot_d(0, "m", 0, "")] * 9, 0),
    "log probabilities": ([ot_d(0, "m", 0, X, logprobs=LOGPROBS)] * 2, 2 * (100 + len(encode(LOGPROBS)))),
    "log probabilities of an empty delta": ([ot_d(0, "m", 0, "", logprobs=LOGPROBS)], len(encode(LOGPROBS))),
    "a whole text": ([ot_D(0, "m", 0, X)], 100),
    "a whole text after its deltas": ([ot_d(0, "m", 0, X), ot_D(0, "m", 0, X)], 100),
    "a shorter whole text after its deltas": ([ot_d(0, "m", 0, X), ot_D(0, "m", 0, "x")], 1),
    "whole texts again and again": ([ot_D(0, "m", 0, X)] * 9, 100),
    "whole arguments with a name": ([fa_D(0, "f", X, name="add")], 103),
    "a part's announcement": ([part_added(0, "m", 0, text_part(X))], len(encode(text_part(X)))),
    "a part's announcement again and again": (
        [part_added(0, "m", 0, text_part(X))] * 9,
        len(encode(text_part(X))),
    ),
    "a whole part": ([part_done(0, "m", 0, text_part(X))] * 2, len(encode(text_part(X)))),
    "what a part holds beside its text": (
        [part_done(0, "m", 0, {**text_part(""), "x": X})],
        len(encode({**text_part(""), "x": X})),
    ),
    "an item's announcement": ([added(0, "message", "m", x=X)], len(encode(added(0, "message", "m", x=X)["item"]))),
    "an item's announcement again and again": (
        [added(0, "message", "m", x=X)] * 9,
        len(encode(added(0, "message", "m", x=X)["item"])),
    ),
    "an annotation": ([ot_d(0, "m", 0, "A"), annotation(0, "m", 0, {"x": X})], 1 + len(encode({"x": X})) + APART),
    "empty annotations": ([ot_d(0, "m", 0, "A"), *[annotation(0, "m", 0, {})] * 9], 1 + 9 * APART),
    "an event that is passed on": ([PASSED_ON], len(encode({"x": X})) + APART),
    "empty events that are passed on": ([{"type": "acme:x"}] * 9, 9 * APART),
    "events that wait for their item": (
        [added(0, "message", "m"), *[{"type": "acme:x", "item_id": "m"}] * 9],
        len(encode(added(0, "message", "m")["item"])) + 9 * (len(encode({"item_id": "m"})) + APART),
    ),
    "one more id": ([ot_d(0, "m", 0, "A"), ot_d(0, "n", 0, "A")], 2 + len(encode("n")) + APART),
    "a finished item": ([done(0, message("m", X))], len(encode(message("m", X)))),
    "a finished item after its deltas": (
        [ot_d(0, "m", 0, X), done(0, message("m", X))],
        len(encode(message("m", X))),
    ),
    "a finished item again and again": ([done(0, message("m", X))] * 9, len(encode(message("m", X)))),
    "a finished item of which only its id came": (
        [ot_d(0, "m", 0, X), done(0, {"type": "message", "id": "m"})],
        len(encode(message("m", X))),
    ),
    "what means nothing": ([{"type": "response.in_progress", "x": X}, {"type": 5, "x": X}, {"type": "!", "x": X}], 0),
}


@pytest.mark.parametrize(("wires", "kept"), KEPT.values(), ids=KEPT.keys())
def test_what_is_kept_is_counted_and_may_be_just_so_much(wires: list[Wire], kept: int) -> None:
    accumulator = Accumulator()
    accumulator.feed(map(normalize, wires))
    assert accumulator.kept_bytes == kept
    whole = kept + len(encode({"x": X})) + APART
    assert Outcome([*wires, PASSED_ON], replace(WIDE, max_response_bytes=whole)).over is None
    assert Outcome([*wires, PASSED_ON], replace(WIDE, max_response_bytes=whole - 1)).over == "max_response_bytes"


#: What passes a limit: the limit, the stream up to it, the event too many.
OVER: dict[str, tuple[Wire, list[Wire], Wire]] = {
    "one item's text": ({"max_item_bytes": 100}, [ot_d(0, "m", 0, X)], ot_d(0, "m", 0, "x")),
    "one item's two texts": (
        {"max_item_bytes": 100},
        [rt_d(0, "r", 0, X[:50]), rs_d(0, "r", 0, X[:50])],
        rs_d(0, "r", 0, "x"),
    ),
    "a text's whole": ({"max_item_bytes": 100}, [ot_d(0, "m", 0, X)], ot_D(0, "m", 0, X + "x")),
    "a part's whole": ({"max_item_bytes": 100}, [ot_d(0, "m", 0, X)], part_done(0, "m", 0, text_part(X))),
    "an item's whole": ({"max_item_bytes": 150}, [ot_d(0, "m", 0, X)], done(0, message("m", X * 2))),
    "an item from nowhere": ({"max_item_bytes": 150}, [ot_d(0, "m", 0, X)], done(1, message("n", X * 2))),
    "an announcement": ({"max_item_bytes": 150}, [ot_d(0, "m", 0, X)], added(1, "message", "n", x=X * 2)),
    "a late announcement": (
        {"max_item_bytes": 150},
        [ot_d(0, "m", 0, X)],
        added(0, "message", "m", x=X),
    ),
    "an item of the terminal event": (
        {"max_item_bytes": 150},
        [ot_d(0, "m", 0, X)],
        terminal(output=[message("m", X), message("n", X * 2)]),
    ),
    "what the terminal event fills in": (
        {"max_item_bytes": 150},
        [done(0, {"type": "message", "id": "m", "content": []})],
        terminal(output=[{**message("m", ""), "x": X * 2}]),
    ),
    "all items": (
        {"max_response_bytes": 250},
        [ot_d(0, "m", 0, X), ot_d(1, "n", 0, X)],
        ot_d(2, "o", 0, X),
    ),
    "events that are only passed on": ({"max_response_bytes": 1000}, [{"type": "acme:x"}] * 7, {"type": "acme:x"}),
    "annotations": (
        {"max_response_bytes": 1000},
        [ot_d(0, "m", 0, "A"), *[annotation(0, "m", 0, {})] * 7],
        annotation(0, "m", 0, {}),
    ),
    "ids": (
        {"max_response_bytes": 1000},
        [ot_d(0, f"m_{at}", 0, "A") for at in range(8)],
        ot_d(0, "m_8", 0, "A"),
    ),
    "items": ({"max_items": 3}, [done(at, message(f"m_{at}", "A")) for at in range(3)], added(3, "message", "n")),
    "items that only deltas name": (
        {"max_items": 3},
        [rt_d(at, f"r_{at}", 0, "A") for at in range(3)],
        fa_d(3, "f", ""),
    ),
    "items of the terminal event": ({"max_items": 1}, [rt_d(0, "r", 0, "A")], terminal(output=[call("f", "{}")])),
    "parts": ({"max_parts": 3}, [rt_d(0, "r", at, "A") for at in range(3)], rt_d(0, "r", 3, "A")),
    "parts of several items": (
        {"max_parts": 3},
        [rt_d(at, f"r_{at}", 0, "A") for at in range(3)],
        summary_part_added(0, "r_0", 0),
    ),
    "parts of a finished item": ({"max_parts": 3}, [rt_d(0, "r", 0, "A")], done(0, reasoning("r", *"ABCD"))),
    "parts of the terminal event": ({"max_parts": 3}, [], terminal(output=[reasoning("r", *"ABCD")])),
    "parts that the terminal event fills in": (
        {"max_parts": 1},
        [done(0, {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]})],
        terminal(output=[{"type": "reasoning", "id": "r", "content": [thought("A")]}]),
    ),
}


@pytest.mark.parametrize(("limit", "wires", "last"), OVER.values(), ids=OVER.keys())
def test_what_is_over_a_limit_is_not_kept_and_what_came_before_is(limit: Wire, wires: list[Wire], last: Wire) -> None:
    [name] = limit
    before = Outcome(wires, replace(WIDE, **limit))
    assert before.over is None
    for reads in (1, 99):
        outcome = Outcome([*wires, last, ot_d(9, "z", 0, "late")], replace(WIDE, **limit), reads)
        assert outcome.over == name
        assert len(encode(outcome.output)) < len(encode(before.output)) + 200
        assert len(outcome.output) >= len(before.output) or reads > 1
        if last["type"].endswith(".delta") and reads == 1:
            assert outcome.output[: len(before.output)] == before.output
        assert {item.get("status") for item in outcome.output} <= {"incomplete", "completed"}
        assert not outcome.output or outcome.output[-1]["status"] == "incomplete"


def test_calls_need_no_part() -> None:
    wires = [fa_d(at, f"f_{at}", "{}") for at in range(3)] + [done(3, call("f_3", "{}"))]
    assert Outcome(wires, replace(WIDE, max_parts=0 + 1)).over is None


METERED: dict[str, Callable[[Meter], Any]] = {
    "an item": lambda meter: meter.add_item(101),
    "parts": lambda meter: meter.add_parts(101),
    "something apart": lambda meter: meter.add_apart(X),
}


@pytest.mark.parametrize("count", METERED.values(), ids=METERED.keys())
def test_what_is_refused_was_not_counted(count: Callable[[Meter], Any]) -> None:
    meter = Meter(Limits(100, 100, 100, 100))
    for _ in range(3):
        with pytest.raises(OverLimit):
            count(meter)
    meter.add_item(100)
    meter.add_parts(100)
    assert meter.total == 100
