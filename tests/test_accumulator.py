"""Every rule of accumulation as rows: literal upstream events in, whole items and public events out."""

import itertools
import random
from dataclasses import dataclass
from typing import Any

import pytest

from records import record
from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.fold import fold
from shared.json_codec import decode, encode
from shared.normalize import normalize
from shared.record import Ending
from shared.response import Status
from stories import ADD_FC, ADD_MSG, ADD_RS, BLANK, EOF, FC, LOGPROB, LOGPROB_B, RS, STORIES, URL, Story, T
from stream_rules import check, told
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
    part_added,
    part_done,
    reasoning,
    rs_d,
    rt_D,
    rt_d,
    summed,
    terminal,
    text_part,
    thought,
)


@dataclass
class Told:
    """What came of a story."""

    accumulator: Accumulator
    events: list[PublicEvent]

    @property
    def output(self) -> list[Wire]:
        return self.accumulator.output

    @property
    def types(self) -> list[str]:
        return [event.type.removeprefix("response.") for event in self.events]

    def bodies(self, event_type: str) -> list[Wire]:
        return [event.body for event in self.events if event.type == f"response.{event_type}"]


def tell(*story: Wire | None, reads: int = 1) -> Told:
    """The story through an accumulator, `reads` events a read; what comes out is legal and folds back."""
    accumulator = Accumulator()
    events: list[PublicEvent] = []
    wires = [wire for wire in story if wire is not EOF]
    for at in range(0, len(wires), reads):
        events += accumulator.feed(map(normalize, wires[at : at + reads]))
    if accumulator.ending is None:
        assert story[-1] is EOF, "a story must say how it ends"
        events += accumulator.fail()
    check(events, accumulator.output)
    folded = fold(events)
    assert folded.output == accumulator.output
    assert folded.next_sequence_number == accumulator.next_sequence_number
    return Told(accumulator, events)


@pytest.mark.parametrize("row", STORIES.values(), ids=STORIES.keys())
def test_stories(row: Story) -> None:
    """The whole result: what subscribers are told, the items, the response, and the faults that are counted."""
    came = tell(*row.upstream)
    ending = came.accumulator.ending
    assert ending is not None
    assert "  ".join([*map(told, came.events), ending.status.upper()]) == row.told
    assert came.output == row.output
    assert dict(came.accumulator.skipped) == row.skipped
    response = record().ended(Ending(Status(ending.status)), came.output).response()
    assert (response["status"], response["output"]) == (ending.status, row.output)
    assert decode(encode(response)) == response


@pytest.mark.parametrize("reads", [2, 1000])
@pytest.mark.parametrize("row", STORIES.values(), ids=STORIES.keys())
def test_reads_of_several_events_give_the_same_items(row: Story, reads: int) -> None:
    assert tell(*row.upstream, reads=reads).output == row.output


def test_the_whole_stream_of_a_thought_an_answer_and_a_call() -> None:
    told = tell(
        added(0, "reasoning", "rs_1", summary=[], content=None, encrypted_content=None, status="in_progress"),
        rt_d(0, "rs_1", 0, "x"),
        added(1, "message", "msg_1", role="assistant", content=[], status="in_progress", phase=None),
        part_added(1, "msg_1", 0, {**text_part(""), "logprobs": []}),
        ot_d(1, "msg_1", 0, "A", logprobs=[]),
        ot_D(1, "msg_1", 0, "A", logprobs=[]),
        done(0, {**RS, "content": [thought("x")], "encrypted_content": None}),
        added(
            2, "function_call", "fc_1", call_id="call_1", name="add", arguments="", caller=None, status="in_progress"
        ),
        fa_d(2, "fc_1", "{}"),
        T,
    )
    part = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    thinking = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    opening = {"id": "rs_1", "type": "reasoning", "summary": [], "content": None, "encrypted_content": None}
    final = {**RS, "content": [thought("x")], "encrypted_content": None}
    assert [(event.type, event.body) for event in told.events] == [
        ("response.output_item.added", {"output_index": 0, "item": {**opening, "status": "in_progress"}}),
        ("response.content_part.added", {**thinking, "part": thought("")}),
        ("response.reasoning_text.delta", {**thinking, "delta": "x"}),
        (
            "response.output_item.added",
            {"output_index": 1, "item": {**message("msg_1", ""), "status": "in_progress", "content": []}},
        ),
        ("response.content_part.added", {**part, "part": {**text_part(""), "logprobs": []}}),
        ("response.output_text.delta", {**part, "delta": "A", "logprobs": []}),
        ("response.output_text.done", {**part, "text": "A", "logprobs": []}),
        ("response.reasoning_text.done", {**thinking, "text": "x"}),
        ("response.content_part.done", {**thinking, "part": thought("x")}),
        ("response.output_item.done", {"output_index": 0, "item": final}),
        (
            "response.output_item.added",
            {"output_index": 2, "item": {**FC, "status": "in_progress", "caller": None}},
        ),
        ("response.function_call_arguments.delta", {"item_id": "fc_1", "output_index": 2, "delta": "{}"}),
        ("response.content_part.done", {**part, "part": text_part("A")}),
        (
            "response.function_call_arguments.done",
            {"item_id": "fc_1", "output_index": 2, "arguments": "{}", "name": "add"},
        ),
        ("response.output_item.done", {"output_index": 1, "item": message("msg_1", "A")}),
        ("response.output_item.done", {"output_index": 2, "item": {**call("fc_1", "{}"), "caller": None}}),
    ]
    assert told.output == [final, message("msg_1", "A"), {**call("fc_1", "{}"), "caller": None}]


def fed(accumulator: Accumulator, *wires: Wire) -> list[tuple[str, Wire]]:
    return [(event.type.removeprefix("response."), event.body) for event in accumulator.feed(map(normalize, wires))]


def kinds(accumulator: Accumulator, *wires: Wire) -> list[str]:
    return [name for name, _ in fed(accumulator, *wires)]


def test_item_done_waits_for_the_next_event_its_texts_do_not() -> None:
    accumulator = Accumulator()
    kinds(accumulator, ADD_MSG, ot_d(0, "msg_1", 0, "A"))
    assert kinds(accumulator, done(0, message("msg_1", "A"))) == ["output_text.done", "content_part.done"]
    assert kinds(accumulator, {"type": "response.in_progress"}, {"type": 7}) == []
    assert kinds(accumulator, done(0, message("msg_1", "A")), ot_d(0, "msg_1", 0, "late")) == []
    assert accumulator.output == []
    assert kinds(accumulator, {**ADD_RS, "output_index": 1}) == ["output_item.done", "output_item.added"]
    assert accumulator.output == [message("msg_1", "A")]


def test_an_unknown_event_lets_item_done_go_first() -> None:
    accumulator = Accumulator()
    kinds(accumulator, done(0, RS))
    assert kinds(accumulator, {"type": "acme:tick"}) == ["output_item.done", "acme:tick"]


def test_an_unknown_event_of_the_item_that_is_just_done_goes_before_its_done() -> None:
    accumulator = Accumulator()
    kinds(accumulator, done(0, {"id": "mcp_1", "type": "mcp_call", "status": "completed"}))
    late = {"type": "response.mcp_call.completed", "output_index": 0, "item_id": "mcp_1"}
    assert kinds(accumulator, late, T) == ["mcp_call.completed", "output_item.done"]


def test_blank_text_is_held_back_and_comes_with_the_first_visible_character() -> None:
    accumulator = Accumulator()
    assert kinds(accumulator, ADD_MSG, part_added(0, "msg_1", 0, text_part("")), ot_d(0, "msg_1", 0, "\n")) == []
    assert kinds(accumulator, ot_d(0, "msg_1", 0, " ")) == []
    events = fed(accumulator, ot_d(0, "msg_1", 0, "A"))
    assert [name for name, _ in events] == ["output_item.added", "content_part.added", "output_text.delta"]
    assert events[2][1]["delta"] == "\n A"
    assert fed(accumulator, ot_d(0, "msg_1", 0, "\n")) == [("output_text.delta", {**events[2][1], "delta": "\n"})]


def test_what_follows_a_blank_message_waits_until_the_message_is_over() -> None:
    accumulator = Accumulator()
    assert kinds(accumulator, ADD_MSG, ot_d(0, "msg_1", 0, "\n"), {**ADD_FC, "output_index": 1}) == []
    assert kinds(accumulator, fa_d(1, "fc_1", "{"), done(0, BLANK)) == []
    assert fed(accumulator, fa_d(1, "fc_1", "}")) == [
        ("output_item.added", {"output_index": 0, "item": {**FC, "status": "in_progress"}}),
        ("function_call_arguments.delta", {"item_id": "fc_1", "output_index": 0, "delta": "{"}),
        ("function_call_arguments.delta", {"item_id": "fc_1", "output_index": 0, "delta": "}"}),
    ]


def test_a_dropped_message_takes_no_index_and_hears_nothing_more() -> None:
    accumulator = Accumulator()
    kinds(accumulator, done(0, BLANK), {**ADD_FC, "output_index": 1})
    assert kinds(accumulator, ot_d(0, "msg_1", 0, "late")) == []
    assert accumulator.skipped == {"late": 1}


def test_a_higher_slot_waits_for_the_lower_ones() -> None:
    accumulator = Accumulator()
    assert kinds(accumulator, {**ADD_MSG, "output_index": 1}, ot_d(1, "msg_1", 0, "A")) == []
    events = fed(accumulator, ADD_RS)
    assert [(name, body["output_index"]) for name, body in events] == [
        ("output_item.added", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1),
    ]


def test_a_higher_part_waits_for_the_lower_ones() -> None:
    accumulator = Accumulator()
    kinds(accumulator, ADD_RS)
    assert kinds(accumulator, rt_d(0, "rs_1", 1, "b"), rt_D(0, "rs_1", 1, "b")) == []
    events = fed(accumulator, rt_d(0, "rs_1", 0, "a"))
    assert [(name, body["content_index"]) for name, body in events] == [
        ("content_part.added", 0),
        ("content_part.added", 1),
        ("reasoning_text.delta", 1),
        ("reasoning_text.done", 1),
        ("reasoning_text.delta", 0),
    ]


def test_a_counter_that_runs_across_items_holds_nothing_up() -> None:
    accumulator = Accumulator()
    kinds(accumulator, done(0, reasoning("rs_1", "x")), {**ADD_MSG, "output_index": 1})
    events = fed(accumulator, ot_d(1, "msg_1", 1, "A"))
    assert [(name, body.get("content_index")) for name, body in events] == [
        ("output_item.done", None),
        ("output_item.added", None),
        ("content_part.added", 0),
        ("output_text.delta", 0),
    ]


def test_a_call_is_announced_when_it_can_be_named() -> None:
    accumulator = Accumulator()
    assert kinds(accumulator, fa_d(0, "fc_1", "{"), fa_d(0, "fc_1", "}")) == []
    events = fed(accumulator, ADD_FC)
    assert [name for name, _ in events] == ["output_item.added", "function_call_arguments.delta"]
    assert events[0][1]["item"] == {**FC, "status": "in_progress"}
    assert events[1][1]["delta"] == "{}"


def test_deltas_of_one_read_become_one() -> None:
    accumulator = Accumulator()
    kinds(accumulator, ADD_RS, {**ADD_MSG, "output_index": 1}, ot_d(1, "msg_1", 0, "A"))
    events = fed(
        accumulator,
        ot_d(1, "msg_1", 0, "a"),
        ot_d(1, "msg_1", 0, "b", logprobs=[]),
        ot_d(1, "msg_1", 0, "c", logprobs=[LOGPROB]),
        ot_d(1, "msg_1", 0, "d"),
        rt_d(0, "rs_1", 0, "e"),
        ot_d(1, "msg_1", 0, "f"),
    )
    assert [body["delta"] for _, body in events if "delta" in body] == ["ab", "c", "d", "e", "f"]
    assert [body["delta"] for _, body in fed(accumulator, ot_d(1, "msg_1", 0, "g"))] == ["g"]


def test_logprobs_of_held_text_come_with_it() -> None:
    accumulator = Accumulator()
    kinds(accumulator, ADD_MSG, ot_d(0, "msg_1", 0, "\n", logprobs=[LOGPROB]))
    events = fed(accumulator, ot_d(0, "msg_1", 0, "B", logprobs=[LOGPROB_B]))
    assert events[2][1] == {
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "\nB",
        "logprobs": [LOGPROB, LOGPROB_B],
    }


def test_logprobs_and_annotations_are_in_every_closing_event() -> None:
    told = tell(
        ADD_MSG,
        ot_d(0, "msg_1", 0, "A", logprobs=[LOGPROB]),
        annotation(0, "msg_1", 0, URL, annotation_index=7),
        ot_D(0, "msg_1", 0, "A", logprobs=[]),
        part_done(0, "msg_1", 0, {**text_part("A"), "logprobs": []}),
        T,
    )
    whole = {**text_part("A"), "logprobs": [LOGPROB], "annotations": [URL]}
    assert [body["annotation_index"] for body in told.bodies("output_text.annotation.added")] == [0]
    assert told.bodies("output_text.done")[0]["logprobs"] == [LOGPROB]
    assert told.bodies("content_part.done")[0]["part"] == whole
    assert told.output[0]["content"] == [whole]


def test_a_part_that_done_shows_as_another_kind_ends_as_it_streamed() -> None:
    refusal = {"type": "refusal", "refusal": "No"}
    told = tell(ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, {**message("msg_1", ""), "content": [refusal]}), T)
    assert told.bodies("content_part.done")[0]["part"] == text_part("A")
    assert told.output[0]["content"] == [refusal]


def test_an_event_is_given_only_the_names_that_it_had() -> None:
    told = tell(
        added(3, "acme:x", "s_1"), {"type": "acme:a", "output_index": 3}, {"type": "acme:b", "item_id": "s_1"}, T
    )
    assert told.bodies("output_item.added")[0]["output_index"] == 0
    assert [event.body for event in told.events if event.type.startswith("acme")] == [
        {"output_index": 0},
        {"item_id": "s_1"},
    ]


def test_hosted_calls_events_carry_the_first_id_and_our_index() -> None:
    told = tell(
        added(4, "mcp_call", "mcp_1", status="in_progress"),
        {"type": "response.mcp_call.in_progress", "output_index": 4, "item_id": "mcp_1", "sequence_number": 9},
        {"type": "response.mcp_call.completed", "output_index": 4, "item_id": "mcp_2", "extra": None},
        terminal(output=[{"id": "mcp_3", "type": "mcp_call", "status": "completed"}]),
    )
    assert told.types == ["output_item.added", "mcp_call.in_progress", "mcp_call.completed", "output_item.done"]
    assert told.bodies("mcp_call.completed") == [{"output_index": 0, "item_id": "mcp_1", "extra": None}]
    assert told.output == [{"id": "mcp_1", "type": "mcp_call", "status": "completed"}]


def test_upstream_numbers_mean_nothing() -> None:
    numbered = [ADD_MSG, ot_d(0, "msg_1", 0, "A"), ot_d(0, "msg_1", 0, "B"), ot_d(0, "msg_1", 0, "C"), T]
    told = tell(*({**wire, "sequence_number": n} for wire, n in zip(numbered, [-1, None, 7, 1, 1], strict=True)))
    assert [event.sequence_number for event in told.events] == list(range(len(told.events)))


def test_numbers_go_on_from_where_they_are_told_to() -> None:
    accumulator = Accumulator(5)
    assert accumulator.number("response.in_progress", {"response": {}}).sequence_number == 5
    assert [event.sequence_number for event in accumulator.feed([normalize(ADD_RS)])] == [6]
    assert accumulator.next_sequence_number == 7


def test_items_without_any_id_get_one_of_ours() -> None:
    told = tell(
        done(0, {k: v for k, v in reasoning("x", "y").items() if k != "id"}),
        ot_d(1, None, 0, "A"),
        done(2, {k: v for k, v in FC.items() if k != "id"}),
        T,
    )
    assert [(item["type"], item["id"].partition("_")[0], len(item["id"]) > 40) for item in told.output] == [
        ("reasoning", "rs", True),
        ("message", "msg", True),
        ("function_call", "fc", True),
    ]


# --- the end ---


ENDS: dict[str, tuple[Wire, str, Wire | None]] = {
    "completed": (terminal("completed"), "completed", None),
    "completed, but its status says incomplete": (terminal("incomplete"), "incomplete", None),
    "completed, but its status says failed": (terminal("failed"), "failed", {"code": None, "type": None}),
    "done": ({"type": "response.done", "response": {}}, "completed", None),
    "incomplete without a response": ({"type": "response.incomplete"}, "incomplete", None),
    "failed": (
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "secret"}}},
        "failed",
        {"code": "server_error", "type": None},
    ),
    "failed, but its status says cancelled": (
        {"type": "response.failed", "response": {"status": "cancelled", "error": None}},
        "cancelled",
        None,
    ),
    "error": ({"type": "error", "code": 500, "message": "secret"}, "failed", {"code": 500, "type": None}),
}


@pytest.mark.parametrize(("wire", "status", "error"), ENDS.values(), ids=ENDS.keys())
def test_how_it_ended(wire: Wire, status: str, error: Wire | None) -> None:
    ending = tell(ot_d(0, "msg_1", 0, "A"), wire).accumulator.ending
    assert ending is not None
    assert (ending.status, ending.error) == (status, error)


def test_the_terminal_event_tells_usage_details_and_tier() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "output_tokens_details": {"extra": [1]}}
    details = {"reason": "max_output_tokens"}
    wire = terminal("incomplete", usage=usage, incomplete_details=details, service_tier="default")
    ending = tell(wire).accumulator.ending
    assert ending is not None
    assert ending.usage == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"extra": [1], "reasoning_tokens": 0},
        "total_tokens": 7,
    }
    assert (ending.incomplete_details, ending.service_tier) == (details, "default")


def test_nothing_is_read_after_the_end() -> None:
    accumulator = Accumulator()
    accumulator.feed(map(normalize, [T, done(0, message("msg_1", "A")), terminal("incomplete")]))
    assert accumulator.feed([normalize(done(0, message("msg_1", "A")))]) == []
    assert accumulator.fail({"code": "server_error"}) == []
    assert accumulator.output == []
    assert accumulator.ending is not None
    assert accumulator.ending.status == "completed"


def test_fail_says_how_and_why() -> None:
    accumulator = Accumulator()
    accumulator.feed([normalize(ot_d(0, "msg_1", 0, "A"))])
    events = accumulator.fail({"code": "x"})
    assert [event.type for event in events][-1] == "response.output_item.done"
    assert accumulator.ending is not None
    assert (accumulator.ending.status, accumulator.ending.error) == ("failed", {"code": "x"})
    cancelled = Accumulator()
    cancelled.fail(status="cancelled")
    assert cancelled.ending is not None
    assert (cancelled.ending.status, cancelled.ending.error) == ("cancelled", None)


# --- faults are counted, never fatal ---

SKIPPED: dict[str, tuple[list[Any], Wire]] = {
    "no object": ([None, [], "x", 7], {"not_an_object": 4}),
    "no type": ([{}, {"type": None}, {"type": ["a"]}, {"type": 3}], {"no_type": 4}),
    "bad index": ([added(-1, "message", "m"), {**rt_d(0, "rs_1", 0, "x"), "content_index": "0"}], {"bad_index": 2}),
    "malformed done": ([done(0, 3)], {"malformed_item": 1}),
    "late for the text": ([ADD_RS, rt_D(0, "rs_1", 0, "x"), rt_d(0, "rs_1", 0, "y")], {"late": 1}),
    "an unknown event of a finished item": (
        [done(0, RS), done(1, message("msg_1", "A")), {"type": "acme:tick", "output_index": 0}],
        {"late": 1},
    ),
    "which item": (
        [ADD_FC, {**ADD_FC, "output_index": 1, "item": call("fc_2", "")}, fa_d(None, None, "x")],
        {"ambiguous": 1},
    ),
    "which done": (
        [ADD_FC, {**ADD_FC, "output_index": 1, "item": call("fc_2", "")}, done(None, {**FC, "id": None})],
        {"ambiguous": 1},
    ),
    "which text": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 1, "b"), rt_d(0, "rs_1", None, "c")],
        {"ambiguous": 1},
    ),
    "an unknown event that would look like an error": (
        [{"type": "acme:tick", "error": {"a": 1}}],
        {"unfit_to_forward": 1},
    ),
    "what every stream holds": (
        [{"type": f"response.{name}"} for name in ("created", "queued", "in_progress")] + [{"type": "keepalive"}],
        {},
    ),
}


@pytest.mark.parametrize(("wires", "skipped"), SKIPPED.values(), ids=SKIPPED.keys())
def test_skipped(wires: list[Any], skipped: Wire) -> None:
    accumulator = Accumulator()
    accumulator.feed(map(normalize, wires))
    assert dict(accumulator.skipped) == skipped


@pytest.mark.parametrize("text", ["x" * 1000, "é" * 500, "北" * 333 + "x"])
def test_kept_bytes_do_not_depend_on_the_cuts(text: str) -> None:
    sizes = []
    for cut in (1, 7, 1000):
        accumulator = Accumulator()
        for at in range(0, len(text), cut):
            accumulator.feed([normalize(ot_d(0, "msg_1", 0, text[at : at + cut]))])
        sizes.append(accumulator.kept_bytes)
    assert sizes == [1000] * 3


def test_kept_bytes_of_finished_items() -> None:
    accumulator = Accumulator()
    accumulator.feed(map(normalize, [done(0, {"id": "s_1", "type": "acme:s", "blob": "x" * 1000}), T]))
    assert 1000 < accumulator.kept_bytes < 1100


KEPT_BYTES: dict[str, tuple[list[Wire], int]] = {
    "a text's done counts instead of its deltas": ([ot_d(0, "msg_1", 0, "A"), ot_D(0, "msg_1", 0, "ABC")], 3),
    "an item whose done is held": ([done(0, message("msg_1", "ABC"))], len(encode(message("msg_1", "ABC")))),
    "a message that was dropped": (
        [done(0, BLANK), {**ADD_FC, "output_index": 1}, fa_d(1, "fc_1", "{}")],
        len(encode(ADD_FC["item"])) + 2,
    ),
}


@pytest.mark.parametrize(("wires", "kept"), KEPT_BYTES.values(), ids=KEPT_BYTES.keys())
def test_kept_bytes(wires: list[Wire], kept: int) -> None:
    accumulator = Accumulator()
    accumulator.feed(map(normalize, wires))
    assert accumulator.kept_bytes == kept


# --- sweeps ---

SIX = [
    ADD_RS,
    rt_d(0, "rs_1", 0, "a"),
    rt_d(0, "rs_1", 0, "b"),
    rs_d(0, "rs_1", 0, "s"),
    done(0, reasoning("rs_1", "ab", summary=[summed("s")], encrypted_content="Q==")),
    done(1, message("msg_1", "A")),
]


@pytest.mark.parametrize("end", [T, terminal("incomplete"), EOF], ids=["completed", "incomplete", "cut"])
def test_every_subset_of_a_stream_is_legal(end: Wire | None) -> None:
    for kept in itertools.product([False, True], repeat=len(SIX)):
        story = [wire for wire, keep in zip(SIX, kept, strict=True) if keep]
        told = tell(*story, end)  # checks numbers, ids, indices, order, and that the log folds back
        types = [item["type"] for item in told.output]
        assert types == ["reasoning"] * any(kept[:5]) + ["message"] * kept[5]
        if kept[4]:
            cut = end is not T and not kept[5]
            assert told.output[0] == {**SIX[4]["item"], "status": "incomplete" if cut else "completed"}
        elif any(kept[:4]):
            text = "a" * kept[1] + "b" * kept[2]
            assert told.output[0].get("content", []) == ([thought(text)] if text else [])
            assert told.output[0]["summary"] == [summed("s")] * kept[3]


def test_every_order_of_a_stream_is_legal() -> None:
    for story in itertools.permutations(SIX):
        told = tell(*story, T)
        assert {item["id"] for item in told.output} == {"rs_1", "msg_1"}
        assert [item for item in told.output if item["type"] == "reasoning"] == [SIX[4]["item"]]


def test_every_story_cut_anywhere_is_legal() -> None:
    for row in STORIES.values():
        for cut in range(len(row.upstream)):
            tell(*row.upstream[:cut], EOF)


ODD: list[Any] = [None, True, -1, 1.5, "", "x", [], ["x"], {}, {"type": []}, [None], 3, 10**30]


def test_odd_values_anywhere_break_nothing() -> None:
    dice = random.Random(7)  # the same stories on every run

    def odd(value: Any) -> Any:
        if isinstance(value, dict) and value and dice.random() < 0.9:
            key = dice.choice(list(value))
            return {**value, key: odd(value[key])}
        if isinstance(value, list) and value and dice.random() < 0.7:
            at = dice.randrange(len(value))
            return [*value[:at], odd(value[at]), *value[at + 1 :]]
        return dice.choice(ODD)

    stories = [row.upstream for row in STORIES.values()]
    for _ in range(1000):
        story = [odd(wire) if dice.random() < 0.5 else wire for wire in dice.choice(stories) if wire is not EOF]
        tell(*story, EOF)
