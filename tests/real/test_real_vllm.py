"""Against a real vLLM, through the whole house: `make test-vllm`, see CONTRIBUTING. Skipped without its address."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from captured_histories import histories, next_input
from chain import NEW
from oddities import KINDS, oddities
from shared.errors import InvalidRequest
from shared.json_codec import encode
from shared.replay import ReplayPolicy, upstream_body
from shared.request import parse_request
from stack import Stack, until

Wire = dict[str, Any]

#: Read here: the tests' own environment holds no such variable.
URL = os.environ.get("REJOINDER_TEST_VLLM_URL")

pytestmark = [
    pytest.mark.skipif(URL is None, reason="REJOINDER_TEST_VLLM_URL names no vLLM"),
    pytest.mark.timeout(900),
]

#: A model on a CPU may take its time.
PATIENT = {f"REJOINDER_{name}_TIMEOUT": "120" for name in ("FIRST_EVENT", "STALL")}
WEATHER: Wire = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class House:
    """Rejoinder in front of the real vLLM."""

    def __init__(self, stack: Stack, url: str) -> None:
        self.stack = stack
        self.vllm = httpx.Client(base_url=url.removesuffix("/").removesuffix("/v1"), trust_env=False, timeout=120)
        self.model: str = self.vllm.get("/v1/models").json()["data"][0]["id"]

    def post(self, **body: Any) -> httpx.Response:
        return self.stack.http.post("/v1/responses", json={"model": self.model, "temperature": 0, **body}, timeout=300)

    def turn(self, **body: Any) -> Wire:
        """A whole turn with the prompt that the model was shown."""
        answer = self.post(enable_response_messages=True, **body)
        assert answer.status_code == 200, answer.text
        response: Wire = answer.json()
        assert response["status"] == "completed"
        return response

    def running(self) -> float:
        """Requests that the engine works on."""
        lines = self.vllm.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running{"))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    assert URL is not None
    with Stack(tmp_path_factory.mktemp("real"), vllm_url=URL, **PATIENT) as stack:
        yield House(stack, URL)


@pytest.fixture(scope="module")
def keeps(house: House) -> bool:
    """Whether the model's template renders reasoning that stands before the last user message. Asked of vLLM itself."""
    items = [
        {"role": "user", "content": "Hello"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "zebra quartz"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]},
        {"role": "user", "content": "Hello again"},
    ]
    body = {"model": house.model, "input": items, "max_output_tokens": 1, "enable_response_messages": True}
    answer = house.vllm.post("/v1/responses", json=body)
    answer.raise_for_status()
    return "zebra quartz" in rendered(answer.json())


def rendered(response: Wire) -> str:
    return "".join(message["message"] for message in response["input_messages"])


def thoughts(*responses: Wire) -> list[str]:
    """The reasoning texts; a template may strip them."""
    items = [item for response in responses for item in response["output"] if item["type"] == "reasoning"]
    return [part["text"].strip() for item in items for part in item["content"]]


def shown(response: Wire, *earlier: Wire) -> list[bool]:
    """Which of the earlier turns' reasoning texts the model was shown whole."""
    prompt = rendered(response)
    return [thought in prompt for thought in thoughts(*earlier)]


def report(name: str, *turns: Wire) -> None:
    """The shape of a transcript, for `-s`: no text of it."""
    for number, turn in enumerate(turns):
        kinds = [item["type"] for item in turn["output"]]
        tokens = turn["usage"]["input_tokens"]
        print(f"\n{name}, turn {number + 1}: {kinds}, {tokens} tokens in, shown {shown(turn, *turns[:number])}", end="")


def kinds_of(response: Wire) -> set[str]:
    return {item["type"] for item in response["output"]}


def answered(response: Wire, weather: str) -> list[Wire]:
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": weather} for call in calls]


def test_a_tool_loop_keeps_its_reasoning(house: House, keeps: bool) -> None:
    first = house.turn(input="What is the weather in Paris?", tools=[WEATHER])
    assert kinds_of(first) >= {"reasoning", "function_call"}
    second = house.turn(input=answered(first, "sunny, 21 degrees"), tools=[WEATHER], previous_response_id=first["id"])
    assert kinds_of(second) == {"reasoning", "message"}
    third = house.turn(input="What is the weather in Rome?", tools=[WEATHER], previous_response_id=second["id"])
    assert kinds_of(third) >= {"reasoning", "function_call"}
    fourth = house.turn(input=answered(third, "rain, 12 degrees"), tools=[WEATHER], previous_response_id=third["id"])
    report("tool loop", first, second, third, fourth)
    assert shown(second, first) == [True]
    assert shown(third, first, second) == [keeps, keeps]
    assert shown(fourth, third) == [True]
    assert "sunny, 21 degrees" in rendered(fourth)
    assert house.stack.http.get(f"/v1/responses/{fourth['id']}").json() == fourth


def test_a_conversation_shows_the_model_all_that_its_template_keeps(house: House, keeps: bool) -> None:
    first = house.turn(input="My name is Cleo.")
    second = house.turn(input="My color is red.", previous_response_id=first["id"])
    third = house.turn(input="What is my name?", previous_response_id=second["id"])
    current = house.turn(
        input="What is my name?", previous_response_id=second["id"], reasoning={"context": "current_turn"}
    )
    report("conversation", first, second, third)
    report("the same, current_turn", first, second, current)
    assert len(thoughts(first, second)) == 2
    assert shown(third, first, second) == [keeps, keeps]
    assert shown(current, first, second) == [False, False]
    assert (third["reasoning"]["context"], current["reasoning"]["context"]) == ("all_turns", "current_turn")
    cost = third["usage"]["input_tokens"] - current["usage"]["input_tokens"]
    assert cost > 0 if keeps else cost == 0
    answer = next(item for item in third["output"] if item["type"] == "message")
    assert answer["content"][0]["text"].strip() in rendered(
        house.turn(input="Thanks!", previous_response_id=third["id"])
    )


def _posted(house: House, bodies: list[Wire]) -> list[Wire]:
    """Every body is answered; the counts are printed, for `-s`."""
    with ThreadPoolExecutor(16) as crowd:
        answers = list(crowd.map(lambda body: house.post(**body), bodies))
    print(f"\n{Counter(answer.status_code for answer in answers)}", end="")
    refused = [(body, answer.text) for body, answer in zip(bodies, answers, strict=True) if answer.is_error]
    assert refused == []
    responses = [answer.json() for answer in answers]
    assert {response["status"] for response in responses} <= {"completed", "incomplete"}
    return responses


#: A few of the recorded turns fill a small context, the more so where all reasoning is rendered.
BRIEF: Wire = {"max_output_tokens": 4, "truncation": "auto"}


def test_every_recorded_turn_goes_on(house: House) -> None:
    found = histories().values()
    assert len(found) == 136
    _posted(house, [{"input": history.items, **BRIEF} for history in found])


def test_every_recorded_request_is_answered_anew_and_the_stored_turn_goes_on(house: House) -> None:
    taken = []
    for history in histories().values():
        ways = ("model", "stream", "stream_options", "conversation", "request_id")
        body = {name: value for name, value in history.request.items() if name not in ways}
        try:
            parse_request({"model": "m", **body})
        except InvalidRequest:
            continue
        taken.append(body)
    assert len(taken) > 120
    nexts = [
        {"input": next_input(response["output"]), "previous_response_id": response["id"], **BRIEF}
        for response in _posted(house, taken)
    ]
    _posted(house, nexts)


def test_every_oddity_is_answered(house: House) -> None:
    """Every distinct body that the oddities of all kinds of items leave as."""
    distinct: dict[bytes, list[Wire]] = {}
    for item in (item for kind in KINDS for item in oddities(kind)):
        try:
            request = parse_request({"model": "m", "input": [item, *NEW]})
            body = upstream_body(request.options, [], request.input, seed=1, policy=ReplayPolicy())
        except InvalidRequest:
            continue
        distinct.setdefault(encode(body), request.input)
    assert len(distinct) > 150
    _posted(house, [{"input": items, "max_output_tokens": 1} for items in distinct.values()])


#: What the door takes at its limits. `logit_bias` and `stop_token_ids` name tokens: those of any model.
LIMITS: dict[str, Wire] = {
    "lowest sampling": {"temperature": 0, "top_p": 1e-6, "top_k": -1, "min_p": 0, "repetition_penalty": 0.01},
    "highest sampling": {"temperature": 2, "top_p": 1, "top_k": 2**31 - 1, "min_p": 1, "repetition_penalty": 2},
    "lowest penalties": {"presence_penalty": -2, "frequency_penalty": -2, "logit_bias": {"1": -100}},
    "highest penalties": {"presence_penalty": 2, "frequency_penalty": 2, "logit_bias": {"1": 100.5}},
    "lowest numbers": {"seed": -(2**63) + 1, "priority": -(2**63) + 1},
    "highest numbers": {"seed": 2**63 - 1, "priority": 2**63 - 1},
    "stops": {"stop": ["a", "b", "c", "\n"], "stop_token_ids": [1], "include_stop_str_in_output": True},
    "salt": {"cache_salt": "s" * 128},
    "log probabilities": {"include": ["message.output_text.logprobs"], "top_logprobs": 20},
    "every effort": {"reasoning": {"effort": "max", "summary": "detailed", "context": "auto"}},
    "no effort": {"reasoning": {"effort": "none"}},
    "schema": {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
    "json": {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    "structured": {"structured_outputs": {"regex": "a"}, "text": {"format": {"type": "text"}}},
    "a required call and a schema": {
        "tools": [WEATHER],
        "tool_choice": "required",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    },
    "a custom tool with a grammar": {
        "tools": [
            {"type": "custom", "name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": "a"}}
        ],
        "tool_choice": {"type": "custom", "name": "run"},
    },
    "a namespace, empty and with a hosted tool": {
        "tools": [
            {"type": "namespace", "name": "none", "tools": []},
            {"type": "namespace", "name": "ns", "tools": [{**WEATHER, "strict": None}, {"type": "web_search"}]},
            {"type": "web_search"},
        ]
    },
    "allowed tools": {
        "tools": [WEATHER, {**WEATHER, "name": "other"}],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]},
    },
    "unknown template kwargs": {"chat_template_kwargs": {"preserve_thinking": True, "acme": [1, None]}},
    "the rest of vLLM's own": {
        "ec_transfer_params": {},
        "kv_transfer_params": {},
        "media_io_kwargs": {},
        "mm_processor_kwargs": {},
        "vllm_xargs": {"a": 1},
        "session_id": "s",
        "skip_special_tokens": False,
        "include_reasoning": False,
        "ignore_eos": True,
    },
    "OpenAI's": {
        "metadata": {"k": "v"},
        "include": ["web_search_call.action.sources", "reasoning.encrypted_content"],
        "service_tier": "flex",
        "truncation": "auto",
        "max_tool_calls": 1,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "user": "u",
    },
}


@pytest.mark.parametrize("given", LIMITS.values(), ids=LIMITS.keys())
def test_what_the_door_takes_vllm_takes(house: House, given: Wire) -> None:
    answer = house.post(**{"input": "Hello", "max_output_tokens": 1, **given})
    assert answer.status_code == 200, answer.text


def test_a_cancel_ends_the_generation_within_a_second(house: House) -> None:
    until(lambda: house.running() == 0)
    body = {"input": "Count to 40.", "background": True, "ignore_eos": True, "max_output_tokens": 1500}
    response = house.post(**body).json()
    until(lambda: house.running() == 1)
    cancelled = house.stack.http.post(f"/v1/responses/{response['id']}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    until(lambda: house.running() == 0, timeout=1)
