"""The history of a chain: order, what a turn that did not complete leaves, and what can't be continued."""

import pytest

from chain import Item, call, output, reasoning, said, user
from shared.errors import InvalidRequest
from shared.history import Turn, item_history
from shared.response import Status

ASKED, ASKED_2 = user("a"), user("b")
THOUGHT, SAID, CALL = reasoning("rs_1", "x"), said("msg_1", "A"), call("fc_1", "c1", "Paris")
CUT = reasoning("rs_2", "y", status="incomplete")


def turn(status: Status, own: list[Item], output: list[Item]) -> Turn:
    return Turn("resp_1", status, own, output)


DONE = turn(Status.COMPLETED, [ASKED], [THOUGHT, SAID])
FAILED = turn(Status.FAILED, [ASKED_2], [CUT])

HISTORIES: dict[str, tuple[list[Turn], list[Item]]] = {
    "no turn": ([], []),
    "root to leaf, each turn's input then its output": (
        [DONE, turn(Status.COMPLETED, [ASKED_2], [CALL]), turn(Status.COMPLETED, [output("c1", "5")], [])],
        [ASKED, THOUGHT, SAID, ASKED_2, CALL, output("c1", "5")],
    ),
    "an incomplete turn, of reasoning only": ([DONE, turn(Status.INCOMPLETE, [], [CUT])], [ASKED, THOUGHT, SAID, CUT]),
    "a failed turn further up": ([FAILED, DONE], [ASKED_2, CUT, ASKED, THOUGHT, SAID]),
    "a turn that still runs: its input": (
        [DONE, turn(Status.IN_PROGRESS, [ASKED_2], [CUT])],
        [*DONE.input, *DONE.output, ASKED_2],
    ),
    "a queued one": ([turn(Status.QUEUED, [ASKED], [])], [ASKED]),
    "items sent again keep their first place": (
        [DONE, turn(Status.COMPLETED, [ASKED, THOUGHT, SAID, ASKED_2], [])],
        [ASKED, THOUGHT, SAID, ASKED, ASKED_2],  # the user's message has no id, so it can't be told apart
    ),
    "two turns that generated one id": (
        [DONE, turn(Status.COMPLETED, [], [said("msg_1", "B")])],
        [ASKED, THOUGHT, SAID, said("msg_1", "B")],
    ),
}


@pytest.mark.parametrize(("turns", "items"), HISTORIES.values(), ids=HISTORIES.keys())
def test_history(turns: list[Turn], items: list[Item]) -> None:
    assert item_history(turns) == items


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_what_failed_is_no_basis(status: Status) -> None:
    with pytest.raises(InvalidRequest, match=status.value) as refused:
        item_history([DONE, turn(status, [ASKED_2], [CUT])])
    assert (refused.value.status, refused.value.param) == (400, "previous_response_id")
    assert "resp_1" in refused.value.message


def test_an_item_sent_again_with_other_content_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="msg_1"):
        item_history([DONE, turn(Status.COMPLETED, [said("msg_1", "B")], [])])
