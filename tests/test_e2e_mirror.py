"""A server that mirrors reasoning as a summary: seen by who asks for summaries, stored and replayed by nobody."""

from collections.abc import Iterator

import pytest
import redis

from shared.json_codec import decode
from stack import MODEL, Stack, until

ASKED = {"model": MODEL, "input": "My name is Cleo.", "reasoning": {"summary": "auto"}}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("mirror"), REJOINDER_MIRROR_REASONING_AS_SUMMARY="true") as stack:
        yield stack


def test_every_view_shows_the_summary_and_the_store_and_vllm_never_see_it(stack: Stack) -> None:
    stack.forget()
    plain = stack.openai.responses.create(**ASKED)  # type: ignore[call-overload]
    reasoning = plain.output[0]
    assert [part.text for part in reasoning.summary] == [part.text for part in reasoning.content]
    assert stack.openai.responses.retrieve(plain.id).output[0] == reasoning

    with stack.openai.responses.stream(**ASKED, previous_response_id=plain.id) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.reasoning_summary_text.delta")
        final = stream.get_final_response()
    assert deltas == final.output[0].summary[0].text == final.output[0].content[0].text

    # The item as the client has it may come back: it is the one that is stored.
    inline = [plain.output[0].to_dict(), {"role": "user", "content": "And?"}]
    stack.openai.responses.create(model=MODEL, input=inline, previous_response_id=final.id)
    sent = [
        item for request in stack.upstream() for item in request["body"]["input"] if item.get("type") == "reasoning"
    ]
    assert len(sent) == 3
    assert all(item["summary"] == [] for item in sent)
    with redis.Redis.from_url(stack.redis.url) as client:
        stored = client.hget(f"rejoinder:{{s{plain.id[5:7]}}}:response:{plain.id}", "output:0")
    assert decode(stored)["summary"] == []


def test_who_does_not_ask_sees_none(stack: Stack) -> None:
    response = stack.openai.responses.create(model=MODEL, input="Hello")
    assert response.output[0].to_dict()["summary"] == []


def test_a_cancel_in_the_middle_closes_the_summary_too(stack: Stack) -> None:
    stack.forget()
    stack.faults(stall_after=4)
    job = stack.openai.responses.create(**ASKED, background=True)  # type: ignore[call-overload]
    until(lambda: stack.http.get(f"/v1/responses/{job.id}").json()["status"] == "in_progress")
    for event in stack.openai.responses.retrieve(job.id, stream=True):
        if event.type == "response.reasoning_summary_text.delta":
            break
    cancelled = stack.openai.responses.cancel(job.id)
    [item] = [item.to_dict() for item in cancelled.output]
    assert item["summary"] == [{"type": "summary_text", "text": item["content"][0]["text"]}]
    events = [event.to_dict() for event in stack.openai.responses.retrieve(job.id, stream=True)]
    assert events[-2]["item"] == item
    assert events[-1]["response"]["output"] == [item]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"].removeprefix("response.") for event in events[-6:]]
    assert types == [
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "failed",
    ]
