"""What is odd about a stream is counted by kind, and told by kind, id and count alone."""

import logging
import random

import pytest

from grammar import Grammar
from shared.accumulator import Accumulator
from shared.normalize import normalize
from wire import Wire, added, call, done, message, ot_d, part_added, part_done, reasoning, rt_d, terminal, text_part
from workers.anomalies import Anomalies

#: Every kind there is: names of a metric, so they don't change lightly.
SKIPPED = {
    *("not_json", "not_an_object", "no_type", "bad_index", "bad_delta", "bad_text", "unknown_part", "unfit_to_forward"),
    *("malformed_item", "malformed_part", "malformed_annotation"),
    *("late", "ambiguous", "unknown_item", "item_changed", "text_changed"),
}
REPAIRED = {"added_missing", "part_added_missing", "done_missing", "only_in_terminal", "id_changed", "index_shared"}

WHOLE = [
    added(0, "message", "m", role="assistant", content=[]),
    part_added(0, "m", 0, text_part("")),
    ot_d(0, "m", 0, "A"),
    part_done(0, "m", 0, text_part("A")),
    done(0, message("m", "A")),
    terminal(output=[message("m", "A")]),
]

REPAIRS: dict[str, tuple[list[Wire], dict[str, int]]] = {
    "nothing": (WHOLE, {}),
    "nothing, and under another id in the terminal event": ([*WHOLE[:-1], terminal(output=[message("n", "A")])], {}),
    "no added": (WHOLE[1:], {"added_missing": 1}),
    "no part added": ([WHOLE[0], *WHOLE[2:]], {"part_added_missing": 1}),
    "no done": ([*WHOLE[:-2], terminal()], {"done_missing": 1}),
    "no done of a response that was cut": ([*WHOLE[:-2], terminal("incomplete")], {}),
    "deltas alone": (
        [ot_d(0, "m", 0, "A"), ot_d(0, "m", 0, "B"), terminal()],
        {"added_missing": 1, "part_added_missing": 1, "done_missing": 1},
    ),
    "the terminal event alone": ([WHOLE[-1]], {"only_in_terminal": 1}),
    "another id": ([*WHOLE[:3], ot_d(0, "n", 0, "B"), *WHOLE[3:]], {"id_changed": 1}),
    "an index that two items share": (
        [rt_d(0, "r", 0, "A"), done(0, reasoning("r", "A")), done(0, call("f", "{}")), terminal()],
        {"added_missing": 2, "part_added_missing": 1, "index_shared": 1},
    ),
}


@pytest.mark.parametrize(("wires", "repaired"), REPAIRS.values(), ids=REPAIRS.keys())
def test_what_is_made_good_is_counted(wires: list[Wire], repaired: Wire) -> None:
    accumulator = Accumulator()
    accumulator.feed(map(normalize, wires))
    assert dict(accumulator.repaired) == repaired
    assert not accumulator.skipped


def test_every_kind_is_known_and_comes_about() -> None:
    dice = random.Random(11)  # the same streams on every run
    skipped: set[str] = {"not_json"}  # the grammar's values are all JSON
    repaired: set[str] = set()
    for _ in range(1_500):
        accumulator = Accumulator()
        accumulator.feed(map(normalize, Grammar(dice.choice).stream(25)))
        accumulator.fail()
        skipped |= accumulator.skipped.keys()
        repaired |= accumulator.repaired.keys()
    assert (skipped, repaired) == (SKIPPED, REPAIRED)


def test_a_response_is_told_once_and_added_to_the_total(caplog: pytest.LogCaptureFixture) -> None:
    anomalies = Anomalies()
    with caplog.at_level(logging.INFO):
        anomalies.note("resp_1", {"late": 2}, {"id_changed": 1})
        anomalies.note("resp_2", {}, {})
        anomalies.note("resp_3", {"late": 1}, {})
    assert caplog.messages == [
        "resp_1: upstream events skipped: {'late': 2}, repaired: {'id_changed': 1}",
        "resp_3: upstream events skipped: {'late': 1}, repaired: {}",
    ]
    assert (anomalies.skipped, anomalies.repaired) == ({"late": 3}, {"id_changed": 1})
