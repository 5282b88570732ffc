"""Faults of upstreams and gateways that people reported in public, each as a small input with the right outcome.

`STREAMS`: what an upstream sends, what subscribers see, what is stored, and the next turn's upstream input. `BYTES`:
the same from bytes. `HISTORIES`: what goes upstream after stored turns. `ELSEWHERE` names the tests of what needs a
Redis or a socket. Names begin with the number under which the fault was filed.
"""

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from shared.accumulator import Accumulator
from shared.errors import InvalidRequest
from shared.events import PublicEvent, log_entry, sse_frame
from shared.fold import fold
from shared.history import Turn, item_history
from shared.items import input_items
from shared.json_codec import decode, encode
from shared.normalize import normalize
from shared.replay import ReplayPolicy, upstream_body
from shared.response import Status
from stream_rules import check
from wire import (
    Wire,
    added,
    annotation,
    call,
    done,
    fa_D,
    message,
    ot_d,
    part_added,
    part_done,
    reasoning,
    rs_d,
    rt_d,
    summed,
    terminal,
    text_part,
    thought,
)
from workers.answers import AnswerDecoder, NoAnswer
from workers.sse import EventTooLarge

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
MORE = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]}
LOGPROB = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
URL = {"type": "url_citation", "url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1}
MCP = {"id": "mcp_1", "type": "mcp_call", "name": "add", "arguments": "{}", "server_label": "s", "output": "3"}

#: What every message and reasoning text with deltas looks like from outside, but for the ends of the item.
MESSAGE = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
THOUGHT = ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]


def item(index: int, *texts: str) -> list[str]:
    """Events of one item as `line` writes them."""
    return [f"{name} {index}" for name in ("output_item.added", *texts, "output_item.done")]


def line(event: PublicEvent) -> str:
    return f"{event.type.removeprefix('response.')} {event.body.get('output_index', '-')}"


@dataclass(frozen=True)
class Row:
    """`seen`: types and output indices of the public events.

    `sent`: what the next turn sends of the output, None where that turn is refused.
    """

    story: Sequence[Wire]
    seen: list[str]
    output: list[Wire]
    sent: list[Wire] | None
    status: str = "completed"
    skipped: dict[str, int] = field(default_factory=dict)


RS_X = reasoning("rs_1", "x")
MSG_A = message("msg_1", "A")
STREAMS: dict[str, Row] = {
    "B01 one part counter for all items": Row(
        [
            added(0, "reasoning", "rs_1"),
            {"type": "response.reasoning_part.added", "output_index": 0, "item_id": "rs_1", "content_index": 0},
            rt_d(0, "rs_1", 0, "x"),
            added(1, "message", "msg_1"),
            part_added(1, "msg_1", 1, text_part("")),
            ot_d(1, "msg_1", 1, "A"),
            terminal(),
        ],
        [
            *("output_item.added 0", "content_part.added 0", "reasoning_text.delta 0"),
            *("output_item.added 1", "content_part.added 1", "output_text.delta 1"),
            *("reasoning_text.done 0", "content_part.done 0", "output_text.done 1", "content_part.done 1"),
            *("output_item.done 0", "output_item.done 1"),
        ],
        [RS_X, MSG_A],
        [RS_X, MSG_A],
    ),
    "B02 no done events for the last message": Row(
        [
            added(0, "message", "msg_1"),
            part_added(0, "msg_1", 0, text_part("")),
            ot_d(0, "msg_1", 0, "A"),
            terminal(output=[MSG_A]),
        ],
        item(0, *MESSAGE),
        [MSG_A],
        [MSG_A],
    ),
    "B04 no item was announced": Row(
        [
            {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "A"},
            terminal(
                output=[
                    {"id": "msg_1", "type": "message", "role": "assistant"}
                    | {"content": [{"type": "output_text", "text": "A"}]}
                ]
            ),
        ],
        item(0, *MESSAGE),
        [MSG_A],
        [MSG_A],
    ),
    "B05 one index for all, a new reasoning id on every delta": Row(
        [
            {"type": "response.reasoning_text.delta", "item_id": "rs_1", "output_index": 0, "delta": "x"},
            {"type": "response.reasoning_text.delta", "item_id": "rs_b", "output_index": 0, "delta": "y"},
            {"type": "response.reasoning_text.delta", "item_id": "rs_c", "output_index": 0, "delta": "z"},
            added(0, "message", "msg_1"),
            {"type": "response.output_text.delta", "item_id": "msg_9", "output_index": 0, "delta": "A"},
            done(0, MSG_A),
            terminal(output=[reasoning("rs_z", "xyz"), message("msg_z", "A")]),
        ],
        [
            *("output_item.added 0", "content_part.added 0", *["reasoning_text.delta 0"] * 3),
            *("output_item.added 1", "content_part.added 1", "output_text.delta 1"),
            *("output_text.done 1", "content_part.done 1", "reasoning_text.done 0", "content_part.done 0"),
            *("output_item.done 0", "output_item.done 1"),
        ],
        [reasoning("rs_1", "xyz"), MSG_A],
        [reasoning("rs_1", "xyz"), MSG_A],
    ),
    "B05 one index for two calls that nobody announced": Row(
        [
            done(0, call("fc_1", "{}")),
            fa_D(0, "fc_2", '{"a":1}'),
            done(0, call("fc_2", '{"a":1}', call_id="call_2")),
            terminal(output=[]),
        ],
        [*item(0, "function_call_arguments.done"), *item(1, "function_call_arguments.done")],
        [call("fc_1", "{}"), call("fc_2", '{"a":1}', call_id="call_2")],
        [call("fc_1", "{}"), call("fc_2", '{"a":1}', call_id="call_2")],
        skipped={"late": 1},
    ),
    "B07 three ids for one hosted call": Row(
        [
            added(0, "mcp_call", "mcp_1", name="add", server_label="s", arguments="{}"),
            {"type": "response.mcp_call.completed", "output_index": 0, "item_id": "mcp_2"},
            terminal(output=[{**MCP, "id": "mcp_3"}]),
        ],
        item(0, "mcp_call.completed"),
        [MCP],
        [
            {"type": "function_call", "call_id": "mcp_1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "mcp_1", "output": "3"},
        ],
    ),
    "B08 sequence numbers 0, 1, 2, null, 1": Row(
        [
            {**wire, "sequence_number": number}
            for wire, number in zip(
                [
                    {"type": "response.created", "response": {}},
                    added(0, "message", "msg_1"),
                    ot_d(0, "msg_1", 0, "A"),
                    done(0, MSG_A),
                    terminal(output=[MSG_A]),
                ],
                [0, 1, 2, None, 1],
                strict=True,
            )
        ],
        item(0, *MESSAGE),
        [MSG_A],
        [MSG_A],
    ),
    "B09 no text done": Row(
        [
            added(0, "message", "msg_1"),
            part_added(0, "msg_1", 0, text_part("")),
            ot_d(0, "msg_1", 0, "A"),
            part_done(0, "msg_1", 0, text_part("A")),
            done(0, MSG_A),
            terminal(output=[MSG_A]),
        ],
        item(0, *MESSAGE),
        [MSG_A],
        [MSG_A],
    ),
    "B10 completed, and incomplete inside": Row(
        [
            ot_d(0, "msg_1", 0, "A"),
            done(0, MSG_A),
            terminal("incomplete", [MSG_A], incomplete_details={"reason": "max_output_tokens"}),
        ],
        item(0, *MESSAGE),
        [{**MSG_A, "status": "incomplete"}],
        [MSG_A],
        status="incomplete",
    ),
    "B12 nothing at all, completed": Row(
        [terminal(output=[], usage={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, max_output_tokens=1)],
        [],
        [],
        [],
    ),
    "B13 arguments in their done only": Row(
        [
            added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
            fa_D(0, "fc_1", '{"a":5,"b":7}'),
            done(0, call("fc_1", '{"a":5,"b":7}')),
            terminal(output=[]),
        ],
        item(0, "function_call_arguments.done"),
        [call("fc_1", '{"a":5,"b":7}')],
        [call("fc_1", '{"a":5,"b":7}')],
    ),
    "B14 interleaved, finished out of order": Row(
        [
            added(0, "reasoning", "rs_1"),
            added(1, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
            {**fa_D(1, "fc_1", ""), "type": "response.function_call_arguments.delta", "delta": '{"c":1}'},
            done(1, call("fc_1", '{"c":1}')),
            done(0, {"id": "rs_1", "type": "reasoning", "summary": [], "content": [thought("x")]}),
            terminal(),
        ],
        [
            *("output_item.added 0", "output_item.added 1", "function_call_arguments.delta 1"),
            *("function_call_arguments.done 1", "content_part.added 0", "reasoning_text.done 0"),
            *("content_part.done 0", "output_item.done 0", "output_item.done 1"),
        ],
        [
            {"id": "rs_1", "type": "reasoning", "summary": [], "content": [thought("x")]},
            call("fc_1", '{"c":1}'),
        ],
        [RS_X, call("fc_1", '{"c":1}')],
    ),
    "B15 in its done and in the terminal event": Row(
        [done(0, MSG_A), terminal(output=[MSG_A])],
        item(0, "content_part.added", "output_text.done", "content_part.done"),
        [MSG_A],
        [MSG_A],
    ),
    "B17 summary_index 0 beside content_index 0": Row(
        [rs_d(0, "rs_1", 0, "why"), ot_d(1, "msg_1", 0, "A"), terminal()],
        [
            *("output_item.added 0", "reasoning_summary_part.added 0", "reasoning_summary_text.delta 0"),
            *("output_item.added 1", "content_part.added 1", "output_text.delta 1"),
            *("reasoning_summary_text.done 0", "reasoning_summary_part.done 0"),
            *("output_text.done 1", "content_part.done 1", "output_item.done 0", "output_item.done 1"),
        ],
        [{"id": "rs_1", "type": "reasoning", "summary": [summed("why")], "status": "completed"}, MSG_A],
        [MSG_A],
    ),
    "B19 reasoning in content, summary empty": Row(
        [done(0, RS_X), terminal(output=[RS_X])],
        item(0, "content_part.added", "reasoning_text.done", "content_part.done"),
        [RS_X],
        [RS_X],
    ),
    "B20 logprobs and annotations that the done has lost": Row(
        [
            added(0, "message", "msg_1"),
            ot_d(0, "msg_1", 0, "A", logprobs=[LOGPROB]),
            annotation(0, "msg_1", 0, URL),
            part_done(0, "msg_1", 0, {**text_part("A"), "logprobs": []}),
            done(0, {**MSG_A, "content": [{**text_part("A"), "logprobs": []}]}),
            terminal(output=[{**MSG_A, "content": [{**text_part("A"), "logprobs": []}]}]),
        ],
        item(0, *MESSAGE[:2], "output_text.annotation.added", *MESSAGE[2:]),
        [{**MSG_A, "content": [{**text_part("A"), "logprobs": [LOGPROB], "annotations": [URL]}]}],
        [MSG_A],
    ),
    "B21 empty arguments after a call with {}": Row(
        [
            added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
            done(0, call("fc_1", "{}")),
            added(1, "function_call", "fc_2", call_id="call_2", name="add", arguments=""),
            fa_D(1, "fc_2", ""),
            done(1, call("fc_2", "", call_id="call_2")),
            terminal(),
        ],
        [*item(0, "function_call_arguments.done"), *item(1, "function_call_arguments.done")],
        [call("fc_1", "{}"), call("fc_2", "", call_id="call_2")],
        [call("fc_1", "{}"), call("fc_2", "", call_id="call_2")],
    ),
    "B22 an error event": Row(
        [
            {"type": "response.output_text.delta", "delta": "A", "item_id": "msg_1"},
            {"type": "error", "code": "server_error", "message": "engine died"},
        ],
        item(0, *MESSAGE),
        [{**MSG_A, "status": "incomplete"}],
        None,
        status="failed",
    ),
    "B22 a failed response": Row(
        [ot_d(0, "msg_1", 0, "A"), {"type": "response.failed", "response": {"status": "failed", "error": None}}],
        item(0, *MESSAGE),
        [{**MSG_A, "status": "incomplete"}],
        None,
        status="failed",
    ),
    "B22 the stream just ends": Row(
        [ot_d(0, "msg_1", 0, "A")],
        item(0, *MESSAGE),
        [{**MSG_A, "status": "incomplete"}],
        None,
        status="failed",
    ),
    "B36 a chat completion": Row(
        [{"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"reasoning_content": "x"}}]}],
        [],
        [],
        None,
        status="failed",
        skipped={"no_type": 1},
    ),
    "B36 Open Responses' names of reasoning": Row(
        [
            added(0, "reasoning", "rs_1"),
            {**rt_d(0, "rs_1", 0, "x"), "type": "response.reasoning.delta"},
            {"type": "response.reasoning.done", "output_index": 0, "item_id": "rs_1", "content_index": 0, "text": "x"},
            terminal(),
        ],
        item(0, *THOUGHT),
        [RS_X],
        [RS_X],
    ),
    "B48 another id in created and completed": Row(
        [
            {"type": "response.created", "response": {"id": "resp_a", "status": "in_progress", "output": []}},
            ot_d(0, "msg_1", 0, "A"),
            terminal(output=[message("msg_2", "A")], id="resp_b"),
        ],
        item(0, *MESSAGE),
        [MSG_A],
        [MSG_A],
    ),
}


def next_input(*turns: Turn, new: Sequence[Wire] = (MORE,)) -> list[Wire]:
    body = upstream_body({"model": "tiny"}, item_history(turns), new, seed=1, policy=ReplayPolicy())
    sent: list[Wire] = body["input"]
    return sent


def turn(number: int, new: list[Wire], output: list[Wire], status: Status = Status.COMPLETED) -> Turn:
    return Turn(f"resp_{number}", status, new, output)


@pytest.mark.parametrize("row", STREAMS.values(), ids=STREAMS.keys())
def test_streams(row: Row) -> None:
    accumulator = Accumulator()
    events = [event for wire in row.story for event in accumulator.feed([normalize(wire)])]
    events += accumulator.fail()
    check(events, accumulator.output)
    assert [line(event) for event in events] == row.seen
    assert accumulator.output == row.output
    assert [decode(encode(item)) for item in accumulator.output] == row.output
    assert fold(events).output == row.output
    assert dict(accumulator.skipped) == row.skipped
    assert accumulator.ending is not None
    assert accumulator.ending.status == row.status
    if accumulator.ending.usage:
        details = [accumulator.ending.usage[f"{way}_tokens_details"] for way in ("input", "output")]
        assert details == [{"cached_tokens": 0, "cache_write_tokens": 0}, {"reasoning_tokens": 0}]
    before = turn(1, [USER], accumulator.output, Status(row.status))
    if row.sent is None:
        with pytest.raises(InvalidRequest):
            next_input(before)
    else:
        assert next_input(before) == [USER, *row.sent, MORE]


# --- bytes ---


def delta(text: str) -> bytes:
    return b'data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"%b"}\n\n' % text.encode()


END = b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n'
CHARACTER = delta("北")
CUT = CHARACTER.index("北".encode()) + 2
TRACE = "x" * 300 * 1024

#: name: (the reads, the one message's text)
BYTES: dict[str, tuple[list[bytes], str]] = {
    "B24 U+2028, U+2029 and U+0085 inside JSON": ([delta("a\u2028b\u2029c\u0085d") + END], "a\u2028b\u2029c\u0085d"),
    "B26 a character cut by two reads": ([CHARACTER[:CUT], CHARACTER[CUT:], END], "北"),
    "B27 a line of 300 KiB": ([delta(TRACE)[at : at + 65536] for at in range(0, 5 * 65536, 65536)] + [END], TRACE),
    "B31 no space after data:, and [DONE]": ([delta("a").replace(b": {", b":{"), END, b"data:[DONE]\n\n"], "a"),
    "B31 no [DONE]": ([delta("a"), END], "a"),
}


@pytest.mark.parametrize(("reads", "text"), BYTES.values(), ids=BYTES.keys())
def test_bytes(reads: list[bytes], text: str) -> None:
    decoder, accumulator = AnswerDecoder(1 << 20), Accumulator()
    events = [event for read in reads for event in accumulator.feed(decoder.feed(read))]
    accumulator.feed(decoder.end())
    check(events, accumulator.output)
    assert accumulator.output == [message("msg_1", text)]
    assert not accumulator.skipped
    assert accumulator.ending is not None
    assert accumulator.ending.status == "completed"


def test_b27_a_line_over_the_limit_is_an_error_at_once() -> None:
    with pytest.raises(EventTooLarge):
        AnswerDecoder(1 << 10).feed(delta(TRACE)[:2000])


def test_b28_a_line_of_20_mb_is_read_in_linear_time() -> None:
    raw = delta("x" * 20_000_000) + END
    decoder, events = AnswerDecoder(32 << 20), []
    started = time.process_time()
    for at in range(0, len(raw), 65536):
        events += decoder.feed(raw[at : at + 65536])
    assert time.process_time() - started < 2  # it was 105 s
    assert [len(getattr(event, "delta", "")) for event in events] == [20_000_000, 0]


@pytest.mark.parametrize("row", STREAMS.values(), ids=STREAMS.keys())
def test_b29_no_frame_of_ours_has_an_id(row: Row) -> None:
    """A client that has seen an `id:` takes every blank line for an event, and the keep-alive's comment has one."""
    accumulator = Accumulator()
    for event in accumulator.feed(map(normalize, row.story)):
        fields = sse_frame(event.sequence_number, log_entry(event)).split(b"\n")
        assert [name.partition(b":")[0] for name in fields] == [b"event", b"data", b"", b""]


# --- what goes upstream after stored turns ---

CALL_1 = call("fc_1", '{"city":"Rome"}')
OUTPUT_1 = {"type": "function_call_output", "call_id": "call_1", "output": "22C"}
NULLS = {"status": None, "content": None, "encrypted_content": None}
#: Reasoning of which only a blob is there, and of which a blob is there too.
SEALED = {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "gAAA"}
READABLE = {**SEALED, "content": [thought("x")]}

#: name: (turns before, new input, what goes up)
HISTORIES: dict[str, tuple[list[Turn], list[Wire], list[Wire]]] = {
    "B33 a call and its output over three turns": (
        [turn(1, [USER], [RS_X, CALL_1]), turn(2, [OUTPUT_1], [MSG_A])],
        [MORE],
        [USER, RS_X, CALL_1, OUTPUT_1, MSG_A, MORE],
    ),
    "B34 reasoning stands where it stood": (
        [turn(1, [USER], [RS_X, MSG_A])],
        [MORE],
        [USER, RS_X, MSG_A, MORE],
    ),
    "B37 reasoning without its call": ([], [USER, RS_X, MORE], [USER, RS_X, MORE]),
    "B38 a message without its reasoning": ([], [USER, MSG_A, MORE], [USER, MSG_A, MORE]),
    "B40 items that are held already": (
        [turn(1, [USER], [RS_X, CALL_1])],
        [RS_X, {**CALL_1, "status": None}, OUTPUT_1],
        [USER, RS_X, CALL_1, OUTPUT_1],
    ),
    "B41 items without ids stand twice": (
        [turn(1, [USER], [MSG_A])],
        [USER, {"role": "assistant", "content": "A"}, MORE],
        [USER, MSG_A, USER, {key: value for key, value in MSG_A.items() if key != "id"}, MORE],
    ),
    "B42 an inline item is not looked up": ([], [READABLE, USER], [{**RS_X, "id": "rs_x"}, USER]),
    "B43 nulls on every optional field": (
        [],
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], **NULLS, "content": [thought("x")]},
            {**CALL_1, "status": None, "namespace": None, "id": None},
            {**OUTPUT_1, "status": None, "id": None},
        ],
        [RS_X, {key: value for key, value in CALL_1.items() if key != "id"}, OUTPUT_1],
    ),
    "B45 an output alone": ([turn(1, [USER], [CALL_1])], [OUTPUT_1], [USER, CALL_1, OUTPUT_1]),
}


@pytest.mark.parametrize(("turns", "new", "sent"), HISTORIES.values(), ids=HISTORIES.keys())
def test_histories(turns: list[Turn], new: list[Wire], sent: list[Wire]) -> None:
    assert input_items(new) == new
    assert next_input(*turns, new=new) == sent


def test_b40_the_same_id_with_other_content_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="fc_1"):
        next_input(turn(1, [USER], [CALL_1]), new=[{**CALL_1, "arguments": '{"city":"Oslo"}'}, OUTPUT_1])


def test_b42_reasoning_that_only_its_maker_can_read_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="rs_x"):
        next_input(new=[SEALED, USER])


# --- an upstream that answers in JSON ---


def test_b36_a_chat_completion_in_json_is_no_answer() -> None:
    decoder = AnswerDecoder(1 << 20)
    decoder.feed(encode({"object": "chat.completion", "choices": [{"message": {"reasoning_content": "x"}}]}))
    with pytest.raises(NoAnswer):
        decoder.end()


# --- elsewhere ---

#: What needs a Redis, a socket or a client, and the test that holds it.
ELSEWHERE = {
    "B22 the turn's error, in every mode": "test_e2e_errors.test_table",
    "B23 every stream ends, also a replayed one": "test_e2e_cursors.test_every_cursor_gives_exactly_the_rest",
    "B29 with the real client": "test_e2e_dialects.test_comments_while_a_request_waits",
    "B30 something is sent while a request waits": "test_e2e_dialects.test_comments_while_a_request_waits",
    "B33 over Redis": "test_e2e_main_job.test_a_function_call_and_its_output_over_three_turns",
    "B34 over Redis": "test_e2e_continuation.test_the_upstream_request_of_a_second_and_a_third_turn",
    "B35 one shape everywhere": "test_e2e_main_job.test_a_stream_and_what_is_stored_are_one",
    "B40 over Redis": "test_e2e_continuation.test_resent_items_are_not_doubled_and_changed_ones_are_refused",
    "B42 over Redis": "test_e2e_continuation.test_encrypted_only_reasoning_is_refused_before_any_upstream_request",
    "B48 one id": "test_e2e_main_job.test_a_stream_and_what_is_stored_are_one",
}


@pytest.mark.parametrize("where", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_elsewhere(where: str) -> None:
    module, _, name = where.partition(".")
    assert callable(getattr(importlib.import_module(module), name))
