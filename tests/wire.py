"""Upstream events as vLLM spells them: plain dicts, no logic. The names are the short hand of a stream's story:
`rt_d`/`rt_D` reasoning_text delta/done, `rs_` reasoning_summary_text, `ot_` output_text, `rf_` refusal,
`fa_` function_call_arguments, `ct_` custom_tool_call_input.
"""

from typing import Any

Wire = dict[str, Any]


def added(index: int | None, item_type: str, item_id: str, **fields: Any) -> Wire:
    item = {"id": item_id, "type": item_type, **fields}
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int | None, item: Any) -> Wire:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def part_added(index: int, item_id: str, part_index: int, part: Wire) -> Wire:
    return {
        "type": "response.content_part.added",
        "output_index": index,
        "item_id": item_id,
        "content_index": part_index,
        "part": part,
    }


def part_done(index: int, item_id: str, part_index: int, part: Wire) -> Wire:
    return {**part_added(index, item_id, part_index, part), "type": "response.content_part.done"}


def summary_part_added(index: int, item_id: str, part_index: int) -> Wire:
    return {
        "type": "response.reasoning_summary_part.added",
        "output_index": index,
        "item_id": item_id,
        "summary_index": part_index,
        "part": {"type": "summary_text", "text": ""},
    }


def rt_d(index: int | None, item_id: str | None, part: int | None, delta: str) -> Wire:
    return {
        "type": "response.reasoning_text.delta",
        "output_index": index,
        "item_id": item_id,
        "content_index": part,
        "delta": delta,
    }


def rt_D(index: int | None, item_id: str | None, part: int | None, text: str) -> Wire:  # noqa: N802
    return {
        "type": "response.reasoning_text.done",
        "output_index": index,
        "item_id": item_id,
        "content_index": part,
        "text": text,
    }


def rs_d(index: int | None, item_id: str | None, part: int | None, delta: str) -> Wire:
    return {
        "type": "response.reasoning_summary_text.delta",
        "output_index": index,
        "item_id": item_id,
        "summary_index": part,
        "delta": delta,
    }


def rs_D(index: int | None, item_id: str | None, part: int | None, text: str) -> Wire:  # noqa: N802
    return {
        "type": "response.reasoning_summary_text.done",
        "output_index": index,
        "item_id": item_id,
        "summary_index": part,
        "text": text,
    }


def ot_d(index: int | None, item_id: str | None, part: int | None, delta: str, **fields: Any) -> Wire:
    return {
        "type": "response.output_text.delta",
        "output_index": index,
        "item_id": item_id,
        "content_index": part,
        "delta": delta,
        **fields,
    }


def ot_D(index: int | None, item_id: str | None, part: int | None, text: str, **fields: Any) -> Wire:  # noqa: N802
    return {
        "type": "response.output_text.done",
        "output_index": index,
        "item_id": item_id,
        "content_index": part,
        "text": text,
        **fields,
    }


def rf_d(index: int, item_id: str, part: int, delta: str) -> Wire:
    return {
        "type": "response.refusal.delta",
        "output_index": index,
        "item_id": item_id,
        "content_index": part,
        "delta": delta,
    }


def fa_d(index: int | None, item_id: str | None, delta: str) -> Wire:
    return {
        "type": "response.function_call_arguments.delta",
        "output_index": index,
        "item_id": item_id,
        "delta": delta,
    }


def fa_D(index: int | None, item_id: str | None, arguments: str, **fields: Any) -> Wire:  # noqa: N802
    return {
        "type": "response.function_call_arguments.done",
        "output_index": index,
        "item_id": item_id,
        "arguments": arguments,
        **fields,
    }


def ct_d(index: int, item_id: str, delta: str) -> Wire:
    return {
        "type": "response.custom_tool_call_input.delta",
        "output_index": index,
        "item_id": item_id,
        "delta": delta,
    }


def annotation(index: int, item_id: str, part: int, value: Wire, **fields: Any) -> Wire:
    return {
        "type": "response.output_text.annotation.added",
        "output_index": index,
        "item_id": item_id,
        "content_index": part,
        "annotation": value,
        **fields,
    }


def terminal(status: str = "completed", output: list[Any] | None = None, **fields: Any) -> Wire:
    return {"type": "response.completed", "response": {"status": status, "output": output, **fields}}


def text_part(text: str) -> Wire:
    return {"type": "output_text", "text": text, "annotations": []}


def message(item_id: str, text: str, status: str = "completed") -> Wire:
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": [text_part(text)]}


def thought(text: str) -> Wire:
    return {"type": "reasoning_text", "text": text}


def summed(text: str) -> Wire:
    return {"type": "summary_text", "text": text}


def reasoning(item_id: str, *texts: str, **fields: Any) -> Wire:
    content = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": "completed", **fields}


def call(item_id: str, arguments: str, **fields: Any) -> Wire:
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": "call_1",
        "name": "add",
        "arguments": arguments,
        "status": "completed",
        **fields,
    }
