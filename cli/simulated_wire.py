"""vLLM 0.32's `response` object: its keys in order, null or absent, and the items of a plain answer. Pure but for ids.

Law: what is sent is what a recording of vLLM shows, also where that is odd: a stream has a whitespace message before a
tool call, a plain answer has none; a cut call is finished in a stream and raw text in a plain answer; every item of a
cut response is `completed`; the reasoning of a plain answer has a null status.
"""

from collections.abc import Iterable
from typing import Any

from cli.simulated_items import call_item, logprob, message_item, new_id, reasoning_item, text_part
from cli.simulated_model import Generation
from cli.simulated_request import Request
from cli.simulated_tokens import CALL_KINDS, Kind, Segment, token_id, tokenise
from shared.json_codec import Wire

#: Optional fields that vLLM's tool models echo as null, in their order; `None` stands for the fields given.
_TOOL_FIELDS: dict[str, tuple[str, ...]] = {
    "function": (
        "name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading", "description",
        "output_schema",
    ),
    "custom": ("name", "type", "allowed_callers", "async", "defer_loading", "description", "format"),
    "namespace": ("description", "name", "tools", "type"),
    "web_search": ("type", "external_web_access", "filters", "search_context_size", "user_location"),
    "web_search_preview": ("type", "search_content_types", "search_context_size", "user_location"),
    "file_search": ("type", "vector_store_ids", "filters", "max_num_results", "ranking_options"),
    "mcp": (
        "server_label", "type", "allowed_callers", "allowed_tools", "authorization", "connector_id", "defer_loading",
        "headers", "require_approval", "server_description", "server_url", "tunnel_id",
    ),
    "code_interpreter": ("container", "type", "allowed_callers"),
    "image_generation": (
        "type", "action", "background", "complexity", "frame_count", "frame_duration_ms", "input_fidelity",
        "input_image_mask", "model", "moderation", "output_compression", "output_format", "partial_images", "quality",
        "size", "svg",
    ),
    "shell": ("type", "allowed_callers", "environment"),
    "apply_patch": ("type", "allowed_callers"),
    "tool_search": ("type", "description", "execution", "parameters"),
}  # fmt: skip
_NESTED_FUNCTION = (
    "name", "type", "allowed_callers", "async", "defer_loading", "description", "output_schema", "parameters", "strict",
)  # fmt: skip
_CONTAINER = ("type", "file_ids", "memory_limit", "network_policy")


def snapshot(request: Request, *, model: str, created_at: int, prompt_tokens: int, max_model_len: int) -> Wire:
    """The `response` object of a generation that has just begun."""
    sampled = request.get("temperature", 1.0) > 0
    room = max_model_len - prompt_tokens
    return {
        "id": request.get("request_id") or new_id("resp_"),
        "created_at": created_at,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": request.get("metadata"),
        "model": model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "temperature": request.get("temperature", 1.0),
        "tool_choice": _sorted(request.tool_choice),
        "tools": [_echoed_tool(tool) for tool in request.tools],
        "top_p": request.get("top_p", 1.0) if sampled else 1.0,
        "background": False,
        "max_output_tokens": min(request.get("max_output_tokens", room), room),
        "max_tool_calls": request.get("max_tool_calls"),
        "previous_response_id": None,
        "prompt": None,
        "reasoning": _filled(request.get("reasoning"), ("context", "effort", "generate_summary", "mode", "summary")),
        "service_tier": request.get("service_tier", "auto"),
        "status": "in_progress",
        "text": _echoed_text(request.get("text")),
        "top_logprobs": request.logprobs,
        "truncation": request.get("truncation", "disabled"),
        "usage": None,
        "user": request.get("user"),
        "presence_penalty": request.get("presence_penalty", 0.0),
        "frequency_penalty": request.get("frequency_penalty", 0.0),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def model_card(name: str, created_at: int, max_model_len: int) -> Wire:
    """One entry of `/v1/models`."""
    permission = {
        "id": new_id("modelperm-"),
        "object": "model_permission",
        "created": created_at,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created_at,
        "owned_by": "vllm",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }


def finished(begun: Wire, generation: Generation, output: list[Wire], usage: Wire, prompt: str | None) -> Wire:
    """The final `response`. `prompt` is the rendered prompt where `enable_response_messages` asked for it."""
    final = begun | {
        "incomplete_details": {"reason": "max_output_tokens"} if generation.truncated else None,
        "output": output,
        "status": "incomplete" if generation.truncated else "completed",
        "usage": usage,
    }
    if prompt is not None:
        final["input_messages"] = [_raw_message(prompt, tokenise(prompt))]
        final["output_messages"] = [_raw_message(generation.text, _all_tokens(generation))]
    return final


def usage(generation: Generation, prompt_tokens: int, cached: int, written: int) -> Wire:
    """The token counts with vLLM's own details."""
    return {
        "input_tokens": prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": cached,
            "cache_write_tokens": written,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": generation.tokens,
        "output_tokens_details": {
            "reasoning_tokens": generation.reasoning_tokens,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt_tokens + generation.tokens,
    }


def plain_output(generation: Generation, request: Request) -> list[Wire]:
    """The items of a plain answer, where vLLM parses the whole text at once."""
    segments = generation.segments
    thought = _text_of(segments, {Kind.REASONING})
    calls = [segment for segment in segments if segment.kind is Kind.CALL_OPEN]
    whole = len(calls) == sum(segment.kind is Kind.CALL_CLOSE and segment.complete for segment in segments)
    parsed = request.parses_calls and whole
    text = _text_of(segments, {Kind.TEXT} if parsed else {Kind.TEXT} | CALL_KINDS)
    items: list[Wire] = []
    if thought and request.get("include_reasoning", True):
        items.append(reasoning_item(new_id("rs_"), thought, status=None))
    if text and not (parsed and calls and not text.strip()):
        alternatives = request.logprobs
        listed = None if alternatives is None else [logprob(t, alternatives) for t in _all_tokens(generation)]
        items.append(message_item(new_id("msg_"), [text_part(text, listed)], "completed"))
    if parsed:
        items += [call_item(segment.call, segment.call.arguments, "completed") for segment in calls if segment.call]
    return items


def _text_of(segments: Iterable[Segment], kinds: set[Kind] | frozenset[Kind]) -> str:
    return "".join(segment.text for segment in segments if segment.kind in kinds)


def _all_tokens(generation: Generation) -> list[str]:
    return [token for segment in generation.segments for token in segment.tokens]


# --- echoes -----------------------------------------------------------------------------------------------------------


def _filled(given: Wire | None, names: tuple[str, ...]) -> Wire | None:
    """The named fields in their order, null where they were not given, then what else was."""
    return None if given is None else {name: given.get(name) for name in names} | given


def _sorted(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def _echoed_tool(tool: Wire) -> Wire:
    echoed = _filled(tool, _TOOL_FIELDS.get(tool["type"], ())) or tool
    if tool["type"] == "namespace":
        echoed["tools"] = [_filled(nested, _NESTED_FUNCTION) for nested in tool.get("tools") or []]
    if tool["type"] == "code_interpreter" and isinstance(tool.get("container"), dict):
        echoed["container"] = _filled(tool["container"], _CONTAINER)
    return echoed


def _echoed_text(given: Wire | None) -> Wire | None:
    echoed = _filled(given, ("format", "verbosity"))
    if echoed and echoed["format"] and echoed["format"]["type"] == "json_schema":
        echoed["format"] = _filled(echoed["format"], ("name", "schema", "type", "description", "strict"))
    return echoed


def _raw_message(text: str, tokens: Iterable[str]) -> Wire:
    return {"message": text, "tokens": [token_id(token) for token in tokens], "type": "raw_message_tokens"}
