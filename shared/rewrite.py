"""One item as vLLM takes it. Pure.

Law: a rewritten item is built from the keys that vLLM 0.32 reads, never a pruned copy. What vLLM would break on (`null`
status, several reasoning or answer texts, refusals, empty answers, hosted-tool items) gets the form that keeps its
meaning, or is left out; `status` reads `completed` on what the model made, and stands on nothing else.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from shared.items import TEXT_KEYS, kind, plain_text
from shared.json_codec import Wire, encode

#: The status of an item whose generation was cut.
CUT: Final = "incomplete"

_PHASES: Final = ("commentary", "final_answer")


def upstream_items(item: Wire) -> list[Wire]:
    """What vLLM is sent for `item`: nothing, one item, or a call and its output. Shares values with `item`."""
    what = kind(item)
    if (rewrite := _REWRITES.get(what)) is not None:
        return rewrite(item)
    if (hosted := _HOSTED.get(what)) is not None:
        return _hosted(item, hosted)
    return []


def asks(item: Wire) -> str | None:
    """The id of the call that the item makes, to be answered by another item; None where it makes none."""
    return _call_id(item) if kind(item) in _CALLS else None


def answers(item: Wire) -> str | None:
    """The id of the call that the item answers; None where it is no answer."""
    return _call_id(item) if kind(item) in _OUTPUTS else None


def _message(item: Wire) -> list[Wire]:
    content = item["content"]
    if item["role"] != "assistant":
        return [_head(item) | {"role": item["role"], "content": _content(content)}]
    if not (said := plain_text(content)):
        return []
    # vLLM reads the first text only, and dies on refusals and on an empty list.
    sent = _made(item) | {"role": "assistant", "content": [{"type": "output_text", "text": said, "annotations": []}]}
    return [sent | ({"phase": item["phase"]} if item.get("phase") in _PHASES else {})]


def _reasoning(item: Wire) -> list[Wire]:
    if not (thought := plain_text(item.get("content"))):
        return []
    return [_made(item) | {"summary": [], "content": [{"type": "reasoning_text", "text": thought}]}]


def _call(item: Wire) -> list[Wire]:
    return [_made(item) | _given(item, "call_id", "name", "namespace", "arguments", "input")]


def _output(item: Wire) -> list[Wire]:
    # Texts as one string: gpt-oss's half of vLLM refuses an output in parts, the other half joins them just so.
    output = _content(item["output"])
    return [_head(item) | {"call_id": item["call_id"], "output": plain_text(output) if is_text(output) else output}]


def _head(item: Wire) -> Wire:
    return {"type": kind(item)} | _given(item, "id")


def _made(item: Wire) -> Wire:
    """The head of an item that the model made: vLLM goes on with one that does not read `completed`."""
    return _head(item) | {"status": "completed"}


def _given(item: Wire, *keys: str) -> Wire:
    return {key: item[key] for key in keys if item.get(key) is not None}


def is_text(content: str | list[Wire]) -> bool:
    """Whether content, as it is sent for a user or a tool, is text and nothing else."""
    return isinstance(content, str) or all(part["type"] == "input_text" for part in content)


def _content(content: str | list[Wire]) -> str | list[Wire]:
    """Content that a user or a tool wrote: texts as `input_text`; vLLM asks for an image's `detail`."""
    if isinstance(content, str) or not content:
        return content or ""
    sent: list[Wire] = []
    for part in content:
        if (key := TEXT_KEYS.get(part["type"])) is not None:
            sent.append({"type": "input_text", "text": part[key]})
        elif part["type"] == "input_image":
            sent.append({"detail": "auto"} | _given(part, "type", "image_url", "file_id", "detail"))
        else:
            sent.append({key: value for key, value in part.items() if value is not None})
    return sent


class _Hosted(NamedTuple):
    """How a hosted-tool item becomes a function call, its output, or both."""

    tool: str | None  # the function's name; None where the item has its own
    asked: str | None = None  # the key of what the tool was asked; None in an item that only answers
    answered: tuple[
        str, ...
    ] = ()  # the keys of what it answered, the first that is there; none in an item that only asks


#: vLLM refuses all of these. One that holds its question but should hold its answer too and doesn't is left out: half a
#: call would look as if it were still running. Types that stand nowhere here (searches without results, images,
#: approvals, tool lists, computer use, programs, and what we don't know) are left out.
_HOSTED: Final = {
    "mcp_call": _Hosted(None, "arguments", ("output", "error")),
    "web_search_call": _Hosted("web_search", "action", ("results",)),
    "file_search_call": _Hosted("file_search", "queries", ("results",)),
    "code_interpreter_call": _Hosted("code_interpreter", "code", ("outputs",)),
    "local_shell_call": _Hosted("local_shell", "action"),
    "shell_call": _Hosted("shell", "action"),
    "apply_patch_call": _Hosted("apply_patch", "operation"),
    "local_shell_call_output": _Hosted(None, None, ("output",)),
    "shell_call_output": _Hosted(None, None, ("output",)),
    "apply_patch_call_output": _Hosted(None, None, ("output", "status")),
}


def _hosted(item: Wire, how: _Hosted) -> list[Wire]:
    call_id, name = _call_id(item), how.tool or item.get("name")
    answer = next((item[key] for key in how.answered if item.get(key) is not None), None)
    lacks_answer = how.answered and answer is None
    lacks_question = how.asked and (item.get(how.asked) is None or not isinstance(name, str))
    if call_id is None or lacks_answer or lacks_question:
        return []
    sent: list[Wire] = []
    if how.asked:
        arguments = _arguments(how.asked, item[how.asked])
        sent.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments})
    if how.answered:
        sent.append({"type": "function_call_output", "call_id": call_id, "output": _as_text(answer)})
    return sent


def _call_id(item: Wire) -> str | None:
    own = item.get("call_id") or item.get("id")
    return own if isinstance(own, str) else None


def _arguments(key: str, value: Any) -> str:
    if key == "arguments" or isinstance(value, dict):
        return _as_text(value)
    return _as_text({key: value})


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


_REWRITES: Final[dict[str, Callable[[Wire], list[Wire]]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "custom_tool_call": _call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
}
_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", *(name for name, how in _HOSTED.items() if how.asked and not how.answered)}
)
_OUTPUTS: Final = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        *(name for name, how in _HOSTED.items() if how.answered and not how.asked),
    }
)
