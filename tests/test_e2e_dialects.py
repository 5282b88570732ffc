"""Upstreams unlike vLLM, and clients that read them through the whole house, in real processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack import MODEL, Stack, until

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
ASK = {"model": MODEL, "input": "What is the weather in Paris?", "tools": [WEATHER], "temperature": 0}
COMMENT = b": keepalive"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("house")
    with Stack(folder, REJOINDER_KEEPALIVE="comment", REJOINDER_MAX_EVENT_BYTES="20000") as stack:
        yield stack


@pytest.fixture(autouse=True)
def forgetful(house: Stack) -> None:
    house.forget()


def frames(house: Stack, body: dict[str, Any]) -> list[dict[str, Any]]:
    with house.http.stream("POST", "/v1/responses", json=body | {"stream": True}) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def items(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without what is drawn anew: ids, and the `status` of reasoning, null in vLLM's plain answers."""
    anew = {"reasoning": {"id", "status"}}
    return [
        {key: value for key, value in item.items() if key not in anew.get(item["type"], {"id", "call_id"})}
        for item in output
    ]


def background(house: Stack, body: dict[str, Any]) -> dict[str, Any]:
    created = house.http.post("/v1/responses", json=body | {"background": True}).json()
    path = f"/v1/responses/{created['id']}"
    until(lambda: house.http.get(path).json()["status"] == "completed")
    found: dict[str, Any] = house.http.get(path).json()
    return found


def test_an_answer_in_json_gives_the_items_of_the_stream(house: Stack) -> None:
    streamed = frames(house, ASK)[-1]["response"]
    house.faults(answer_json=True, next=None)
    events = frames(house, ASK)
    final = events[-1]["response"]
    for response in (final, house.http.post("/v1/responses", json=ASK).json(), background(house, ASK)):
        assert response["status"] == "completed"
        assert items(response["output"]) == items(streamed["output"])
        assert response["usage"] == streamed["usage"] | {
            "input_tokens_details": response["usage"]["input_tokens_details"]
        }
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == final["output"]
    assert house.http.get(f"/v1/responses/{final['id']}").json() == final


def test_an_answer_in_json_is_continued(house: Stack) -> None:
    house.faults(answer_json=True)
    first = house.http.post("/v1/responses", json=ASK).json()
    reasoning, call = first["output"]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    body = {"model": MODEL, "previous_response_id": first["id"], "input": [answer], "tools": [WEATHER]}
    assert house.http.post("/v1/responses", json=body).json()["status"] == "completed"
    sent = house.upstream()[-1]["body"]["input"]
    assert [item["type"] for item in sent] == ["message", "reasoning", "function_call", "function_call_output"]
    assert sent[1]["content"] == reasoning["content"]


@pytest.mark.parametrize("fault", [{"cut_after": 0}, {"garbage_after": 0}], ids=["cut off", "no JSON"])
def test_half_an_answer_in_json_fails_clearly(house: Stack, fault: dict[str, Any]) -> None:
    house.faults(answer_json=True, **fault)
    answer = house.http.post("/v1/responses", json=ASK)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "server_error")


def test_an_answer_in_json_beyond_the_limit_fails_clearly(house: Stack) -> None:
    house.faults(answer_json=True)
    body = {"model": MODEL, "input": "Hello", "instructions": "x" * 25_000}  # a Response repeats them
    answer = house.http.post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "server_error")
    assert "size limit" in answer.json()["error"]["message"]


def test_a_cancel_closes_an_upstream_that_will_answer_in_json(house: Stack) -> None:
    house.faults(answer_json=True, first_token_seconds=30)
    created = house.http.post("/v1/responses", json=ASK | {"background": True}).json()
    until(lambda: house.simulator.get("/simulator/running").json()["running"])
    cancelled = house.http.post(f"/v1/responses/{created['id']}/cancel").json()
    assert cancelled["status"] == "cancelled"
    until(lambda: not house.simulator.get("/simulator/running").json()["running"], timeout=2)
    assert house.upstream()[-1]["ending"] == "aborted"


def test_comments_while_a_request_waits(house: Stack) -> None:
    """B29, B30: the wire is not silent while the model is, and the official client reads over it."""
    house.faults(first_token_seconds=1.5, next=2)
    body = {"model": MODEL, "input": "Hello", "stream": True}
    with house.http.stream("POST", "/v1/responses", json=body) as answer:
        raw = b"".join(answer.iter_bytes())
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
    waiting, _, _ = raw.partition(b"event: response.output_item.added")
    assert waiting.count(COMMENT) >= 2
    assert b"\nid:" not in raw
    events = list(house.openai.responses.create(model=MODEL, input="Hello", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
