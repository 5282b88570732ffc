"""The public log read back. That it gives the writer's items for every story is asserted in `test_accumulator`."""

import pytest

from shared.accumulator import Accumulator
from shared.events import PublicEvent, log_entry, public_event
from shared.fold import fold
from shared.normalize import normalize
from stream_rules import check
from wire import Wire, added, call, done, fa_d, message, ot_D, ot_d, reasoning, rs_d, rt_d, terminal, thought

ADD_MSG = added(0, "message", "msg_1", role="assistant", content=[], status="in_progress")


def written(*wires: Wire) -> list[PublicEvent]:
    accumulator = Accumulator()
    return [
        accumulator.number("response.created", {"response": {"status": "in_progress"}}),
        accumulator.number("response.in_progress", {"response": {"status": "in_progress"}}),
        *accumulator.feed(map(normalize, wires)),
    ]


def test_nothing() -> None:
    accumulator = fold([])
    assert (accumulator.next_sequence_number, accumulator.output, accumulator.ending) == (0, [], None)


def test_numbers_go_on_and_nothing_is_told_twice() -> None:
    log = written(ADD_MSG, ot_d(0, "msg_1", 0, "A"))
    accumulator = fold(log)
    assert accumulator.next_sequence_number == len(log)
    more = accumulator.feed([normalize(ot_d(0, "msg_1", 0, "B"))])
    assert [(event.type, event.sequence_number) for event in more] == [("response.output_text.delta", len(log))]
    closing = accumulator.fail()
    check([*log, *more, *closing], [message("msg_1", "AB", "incomplete")])


STORY = [
    rs_d(0, "rs_1", 0, "s"),
    rt_d(0, "rs_1", 0, "x"),
    done(0, reasoning("rs_1", "x", summary=[{"type": "summary_text", "text": "s"}])),
    {**ADD_MSG, "output_index": 1},
    ot_d(1, "msg_1", 0, "A"),
    ot_D(1, "msg_1", 0, "A"),
    added(2, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
    fa_d(2, "fc_1", "{}"),
    done(2, call("fc_1", "{}")),
]


@pytest.mark.parametrize("cut", range(len(written(*STORY)) + 1))
def test_a_log_cut_anywhere_can_be_closed(cut: int) -> None:
    log = written(*STORY)[:cut]
    accumulator = fold(log)
    assert accumulator.output == [event.body["item"] for event in log if event.type == "response.output_item.done"]
    check([*log, *accumulator.fail(status="cancelled")], accumulator.output)


def test_the_log_as_it_is_stored() -> None:
    log = written(*STORY, terminal())
    stored = [public_event(event.sequence_number, log_entry(event)) for event in log]
    assert fold(stored).output == fold(log).output


def test_a_message_in_the_log_is_announced_whatever_it_holds() -> None:
    log = [
        PublicEvent(
            "response.output_item.added",
            0,
            {"output_index": 0, "item": {**message("msg_1", "", "in_progress"), "content": []}},
        ),
        PublicEvent(
            "response.output_item.added",
            1,
            {"output_index": 1, "item": {"id": "rs_1", "type": "reasoning", "summary": []}},
        ),
    ]
    accumulator = fold(log)
    check([*log, *accumulator.fail()], accumulator.output)
    assert [item["id"] for item in accumulator.output] == ["msg_1", "rs_1"]


def test_a_done_in_the_log_was_told() -> None:
    item = reasoning("rs_1", "x")
    log = written(rt_d(0, "rs_1", 0, "x"), done(0, item), {"type": "acme:tick"})
    assert [event.type for event in log[-2:]] == ["response.output_item.done", "acme:tick"]
    accumulator = fold(log[:-1])
    assert accumulator.output == [item]
    assert accumulator.fail() == []
    assert accumulator.output == [item]


@pytest.mark.parametrize(
    ("event_type", "response", "status"),
    [
        ("response.completed", {"status": "completed"}, "completed"),
        ("response.incomplete", {"status": "incomplete"}, "incomplete"),
        ("response.failed", {"status": "failed", "error": {"code": "server_error", "message": "m"}}, "failed"),
        ("response.failed", {"status": "cancelled", "error": None}, "cancelled"),
    ],
)
def test_the_terminal_event_ends_it(event_type: str, response: Wire, status: str) -> None:
    log = written(rt_d(0, "rs_1", 0, "x"))
    writer = fold(log)
    log += writer.fail()
    log.append(writer.number(event_type, {"response": {**response, "output": writer.output}}))
    accumulator = fold(log)
    assert accumulator.ending is not None
    assert accumulator.ending.status == status
    assert accumulator.output == [{**reasoning("rs_1"), "content": [thought("x")], "status": "incomplete"}]
    assert accumulator.next_sequence_number == len(log)
    assert accumulator.feed([normalize(done(1, message("msg_1", "A")))]) == []
