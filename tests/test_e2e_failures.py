"""A vLLM or a Redis that goes away and comes back: clear errors meanwhile, nothing lost, no restart needed.

Every single error, in every mode: `test_e2e_errors`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stack import MODEL, Stack, until


def _json(frame: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(frame.split("\ndata: ")[1])
    return parsed


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
