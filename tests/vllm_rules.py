"""What vLLM 0.32 answers with 400 or 500, as a pure function of the body that it is sent.

Its item, tool and choice types are those of the `openai` package; its own rules follow, each under a name.
`test_replay` holds them against every recorded request and the status that a real vLLM gave it.
"""

import copy
from collections.abc import Iterator
from typing import Any, Literal

from openai.types.responses import ResponseInputItemParam, ResponseOutputItem, ResponseTextConfig, Tool
from openai.types.responses.response import ToolChoice
from pydantic import BaseModel, Field, ValidationError

Item = dict[str, Any]

SHAPE = "its types refuse the body"
UNSUPPORTED = "a prompt, a stored parent or a background run"
EMPTY = "no message at all"
ITEM = "an item type that it can't convert"
SEALED = "encrypted content"
NO_TEXT = "an assistant message without a text first"
IMAGE = "an image or a file for a text model"
NO_TOOLS = "a call is required without tools"
NO_FUNCTION = "the chosen function is not among the tools"
GRAMMAR = "a custom tool with a grammar"
TWO_FORMATS = "structured outputs beside a text format"
SAMPLING = "a sampling parameter beyond its range"
SALT = "a cache salt that its caches can't take"

#: gpt-oss goes through a conversion of its own.
ORPHAN = "gpt-oss: an output before its call, or without one"
OUTPUT_PARTS = "gpt-oss: an output in parts"
CUSTOM = "gpt-oss: a custom call or output"


class _Reasoning(BaseModel):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


class _Body(BaseModel):
    """vLLM's request, as far as it validates."""

    input: str | list[ResponseInputItemParam | ResponseOutputItem] = Field(min_length=0)
    model: str | None = None
    instructions: str | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=2048)
    metadata: dict[str, str] | None = None
    min_p: float | None = None
    reasoning: _Reasoning | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] = "auto"
    temperature: float | None = None
    text: ResponseTextConfig | None = None
    tool_choice: ToolChoice = "auto"
    tools: list[Tool] = []
    top_k: int | None = None
    top_logprobs: int | None = Field(0, le=20)
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


_CONVERTED = {
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
}
_RANGES = {"temperature": (0, 2), "top_p": (1e-9, 1), "min_p": (0, 1), "top_k": (-1, 2**31)}


def broken_rule(body: dict[str, Any]) -> str | None:
    """Why vLLM would refuse the body or die on it; None where it takes it."""
    return next(_broken(copy.deepcopy(body)), None)


def broken_rule_of_gpt_oss(body: dict[str, Any]) -> str | None:
    """The same for gpt-oss, whose conversion refuses more."""
    return broken_rule(body) or next(_broken_in_harmony(_items(body)), None)


def is_continued(body: dict[str, Any]) -> bool:
    """Whether vLLM would go on with the last item instead of answering: no refusal, and worse."""
    last = _items(body)[-1] if _items(body) else {}
    unfinished = last.get("status") in ("in_progress", "incomplete")
    return unfinished and last.get("type", "message") in ("message", "reasoning")


def _items(body: dict[str, Any]) -> list[Item]:
    return body["input"] if isinstance(body.get("input"), list) else []


def _broken(body: dict[str, Any]) -> Iterator[str]:
    _prepare(body)
    try:
        _Body.model_validate(body)
    except ValidationError:
        yield SHAPE
        return
    if "prompt" in body or "previous_response_id" in body or body.get("background"):
        yield UNSUPPORTED
    if body["input"] == []:
        yield EMPTY
    for item in _items(body):
        yield from _broken_by_item(item)
    yield from _broken_by_tools(body)
    yield from _broken_by_parameters(body)


def _prepare(body: dict[str, Any]) -> None:
    """What vLLM fills in before it validates."""
    for item in _items(body):
        if item.get("type") == "reasoning":
            item.setdefault("id", "rs_x")
        if item.get("type") == "message" and item.get("role") == "assistant" and isinstance(item["content"], list):
            item.setdefault("id", "msg_x")
            item.setdefault("status", "completed")
            for part in item["content"]:
                part.setdefault("annotations", [])


def _broken_by_item(item: Item) -> Iterator[str]:
    kind = item.get("type", "message")
    if kind not in _CONVERTED:
        yield ITEM
    if kind == "reasoning" and item.get("encrypted_content"):
        yield SEALED
    content = item.get("content") if kind == "message" else item.get("output")
    if kind in ("reasoning", "function_call", "custom_tool_call") or not isinstance(content, list):
        return
    if item.get("role") == "assistant" and (not content or "text" not in content[0]):
        yield NO_TEXT
    if any(part["type"] in {"input_file", "input_image"} for part in content):
        yield IMAGE


def _broken_by_tools(body: dict[str, Any]) -> Iterator[str]:
    choice, tools = body.get("tool_choice"), body.get("tools", [])
    if choice == "required" and not any(_is_callable(tool) for tool in tools):
        yield NO_TOOLS
    if isinstance(choice, dict) and choice["type"] == "function":
        names = [tool.get("name") for tool in tools]
        yield from [] if choice["name"] in names else [NO_FUNCTION]
    if any((tool.get("format") or {}).get("type") == "grammar" for tool in tools):
        yield GRAMMAR


def _is_callable(tool: Item) -> bool:
    return tool["type"] in ("function", "custom") or any(each["type"] == "function" for each in tool.get("tools", ()))


def _broken_by_parameters(body: dict[str, Any]) -> Iterator[str]:
    for name, (least, most) in _RANGES.items():
        if body.get(name) is not None and not least <= body[name] <= most:
            yield SAMPLING
    if "" in ([body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop") or []):
        yield SAMPLING
    if not all(token.isdecimal() for token in body.get("logit_bias") or ()):
        yield SAMPLING
    form = ((body.get("text") or {}).get("format") or {}).get("type", "text")
    if body.get("structured_outputs") and form != "text":
        yield TWO_FORMATS
    salt = body.get("cache_salt")
    if salt is not None and (not 1 <= len(salt) <= 128 or set(salt) & set("@/\\\0")):
        yield SALT


def _broken_in_harmony(items: list[Item]) -> Iterator[str]:
    called: set[str] = set()
    for item in items:
        kind = item.get("type", "message")
        if kind.startswith("custom_tool_call"):
            yield CUSTOM
        if kind == "function_call":
            called.add(item["call_id"])
        if kind == "function_call_output" and item["call_id"] not in called:
            yield ORPHAN
        if kind == "function_call_output" and not isinstance(item["output"], str):
            yield OUTPUT_PARTS
