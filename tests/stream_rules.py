"""What every public stream obeys (OpenAI contract: order rules, required keys), as one assertion."""

from collections.abc import Sequence
from typing import Any

from shared.events import PublicEvent, log_entry, public_event
from shared.json_codec import encode

Wire = dict[str, Any]

#: Events of a text: the field that holds it, the key of its index, the key of its whole text, its part's events.
TEXTS = {
    "response.output_text": ("content", "content_index", "text", "response.content_part"),
    "response.refusal": ("content", "content_index", "refusal", "response.content_part"),
    "response.reasoning_text": ("content", "content_index", "text", "response.content_part"),
    "response.reasoning_summary_text": ("summary", "summary_index", "text", "response.reasoning_summary_part"),
    "response.function_call_arguments": ("arguments", None, "arguments", None),
    "response.custom_tool_call_input": ("input", None, "input", None),
}
PARTS = {"response.content_part": "content_index", "response.reasoning_summary_part": "summary_index"}
#: The type of the part that a text's events are about.
PART_TYPES = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
}
REQUIRED = {
    "message": {"id", "type", "role", "status", "content"},
    "reasoning": {"id", "type", "summary"},
    "function_call": {"id", "type", "call_id", "name", "arguments", "status"},
    "custom_tool_call": {"id", "type", "call_id", "name", "input"},
}


class _Item:
    def __init__(self, item: Wire) -> None:
        self.added = item
        self.parts: dict[tuple[str, int], str] = {}  # (part events, index) -> added | text done | done
        self.part_types: dict[tuple[str, int], str] = {}
        self.texts: dict[tuple[str, int | None], list[str]] = {}
        self.whole: dict[tuple[str, int | None], str] = {}
        self.done: Wire | None = None


def check(events: Sequence[PublicEvent], output: Sequence[Wire], *, first: int = 0) -> None:
    """The stream is legal and closed, can be stored compactly, and tells exactly `output`."""
    assert [event.sequence_number for event in events] == list(range(first, first + len(events)))
    items: list[_Item] = []
    for event in events:
        assert public_event(event.sequence_number, log_entry(event)) == event._replace(stored=None)
        _check_event(event, items)
    assert [item.done for item in items] == list(output)
    names = [(item["type"], item["id"]) for item in output]
    assert len(set(names)) == len(names)


def _check_event(event: PublicEvent, items: list[_Item]) -> None:
    body = event.body
    prefix, _, verb = event.type.rpartition(".")
    if event.type == "response.output_item.added":
        assert body.keys() == {"output_index", "item"}
        assert body["output_index"] == len(items), "announced in order, once each"
        _check_opening(body["item"])
        items.append(_Item(body["item"]))
        return
    if body.get("output_index") is None:
        return
    item = items[body["output_index"]]
    assert item.done is None, "nothing follows an item's done"
    if event.type == "response.output_item.done":
        _check_done(item, body["item"])
        return
    if "item_id" in body:
        assert body["item_id"] == item.added["id"]
    if prefix in PARTS:
        _check_part(prefix, verb, body, item)
    elif prefix in TEXTS:
        _check_text(prefix, verb, body, item, event)


def _check_opening(item: Wire) -> None:
    assert item.keys() >= REQUIRED.get(item["type"], {"type", "id"})
    assert item["type"] not in REQUIRED or item.get("status") in {"in_progress", None}
    match item["type"]:
        case "message":
            assert item["content"] == []
        case "reasoning":
            assert item["summary"] == []
            assert not item.get("content")
        case "function_call":
            assert item["arguments"] == ""
            assert item["call_id"]
        case "custom_tool_call":
            assert item["input"] == ""
            assert item["call_id"]


def _check_part(prefix: str, verb: str, body: Wire, item: _Item) -> None:
    place = (prefix, body[PARTS[prefix]])
    if verb == "added":
        assert place not in item.parts
        assert place[1] == sum(events == prefix for events, _ in item.parts), "parts count from 0"
        item.parts[place] = "added"
        item.part_types[place] = body["part"]["type"]
        texts = [text for text, part in PART_TYPES.items() if part == body["part"]["type"]]
        assert [body["part"][TEXTS[text][2]] for text in texts] == [""]
        if body["part"]["type"] == "output_text":
            assert body["part"]["annotations"] == body["part"]["logprobs"] == []
    else:
        assert item.parts[place] == "text done"
        item.parts[place] = "done"
        part_type = body["part"]["type"]
        [text] = [name for name, part in PART_TYPES.items() if part == part_type == item.part_types[place]]
        assert body["part"][TEXTS[text][2]] == item.whole[text, place[1]], "a part ends with its text"


def _check_text(prefix: str, verb: str, body: Wire, item: _Item, event: PublicEvent) -> None:
    _, part_key, text_key, part_events = TEXTS[prefix]
    index = None if part_key is None else body[part_key]
    assert (prefix, index) not in item.whole, "nothing follows a text's done"
    if part_events is not None:
        assert item.parts[part_events, index] == "added"
        assert item.part_types[part_events, index] == PART_TYPES[prefix]
    if prefix == "response.output_text":
        assert isinstance(body["logprobs"], list)
    if verb == "delta":
        assert len(log_entry(event).field) == 2 or body.get("logprobs") or " " in body["item_id"]
        item.texts.setdefault((prefix, index), []).append(body["delta"])
        return
    item.whole[prefix, index] = body[text_key]
    if part_events is not None:
        item.parts[part_events, index] = "text done"
    if prefix == "response.function_call_arguments":
        assert isinstance(body["name"], str)


def _check_done(item: _Item, final: Wire) -> None:
    assert set(item.parts.values()) <= {"done"}, "all parts are closed"
    assert item.texts.keys() <= item.whole.keys(), "all texts are closed"
    assert final.keys() >= REQUIRED.get(final["type"], {"type", "id"})
    for key in ("type", "id", "call_id"):
        assert final.get(key) == item.added.get(key)
    assert final.get("status") != "in_progress"
    for part in final["content"] if final["type"] == "message" else ():
        assert part["type"] != "output_text" or isinstance(part["annotations"], list)
    item.done = final


def told(event: PublicEvent) -> str:
    """A public event in short hand; what it leaves out, `check` knows.

    `0+message(msg_1)` item 0 is added, `0.completed` is done with that status (`null`, or `-` where it has none);
    `0c1+refusal` the part at content index 1 is added (`s1`: a summary's), `0c1.` is done; `0c1"x"` a delta, `0c1="x"`
    the whole text, of a call's arguments or input without `c1`; `~2` with two log probabilities; `0c1@0` an annotation.
    """
    body, (prefix, _, verb) = event.body, event.type.rpartition(".")
    parts = [f"{key[0]}{body[key]}" for key in ("content_index", "summary_index") if key in body]
    place = "".join([str(body.get("output_index", "")), *parts])
    if verb == "added" and prefix == "response.output_item":
        rest = f"+{body['item']['type']}({body['item']['id']})"
    elif verb == "done" and prefix == "response.output_item":
        status = body["item"].get("status", "-")
        rest = f".{'null' if status is None else status}"
    elif prefix in PARTS:
        rest = f"+{body['part']['type']}" if verb == "added" else "."
    elif prefix in TEXTS:
        text = body["delta"] if verb == "delta" else body[TEXTS[prefix][2]]
        odds = f"~{len(body['logprobs'])}" if body.get("logprobs") else ""
        rest = f"{'' if verb == 'delta' else '='}{encode(text).decode()}{odds}"
    elif prefix == "response.output_text.annotation":
        rest = f"@{body['annotation_index']}"
    else:
        rest = f":{event.type}"
    return place + rest
