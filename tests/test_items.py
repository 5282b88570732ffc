"""Items at the door: what passes untouched, what is refused and where."""

import copy
from typing import Any

import pytest

from shared.errors import InvalidRequest
from shared.items import input_items, kind, name_of, plain_text, references

CANARY = "canary-7f3a"

TAKEN: dict[str, dict[str, Any]] = {
    "easy message": {"role": "user", "content": "Hello"},
    "full message": {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Hello", "prompt_cache_breakpoint": {"mode": "explicit"}}],
    },
    "assistant string with phase": {"role": "assistant", "content": "Hi", "phase": "commentary"},
    "assistant message without id, status, annotations": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi"}],
    },
    "assistant message with nulls": {
        "type": "message",
        "id": None,
        "status": None,
        "phase": None,
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi", "annotations": None, "logprobs": None}],
    },
    "assistant refusal": {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    "empty contents": {"role": "user", "content": []},
    "image": {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
    "file": {"role": "user", "content": [{"type": "input_file", "file_url": "https://x/y", "new": 1}]},
    "unknown part of an answer": {"role": "assistant", "content": [{"type": "output_smell", "smell": "rose"}]},
    "reasoning as vLLM returns it": {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": None,
        "status": None,
    },
    "bare reasoning": {"type": "reasoning"},
    "reasoning with a blob": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    "function call": {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "", "status": None},
    "function call output": {"type": "function_call_output", "call_id": "c1", "output": "3"},
    "function call output in parts": {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [{"type": "input_text", "text": "3"}],
    },
    "custom tool call": {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "cats"},
    "custom tool call output": {"type": "custom_tool_call_output", "call_id": "c1", "output": "dogs"},
    "reference": {"type": "item_reference", "id": "rs_1"},
    "reference with a null type": {"type": None, "id": "rs_1"},
    "additional tools": {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "add"}],
    },
    "hosted item": {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    "unknown type": {"type": "acme:thing", "id": "x", "deep": [{"er": None}]},
}


@pytest.mark.parametrize("item", TAKEN.values(), ids=TAKEN.keys())
def test_taken_as_it_came(item: dict[str, Any]) -> None:
    before = copy.deepcopy(item)
    assert input_items([item]) == [before]
    assert input_items([item])[0] is item


def test_a_string_is_one_user_message() -> None:
    assert input_items("Hello") == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    ]
    assert input_items("")[0]["content"] == [{"type": "input_text", "text": ""}]
    longest = "x" * (10 * 1024 * 1024)
    assert input_items(longest)[0]["content"][0]["text"] == longest


MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"

REFUSED: dict[str, tuple[Any, str, str]] = {
    "absent": (None, "input", MISSING),
    "a number": (7, "input", TYPE),
    "an object": ({"role": "user"}, "input", TYPE),
    "too long": ("x" * (10 * 1024 * 1024 + 1), "input", VALUE),
    "string item": ([CANARY], "input[0]", TYPE),
    "a message whose type is misspelt": (
        [{"type": "mesage", "role": "user", "content": CANARY}],
        "input[0].type",
        VALUE,
    ),
    "neither type nor role": ([{"content": CANARY}], "input[0]", VALUE),
    "type is a number": ([{"type": 7, "role": "user", "content": CANARY}], "input[0].type", TYPE),
    "null role": ([{"role": None, "content": CANARY}], "input[0].role", MISSING),
    "role tool": ([{"role": CANARY, "content": "x"}], "input[0].role", VALUE),
    "no content": ([{"role": "user"}], "input[0].content", MISSING),
    "second item": ([{"role": "user", "content": "x"}, {"role": "user", "content": 3}], "input[1].content", TYPE),
    "part without type": ([{"role": "user", "content": [{"text": CANARY}]}], "input[0].content[0].type", MISSING),
    "part is a string": ([{"role": "user", "content": [CANARY]}], "input[0].content[0]", TYPE),
    "part without text": ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text", MISSING),
    "text is a number": (
        [{"role": "user", "content": [{"type": "input_text", "text": 3}]}],
        "input[0].content[0].text",
        TYPE,
    ),
    "refusal without text": (
        [{"role": "assistant", "content": [{"type": "refusal", "text": CANARY}]}],
        "input[0].content[0].refusal",
        MISSING,
    ),
    "id is a number": ([{"type": "x", "id": 3}], "input[0].id", TYPE),
    "id with a space": ([{"type": "x", "id": f"{CANARY} x"}], "input[0].id", VALUE),
    "id too long": ([{"type": "x", "id": "i" * 257}], "input[0].id", VALUE),
    "status is a number": ([{"type": "reasoning", "status": 3}], "input[0].status", TYPE),
    "reasoning content is text": ([{"type": "reasoning", "content": CANARY}], "input[0].content", TYPE),
    "reasoning summary without text": (
        [{"type": "reasoning", "summary": [{"type": "summary_text"}]}],
        "input[0].summary[0].text",
        MISSING,
    ),
    "blob is an object": ([{"type": "reasoning", "encrypted_content": {}}], "input[0].encrypted_content", TYPE),
    "call without call_id": (
        [{"type": "function_call", "name": CANARY, "arguments": "{}"}],
        "input[0].call_id",
        MISSING,
    ),
    "call with an empty call_id": (
        [{"type": "function_call", "call_id": "", "name": "n", "arguments": "{}"}],
        "input[0].call_id",
        VALUE,
    ),
    "output with an empty call_id": (
        [{"type": "function_call_output", "call_id": "", "output": "x"}],
        "input[0].call_id",
        VALUE,
    ),
    "call with an empty name": (
        [{"type": "function_call", "call_id": "c", "name": "", "arguments": "{}"}],
        "input[0].name",
        VALUE,
    ),
    "call with parsed arguments": (
        [{"type": "function_call", "call_id": "c", "name": "n", "arguments": {"a": CANARY}}],
        "input[0].arguments",
        TYPE,
    ),
    "custom call without input": (
        [{"type": "custom_tool_call", "call_id": "c", "name": "n"}],
        "input[0].input",
        MISSING,
    ),
    "output without call_id": (
        [{"type": "function_call_output", "call_id": None, "output": CANARY}],
        "input[0].call_id",
        MISSING,
    ),
    "output is an object": (
        [{"type": "function_call_output", "call_id": "c", "output": {"a": CANARY}}],
        "input[0].output",
        TYPE,
    ),
    "unknown part": (
        [{"role": "user", "content": [{"type": "input_text", "text": ""}, {"type": CANARY}]}],
        "input[0].content[1].type",
        VALUE,
    ),
    "unknown part of an output": (
        [{"type": "function_call_output", "call_id": "c", "output": [{"type": CANARY}]}],
        "input[0].output[0].type",
        VALUE,
    ),
    "image detail": (
        [{"role": "system", "content": [{"type": "input_image", "image_url": CANARY, "detail": CANARY}]}],
        "input[0].content[0].detail",
        VALUE,
    ),
    "chat-style image": (
        [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": CANARY}}]}],
        "input[0].content[0].image_url",
        TYPE,
    ),
    "no output": ([{"type": "custom_tool_call_output", "call_id": "c"}], "input[0].output", MISSING),
    "reference without id": ([{"type": "item_reference"}], "input[0].id", MISSING),
    "additional tools without name": (
        [{"type": "additional_tools", "tools": [{"type": "function"}]}],
        "input[0].tools[0].name",
        MISSING,
    ),
    "compaction trigger": ([{"type": "compaction_trigger"}], "input[0].type", VALUE),
}


@pytest.mark.parametrize(("value", "param", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(value: object, param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        input_items(value)
    error = caught.value
    assert (error.status, error.type, error.param, error.code) == (400, "invalid_request_error", param, code)
    assert param in error.message
    assert CANARY not in error.message


def test_kinds_and_references() -> None:
    items = [*TAKEN.values()]
    assert [kind(item) for item in items[:8]] == ["message"] * 8
    assert references(items) == [
        (index, "rs_1") for index, name in enumerate(TAKEN) if name in {"reference", "reference with a null type"}
    ]
    # A message with an id is no reference, and neither is anything else with more than an id.
    assert [kind(item) for item in ({"id": "a", "role": "user"}, {"id": "a", "x": 1}, {})] == ["message", "", ""]


def test_names_hold_ids_only() -> None:
    assert name_of({"type": CANARY, "id": "rs_1"}) == "item 'rs_1'"
    assert name_of({"type": "reasoning"}) == "an item without an id"
    assert name_of({"id": f"{CANARY} with a space"}) == "an item without an id"


def test_plain_text() -> None:
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "b"},
        {"type": "input_image", "image_url": "c"},
        {"type": "reasoning_text", "text": "d\n"},
    ]
    assert plain_text(parts) == "a\nb\nd\n"
    assert [plain_text(nothing) for nothing in (None, [], "", [{"text": "no type"}], 7)] == [""] * 5


def test_more_items_than_redis_could_take_at_once_are_refused() -> None:
    item = {"role": "user", "content": "x"}
    assert len(input_items([item] * 100_000)) == 100_000
    with pytest.raises(InvalidRequest) as refused:
        input_items([item] * 100_001)
    assert (refused.value.status, refused.value.param) == (400, "input")
