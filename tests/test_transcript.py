from typing import Any

import pytest

from cli.transcript import Piece, Tone, Transcript, ending, item_line
from wire import added, done, fa_d, ot_D, ot_d, rf_d, rs_d, rt_D, rt_d

Wire = dict[str, Any]

ID = "resp_1"
ENDED = Piece(Tone.STATUS, "completed, resp_1\n")


def response(*output: Wire, **fields: Any) -> Wire:
    return {"id": ID, "status": "completed", "output": list(output), **fields}


def message(*texts: str, **fields: Any) -> Wire:
    return {"type": "message", "content": [{"type": "output_text", "text": text} for text in texts], **fields}


def reasoning(text: str, *summaries: str) -> Wire:
    summary = [{"type": "summary_text", "text": summary} for summary in summaries]
    return {"type": "reasoning", "summary": summary, "content": [{"type": "reasoning_text", "text": text}]}


REFUSAL = {"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}
CALL = {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Paris"}', "status": "completed"}


def says(text: str) -> Piece:
    return Piece(Tone.ANSWER, text)


def thinks(text: str) -> Piece:
    return Piece(Tone.REASONING, text)


def line(text: str) -> Piece:
    return Piece(Tone.ITEM, f"{text}\n")


CASES: dict[str, tuple[list[Wire], Wire, list[Piece]]] = {
    "nothing": ([], response(), []),
    "reasoning, then an answer": (
        [
            {"type": "response.created", "response": {"id": ID}},
            {"type": "response.queued", "response": {"id": ID}},
            {"type": "response.in_progress", "response": {"id": ID}},
            added(0, "reasoning", "rs_1"),
            rt_d(0, "rs_1", 0, "Let me "),
            rt_d(0, "rs_1", 0, "see."),
            rt_D(0, "rs_1", 0, "Let me see."),
            done(0, reasoning("Let me see.")),
            ot_d(1, "msg_1", 0, "Hel"),
            ot_d(1, "msg_1", 0, "lo.\n"),
            ot_D(1, "msg_1", 0, "Hello.\n"),
            done(1, message("Hello.\n")),
        ],
        response(reasoning("Let me see."), message("Hello.\n")),
        [
            Piece(Tone.PROGRESS, "queued, resp_1\n"),
            Piece(Tone.PROGRESS, "in progress\n"),
            thinks("Let me "),
            thinks("see."),
            thinks("\n"),
            says("Hel"),
            says("lo.\n"),
        ],
    ),
    "stored only": (
        [],
        response(reasoning("Hm."), message("One", "Two"), REFUSAL, CALL),
        [
            *(thinks("Hm."), thinks("\n"), says("One"), says("\n"), says("Two"), says("\n")),
            *(says("I won't."), says("\n"), line('function_call get_weather {"city":"Paris"} (completed)')),
        ],
    ),
    "the events stop in an answer": (
        [rt_d(0, "rs_1", 0, "Hm."), done(0, reasoning("Hm.")), ot_d(1, "msg_1", 0, "Hel")],
        response(reasoning("Hm."), message("Hello.", "And more.")),
        [thinks("Hm."), thinks("\n"), says("Hel"), says("lo."), says("\n"), says("And more."), says("\n")],
    ),
    "the events stop in a reasoning": (
        [rt_d(0, "rs_1", 0, "Let ")],
        response(reasoning("Let me see.")),
        [thinks("Let "), thinks("me see."), thinks("\n")],
    ),
    "cancelled in an answer, which is kept as it came": (
        [ot_d(0, "msg_1", 0, "Hel")],
        response(message("Hel", status="incomplete")),
        [says("Hel"), says("\n")],
    ),
    "an answer whose item never came": ([ot_d(0, "msg_1", 0, "Hel")], response(), [says("Hel"), says("\n")]),
    "a summary": (
        [rs_d(0, "rs_1", 0, "Short."), rs_d(0, "rs_1", 1, "Shorter."), done(0, reasoning("", "Short.", "Shorter."))],
        response(reasoning("", "Short.", "Shorter.")),
        [thinks("Short."), thinks("\n"), thinks("Shorter."), thinks("\n")],
    ),
    "a refusal": (
        [rf_d(0, "msg_1", 0, "I won't."), done(0, REFUSAL)],
        response(REFUSAL),
        [says("I won't."), says("\n")],
    ),
    "a call in an answer": (
        [ot_d(0, "msg_1", 0, "So"), fa_d(1, "fc_1", "{"), done(0, message("So")), done(1, CALL)],
        response(message("So"), CALL),
        [says("So"), says("\n"), line('function_call get_weather {"city":"Paris"} (completed)')],
    ),
    "two texts in turn": (
        [ot_d(0, "m", 0, "a"), ot_d(1, "n", 0, "b"), ot_d(0, "m", 0, "c"), done(0, message("ac"))],
        response(message("ac"), message("bd")),
        [says("a"), says("\n"), says("b"), says("\n"), says("c"), says("\n"), says("d"), says("\n")],
    ),
    "items without a text": (
        [done(0, {"type": "reasoning", "summary": [], "encrypted_content": "x"}), done(1, message(""))],
        response({"type": "reasoning", "summary": []}, message("")),
        [line("reasoning"), line("message")],
    ),
    "unknown events and parts": (
        [{"type": "response.new"}, done(0, {"type": "message", "content": [{"type": "output_new"}, "x"]})],
        response(),
        [line("message")],
    ),
}


@pytest.mark.parametrize(("events", "ended", "pieces"), CASES.values(), ids=CASES)
def test_what_comes_out(events: list[Wire], ended: Wire, pieces: list[Piece]) -> None:
    transcript = Transcript()
    shown = [piece for event in events for piece in transcript.feed(event)]
    assert [*shown, *transcript.end(ended)] == [*pieces, ENDED]


def test_wherever_the_events_stop_the_text_is_the_same() -> None:
    events, ended, pieces = CASES["reasoning, then an answer"]
    whole = ["".join(piece.text for piece in pieces if piece.tone is tone) for tone in (Tone.REASONING, Tone.ANSWER)]
    for length in range(len(events)):
        transcript = Transcript()
        shown = [piece for event in events[:length] for piece in transcript.feed(event)]
        shown += transcript.end(ended)
        for tone, text in zip((Tone.REASONING, Tone.ANSWER), whole, strict=True):
            assert "".join(piece.text for piece in shown if piece.tone is tone) == text


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (CALL, 'function_call get_weather {"city":"Paris"} (completed)'),
        (CALL | {"arguments": '{\n "city": "P', "status": "incomplete"}, None),
        (CALL | {"arguments": ""}, 'function_call get_weather "" (completed)'),
        ({"type": "custom_tool_call", "name": "run", "input": "a\nb"}, 'custom_tool_call run "a\\nb"'),
        ({"type": "web_search_call", "id": "ws_1", "status": "failed"}, "web_search_call (failed)"),
        ({"type": "mcp_call", "name": "find", "arguments": "{}"}, "mcp_call find {}"),
        ({"type": None}, "item"),
    ],
    ids=["a call", "a call cut off", "a call without arguments", "a custom call", "unknown", "named", "without a type"],
)
def test_an_item_is_one_line(item: Wire, shown: str | None) -> None:
    found = item_line(item)
    assert "\n" not in found
    assert found == (shown or 'function_call get_weather "{\\n \\"city\\": \\"P" (incomplete)')


USAGE = {"input_tokens": 12, "output_tokens": 34, "total_tokens": 46}


@pytest.mark.parametrize(
    ("ended", "shown"),
    [
        (response(usage=None), "completed, resp_1"),
        (response(usage=USAGE), "completed, 12 tokens in, 34 out, resp_1"),
        (
            response(
                usage=USAGE
                | {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 5}}
            ),
            "completed, 12 tokens in (4 cached), 34 out (5 reasoning), resp_1",
        ),
        (
            response(status="failed", error={"code": "server_error", "message": "It broke."}),
            "failed (server_error: It broke.), resp_1",
        ),
        (response(status="cancelled", error=None), "cancelled, resp_1"),
        (
            response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "incomplete (max_output_tokens), resp_1",
        ),
    ],
    ids=["no usage", "usage", "details", "failed", "cancelled", "incomplete"],
)
def test_the_last_line(ended: Wire, shown: str) -> None:
    assert ending(ended) == shown
