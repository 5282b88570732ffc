"""What an upstream tells, what subscribers are told, and what is stored: every rule of accumulation as rows.

The rules themselves stand in `docs/rules.md`, which names these rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
    rf_d,
    rs_D,
    rs_d,
    rt_D,
    rt_d,
    summary_part_added,
    summed,
    terminal,
    text_part,
    thought,
)

EOF: Final = None  # stands last in a story that ends without a terminal event
T = terminal()
ADD_RS = added(0, "reasoning", "rs_1", summary=[], status="in_progress")
ADD_MSG = added(0, "message", "msg_1", role="assistant", content=[], status="in_progress")
ADD_FC = added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments="", status="in_progress")
RS = {"id": "rs_1", "type": "reasoning", "summary": [], "status": "completed"}
FC = call("fc_1", "")
LOGPROB = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
LOGPROB_B = {"token": "B", "logprob": -0.2, "bytes": [66], "top_logprobs": []}
URL = {"type": "url_citation", "url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1}
BLANK = message("msg_1", "\n\n")


@dataclass(frozen=True)
class Story:
    """`upstream`: the wire events, one a read. `told`: the public events, as `stream_rules.told` writes them, and last
    the status that the response ends with. `output`: the items, in the response and in the store. `skipped`: faults.
    """

    upstream: Sequence[Any]
    told: str
    output: list[Wire]
    skipped: dict[str, int] = field(default_factory=dict)


STORIES: dict[str, Story] = {
    # --- identity and order ---
    "done under another id: the first one stays": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, message("msg_2", "A")), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "terminal under another id: the first one stays": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_3", "A")])],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "no output_index: by id": Story(
        [added(None, "message", "msg_1"), ot_d(None, "msg_1", 0, "A"), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "no output_index: the lowest free slot": Story(
        [added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), rt_d(None, "rs_1", 0, "x"), T],
        (
            '0+reasoning(rs_1)  1+message(msg_1)  1c0+output_text  1c0"A"  0c0+reasoning_text  0c0"x"  '
            '0c0="x"  0c0.  1c0="A"  1c0.  0.completed  1.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("x")]}, message("msg_1", "A")],
    ),
    "every id that came with an item leads to it": Story(
        [rt_d(0, "rs_1", 0, "x"), rt_d(0, "rs_2", 0, "y"), rt_d(None, "rs_2", 0, "z"), T],
        ('0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  0c0"y"  0c0"z"  0c0="xyz"  0c0.  0.completed  COMPLETED'),
        [{**RS, "content": [thought("xyz")]}],
    ),
    "no index and no id: the only open item of the type": Story(
        [ADD_MSG, ot_d(None, None, None, "A"), ot_d(None, None, None, "B"), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0"B"  0c0="AB"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "AB")],
    ),
    "no index and no id, two open items: nothing is guessed": Story(
        [
            ADD_FC,
            added(1, "function_call", "fc_2", call_id="call_2", name="sub", arguments=""),
            fa_d(None, None, "1"),
            fa_d(0, "fc_1", "2"),
            T,
        ],
        ('0+function_call(fc_1)  1+function_call(fc_2)  0"2"  0="2"  1=""  0.completed  1.completed  COMPLETED'),
        [call("fc_1", "2"), call("fc_2", "", call_id="call_2", name="sub")],
        {"ambiguous": 1},
    ),
    "an index that is none binds nothing": Story(
        [
            added(-1, "message", "msg_1"),
            added("0", "message", "msg_2"),  # type: ignore[arg-type]
            added(1.5, "message", "msg_3"),  # type: ignore[arg-type]
            added(True, "message", "msg_4"),
            added(10_000, "message", "msg_5"),
            done(0, message("msg_6", "A")),
            T,
        ],
        '0+message(msg_6)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_6", "A")],
        {"bad_index": 5},
    ),
    "finished out of order": Story(
        [
            ADD_RS,
            added(1, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
            fa_d(1, "fc_1", "{}"),
            done(1, call("fc_1", "{}")),
            done(0, reasoning("rs_1", "x")),
            T,
        ],
        (
            '0+reasoning(rs_1)  1+function_call(fc_1)  1"{}"  1="{}"  0c0+reasoning_text  0c0="x"  0c0.  '
            "0.completed  1.completed  COMPLETED"
        ),
        [reasoning("rs_1", "x"), call("fc_1", "{}")],
    ),
    "announced out of order": Story(
        [added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), rt_d(0, "rs_1", 0, "x"), T],
        (
            '0+reasoning(rs_1)  1+message(msg_1)  1c0+output_text  1c0"A"  0c0+reasoning_text  0c0"x"  '
            '0c0="x"  0c0.  1c0="A"  1c0.  0.completed  1.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("x")]}, message("msg_1", "A")],
    ),
    "gaps close": Story(
        [added(3, "message", "msg_1"), ot_d(3, "msg_1", 0, "A"), done(7, reasoning("rs_1", "x")), T],
        (
            '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  1+reasoning(rs_1)  '
            '1c0+reasoning_text  1c0="x"  1c0.  1.completed  COMPLETED'
        ),
        [message("msg_1", "A"), reasoning("rs_1", "x")],
    ),
    "interleaved": Story(
        [
            ADD_RS,
            added(1, "message", "msg_1"),
            rt_d(0, "rs_1", 0, "x"),
            ot_d(1, "msg_1", 0, "A"),
            rt_d(0, "rs_1", 0, "y"),
            ot_d(1, "msg_1", 0, "B"),
            T,
        ],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  1+message(msg_1)  1c0+output_text  1c0"A"  '
            '0c0"y"  1c0"B"  0c0="xy"  0c0.  1c0="AB"  1c0.  0.completed  1.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("xy")]}, message("msg_1", "AB")],
    ),
    "done alone": Story(
        [done(1, message("msg_1", "A")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "reasoning done alone, with all it has": Story(
        [done(0, reasoning("rs_1", "x", summary=[summed("s")], encrypted_content="Q==", extra={"a": None})), T],
        (
            '0+reasoning(rs_1)  0s0+summary_text  0s0="s"  0s0.  0c0+reasoning_text  0c0="x"  0c0.  '
            "0.completed  COMPLETED"
        ),
        [reasoning("rs_1", "x", summary=[summed("s")], encrypted_content="Q==", extra={"a": None})],
    ),
    "terminal alone": Story(
        [terminal(output=[message("msg_1", "A")])],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "text done alone": Story(
        [ot_D(0, "msg_1", 0, "A"), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "part added alone": Story(
        [part_added(0, "rs_1", 0, thought("")), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0=""  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("")]}],
    ),
    "part done alone": Story(
        [part_done(0, "msg_1", 0, text_part("A")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "no id anywhere but in the item's item_id": Story(
        [done(0, {"item_id": "msg_1", **{k: v for k, v in message("x", "A").items() if k != "id"}}), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "closing events missing": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "content_index starts at 1": Story(
        [ADD_MSG, ot_d(0, "msg_1", 1, "A"), ot_d(0, "msg_1", 1, "B"), T],
        '0+message(msg_1)  0c0+output_text  0c0"AB"  0c0="AB"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "AB")],
    ),
    "summary_index starts at 3": Story(
        [ADD_RS, rs_d(0, "rs_1", 3, "s"), T],
        '0+reasoning(rs_1)  0s0+summary_text  0s0"s"  0s0="s"  0s0.  0.completed  COMPLETED',
        [{**RS, "summary": [summed("s")]}],
    ),
    "an event for a finished item": Story(
        [ADD_MSG, done(0, message("msg_1", "A")), ot_d(0, "msg_1", 0, "late"), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"late": 1},
    ),
    "done twice, equal": Story(
        [ADD_MSG, done(0, message("msg_1", "A")), done(0, message("msg_1", "A")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "done twice, different: the first wins": Story(
        [ADD_MSG, done(0, message("msg_1", "A")), done(0, message("msg_1", "B")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"item_changed": 1},
    ),
    "one id under two indices is one item": Story(
        [done(0, message("msg_1", "A")), done(1, message("msg_1", "A")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "identity is type and id": Story(
        [
            done(0, call("x", "{}")),
            done(1, {"id": "x", "type": "function_call_output", "call_id": "call_1", "output": "5"}),
            T,
        ],
        '0+function_call(x)  0="{}"  0.completed  1+function_call_output(x)  1.-  COMPLETED',
        [call("x", "{}"), {"id": "x", "type": "function_call_output", "call_id": "call_1", "output": "5"}],
    ),
    "added under another id than the delta before it: the first one stays": Story(
        [rt_d(0, "rs_1", 0, "x"), added(0, "reasoning", "rs_2", summary=[], encrypted_content="Q=="), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  0c0="x"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("x")], "encrypted_content": "Q=="}],
    ),
    "two calls announced at one index are two calls": Story(
        [
            ADD_FC,
            added(0, "function_call", "fc_2", call_id="call_2", name="sub", arguments=""),
            fa_d(0, "fc_2", "2"),
            fa_d(0, "fc_1", "1"),
            T,
        ],
        ('0+function_call(fc_1)  1+function_call(fc_2)  1"2"  0"1"  0="1"  1="2"  0.completed  1.completed  COMPLETED'),
        [call("fc_1", "1"), call("fc_2", "2", call_id="call_2", name="sub")],
    ),
    "annotation alone": Story(
        [annotation(0, "msg_1", 0, URL), T],
        '0+message(msg_1)  0c0+output_text  0c0@0  0c0=""  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": [{**text_part(""), "annotations": [URL]}]}],
    ),
    "refusal alone": Story(
        [rf_d(0, "msg_1", 0, "No"), T],
        '0+message(msg_1)  0c0+refusal  0c0"No"  0c0="No"  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": [{"type": "refusal", "refusal": "No"}]}],
    ),
    "summary part added alone": Story(
        [summary_part_added(0, "rs_1", 0), T],
        '0+reasoning(rs_1)  0s0+summary_text  0s0=""  0s0.  0.completed  COMPLETED',
        [{**RS, "summary": [summed("")]}],
    ),
    "added after done: it is known already": Story(
        [done(0, RS), ADD_RS, T], "0+reasoning(rs_1)  0.completed  COMPLETED", [RS]
    ),
    "added twice: the first stands": Story(
        [ADD_RS, added(0, "reasoning", "rs_1", summary=[], encrypted_content="Q=="), T],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [RS],
    ),
    "reasoning done under another id: the first one stays, all else is done's": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "x"), done(0, reasoning("rs_2", "y", encrypted_content="Q==")), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  0c0="y"  0c0.  0.completed  COMPLETED',
        [reasoning("rs_1", "y", encrypted_content="Q==")],
    ),
    "content and summary count apart": Story(
        [
            ADD_RS,
            rs_d(0, "rs_1", 0, "s"),
            rt_d(0, "rs_1", 0, "a"),
            rt_d(0, "rs_1", 1, "b"),
            rs_d(0, "rs_1", 1, "t"),
            T,
        ],
        (
            '0+reasoning(rs_1)  0s0+summary_text  0s0"s"  0c0+reasoning_text  0c0"a"  0c1+reasoning_text  0c1"b"  '
            '0s1+summary_text  0s1"t"  0s0="s"  0s0.  0c0="a"  0c0.  0c1="b"  0c1.  0s1="t"  0s1.  '
            "0.completed  COMPLETED"
        ),
        [{**RS, "content": [thought("a"), thought("b")], "summary": [summed("s"), summed("t")]}],
    ),
    "reasoning done without added, after the message: at its output_index": Story(
        [
            added(1, "message", "msg_1"),
            ot_d(1, "msg_1", 0, "A"),
            done(1, message("msg_1", "A")),
            done(0, reasoning("rs_1", "x", encrypted_content="Q==")),
            T,
        ],
        (
            '0+reasoning(rs_1)  1+message(msg_1)  1c0+output_text  1c0"A"  1c0="A"  1c0.  '
            '0c0+reasoning_text  0c0="x"  0c0.  0.completed  1.completed  COMPLETED'
        ),
        [reasoning("rs_1", "x", encrypted_content="Q=="), message("msg_1", "A")],
    ),
    "an item twice in the terminal event": Story(
        [terminal(output=[message("msg_1", "A"), message("msg_1", "A")])],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "reasoning and a message as vLLM streams them": Story(
        [
            {"type": "response.created", "response": {}, "sequence_number": 0},
            {"type": "response.in_progress", "response": {}, "sequence_number": 1},
            ADD_RS,
            part_added(0, "rs_1", 0, thought("")),
            rt_d(0, "rs_1", 0, "x"),
            rt_d(0, "rs_1", 0, "y"),
            rt_D(0, "rs_1", 0, "xy"),
            part_done(0, "rs_1", 0, thought("xy")),
            done(0, reasoning("rs_1", "xy", encrypted_content=None)),
            added(1, "message", "msg_1", role="assistant", content=[], status="in_progress", phase=None),
            part_added(1, "msg_1", 0, {**text_part(""), "logprobs": []}),
            ot_d(1, "msg_1", 0, "A", logprobs=[]),
            ot_D(1, "msg_1", 0, "A", logprobs=[]),
            part_done(1, "msg_1", 0, {**text_part("A"), "logprobs": None}),
            done(1, {**message("msg_1", "A"), "phase": None}),
            terminal(
                output=[reasoning("rs_1", "xy", encrypted_content=None), {**message("msg_1", "A"), "phase": None}]
            ),
        ],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  0c0"y"  0c0="xy"  0c0.  0.completed  '
            '1+message(msg_1)  1c0+output_text  1c0"A"  1c0="A"  1c0.  1.completed  COMPLETED'
        ),
        [reasoning("rs_1", "xy", encrypted_content=None), message("msg_1", "A")],
    ),
    "other names of the same events": Story(
        [
            added(0, "reasoning", "rs_1"),
            {"type": "response.reasoning_part.added", "output_index": 0, "item_id": "rs_1", "content_index": 0},
            {**rt_d(0, "rs_1", 0, "x"), "type": "response.reasoning.delta"},
            {**rt_D(0, "rs_1", 0, "x"), "type": "response.reasoning.done"},
            {**part_done(0, "rs_1", 0, thought("x")), "type": "response.reasoning_part.done"},
            {"type": "response.done", "response": {}},
        ],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  0c0="x"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("x")]}],
    ),
    "an unknown event stays in its place and changes nothing": Story(
        [ADD_RS, {"type": "acme:tick", "n": 1, "sequence_number": 9}, rt_d(0, "rs_1", 0, "x"), T],
        ('0+reasoning(rs_1)  :acme:tick  0c0+reasoning_text  0c0"x"  0c0="x"  0c0.  0.completed  COMPLETED'),
        [{**RS, "content": [thought("x")]}],
    ),
    "an unknown event of no known item": Story(
        [{"type": "acme:tick", "output_index": 3}, T], "COMPLETED", [], {"unknown_item": 1}
    ),
    "nothing that is no event is fatal": Story(
        [ADD_MSG, [], 7, {"type": 3}, {"delta": "x"}, ot_d(0, "msg_1", 0, 5), ot_d(0, "msg_1", 0, "A"), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"not_an_object": 2, "no_type": 2, "bad_delta": 1},
    ),
    # --- reasoning ---
    "text feeds content, summary feeds summary": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "x"), rs_d(0, "rs_1", 0, "y"), T],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"x"  0s0+summary_text  0s0"y"  0c0="x"  0c0.  '
            '0s0="y"  0s0.  0.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("x")], "summary": [summed("y")]}],
    ),
    "texts by index": Story(
        [ADD_RS, rt_D(0, "rs_1", 2, "c"), rt_D(0, "rs_1", 1, "b"), rt_D(0, "rs_1", 0, "a"), T],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c1+reasoning_text  0c1="b"  0c2+reasoning_text  '
            '0c2="c"  0c0="a"  0c2.  0c1.  0c0.  0.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("a"), thought("b"), thought("c")]}],
    ),
    "summaries by index": Story(
        [ADD_RS, rs_D(0, "rs_1", 1, "b"), rs_D(0, "rs_1", 0, "a"), T],
        ('0+reasoning(rs_1)  0s0+summary_text  0s1+summary_text  0s1="b"  0s0="a"  0s1.  0s0.  0.completed  COMPLETED'),
        [{**RS, "summary": [summed("a"), summed("b")]}],
    ),
    "interleaved deltas by index": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 1, "c"), rt_d(0, "rs_1", 0, "b"), rt_d(0, "rs_1", 1, "d"), T],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c1+reasoning_text  0c1"c"  0c0"b"  0c1"d"  '
            '0c0="ab"  0c0.  0c1="cd"  0c1.  0.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("ab"), thought("cd")]}],
    ),
    "a text done twice is one part": Story(
        [ADD_RS, rt_D(0, "rs_1", 0, "a"), rt_D(0, "rs_1", 0, "a"), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"late": 1},
    ),
    "a text's done replaces its deltas, and no other's": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 1, "b"), rt_D(0, "rs_1", 0, "A"), T],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c1+reasoning_text  0c1"b"  0c0="A"  0c0.  '
            '0c1="b"  0c1.  0.completed  COMPLETED'
        ),
        [{**RS, "content": [thought("A"), thought("b")]}],
    ),
    "present content wins": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": [thought("A"), thought("B")]}), T],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="A"  0c0.  0c1+reasoning_text  0c1="B"  '
            "0c1.  0.completed  COMPLETED"
        ),
        [{**RS, "content": [thought("A"), thought("B")]}],
    ),
    "present [] wins": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": []}), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": []}],
    ),
    "present null wins": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": None}), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": None}],
    ),
    "a summary among the content is kept there and told as no text": Story(
        [ADD_RS, done(0, {**RS, "content": [summed("s")]}), T],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "content": [summed("s")]}],
    ),
    "omitted content is filled": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, RS), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
    ),
    "present summary wins": Story(
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {**RS, "summary": []}), T],
        '0+reasoning(rs_1)  0s0+summary_text  0s0"s"  0s0="s"  0s0.  0.completed  COMPLETED',
        [RS],
    ),
    "present null summary wins": Story(
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {**RS, "summary": None}), T],
        '0+reasoning(rs_1)  0s0+summary_text  0s0"s"  0s0="s"  0s0.  0.completed  COMPLETED',
        [{**RS, "summary": None}],
    ),
    "omitted summary is filled": Story(
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {"id": "rs_1", "type": "reasoning", "status": "completed"}), T],
        '0+reasoning(rs_1)  0s0+summary_text  0s0"s"  0s0="s"  0s0.  0.completed  COMPLETED',
        [{**RS, "summary": [summed("s")]}],
    ),
    "omitted fields are filled from added": Story(
        [
            added(0, "reasoning", "rs_1", summary=[], encrypted_content="Q==", extra=1),
            done(0, {**RS, "content": []}),
            T,
        ],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "content": [], "encrypted_content": "Q==", "extra": 1}],
    ),
    "omitted fields are filled from added, null or empty as they are": Story(
        [added(0, "reasoning", "rs_1", content=None, encrypted_content=None, tags=[]), done(0, RS), T],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "content": None, "encrypted_content": None, "tags": []}],
    ),
    "present encrypted_content and unknown fields win": Story(
        [
            added(0, "reasoning", "rs_1", summary=[], encrypted_content="part", extra=1),
            done(0, {**RS, "encrypted_content": "whole==", "extra": None}),
            T,
        ],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "encrypted_content": "whole==", "extra": None}],
    ),
    "added's empties are no facts": Story(
        [added(0, "reasoning", "rs_1", summary=[], content=None), rt_d(0, "rs_1", 0, "a"), rs_d(0, "rs_1", 0, "s"), T],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0s0+summary_text  0s0"s"  0c0="a"  0c0.  '
            '0s0="s"  0s0.  0.completed  COMPLETED'
        ),
        [{**RS, "summary": [summed("s")], "content": [thought("a")]}],
    ),
    "added's empties stand where nothing else came": Story(
        [added(0, "reasoning", "rs_1", summary=[], content=None, encrypted_content=None, status="in_progress"), T],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "content": None, "encrypted_content": None}],
    ),
    "reasoning keeps its nulls": Story(
        [done(0, {**RS, "content": None, "encrypted_content": None, "status": None}), T],
        "0+reasoning(rs_1)  0.null  COMPLETED",
        [{**RS, "content": None, "encrypted_content": None, "status": None}],
    ),
    "status that done omits: over, where added had one": Story(
        [ADD_RS, done(0, {"id": "rs_1", "type": "reasoning", "summary": [], "content": []}), T],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "content": []}],
    ),
    "status that nobody names is not invented": Story(
        [done(0, {"id": "rs_1", "type": "reasoning", "encrypted_content": "Q=="}), T],
        "0+reasoning(rs_1)  0.-  COMPLETED",
        [{"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "Q=="}],
    ),
    "malformed content: nothing of done is taken": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": "zz", "encrypted_content": "q"}), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"malformed_item": 1},
    ),
    "malformed: part without type": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": [{"text": "b"}]}), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"malformed_item": 1},
    ),
    "malformed: numeric status": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "status": 3, "content": []}), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"malformed_item": 1},
    ),
    "malformed: no object": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, "zz"), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"malformed_item": 1},
    ),
    "malformed and unknown: nothing": Story(
        [done(0, {"type": "reasoning", "id": "rs_1", "content": 1}), T], "COMPLETED", [], {"malformed_item": 1}
    ),
    "cut reasoning": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), EOF],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.incomplete  FAILED',
        [{**RS, "content": [thought("a")], "status": "incomplete"}],
    ),
    "cut without a status anywhere": Story(
        [rt_d(0, "rs_1", 0, "a"), EOF],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.incomplete  FAILED',
        [{**RS, "content": [thought("a")], "status": "incomplete"}],
    ),
    "incomplete: the last item, though its done says completed": Story(
        [done(0, reasoning("rs_1", "x")), done(1, message("msg_1", "A")), terminal("incomplete")],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0="x"  0c0.  0.completed  1+message(msg_1)  '
            '1c0+output_text  1c0="A"  1c0.  1.incomplete  INCOMPLETE'
        ),
        [reasoning("rs_1", "x"), message("msg_1", "A", "incomplete")],
    ),
    "incomplete: also the terminal's own items": Story(
        [terminal("incomplete", [reasoning("rs_1", "x"), message("msg_1", "A")])],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0="x"  0c0.  0.completed  1+message(msg_1)  '
            '1c0+output_text  1c0="A"  1c0.  1.incomplete  INCOMPLETE'
        ),
        [reasoning("rs_1", "x"), message("msg_1", "A", "incomplete")],
    ),
    "incomplete: a status null becomes one": Story(
        [done(0, {**RS, "status": None}), terminal("incomplete")],
        "0+reasoning(rs_1)  0.incomplete  INCOMPLETE",
        [{**RS, "status": "incomplete"}],
    ),
    "incomplete: an item that is not the last and was done stays completed": Story(
        [ADD_RS, added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), done(0, RS), terminal("incomplete")],
        (
            '0+reasoning(rs_1)  1+message(msg_1)  1c0+output_text  1c0"A"  1c0="A"  1c0.  0.completed  '
            "1.incomplete  INCOMPLETE"
        ),
        [RS, message("msg_1", "A", "incomplete")],
    ),
    "incomplete: every item without its done was cut": Story(
        [
            ADD_FC,
            fa_d(0, "fc_1", '{"a'),
            added(1, "message", "msg_1"),
            ot_d(1, "msg_1", 0, "A"),
            terminal("incomplete"),
        ],
        (
            '0+function_call(fc_1)  0"{\\"a"  1+message(msg_1)  1c0+output_text  1c0"A"  0="{\\"a"  '
            '1c0="A"  1c0.  0.incomplete  1.incomplete  INCOMPLETE'
        ),
        [call("fc_1", '{"a', status="incomplete"), message("msg_1", "A", "incomplete")],
    ),
    "cut after its done: nobody knows that it was whole": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, message("msg_1", "A")), EOF],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.incomplete  FAILED',
        [{**message("msg_1", "A"), "status": "incomplete"}],
    ),
    "a complete done after deltas: all of it, once": Story(
        [
            ADD_RS,
            rt_d(0, "rs_1", 0, "a"),
            rs_d(0, "rs_1", 0, "s"),
            done(
                0,
                reasoning(
                    "rs_1", "a", "b", summary=[summed("s"), summed("t")], encrypted_content="gAAA+/=", extra={"n": None}
                ),
            ),
            T,
        ],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0s0+summary_text  0s0"s"  0s0="s"  0s0.  '
            '0s1+summary_text  0s1="t"  0s1.  0c0="a"  0c0.  0c1+reasoning_text  0c1="b"  0c1.  '
            "0.completed  COMPLETED"
        ),
        [
            reasoning(
                "rs_1", "a", "b", summary=[summed("s"), summed("t")], encrypted_content="gAAA+/=", extra={"n": None}
            )
        ],
    ),
    "present empty encrypted_content wins": Story(
        [
            added(0, "reasoning", "rs_1", summary=[], encrypted_content="part"),
            done(0, {**RS, "encrypted_content": ""}),
            T,
        ],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [{**RS, "encrypted_content": ""}],
    ),
    "an incomplete status of done stays": Story(
        [ADD_RS, done(0, {**RS, "status": "incomplete"}), done(1, message("msg_1", "A")), T],
        ('0+reasoning(rs_1)  0.incomplete  1+message(msg_1)  1c0+output_text  1c0="A"  1c0.  1.completed  COMPLETED'),
        [{**RS, "status": "incomplete"}, message("msg_1", "A")],
    ),
    "malformed: summary no list": Story(
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {**RS, "summary": {}, "content": []}), T],
        '0+reasoning(rs_1)  0s0+summary_text  0s0"s"  0s0="s"  0s0.  0.completed  COMPLETED',
        [{**RS, "summary": [summed("s")]}],
        {"malformed_item": 1},
    ),
    "malformed: encrypted_content no text": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": [], "encrypted_content": {}}), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"malformed_item": 1},
    ),
    "malformed: content of a message": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, {**message("msg_1", "B"), "content": "B"}), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"malformed_item": 1},
    ),
    "malformed: arguments of a call": Story(
        [ADD_FC, fa_d(0, "fc_1", "{}"), done(0, {**FC, "arguments": {"a": 1}}), T],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
        {"malformed_item": 1},
    ),
    "malformed done, whole in the terminal event: it fills what is omitted": Story(
        [
            ADD_RS,
            rt_d(0, "rs_1", 0, "a"),
            done(0, {**RS, "content": "zz"}),
            terminal(output=[reasoning("rs_1", "ab", encrypted_content="Q==")]),
        ],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [reasoning("rs_1", "a", encrypted_content="Q==")],
        {"malformed_item": 1},
    ),
    "malformed in the terminal event: what streamed stands": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), terminal(output=[{**RS, "content": "zz"}])],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("a")]}],
        {"malformed_item": 1},
    ),
    "cut, with what added told": Story(
        [
            added(0, "reasoning", "rs_1", summary=[], encrypted_content="Q==", status="in_progress"),
            rt_d(0, "rs_1", 0, "a"),
            rs_d(0, "rs_1", 0, "s"),
            EOF,
        ],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0s0+summary_text  0s0"s"  0c0="a"  0c0.  '
            '0s0="s"  0s0.  0.incomplete  FAILED'
        ),
        [
            {
                **RS,
                "encrypted_content": "Q==",
                "summary": [summed("s")],
                "content": [thought("a")],
                "status": "incomplete",
            }
        ],
    ),
    # --- messages, calls, the end ---
    "two parts": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), ot_d(0, "msg_1", 1, "B"), T],
        (
            '0+message(msg_1)  0c0+output_text  0c0"A"  0c1+output_text  0c1"B"  0c0="A"  0c0.  0c1="B"  '
            "0c1.  0.completed  COMPLETED"
        ),
        [{**message("msg_1", "A"), "content": [text_part("A"), text_part("B")]}],
    ),
    "logprobs of the deltas": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A", logprobs=[LOGPROB]), ot_d(0, "msg_1", 0, "B", logprobs=[LOGPROB_B]), T],
        ('0+message(msg_1)  0c0+output_text  0c0"A"~1  0c0"B"~1  0c0="AB"~2  0c0.  0.completed  COMPLETED'),
        [{**message("msg_1", ""), "content": [{**text_part("AB"), "logprobs": [LOGPROB, LOGPROB_B]}]}],
    ),
    "logprobs of the text's done": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), ot_D(0, "msg_1", 0, "A", logprobs=[LOGPROB]), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"~1  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": [{**text_part("A"), "logprobs": [LOGPROB]}]}],
    ),
    "what part added says beside its text": Story(
        [ADD_MSG, part_added(0, "msg_1", 0, {**text_part(""), "x": 1, "y": None}), ot_d(0, "msg_1", 0, "A"), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": [{**text_part("A"), "x": 1}]}],
    ),
    "what a part's done says beside its text, null and empty too": Story(
        [ADD_MSG, part_done(0, "msg_1", 0, {**text_part("A"), "x": None, "y": []}), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": [{**text_part("A"), "x": None, "y": []}]}],
    ),
    "text of part added, and deltas: these": Story(
        [ADD_RS, part_added(0, "rs_1", 0, thought("x")), rt_d(0, "rs_1", 0, "y"), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"y"  0c0="y"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("y")]}],
    ),
    "text of part added, where nothing else came": Story(
        [ADD_RS, part_added(0, "rs_1", 0, thought("x")), T],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0="x"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("x")]}],
    ),
    "refusal": Story(
        [ADD_MSG, rf_d(0, "msg_1", 0, "N"), rf_d(0, "msg_1", 0, "o"), T],
        '0+message(msg_1)  0c0+refusal  0c0"N"  0c0"o"  0c0="No"  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": [{"type": "refusal", "refusal": "No"}]}],
    ),
    "refusal after text at one index": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), rf_d(0, "msg_1", 0, "No"), T],
        (
            '0+message(msg_1)  0c0+output_text  0c0"A"  0c1+refusal  0c1"No"  0c0="A"  0c0.  0c1="No"  '
            "0c1.  0.completed  COMPLETED"
        ),
        [{**message("msg_1", ""), "content": [text_part("A"), {"type": "refusal", "refusal": "No"}]}],
    ),
    "phase of added and of done": Story(
        [
            added(0, "message", "msg_1", phase="commentary"),
            done(0, {"id": "msg_1", "type": "message", "role": "assistant", "content": [text_part("A")]}),
            done(1, {**message("msg_2", "B"), "phase": "final_answer"}),
            T,
        ],
        (
            '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  1+message(msg_2)  '
            '1c0+output_text  1c0="B"  1c0.  1.completed  COMPLETED'
        ),
        [{**message("msg_1", "A"), "phase": "commentary"}, {**message("msg_2", "B"), "phase": "final_answer"}],
    ),
    "null phase and null logprobs are dropped": Story(
        [done(0, {**message("msg_1", ""), "phase": None, "content": [{**text_part("A"), "logprobs": None}]}), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "null logprobs of a part's done are dropped": Story(
        [part_done(0, "msg_1", 0, {**text_part("A"), "logprobs": None}), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "what the published types require is there": Story(
        [done(0, {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "A"}]}), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "present content of a message wins": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, {**message("msg_1", ""), "content": []}), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [{**message("msg_1", ""), "content": []}],
    ),
    "null content of a message says nothing": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, {**message("msg_1", ""), "content": None, "status": None}), T],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "a part of a type that we don't know stays": Story(
        [done(0, {**message("msg_1", ""), "content": [{"type": "acme:map", "x": None}, text_part("A")]}), T],
        "0+message(msg_1)  0.completed  COMPLETED",
        [{**message("msg_1", ""), "content": [{"type": "acme:map", "x": None}, text_part("A")]}],
    ),
    "arguments done alone": Story(
        [ADD_FC, fa_D(0, "fc_1", '{"a": 5}'), T],
        '0+function_call(fc_1)  0="{\\"a\\": 5}"  0.completed  COMPLETED',
        [call("fc_1", '{"a": 5}')],
    ),
    "arguments done replaces the deltas": Story(
        [ADD_FC, fa_d(0, "fc_1", '{"a"'), fa_D(0, "fc_1", '{"a": 5}'), T],
        '0+function_call(fc_1)  0"{\\"a\\""  0="{\\"a\\": 5}"  0.completed  COMPLETED',
        [call("fc_1", '{"a": 5}')],
    ),
    "empty arguments done: the deltas stand": Story(
        [ADD_FC, fa_d(0, "fc_1", "{}"), fa_D(0, "fc_1", ""), T],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "empty fields of a call's done fall back": Story(
        [ADD_FC, fa_d(0, "fc_1", "{}"), done(0, call("fc_1", "", name="", call_id="")), T],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "null fields of a call's done fall back": Story(
        [ADD_FC, fa_d(0, "fc_1", "{}"), done(0, {**FC, "name": None, "call_id": None, "arguments": None}), T],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "arguments of added, where nothing else came": Story(
        [added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments="{}"), T],
        '0+function_call(fc_1)  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "arguments of added, and an empty done": Story(
        [added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments="{}"), fa_D(0, "fc_1", ""), T],
        '0+function_call(fc_1)  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "a part's done for a text that is over": Story(
        [ADD_MSG, part_done(0, "msg_1", 0, text_part("A")), part_done(0, "msg_1", 0, text_part("B")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "an annotation for a text that is over": Story(
        [ADD_MSG, part_done(0, "msg_1", 0, text_part("A")), annotation(0, "msg_1", 0, URL), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"late": 1},
    ),
    "an annotation and a part's done for an item that is over": Story(
        [done(0, message("msg_1", "A")), annotation(0, "msg_1", 0, URL), part_done(0, "msg_1", 0, text_part("B")), T],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"late": 2},
    ),
    "an annotation behind a part that waits comes with it": Story(
        [ADD_MSG, annotation(0, "msg_1", 1, URL), ot_d(0, "msg_1", 0, "A"), T],
        (
            '0+message(msg_1)  0c0+output_text  0c1+output_text  0c1@0  0c0"A"  0c1=""  0c1.  0c0="A"  0c0.  '
            "0.completed  COMPLETED"
        ),
        [{**message("msg_1", ""), "content": [text_part("A"), {**text_part(""), "annotations": [URL]}]}],
    ),
    "an annotation behind a gap among the parts waits": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), annotation(0, "msg_1", 2, URL), T],
        (
            '0+message(msg_1)  0c0+output_text  0c0"A"  0c1+output_text  0c1@0  0c0="A"  0c0.  0c1=""  0c1.  '
            "0.completed  COMPLETED"
        ),
        [{**message("msg_1", ""), "content": [text_part("A"), {**text_part(""), "annotations": [URL]}]}],
    ),
    "call_id never changes": Story(
        [ADD_FC, done(0, call("fc_1", "{}", call_id="call_9")), T],
        '0+function_call(fc_1)  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "nulls of a call are facts": Story(
        [done(0, call("fc_1", "{}", caller=None, namespace=None)), T],
        '0+function_call(fc_1)  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}", caller=None, namespace=None)],
    ),
    "a call adopted from its arguments": Story(
        [fa_d(0, "fc_1", "{"), fa_d(0, "fc_1", "}"), done(0, call("fc_1", "{}")), T],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "a call that nobody ever named": Story(
        [fa_d(0, "fc_1", "{}"), T],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}", call_id="fc_1", name="")],
    ),
    "a name that only the arguments' done tells": Story(
        [added(0, "function_call", "fc_1", call_id="call_1"), fa_D(0, "fc_1", "{}", name="add"), T],
        '0+function_call(fc_1)  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "a call_id that only its done tells": Story(
        [
            added(0, "function_call", "fc_1", name="add", arguments=""),
            fa_d(0, "fc_1", "{}"),
            done(0, call("fc_1", "{}")),
            T,
        ],
        '0+function_call(fc_1)  0"{}"  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "a cut call stays as it came": Story(
        [ADD_FC, fa_d(0, "fc_1", '{"a'), EOF],
        '0+function_call(fc_1)  0"{\\"a"  0="{\\"a"  0.incomplete  FAILED',
        [call("fc_1", '{"a', status="incomplete")],
    ),
    "a call cut before its arguments": Story(
        [ADD_FC, EOF], '0+function_call(fc_1)  0=""  0.incomplete  FAILED', [call("fc_1", "", status="incomplete")]
    ),
    "custom tool call": Story(
        [
            added(0, "custom_tool_call", "ctc_1", call_id="call_1", name="run", input="", caller=None),
            ct_d(0, "ctc_1", "ca"),
            ct_d(0, "ctc_1", "ts"),
            T,
        ],
        '0+custom_tool_call(ctc_1)  0"ca"  0"ts"  0="cats"  0.-  COMPLETED',
        [
            {
                "id": "ctc_1",
                "type": "custom_tool_call",
                "call_id": "call_1",
                "name": "run",
                "input": "cats",
                "caller": None,
            }
        ],
    ),
    "cut custom tool call": Story(
        [added(0, "custom_tool_call", "ctc_1", call_id="call_1", name="run"), ct_d(0, "ctc_1", "ca"), EOF],
        '0+custom_tool_call(ctc_1)  0"ca"  0="ca"  0.incomplete  FAILED',
        [
            {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "run", "input": "ca"}
            | {"status": "incomplete"}
        ],
    ),
    "unknown item type: verbatim, in place": Story(
        [
            ADD_RS,
            added(1, "acme:search", "s_1", q=None, status="in_progress"),
            done(1, {"id": "s_1", "type": "acme:search", "q": "cats", "arguments": {}, "status": 7, "n": []}),
            done(0, RS),
            done(2, message("msg_1", "A")),
            T,
        ],
        (
            "0+reasoning(rs_1)  1+acme:search(s_1)  0.completed  1.7  2+message(msg_1)  2c0+output_text  "
            '2c0="A"  2c0.  2.completed  COMPLETED'
        ),
        [
            RS,
            {"id": "s_1", "type": "acme:search", "q": "cats", "arguments": {}, "status": 7, "n": []},
            message("msg_1", "A"),
        ],
    ),
    "terminal fills a slot that never streamed": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_1", "A"), call("fc_1", "{}")])],
        (
            '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  '
            '1+function_call(fc_1)  1="{}"  1.completed  COMPLETED'
        ),
        [message("msg_1", "A"), call("fc_1", "{}")],
    ),
    "terminal fills a gap": Story(
        [added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), terminal(output=[RS, message("msg_1", "A")])],
        (
            '0+reasoning(rs_1)  0.completed  1+message(msg_1)  1c0+output_text  1c0"A"  1c0="A"  1c0.  '
            "1.completed  COMPLETED"
        ),
        [RS, message("msg_1", "A")],
    ),
    "terminal fills omitted fields": Story(
        [
            done(0, {"id": "rs_1", "type": "reasoning", "summary": []}),
            terminal(output=[reasoning("rs_1", "x", extra=1)]),
        ],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0="x"  0c0.  0.completed  COMPLETED',
        [reasoning("rs_1", "x", extra=1)],
    ),
    "terminal ends what is open, by presence": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), terminal(output=[{**RS, "content": [thought("ab")]}])],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="ab"  0c0.  0.completed  COMPLETED',
        [{**RS, "content": [thought("ab")]}],
    ),
    "terminal's item still in progress is over": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_1", "A", "in_progress")])],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
    "terminal changes nothing that was told": Story(
        [ADD_RS, done(0, RS), done(1, message("msg_1", "A")), terminal(output=[reasoning("rs_1", "x")])],
        ('0+reasoning(rs_1)  0.completed  1+message(msg_1)  1c0+output_text  1c0="A"  1c0.  1.completed  COMPLETED'),
        [RS, message("msg_1", "A")],
        {"item_changed": 1},
    ),
    "terminal without the blank message, under fresh ids": Story(
        [
            done(0, reasoning("rs_1", "x")),
            done(1, BLANK),
            done(2, call("fc_1", "{}")),
            terminal(output=[reasoning("rs_8", "x"), call("fc_9", "{}", call_id="call_9")]),
        ],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0="x"  0c0.  0.completed  1+function_call(fc_1)  '
            '1="{}"  1.completed  COMPLETED'
        ),
        [reasoning("rs_1", "x"), call("fc_1", "{}")],
    ),
    "terminal's item that could be either of two is none": Story(
        [
            done(0, RS),
            added(1, "function_call", "fc_1", call_id="call_1", name="add"),
            added(2, "function_call", "fc_2", call_id="call_2", name="add"),
            fa_d(1, "fc_1", "1"),
            fa_d(2, "fc_2", "2"),
            terminal(output=[call("fc_9", "9", call_id="call_9")]),
        ],
        (
            '0+reasoning(rs_1)  0.completed  1+function_call(fc_1)  2+function_call(fc_2)  1"1"  2"2"  '
            '1="1"  2="2"  1.completed  2.completed  COMPLETED'
        ),
        [RS, call("fc_1", "1"), call("fc_2", "2", call_id="call_2")],
        {"ambiguous": 1},
    ),
    "terminal's new item stands where a known one streamed": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_2", "B"), message("msg_1", "A")])],
        (
            '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.completed  1+message(msg_2)  '
            '1c0+output_text  1c0="B"  1c0.  1.completed  COMPLETED'
        ),
        [message("msg_1", "A"), message("msg_2", "B")],
    ),
    "terminal's malformed item is left out": Story(
        [terminal(output=["zz", None, message("msg_1", "A")])],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
        {"malformed_item": 2},
    ),
    "whitespace before a call is no item": Story(
        [
            done(0, reasoning("rs_1", "x")),
            added(1, "message", "msg_1"),
            ot_d(1, "msg_1", 0, "\n\n"),
            done(1, BLANK),
            added(2, "function_call", "fc_1", call_id="call_1", name="add"),
            fa_d(2, "fc_1", "{}"),
            done(2, call("fc_1", "{}")),
            terminal(output=[reasoning("rs_1", "x"), BLANK, call("fc_1", "{}")]),
        ],
        (
            '0+reasoning(rs_1)  0c0+reasoning_text  0c0="x"  0c0.  0.completed  1+function_call(fc_1)  '
            '1"{}"  1="{}"  1.completed  COMPLETED'
        ),
        [reasoning("rs_1", "x"), call("fc_1", "{}")],
    ),
    "whitespace after reasoning is no item": Story(
        [done(0, RS), added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, " \n\t"), terminal(output=[RS, BLANK])],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [RS],
    ),
    "whitespace before anything else is no item": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "\n"), done(0, message("msg_1", "\n")), done(1, call("fc_1", "{}")), T],
        '0+function_call(fc_1)  0="{}"  0.completed  COMPLETED',
        [call("fc_1", "{}")],
    ),
    "whitespace and nothing else is kept": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "\n\n"), T],
        '0+message(msg_1)  0c0+output_text  0c0"\\n\\n"  0c0="\\n\\n"  0c0.  0.completed  COMPLETED',
        [BLANK],
    ),
    "whitespace twice and nothing else is kept": Story(
        [done(0, BLANK), done(1, message("msg_2", " ")), T],
        (
            '0+message(msg_1)  0c0+output_text  0c0="\\n\\n"  0c0.  0.completed  1+message(msg_2)  '
            '1c0+output_text  1c0=" "  1c0.  1.completed  COMPLETED'
        ),
        [BLANK, message("msg_2", " ")],
    ),
    "an empty message is white space": Story(
        [done(0, RS), done(1, {**BLANK, "content": []}), T], "0+reasoning(rs_1)  0.completed  COMPLETED", [RS]
    ),
    "whitespace, cut": Story(
        [done(0, RS), ot_d(1, "msg_1", 0, "\n"), EOF],
        "0+reasoning(rs_1)  0.incomplete  FAILED",
        [{**RS, "status": "incomplete"}],
    ),
    "whitespace, incomplete: the item before it is the last": Story(
        [done(0, RS), done(1, BLANK), terminal("incomplete", [RS, BLANK])],
        "0+reasoning(rs_1)  0.incomplete  INCOMPLETE",
        [{**RS, "status": "incomplete"}],
    ),
    "whitespace that a call follows: the item before it is whole": Story(
        [done(0, RS), ot_d(1, "msg_1", 0, "\n"), done(1, BLANK), {**ADD_FC, "output_index": 2}, EOF],
        '0+reasoning(rs_1)  0.completed  1+function_call(fc_1)  1=""  1.incomplete  FAILED',
        [RS, {**FC, "arguments": "", "status": "incomplete"}],
    ),
    "whitespace that becomes text": Story(
        [done(0, RS), ot_d(1, "msg_1", 0, "\n\n"), ot_d(1, "msg_1", 0, "A"), T],
        (
            '0+reasoning(rs_1)  0.completed  1+message(msg_1)  1c0+output_text  1c0"\\n\\nA"  1c0="\\n\\nA"  '
            "1c0.  1.completed  COMPLETED"
        ),
        [RS, message("msg_1", "\n\nA")],
    ),
    "whitespace with an annotation is an item": Story(
        [done(0, RS), ot_d(1, "msg_1", 0, " "), annotation(1, "msg_1", 0, URL), T],
        (
            '0+reasoning(rs_1)  0.completed  1+message(msg_1)  1c0+output_text  1c0" "  1c0@0  1c0=" "  '
            "1c0.  1.completed  COMPLETED"
        ),
        [RS, {**message("msg_1", ""), "content": [{**text_part(" "), "annotations": [URL]}]}],
    ),
    "whitespace that a refusal follows is an item": Story(
        [done(0, RS), ot_d(1, "msg_1", 0, " "), rf_d(1, "msg_1", 1, "No"), T],
        (
            '0+reasoning(rs_1)  0.completed  1+message(msg_1)  1c0+output_text  1c0" "  1c1+refusal  '
            '1c1"No"  1c0=" "  1c0.  1c1="No"  1c1.  1.completed  COMPLETED'
        ),
        [RS, {**message("msg_1", ""), "content": [text_part(" "), {"type": "refusal", "refusal": "No"}]}],
    ),
    "whitespace that its done makes text": Story(
        [done(0, RS), ot_d(1, "msg_1", 0, " "), done(1, message("msg_1", " A")), T],
        (
            '0+reasoning(rs_1)  0.completed  1+message(msg_1)  1c0+output_text  1c0" A"  1c0=" A"  1c0.  '
            "1.completed  COMPLETED"
        ),
        [RS, message("msg_1", " A")],
    ),
    "text that its done makes white space, before anybody saw it, is none": Story(
        [ot_d(1, "msg_1", 0, "A"), done(1, BLANK), done(0, message("msg_2", " ")), done(2, RS), T],
        "0+reasoning(rs_1)  0.completed  COMPLETED",
        [RS],
    ),
    "and is kept where nothing else is": Story(
        [ot_d(1, "msg_1", 0, "A"), done(1, BLANK), done(0, message("msg_2", " ")), T],
        (
            '0+message(msg_2)  0c0+output_text  0c0=" "  0c0.  0.completed  1+message(msg_1)  1c0+output_text  '
            '1c0"\\n\\n"  1c0="\\n\\n"  1c0.  1.completed  COMPLETED'
        ),
        [message("msg_2", " "), BLANK],
    ),
    "nothing at all": Story([T], "COMPLETED", []),
    "nothing at all, cut": Story([EOF], "FAILED", []),
    "custom input done alone": Story(
        [{"type": "response.custom_tool_call_input.done", "output_index": 0, "item_id": "ctc_1", "input": "cats"}, T],
        '0+custom_tool_call(ctc_1)  0="cats"  0.-  COMPLETED',
        [{"id": "ctc_1", "type": "custom_tool_call", "call_id": "ctc_1", "name": "", "input": "cats"}],
    ),
    "unknown item type, cut: incomplete where it had a status": Story(
        [added(0, "acme:search", "s_1", status="in_progress", q=None), EOF],
        "0+acme:search(s_1)  0.incomplete  FAILED",
        [{"id": "s_1", "type": "acme:search", "q": None, "status": "incomplete"}],
    ),
    "an error event: what came is kept, incomplete": Story(
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), {"type": "error", "code": "server_error", "message": "engine died"}],
        '0+reasoning(rs_1)  0c0+reasoning_text  0c0"a"  0c0="a"  0c0.  0.incomplete  FAILED',
        [{**RS, "content": [thought("a")], "status": "incomplete"}],
    ),
    "a failed response": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), {"type": "response.failed", "response": {"status": "failed"}}],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.incomplete  FAILED',
        [message("msg_1", "A", "incomplete")],
    ),
    "a cancelled response": Story(
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal("cancelled")],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.incomplete  CANCELLED',
        [message("msg_1", "A", "incomplete")],
    ),
    "completed, and incomplete inside": Story(
        [
            ADD_MSG,
            ot_d(0, "msg_1", 0, "A"),
            done(0, message("msg_1", "A")),
            terminal("incomplete", incomplete_details={"reason": "max_output_tokens"}),
        ],
        '0+message(msg_1)  0c0+output_text  0c0"A"  0c0="A"  0c0.  0.incomplete  INCOMPLETE',
        [message("msg_1", "A", "incomplete")],
    ),
    "nothing is read after the end": Story(
        [done(0, message("msg_1", "A")), T, done(1, RS), terminal("failed")],
        '0+message(msg_1)  0c0+output_text  0c0="A"  0c0.  0.completed  COMPLETED',
        [message("msg_1", "A")],
    ),
}
