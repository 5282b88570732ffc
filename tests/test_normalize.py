from collections.abc import Callable
from typing import Any

import pytest

from shared.json_codec import encode
from shared.normalize import normalize, read_answer, read_event
from shared.upstream_events import (
    AnnotationAdded,
    Finished,
    Forwarded,
    ItemAdded,
    ItemDone,
    ItemMalformed,
    PartAdded,
    PartDone,
    Place,
    Skipped,
    TextDelta,
    TextDone,
    TextKind,
    UpstreamEvent,
)
from wire import (
    Wire,
    added,
    annotation,
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

RS = reasoning("rs_1", "x")
MSG = message("msg_1", "A")
LOGPROB = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
RS_AT = Place(0, "rs_1", 0)
MSG_AT = Place(1, "msg_1", 0)
QUIET = Skipped("lifecycle", counted=False)


def ended(status: str, **fields: Any) -> Finished:
    nothing: dict[str, Any] = dict.fromkeys(("output", "usage", "incomplete_details", "error", "service_tier"))
    return Finished(status=status, **{**nothing, **fields})


NO_CODE = {"code": None, "type": None}

EVENTS: dict[str, tuple[Any, UpstreamEvent]] = {
    # --- texts ---
    "reasoning_text.delta": (rt_d(0, "rs_1", 0, "x"), TextDelta(RS_AT, TextKind.REASONING_TEXT, "x")),
    "reasoning_text.done": (rt_D(0, "rs_1", 0, "x"), TextDone(RS_AT, TextKind.REASONING_TEXT, "x")),
    "reasoning_summary_text.delta": (rs_d(0, "rs_1", 0, "x"), TextDelta(RS_AT, TextKind.SUMMARY_TEXT, "x")),
    "reasoning_summary_text.done": (rs_D(0, "rs_1", 0, "x"), TextDone(RS_AT, TextKind.SUMMARY_TEXT, "x")),
    "output_text.delta": (ot_d(1, "msg_1", 0, "x"), TextDelta(MSG_AT, TextKind.OUTPUT_TEXT, "x")),
    "output_text.delta with logprobs": (
        ot_d(1, "msg_1", 0, "A", logprobs=[LOGPROB]),
        TextDelta(MSG_AT, TextKind.OUTPUT_TEXT, "A", [LOGPROB]),
    ),
    "output_text.delta with none": (
        ot_d(1, "msg_1", 0, "A", logprobs=[]),
        TextDelta(MSG_AT, TextKind.OUTPUT_TEXT, "A"),
    ),
    "output_text.done": (
        ot_D(1, "msg_1", 0, "A", logprobs=[LOGPROB]),
        TextDone(MSG_AT, TextKind.OUTPUT_TEXT, "A", None, [LOGPROB]),
    ),
    "refusal.delta": (rf_d(1, "msg_1", 0, "No"), TextDelta(MSG_AT, TextKind.REFUSAL, "No")),
    "refusal.done": (
        {**ot_D(1, "msg_1", 0, ""), "type": "response.refusal.done", "refusal": "No"},
        TextDone(MSG_AT, TextKind.REFUSAL, "No"),
    ),
    "arguments.delta": (fa_d(2, "fc_1", "{"), TextDelta(Place(2, "fc_1"), TextKind.ARGUMENTS, "{")),
    "arguments.done": (fa_D(2, "fc_1", "{}"), TextDone(Place(2, "fc_1"), TextKind.ARGUMENTS, "{}")),
    "arguments.done with name": (
        fa_D(2, "fc_1", "{}", name="add"),
        TextDone(Place(2, "fc_1"), TextKind.ARGUMENTS, "{}", "add"),
    ),
    "custom input.delta": (ct_d(2, "ctc_1", "c"), TextDelta(Place(2, "ctc_1"), TextKind.INPUT, "c")),
    "custom input.done": (
        {"type": "response.custom_tool_call_input.done", "output_index": 2, "item_id": "ctc_1", "input": "cats"},
        TextDone(Place(2, "ctc_1"), TextKind.INPUT, "cats"),
    ),
    "places that the wire leaves open": (
        {"type": "response.output_text.delta", "output_index": None, "item_id": "", "delta": "x"},
        TextDelta(Place(None, None, None), TextKind.OUTPUT_TEXT, "x"),
    ),
    "alias reasoning.delta": (
        {**rt_d(0, "rs_1", 0, "x"), "type": "response.reasoning.delta"},
        TextDelta(RS_AT, TextKind.REASONING_TEXT, "x"),
    ),
    "alias reasoning.done": (
        {**rt_D(0, "rs_1", 0, "x"), "type": "response.reasoning.done"},
        TextDone(RS_AT, TextKind.REASONING_TEXT, "x"),
    ),
    "alias reasoning.delta, its first form": (
        {**rt_d(0, "rs_1", 0, ""), "type": "response.reasoning.delta", "delta": {"text": "x"}},
        TextDelta(RS_AT, TextKind.REASONING_TEXT, "x"),
    ),
    "alias reasoning_summary.delta": (
        {**rs_d(0, "rs_1", 0, "x"), "type": "response.reasoning_summary.delta"},
        TextDelta(RS_AT, TextKind.SUMMARY_TEXT, "x"),
    ),
    "alias reasoning_summary.done": (
        {**rs_D(0, "rs_1", 0, "x"), "type": "response.reasoning_summary.done"},
        TextDone(RS_AT, TextKind.SUMMARY_TEXT, "x"),
    ),
    "delta that is an object without text": (ot_d(1, "msg_1", 0, {"a": 1}), Skipped("bad_delta")),  # type: ignore[arg-type]
    "delta that is no text": (ot_d(1, "msg_1", 0, 5), Skipped("bad_delta")),  # type: ignore[arg-type]
    "done without its text": ({"type": "response.output_text.done"}, Skipped("bad_text")),
    "index below 0": (ot_d(-1, "msg_1", 0, "x"), Skipped("bad_index")),
    "index as text": (ot_d("0", "msg_1", 0, "x"), Skipped("bad_index")),  # type: ignore[arg-type]
    "index as fraction": (ot_d(1.0, "msg_1", 0, "x"), Skipped("bad_index")),  # type: ignore[arg-type]
    "index as truth": (ot_d(True, "msg_1", 0, "x"), Skipped("bad_index")),
    "index beyond reason": (ot_d(10_000, "msg_1", 0, "x"), Skipped("bad_index")),
    "part index below 0": (rt_d(0, "rs_1", -1, "x"), Skipped("bad_index")),
    # --- parts ---
    "content_part.added": (
        part_added(1, "msg_1", 0, text_part("")),
        PartAdded(MSG_AT, TextKind.OUTPUT_TEXT, text_part("")),
    ),
    "content_part.done": (
        part_done(0, "rs_1", 0, thought("x")),
        PartDone(RS_AT, TextKind.REASONING_TEXT, thought("x")),
    ),
    "refusal part": (
        part_done(1, "msg_1", 0, {"type": "refusal", "refusal": "No"}),
        PartDone(MSG_AT, TextKind.REFUSAL, {"type": "refusal", "refusal": "No"}),
    ),
    "alias reasoning_part.added without part": (
        {"type": "response.reasoning_part.added", "output_index": 0, "item_id": "rs_1", "content_index": 0},
        PartAdded(RS_AT, TextKind.REASONING_TEXT, {}),
    ),
    "alias reasoning_part.done": (
        {**part_done(0, "rs_1", 0, thought("x")), "type": "response.reasoning_part.done"},
        PartDone(RS_AT, TextKind.REASONING_TEXT, thought("x")),
    ),
    "summary part": (
        {
            "type": "response.reasoning_summary_part.added",
            "output_index": 0,
            "item_id": "rs_1",
            "summary_index": 0,
            "part": summed(""),
        },
        PartAdded(RS_AT, TextKind.SUMMARY_TEXT, summed("")),
    ),
    "part of a type that we don't know": (part_added(1, "msg_1", 0, {"type": "acme:map"}), Skipped("unknown_part")),
    "part missing": ({"type": "response.content_part.added"}, Skipped("malformed_part")),
    "part whose text is none": (
        part_done(1, "msg_1", 0, {"type": "output_text", "text": None}),
        Skipped("malformed_part"),
    ),
    "part whose annotations are none": (
        part_done(1, "msg_1", 0, {**text_part("A"), "annotations": -1}),
        Skipped("malformed_part"),
    ),
    "summary part that is none": (
        {"type": "response.reasoning_summary_part.done", "part": "x"},
        Skipped("malformed_part"),
    ),
    "annotation": (
        annotation(1, "msg_1", 0, {"type": "url_citation"}, annotation_index=2),
        AnnotationAdded(MSG_AT, 2, {"type": "url_citation"}),
    ),
    "annotation that is none": (annotation(1, "msg_1", 0, 3), Skipped("malformed_annotation")),  # type: ignore[arg-type]
    # --- items ---
    "item added": (
        added(0, "reasoning", "rs_1", content=None),
        ItemAdded(Place(0, "rs_1"), {"id": "rs_1", "type": "reasoning", "content": None}),
    ),
    "item added under item_id": (
        {"type": "response.output_item.added", "output_index": 0, "item": {"item_id": "m", "type": "message"}},
        ItemAdded(Place(0, "m"), {"id": "m", "type": "message"}),
    ),
    "item added, the id beside the item": (
        {"type": "response.output_item.added", "output_index": 0, "item_id": "m", "item": {"type": "message"}},
        ItemAdded(Place(0, "m"), {"type": "message"}),
    ),
    "item added malformed: only that it begins": (
        added(0, "message", "m", content="zz", status=3),
        ItemAdded(Place(0, "m"), {"id": "m", "type": "message"}),
    ),
    "item added without type": ({"type": "response.output_item.added", "item": {"id": "m"}}, Skipped("malformed_item")),
    "item added without item": ({"type": "response.output_item.added"}, Skipped("malformed_item")),
    "item done": (done(0, RS), ItemDone(Place(0, "rs_1"), RS)),
    "item done: unknown fields and nulls stay": (
        done(0, {**RS, "content": None, "status": None, "x": None, "y": []}),
        ItemDone(Place(0, "rs_1"), {**RS, "content": None, "status": None, "x": None, "y": []}),
    ),
    "item done: a message's null phase and logprobs go": (
        done(0, {**MSG, "phase": None, "content": [{**text_part("A"), "logprobs": None}]}),
        ItemDone(Place(0, "msg_1"), MSG),
    ),
    "item done: a phase and logprobs stay": (
        done(0, {**MSG, "phase": "commentary", "content": [{**text_part("A"), "logprobs": []}]}),
        ItemDone(Place(0, "msg_1"), {**MSG, "phase": "commentary", "content": [{**text_part("A"), "logprobs": []}]}),
    ),
    "item done: an opaque item needs a type only": (
        done(0, {"type": "acme:x", "id": 5, "status": 3, "content": "zz"}),
        ItemDone(Place(0, None), {"type": "acme:x", "id": 5, "status": 3, "content": "zz"}),
    ),
    "malformed: no object": (done(0, [RS]), ItemMalformed(Place(0, None))),
    "malformed: no type": (done(0, {"id": "rs_1"}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: empty type": (done(0, {"id": "rs_1", "type": ""}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: content no list": (done(0, {**RS, "content": "zz"}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: summary no list": (done(0, {**RS, "summary": {}}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: part no object": (done(0, {**RS, "content": ["x"]}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: part without type": (done(0, {**RS, "content": [{"text": "x"}]}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: part without text": (
        done(0, {**RS, "content": [{"type": "reasoning_text"}]}),
        ItemMalformed(Place(0, "rs_1")),
    ),
    "malformed: numeric status": (done(0, {**RS, "status": 3}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: encrypted_content no text": (done(0, {**RS, "encrypted_content": {}}), ItemMalformed(Place(0, "rs_1"))),
    "malformed: annotations no list": (
        done(0, {**MSG, "content": [{**text_part("A"), "annotations": "x"}]}),
        ItemMalformed(Place(0, "msg_1")),
    ),
    "malformed: arguments no text": (
        done(0, {"type": "function_call", "id": "fc_1", "arguments": {}}),
        ItemMalformed(Place(0, "fc_1")),
    ),
    "malformed: numeric id": (done(0, {**RS, "id": 5}), ItemMalformed(Place(0, None))),
    # --- the end ---
    "completed": (terminal("completed", [RS]), ended("completed", output=[RS])),
    "alias done": ({"type": "response.done", "response": {}}, ended("completed")),
    "incomplete": ({"type": "response.incomplete", "response": {"status": "incomplete"}}, ended("incomplete")),
    "failed": ({"type": "response.failed", "response": {"status": "failed"}}, ended("failed", error=NO_CODE)),
    "cancelled": ({"type": "response.cancelled"}, ended("cancelled")),
    "judged by the status": (terminal("incomplete"), ended("incomplete")),
    "failed that was cancelled": (
        {"type": "response.failed", "response": {"status": "cancelled", "error": None}},
        ended("cancelled"),
    ),
    "a status that ends nothing: by the type": (terminal("in_progress"), ended("completed")),
    "a status that is none: by the type": (terminal(["completed"]), ended("completed")),  # type: ignore[arg-type]
    "without a response": ({"type": "response.completed", "response": 7}, ended("completed")),
    "items that can't be trusted leave their place": (
        terminal("completed", [RS, "zz", {**RS, "status": 3}, {**MSG, "phase": None}]),
        ended("completed", output=[RS, None, None, MSG]),
    ),
    "an error's code and type, never its message": (
        {
            "type": "response.failed",
            "response": {"error": {"code": "server_error", "type": "x_y", "message": "secret"}},
        },
        ended("failed", error={"code": "server_error", "type": "x_y"}),
    ),
    "an error's code that may be content": (
        {"type": "response.failed", "response": {"error": {"code": "Ada is secret", "type": "x" * 65}}},
        ended("failed", error=NO_CODE),
    ),
    "error, flat": (
        {"type": "error", "code": "bad", "message": "secret", "param": None},
        ended("failed", error={"code": "bad", "type": None}),
    ),
    "error, nested": (
        {"type": "error", "error": {"code": 500, "type": "InternalServerError", "message": "secret"}},
        ended("failed", error={"code": 500, "type": "InternalServerError"}),
    ),
    "error that says nothing": ({"type": "error"}, ended("failed", error=NO_CODE)),
    "details and tier": (
        terminal("incomplete", incomplete_details={"reason": "max_output_tokens"}, service_tier="default"),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}, service_tier="default"),
    ),
    "details and tier that are none": (terminal(incomplete_details="x", service_tier=3), ended("completed")),
    # --- the rest ---
    "created": ({"type": "response.created", "response": {}}, QUIET),
    "queued": ({"type": "response.queued"}, QUIET),
    "in_progress": ({"type": "response.in_progress"}, QUIET),
    "keepalive": ({"type": "keepalive", "sequence_number": 3}, QUIET),
    "unknown": (
        {"type": "acme:tick", "sequence_number": 3, "output_index": 1, "item_id": "x", "n": None},
        Forwarded(Place(1, "x"), "acme:tick", {"output_index": 1, "item_id": "x", "n": None}),
    ),
    "unknown that clients would take for an error": ({"type": "acme:tick", "error": "x"}, Skipped("unfit_to_forward")),
    "unknown with an error that is none": (
        {"type": "acme:tick", "error": None},
        Forwarded(Place(None, None), "acme:tick", {"error": None}),
    ),
    "a type that can't stand in an event line": ({"type": "a\nb"}, Skipped("unfit_to_forward")),
    "a type that the event log uses itself": ({"type": "ot"}, Skipped("unfit_to_forward")),
    "null": (None, Skipped("not_an_object")),
    "list": ([], Skipped("not_an_object")),
    "text": ("response.completed", Skipped("not_an_object")),
    "no type": ({"delta": "x"}, Skipped("no_type")),
    "numeric type": ({"type": 3}, Skipped("no_type")),
    "type that is a list": ({"type": ["response.completed"]}, Skipped("no_type")),
}


@pytest.mark.parametrize(("wire", "event"), EVENTS.values(), ids=EVENTS.keys())
def test_normalize(wire: Any, event: UpstreamEvent) -> None:
    assert normalize(wire) == event


@pytest.mark.parametrize(("wire", "event"), EVENTS.values(), ids=EVENTS.keys())
def test_read_event_reads_the_same(wire: Any, event: UpstreamEvent) -> None:
    assert read_event(encode(wire)) == event


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (b"[DONE]", Skipped("no_event", counted=False)),
        (b" [DONE] ", Skipped("no_event", counted=False)),
        (b"", Skipped("no_event", counted=False)),
        (b"\n", Skipped("no_event", counted=False)),
        (b"{", Skipped("not_json")),
        (b"\xff", Skipped("not_json")),
        (b"NaN", Skipped("not_json")),
        (b"[" * 100_000, Skipped("not_json")),
        (b"null", Skipped("not_an_object")),
        (b'{"type": "keepalive"}', QUIET),
    ],
)
def test_read_event(data: bytes, event: UpstreamEvent) -> None:
    assert read_event(data) == event


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        (None, None),
        ({}, None),
        ("x", None),
        (
            {"input_tokens": 3},
            {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 3,
            },
        ),
        (
            {
                "input_tokens": 3.0,
                "input_tokens_details": {"cached_tokens": 2, "x": None},
                "output_tokens": 1e999,
                "output_tokens_details": None,
                "total_tokens": True,
                "cost": 0.5,
            },
            {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0, "x": None},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 3,
                "cost": 0.5,
            },
        ),
    ],
)
def test_usage_has_all_its_integers(given: Any, usage: Wire | None) -> None:
    event = normalize(terminal(usage=given))
    assert isinstance(event, Finished)
    assert event.usage == usage
    assert usage is None or all(
        type(event.usage[key]) is int for key in ("input_tokens", "output_tokens", "total_tokens")
    )  # type: ignore[index]


ODD: list[Any] = [None, True, -1, 1.5, "", "x", [], ["x"], {}, {"type": []}, [None], [{"type": []}], 10**30]


def test_no_odd_value_in_any_field_of_any_event_raises() -> None:
    def varied(value: Any, put: Callable[[Any], Any]) -> None:
        for odd in ODD:
            normalize(put(odd))
        match value:
            case dict():
                for key in [*value, "extra"]:
                    varied(value.get(key), lambda new, key=key: put({**value, key: new}))  # type: ignore[misc]
            case list():
                for at, inner in enumerate(value):
                    varied(inner, lambda new, at=at: put([*value[:at], new, *value[at + 1 :]]))  # type: ignore[misc]

    for wire, _ in EVENTS.values():
        varied(wire, lambda new: new)


def test_the_wire_is_left_as_it_came() -> None:
    for wire, _ in EVENTS.values():
        before = encode(wire)
        normalize(wire)
        assert encode(wire) == before


def test_what_vllm_adds_on_request_comes_along() -> None:
    prompt = [{"message": "<|im_start|>user", "tokens": [1]}]
    response = {"status": "completed", "output": [], "input_messages": prompt, "output_messages": None, "unknown": 1}
    assert normalize({"type": "response.completed", "response": response}) == ended(
        "completed", output=[], extras={"input_messages": prompt}
    )


@pytest.mark.parametrize(("said", "kept"), [(2**63 - 1, 2**63 - 1), (2**63, 0), (10**400, 0), (-1, 0), (7.0, 7)])
def test_token_counts_are_what_a_client_can_hold(said: float, kept: int) -> None:
    usage = {"input_tokens": said, "output_tokens": 1, "total_tokens": 1}
    event = normalize({"type": "response.completed", "response": {"status": "completed", "usage": usage}})
    assert isinstance(event, Finished)
    assert event.usage is not None
    assert event.usage["input_tokens"] == kept


ANSWERS: dict[str, tuple[bytes, UpstreamEvent]] = {
    "a Response": (
        encode({"object": "response", "status": "completed", "output": [MSG], "usage": None}),
        ended("completed", output=[MSG]),
    ),
    "an incomplete Response": (
        b'{"status":"incomplete","output":[],"incomplete_details":{"reason":"max_output_tokens"}}',
        ended("incomplete", output=[], incomplete_details={"reason": "max_output_tokens"}),
    ),
    "a failed Response": (
        b'{"status":"failed","output":[],"error":{"code":"server_error","message":"secret"}}',
        ended("failed", output=[], error={"code": "server_error", "type": None}),
    ),
    "a Response without a status": (b'{"output":[]}', ended("completed", output=[])),
    "a Response that has not ended": (b'{"status":"queued","output":[]}', Skipped("no_response")),
    "a Response with an odd status": (b'{"status":["completed"],"output":[]}', Skipped("no_response")),
    "an error": (
        b'{"error":{"message":"secret","type":"BadRequestError","code":400}}',
        ended("failed", error={"code": 400, "type": "BadRequestError"}),
    ),
    "an error without a word": (b'{"error":"secret text"}', ended("failed", error=NO_CODE)),
    "an error as older servers spell it": (
        b'{"object":"error","message":"secret","code":404}',
        ended("failed", error={"code": 404, "type": None}),
    ),
    "something else": (b'{"object":"chat.completion","choices":[]}', Skipped("no_response")),
    "an array": (b"[]", Skipped("no_response")),
    "no JSON": (b'{"output":[', Skipped("not_json")),
}


@pytest.mark.parametrize(("data", "event"), ANSWERS.values(), ids=ANSWERS.keys())
def test_whole_answers(data: bytes, event: UpstreamEvent) -> None:
    assert read_answer(data) == event
