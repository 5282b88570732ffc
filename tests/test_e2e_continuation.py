"""What the upstream is sent on the second and third turn: everything, in order, unchanged, and no mark of ours."""

import json
from typing import Any

import openai
import pytest

from stack import MODEL, Stack, until

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def test_the_upstream_request_of_a_second_and_a_third_turn(stack: Stack) -> None:
    post = stack.http.post
    first = post("/v1/responses", json={"model": MODEL, "input": "Weather in Paris?", "tools": [WEATHER]}).json()
    reasoning, call = first["output"]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny, 21 degrees"}
    body = {"model": MODEL, "input": [answer], "tools": [WEATHER], "previous_response_id": first["id"]}
    second = post("/v1/responses", json=body).json()
    thought, message = second["output"]
    third = post("/v1/responses", json={"model": MODEL, "input": "Thanks!", "previous_response_id": second["id"]})
    assert third.json()["status"] == "completed"

    bodies = [request["body"] for request in stack.upstream()]
    user = {"role": "user", "content": "Weather in Paris?", "type": "message"}
    replayed = [
        user,
        _replayed(reasoning),
        {key: value for key, value in call.items() if value is not None},
        answer,
    ]
    assert [_known(item) for item in bodies[1]["input"]] == [_known(item) for item in replayed]
    replayed += [
        _replayed(thought),
        {"type": "message", "role": "assistant", "status": "completed", "content": message["content"]},
        {"role": "user", "content": "Thanks!", "type": "message"},
    ]
    assert [_known(item) for item in bodies[2]["input"]] == [_known(item) for item in replayed]

    for sent in bodies:
        assert (sent["store"], sent["stream"]) == (False, True)
        assert isinstance(sent["seed"], int)
        assert not {"previous_response_id", "background", "metadata", "conversation", "request_id"} & sent.keys()
        raw = json.dumps(sent)
        assert "encrypted_content" not in raw
        assert "_agentic_item_kind" not in raw
        assert "rejoinder" not in raw
    for response in (first, second):
        assert stack.http.get(f"/v1/responses/{response['id']}").json() == response, "stored items are unchanged"


def _replayed(reasoning: dict[str, Any]) -> dict[str, Any]:
    """Reasoning as the upstream takes it: one plaintext part, no blob, an empty summary."""
    [part] = reasoning["content"]
    assert part["text"].strip()
    return {"type": "reasoning", "id": reasoning["id"], "summary": [], "status": "completed", "content": [part]}


def _known(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what may be added or left out on its way: ids of messages, annotations and log probabilities."""
    known = {"type": item.get("type", "message"), **{key: item[key] for key in item if key != "type"}}
    if known["type"] == "message":
        known.pop("id", None)
        known.pop("status", None)
        if isinstance(known["content"], list):
            known["content"] = "".join(part["text"] for part in known["content"])
    return known


ENCRYPTED = {"id": "rs_blob", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAcanary"}
REFUSED = {
    "in the input": [ENCRYPTED, {"role": "user", "content": "go on"}],
    "with a summary, which is no substitute": [
        {**ENCRYPTED, "summary": [{"type": "summary_text", "text": "canary"}]},
        {"role": "user", "content": "go on"},
    ],
    "with an empty content": [{**ENCRYPTED, "content": []}, {"role": "user", "content": "go on"}],
}


@pytest.mark.parametrize("items", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("mode", [{}, {"stream": True}, {"background": True}], ids=["plain", "stream", "background"])
def test_encrypted_only_reasoning_is_refused_before_any_upstream_request(
    stack: Stack, items: list[dict[str, Any]], mode: dict[str, bool]
) -> None:
    answer = stack.http.post("/v1/responses", json={"model": MODEL, "input": items, **mode})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "input")
    assert "rs_blob" in error["message"]
    assert "canary" not in answer.text
    assert stack.upstream() == []


def test_encrypted_reasoning_with_plaintext_is_kept_whole_and_replayed_without_its_blob(stack: Stack) -> None:
    both = {
        **ENCRYPTED,
        "content": [{"type": "reasoning_text", "text": "one"}, {"type": "reasoning_text", "text": "two"}],
    }
    first = stack.openai.responses.create(model=MODEL, input=[both, {"role": "user", "content": "Hello"}])  # type: ignore[list-item]  # a wire dict
    stack.openai.responses.create(model=MODEL, input="And now?", previous_response_id=first.id)
    for request in stack.upstream():
        sent = request["body"]["input"][0]
        assert sent["content"] == [{"type": "reasoning_text", "text": "one\ntwo"}]
        assert "encrypted_content" not in sent


def test_resent_items_are_not_doubled_and_changed_ones_are_refused(stack: Stack) -> None:
    first = stack.http.post(
        "/v1/responses", json={"model": MODEL, "input": "Weather in Rome?", "tools": [WEATHER]}
    ).json()
    reasoning, call = first["output"]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    body = {"model": MODEL, "previous_response_id": first["id"], "input": [reasoning, call, answer]}
    assert stack.http.post("/v1/responses", json=body).json()["status"] == "completed"
    kinds = [item.get("type", "message") for item in stack.upstream()[-1]["body"]["input"]]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
    body["input"] = [{**call, "arguments": '{"city": "Oslo"}'}, answer]
    refused = stack.http.post("/v1/responses", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert call["id"] in refused.json()["error"]["message"]
    assert "Oslo" not in refused.text


def test_an_item_reference_stands_for_the_stored_item(stack: Stack) -> None:
    first = stack.http.post(
        "/v1/responses", json={"model": MODEL, "input": "Weather in Lima?", "tools": [WEATHER]}
    ).json()
    reasoning, call = first["output"]
    items = [
        {"role": "user", "content": "Weather in Lima?"},
        {"type": "item_reference", "id": reasoning["id"]},
        {"id": call["id"]},
        {"type": "function_call_output", "call_id": call["call_id"], "output": "fog"},
    ]
    assert stack.http.post("/v1/responses", json={"model": MODEL, "input": items}).json()["status"] == "completed"
    sent = stack.upstream()[-1]["body"]["input"]
    assert [item.get("type", "message") for item in sent] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert sent[1]["content"] == reasoning["content"]
    items[1] = {"type": "item_reference", "id": "rs_unknown"}
    unknown = stack.http.post("/v1/responses", json={"model": MODEL, "input": items})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "input")


def test_a_background_continuation_of_a_running_response_waits_for_it(stack: Stack) -> None:
    stack.faults(tokens_per_second=40)
    parent = stack.openai.responses.create(model=MODEL, input="My name is Zoe. Count to 20.", background=True)
    child = stack.openai.responses.create(
        model=MODEL, input="What is my name?", previous_response_id=parent.id, background=True
    )
    with pytest.raises(openai.BadRequestError) as refused:
        stack.openai.responses.create(model=MODEL, input="What is my name?", previous_response_id=parent.id)
    assert refused.value.param == "previous_response_id"
    assert stack.openai.responses.retrieve(child.id).status == "queued"
    until(lambda: stack.openai.responses.retrieve(child.id).status == "completed")
    assert "Zoe" in stack.openai.responses.retrieve(child.id).output_text
    assert [item.get("type", "message") for item in stack.upstream()[-1]["body"]["input"]] == [
        "message",
        "reasoning",
        "message",
        "message",
    ]


def test_a_continuation_whose_parent_fails_fails_clearly(stack: Stack) -> None:
    stack.faults(tokens_per_second=40, cut_after=10)
    parent = stack.openai.responses.create(model=MODEL, input="Count to 20.", background=True)
    child = stack.openai.responses.create(
        model=MODEL, input="And then?", previous_response_id=parent.id, background=True
    )
    until(lambda: stack.openai.responses.retrieve(child.id).status == "failed")
    error = stack.openai.responses.retrieve(child.id).error
    assert error is not None
    assert parent.id in error.message
    assert len(stack.upstream()) == 1
    with pytest.raises(openai.BadRequestError):
        stack.openai.responses.create(model=MODEL, input="Hm?", previous_response_id=parent.id)


def test_the_rendered_prompt_can_be_asked_for_and_holds_the_earlier_reasoning(stack: Stack) -> None:
    """`enable_response_messages` is vLLM's: what the model was really shown comes back in the Response."""
    first = stack.http.post(
        "/v1/responses", json={"model": MODEL, "input": "Weather in Oslo?", "tools": [WEATHER]}
    ).json()
    reasoning, call = first["output"]
    body = {
        "model": MODEL,
        "previous_response_id": first["id"],
        "input": [{"type": "function_call_output", "call_id": call["call_id"], "output": "snow"}],
        "tools": [WEATHER],
        "enable_response_messages": True,
    }
    second = stack.http.post("/v1/responses", json=body).json()
    prompt = json.dumps(second["input_messages"])
    assert json.dumps(reasoning["content"][0]["text"].strip()).strip('"') in prompt
    assert stack.http.get(f"/v1/responses/{second['id']}").json() == second
    assert "input_messages" not in first


def test_two_calls_of_one_turn_keep_their_outputs_in_order(stack: Stack) -> None:
    ask = {"model": MODEL, "input": "What is the weather in Paris and Rome?", "tools": [WEATHER]}
    first = stack.http.post("/v1/responses", json=ask).json()
    reasoning, paris, rome = first["output"]
    assert [json.loads(call["arguments"]) for call in (paris, rome)] == [{"city": "Paris"}, {"city": "Rome"}]
    outputs = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": weather}
        for call, weather in ((rome, "rain"), (paris, "sun"))
    ]
    body = {"model": MODEL, "previous_response_id": first["id"], "input": outputs, "tools": [WEATHER]}
    assert stack.http.post("/v1/responses", json=body).json()["status"] == "completed"
    sent = stack.upstream()[-1]["body"]["input"]
    assert [item.get("call_id") for item in sent] == [
        *(None, None, paris["call_id"], rome["call_id"]),
        *(rome["call_id"], paris["call_id"]),
    ]
    assert sent[1]["content"] == reasoning["content"]


def test_branches_share_a_parent(stack: Stack) -> None:
    root = stack.openai.responses.create(model=MODEL, input="My name is Bob.")
    branches = [
        stack.openai.responses.create(model=MODEL, input=f"What is my name? ({n})", previous_response_id=root.id)
        for n in range(3)
    ]
    assert all("Bob" in branch.output_text for branch in branches)
