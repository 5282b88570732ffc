"""No history makes vLLM answer 400 or 500: recorded ones continued, and every oddity of every kind of item.

Each upstream body is held against `vllm_rules`, and read by the simulated vLLM, which refuses what a real one refuses.
"""

import itertools
from typing import Any

import pytest

from captured_histories import History, histories, next_input
from chain import NEW, user
from cli.simulated_engine import Engine, Turn
from cli.simulated_refusal import Refusal
from oddities import KINDS, TEXT, oddities
from shared.errors import InvalidRequest
from shared.history import Turn as StoredTurn
from shared.history import item_history
from shared.items import input_items
from shared.replay import ReplayPolicy, upstream_body
from shared.request import parse_request
from shared.response import Status
from vllm_rules import broken_rule, broken_rule_of_gpt_oss, is_continued

Item = dict[str, Any]

POLICY = ReplayPolicy()
HISTORIES = histories()
ENGINE = Engine(("tiny",), 1 << 20)


def refused(body: dict[str, Any]) -> str | None:
    """Why vLLM would refuse the body, or misread it; None where it answers."""
    if is_continued(body):
        return "its last item would be continued"
    try:
        Turn(ENGINE, body)
    except Refusal as refusal:
        return str(refusal)
    return broken_rule(body)


def test_there_are_recordings() -> None:
    assert len(HISTORIES) == 136
    assert sum(history.streamed for history in HISTORIES.values()) == 29
    assert {item["type"] for history in HISTORIES.values() for item in history.output} == {
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
    }


@pytest.mark.parametrize("context", ["all_turns", "current_turn"])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_recorded_turn_goes_on(name: str, context: Any) -> None:
    """As a stored parent, and as a history that the client sends itself, nulls and all."""
    history, options = HISTORIES[name], {"model": "tiny", "reasoning": {"context": context}}
    try:
        asked = input_items(history.input)
    except InvalidRequest:
        pytest.fail("a request that a real vLLM answered")
    turn = StoredTurn("resp_1", Status.INCOMPLETE, asked, history.output)
    stored = upstream_body(options, item_history([turn]), next_input(history.output), seed=1, policy=POLICY)
    assert refused(stored) is None
    sent = parse_request(options | {"input": history.items})
    inline = upstream_body(sent.options, [], sent.input, seed=1, policy=POLICY)
    assert refused(inline) is None
    if context == "all_turns":
        assert inline == stored
        assert _thoughts(stored) >= _thoughts_in(history)


@pytest.mark.parametrize("name", HISTORIES)
def test_a_recorded_turn_goes_on_with_gpt_oss(name: str) -> None:
    """Its half of vLLM refuses more. Custom calls it can't make, so none are in a history of its own."""
    history = HISTORIES[name]
    if any(item.get("type", "").startswith("custom_tool_call") for item in (*history.input, *history.output)):
        pytest.skip("custom calls")
    given = {item["call_id"] for item in (*history.input, *history.output) if item.get("type") == "function_call"}
    asked = [item for item in history.input if item.get("type") != "function_call_output" or item["call_id"] in given]
    turn = StoredTurn("resp_1", Status.COMPLETED, asked, history.output)
    body = upstream_body({"model": "tiny"}, item_history([turn]), next_input(history.output), seed=1, policy=POLICY)
    assert broken_rule_of_gpt_oss(body) is None


def _thoughts(body: dict[str, Any]) -> set[str]:
    return {item["content"][0]["text"] for item in body["input"] if item["type"] == "reasoning"}


def _thoughts_in(history: History) -> set[str]:
    """Every reasoning text of the output, parts joined: it goes up whole."""
    items = [item for item in history.output if item["type"] == "reasoning"]
    return {"\n".join(part["text"] for part in item["content"]) for item in items if item["content"]}


# --- every kind of item in every mix of absent, null, empty and odd fields ---


@pytest.mark.parametrize("kind", KINDS)
def test_every_oddity_is_refused_at_the_door_or_sent_as_vllm_takes_it(kind: str) -> None:
    count = 0
    for item in oddities(kind):
        for items in ([item], [user("Hi"), item], [item, *NEW]):
            try:
                request = parse_request({"model": "tiny", "input": items})
                body = upstream_body(request.options, [], request.input, seed=1, policy=POLICY)
            except InvalidRequest:
                continue
            assert refused(body) is None, items
            count += 1
    assert count or kind in ("compaction", "item_reference")


#: One of each kind, as it usually comes.
PLAIN: list[Item] = [
    user("Hi"),
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "assistant", "content": []},
    {"type": "message", "role": "assistant", "content": [TEXT]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
    {"type": "reasoning", "summary": [], "content": None},
    {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
    {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{", "status": "incomplete"},
    {"type": "function_call_output", "call_id": "c", "output": "a"},
    {"type": "shell_call", "call_id": "c", "status": "completed"},
    {"type": "web_search_call", "id": "ws_1", "action": {"query": "cats"}, "results": []},
]


def test_every_order_of_three_items_is_sent_as_vllm_takes_it() -> None:
    sent = 0
    for items in itertools.product(PLAIN, repeat=3):
        try:
            body = upstream_body({"model": "tiny"}, items[:2], items[2:], seed=1, policy=POLICY)
        except InvalidRequest:  # nothing is left of them
            continue
        assert refused(body) is None, items
        sent += 1
    assert sent > 1200
