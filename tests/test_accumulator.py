"""Every rule of accumulation as rows: literal upstream events in, whole items and public events out."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.fold import fold
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
    rf_d,
    rs_D,
    rs_d,
    rt_D,
    rt_d,
    summed,
    terminal,
    text_part,
    thought,
)

EOF = None  # stands last in a story that ends without a terminal event
T = terminal()


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


ADD_RS = added(0, "reasoning", "rs_1", summary=[], status="in_progress")
ADD_MSG = added(0, "message", "msg_1", role="assistant", content=[], status="in_progress")
ADD_FC = added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments="", status="in_progress")
RS = {"id": "rs_1", "type": "reasoning", "summary": [], "status": "completed"}
FC = call("fc_1", "")
LOGPROB = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
LOGPROB_B = {"token": "B", "logprob": -0.2, "bytes": [66], "top_logprobs": []}
URL = {"type": "url_citation", "url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1}
BLANK = message("msg_1", "\n\n")

#: name: (story, stored items)
ITEMS: dict[str, tuple[Sequence[Wire | None], list[Wire]]] = {
    # --- identity and order ---
    "done under another id: the first one stays": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, message("msg_2", "A")), T],
        [message("msg_1", "A")],
    ),
    "terminal under another id: the first one stays": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_3", "A")])],
        [message("msg_1", "A")],
    ),
    "no output_index: by id": (
        [added(None, "message", "msg_1"), ot_d(None, "msg_1", 0, "A"), T],
        [message("msg_1", "A")],
    ),
    "no output_index: the lowest free slot": (
        [added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), rt_d(None, "rs_1", 0, "x"), T],
        [{**RS, "content": [thought("x")]}, message("msg_1", "A")],
    ),
    "every id that came with an item leads to it": (
        [rt_d(0, "rs_1", 0, "x"), rt_d(0, "rs_2", 0, "y"), rt_d(None, "rs_2", 0, "z"), T],
        [{**RS, "content": [thought("xyz")]}],
    ),
    "no index and no id: the only open item of the type": (
        [ADD_MSG, ot_d(None, None, None, "A"), ot_d(None, None, None, "B"), T],
        [message("msg_1", "AB")],
    ),
    "no index and no id, two open items: nothing is guessed": (
        [
            ADD_FC,
            added(1, "function_call", "fc_2", call_id="call_2", name="sub", arguments=""),
            fa_d(None, None, "1"),
            fa_d(0, "fc_1", "2"),
            T,
        ],
        [call("fc_1", "2"), call("fc_2", "", call_id="call_2", name="sub")],
    ),
    "an index that is none binds nothing": (
        [
            added(-1, "message", "msg_1"),
            added("0", "message", "msg_2"),  # type: ignore[arg-type]
            added(1.5, "message", "msg_3"),  # type: ignore[arg-type]
            added(True, "message", "msg_4"),
            added(10_000, "message", "msg_5"),
            done(0, message("msg_6", "A")),
            T,
        ],
        [message("msg_6", "A")],
    ),
    "finished out of order": (
        [
            ADD_RS,
            added(1, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
            fa_d(1, "fc_1", "{}"),
            done(1, call("fc_1", "{}")),
            done(0, reasoning("rs_1", "x")),
            T,
        ],
        [reasoning("rs_1", "x"), call("fc_1", "{}")],
    ),
    "announced out of order": (
        [added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), rt_d(0, "rs_1", 0, "x"), T],
        [{**RS, "content": [thought("x")]}, message("msg_1", "A")],
    ),
    "gaps close": (
        [added(3, "message", "msg_1"), ot_d(3, "msg_1", 0, "A"), done(7, reasoning("rs_1", "x")), T],
        [message("msg_1", "A"), reasoning("rs_1", "x")],
    ),
    "interleaved": (
        [
            ADD_RS,
            added(1, "message", "msg_1"),
            rt_d(0, "rs_1", 0, "x"),
            ot_d(1, "msg_1", 0, "A"),
            rt_d(0, "rs_1", 0, "y"),
            ot_d(1, "msg_1", 0, "B"),
            T,
        ],
        [{**RS, "content": [thought("xy")]}, message("msg_1", "AB")],
    ),
    "done alone": ([done(1, message("msg_1", "A")), T], [message("msg_1", "A")]),
    "reasoning done alone, with all it has": (
        [done(0, reasoning("rs_1", "x", summary=[summed("s")], encrypted_content="Q==", extra={"a": None})), T],
        [reasoning("rs_1", "x", summary=[summed("s")], encrypted_content="Q==", extra={"a": None})],
    ),
    "terminal alone": ([terminal(output=[message("msg_1", "A")])], [message("msg_1", "A")]),
    "text done alone": ([ot_D(0, "msg_1", 0, "A"), T], [message("msg_1", "A")]),
    "part added alone": ([part_added(0, "rs_1", 0, thought("")), T], [{**RS, "content": [thought("")]}]),
    "part done alone": ([part_done(0, "msg_1", 0, text_part("A")), T], [message("msg_1", "A")]),
    "no id anywhere but in the item's item_id": (
        [done(0, {"item_id": "msg_1", **{k: v for k, v in message("x", "A").items() if k != "id"}}), T],
        [message("msg_1", "A")],
    ),
    "closing events missing": ([ADD_MSG, ot_d(0, "msg_1", 0, "A"), T], [message("msg_1", "A")]),
    "content_index starts at 1": (
        [ADD_MSG, ot_d(0, "msg_1", 1, "A"), ot_d(0, "msg_1", 1, "B"), T],
        [message("msg_1", "AB")],
    ),
    "summary_index starts at 3": ([ADD_RS, rs_d(0, "rs_1", 3, "s"), T], [{**RS, "summary": [summed("s")]}]),
    "an event for a finished item": (
        [ADD_MSG, done(0, message("msg_1", "A")), ot_d(0, "msg_1", 0, "late"), T],
        [message("msg_1", "A")],
    ),
    "done twice, equal": (
        [ADD_MSG, done(0, message("msg_1", "A")), done(0, message("msg_1", "A")), T],
        [message("msg_1", "A")],
    ),
    "done twice, different: the first wins": (
        [ADD_MSG, done(0, message("msg_1", "A")), done(0, message("msg_1", "B")), T],
        [message("msg_1", "A")],
    ),
    "one id under two indices is one item": (
        [done(0, message("msg_1", "A")), done(1, message("msg_1", "A")), T],
        [message("msg_1", "A")],
    ),
    "identity is type and id": (
        [
            done(0, call("x", "{}")),
            done(1, {"id": "x", "type": "function_call_output", "call_id": "call_1", "output": "5"}),
            T,
        ],
        [call("x", "{}"), {"id": "x", "type": "function_call_output", "call_id": "call_1", "output": "5"}],
    ),
    "two calls announced at one index are two calls": (
        [
            ADD_FC,
            added(0, "function_call", "fc_2", call_id="call_2", name="sub", arguments=""),
            fa_d(0, "fc_2", "2"),
            fa_d(0, "fc_1", "1"),
            T,
        ],
        [call("fc_1", "1"), call("fc_2", "2", call_id="call_2", name="sub")],
    ),
    # --- reasoning ---
    "text feeds content, summary feeds summary": (
        [ADD_RS, rt_d(0, "rs_1", 0, "x"), rs_d(0, "rs_1", 0, "y"), T],
        [{**RS, "content": [thought("x")], "summary": [summed("y")]}],
    ),
    "texts by index": (
        [ADD_RS, rt_D(0, "rs_1", 2, "c"), rt_D(0, "rs_1", 1, "b"), rt_D(0, "rs_1", 0, "a"), T],
        [{**RS, "content": [thought("a"), thought("b"), thought("c")]}],
    ),
    "summaries by index": (
        [ADD_RS, rs_D(0, "rs_1", 1, "b"), rs_D(0, "rs_1", 0, "a"), T],
        [{**RS, "summary": [summed("a"), summed("b")]}],
    ),
    "interleaved deltas by index": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 1, "c"), rt_d(0, "rs_1", 0, "b"), rt_d(0, "rs_1", 1, "d"), T],
        [{**RS, "content": [thought("ab"), thought("cd")]}],
    ),
    "a text done twice is one part": (
        [ADD_RS, rt_D(0, "rs_1", 0, "a"), rt_D(0, "rs_1", 0, "a"), T],
        [{**RS, "content": [thought("a")]}],
    ),
    "a text's done replaces its deltas, and no other's": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 1, "b"), rt_D(0, "rs_1", 0, "A"), T],
        [{**RS, "content": [thought("A"), thought("b")]}],
    ),
    "present content wins": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": [thought("A"), thought("B")]}), T],
        [{**RS, "content": [thought("A"), thought("B")]}],
    ),
    "present [] wins": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": []}), T],
        [{**RS, "content": []}],
    ),
    "present null wins": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": None}), T],
        [{**RS, "content": None}],
    ),
    "omitted content is filled": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, RS), T],
        [{**RS, "content": [thought("a")]}],
    ),
    "present summary wins": (
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {**RS, "summary": []}), T],
        [RS],
    ),
    "present null summary wins": (
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {**RS, "summary": None}), T],
        [{**RS, "summary": None}],
    ),
    "omitted summary is filled": (
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), done(0, {"id": "rs_1", "type": "reasoning", "status": "completed"}), T],
        [{**RS, "summary": [summed("s")]}],
    ),
    "omitted fields are filled from added": (
        [
            added(0, "reasoning", "rs_1", summary=[], encrypted_content="Q==", extra=1),
            done(0, {**RS, "content": []}),
            T,
        ],
        [{**RS, "content": [], "encrypted_content": "Q==", "extra": 1}],
    ),
    "omitted fields are filled from added, null or empty as they are": (
        [added(0, "reasoning", "rs_1", content=None, encrypted_content=None, tags=[]), done(0, RS), T],
        [{**RS, "content": None, "encrypted_content": None, "tags": []}],
    ),
    "present encrypted_content and unknown fields win": (
        [
            added(0, "reasoning", "rs_1", summary=[], encrypted_content="part", extra=1),
            done(0, {**RS, "encrypted_content": "whole==", "extra": None}),
            T,
        ],
        [{**RS, "encrypted_content": "whole==", "extra": None}],
    ),
    "added's empties are no facts": (
        [added(0, "reasoning", "rs_1", summary=[], content=None), rt_d(0, "rs_1", 0, "a"), rs_d(0, "rs_1", 0, "s"), T],
        [{**RS, "summary": [summed("s")], "content": [thought("a")]}],
    ),
    "added's empties stand where nothing else came": (
        [added(0, "reasoning", "rs_1", summary=[], content=None, encrypted_content=None, status="in_progress"), T],
        [{**RS, "content": None, "encrypted_content": None}],
    ),
    "reasoning keeps its nulls": (
        [done(0, {**RS, "content": None, "encrypted_content": None, "status": None}), T],
        [{**RS, "content": None, "encrypted_content": None, "status": None}],
    ),
    "status that done omits: over, where added had one": (
        [ADD_RS, done(0, {"id": "rs_1", "type": "reasoning", "summary": [], "content": []}), T],
        [{**RS, "content": []}],
    ),
    "status that nobody names is not invented": (
        [done(0, {"id": "rs_1", "type": "reasoning", "encrypted_content": "Q=="}), T],
        [{"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "Q=="}],
    ),
    "malformed content: nothing of done is taken": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": "zz", "encrypted_content": "q"}), T],
        [{**RS, "content": [thought("a")]}],
    ),
    "malformed: part without type": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "content": [{"text": "b"}]}), T],
        [{**RS, "content": [thought("a")]}],
    ),
    "malformed: numeric status": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, {**RS, "status": 3, "content": []}), T],
        [{**RS, "content": [thought("a")]}],
    ),
    "malformed: no object": ([ADD_RS, rt_d(0, "rs_1", 0, "a"), done(0, "zz"), T], [{**RS, "content": [thought("a")]}]),
    "malformed and unknown: nothing": ([done(0, {"type": "reasoning", "id": "rs_1", "content": 1}), T], []),
    "cut reasoning": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), EOF],
        [{**RS, "content": [thought("a")], "status": "incomplete"}],
    ),
    "cut without a status anywhere": (
        [rt_d(0, "rs_1", 0, "a"), EOF],
        [{**RS, "content": [thought("a")], "status": "incomplete"}],
    ),
    "incomplete: the last item, though its done says completed": (
        [done(0, reasoning("rs_1", "x")), done(1, message("msg_1", "A")), terminal("incomplete")],
        [reasoning("rs_1", "x"), message("msg_1", "A", "incomplete")],
    ),
    "incomplete: also the terminal's own items": (
        [terminal("incomplete", [reasoning("rs_1", "x"), message("msg_1", "A")])],
        [reasoning("rs_1", "x"), message("msg_1", "A", "incomplete")],
    ),
    "incomplete: a status null becomes one": (
        [done(0, {**RS, "status": None}), terminal("incomplete")],
        [{**RS, "status": "incomplete"}],
    ),
    "incomplete: an item that is not the last and was done stays completed": (
        [ADD_RS, added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), done(0, RS), terminal("incomplete")],
        [RS, message("msg_1", "A", "incomplete")],
    ),
    "incomplete: every item without its done was cut": (
        [
            ADD_FC,
            fa_d(0, "fc_1", '{"a'),
            added(1, "message", "msg_1"),
            ot_d(1, "msg_1", 0, "A"),
            terminal("incomplete"),
        ],
        [call("fc_1", '{"a', status="incomplete"), message("msg_1", "A", "incomplete")],
    ),
    "cut after its done: nobody knows that it was whole": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, message("msg_1", "A")), EOF],
        [{**message("msg_1", "A"), "status": "incomplete"}],
    ),
    # --- messages, calls, the end ---
    "two parts": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), ot_d(0, "msg_1", 1, "B"), T],
        [{**message("msg_1", "A"), "content": [text_part("A"), text_part("B")]}],
    ),
    "logprobs of the deltas": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A", logprobs=[LOGPROB]), ot_d(0, "msg_1", 0, "B", logprobs=[LOGPROB_B]), T],
        [{**message("msg_1", ""), "content": [{**text_part("AB"), "logprobs": [LOGPROB, LOGPROB_B]}]}],
    ),
    "logprobs of the text's done": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), ot_D(0, "msg_1", 0, "A", logprobs=[LOGPROB]), T],
        [{**message("msg_1", ""), "content": [{**text_part("A"), "logprobs": [LOGPROB]}]}],
    ),
    "what part added says beside its text": (
        [ADD_MSG, part_added(0, "msg_1", 0, {**text_part(""), "x": 1, "y": None}), ot_d(0, "msg_1", 0, "A"), T],
        [{**message("msg_1", ""), "content": [{**text_part("A"), "x": 1}]}],
    ),
    "text of part added, where nothing else came": (
        [ADD_RS, part_added(0, "rs_1", 0, thought("x")), T],
        [{**RS, "content": [thought("x")]}],
    ),
    "refusal": (
        [ADD_MSG, rf_d(0, "msg_1", 0, "N"), rf_d(0, "msg_1", 0, "o"), T],
        [{**message("msg_1", ""), "content": [{"type": "refusal", "refusal": "No"}]}],
    ),
    "refusal after text at one index": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), rf_d(0, "msg_1", 0, "No"), T],
        [{**message("msg_1", ""), "content": [text_part("A"), {"type": "refusal", "refusal": "No"}]}],
    ),
    "phase of added and of done": (
        [
            added(0, "message", "msg_1", phase="commentary"),
            done(0, {"id": "msg_1", "type": "message", "role": "assistant", "content": [text_part("A")]}),
            done(1, {**message("msg_2", "B"), "phase": "final_answer"}),
            T,
        ],
        [{**message("msg_1", "A"), "phase": "commentary"}, {**message("msg_2", "B"), "phase": "final_answer"}],
    ),
    "null phase and null logprobs are dropped": (
        [done(0, {**message("msg_1", ""), "phase": None, "content": [{**text_part("A"), "logprobs": None}]}), T],
        [message("msg_1", "A")],
    ),
    "null logprobs of a part's done are dropped": (
        [part_done(0, "msg_1", 0, {**text_part("A"), "logprobs": None}), T],
        [message("msg_1", "A")],
    ),
    "what the published types require is there": (
        [done(0, {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "A"}]}), T],
        [message("msg_1", "A")],
    ),
    "present content of a message wins": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, {**message("msg_1", ""), "content": []}), T],
        [{**message("msg_1", ""), "content": []}],
    ),
    "null content of a message says nothing": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), done(0, {**message("msg_1", ""), "content": None, "status": None}), T],
        [message("msg_1", "A")],
    ),
    "a part of a type that we don't know stays": (
        [done(0, {**message("msg_1", ""), "content": [{"type": "acme:map", "x": None}, text_part("A")]}), T],
        [{**message("msg_1", ""), "content": [{"type": "acme:map", "x": None}, text_part("A")]}],
    ),
    "arguments done alone": ([ADD_FC, fa_D(0, "fc_1", '{"a": 5}'), T], [call("fc_1", '{"a": 5}')]),
    "arguments done replaces the deltas": (
        [ADD_FC, fa_d(0, "fc_1", '{"a"'), fa_D(0, "fc_1", '{"a": 5}'), T],
        [call("fc_1", '{"a": 5}')],
    ),
    "empty arguments done: the deltas stand": (
        [ADD_FC, fa_d(0, "fc_1", "{}"), fa_D(0, "fc_1", ""), T],
        [call("fc_1", "{}")],
    ),
    "empty fields of a call's done fall back": (
        [ADD_FC, fa_d(0, "fc_1", "{}"), done(0, call("fc_1", "", name="", call_id="")), T],
        [call("fc_1", "{}")],
    ),
    "null fields of a call's done fall back": (
        [ADD_FC, fa_d(0, "fc_1", "{}"), done(0, {**FC, "name": None, "call_id": None, "arguments": None}), T],
        [call("fc_1", "{}")],
    ),
    "arguments of added, where nothing else came": (
        [added(0, "function_call", "fc_1", call_id="call_1", name="add", arguments="{}"), T],
        [call("fc_1", "{}")],
    ),
    "call_id never changes": (
        [ADD_FC, done(0, call("fc_1", "{}", call_id="call_9")), T],
        [call("fc_1", "{}")],
    ),
    "nulls of a call are facts": (
        [done(0, call("fc_1", "{}", caller=None, namespace=None)), T],
        [call("fc_1", "{}", caller=None, namespace=None)],
    ),
    "a call adopted from its arguments": (
        [fa_d(0, "fc_1", "{"), fa_d(0, "fc_1", "}"), done(0, call("fc_1", "{}")), T],
        [call("fc_1", "{}")],
    ),
    "a call that nobody ever named": (
        [fa_d(0, "fc_1", "{}"), T],
        [call("fc_1", "{}", call_id="fc_1", name="")],
    ),
    "a name that only the arguments' done tells": (
        [added(0, "function_call", "fc_1", call_id="call_1"), fa_D(0, "fc_1", "{}", name="add"), T],
        [call("fc_1", "{}")],
    ),
    "a cut call stays as it came": (
        [ADD_FC, fa_d(0, "fc_1", '{"a'), EOF],
        [call("fc_1", '{"a', status="incomplete")],
    ),
    "a call cut before its arguments": ([ADD_FC, EOF], [call("fc_1", "", status="incomplete")]),
    "custom tool call": (
        [
            added(0, "custom_tool_call", "ctc_1", call_id="call_1", name="run", input="", caller=None),
            ct_d(0, "ctc_1", "ca"),
            ct_d(0, "ctc_1", "ts"),
            T,
        ],
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
    "cut custom tool call": (
        [added(0, "custom_tool_call", "ctc_1", call_id="call_1", name="run"), ct_d(0, "ctc_1", "ca"), EOF],
        [
            {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "run", "input": "ca"}
            | {"status": "incomplete"}
        ],
    ),
    "unknown item type: verbatim, in place": (
        [
            ADD_RS,
            added(1, "acme:search", "s_1", q=None, status="in_progress"),
            done(1, {"id": "s_1", "type": "acme:search", "q": "cats", "arguments": {}, "status": 7, "n": []}),
            done(0, RS),
            done(2, message("msg_1", "A")),
            T,
        ],
        [
            RS,
            {"id": "s_1", "type": "acme:search", "q": "cats", "arguments": {}, "status": 7, "n": []},
            message("msg_1", "A"),
        ],
    ),
    "terminal fills a slot that never streamed": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_1", "A"), call("fc_1", "{}")])],
        [message("msg_1", "A"), call("fc_1", "{}")],
    ),
    "terminal fills a gap": (
        [added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, "A"), terminal(output=[RS, message("msg_1", "A")])],
        [RS, message("msg_1", "A")],
    ),
    "terminal fills omitted fields": (
        [
            done(0, {"id": "rs_1", "type": "reasoning", "summary": []}),
            terminal(output=[reasoning("rs_1", "x", extra=1)]),
        ],
        [reasoning("rs_1", "x", extra=1)],
    ),
    "terminal ends what is open, by presence": (
        [ADD_RS, rt_d(0, "rs_1", 0, "a"), terminal(output=[{**RS, "content": [thought("ab")]}])],
        [{**RS, "content": [thought("ab")]}],
    ),
    "terminal's item still in progress is over": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_1", "A", "in_progress")])],
        [message("msg_1", "A")],
    ),
    "terminal changes nothing that was told": (
        [ADD_RS, done(0, RS), done(1, message("msg_1", "A")), terminal(output=[reasoning("rs_1", "x")])],
        [RS, message("msg_1", "A")],
    ),
    "terminal without the blank message, under fresh ids": (
        [
            done(0, reasoning("rs_1", "x")),
            done(1, BLANK),
            done(2, call("fc_1", "{}")),
            terminal(output=[reasoning("rs_8", "x"), call("fc_9", "{}", call_id="call_9")]),
        ],
        [reasoning("rs_1", "x"), call("fc_1", "{}")],
    ),
    "terminal's item that could be either of two is none": (
        [
            done(0, RS),
            added(1, "function_call", "fc_1", call_id="call_1", name="add"),
            added(2, "function_call", "fc_2", call_id="call_2", name="add"),
            fa_d(1, "fc_1", "1"),
            fa_d(2, "fc_2", "2"),
            terminal(output=[call("fc_9", "9", call_id="call_9")]),
        ],
        [RS, call("fc_1", "1"), call("fc_2", "2", call_id="call_2")],
    ),
    "terminal's new item stands where a known one streamed": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), terminal(output=[message("msg_2", "B"), message("msg_1", "A")])],
        [message("msg_1", "A"), message("msg_2", "B")],
    ),
    "terminal's malformed item is left out": (
        [terminal(output=["zz", None, message("msg_1", "A")])],
        [message("msg_1", "A")],
    ),
    "whitespace before a call is no item": (
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
        [reasoning("rs_1", "x"), call("fc_1", "{}")],
    ),
    "whitespace after reasoning is no item": (
        [done(0, RS), added(1, "message", "msg_1"), ot_d(1, "msg_1", 0, " \n\t"), terminal(output=[RS, BLANK])],
        [RS],
    ),
    "whitespace before anything else is no item": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "\n"), done(0, message("msg_1", "\n")), done(1, call("fc_1", "{}")), T],
        [call("fc_1", "{}")],
    ),
    "whitespace and nothing else is kept": ([ADD_MSG, ot_d(0, "msg_1", 0, "\n\n"), T], [BLANK]),
    "whitespace twice and nothing else is kept": (
        [done(0, BLANK), done(1, message("msg_2", " ")), T],
        [BLANK, message("msg_2", " ")],
    ),
    "an empty message is white space": ([done(0, RS), done(1, {**BLANK, "content": []}), T], [RS]),
    "whitespace, cut": ([done(0, RS), ot_d(1, "msg_1", 0, "\n"), EOF], [{**RS, "status": "incomplete"}]),
    "whitespace, incomplete: the item before it is the last": (
        [done(0, RS), done(1, BLANK), terminal("incomplete", [RS, BLANK])],
        [{**RS, "status": "incomplete"}],
    ),
    "whitespace that a call follows: the item before it is whole": (
        [done(0, RS), ot_d(1, "msg_1", 0, "\n"), done(1, BLANK), {**ADD_FC, "output_index": 2}, EOF],
        [RS, {**FC, "arguments": "", "status": "incomplete"}],
    ),
    "whitespace that becomes text": (
        [done(0, RS), ot_d(1, "msg_1", 0, "\n\n"), ot_d(1, "msg_1", 0, "A"), T],
        [RS, message("msg_1", "\n\nA")],
    ),
    "whitespace with an annotation is an item": (
        [done(0, RS), ot_d(1, "msg_1", 0, " "), annotation(1, "msg_1", 0, URL), T],
        [RS, {**message("msg_1", ""), "content": [{**text_part(" "), "annotations": [URL]}]}],
    ),
    "whitespace that a refusal follows is an item": (
        [done(0, RS), ot_d(1, "msg_1", 0, " "), rf_d(1, "msg_1", 1, "No"), T],
        [RS, {**message("msg_1", ""), "content": [text_part(" "), {"type": "refusal", "refusal": "No"}]}],
    ),
    "whitespace that its done makes text": (
        [done(0, RS), ot_d(1, "msg_1", 0, " "), done(1, message("msg_1", " A")), T],
        [RS, message("msg_1", " A")],
    ),
    "nothing at all": ([T], []),
    "nothing at all, cut": ([EOF], []),
    # --- field reports ---
    "B01 one content_index counter across items": (
        [
            added(0, "reasoning", "rs_1"),
            {"type": "response.reasoning_part.added", "output_index": 0, "item_id": "rs_1", "content_index": 0},
            added(1, "message", "msg_1"),
            part_added(1, "msg_1", 1, text_part("")),
            ot_d(1, "msg_1", 1, "Hi"),
            T,
        ],
        [{**RS, "content": [thought("")]}, message("msg_1", "Hi")],
    ),
    "B02 no done events": (
        [
            ADD_MSG,
            part_added(0, "msg_1", 0, text_part("")),
            ot_d(0, "msg_1", 0, "A"),
            terminal(output=[message("msg_1", "A")]),
        ],
        [message("msg_1", "A")],
    ),
    "B04 nothing was announced": (
        [
            {"type": "response.output_text.delta", "item_id": "msg_9", "delta": "pong"},
            terminal(
                output=[
                    {"id": "msg_9", "type": "message", "role": "assistant"}
                    | {"content": [{"type": "output_text", "text": "pong"}]}
                ]
            ),
        ],
        [message("msg_9", "pong")],
    ),
    "B05 one index for all, an id for each delta": (
        [
            rt_d(0, "rs_a", 0, "x"),
            rt_d(0, "rs_b", 0, "y"),
            added(0, "message", "msg_1"),
            ot_d(0, "msg_2", 0, "A"),
            ot_d(0, "msg_3", 0, "B"),
            T,
        ],
        [{**RS, "id": "rs_a", "content": [thought("xy")]}, message("msg_1", "AB")],
    ),
    "B07 three ids for one hosted call": (
        [
            added(0, "mcp_call", "mcp_1", status="in_progress"),
            {"type": "response.mcp_call.completed", "output_index": 0, "item_id": "mcp_2"},
            terminal(output=[{"id": "mcp_3", "type": "mcp_call", "status": "completed", "output": "ok"}]),
        ],
        [{"id": "mcp_1", "type": "mcp_call", "status": "completed", "output": "ok"}],
    ),
    "B09 no text done": (
        [
            ADD_MSG,
            ot_d(0, "msg_1", 0, "4"),
            part_done(0, "msg_1", 0, text_part("4")),
            done(0, message("msg_1", "4")),
            T,
        ],
        [message("msg_1", "4")],
    ),
    "B10 completed that is incomplete": (
        [terminal("incomplete", [message("msg_1", "A")], incomplete_details={"reason": "max_output_tokens"})],
        [message("msg_1", "A", "incomplete")],
    ),
    "B12 empty output": ([terminal(output=[], usage={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0})], []),
    "B13 arguments only in done": ([ADD_FC, fa_D(0, "fc_1", '{"a":5,"b":7}'), T], [call("fc_1", '{"a":5,"b":7}')]),
    "B14 interleaved, finished out of order": (
        [
            added(0, "reasoning", "rs_1"),
            added(1, "function_call", "fc_1", call_id="call_1", name="add"),
            fa_d(1, "fc_1", '{"c":1}'),
            done(1, call("fc_1", '{"c":1}')),
            done(0, {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "BLOB=="}),
            T,
        ],
        [
            {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "BLOB=="},
            call("fc_1", '{"c":1}'),
        ],
    ),
    "B15 in item.done and in the terminal event": (
        [done(0, message("msg_1", "A")), terminal(output=[message("msg_1", "A")])],
        [message("msg_1", "A")],
    ),
    "B17 summary_index 0 and content_index 0": (
        [rs_d(0, "rs_1", 0, "why"), ot_d(1, "msg_1", 0, "answer"), T],
        [{**RS, "summary": [summed("why")]}, message("msg_1", "answer")],
    ),
    "B19 content and summary are two things": (
        [done(0, reasoning("rs_1", "count r")), T],
        [reasoning("rs_1", "count r")],
    ),
    "B20 logprobs and annotations that done lost": (
        [
            ADD_MSG,
            ot_d(0, "msg_1", 0, "A", logprobs=[LOGPROB]),
            annotation(0, "msg_1", 0, URL),
            done(0, {**message("msg_1", ""), "content": [{**text_part("A"), "logprobs": []}]}),
            T,
        ],
        [{**message("msg_1", ""), "content": [{**text_part("A"), "logprobs": [LOGPROB], "annotations": [URL]}]}],
    ),
    "B21 empty arguments are no {}": (
        [done(0, call("fc_1", "{}")), done(1, call("fc_2", "", call_id="call_2")), T],
        [call("fc_1", "{}"), call("fc_2", "", call_id="call_2")],
    ),
    "B22 an error event": (
        [ot_d(0, "msg_1", 0, "Par"), {"type": "error", "code": "server_error", "message": "engine died"}],
        [message("msg_1", "Par", "incomplete")],
    ),
    "B22 the stream just ends": ([ot_d(0, "msg_1", 0, "Par"), EOF], [message("msg_1", "Par", "incomplete")]),
}


@pytest.mark.parametrize("reads", [1, 2, 1000])
@pytest.mark.parametrize(("story", "items"), ITEMS.values(), ids=ITEMS.keys())
def test_items(story: Sequence[Wire | None], items: list[Wire], reads: int) -> None:
    assert tell(*story, reads=reads).output == items


# --- what subscribers see ---

SEEN: dict[str, tuple[Sequence[Wire | None], list[str]]] = {
    "reasoning and message as vLLM streams them": (
        [
            ADD_RS,
            part_added(0, "rs_1", 0, thought("")),
            rt_d(0, "rs_1", 0, "x"),
            rt_D(0, "rs_1", 0, "x"),
            part_done(0, "rs_1", 0, thought("x")),
            done(0, reasoning("rs_1", "x")),
            T,
        ],
        [
            "output_item.added",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
        ],
    ),
    "done alone": (
        [done(1, message("msg_1", "A")), T],
        ["output_item.added", "content_part.added", "output_text.done", "content_part.done", "output_item.done"],
    ),
    "call done alone": (
        [done(0, call("fc_1", "{}")), T],
        ["output_item.added", "function_call_arguments.done", "output_item.done"],
    ),
    "closing events missing": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "A"), T],
        [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ],
    ),
    "B09 text done goes before part done": (
        [ADD_MSG, ot_d(0, "msg_1", 0, "4"), part_done(0, "msg_1", 0, text_part("4")), EOF],
        [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ],
    ),
    "summary": (
        [ADD_RS, rs_d(0, "rs_1", 0, "s"), T],
        [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ],
    ),
    "an unknown event stays in its place": (
        [ADD_RS, {"type": "acme:tick", "n": 1}, rt_d(0, "rs_1", 0, "x"), EOF],
        [
            "output_item.added",
            "acme:tick",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
        ],
    ),
    "parts behind one that we don't know have no events": (
        [done(0, {**message("msg_1", ""), "content": [{"type": "acme:map"}, text_part("A")]}), T],
        ["output_item.added", "output_item.done"],
    ),
    "an item without texts": (
        [added(0, "acme:search", "s_1"), T],
        ["output_item.added", "output_item.done"],
    ),
    "whitespace before a call": (
        [
            ADD_MSG,
            part_added(0, "msg_1", 0, text_part("")),
            ot_d(0, "msg_1", 0, "\n\n"),
            done(0, BLANK),
            {**ADD_FC, "output_index": 1},
            T,
        ],
        ["output_item.added", "function_call_arguments.done", "output_item.done"],
    ),
}


@pytest.mark.parametrize(("story", "types"), SEEN.values(), ids=SEEN.keys())
def test_event_order(story: Sequence[Wire | None], types: list[str]) -> None:
    assert tell(*story).types == types


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


@pytest.mark.parametrize(
    ("wire", "status", "error"),
    [
        (terminal("completed"), "completed", None),
        (terminal("incomplete"), "incomplete", None),
        ({"type": "response.done", "response": {}}, "completed", None),
        ({"type": "response.incomplete"}, "incomplete", None),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "secret"}}},
            "failed",
            {"code": "server_error", "type": None},
        ),
        ({"type": "response.failed", "response": {"status": "cancelled", "error": None}}, "cancelled", None),
        ({"type": "error", "code": 500, "message": "secret"}, "failed", {"code": 500, "type": None}),
    ],
)
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
    "malformed done of a known item, once": ([ADD_RS, done(0, {**RS, "status": 3})], {"malformed_item": 1}),
    "a different done": ([done(0, RS), done(0, {**RS, "content": [thought("x")]})], {"item_changed": 1}),
    "an equal done": ([done(0, RS), done(0, RS)], {}),
    "late for the item": ([done(0, RS), rt_d(0, "rs_1", 0, "x")], {"late": 1}),
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
    "an unknown event of an unknown item": ([{"type": "acme:tick", "output_index": 3}], {"unknown_item": 1}),
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
    accumulator = Accumulator()
    accumulator.feed([normalize(ot_d(0, "msg_1", 0, "A")), normalize(ot_D(0, "msg_1", 0, "ABC"))])
    assert accumulator.kept_bytes == 3


# --- one upstream item, streamed and not ---


@pytest.mark.parametrize(
    ("item", "stream"),
    [
        (reasoning("rs_1", "ab"), [ADD_RS, rt_d(0, "rs_1", 0, "a"), rt_d(0, "rs_1", 0, "b")]),
        (
            reasoning("rs_1", "a", "b", summary=[summed("s")]),
            [ADD_RS, rs_d(0, "rs_1", 0, "s"), rt_d(0, "rs_1", 0, "a")],
        ),
        ({**RS, "content": None, "status": None}, [ADD_RS]),
        (message("msg_1", "ab"), [ADD_MSG, ot_d(0, "msg_1", 0, "ab")]),
        (call("fc_1", "{}", caller=None), [ADD_FC, fa_d(0, "fc_1", "{}")]),
    ],
    ids=["reasoning", "reasoning of many parts", "reasoning with nulls", "message", "call"],
)
def test_streamed_and_plain_are_equal(item: Wire, stream: list[Wire]) -> None:
    plain = tell(terminal(output=[item])).output
    assert plain == [item]
    assert tell(*stream, done(0, item), T).output == plain
    assert tell(*stream, done(0, item), terminal(output=[item])).output == plain
    assert tell(done(0, item), T).output == plain


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
    for story, _ in ITEMS.values():
        for cut in range(len(story)):
            tell(*story[:cut], EOF)


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

    stories = [story for story, _ in ITEMS.values()]
    for _ in range(1000):
        story = [odd(wire) if dice.random() < 0.5 else wire for wire in dice.choice(stories) if wire is not EOF]
        tell(*story, EOF)
