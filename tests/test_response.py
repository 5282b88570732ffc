"""The Response object: every key, at every moment, in one order."""

import copy
from typing import Any

import pytest
from openai.types.responses import Response

from shared.response import Status, response_object, terminal_type, wants_summary

BARE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1796076310,
    "status": "in_progress",
    "background": False,
    "completed_at": None,
    "conversation": None,
    "error": None,
    "frequency_penalty": 0.0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "model": "tiny",
    "output": [],
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_options": None,
    "prompt_cache_retention": None,
    "reasoning": {"effort": None, "summary": None, "context": "all_turns"},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": None,
    "user": None,
}

#: Open Responses: absent or null, and strict clients fail.
NEVER_NULL = {
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "temperature",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "store",
    "background",
    "service_tier",
}
ALWAYS_THERE = NEVER_NULL | {
    "id",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
}


def shown(options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The object for `options`; fails when it changed what went in, has another order, or is not what SDKs read."""
    given = {"model": "tiny"} | (options or {})
    before = copy.deepcopy(given)
    about = {"status": Status.IN_PROGRESS, "output": [], "reasoning_context": "all_turns"} | more
    made = response_object(response_id="resp_1", created_at=1796076310, options=given, **about)
    assert given == before
    assert list(made) == list(BARE)
    assert len(ALWAYS_THERE) == 29
    assert made.keys() >= ALWAYS_THERE
    assert not [key for key in NEVER_NULL if made[key] is None]
    Response.model_validate(made)
    return made


def test_nothing_asked() -> None:
    assert shown() == BARE


FUNCTION = {"type": "function", "name": "add", "x": 1}
FUNCTION_SHOWN = {**FUNCTION, "description": None, "parameters": None, "strict": None}
HOSTED = {"type": "web_search", "search_context_size": "low"}

ECHOED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "what was asked": (
        {
            "background": True,
            "store": False,
            "instructions": "Be brief.",
            "previous_response_id": "resp_0",
            "max_output_tokens": 3,
            "max_tool_calls": 2,
            "metadata": {"a": "b"},
            "parallel_tool_calls": False,
            "prompt_cache_key": "k",
            "prompt_cache_options": {"mode": "explicit"},
            "prompt_cache_retention": "24h",
            "safety_identifier": "s",
            "top_logprobs": 2,
            "truncation": "auto",
            "user": "u",
        },
        {
            "background": True,
            "store": False,
            "instructions": "Be brief.",
            "previous_response_id": "resp_0",
            "max_output_tokens": 3,
            "max_tool_calls": 2,
            "metadata": {"a": "b"},
            "parallel_tool_calls": False,
            "prompt_cache_key": "k",
            "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
            "prompt_cache_retention": "24h",
            "safety_identifier": "s",
            "top_logprobs": 2,
            "truncation": "auto",
            "user": "u",
        },
    ),
    "zeros are values": (
        {"temperature": 0, "top_p": 0.5, "presence_penalty": -1, "frequency_penalty": 2},
        {"temperature": 0.0, "top_p": 0.5, "presence_penalty": -1.0, "frequency_penalty": 2.0},
    ),
    "reasoning": (
        {"reasoning": {"effort": "low", "summary": "auto", "context": "auto"}},
        {"reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"}},
    ),
    "the old name of summary": (
        {"reasoning": {"generate_summary": "concise"}},
        {"reasoning": {"effort": None, "summary": "concise", "context": "all_turns"}},
    ),
    "verbosity": ({"text": {"verbosity": "low"}}, {"text": {"format": {"type": "text"}, "verbosity": "low"}}),
    "null verbosity and format": (
        {"text": {"verbosity": None, "format": None}},
        {"text": {"format": {"type": "text"}}},
    ),
    "schema": (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
        {
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "n",
                    "description": None,
                    "schema": {"type": "object"},
                    "strict": None,
                }
            }
        },
    ),
    "tools": ({"tools": [FUNCTION, HOSTED]}, {"tools": [FUNCTION_SHOWN, HOSTED]}),
    "tool choice": (
        {"tool_choice": {"type": "function", "name": "add"}},
        {"tool_choice": {"type": "function", "name": "add"}},
    ),
    "allowed tools get a mode": (
        {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "add"}]}},
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}},
    ),
    "not shown": ({"include": [], "stream": True, "seed": 3, "chat_template_kwargs": {"a": 1}}, {}),
}


@pytest.mark.parametrize(("options", "echoed"), ECHOED.values(), ids=ECHOED.keys())
def test_echo(options: dict[str, Any], echoed: dict[str, Any]) -> None:
    assert shown(options) == BARE | echoed


USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 26,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 35,
}
FAULT = {"code": "server_error", "message": "The upstream broke off.", "type": "server_error", "param": None}

ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "queued": ({"status": Status.QUEUED}, {"status": "queued"}),
    "completed": (
        {"status": Status.COMPLETED, "completed_at": 1796076311, "usage": USAGE},
        {"status": "completed", "completed_at": 1796076311, "usage": USAGE},
    ),
    "incomplete has no time of completion": (
        {"status": Status.INCOMPLETE, "completed_at": 1, "incomplete_details": {"reason": "max_output_tokens"}},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ),
    "failed": ({"status": Status.FAILED, "error": FAULT}, {"status": "failed", "error": FAULT}),
    "failed, gaps filled for strict clients": (
        {"status": Status.FAILED, "error": {"message": "m", "code": None}},
        {"status": "failed", "error": {**FAULT, "message": "m"}},
    ),
    "failed without an error": (
        {"status": Status.FAILED},
        {"status": "failed", "error": {**FAULT, "message": "The response failed."}},
    ),
    "cancelled has no error": ({"status": Status.CANCELLED, "error": FAULT}, {"status": "cancelled"}),
    "vLLM's usage": (
        {
            "usage": {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 4, "input_tokens_per_turn": []},
                "output_tokens": 26.0,
                "output_tokens_details": {"reasoning_tokens": 12, "tool_output_tokens": 0},
                "total_tokens": 35,
            }
        },
        {
            "usage": {
                **USAGE,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 12},
            }
        },
    ),
    "bare usage": (
        {"usage": {"input_tokens": 9, "output_tokens": 26, "input_tokens_details": None}},
        {"usage": USAGE},
    ),
    "tier used": ({"service_tier": "priority"}, {"service_tier": "priority"}),
    "vLLM's tier": ({"service_tier": "auto"}, {"service_tier": "default"}),
    "context in force": (
        {"reasoning_context": "current_turn"},
        {"reasoning": {"effort": None, "summary": None, "context": "current_turn"}},
    ),
}


@pytest.mark.parametrize(("about", "seen"), ENDS.values(), ids=ENDS.keys())
def test_life(about: dict[str, Any], seen: dict[str, Any]) -> None:
    assert shown(**about) == BARE | seen
    for value in (shown(**about)["usage"] or {}).values():
        assert isinstance(value, int | dict)


def test_output_is_shown_as_it_is() -> None:
    items = [{"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "x": {"y": None}}]
    assert shown(output=items)["output"] is items


def test_statuses_and_their_last_event() -> None:
    assert [status.value for status in Status if not status.terminal] == ["queued", "in_progress"]
    assert {status.value: terminal_type(status) for status in Status if status.terminal} == {
        "completed": "response.completed",
        "incomplete": "response.incomplete",
        "failed": "response.failed",
        "cancelled": "response.failed",
    }
    with pytest.raises(KeyError):
        terminal_type(Status.QUEUED)


SUMMARIES: dict[str, tuple[Any, bool]] = {
    "no reasoning": (None, False),
    "no word of it": ({"effort": "low"}, False),
    "null": ({"summary": None}, False),
    "asked": ({"summary": "auto"}, True),
    "by its old name": ({"generate_summary": "concise"}, True),
}


@pytest.mark.parametrize(("asked", "wants"), SUMMARIES.values(), ids=SUMMARIES.keys())
def test_whether_summaries_are_asked_for(asked: Any, *, wants: bool) -> None:
    assert wants_summary({"model": "m"} | ({} if asked is None else {"reasoning": asked})) is wants
