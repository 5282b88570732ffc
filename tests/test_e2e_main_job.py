"""The main job through the official client, unmodified, against real processes."""

import json
from typing import Any

import openai
import pytest

from stack import MODEL, Stack, until

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}

#: OpenAI's reference §2 and Open Responses' 29.
KEYS = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "metadata",
    "conversation",
    "prompt_cache_options",
    "user",
}


def test_a_plain_response(stack: Stack) -> None:
    response = stack.openai.responses.create(model=MODEL, input="Hello, my name is Cleo.", metadata={"a": "b"})
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output_text.strip()
    assert response.metadata == {"a": "b"}
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    assert response._request_id
    assert stack.openai.responses.retrieve(response.id).to_dict() == response.to_dict()


def test_a_stream_and_what_is_stored_are_one(stack: Stack) -> None:
    events = list(stack.openai.responses.create(model=MODEL, input="Hello there.", stream=True))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1]
    assert final.type == "response.completed"
    done = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    assert done == [item.to_dict() for item in final.response.output]
    assert stack.openai.responses.retrieve(final.response.id).to_dict() == final.response.to_dict()
    for text in ("reasoning_text", "output_text"):
        deltas = "".join(event.delta for event in events if event.type == f"response.{text}.delta")
        [whole] = [event.text for event in events if event.type == f"response.{text}.done"]
        assert deltas == whole != ""


def test_every_event_that_carries_a_response_carries_every_key(stack: Stack) -> None:
    with stack.http.stream(
        "POST", "/v1/responses", json={"model": MODEL, "input": "Hello", "stream": True, "background": True}
    ) as answer:
        data = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    events = [json.loads(one) for one in data[:-1]]
    carriers = {event["type"]: event["response"] for event in events if "response" in event}
    assert list(carriers) == ["response.created", "response.queued", "response.in_progress", "response.completed"]
    for response in carriers.values():
        assert set(response) >= KEYS
        assert response["background"] is True
    assert [response["status"] for response in carriers.values()] == ["queued", "queued", "in_progress", "completed"]
    stored = stack.http.get(f"/v1/responses/{carriers['response.created']['id']}").json()
    assert stored == carriers["response.completed"]


def test_a_plain_and_a_streamed_call_give_the_same_items(stack: Stack) -> None:
    request: Any = {"model": MODEL, "input": "What is the weather in Paris?", "tools": [WEATHER], "temperature": 0}
    plain = stack.openai.responses.create(**request)
    streamed = list(stack.openai.responses.create(**request, stream=True))[-1].response
    assert _without_ids(plain) == _without_ids(streamed)
    assert [item.type for item in plain.output] == ["reasoning", "function_call"]


def _without_ids(response: Any) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in item.to_dict().items() if key not in {"id", "call_id"}}
        for item in response.output
    ]


def test_the_stream_helper(stack: Stack) -> None:
    with stack.openai.responses.stream(model=MODEL, input="Hello", tools=[WEATHER]) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    assert final.output_text.strip()


def test_the_stream_helper_parses_a_function_call(stack: Stack) -> None:
    with stack.openai.responses.stream(model=MODEL, input="What is the weather in Rome?", tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    [call] = [item for item in final.output if item.type == "function_call"]
    assert call.parsed_arguments == {"city": "Rome"}


def test_a_background_response_returns_at_once_is_polled_and_resumed(stack: Stack) -> None:
    stack.faults(tokens_per_second=60)
    queued = stack.openai.responses.create(model=MODEL, input="Count to 30.", background=True)
    assert (queued.status, queued.output, queued.background) == ("queued", [], True)
    followed = stack.openai.responses.retrieve(queued.id, stream=True)
    first = [next(followed) for _ in range(8)]
    followed.close()
    cursor = first[-1].sequence_number
    rest = list(stack.openai.responses.retrieve(queued.id, stream=True, starting_after=cursor))
    numbers = [event.sequence_number for event in [*first, *rest]]
    assert numbers == list(range(len(numbers)))
    assert rest[-1].type == "response.completed"
    polled = until(lambda: _ended(stack, queued.id))
    assert polled.to_dict() == rest[-1].response.to_dict()


def _ended(stack: Stack, response_id: str) -> Any:
    response = stack.openai.responses.retrieve(response_id)
    return response if response.status not in {"queued", "in_progress"} else None


def test_the_helper_resumes_a_background_response(stack: Stack) -> None:
    queued = stack.openai.responses.create(model=MODEL, input="Hello", background=True)
    with stack.openai.responses.stream(response_id=queued.id, starting_after=3) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    assert numbers == list(range(4, numbers[-1] + 1))
    assert final.status == "completed"


def test_a_continuation_remembers(stack: Stack) -> None:
    first = stack.openai.responses.create(model=MODEL, input="My name is Cleo.", instructions="Be brief.")
    second = stack.openai.responses.create(model=MODEL, input="What is my name?", previous_response_id=first.id)
    assert "Cleo" in second.output_text
    assert second.previous_response_id == first.id
    assert second.instructions is None, "instructions are not inherited"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_function_call_and_its_output_over_three_turns(stack: Stack, stream: bool) -> None:
    def turn(**request: Any) -> Any:
        answer = stack.openai.responses.create(model=MODEL, tools=[WEATHER], stream=stream, **request)
        return list(answer)[-1].response if stream else answer

    first = turn(input="What is the weather in Paris?")
    [call] = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Paris"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"}
    second = turn(input=[output], previous_response_id=first.id)
    assert "21" in second.output_text
    third = turn(input="Thank you. Which city was that?", previous_response_id=second.id)
    assert third.status == "completed"
    sent = [item.get("type", "message") for item in stack.upstream()[-1]["body"]["input"]]
    assert sent == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
        "message",
    ]


def test_an_incomplete_response_says_why_and_continues(stack: Stack) -> None:
    first = stack.openai.responses.create(model=MODEL, input="Count to 50.", max_output_tokens=25)
    assert first.status == "incomplete"
    assert first.incomplete_details is not None
    assert first.incomplete_details.reason == "max_output_tokens"
    assert first.output[-1].status == "incomplete"
    second = stack.openai.responses.create(model=MODEL, input="Go on.", previous_response_id=first.id)
    assert second.status == "completed"


@pytest.mark.parametrize("ask", ["Count to 50.", "What is the weather in Paris?"], ids=["text", "call"])
def test_wherever_it_is_cut_the_last_item_is_incomplete_and_no_other(stack: Stack, ask: str) -> None:
    request: Any = {"model": MODEL, "input": ask, "tools": [WEATHER], "temperature": 0}
    for limit in range(1, 45):
        plain = stack.openai.responses.create(**request, max_output_tokens=limit)
        streamed = list(stack.openai.responses.create(**request, max_output_tokens=limit, stream=True))[-1].response
        assert _without_ids(plain) == _without_ids(streamed)
        statuses = [item.status for item in plain.output]
        whole = ["completed"] * len(statuses)
        assert statuses == (whole if plain.status == "completed" else [*whole[:-1], "incomplete"][: len(whole)]), limit


def test_an_unstored_response_is_gone_after_its_answer(stack: Stack) -> None:
    response = stack.openai.responses.create(model=MODEL, input="Hello", store=False)
    with pytest.raises(openai.NotFoundError):
        stack.openai.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        stack.openai.responses.create(model=MODEL, input="Hello", previous_response_id=response.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


def test_models_health_and_readiness(stack: Stack) -> None:
    assert [model.id for model in stack.openai.models.list()] == [MODEL]
    assert stack.openai.models.retrieve(MODEL).object == "model"
    with pytest.raises(openai.NotFoundError):
        stack.openai.models.retrieve("nope")
    assert stack.http.get("/health").json() == {"status": "ok"}
    assert stack.http.get("/ready").json() == {"redis": True, "worker": True, "upstream": True}
