"""Public events: the log's compact form, the SSE bytes made from it, and the way back."""

import json

import pytest

from shared.events import LogEntry, PublicEvent, entry_id, log_entry, public_event, sequence_number, sse_frame

DELTA = {"item_id": "msg_1", "output_index": 2, "content_index": 0, "delta": 'é 北 \u2028 "x" \\ \n', "logprobs": []}

CASES = {
    "output text delta": (PublicEvent("response.output_text.delta", 7, DELTA), "ot"),
    "delta that starts with a space": (
        PublicEvent("response.output_text.delta", 7, {**DELTA, "delta": " leading  spaces "}),
        "ot",
    ),
    "empty delta": (PublicEvent("response.output_text.delta", 7, {**DELTA, "delta": ""}), "ot"),
    "reasoning text delta": (
        PublicEvent(
            "response.reasoning_text.delta",
            0,
            {"item_id": "rs_1", "output_index": 0, "content_index": 3, "delta": "x"},
        ),
        "rt",
    ),
    "summary delta": (
        PublicEvent(
            "response.reasoning_summary_text.delta",
            9,
            {"item_id": "rs_1", "output_index": 0, "summary_index": 1, "delta": "y"},
        ),
        "rs",
    ),
    "arguments delta": (
        PublicEvent(
            "response.function_call_arguments.delta",
            12,
            {"item_id": "fc_1", "output_index": 1, "delta": '{"a'},
        ),
        "fa",
    ),
    "delta with logprobs stays JSON": (
        PublicEvent("response.output_text.delta", 7, {**DELTA, "logprobs": [{"token": "a"}]}),
        "response.output_text.delta",
    ),
    "delta with an unknown key stays JSON": (
        PublicEvent("response.output_text.delta", 7, {**DELTA, "obfuscation": "zz"}),
        "response.output_text.delta",
    ),
    "delta of an id with a space stays JSON": (
        PublicEvent("response.output_text.delta", 7, {**DELTA, "item_id": "msg 1"}),
        "response.output_text.delta",
    ),
    "any other event": (
        PublicEvent("response.output_item.done", 8, {"output_index": 0, "item": {"id": "rs_1", "content": None}}),
        "response.output_item.done",
    ),
}


@pytest.mark.parametrize(("event", "field"), CASES.values(), ids=CASES.keys())
def test_an_entry_reads_back_as_the_event_and_as_its_sse_frame(event: PublicEvent, field: str) -> None:
    entry = log_entry(event)
    assert entry.field == field
    assert public_event(event.sequence_number, entry) == event
    frame = sse_frame(event.sequence_number, entry)
    name, data, *rest = frame.decode().split("\n")
    assert name == f"event: {event.type}"
    assert rest == ["", ""]
    assert json.loads(data.removeprefix("data: ")) == event.wire()


def test_a_compact_delta_is_smaller_than_its_json() -> None:
    event = CASES["arguments delta"][0]
    assert len(log_entry(event).value) * 3 < len(json.dumps(event.wire()))


def test_keys_of_a_rebuilt_delta_are_those_of_the_wire() -> None:
    frame = sse_frame(7, LogEntry("ot", b"2 0 msg_1 hi"))
    assert frame == (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_1","output_index":2,'
        b'"content_index":0,"delta":"hi","logprobs":[]}\n\n'
    )


@pytest.mark.parametrize(("number", "stream_id"), [(-1, "1-0"), (0, "1-1"), (41, "1-42")])
def test_a_cursor_is_its_log_id(number: int, stream_id: str) -> None:
    assert entry_id(number) == stream_id
    assert sequence_number(stream_id.encode()) == number
