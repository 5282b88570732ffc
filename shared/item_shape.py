"""What an item that an upstream sends must look like to be believed, and how it is tidied at the door. Pure.

Law: an item is believed as a whole or not at all. Only the fields that are read anywhere are checked; whatever else
stands in it passes untouched. Types that we don't know are opaque and need no more than a `type`.
"""

from typing import Any, Final

from shared.json_codec import Wire

#: The key of the text in each type of part that we know.
TEXT_KEYS: Final = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}

#: Fields that are a string, null or absent, by type of item.
_TEXTS: Final = {
    "message": ("role", "phase"),
    "reasoning": ("encrypted_content",),
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
}
#: Fields that are a list of parts, null or absent, by type of item.
_LISTS: Final = {"message": ("content",), "reasoning": ("content", "summary")}


#: An id stands in every event about its item, so a long one would be multiplied. Real ones have about 60 characters.
_LONGEST_ID: Final = 512


def item_id(value: Any) -> str | None:
    """What can be an item's id, else None."""
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID else None


def well_formed(item: Wire) -> bool:
    """Whether an item's fields can be believed."""
    kind = item.get("type")
    if not isinstance(kind, str) or not kind:
        return False
    if kind not in _TEXTS:
        return True
    texts = ("id", "item_id", "status", *_TEXTS[kind])
    return all(_text_or_null(item.get(key)) for key in texts) and all(
        _parts_or_null(item.get(key)) for key in _LISTS.get(kind, ())
    )


def _text_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _list_or_null(value: Any) -> bool:
    return value is None or isinstance(value, list)


def _parts_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(_part(part) for part in value))


def _part(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return False
    key = TEXT_KEYS.get(part["type"])
    return key is None or (isinstance(part.get(key), str) and well_formed_beside(part))


def well_formed_beside(part: Wire) -> bool:
    """Whether what stands in a part beside its text can be believed."""
    return _list_or_null(part.get("annotations")) and _list_or_null(part.get("logprobs"))


def tidy(item: Wire) -> Wire:
    """The item as it is kept.

    `item_id` stands in for a missing `id`. On a message, a null `phase` and a part's null `logprobs` say nothing (vLLM
    sends both always) and published types don't allow them: they are dropped. Every other null is a fact and stays.
    """
    if not item.get("id") and item.get("item_id"):
        item = {"id": item["item_id"], **{key: value for key, value in item.items() if key not in ("id", "item_id")}}
    if item["type"] != "message":
        return item
    if "phase" in item and item["phase"] is None:
        item = {key: value for key, value in item.items() if key != "phase"}
    if item.get("content"):
        item = {**item, "content": [tidy_part(part) for part in item["content"]]}
    return item


def tidy_part(part: Wire) -> Wire:
    """A message's part without a null `logprobs`."""
    if "logprobs" in part and part["logprobs"] is None:
        return {key: value for key, value in part.items() if key != "logprobs"}
    return part
