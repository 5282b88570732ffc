"""Upstreams that mean harm, or are broken as if they did: no exception, a legal stream that ends, bounded memory.

`FOUND` holds what `bench/fuzz.py` found, each as it failed first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Any

import pytest

from grammar import Run, framed, read
from shared.accumulator import Accumulator
from shared.json_codec import encode
from shared.limits import Limits, OverLimit
from shared.normalize import normalize, read_event
from shared.texts import Text
from shared.upstream_events import Skipped
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
    rs_D,
    rt_D,
    rt_d,
    summed,
    terminal,
    text_part,
    thought,
)
from workers.answers import AnswerDecoder
from workers.sse import EventTooLarge, SseDecoder

LIMITS = Limits(max_item_bytes=20_000, max_response_bytes=50_000, max_items=20, max_parts=50)
LOGPROBS = [{"token": "", "logprob": 0, "top_logprobs": []}]
NEVER = "never over a limit"


def told(*data: bytes | Wire) -> Run:
    """Each as the data of one event, to the end."""
    return Run([[read_event(one if isinstance(one, bytes) else encode(one))] for one in data])


# --- odd values ---

DELTA = b'{"type":"response.output_text.delta","output_index":0,"item_id":"m","content_index":0,"delta":%b}'
DONE = b'{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","x":%b,"content":[]}}'

#: What stands in the text of a delta: the text that is kept, None where the event can't be read.
TEXTS: dict[str, tuple[bytes, str | None]] = {
    "NUL": (b'"a\\u0000b"', "a\0b"),
    "a raw NUL": (b'"a\0b"', None),
    "control characters": (b'"\\u0001\\u001b[31m\\u007f"', "\x01\x1b[31m\x7f"),
    "line ends that are none": ('"\u2028\u2029\u0085"'.encode(), "\u2028\u2029\u0085"),
    "escaped line ends": (b'"\\r\\n\\ndata: x\\n\\n"', "\r\n\ndata: x\n\n"),
    "half a pair of surrogates": (b'"a\\ud83d"', None),
    "the other half": (b'"\\ude00a"', None),
    "a pair": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "a surrogate's bytes": (b'"\xed\xa0\xbd"', None),
    "bytes that are no UTF-8": (b'"\xff\xfe"', None),
    "overlong UTF-8": (b'"\xc0\x80"', None),
    "a character beyond Unicode": (b'"\xf4\x90\x80\x80"', None),
    "noncharacters": ('"\ufffe\uffff\ufeff"'.encode(), "\ufffe\uffff\ufeff"),
    "right to left": ('"\u202e\u2066"'.encode(), "\u202e\u2066"),
    "a number": (b"5", None),
    "null": (b"null", None),
    "nested": (b"[" * 5000 + b"]" * 5000, None),
}


@pytest.mark.parametrize(("raw", "text"), TEXTS.values(), ids=TEXTS.keys())
def test_odd_texts(raw: bytes, text: str | None) -> None:
    run = told(DELTA % raw, DELTA % b'"."')
    assert run.output[0]["content"][0]["text"] == (text or "") + "."
    assert sum(run.skipped.values()) == (text is None)


#: What stands in an unknown field of an item: how it goes on, None where the event can't be read.
VALUES: dict[str, tuple[bytes, bytes | None]] = {
    "beyond a double": (b"1e999", None),
    "beyond a double, below zero": (b"-1e999", None),
    "beyond a double, without an exponent": (b"9" * 400 + b".0", None),
    "beyond a double, deep inside": (b'[{"a":[1,2,{"b":1e400}]}]', None),
    "NaN": (b"NaN", None),
    "minus infinity": (b"-Infinity", None),
    "minus zero": (b"-0.0", b"-0.0"),
    "the largest double": (b"1.7976931348623157e+308", b"1.7976931348623157e+308"),
    "the smallest double": (b"5e-324", b"5e-324"),
    "an integer of 4000 digits": (b"9" * 4000, b"9" * 4000),
    "an integer of 5000 digits": (b"9" * 5000, None),
    "a key twice": (b'{"a":1,"a":2}', b'{"a":2}'),
    "a key that is empty": (b'{"":{"":null}}', b'{"":{"":null}}'),
    "a key of a prototype": (b'{"__proto__":{"a":1}}', b'{"__proto__":{"a":1}}'),
    "a hundred levels": (b"[" * 100 + b"]" * 100, b"[" * 100 + b"]" * 100),
    "levels without end": (b"[" * 100_000, None),
}


@pytest.mark.parametrize(("raw", "kept"), VALUES.values(), ids=VALUES.keys())
def test_odd_values(raw: bytes, kept: bytes | None) -> None:
    run = told(DELTA % b'"A"', DONE % raw, {"type": "acme:last"})
    if kept is None:
        assert dict(run.skipped) == {"not_json": 1}
        assert run.output[0]["content"] == [text_part("A")]
    else:
        assert b'"x":%b' % kept in encode(run.output)


@pytest.mark.parametrize("key", ["output_index", "content_index"])
@pytest.mark.parametrize("index", [10_000, 10**9, 10**30, -1, 1.0, True, "0", [], {}])
def test_an_index_that_is_none_takes_no_room(key: str, index: Any) -> None:
    run = told({**ot_d(0, "m", 0, "x"), key: index}, ot_d(0, "m", 0, "A"))
    assert dict(run.skipped) == {"bad_index": 1}
    assert [item["content"] for item in run.output] == [[text_part("A")]]


def test_the_highest_part_of_each_of_many_items() -> None:
    run = told(*[rt_d(at, f"r_{at}", 9_999, "A") for at in range(300)])
    assert [item["content"] for item in run.output] == [[thought("A")]] * 300


def test_the_highest_items() -> None:
    run = told(*[rt_d(9_999 - at, f"r_{at}", 0, "A") for at in range(300)])
    assert [item["id"] for item in run.output] == [f"r_{at}" for at in reversed(range(300))]


def test_an_id_that_is_longer_than_any_is_none() -> None:
    """It would stand in every event of the item: one long id and short deltas would write gigabytes."""
    run = told(added(0, "message", "m" * 100_000), *[ot_d(0, None, 0, "A")] * 100, ot_d(0, "x" * 513, 0, "A"))
    assert run.output[0]["content"] == [text_part("A" * 101)]
    assert len(run.output[0]["id"]) < 64
    assert max(len(encode(event.body)) for event in run.events) < 500


# --- lines and framing ---


@pytest.mark.parametrize(
    "line",
    [b"data: " + b"x" * (20 << 20), b": " + b"x" * (20 << 20), b"x" * (20 << 20), b"data: x\n" * (3 << 20)],
    ids=["data", "a comment", "no field", "data without end"],
)
def test_a_line_of_twenty_megabytes_ends_the_stream_as_soon_as_it_is_too_long(line: bytes) -> None:
    decoder, fed = AnswerDecoder(16 << 20), 0
    with suppress(EventTooLarge):
        while fed < len(line):
            decoder.feed(line[fed : fed + (1 << 16)])
            fed += 1 << 16
    assert (15 << 20) < fed <= (19 << 20)  # line ends are not counted


@pytest.mark.parametrize("tick", [b": keep-alive\n\n", b"event: x\nid: 7\n\n", b"\n", b"retry: 5\r\n", b"datum\n"])
def test_an_endless_stream_of_nothing_keeps_nothing(tick: bytes) -> None:
    decoder = SseDecoder(1000)
    for _ in range(5_000):
        assert decoder.feed(tick) == []
    assert held(decoder) < 2_000


def test_one_byte_at_a_time() -> None:
    wires = [ot_d(0, "m", 0, "Aé北"), done(0, message("m", "Aé北")), terminal()]
    stream = framed(wires)
    bytewise = read(stream, range(1, len(stream)))
    assert [event for events in bytewise for event in events] == [
        event for events in read(stream, []) for event in events
    ]


# --- streams without end ---

BIG = "x" * 5_000


def each(*makers: Callable[[int], Any]) -> Iterator[Any]:
    return (make(at) for at in count() for make in makers)


def after(first: Sequence[Wire], then: Iterator[Any]) -> Iterator[Any]:
    yield from first
    yield from then


def under(item_id: str) -> Callable[[int], Wire]:
    return lambda at: {"type": "acme:tick", "item_id": item_id, "n": at}


ENDLESS: dict[str, tuple[str, Callable[[], Iterator[Any]]]] = {
    "deltas": ("max_item_bytes", lambda: each(lambda _: ot_d(0, "m", 0, "x"))),
    "deltas of white space": ("max_item_bytes", lambda: each(lambda _: ot_d(0, "m", 0, " "))),
    "deltas of a call without a name": ("max_item_bytes", lambda: each(lambda _: fa_d(0, "f", "x"))),
    "deltas above a gap": ("max_item_bytes", lambda: each(lambda _: rt_d(7, "r", 3, "x"))),
    "empty deltas": (NEVER, lambda: each(lambda _: ot_d(0, "m", 0, ""))),
    "empty deltas with log probabilities": (
        "max_item_bytes",
        lambda: each(lambda _: ot_d(0, "m", 0, "", logprobs=LOGPROBS)),
    ),
    "deltas with large unknown fields": (NEVER, lambda: each(lambda _: {**ot_d(0, "m", 0, ""), "x": BIG})),
    "deltas under new ids": ("max_response_bytes", lambda: each(lambda at: rt_d(0, f"r_{at}", 0, ""))),
    "late deltas": (NEVER, lambda: after([ot_D(0, "m", 0, "A")], each(lambda _: ot_d(0, "m", 0, "x")))),
    "deltas that could be of several": (
        NEVER,
        lambda: after([rt_d(0, "a", 0, ""), rt_d(1, "b", 0, "")], each(lambda _: rt_d(None, None, 0, "x"))),
    ),
    "whole texts": (NEVER, lambda: each(lambda at: ot_D(0, "m", 0, str(at)))),
    "parts": ("max_parts", lambda: each(lambda at: rt_d(0, "r", at % 10_000, ""))),
    "parts, the last first": ("max_parts", lambda: each(lambda at: rt_d(0, "r", 9_999 - at % 10_000, ""))),
    "parts without a number": (
        "max_parts",
        lambda: each(lambda _: {"type": "response.reasoning_part.done", "output_index": 0, "part": thought("")}),
    ),
    "items": ("max_items", lambda: each(lambda at: added(at % 10_000, "message", f"m_{at}"))),
    "items without an index": ("max_items", lambda: each(lambda at: done(None, reasoning(f"r_{at}")))),
    "items of one index": ("max_items", lambda: each(lambda at: done(0, reasoning(f"r_{at}", str(at))))),
    "items of unknown types": ("max_items", lambda: each(lambda at: done(None, {"type": f"acme:{at}"}))),
    "large items": (
        "max_response_bytes",
        lambda: each(lambda at: done(None, {"type": "acme:x", "id": f"{at}", "x": BIG})),
    ),
    "messages of white space": ("max_items", lambda: each(lambda at: done(None, message(f"m_{at}", " ")))),
    "calls": ("max_items", lambda: each(lambda at: done(None, call(f"f_{at}", "{}")))),
    "one finished item": (NEVER, lambda: each(lambda _: done(0, reasoning("r", "A")))),
    "one finished item, each time another": (NEVER, lambda: each(lambda at: done(0, reasoning("r", str(at))))),
    "announcements of one item": (NEVER, lambda: each(lambda at: added(0, "reasoning", "r", **{f"k{at}": 1}))),
    "annotations": ("max_response_bytes", lambda: each(lambda _: annotation(0, "m", 0, {}))),
    "malformed items": (NEVER, lambda: each(lambda _: done(0, {"type": "message", "content": 5}))),
    "unknown events": ("max_response_bytes", lambda: each(lambda at: {"type": "acme:tick", "n": at})),
    "large unknown events": ("max_response_bytes", lambda: each(lambda _: {"type": "acme:tick", "x": BIG})),
    "unknown events of an item that waits": (
        "max_response_bytes",
        lambda: after([added(0, "message", "m")], each(under("m"))),
    ),
    "unknown events of an item that is told": (
        "max_response_bytes",
        lambda: after([ot_d(0, "m", 0, "A")], each(under("m"))),
    ),
    "unknown events of no item": (NEVER, lambda: each(under("nobody"))),
    "events that say nothing": (
        NEVER,
        lambda: each(lambda _: {"type": "response.in_progress", "response": {"x": BIG}}),
    ),
    "garbage": (NEVER, lambda: each(lambda at: [None, [], {}, "x", {"type": at}, {"type": "x"}][at % 6])),
}


@pytest.mark.parametrize(("over", "stream"), ENDLESS.values(), ids=ENDLESS.keys())
@pytest.mark.parametrize("reads", [1, 64])
def test_what_never_ends_is_bounded(over: str, stream: Callable[[], Iterator[Any]], reads: int) -> None:
    accumulator, passed = Accumulator(limits=LIMITS), None
    events = iter(stream())
    told_bytes, biggest = 0, 0
    try:
        for _ in range(60_000 // reads if over != NEVER else 3_000 // reads):
            said = accumulator.feed([normalize(wire) for wire in islice(events, reads)])
            told_bytes += sum(len(encode(event.wire())) for event in said)
            biggest = max(biggest, accumulator.kept_bytes)
    except OverLimit as limit:
        passed = limit.setting
    assert passed == (None if over == NEVER else over)
    assert biggest <= LIMITS.max_response_bytes
    assert held(accumulator) < 25 * LIMITS.max_response_bytes
    # A delta of one byte is an event of 200: what is told is bounded by what is kept.
    assert told_bytes < 300 * LIMITS.max_response_bytes
    Run([[normalize(wire) for wire in islice(stream(), 2_000)]], limits=LIMITS)


def held(thing: object) -> int:
    """Bytes of what an object holds, each thing once: a count, so the same on every run."""
    seen: set[int] = set()
    left, total = [thing], 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        total += one.__sizeof__()
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            left += one
        else:
            left += vars(one).values() if hasattr(one, "__dict__") else ()
            left += [getattr(one, name) for name in _slots(type(one)) if hasattr(one, name)]
    return total


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        yield from [names] if isinstance(names, str) else names


def test_what_is_held_is_counted() -> None:
    text = Text(kind=None, number=0)  # type: ignore[arg-type]  # no matter which
    before = held(text)
    text.append("x" * 10_000, [{"a": "y" * 10_000}])
    assert 20_000 < held(text) - before < 22_000


# --- one event that is many ---


@pytest.mark.parametrize(
    "wire",
    [
        done(0, reasoning("r", *[""] * 100_000)),
        terminal(output=[reasoning("r", *[""] * 100_000)]),
        terminal(output=[reasoning(f"r_{at}") for at in range(50_000)]),
        done(0, {**message("m", ""), "content": [text_part("")] * 100_000}),
    ],
    ids=["parts of an item", "parts of the end", "items of the end", "parts of a message"],
)
def test_one_event_tells_no_more_than_the_limits_allow(wire: Wire) -> None:
    limits = Limits(16 << 20, 64 << 20, max_items=1_000, max_parts=10_000)
    run = Run([[read_event(encode(wire))]], limits=limits)
    assert run.over in {"max_items", "max_parts"}
    assert len(run.events) < 3 * 1_000


# --- what the fuzzer found ---

FOUND: dict[str, tuple[list[Wire], dict[str, Any]]] = {
    "a finished item that says in_progress has ended": (
        [done(0, {"type": "reasoning", "id": "r", "status": "in_progress"}), ot_d(1, "m", 0, "A")],
        {"status": "completed"},
    ),
    "a snapshot that says in_progress, of a finished item without a status": (
        [
            done(0, {"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "n", "input": ""}),
            terminal(
                "completed",
                [{"type": "custom_tool_call", "id": "c", "status": "in_progress"}, reasoning("r", "A")],
            ),
        ],
        {"status": None},
    ),
    "a text that was told whole stands against its part": (
        [rt_D(0, "r", 0, "whole"), {"type": "response.reasoning_part.done", "output_index": 0, "part": thought("")}],
        {"content": [thought("whole")]},
    ),
    "a text that was told whole, and another in the snapshot: the part that is told is the text that was told": (
        [rt_D(0, "r", 0, "told"), terminal(output=[reasoning("r", "other")])],
        {"content": [thought("other")]},
    ),
    "reasoning goes on after the upstream's own summary has ended": (
        [rt_d(0, "r", 0, "a"), rs_D(0, "r", 0, "s"), rt_d(0, "r", 0, "b")],
        {"content": [thought("ab")], "summary": [summed("s")]},
    ),
    "a summary whose part nobody knows": (
        [rt_d(0, "r", 0, "a"), done(0, {"type": "reasoning", "id": "r", "summary": [{"type": "acme:part"}]})],
        {"content": [thought("a")], "summary": [{"type": "acme:part"}]},
    ),
    "an id with a space": ([rt_d(0, "r s", 0, "a")], {"id": "r s"}),
}


@pytest.mark.parametrize("mirror", [False, True], ids=["plain", "mirrored"])
@pytest.mark.parametrize(("wires", "fields"), FOUND.values(), ids=FOUND.keys())
def test_found(wires: list[Wire], fields: dict[str, Any], mirror: bool) -> None:
    run = Run([[normalize(wire)] for wire in wires], mirror=mirror)
    assert {key: run.output[0].get(key) for key in fields} == fields


def test_a_text_that_changes_is_counted() -> None:
    wires, _ = FOUND["a text that was told whole stands against its part"]
    assert dict(told(*wires).skipped) == {"text_changed": 1}


def test_garbage_is_never_an_event() -> None:
    for raw in (b"", b"[DONE]", b"null", b"1e999", b"\0", b"{", b'{"type":', b"\xff" * 300, b'{"type":"x"}' * 30):
        assert isinstance(read_event(raw), Skipped)
