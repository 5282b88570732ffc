"""Input items at the door: what a client may send as `input`, and how an item is told apart. Pure.

Law: an item is checked, never changed. Unknown fields, unknown types, null versus absent and `[]` versus absent pass as
they came; only what could break the replay to vLLM is refused. An id that passed the door is safe to name in a message.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from shared.checks import array, bounded, mapping, missing, optional_text, text, wrong_type, wrong_value
from shared.json_codec import Wire
from shared.tools import check_tools

#: Items of one request. (Redis takes half a million fields in one command.)
MAX_ITEMS: Final = 100_000

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})

#: Parts whose text a reader may want, and the key that holds it.
TEXT_KEYS: Final = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "summary_text": "text",
}

#: Parts beside texts that vLLM reads in what a user or a tool wrote; it refuses a request that holds any other.
_MEDIA: Final = frozenset({"input_image", "input_file"})
_DETAILS: Final = (None, "auto", "low", "high", "original")

# OpenAI refuses ids with anything else in them.
_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")


def kind(item: Wire) -> str:
    """The item's type; messages may come without one, and so may references (a bare `id`). "" where it has none."""
    named = item.get("type")
    if isinstance(named, str):
        return named
    if named is None and "role" in item:
        return "message"
    return "item_reference" if named is None and item.keys() <= {"id", "type"} and "id" in item else ""


def name_of(item: Wire) -> str:
    """The item as an error message may call it: by its id, where that is a plain name."""
    own = item.get("id")
    return f"item '{own}'" if isinstance(own, str) and _ID.fullmatch(own) else "an item without an id"


def plain_text(parts: object) -> str:
    """The texts of a content or summary list, joined by line feeds as vLLM joins them; a string is its own text."""
    if isinstance(parts, str):
        return parts
    return "\n".join(_texts(parts)) if isinstance(parts, list) else ""


def _texts(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, dict) and isinstance(found := part.get(TEXT_KEYS.get(str(part.get("type")), "")), str):
            yield found


def user_message(content: str) -> Wire:
    """The one user message that a string `input` stands for."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": content}]}


def input_items(value: object) -> list[Wire]:
    """`input` as items: a string becomes one user message, a list stays as it came.

    Raises `InvalidRequest` with the place of the first fault, such as `input[2].content`.
    """
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return [user_message(bounded(value, "input"))]
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items")
    if len(value) > MAX_ITEMS:
        raise wrong_value("input", f"must have at most {MAX_ITEMS} items")
    for index, item in enumerate(value):
        _check(mapping(item, f"input[{index}]"), f"input[{index}]")
    return value


def references(items: Sequence[Wire]) -> list[tuple[int, str]]:
    """Where an item stands for a stored one: its index in `items`, and the stored item's id."""
    return [(index, item["id"]) for index, item in enumerate(items) if kind(item) == "item_reference"]


def _check(item: Wire, at: str) -> None:
    if item.get("type") is not None and not isinstance(item["type"], str):
        raise wrong_type(f"{at}.type", "a string")
    what = kind(item)
    if not what:
        raise wrong_value(at, "an item needs a type, or a role if it is a message")
    if item.get("id") is not None and not _ID.fullmatch(bounded(item["id"], f"{at}.id")):
        raise wrong_value(f"{at}.id", "an id has 1 to 256 letters, digits, underscores or dashes")
    optional_text(item, "status", at)
    check = _CHECKS.get(what)
    if check is not None:
        check(item, at)
    elif "role" in item:  # an unknown type passes, but a message must not be left out for a slip of the pen
        raise wrong_value(f"{at}.type", "an item that has a role is of type 'message'")


def _message(item: Wire, at: str) -> None:
    if text(item, "role", at) not in ROLES:
        raise wrong_value(f"{at}.role", "supported roles are user, assistant, system and developer")
    _content(item, "content", at)
    if item["role"] != "assistant":
        _written(item["content"], f"{at}.content")


def _reasoning(item: Wire, at: str) -> None:
    for key in ("content", "summary"):
        if item.get(key) is not None:
            _parts(array(item[key], f"{at}.{key}"), f"{at}.{key}")
    optional_text(item, "encrypted_content", at)


def _function_call(item: Wire, at: str) -> None:
    _call(item, at)
    text(item, "arguments", at)


def _custom_tool_call(item: Wire, at: str) -> None:
    _call(item, at)
    text(item, "input", at)


def _call(item: Wire, at: str) -> None:
    text(item, "call_id", at, empty=False)
    text(item, "name", at, empty=False)
    optional_text(item, "namespace", at)


def _output(item: Wire, at: str) -> None:
    text(item, "call_id", at, empty=False)
    _content(item, "output", at)
    _written(item["output"], f"{at}.output")


def _reference(item: Wire, at: str) -> None:
    text(item, "id", at)


def _additional_tools(item: Wire, at: str) -> None:
    check_tools(array(item.get("tools"), f"{at}.tools"), f"{at}.tools")


def _compaction_trigger(item: Wire, at: str) -> None:
    raise wrong_value(f"{at}.type", f"{item['type']} items are not supported")


def _content(item: Wire, key: str, at: str) -> None:
    value = item.get(key)
    if value is None:
        raise missing(f"{at}.{key}")
    if isinstance(value, str):
        bounded(value, f"{at}.{key}")
    elif isinstance(value, list):
        _parts(value, f"{at}.{key}")
    else:
        raise wrong_type(f"{at}.{key}", "a string or an array of content parts")


def _written(content: str | list[Wire], at: str) -> None:
    """Refuse parts of what a user or a tool wrote that vLLM refuses."""
    for index, part in enumerate(content if isinstance(content, list) else ()):
        place = f"{at}[{index}]"
        if part["type"] not in TEXT_KEYS and part["type"] not in _MEDIA:
            raise wrong_value(f"{place}.type", f"supported are texts, {' and '.join(sorted(_MEDIA))}")
        if part["type"] == "input_image":
            optional_text(part, "image_url", place)
            if part.get("detail") not in _DETAILS:
                raise wrong_value(f"{place}.detail", "supported values are auto, low, high and original")


def _parts(parts: list[object], at: str) -> None:
    for index, part in enumerate(parts):
        place = f"{at}[{index}]"
        key = TEXT_KEYS.get(text(mapping(part, place), "type", place))
        if key is not None:
            text(mapping(part, place), key, place)


_CHECKS: Final[dict[str, Callable[[Wire, str], None]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_tool_call,
    "custom_tool_call_output": _output,
    "item_reference": _reference,
    "additional_tools": _additional_tools,
    # Asks for a compaction instead of an answer: answering it would be a lie.
    "compaction_trigger": _compaction_trigger,
}
