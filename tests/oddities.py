"""Every kind of item in every mix of absent, null, empty and odd fields."""

import itertools
from collections.abc import Iterator
from typing import Any

Item = dict[str, Any]

ABSENT = object()
TEXT = {"type": "output_text", "text": "a"}
REFUSAL = {"type": "refusal", "refusal": "b"}
IDS = (ABSENT, None, "x_1")
STATUSES = (ABSENT, None, "completed", "incomplete", "in_progress", "odd")
SAID = (ABSENT, None, "", "a", [], [TEXT], [REFUSAL], [REFUSAL, TEXT], [{**TEXT, "text": ""}, TEXT])
ANSWERED = (ABSENT, None, "", [], "a", [{"type": "logs", "logs": "a"}])
ASKED = (ABSENT, None, "", "{}", {"a": 1}, [], ["a"])
ERRORS = (ABSENT, None, {"code": 3})
THOUGHTS = (ABSENT, None, [], [{"type": "reasoning_text", "text": "t"}], [{"type": "reasoning_text", "text": ""}])
SUMMARIES = (ABSENT, None, [], [{"type": "summary_text", "text": "s"}])
BLOBS = (ABSENT, None, "", "gAAA")

#: By type: its fields, each with the values that it takes.
KINDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "message": {
        "role": ("user", "assistant", "system", "developer"),
        "content": SAID,
        "phase": (ABSENT, None, "commentary", "odd"),
    },
    "reasoning": {"content": THOUGHTS, "summary": SUMMARIES, "encrypted_content": BLOBS},
    "function_call": {"call_id": ("c",), "name": ("n",), "arguments": ("", "{}", "{", "[]"), "namespace": IDS},
    "custom_tool_call": {"call_id": ("c",), "name": ("n",), "input": ("", "a"), "namespace": IDS},
    "function_call_output": {"call_id": ("c",), "output": SAID},
    "custom_tool_call_output": {"call_id": ("c",), "output": SAID},
    "mcp_call": {"name": (ABSENT, None, "n"), "arguments": ASKED, "output": ANSWERED, "error": ERRORS},
    "web_search_call": {"action": ASKED, "results": ANSWERED},
    "file_search_call": {"queries": ASKED, "results": ANSWERED},
    "code_interpreter_call": {"code": ASKED, "outputs": ANSWERED},
    **{
        f"{tool}_call": {"call_id": IDS, key: ASKED}
        for tool, key in (("shell", "action"), ("local_shell", "action"), ("apply_patch", "operation"))
    },
    **{f"{tool}_call_output": {"call_id": IDS, "output": ANSWERED} for tool in ("shell", "local_shell", "apply_patch")},
    **{
        name: {"call_id": IDS, "output": ANSWERED}
        for name in (
            "computer_call",
            "computer_call_output",
            "image_generation_call",
            "mcp_list_tools",
            "mcp_approval_request",
            "mcp_approval_response",
            "tool_search_call",
            "tool_search_output",
            "program",
            "program_output",
            "acme:thing",
        )
    },
    "compaction": {"encrypted_content": BLOBS},
    "item_reference": {},
}


def oddities(kind: str) -> Iterator[Item]:
    """Every item of the type."""
    fields = KINDS[kind] | {"id": IDS, "status": STATUSES}
    for values in itertools.product(*fields.values()):
        given = zip(fields, values, strict=True)
        yield {"type": kind} | {key: value for key, value in given if value is not ABSENT}
