"""Every recorded stream of a real vLLM, through the whole path from bytes to items."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.accumulator import Accumulator
from shared.events import PublicEvent, log_entry
from shared.fold import fold
from shared.json_codec import decode, encode
from shared.normalize import normalize, read_event
from shared.output import Closed
from shared.upstream_events import Finished, UpstreamEvent
from stream_rules import check
from workers.sse import SseDecoder

Wire = dict[str, Any]

CAPTURED = Path(__file__).parent / "captured"
NAMES = sorted(path.name.partition(".")[0] for path in CAPTURED.glob("*.sse"))

#: Why stored items differ from vLLM's own final output; each rule below says what must differ, and nothing else may.
BLANK = "a message of white space between reasoning and a call is no item"
NULLS = "null `phase` and null `logprobs` say nothing on a message"
CUT = "the last item of an incomplete response is incomplete"
BROKEN_OFF = "no terminal event: the item that was open is incomplete, and there is no final output to compare with"
OTHER = "a chat completion: nothing in it belongs to a response"

DIFFERENCES = {
    "chat_stream": {OTHER},
    "crash_engine_stream": {BROKEN_OFF},
    "custom_tool_use_stream": {BLANK},
    "hello_stream": {NULLS},
    "include_encrypted_stream": {NULLS},
    "include_reasoning_false_stream": {NULLS},
    "instructions_stream": {NULLS},
    "json_object_stream": {NULLS},
    "json_schema_stream": {NULLS},
    "logprobs_reasoning_stream": {NULLS},
    "logprobs_stream": {NULLS},
    "max_16_stream": {NULLS, CUT},
    "max_1_stream": set[str](),
    "max_3_stream": {CUT},
    "max_40_midtext_stream": {NULLS, CUT},
    "max_5_stream": {CUT},
    "max_midtool_stream": {BLANK, CUT},
    "namespace_tool_use_stream": {BLANK},
    "nothink_stream": {NULLS},
    "request_id_dup_stream": {NULLS},
    "sigterm_stream": {BROKEN_OFF},
    "stop_str_stream": {NULLS},
    "stream_options": {NULLS},
    "stream_string": {NULLS},
    "tc_function_stream": set[str](),
    "tc_required_stream": set[str](),
    "tool_call_stream": {BLANK},
    "tool_call_two_ptc_false_stream": {BLANK},
    "tool_call_two_stream": {BLANK},
    "tool_result_stream": {NULLS},
    "turn2_asis_stream": {NULLS},
}

#: Streams whose plain sibling was generated anew with another result, so that texts can't be compared.
UNLIKE_SIBLING = {
    "max_midtool_stream": "cut in a call, vLLM's plain answer gives the raw text as a message",
}


def raw(name: str) -> bytes:
    return (CAPTURED / f"{name}.response.sse").read_bytes()


def wires(name: str) -> list[Wire]:
    return [decode(line[6:]) for line in raw(name).split(b"\n") if line.startswith(b"data: {")]


def final_output(name: str) -> list[Wire] | None:
    last = wires(name)[-1]
    return last["response"]["output"] if last.get("type") == "response.completed" else None


def reads(name: str, size: int) -> Iterator[list[UpstreamEvent]]:
    decoder = SseDecoder(1 << 20)
    stream = raw(name)
    for at in range(0, len(stream), size):
        yield [read_event(data) for data in decoder.feed(stream[at : at + size])]
    yield [read_event(data) for data in decoder.end()]


def accumulated(name: str, size: int = 1 << 20) -> tuple[Accumulator, list[PublicEvent]]:
    accumulator = Accumulator()
    events = [event for read in reads(name, size) for event in accumulator.feed(read)]
    if accumulator.ending is None:
        events += accumulator.fail()
    return accumulator, events


def without_nulls(item: Wire) -> Wire:
    if item["type"] != "message":
        return item
    content = [
        {key: value for key, value in part.items() if (key, value) != ("logprobs", None)} for part in item["content"]
    ]
    return {key: value for key, value in item.items() if (key, value) != ("phase", None)} | {"content": content}


def is_blank(item: Wire) -> bool:
    return item["type"] == "message" and not "".join(part["text"] for part in item["content"]).strip()


def expected(output: list[Wire], rules: set[str]) -> list[Wire]:
    """vLLM's output changed by the named rules, each of which must change something."""
    for rule in sorted(rules):
        before = output
        if rule == BLANK:
            output = [item for item in output if not is_blank(item)]
        elif rule == NULLS:
            output = [without_nulls(item) for item in output]
        elif rule == CUT:
            output = [*output[:-1], {**output[-1], "status": "incomplete"}]
        assert output != before, f"{rule}: not needed here"
    return output


def test_every_recording_is_listed() -> None:
    assert sorted(DIFFERENCES) == NAMES
    assert len(NAMES) == 31


@pytest.mark.parametrize("name", [name for name, rules in DIFFERENCES.items() if not rules & {BROKEN_OFF, OTHER}])
def test_items_are_those_of_vllms_final_output(name: str) -> None:
    output = final_output(name)
    assert output is not None
    accumulator, events = accumulated(name)
    assert accumulator.output == expected(output, DIFFERENCES[name])
    check(events, accumulator.output)
    assert not accumulator.skipped
    assert accumulator.ending is not None
    final = wires(name)[-1]["response"]
    assert accumulator.ending.status == final["status"]
    assert accumulator.ending.usage == final["usage"]
    assert accumulator.ending.incomplete_details == final["incomplete_details"]
    assert accumulator.ending.service_tier == final["service_tier"]


@pytest.mark.parametrize("name", ["crash_engine_stream", "sigterm_stream"])
def test_broken_off_streams_keep_all_that_came(name: str) -> None:
    accumulator, events = accumulated(name)
    check(events, accumulator.output)
    thinking, answer = accumulator.output
    upstream = wires(name)
    assert thinking == next(wire["item"] for wire in upstream if wire["type"] == "response.output_item.done")
    text = "".join(wire["delta"] for wire in upstream if wire["type"] == "response.output_text.delta")
    assert len(text) > 10
    assert (answer["status"], answer["content"][0]["text"]) == ("incomplete", text)
    assert accumulator.ending is not None
    assert accumulator.ending.status == "failed"


def test_another_protocol_gives_nothing() -> None:
    accumulator, events = accumulated("chat_stream")
    assert (accumulator.output, events) == ([], [])
    assert accumulator.skipped == {"no_type": len(wires("chat_stream"))}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_reads_of_any_size_give_the_same_items(name: str, size: int) -> None:
    accumulator, events = accumulated(name, size)
    check(events, accumulator.output)
    assert accumulator.output == accumulated(name)[0].output


@pytest.mark.parametrize("name", ["tool_call_two_stream", "max_16_stream"])
def test_every_cut_in_two_gives_the_same_events(name: str) -> None:
    stream = raw(name)
    whole = SseDecoder(1 << 20).feed(stream)
    for at in range(len(stream)):
        decoder = SseDecoder(1 << 20)
        assert [*decoder.feed(stream[:at]), *decoder.feed(stream[at:]), *decoder.end()] == whole


@pytest.mark.parametrize("name", NAMES)
def test_the_public_log_folds_back(name: str) -> None:
    accumulator, events = accumulated(name, 100)
    folded = fold(events)
    assert folded.output == accumulator.output
    assert folded.next_sequence_number == accumulator.next_sequence_number


@pytest.mark.parametrize("name", NAMES)
def test_what_came_out_comes_out_again(name: str) -> None:
    accumulator, events = accumulated(name)
    again = Accumulator()
    repeated = [told for event in events for told in again.feed([normalize(event.wire())])]
    status = accumulator.ending.status if accumulator.ending else "failed"
    repeated += again.feed([Finished(status, None, None, None, None, None)])
    assert repeated == events
    assert again.output == accumulator.output


@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_that_fails_is_a_closed_stream(name: str) -> None:
    upstream = [normalize(wire) for wire in wires(name)]
    for cut in range(len(upstream)):
        accumulator = Accumulator()
        events = accumulator.feed(upstream[:cut])
        if accumulator.ending is None:
            folded = fold(events)
            closing = accumulator.fail()
            check([*events, *closing], accumulator.output)
            cut_texts = [item for item in accumulator.output if item.get("status") == "incomplete"] if closing else []
            assert len(cut_texts) <= 1
            rest = folded.fail()
            check([*events, *rest], folded.output)
            assert _without_held(accumulator.output) == _without_held(folded.output)


def _without_held(output: list[Wire]) -> list[Wire]:
    """White space that nobody saw is not in the log, so a fold can't know of it."""
    return [item for item in output if not is_blank(item)] or output[:0]


@pytest.mark.parametrize("name", [name for name, rules in DIFFERENCES.items() if BLANK not in rules])
def test_every_prefix_folded_back_goes_on_to_the_same_items(name: str) -> None:
    """Where nothing was held back, a new accumulator goes on from the log as the old one would have."""
    accumulator, _ = accumulated(name)
    upstream = [normalize(wire) for wire in wires(name)]
    for cut in range(len(upstream)):
        first = Accumulator()
        events = first.feed(upstream[:cut])
        if _holds(first, upstream[:cut], events):
            continue
        second = fold(events)
        events += second.feed(upstream[cut:])
        if second.ending is None:
            events += second.fail()
        check(events, second.output)
        assert second.output == accumulator.output


def _holds(accumulator: Accumulator, upstream: list[UpstreamEvent], events: list[PublicEvent]) -> bool:
    """Whether some of what came in has not gone out: a text, or an item's done."""
    if any(isinstance(slot.state, Closed) for slot in accumulator._slots):
        return True
    came = sum(len(getattr(event, "delta", "")) for event in upstream)
    return came != sum(len(event.body.get("delta", "")) for event in events)


@pytest.mark.parametrize("name", NAMES)
def test_deltas_are_stored_compactly(name: str) -> None:
    _, events = accumulated(name, 100)
    deltas = [event for event in events if event.type.endswith(".delta")]
    assert all(len(log_entry(event).field) == 2 or event.body["logprobs"] for event in deltas)


def sibling(name: str) -> Wire | None:
    path = CAPTURED / f"{name.removesuffix('_stream')}.response.json"
    body = decode(path.read_bytes()) if path.exists() and name.endswith("_stream") else None
    return body if isinstance(body, dict) and "output" in body else None


@pytest.mark.parametrize("name", [name for name in NAMES if sibling(name) and name not in UNLIKE_SIBLING])
def test_streamed_reasoning_equals_the_plain_answers(name: str) -> None:
    """But for the id, drawn anew, and vLLM's `status`: null in a plain answer, `completed` in a stream."""
    body = sibling(name)
    assert body is not None
    accumulator, _ = accumulated(name)
    plain = Accumulator()
    plain.feed([normalize({"type": "response.completed", "response": body})])
    for streamed, given in zip(_thoughts(accumulator), _thoughts(plain), strict=True):
        last = streamed is accumulator.output[-1] and body["status"] == "incomplete"
        assert streamed == {**given, "id": streamed["id"], "status": "incomplete" if last else "completed"}
    assert [item["type"] for item in accumulator.output] == [item["type"] for item in plain.output]


def _thoughts(accumulator: Accumulator) -> list[Wire]:
    return [item for item in accumulator.output if item["type"] == "reasoning"]


@pytest.mark.parametrize(
    "name",
    [
        path.name.partition(".")[0]
        for path in sorted(CAPTURED.glob("*.response.json"))
        if b'"output":[' in path.read_bytes()
    ],
)
def test_plain_answers_give_their_own_items(name: str) -> None:
    """An upstream that answered in JSON is one terminal event: nothing of it is lost but nulls without meaning."""
    body = decode((CAPTURED / f"{name}.response.json").read_bytes())
    accumulator = Accumulator()
    events = accumulator.feed([normalize({"type": "response.completed", "response": body})])
    output = [without_nulls(item) for item in body["output"]]
    if body["status"] == "incomplete" and output:
        output[-1] = {**output[-1], "status": "incomplete"}
    assert accumulator.output == output
    check(events, output)
    assert [decode(encode(item)) for item in accumulator.output] == output
