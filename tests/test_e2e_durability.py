"""Real `kill -9`: a response outlives every process, and no follower hangs."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stack import MODEL, Stack, until


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as stack:
        yield stack


def background(stack: Stack, text: str) -> str:
    body = {"model": MODEL, "input": text, "background": True}
    response_id: str = stack.http.post("/v1/responses", json=body).json()["id"]
    return response_id


def response(stack: Stack, response_id: str) -> dict[str, Any]:
    found: dict[str, Any] = stack.http.get(f"/v1/responses/{response_id}").json()
    return found


def test_a_killed_worker_ends_its_turns_as_failed_with_what_they_had(own_stack: Stack) -> None:
    own_stack.faults(tokens_per_second=20)
    response_id = background(own_stack, "Count to 200.")
    seen: list[str] = []

    def follow() -> None:
        with own_stack.http.stream("GET", f"/v1/responses/{response_id}?stream=true") as answer:
            seen.extend(answer.iter_lines())

    follower = threading.Thread(target=follow)
    follower.start()
    until(lambda: sum("output_text.delta" in line for line in seen) >= 4)
    own_stack.worker.kill()
    own_stack.worker.wait()
    own_stack.worker = own_stack.start_worker()
    follower.join(20)
    assert not follower.is_alive()
    assert seen[-2] == "data: [DONE]"
    ended = response(own_stack, response_id)
    assert ended["status"] == "failed"
    assert ended["error"]["code"] == "server_error"
    reasoning, message = ended["output"]
    assert (reasoning["status"], message["status"]) == ("completed", "incomplete")
    assert message["content"][0]["text"].strip().startswith("1 2")
    assert any(request["aborted"] for request in own_stack.upstream())
    numbers = [
        int(line.split('"sequence_number":')[1].split(",")[0].rstrip("}"))
        for line in seen
        if line.startswith('data: {"type"') and "keepalive" not in line
    ]
    assert numbers == list(range(len(numbers)))


def test_a_paused_worker_that_wakes_up_writes_nothing_more(own_stack: Stack) -> None:
    own_stack.faults(tokens_per_second=20)
    response_id = background(own_stack, "Count to 60.")
    until(lambda: len(response(own_stack, response_id)["output"]) >= 1)
    own_stack.worker.send_signal(signal.SIGSTOP)
    second = own_stack.start_worker()
    until(lambda: response(own_stack, response_id)["status"] == "failed")
    ended = response(own_stack, response_id)
    own_stack.worker.send_signal(signal.SIGCONT)
    until(lambda: "no longer ours, stopped" in own_stack.log())
    assert response(own_stack, response_id) == ended
    assert own_stack.openai.responses.create(model=MODEL, input="Hello").status == "completed"
    assert second.poll() is None


def test_everything_survives_the_death_of_everything(own_stack: Stack) -> None:
    first = own_stack.openai.responses.create(model=MODEL, input="My name is Leo.")
    queued_behind = [own_stack.worker, own_stack.api]
    own_stack.worker.kill()
    own_stack.worker.wait()
    waiting = background(own_stack, "Hello")
    for process in queued_behind:
        process.kill()
        process.wait()
    own_stack.redis.stop()
    own_stack.start_redis()
    own_stack.api = own_stack.start("api", "--port", str(own_stack.api_port))
    own_stack.worker = own_stack.start_worker()
    until(own_stack.ready)
    until(lambda: response(own_stack, waiting)["status"] == "completed")
    assert own_stack.openai.responses.retrieve(first.id).to_dict() == first.to_dict()
    second = own_stack.openai.responses.create(model=MODEL, input="What is my name?", previous_response_id=first.id)
    assert "Leo" in second.output_text


def test_a_background_response_goes_on_while_the_api_is_dead(own_stack: Stack) -> None:
    own_stack.faults(tokens_per_second=40)
    response_id = background(own_stack, "Count to 30.")
    own_stack.api.kill()
    own_stack.api.wait()
    own_stack.api = own_stack.start("api", "--port", str(own_stack.api_port))

    def completed() -> bool:
        try:
            return response(own_stack, response_id)["status"] == "completed"
        except httpx.TransportError:
            return False

    until(completed)


def test_a_worker_told_to_stop_ends_what_it_can_not_finish(own_stack: Stack) -> None:
    own_stack.faults(tokens_per_second=10)
    response_id = background(own_stack, "Count to 500.")
    until(lambda: response(own_stack, response_id)["status"] == "in_progress")
    own_stack.worker.terminate()
    assert own_stack.worker.wait(10) == 0
    ended = response(own_stack, response_id)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "server_error")
