"""Items sent again: left out where they agree, refused where they don't; what was generated is never questioned."""

import copy

import pytest

from chain import BLOB, TURN_1, Item, call, output, reasoning, said, user
from shared.errors import InvalidRequest
from shared.merge import merge_input

MERGED: dict[str, tuple[list[Item], list[Item], list[Item]]] = {
    "nothing shared": ([user("a")], [user("a")], [user("a"), user("a")]),
    "resent as stored": ([*TURN_1], [*TURN_1[1:], output("c1", "x")], [*TURN_1, output("c1", "x")]),
    "resent without nulls, status and logprobs": (
        [reasoning("rs_1", "a"), said("msg_1", "b")],
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]},
            {"role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "b"}]},
        ],
        [reasoning("rs_1", "a"), said("msg_1", "b")],
    ),
    "resent with its text as a string": (
        [said("msg_1", "b")],
        [{"role": "assistant", "id": "msg_1", "content": "b"}],
        [said("msg_1", "b")],
    ),
    "resent without content": (
        [reasoning("rs_1", "a")],
        [{"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": BLOB}],
        [reasoning("rs_1", "a")],
    ),
    "another status": (
        [call("fc_1", "c1", "Paris", status="in_progress")],
        [call("fc_1", "c1", "Paris")],
        [call("fc_1", "c1", "Paris", status="in_progress")],
    ),
    "an opaque item": (
        [{"type": "acme:x", "id": "x", "a": 1, "b": [True, {"c": 2.5}]}],
        [{"type": "acme:x", "id": "x", "a": 1, "b": [True, {"c": 2.5}], "d": "new"}],
        [{"type": "acme:x", "id": "x", "a": 1, "b": [True, {"c": 2.5}]}],
    ),
    "twice in the new input": ([], [said("msg_1", "a"), said("msg_1", "a")], [said("msg_1", "a")]),
    "same id, other type": (
        [reasoning("x", "a")],
        [said("x", "b")],
        [reasoning("x", "a"), said("x", "b")],
    ),
    "without ids": ([output("c1", "x")], [output("c1", "x")], [output("c1", "x"), output("c1", "x")]),
    "null ids": (
        [{**output("c1", "x"), "id": None}],
        [{**output("c1", "x"), "id": None}],
        [{**output("c1", "x"), "id": None}] * 2,
    ),
}


@pytest.mark.parametrize(("history", "new", "merged"), MERGED.values(), ids=MERGED.keys())
def test_merged(history: list[Item], new: list[Item], merged: list[Item]) -> None:
    before = copy.deepcopy((history, new))
    assert merge_input(history, new) == merged
    assert (history, new) == before


def test_an_upstream_that_gives_two_turns_one_id_loses_no_item() -> None:
    history = [said("msg_1", "a"), said("msg_1", "b")]
    assert merge_input(history, [user("c")]) == [*history, user("c")]
    assert merge_input(history, [said("msg_1", "b"), user("c")]) == [*history, user("c")]
    with pytest.raises(InvalidRequest):
        merge_input(history, [said("msg_1", "c")])


CONFLICTS: dict[str, tuple[Item, Item]] = {
    "reasoning text": (reasoning("rs_1", "a"), reasoning("rs_1", "canary")),
    "reasoning gained a part": (
        reasoning("rs_1", "a"),
        reasoning("rs_1", "a", content=[*reasoning("rs_1", "a")["content"], *reasoning("x", "canary")["content"]]),
    ),
    "summary": (
        reasoning("rs_1", "a", summary=[{"type": "summary_text", "text": "s"}]),
        reasoning("rs_1", "a", summary=[{"type": "summary_text", "text": "canary"}]),
    ),
    "blob": (reasoning("rs_1", "a", encrypted_content="b"), reasoning("rs_1", "a", encrypted_content=BLOB)),
    "arguments": (call("rs_1", "c1", "Paris"), call("rs_1", "c1", "canary")),
    "empty arguments": (call("rs_1", "c1", "Paris"), call("rs_1", "c1", "Paris", arguments="")),
    "call id": (call("rs_1", "c1", "Paris"), call("rs_1", "canary", "Paris")),
    "message text": (said("rs_1", "a"), said("rs_1", "canary")),
    "message text as a string": (said("rs_1", "a"), {"role": "assistant", "id": "rs_1", "content": "canary"}),
    "opaque item, another type of value": (
        {"type": "acme:x", "id": "rs_1", "a": {"b": 1}},
        {"type": "acme:x", "id": "rs_1", "a": "canary"},
    ),
    "opaque item, a number for a list": (
        {"type": "acme:x", "id": "rs_1", "a": ["canary"]},
        {"type": "acme:x", "id": "rs_1", "a": 1},
    ),
    "opaque item": ({"type": "acme:x", "id": "rs_1", "a": 1}, {"type": "acme:x", "id": "rs_1", "a": 2}),
}


@pytest.mark.parametrize(("one", "other"), CONFLICTS.values(), ids=CONFLICTS.keys())
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_same_id_other_content_is_refused(one: Item, other: Item, *, turned: bool) -> None:
    if turned:
        one, other = other, one
    for history, new in (([one], [other]), ([], [one, other])):
        with pytest.raises(InvalidRequest) as caught:
            merge_input(history, new)
        assert (caught.value.status, caught.value.param) == (400, "input")
        assert "'rs_1'" in caught.value.message
        assert "canary" not in caught.value.message
