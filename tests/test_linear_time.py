"""What four times as much of anything costs: about four times the steps. Counted, not timed."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.fold import fold
from shared.normalize import normalize
from wire import (
    Wire,
    added,
    annotation,
    call,
    done,
    fa_d,
    message,
    ot_D,
    ot_d,
    reasoning,
    rt_D,
    rt_d,
    terminal,
    text_part,
    thought,
)

FEW, MANY = 150, 600
TICK = {"type": "acme:tick", "item_id": "msg_0"}


def each(*events: Callable[[int], Wire]) -> Callable[[int], list[Wire]]:
    return lambda n: [event(at) for at in range(n) for event in events]


def then(first: Callable[[int], list[Wire]], last: Callable[[int], Wire]) -> Callable[[int], list[Wire]]:
    return lambda n: [*first(n), last(n)]


def msg(at: int, text: str = "A") -> Wire:
    return message(f"msg_{at}", text)


def final(n: int) -> Wire:
    return terminal(output=[message(f"late_{at}", "A") for at in range(n)])


open_items = each(lambda at: added(at, "message", f"msg_{at}"), lambda at: ot_d(at, f"msg_{at}", 0, "A"))
done_items = each(lambda at: done(at, msg(at)))

STREAMS: dict[str, Callable[[int], list[Wire]]] = {
    "deltas": each(lambda _: ot_d(0, "msg_0", 0, "A")),
    "deltas of white space": each(lambda _: ot_d(0, "msg_0", 0, " ")),
    "deltas, each under an id of its own": each(lambda at: rt_d(0, f"rs_{at}", 0, "x")),
    "deltas that could be of several items": each(
        lambda at: added(at, "message", f"msg_{at}"), lambda _: ot_d(None, None, None, "A")
    ),
    "open items": open_items,
    "finished items": done_items,
    "finished items, the last first": lambda n: done_items(n)[::-1],
    "finished items without an index": each(lambda at: done(None, msg(at))),
    "finished items under one index": each(lambda at: done(0, message(f"msg_{at}", f"A{at}"))),
    "messages of white space": each(lambda at: done(at, msg(at, " "))),
    "open messages of white space": each(lambda at: added(at, "message", f"msg_{at}")),
    "calls": each(lambda at: done(at, call(f"fc_{at}", "{}", call_id=f"call_{at}"))),
    "calls without a name": each(lambda at: fa_d(at, f"fc_{at}", "{")),
    "items of unknown types": each(lambda at: done(at, {"id": f"x_{at}", "type": f"acme:{at}"})),
    "parts of white space": each(lambda at: ot_d(0, "msg_0", at, " ")),
    "parts of white space, whole": each(lambda at: ot_D(0, "msg_0", at, " ")),
    "parts that show something, then white space": each(
        lambda at: ot_d(0, "msg_0", at + 1, "A"), lambda at: ot_D(0, "msg_0", at + 1, " ")
    ),
    "white space behind a finished message of white space": lambda n: [
        done(0, {**msg(0, ""), "content": [text_part(" ")] * n}),
        *[ot_d(1, "msg_1", 0, " ")] * n,
    ],
    "keys of an announcement, one more each time": each(lambda at: added(0, "function_call", "fc_0", **{f"k{at}": 1})),
    "parts": each(lambda at: rt_d(0, "rs_0", at, "x")),
    "parts, the last first": lambda n: [rt_d(0, "rs_0", at, "x") for at in reversed(range(n))],
    "finished parts": each(lambda at: rt_D(0, "rs_0", at, "x")),
    "parts without an index": each(
        lambda _: rt_d(0, "rs_0", None, "x"),
        lambda _: {"type": "response.reasoning_part.done", "output_index": 0, "item_id": "rs_0", "part": thought("x")},
    ),
    "parts of one done": lambda n: [done(0, reasoning("rs_0", *["x"] * n))],
    "annotations": each(lambda at: annotation(0, "msg_0", 0, {"n": at})),
    "the whole text again and again": each(lambda _: ot_D(0, "msg_0", 0, "A")),
    "added again and again": each(lambda at: added(0, "reasoning", "rs_0", n=at)),
    "unknown events": then(each(lambda _: TICK), lambda _: TICK),
    "unknown events of many items": each(lambda at: ot_d(at, f"msg_{at}", 0, "A"), lambda at: TICK | {"n": at}),
    "all in the terminal event": lambda n: [terminal(output=[msg(at) for at in range(n)])],
    "all again in the terminal event, under other ids": then(done_items, final),
    "open items that the terminal event ends, under other ids": then(open_items, final),
    "a terminal event that holds one item again and again": lambda n: [terminal(output=[msg(0)] * n)],
    "items of text and annotations": each(
        lambda at: ot_d(at, f"msg_{at}", 0, "A"), lambda at: done(at, {**msg(at), "content": [text_part("A")] * 2})
    ),
}


def steps(work: Callable[[], Any]) -> int:
    """Lines of Python that were run: loops and comprehensions count by their rounds."""
    counted = 0

    def count(*_: object) -> Callable[..., Any]:
        nonlocal counted
        counted += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def accumulated(wires: list[Wire]) -> list[PublicEvent]:
    accumulator = Accumulator()
    events = [event for wire in wires for event in accumulator.feed([normalize(wire)])]
    return events + accumulator.fail()


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_four_times_as_much(stream: Callable[[int], list[Wire]]) -> None:
    few, many = stream(FEW), stream(MANY)
    assert steps(lambda: accumulated(many)) < 4.5 * steps(lambda: accumulated(few)) + 500
    logs = accumulated(few), accumulated(many)
    assert steps(lambda: fold(logs[1])) < 4.5 * steps(lambda: fold(logs[0])) + 500
