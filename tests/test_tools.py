"""Tools and `tool_choice`: what a client may offer, and what vLLM is offered for it."""

import copy
from typing import Any

import pytest

from shared.errors import InvalidRequest
from shared.tools import all_tools, check_choice, check_tools, upstream_tools

ADD = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}
MUL = {"type": "function", "name": "mul"}
RUN = {"type": "custom", "name": "run", "description": "Runs."}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Patches.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'},
}
CRM = {
    "type": "namespace",
    "name": "crm",
    "tools": [{**MUL, "defer_loading": True}, PATCH, {"type": "web_search"}],
}
SEARCH = {"type": "web_search", "search_context_size": "low"}
MCP = {"type": "mcp", "server_label": "x"}
UNKNOWN = {"type": "acme:oven", "heat": 200}

PATCH_SENT = {
    "type": "custom",
    "name": "patch",
    "description": 'Patches.\n\nThe input follows this lark grammar:\nstart: "a"',
}
CRM_SENT = {"type": "namespace", "name": "crm", "description": "", "tools": [MUL, PATCH_SENT]}

SENT: dict[str, tuple[list[Any], Any, dict[str, Any]]] = {
    "none offered": ([], None, {}),
    "auto without tools": ([], "auto", {}),
    "hosted and unknown tools are not sent": ([SEARCH, MCP, UNKNOWN], "auto", {}),
    "function, nulls and what vLLM does not read left out": (
        [{**MUL, "description": None, "parameters": None, "strict": None, "output_schema": {}, "defer_loading": True}],
        None,
        {"tools": [MUL], "tool_choice": "auto"},
    ),
    "a mixed list": (
        [SEARCH, ADD, RUN, UNKNOWN, CRM],
        "auto",
        {"tools": [ADD, RUN, CRM_SENT], "tool_choice": "auto"},
    ),
    "a grammar becomes advice": ([PATCH], None, {"tools": [PATCH_SENT], "tool_choice": "auto"}),
    "a text format says nothing": (
        [{**RUN, "format": {"type": "text"}}],
        None,
        {"tools": [RUN], "tool_choice": "auto"},
    ),
    "none sends no tools": ([ADD], "none", {}),
    "required": ([ADD, SEARCH], "required", {"tools": [ADD], "tool_choice": "required"}),
    "a named function": (
        [ADD, MUL],
        {"type": "function", "name": "mul", "x": 1},
        {"tools": [ADD, MUL], "tool_choice": {"type": "function", "name": "mul"}},
    ),
    "a named custom tool is the only one sent": (
        [ADD, RUN],
        {"type": "custom", "name": "run"},
        {"tools": [RUN], "tool_choice": "required"},
    ),
    "allowed tools": (
        [ADD, MUL, RUN],
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "mul"}]},
        {"tools": [MUL], "tool_choice": "required"},
    ),
    "allowed tools, mode left out, hosted ones dropped": (
        [ADD, SEARCH],
        {"type": "allowed_tools", "tools": [{"type": "web_search"}, {"type": "function", "name": "add"}]},
        {"tools": [ADD], "tool_choice": "auto"},
    ),
    "only hosted ones allowed": ([ADD, SEARCH], {"type": "allowed_tools", "tools": [{"type": "web_search"}]}, {}),
}


@pytest.mark.parametrize(("tools", "choice", "sent"), SENT.values(), ids=SENT.keys())
def test_sent_to_vllm(tools: list[Any], choice: Any, sent: dict[str, Any]) -> None:
    options = {"tools": tools} | ({} if choice is None else {"tool_choice": choice})
    before = copy.deepcopy(options)
    check_tools(tools)
    check_choice(choice, tools)
    assert upstream_tools(options, []) == sent
    assert options == before


def test_additional_tools_join_and_replace_their_namesakes() -> None:
    newer = {**ADD, "description": "Adds better."}
    items = [{"type": "additional_tools", "role": "developer", "tools": [newer, MUL]}, {"role": "user", "content": "x"}]
    assert all_tools({"tools": [ADD, RUN]}, items) == [ADD, RUN, newer, MUL]
    assert upstream_tools({"tools": [ADD, RUN]}, items) == {"tools": [newer, RUN, MUL], "tool_choice": "auto"}
    assert upstream_tools({}, items) == {"tools": [newer, MUL], "tool_choice": "auto"}


MISSING, TYPE, VALUE, UNSUPPORTED = (
    "missing_required_parameter",
    "invalid_type",
    "invalid_value",
    "unsupported_value",
)
CANARY = "canary-7f3a"

BAD_TOOLS: dict[str, tuple[list[Any], str, str]] = {
    "a string": ([CANARY], "tools[0]", TYPE),
    "no type": ([{"name": CANARY}], "tools[0].type", MISSING),
    "empty type": ([{"type": "", "name": CANARY}], "tools[0].type", VALUE),
    "chat style": ([{"type": "function", "function": {"name": CANARY}}], "tools[0].name", MISSING),
    "second without name": ([ADD, {"type": "custom"}], "tools[1].name", MISSING),
    "name is a number": ([{"type": "function", "name": 3}], "tools[0].name", TYPE),
    "empty name": ([{"type": "function", "name": ""}], "tools[0].name", VALUE),
    "description is a list": ([{**ADD, "description": [CANARY]}], "tools[0].description", TYPE),
    "parameters are text": ([{**ADD, "parameters": CANARY}], "tools[0].parameters", TYPE),
    "strict is text": ([{**ADD, "strict": CANARY}], "tools[0].strict", TYPE),
    "namespace without tools": ([{"type": "namespace", "name": "n"}], "tools[0].tools", TYPE),
    "nested fault": (
        [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}],
        "tools[0].tools[0].name",
        MISSING,
    ),
    "unknown format": ([{**RUN, "format": {"type": CANARY}}], "tools[0].format.type", VALUE),
    "grammar without definition": (
        [{**RUN, "format": {"type": "grammar", "syntax": "lark"}}],
        "tools[0].format.definition",
        MISSING,
    ),
}


@pytest.mark.parametrize(("tools", "param", "code"), BAD_TOOLS.values(), ids=BAD_TOOLS.keys())
def test_malformed_tools(tools: list[Any], param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_tools(tools)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert CANARY not in caught.value.message


ALLOWED = {"type": "allowed_tools", "mode": "auto"}

BAD_CHOICES: dict[str, tuple[Any, list[Any], str, str]] = {
    "another word": (CANARY, [ADD], "tool_choice", VALUE),
    "a number": (3, [ADD], "tool_choice", TYPE),
    "no type": ({"name": CANARY}, [ADD], "tool_choice.type", MISSING),
    "required without tools": ("required", [], "tool_choice", VALUE),
    "required with hosted tools only": ("required", [SEARCH, MCP], "tools[0].type", UNSUPPORTED),
    "function without name": ({"type": "function"}, [ADD], "tool_choice.name", MISSING),
    "a function that is not there": ({"type": "function", "name": CANARY}, [ADD], "tool_choice", VALUE),
    "a custom tool by a function's name": ({"type": "custom", "name": "add"}, [ADD], "tool_choice", VALUE),
    "a hosted tool that is there": ({"type": "web_search"}, [ADD, SEARCH], "tools[1].type", UNSUPPORTED),
    "a hosted tool that is not": ({"type": "mcp", "server_label": CANARY}, [ADD], "tool_choice", UNSUPPORTED),
    "allowed without tools": (ALLOWED, [ADD], "tool_choice.tools", MISSING),
    "allowed in another mode": ({**ALLOWED, "mode": CANARY, "tools": []}, [ADD], "tool_choice.mode", VALUE),
    "allowed but unknown": (
        {**ALLOWED, "tools": [{"type": "function", "name": CANARY}]},
        [ADD],
        "tool_choice.tools[0]",
        VALUE,
    ),
    "allowed is a string": ({**ALLOWED, "tools": [CANARY]}, [ADD], "tool_choice.tools[0]", TYPE),
    "required among hosted ones": (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        [ADD, SEARCH],
        "tools[1].type",
        UNSUPPORTED,
    ),
}


@pytest.mark.parametrize(("choice", "tools", "param", "code"), BAD_CHOICES.values(), ids=BAD_CHOICES.keys())
def test_refused_choices(choice: Any, tools: list[Any], param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_choice(choice, tools)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
    assert CANARY not in caught.value.message
