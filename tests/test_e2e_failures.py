"""Bad input, a bad upstream, an absent Redis: clear errors in every mode, nothing lost, nothing started."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from stack import MODEL, Stack, until

NO_PARENT = "resp_00" + "0" * 46

BAD = {
    # body, status, param, code
    "malformed JSON": (b'{"model": "simulated", "input": "canary', 400, None, None),
    "a list": (b"[1]", 400, None, "invalid_type"),
    "no model": ({"input": "canary"}, 400, "model", "missing_required_parameter"),
    "no input": ({"model": MODEL}, 400, "input", "missing_required_parameter"),
    "input of a wrong type": ({"model": MODEL, "input": 5}, 400, "input", "invalid_type"),
    "stream of a wrong type": ({"model": MODEL, "input": "canary", "stream": "yes"}, 400, "stream", "invalid_type"),
    "temperature of a wrong type": (
        {"model": MODEL, "input": "canary", "temperature": "canary"},
        400,
        "temperature",
        "invalid_type",
    ),
    "unknown parent": (
        {"model": MODEL, "input": "canary", "previous_response_id": NO_PARENT},
        400,
        "previous_response_id",
        "previous_response_not_found",
    ),
    "a parent id that is none": (
        {"model": MODEL, "input": "canary", "previous_response_id": "resp_canary"},
        400,
        "previous_response_id",
        "previous_response_not_found",
    ),
    "an empty parent id": (
        {"model": MODEL, "input": "canary", "previous_response_id": ""},
        400,
        "previous_response_id",
        "invalid_value",
    ),
    "nesting that could not be read again": (
        b'{"model":"simulated","input":"canary","tools":[{"type":"function","name":"f","parameters":'
        + b'{"a":' * 193
        + b"1"
        + b"}" * 193
        + b"}]}",
        400,
        None,
        None,
    ),
    "a hosted tool with a list for a name": (
        {"model": MODEL, "input": "canary", "tools": [{"type": "web_search", "name": []}], "tool_choice": "required"},
        400,
        None,
        None,
    ),
    "both parent and conversation": (
        {"model": MODEL, "input": "canary", "previous_response_id": NO_PARENT, "conversation": "conv_1"},
        400,
        None,
        None,
    ),
    "encrypted-only reasoning": (
        {"model": MODEL, "input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "canary"}]},
        400,
        "input",
        "invalid_encrypted_content",
    ),
    "unknown model": ({"model": "gpt-99", "input": "canary"}, 404, "model", "model_not_found"),
}


@pytest.mark.parametrize(("body", "status", "param", "code"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_in_openais_shape_and_starts_nothing(
    stack: Stack, body: Any, status: int, param: str | None, code: str | None
) -> None:
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    before = stack.keys()
    answer = stack.http.post("/v1/responses", **content)
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    if param is not None:
        assert error["param"] == param
    if code is not None:
        assert error["code"] == code
    assert answer.headers["x-request-id"]
    if "resp_canary" not in str(body):  # an id that was sent is named
        assert "canary" not in answer.text
    assert stack.keys() == before
    assert stack.upstream() == []


def test_unknown_routes_methods_and_ids_have_openais_body(stack: Stack) -> None:
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/responses", 405),
        ("GET", "/v1/responses/resp_1", 404),
        ("GET", f"/v1/responses/{NO_PARENT}", 404),
        ("GET", f"/v1/responses/{NO_PARENT}?stream=true", 404),
    ):
        answer = stack.http.request(method, path)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


UPSTREAM = {
    # faults, what the plain call answers, how many items are kept
    "refused with 503": ({"refuse": 503}, 503, 0),
    "refused with 500": ({"refuse": 500}, 502, 0),
    "refused with 429": ({"refuse": 429}, 429, 0),
    "refused with 400": ({"refuse": 400}, 400, 0),
    "dropped before the headers": ({"drop_before_headers": True}, 502, 0),
    "silent before the first token": ({"first_token_seconds": 60}, 504, 0),
    "cut in the reasoning": ({"cut_after": 3}, 502, 1),
    "stalled in the reasoning": ({"stall_after": 3}, 504, 1),
    "ended without an end": ({"omit_completed": True}, 502, 2),
}


@pytest.mark.parametrize("mode", ["plain", "stream", "background"])
@pytest.mark.parametrize(("faults", "status", "items"), UPSTREAM.values(), ids=UPSTREAM.keys())
def test_a_bad_upstream_ends_the_response_as_failed_in_every_mode(
    stack: Stack, faults: dict[str, Any], status: int, items: int, mode: str
) -> None:
    stack.faults(**faults)
    body = {"model": MODEL, "input": "Hello, canary!", "instructions": "canary", "background": mode == "background"}
    if mode == "plain":
        answer = stack.http.post("/v1/responses", json=body)
        error = answer.json()["error"]
        assert answer.status_code == status
        assert answer.headers["x-should-retry"] == "false"
    elif mode == "stream":
        answer = stack.http.post("/v1/responses", json={**body, "stream": True})
        last = answer.text.split("\n\n")[-3]
        assert last.startswith("event: response.failed\n")
        assert answer.text.endswith("data: [DONE]\n\n")
        response = _json(last)["response"]
        error = _checked(response, items)
    else:
        response_id = stack.http.post("/v1/responses", json=body).json()["id"]
        path = f"/v1/responses/{response_id}"
        until(lambda: stack.http.get(path).json()["status"] == "failed")
        error = _checked(stack.http.get(path).json(), items)
    assert error["type"]
    assert error["code"]
    assert error["message"]
    assert "canary" not in str(error)


def _json(frame: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(frame.split("\ndata: ")[1])
    return parsed


def _checked(response: dict[str, Any], items: int) -> dict[str, Any]:
    assert response["status"] == "failed"
    assert len(response["output"]) == items
    if 0 < items < 2:
        assert response["output"][-1]["status"] == "incomplete"
        assert response["output"][-1]["content"][0]["text"]
    error: dict[str, Any] = response["error"]
    return error


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as stack:
        yield stack


def test_a_vllm_that_is_down_and_comes_back(own_stack: Stack) -> None:
    own_stack.vllm.kill()
    own_stack.vllm.wait()
    body = {"model": MODEL, "input": "Hello"}
    answer = own_stack.http.post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_error")
    assert not own_stack.ready()
    own_stack.vllm = own_stack.start_vllm()
    until(own_stack.ready)
    assert own_stack.http.post("/v1/responses", json=body).json()["status"] == "completed"


def test_redis_away_is_a_503_at_once_and_recovery_needs_no_restart(own_stack: Stack) -> None:
    kept = own_stack.openai.responses.create(model=MODEL, input="My name is Mia.")
    own_stack.redis.stop()
    body = {"model": MODEL, "input": "Hello"}
    for path in ("/v1/responses", f"/v1/responses/{kept.id}", "/ready"):
        method = "POST" if path == "/v1/responses" else "GET"
        answer = own_stack.http.request(method, path, json=body if method == "POST" else None, timeout=10)
        assert answer.status_code == 503
        assert answer.elapsed.total_seconds() < 5
        if path != "/ready":
            assert answer.json()["error"]["type"] == "service_unavailable_error"
            assert answer.headers["retry-after"]
    assert own_stack.http.get("/health").status_code == 200
    own_stack.start_redis()
    until(own_stack.ready)
    again = own_stack.openai.responses.create(model=MODEL, input="What is my name?", previous_response_id=kept.id)
    assert "Mia" in again.output_text


def test_a_plain_call_that_loses_redis_says_not_to_retry(own_stack: Stack) -> None:
    """Its job exists: a client that sent it again would generate it twice."""
    own_stack.faults(tokens_per_second=5)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(own_stack.http.post, "/v1/responses", json={"model": MODEL, "input": "Count to 50."})
        until(lambda: own_stack.simulator.get("/simulator/running").json()["running"] == 1)
        own_stack.redis.stop()
        answer = call.result(20)
    assert answer.status_code == 503
    assert answer.headers["x-should-retry"] == "false"


def test_redis_away_in_the_middle_of_a_turn_ends_in_an_answer(own_stack: Stack) -> None:
    """A short outage costs the turn nothing but time: every event is there, once."""
    own_stack.faults(tokens_per_second=30)
    body = {"model": MODEL, "input": "Count to 30.", "background": True}
    response_id = own_stack.http.post("/v1/responses", json=body).json()["id"]
    path = f"/v1/responses/{response_id}"
    until(lambda: own_stack.http.get(path).json()["status"] == "in_progress")
    own_stack.redis.stop()
    own_stack.start_redis()

    def ended() -> bool:
        try:
            answer = own_stack.http.get(path)
        except httpx.TransportError:
            return False
        return answer.status_code == 200 and answer.json()["status"] == "completed"

    until(ended)
    stream = own_stack.http.get(f"{path}?stream=true").text
    numbers = [_json(frame)["sequence_number"] for frame in stream.split("\n\n")[:-2]]
    assert numbers == list(range(len(numbers)))
