"""Tools and `tool_choice`: what a client may offer, and what vLLM is offered in its place. Pure.

Law: a tool that vLLM can't run is accepted, echoed and not sent (a 400 would stop agents that always list it), and is
refused only where `tool_choice` would force it.

vLLM 0.32 reads tool calls only under `auto`, `required` and `{"type": "function"}`: under `allowed_tools`, `custom` and
hosted choices the call comes out as plain text, and so it does under `none` while tools are listed. So a choice that
narrows the tools becomes a shorter list: `allowed_tools` sends the allowed ones under its mode, `custom` sends that one
under `required`, `none` sends no tools.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.checks import array, mapping, missing, optional_text, text, unsupported_value, wrong_type, wrong_value
from shared.json_codec import Wire

_MODES: Final = ("auto", "required")
_NAMED: Final = ("function", "custom")
#: What vLLM reads of a function. It ignores the rest, or knows it only with some versions of the `openai` package.
_FUNCTION_KEYS: Final = ("type", "name", "description", "parameters", "strict")
#: Item type: tools that a developer adds in the input, next to those of `tools`.
ADDITIONAL_TOOLS: Final = "additional_tools"


def check_tools(tools: Sequence[object], at: str = "tools") -> None:
    """Refuse a malformed tool. Unknown types pass."""
    for index, tool in enumerate(tools):
        _check_tool(mapping(tool, f"{at}[{index}]"), f"{at}[{index}]")


def _check_tool(tool: Wire, at: str) -> None:
    named = text(tool, "type", at, empty=False)
    if named in (*_NAMED, "namespace"):
        text(tool, "name", at, empty=False)
        optional_text(tool, "description", at)
    if tool.get("parameters") is not None and named == "function":
        mapping(tool["parameters"], f"{at}.parameters")
    if named == "function" and not isinstance(tool.get("strict"), bool | None):
        raise wrong_type(f"{at}.strict", "a boolean")
    if named == "namespace":
        check_tools(array(tool.get("tools"), f"{at}.tools"), f"{at}.tools")
    if named == "custom" and tool.get("format") is not None:
        _check_format(mapping(tool["format"], f"{at}.format"), f"{at}.format")


def _check_format(form: Wire, at: str) -> None:
    named = text(form, "type", at)
    if named not in ("text", "grammar"):
        raise wrong_value(f"{at}.type", "supported values are text and grammar")
    if named == "grammar":
        text(form, "syntax", at)
        text(form, "definition", at)


def all_tools(options: Wire, items: Iterable[Wire]) -> list[Wire]:
    """The request's tools, then those that `additional_tools` items add."""
    added = [tool for item in items if item.get("type") == ADDITIONAL_TOOLS for tool in item["tools"]]
    return [*options.get("tools", ()), *added]


def check_choice(choice: object, tools: Sequence[Wire]) -> None:
    """Refuse a `tool_choice` that is malformed, or that forces what can't be called. `auto` needs no tools."""
    if choice in (None, "auto", "none"):
        return
    if isinstance(choice, str):
        if choice != "required":
            raise wrong_value("tool_choice", "supported values are none, auto, required and an object")
        _need_usable(tools, tools)
        return
    chosen = mapping(choice, "tool_choice")
    named = text(chosen, "type", "tool_choice")
    if named == "allowed_tools":
        _check_allowed(chosen, tools)
    elif named not in _NAMED:
        _refuse_forced(tools, named)
    elif (named, text(chosen, "name", "tool_choice")) not in _names(tools):
        raise wrong_value("tool_choice", "the chosen tool is not in 'tools'")


def _check_allowed(choice: Wire, tools: Sequence[Wire]) -> None:
    mode = choice.get("mode", "auto")
    if mode not in _MODES:
        raise wrong_value("tool_choice.mode", "supported values are auto and required")
    if choice.get("tools") is None:
        raise missing("tool_choice.tools")
    known = _names(tools)
    for index, allowed in enumerate(array(choice["tools"], "tool_choice.tools")):
        at = f"tool_choice.tools[{index}]"
        named = text(mapping(allowed, at), "type", at)
        if named in _NAMED and (named, text(allowed, "name", at)) not in known:
            raise wrong_value(at, "the allowed tool is not in 'tools'")
    if mode == "required":
        _need_usable(_allowed(choice, tools), tools)


def _need_usable(wanted: Sequence[Wire], tools: Sequence[Wire]) -> None:
    if any(_callable(tool) for tool in wanted):
        return
    if wanted:
        _refuse_forced(tools, wanted[0]["type"])
    raise wrong_value("tool_choice", "a call can't be required without tools")


def _callable(tool: Wire) -> bool:
    """Whether vLLM lets a model call the tool. Of a namespace it offers the functions alone, custom tools not yet."""
    if tool["type"] == "namespace":
        return any(each["type"] == "function" for each in tool["tools"])
    return tool["type"] in _SENT


def _refuse_forced(tools: Sequence[Wire], named: str) -> None:
    places = [index for index, tool in enumerate(tools) if tool["type"] == named]
    at = f"tools[{places[0]}].type" if places else "tool_choice"
    raise unsupported_value(at, "this server can't offer such a tool to the model, so it can't be forced")


def _names(tools: Sequence[Wire]) -> set[tuple[str, Any]]:
    return {_name(tool) for tool in tools}


def _name(tool: Wire) -> tuple[str, str | None]:
    """How a tool is told apart; a hosted one's `name` may be anything, and counts only as a string."""
    name = tool.get("name")
    return tool["type"], name if isinstance(name, str) else None


def _allowed(choice: Wire, tools: Sequence[Wire]) -> list[Wire]:
    wanted = _names(choice["tools"])
    return [tool for tool in tools if _name(tool) in wanted]


def upstream_tools(options: Wire, items: Sequence[Wire]) -> Wire:
    """The keys `tools` and `tool_choice` of the upstream body; neither where no tool is left to send."""
    tools, choice = all_tools(options, items), options.get("tool_choice", "auto")
    if choice == "none":
        return {}
    if isinstance(choice, dict) and choice["type"] != "function":
        narrowed = [choice] if choice["type"] == "custom" else choice["tools"]
        tools = _allowed({"tools": narrowed}, tools)
        choice = "required" if choice["type"] == "custom" else choice.get("mode", "auto")
    elif isinstance(choice, dict):
        choice = {"type": "function", "name": choice["name"]}
    # A tool added anew in a later turn replaces its namesake.
    sent = {(tool["type"], tool["name"]): _SENT[tool["type"]](tool) for tool in tools if _callable(tool)}
    return {"tools": list(sent.values()), "tool_choice": choice} if sent else {}


def _function(tool: Wire) -> Wire:
    return {key: tool[key] for key in _FUNCTION_KEYS if tool.get(key) is not None}


def _custom(tool: Wire) -> Wire:
    """A custom tool with a free text input: vLLM refuses grammars, so the model is told about one instead."""
    sent = {"type": "custom", "name": tool["name"]}
    form = tool.get("format") or {}
    rule = f"The input follows this {form['syntax']} grammar:\n{form['definition']}" if "definition" in form else None
    description = "\n\n".join(part for part in (tool.get("description"), rule) if part)
    return sent | ({"description": description} if description else {})


def _namespace(tool: Wire) -> Wire:
    inner = [_SENT[each["type"]](each) for each in tool["tools"] if each["type"] in _NAMED]
    return {"type": "namespace", "name": tool["name"], "description": tool.get("description") or "", "tools": inner}


#: Tools that vLLM can offer to a model, each with the form it takes.
_SENT: Final = {"function": _function, "custom": _custom, "namespace": _namespace}
