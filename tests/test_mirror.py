"""Reasoning told as a summary too: legal streams, one part an item, and nothing of it in what is stored."""

from collections.abc import Sequence

import pytest

from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.fold import fold
from shared.mirror import mirrored
from shared.normalize import normalize
from stories import EOF, STORIES
from stream_rules import check
from wire import Wire, done, ot_d, reasoning, rs_d, rt_d, summed, terminal, thought

T = terminal()
ADDED = "response.reasoning_summary_part.added"
DELTA = "response.reasoning_summary_text.delta"
DONE = "response.reasoning_summary_text.done"
PART = "response.reasoning_summary_part.done"


def tell(story: Sequence[Wire | None], reads: int = 1, *, mirror: bool = True) -> tuple[list[PublicEvent], list[Wire]]:
    accumulator = Accumulator(mirror=mirror)
    events: list[PublicEvent] = []
    wires = [wire for wire in story if wire is not EOF]
    for at in range(0, len(wires), reads):
        events += accumulator.feed(map(normalize, wires[at : at + reads]))
    return events + accumulator.fail(), accumulator.output


def shown(events: list[PublicEvent]) -> list[Wire]:
    return [event.body["item"] for event in events if event.type == "response.output_item.done"]


@pytest.mark.parametrize("reads", [1, 100])
@pytest.mark.parametrize("story", [row.upstream for row in STORIES.values()], ids=STORIES.keys())
def test_every_story_is_stored_as_without_a_mirror_and_seen_with_one(story: Sequence[Wire | None], reads: int) -> None:
    plain, output = tell(story, reads, mirror=False)
    events, stored = tell(story, reads)
    assert stored == output
    check(events, [mirrored(item) for item in output])
    saved = [event.stored or event.body["item"] for event in events if event.type == "response.output_item.done"]
    assert saved == shown(plain)
    others = [event.type for event in plain if "summary" not in event.type]
    assert [event.type for event in events if "summary" not in event.type] == others


@pytest.mark.parametrize("story", [row.upstream for row in STORIES.values()], ids=STORIES.keys())
def test_a_log_cut_after_any_append_is_closed_legally(story: Sequence[Wire | None]) -> None:
    """What one read brings is appended as one, so a delta never stands there without its reflection."""
    accumulator = Accumulator(mirror=True)
    log: list[PublicEvent] = []
    for wire in story:
        folded = fold(log, Accumulator(mirror=True))
        assert folded.next_sequence_number == len(log)
        check([*log, *folded.fail()], [mirrored(item) for item in folded.output])
        log += accumulator.feed([normalize(wire)]) if wire is not EOF else accumulator.fail()


WHAT = {
    "one text": (
        [rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 0, "b"), done(0, reasoning("rs_1", "ab")), T],
        [(ADDED, ""), (DELTA, "a"), (DELTA, "b"), (DONE, "ab"), (PART, "ab")],
        [summed("ab")],
    ),
    "two texts are one part": (
        [rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 1, "b"), done(0, reasoning("rs_1", "a", "b")), T],
        [(ADDED, ""), (DELTA, "a"), (DELTA, "\nb"), (DONE, "a\nb"), (PART, "a\nb")],
        [summed("a\nb")],
    ),
    "only the whole item came": (
        [done(0, reasoning("rs_1", "a")), T],
        [(ADDED, ""), (DELTA, "a"), (DONE, "a"), (PART, "a")],
        [summed("a")],
    ),
    "the upstream's own summary first": (
        [rs_d(0, "rs_1", 0, "s"), rt_d(0, "rs_1", 0, "a"), done(0, reasoning("rs_1", "a", summary=[summed("s")])), T],
        [(ADDED, ""), (DELTA, "s"), (DONE, "s"), (PART, "s")],
        [summed("s")],
    ),
    "the upstream's own summary after": (
        [rt_d(0, "rs_1", 0, "a"), rs_d(0, "rs_1", 0, "s"), done(0, reasoning("rs_1", "a", summary=[summed("s")])), T],
        [(ADDED, ""), (DELTA, "a"), (DONE, "s"), (PART, "s")],
        [summed("s")],
    ),
    "the upstream's own summary at the end": (
        [rt_d(0, "rs_1", 0, "a"), done(0, reasoning("rs_1", "a", summary=[summed("s"), summed("t")])), T],
        [(ADDED, ""), (DELTA, "a"), (DONE, "s"), (PART, "s")],
        [summed("s"), summed("t")],
    ),
    "the upstream's own summary in two parts, and no end of the item": (
        [rt_d(0, "rs_1", 0, "a"), rs_d(0, "rs_1", 0, "s"), rs_d(0, "rs_1", 1, "t"), T],
        [(ADDED, ""), (DELTA, "a"), (DONE, "s"), (PART, "s")],
        [summed("s"), summed("t")],
    ),
    "cut": (
        [rt_d(0, "rs_1", 0, "a"), EOF],
        [(ADDED, ""), (DELTA, "a"), (DONE, "a"), (PART, "a")],
        [summed("a")],
    ),
    "no reasoning": ([ot_d(0, "msg_1", 0, "A"), T], [], None),
    "reasoning that says nothing": ([done(0, reasoning("rs_1", "")), T], [], []),
}


@pytest.mark.parametrize("story", [story for story, *_ in WHAT.values()], ids=WHAT.keys())
def test_what_is_told_may_be_cut_too(story: list[Wire | None]) -> None:
    test_a_log_cut_after_any_append_is_closed_legally(story)


@pytest.mark.parametrize(("story", "told", "summary"), WHAT.values(), ids=WHAT.keys())
def test_what_is_told(story: list[Wire | None], told: list[tuple[str, str]], summary: list[Wire] | None) -> None:
    events, output = tell(story)
    check(events, [mirrored(item) for item in output])
    of_summaries = [event for event in events if "summary" in event.type]
    said = [event.body.get("delta", event.body.get("text", event.body.get("part"))) for event in of_summaries]
    texts = [one["text"] if isinstance(one, dict) else one for one in said]
    assert list(zip([event.type for event in of_summaries], texts, strict=True)) == told
    assert shown(events)[0].get("summary") == summary


def test_only_reasoning_without_a_summary_is_mirrored() -> None:
    for item in (
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "A"}]},
        {"type": "reasoning", "id": "r", "summary": [summed("s")], "content": [thought("a")]},
        {"type": "reasoning", "id": "r", "summary": [], "content": []},
        {"type": "reasoning", "id": "r", "summary": [], "content": None},
        {"type": "reasoning", "id": "r", "summary": [], "content": [thought("")]},
        {"type": "reasoning", "id": "r", "summary": None, "encrypted_content": "x"},
    ):
        assert mirrored(item) is item
    for empty in ([], None):
        item = {"type": "reasoning", "id": "r", "summary": empty, "content": [thought("a")]}
        assert mirrored(item) == {**item, "summary": [summed("a")]}
