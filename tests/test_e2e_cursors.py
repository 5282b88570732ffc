"""From every cursor of a finished and of a running response: exactly the rest, in order, once."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from stack import MODEL, Stack


def follow(stack: Stack, response_id: str, after: int | None) -> bytes:
    cursor = "" if after is None else f"&starting_after={after}"
    with httpx.Client(base_url=stack.url, trust_env=False, timeout=30) as client:
        answer = client.get(f"/v1/responses/{response_id}?stream=true{cursor}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return answer.content


def frames(stream: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in stream.split(b"\n\n") if frame and not frame.startswith(b"event: keepalive")]


@pytest.mark.parametrize("pace", [None, 60], ids=["finished", "running"])
def test_every_cursor_gives_exactly_the_rest(stack: Stack, pace: int | None) -> None:
    if pace:
        stack.faults(tokens_per_second=pace)
    request = {"model": MODEL, "input": "Hello, who are you?", "background": True}
    response = stack.http.post("/v1/responses", json=request).json()
    if pace is None:
        follow(stack, response["id"], None)
    with ThreadPoolExecutor(70) as pool:
        whole = pool.submit(follow, stack, response["id"], None)
        if pace:  # most of these cursors lie ahead of what has been written
            early = [pool.submit(follow, stack, response["id"], after) for after in range(50)]
            expected = frames(whole.result())
            for after, found in enumerate(early):
                assert frames(found.result()) == (expected[after + 1 :] or [b"data: [DONE]\n\n"])
        expected = frames(whole.result())
        rest = [pool.submit(follow, stack, response["id"], after) for after in range(len(expected) + 3)]
        for after, found in enumerate(rest):
            assert frames(found.result()) == (expected[after + 1 :] or [b"data: [DONE]\n\n"])
    assert expected[-1] == b"data: [DONE]\n\n"


def test_a_follower_that_is_cut_off_again_and_again_misses_nothing(stack: Stack) -> None:
    """A running response followed from each of its cursors in turn, as it grows."""
    stack.faults(tokens_per_second=80)
    request = {"model": MODEL, "input": "Count to 25.", "background": True}
    response_id = stack.http.post("/v1/responses", json=request).json()["id"]
    numbers: list[int] = []
    types: list[str] = []
    while not types or types[-1] not in {"response.completed", "response.failed"}:
        cursor = f"&starting_after={numbers[-1]}" if numbers else ""
        with stack.http.stream("GET", f"/v1/responses/{response_id}?stream=true{cursor}") as answer:
            for line in answer.iter_lines():
                if line.startswith("event: ") and line != "event: keepalive":
                    types.append(line.removeprefix("event: "))
                elif line.startswith('data: {"type":"') and "keepalive" not in line:
                    numbers.append(int(line.split('"sequence_number":')[1].split(",")[0].rstrip("}")))
                    break
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 40


def test_a_foreground_response_can_be_read_but_not_followed_again(stack: Stack) -> None:
    response = stack.openai.responses.create(model=MODEL, input="Hello")
    answer = stack.http.get(f"/v1/responses/{response.id}?stream=true")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", str(2**60)])
def test_a_cursor_that_is_none_is_refused(stack: Stack, cursor: str) -> None:
    response = stack.openai.responses.create(model=MODEL, input="Hello", background=True)
    answer = stack.http.get(f"/v1/responses/{response.id}?stream=true&starting_after={cursor}")
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "starting_after", "invalid_value")
