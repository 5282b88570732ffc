"""The shape of a request body: what vLLM's pydantic models take, in their lax way, and what they refuse. Pure.

Each reader takes a place (`body.input`) and a value, and gives the value as vLLM reads it or raises a `Refusal`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from cli.simulated_refusal import bad_schema
from shared.json_codec import Wire

Reader: TypeAlias = Callable[[str, Any], Any]

_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})


def text(loc: str, value: Any) -> str:
    """A string, nothing else."""
    if isinstance(value, str):
        return value
    raise bad_schema(loc, "string_type", "Input should be a valid string", value)


def boolean(loc: str, value: Any) -> bool:
    """A boolean or a word or number that pydantic takes for one."""
    word = str(value).lower()
    if isinstance(value, bool | int | float | str) and word in _TRUE | _FALSE:
        return word in _TRUE
    raise bad_schema(loc, "bool_parsing", "Input should be a valid boolean, unable to interpret input", value)


def number(loc: str, value: Any) -> float:
    """A number, also in a string."""
    try:
        if isinstance(value, bool | int | float | str):
            return float(value)
    except ValueError:
        raise bad_schema(
            loc, "float_parsing", "Input should be a valid number, unable to parse string as a number", value
        ) from None
    raise bad_schema(loc, "float_type", "Input should be a valid number", value)


def integer(loc: str, value: Any) -> int:
    """A whole number, also in a string."""
    try:
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) or isinstance(value, str):
            return int(value)
    except ValueError:
        pass
    raise bad_schema(loc, "int_parsing", "Input should be a valid integer", value)


def mapping(loc: str, value: Any) -> Wire:
    """An object."""
    if isinstance(value, dict):
        return value
    raise bad_schema(loc, "dict_type", "Input should be a valid dictionary", value)


def strings(loc: str, value: Any) -> list[str]:
    """One string or several: `stop`."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text(f"{loc}.{index}", word) for index, word in enumerate(value)]
    raise bad_schema(loc, "list_type", "Input should be a valid list", value)


def metadata(loc: str, value: Any) -> Wire:
    """An object of strings."""
    for name, word in mapping(loc, value).items():
        text(f"{loc}.{name}", word)
    return mapping(loc, value)


def one_of(*words: str) -> Reader:
    """One of a closed list of words."""
    quoted = [f"'{word}'" for word in words]
    expected = f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    def read(loc: str, value: Any) -> Any:
        if value in words:
            return value
        raise bad_schema(loc, "literal_error", f"Input should be {expected}", value)

    return read


def list_of(read: Reader) -> Reader:
    """A list whose entries are each read the same way."""

    def read_all(loc: str, value: Any) -> list[Any]:
        if isinstance(value, list):
            return [read(f"{loc}.{index}", entry) for index, entry in enumerate(value)]
        raise bad_schema(loc, "list_type", "Input should be a valid list", value)

    return read_all


# --- input items ------------------------------------------------------------------------------------------------------

_EASY_PARTS = frozenset({"input_text", "input_image", "input_file"})
_OUTPUT_PARTS = frozenset({"output_text", "refusal"})
_STATUSES = (None, "in_progress", "completed", "incomplete")

#: Items of OpenAI's hosted tools: well formed, so refused only when the prompt is built.
HOSTED_ITEMS = frozenset(
    {
        "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "web_search_call",
        "file_search_call", "code_interpreter_call", "image_generation_call", "local_shell_call",
        "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
        "computer_call", "computer_call_output", "compaction", "item_reference",
    }
)  # fmt: skip

#: What an item of a kind must hold, and as which JSON types.
_NEEDS: dict[str, dict[str, tuple[type, ...]]] = {
    "reasoning": {"summary": (list,)},
    "function_call": {"call_id": (str,), "name": (str,), "arguments": (str,)},
    "custom_tool_call": {"call_id": (str,), "name": (str,), "input": (str,)},
    "function_call_output": {"call_id": (str,), "output": (str, list)},
    "custom_tool_call_output": {"call_id": (str,), "output": (str, list)},
}


def is_output_message(item: Wire) -> bool:
    """An assistant message as a response returns it, read as one: its parts are `output_text` or `refusal`."""
    content = item.get("content")
    return (
        item.get("type") == "message"
        and item.get("role") == "assistant"
        and isinstance(content, list)
        and all(isinstance(part, dict) and str(part.get("type")) in _OUTPUT_PARTS for part in content)
    )


def input_items(loc: str, value: Any) -> str | list[Wire]:
    """`input`: a string, or items each of a known shape. vLLM's answer lists ~200 errors; this one names the item."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_schema(loc, "string_type", "Input should be a valid string", value)
    for index, item in enumerate(value):
        if not (isinstance(item, dict) and _is_item(item)):
            # The first error that vLLM reports is the failed match of the whole list with a string.
            raise bad_schema(loc, "string_type", f"Input should be a valid string (item {index} fits no type)", value)
    return value


def _is_item(item: Wire) -> bool:
    kind = item.get("type")
    if not isinstance(kind, str | None):
        return False
    if kind in HOSTED_ITEMS:
        return True
    needs = _NEEDS.get(str(kind))
    if needs is None:
        return kind in (None, "message") and _is_message(item)
    given = all(isinstance(item.get(name), types) for name, types in needs.items())
    return given and all(_are_parts(item.get(name)) for name in ("content", "summary", "output"))


def _are_parts(value: Any) -> bool:
    return not isinstance(value, list) or all(isinstance(part, dict) for part in value)


def _is_message(item: Wire) -> bool:
    content = item.get("content")
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        return False
    if is_output_message(item):
        return item.get("status", "completed") in _STATUSES[1:]
    return isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(part, dict) and str(part.get("type")) in _EASY_PARTS for part in content)
        and item.get("status") in _STATUSES
    )
