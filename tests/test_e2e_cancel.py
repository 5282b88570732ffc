"""Cancelled at every moment of a turn: what had come is kept, the upstream is closed at once, the end is final.

A lease lives for a minute here, so only the nudge can be what stops a turn that waits. What each row measured is
printed as a table: `pytest tests/test_e2e_cancel.py -s`.
"""

import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from shared.json_codec import decode, encode
from stack import MODEL, Stack, until

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
HELLO = {"model": MODEL, "input": "Count to 200."}
CALL = {"model": MODEL, "input": "What is the weather in Paris?", "tools": [TOOL], "tool_choice": "required"}
#: Slow enough to be cancelled in the middle, whatever the machine is busy with.
SLOW = {"tokens_per_second": 40}


class Where(NamedTuple):
    """A moment of a turn: what brings it about, the event that shows it, and what is kept of the turn then."""

    body: dict[str, Any]
    faults: dict[str, Any]
    shown_by: str
    kept: list[tuple[str, str]]


THINKING = [("reasoning", "incomplete")]
ANSWERING = [("reasoning", "completed"), ("message", "incomplete")]
CALLING = [("reasoning", "completed"), ("function_call", "incomplete")]

WHERE = {
    "before the headers": Where(HELLO, {"before_headers_seconds": 60}, "response.in_progress", []),
    "before the first token": Where(HELLO, {"first_token_seconds": 60}, "response.in_progress", []),
    "in the reasoning": Where(HELLO, SLOW, "response.reasoning_text.delta", THINKING),
    "in the reasoning, stalled": Where(HELLO, {"stall_after": 3}, "response.reasoning_text.delta", THINKING),
    "in the answer": Where(HELLO, SLOW, "response.output_text.delta", ANSWERING),
    "in a call": Where(CALL, SLOW, "response.function_call_arguments.delta", CALLING),
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    times = {"REJOINDER_LEASE": "60", "REJOINDER_FIRST_EVENT_TIMEOUT": "60", "REJOINDER_STALL_TIMEOUT": "60"}
    with Stack(tmp_path_factory.mktemp("cancel"), **times, REJOINDER_CONCURRENCY="2") as stack:
        yield stack


@pytest.fixture
def stack(house: Stack) -> Stack:
    until(lambda: running(house) == 0)  # every test before has left the upstream idle
    house.forget()
    return house


@pytest.fixture(scope="module")
def measured() -> Iterator[list[tuple[str, str, float, str]]]:
    rows: list[tuple[str, str, float, str]] = []
    yield rows
    print("\n| cancelled | by | upstream closed after | items kept |\n|---|---|---|---|")
    for where, by, seconds, kept in rows:
        print(f"| {where} | {by} | {seconds * 1000:.0f} ms | {kept} |")


Measured = list[tuple[str, str, float, str]]


def running(stack: Stack) -> int:
    """Requests that the upstream is at, from before their headers on."""
    return sum(request["ending"] == "running" for request in stack.upstream())


def closed_after(stack: Stack, began: float) -> float:
    """Seconds from `began` until the upstream generates nothing any more."""
    until(lambda: running(stack) == 0, timeout=5)
    return time.monotonic() - began


def shape(response: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["type"], item["status"]) for item in response["output"]]


def events(stack: Stack, response_id: str) -> list[dict[str, Any]]:
    text = stack.http.get(f"/v1/responses/{response_id}?stream=true").text
    assert text.endswith("data: [DONE]\n\n")
    frames = [frame for frame in text.split("\n\n")[:-2] if "event: keepalive" not in frame]
    return [decode(frame.partition("data: ")[2].encode()) for frame in frames]


def reached(stack: Stack, response_id: str, shown_by: str) -> None:
    """Wait until the response is where the row wants it, its follower reading along; and the upstream works on it."""
    with stack.http.stream("GET", f"/v1/responses/{response_id}?stream=true") as stream:
        for line in stream.iter_lines():
            if line == f"event: {shown_by}":
                break
    until(lambda: running(stack) == 1)


def submit(stack: Stack, body: dict[str, Any]) -> str:
    response_id: str = stack.http.post("/v1/responses", json=body | {"background": True}).json()["id"]
    return response_id


def cancel(stack: Stack, response_id: str) -> dict[str, Any]:
    answer = stack.http.post(f"/v1/responses/{response_id}/cancel")
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


@pytest.mark.parametrize("where", WHERE)
def test_a_cancel_keeps_what_had_come_and_closes_the_upstream(stack: Stack, measured: Measured, where: str) -> None:
    row = WHERE[where]
    stack.faults(**row.faults)
    response_id = submit(stack, row.body)
    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(events, stack, response_id)
        reached(stack, response_id, row.shown_by)
        began = time.monotonic()
        cancelled = cancel(stack, response_id)
        seconds = closed_after(stack, began)
        measured.append((where, "endpoint", seconds, " + ".join(f"{a} ({b})" for a, b in row.kept) or "none"))
        followed = follower.result(10)

    assert (cancelled["status"], cancelled["error"], cancelled["completed_at"]) == ("cancelled", None, None)
    assert shape(cancelled) == row.kept
    assert stack.http.get(f"/v1/responses/{response_id}").json() == cancelled
    assert cancel(stack, response_id) == cancelled, "twice is once"
    assert events(stack, response_id) == followed
    assert [event["sequence_number"] for event in followed] == list(range(len(followed)))
    assert (followed[-1]["type"], followed[-1]["response"]) == ("response.failed", cancelled)
    assert [request["ending"] for request in stack.upstream()] == ["aborted"]
    for item, event in zip(
        cancelled["output"], [e for e in followed if e["type"] == "response.output_item.done"], strict=True
    ):
        assert item == event["item"]


def test_a_queued_response_never_reaches_the_upstream(stack: Stack, measured: Measured) -> None:
    stack.faults(next=2, stall_after=1)
    busy = [submit(stack, HELLO) for _ in range(2)]
    until(lambda: running(stack) == 2)
    waiting = submit(stack, HELLO)
    began = time.monotonic()
    cancelled = cancel(stack, waiting)
    measured.append(("queued", "endpoint", time.monotonic() - began, "none (never sent)"))
    assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
    types = ["response.created", "response.queued", "response.failed"]
    assert [event["type"] for event in events(stack, waiting)] == types
    for response_id in busy:
        cancel(stack, response_id)
    after = submit(stack, {"model": MODEL, "input": "Hello"})
    until(lambda: stack.http.get(f"/v1/responses/{after}").json()["status"] == "completed")
    assert len(stack.upstream()) == 3, "two that stalled, one that followed; the cancelled one never"


def test_what_has_ended_is_answered_as_it_is(stack: Stack) -> None:
    done = submit(stack, {"model": MODEL, "input": "Hello"})
    until(lambda: stack.http.get(f"/v1/responses/{done}").json()["status"] == "completed")
    before = stack.http.get(f"/v1/responses/{done}").json()
    assert cancel(stack, done) == before

    stack.faults(refuse=500)
    failed = submit(stack, HELLO)
    until(lambda: stack.http.get(f"/v1/responses/{failed}").json()["status"] == "failed")
    assert cancel(stack, failed)["status"] == "failed"


def test_what_can_not_be_cancelled(stack: Stack) -> None:
    foreground = stack.http.post("/v1/responses", json={"model": MODEL, "input": "Hello"}).json()
    answer = stack.http.post(f"/v1/responses/{foreground['id']}/cancel")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert stack.http.get(f"/v1/responses/{foreground['id']}").json() == foreground
    for unknown in ("resp_1", "resp_00" + "0" * 46):
        assert stack.http.post(f"/v1/responses/{unknown}/cancel").status_code == 404


def test_the_official_client_cancels_and_can_not_continue_what_was_cancelled(stack: Stack) -> None:
    stack.faults(**SLOW)
    job = stack.openai.responses.create(**HELLO, background=True)
    reached(stack, job.id, "response.output_text.delta")
    cancelled = stack.openai.responses.cancel(job.id)
    assert (cancelled.status, cancelled.error) == ("cancelled", None)
    assert [item.type for item in cancelled.output] == ["reasoning", "message"]
    assert cancelled.output_text
    with pytest.raises(openai.BadRequestError) as refused:
        stack.openai.responses.create(model=MODEL, input="Go on.", previous_response_id=job.id)
    assert refused.value.param == "previous_response_id"


def test_a_child_that_waits_for_a_cancelled_parent_fails_clearly(stack: Stack) -> None:
    stack.faults(stall_after=3)
    parent = submit(stack, HELLO)
    reached(stack, parent, "response.reasoning_text.delta")
    child = submit(stack, {"model": MODEL, "input": "And?", "previous_response_id": parent})
    cancel(stack, parent)
    path = f"/v1/responses/{child}"
    until(lambda: stack.http.get(path).json()["status"] == "failed")
    assert parent in stack.http.get(path).json()["error"]["message"]
    assert len(stack.upstream()) == 1


def test_a_child_that_waits_can_be_cancelled_itself(stack: Stack) -> None:
    stack.faults(**SLOW)
    parent = submit(stack, {"model": MODEL, "input": "Hello"})
    reached(stack, parent, "response.reasoning_text.delta")
    child = submit(stack, {"model": MODEL, "input": "And?", "previous_response_id": parent})
    assert cancel(stack, child)["status"] == "cancelled"
    until(lambda: stack.http.get(f"/v1/responses/{parent}").json()["status"] == "completed")
    assert stack.http.get(f"/v1/responses/{child}").json()["status"] == "cancelled"
    assert len(stack.upstream()) == 1


def test_a_worker_that_slept_through_the_cancel_writes_nothing_more(stack: Stack, measured: Measured) -> None:
    stack.faults(**SLOW)
    response_id = submit(stack, HELLO)
    reached(stack, response_id, "response.output_text.delta")
    stack.worker.send_signal(signal.SIGSTOP)
    try:
        cancelled = cancel(stack, response_id)
        log = events(stack, response_id)
    finally:
        began = time.monotonic()
        stack.worker.send_signal(signal.SIGCONT)
    seconds = closed_after(stack, began)
    measured.append(("worker stopped (SIGSTOP)", "endpoint; from SIGCONT", seconds, "reasoning, message (incomplete)"))
    assert shape(cancelled) == ANSWERING
    assert stack.http.get(f"/v1/responses/{response_id}").json() == cancelled
    assert events(stack, response_id) == log
    assert f"{response_id}: no longer ours" in stack.log()


# -- a client that leaves


def raw_call(stack: Stack, body: dict[str, Any]) -> socket.socket:
    """A POST as a client that can hang up at any moment."""
    connection = socket.create_connection(("127.0.0.1", stack.api_port), timeout=10)
    content = encode(body)
    head = f"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def heard(connection: socket.socket, event: str) -> str:
    """Read until the event came; the response's id."""
    read = b""
    while f"event: {event}\n".encode() not in read:
        data = connection.recv(65536)
        assert data
        read += data
    return read.partition(b'"id":"')[2].partition(b'"')[0].decode()


LEAVING: dict[str, tuple[dict[str, Any], dict[str, Any], str, list[tuple[str, str]]]] = {
    "stream, before the headers": ({"stream": True}, {"before_headers_seconds": 60}, "response.in_progress", []),
    "stream, before the first token": ({"stream": True}, {"first_token_seconds": 60}, "response.in_progress", []),
    "stream, in the reasoning": ({"stream": True}, SLOW, "response.reasoning_text.delta", THINKING),
    "stream, in the answer": ({"stream": True}, SLOW, "response.output_text.delta", ANSWERING),
}


@pytest.mark.parametrize("where", LEAVING)
def test_a_client_that_leaves_its_stream_cancels(stack: Stack, measured: Measured, where: str) -> None:
    mode, faults, shown_by, kept = LEAVING[where]
    stack.faults(**faults)
    with closing(raw_call(stack, HELLO | mode)) as connection:
        response_id = heard(connection, shown_by)
        until(lambda: running(stack) == 1)
        began = time.monotonic()
    seconds = closed_after(stack, began)
    measured.append((where, "client left", seconds, " + ".join(f"{a} ({b})" for a, b in kept) or "none"))
    until(lambda: stack.http.get(f"/v1/responses/{response_id}").json()["status"] == "cancelled")
    assert shape(stack.http.get(f"/v1/responses/{response_id}").json()) == kept
    assert [request["ending"] for request in stack.upstream()] == ["aborted"]


@pytest.mark.parametrize("faults", [{"first_token_seconds": 60}, {"stall_after": 3}], ids=["before", "stalled"])
def test_a_client_that_leaves_its_plain_call_cancels(stack: Stack, measured: Measured, faults: dict[str, Any]) -> None:
    stack.faults(**faults)
    with closing(raw_call(stack, HELLO)):
        until(lambda: running(stack) == 1)
        began = time.monotonic()
    seconds = closed_after(stack, began)
    measured.append((f"plain, {next(iter(faults))}", "client left", seconds, "as above"))
    until(lambda: [request["ending"] for request in stack.upstream()] == ["aborted"])


def test_a_client_that_leaves_while_its_response_is_queued_cancels(stack: Stack) -> None:
    stack.faults(next=2, stall_after=1)
    busy = [submit(stack, HELLO) for _ in range(2)]
    until(lambda: running(stack) == 2)
    with closing(raw_call(stack, HELLO | {"stream": True})) as connection:
        response_id = heard(connection, "response.created")
    until(lambda: stack.http.get(f"/v1/responses/{response_id}").json()["status"] == "cancelled")
    for one in busy:
        cancel(stack, one)
    until(lambda: running(stack) == 0)
    assert len(stack.upstream()) == 2


@pytest.mark.parametrize("mode", [{"stream": True}, {}], ids=["stream", "no stream"])
def test_a_background_response_never_notices_a_client_that_leaves(stack: Stack, mode: dict[str, Any]) -> None:
    stack.faults(tokens_per_second=50)
    body = {"model": MODEL, "input": "Hello", "background": True, **mode}
    if mode:
        with closing(raw_call(stack, body)) as connection:
            response_id = heard(connection, "response.created")
    else:
        response_id = submit(stack, body)
    followers = [raw_get(stack, response_id) for _ in range(3)]
    for follower in followers:
        heard(follower, "response.created")
        follower.close()
    until(lambda: stack.http.get(f"/v1/responses/{response_id}").json()["status"] == "completed")


def raw_get(stack: Stack, response_id: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", stack.api_port), timeout=10)
    connection.sendall(f"GET /v1/responses/{response_id}?stream=true HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def test_a_client_that_leaves_after_the_end_changes_nothing(stack: Stack) -> None:
    with closing(raw_call(stack, {"model": MODEL, "input": "Hello", "stream": True})) as connection:
        response_id = heard(connection, "response.completed")
    assert stack.http.get(f"/v1/responses/{response_id}").json()["status"] == "completed"


def test_a_client_that_leaves_while_redis_is_away_cancels_once_it_is_back(tmp_path: Path) -> None:
    with Stack(tmp_path, REJOINDER_STALL_TIMEOUT="60") as own:
        own.faults(stall_after=3)
        with closing(raw_call(own, HELLO)):
            until(lambda: running(own) == 1)
            own.redis.stop()
        own.start_redis()
        until(lambda: running(own) == 0)
        assert [request["ending"] for request in own.upstream()] == ["aborted"]
        until(lambda: "cancelled, its client left" in own.log())
