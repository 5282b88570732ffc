"""Limits through the whole house: what is over one ends, with what had come, and frees the upstream at once."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from scripted_vllm import HELLO, Reply, ScriptedVllm
from shared.json_codec import encode
from stack import MODEL, Stack, until
from wire import Wire, done, message, ot_d, terminal

CREATE = "/v1/responses"
LIMITS = {
    "REJOINDER_MAX_EVENT_BYTES": "5000",
    "REJOINDER_MAX_ITEM_BYTES": "2000",
    "REJOINDER_MAX_RESPONSE_BYTES": "4000",
    "REJOINDER_MAX_ITEMS": "5",
    "REJOINDER_MAX_PARTS": "6",
    "REJOINDER_MAX_HISTORY_BYTES": "8000",
    "REJOINDER_MAX_HISTORY_ITEMS": "12",
}


def frames(*wires: Wire) -> list[bytes]:
    return [b"data: %b\n\n" % encode(wire) for wire in wires]


class House(Stack):
    """The house in front of an upstream that answers as it is told."""

    def start_vllm(self) -> Any:
        self.scripted = ScriptedVllm(self.simulator_port, MODEL)
        self._exits.callback(self.scripted.down)

    def ended(self, response_id: str) -> Any:
        found = self.http.get(f"{CREATE}/{response_id}").json()
        return found if found["status"] not in {"queued", "in_progress"} else None


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("limits"), **LIMITS) as house:
        yield house


ENDLESS: dict[str, tuple[str, list[Wire]]] = {
    "deltas": ("max_item_bytes is 2000", [ot_d(0, "msg_1", 0, "x" * 90)] * 500),
    "texts of several items": (
        "max_response_bytes is 4000",
        [ot_d(at % 4, f"msg_{at % 4}", 0, "x" * 90) for at in range(500)],
    ),
    "events of unknown types": ("max_response_bytes is 4000", [{"type": "acme:tick"}] * 500),
    "items": ("max_items is 5", [done(at, message(f"msg_{at}", "A")) for at in range(500)]),
    "parts": ("max_parts is 6", [ot_d(0, "msg_1", at, "A") for at in range(500)]),
    "one event": ("max_event_bytes", [ot_d(0, "msg_1", 0, "A"), *[ot_d(0, "msg_1", 0, "x" * 6000)] * 500]),
}


@pytest.mark.parametrize(("said", "wires"), ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_stream_ends_as_failed_with_the_limits_name_and_vllm_is_left(
    house: House, said: str, wires: list[Wire]
) -> None:
    house.scripted.replies = [Reply(parts=[*HELLO[:1], *frames(*wires)], pause=0.002, then="hang")]
    created = house.http.post(CREATE, json={"model": MODEL, "input": "Hello", "background": True}).json()
    failed = until(lambda: house.ended(created["id"]))
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "server_error"
    assert said in failed["error"]["message"]
    assert {item["status"] for item in failed["output"]} <= {"completed", "incomplete"}
    assert not failed["output"] or failed["output"][-1]["status"] == "incomplete"
    assert len(encode(failed["output"])) < 5000
    until(lambda: not any("process_request" in thread.name for thread in threading.enumerate()))
    assert house.scripted.sent < len(wires)


def test_a_plain_call_says_so_too(house: House) -> None:
    house.scripted.replies = [Reply(parts=[*HELLO[:1], *frames(*ENDLESS["deltas"][1])], then="hang")]
    answer = house.http.post(CREATE, json={"model": MODEL, "input": "Hello"})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (502, "false")
    assert "max_item_bytes is 2000" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("x" * 1500, "max_history_bytes is 8000"), ("x", "max_history_items is 12")],
    ids=["bytes", "items"],
)
def test_a_history_over_its_limit_is_refused_at_the_door(house: House, text: str, said: str) -> None:
    house.scripted.replies = [Reply(parts=frames(terminal(output=[message("msg_1", "A")])))]
    asked = {"model": MODEL, "input": text}
    answer = house.http.post(CREATE, json=asked)
    while answer.status_code == 200:
        asked["previous_response_id"] = answer.json()["id"]
        answer = house.http.post(CREATE, json=asked)
    requests = len(house.scripted.requests)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input")
    assert said in error["message"]
    assert house.http.post(CREATE, json={**asked, "background": True}).json()["error"] == error
    assert len(house.scripted.requests) == requests


def test_references_are_bounded_like_a_history(house: House) -> None:
    house.scripted.replies = [Reply(parts=frames(terminal(output=[message("msg_big", "x" * 1500)])))]
    house.http.post(CREATE, json={"model": MODEL, "input": "Hello"}).raise_for_status()
    for count, status in ((3, 200), (6, 400)):
        asked = {"model": MODEL, "input": [{"type": "item_reference", "id": "msg_big"}] * count}
        assert house.http.post(CREATE, json=asked).status_code == status
