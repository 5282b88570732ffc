"""The items of a conversation, as they are stored, and as they are sent to vLLM. Plain dicts."""

from typing import Any

Item = dict[str, Any]

BLOB = "gAAAcanary=="


def user(content: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": content}]}


def reasoning(own: str, text: str, **more: Any) -> Item:
    """As the store keeps it, nulls and a mark of ours included."""
    return {
        "id": own,
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        "encrypted_content": None,
        "status": None,
        "_agentic_item_kind": "reasoning",
        **more,
    }


def reasoning_sent(own: str, text: str) -> Item:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": own, "status": "completed", "summary": [], "content": content}


def call(own: str, call_id: str, city: str, **more: Any) -> Item:
    return {
        "id": own,
        "type": "function_call",
        "call_id": call_id,
        "name": "get_weather",
        "arguments": f'{{"city": "{city}"}}',
        "namespace": None,
        "status": "completed",
        **more,
    }


def call_sent(own: str, call_id: str, city: str) -> Item:
    return {key: value for key, value in call(own, call_id, city).items() if value is not None}


def output(call_id: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(own: str, text: str, **more: Any) -> Item:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": own, "type": "message", "role": "assistant", "status": "completed", "content": content, **more}


def said_sent(own: str, text: str) -> Item:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": own, "type": "message", "role": "assistant", "status": "completed", "content": content}


# Three turns of a tool loop: a question with two calls, their outputs and the answer, a second question.
TURN_1 = [
    user("Weather in Paris and Rome?"),
    reasoning("rs_1", "two calls"),
    call("fc_1", "c1", "Paris"),
    call("fc_2", "c2", "Rome"),
]
TURN_2 = [output("c1", "sunny"), output("c2", "rainy"), reasoning("rs_2", "I can answer"), said("msg_1", "Sun, rain.")]
NEW = [user("And tomorrow?")]

TURN_1_SENT = [
    user("Weather in Paris and Rome?"),
    reasoning_sent("rs_1", "two calls"),
    call_sent("fc_1", "c1", "Paris"),
    call_sent("fc_2", "c2", "Rome"),
]
TURN_2_SENT = [
    output("c1", "sunny"),
    output("c2", "rainy"),
    reasoning_sent("rs_2", "I can answer"),
    said_sent("msg_1", "Sun, rain."),
]
