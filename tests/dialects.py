"""Dialects of other upstreams, as pure rewrites of a stream as vLLM 0.32 sends it: wire events in and out."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from shared.json_codec import encode

Wire = dict[str, Any]
Stream: TypeAlias = list[Wire]
Rewrite: TypeAlias = Callable[[Stream], Stream]
Frames: TypeAlias = Callable[[Stream], bytes]

END = "response.completed"
LIFECYCLE = ("response.created", "response.in_progress")
ITEM = ("response.output_item.added", "response.output_item.done")
TEXTS = ("output_text", "reasoning_text", "function_call_arguments", "custom_tool_call_input")
DELTAS = tuple(f"response.{text}.delta" for text in TEXTS)
TEXT_DONES = tuple(f"response.{text}.done" for text in TEXTS)
PARTS = ("response.content_part.added", "response.content_part.done")
ADDED = ("response.output_item.added", "response.content_part.added")
DONES = (*TEXT_DONES, "response.content_part.done", "response.output_item.done")


# --- a plain answer, streamed as vLLM would ---


def streamed(response: Wire) -> Stream:
    """The stream that a plain answer would have been."""
    opening = {**response, "status": "in_progress", "output": [], "usage": None}
    items = [event for index, item in enumerate(response["output"]) for event in _item(index, item)]
    return [{"type": kind, "response": opening} for kind in LIFECYCLE] + items + [{"type": END, "response": response}]


def _item(index: int, item: Wire) -> Iterator[Wire]:
    empty = {key: type(value)() for key, value in item.items() if key in ("content", "arguments", "input") and value}
    status = {"status": "in_progress"} if item.get("status") else {}
    yield {"type": ITEM[0], "output_index": index, "item": {**item, **empty, **status}}
    place = {"output_index": index, "item_id": item["id"]}
    for kind, key in (("function_call_arguments", "arguments"), ("custom_tool_call_input", "input")):
        if key in item:
            yield from _deltas(kind, place, item[key])
            yield {"type": f"response.{kind}.done", **place, key: item[key]}
    for number, part in enumerate(item.get("content") or ()):
        at = {**place, "content_index": number}
        yield {"type": PARTS[0], **at, "part": {**part, "text": ""}}
        yield from _deltas(part["type"], at, part["text"])
        yield {"type": f"response.{part['type']}.done", **at, "text": part["text"]}
        yield {"type": PARTS[1], **at, "part": part}
    yield {"type": ITEM[1], "output_index": index, "item": item}


def _deltas(kind: str, place: Wire, text: str) -> Iterator[Wire]:
    for at in range(0, len(text), 5):
        yield {"type": f"response.{kind}.delta", **place, "delta": text[at : at + 5]}


# --- rewrites ---


def each(*types: str, by: Callable[[Wire], Wire]) -> Rewrite:
    """Every event of these types changed; of all types where none is named."""
    return lambda stream: [by(wire) if not types or wire["type"] in types else wire for wire in stream]


def without(*types: str) -> Rewrite:
    return lambda stream: [wire for wire in stream if wire["type"] not in types]


def only(*types: str) -> Rewrite:
    return lambda stream: [wire for wire in stream if wire["type"] in types]


def both(*rewrites: Rewrite) -> Rewrite:
    """One after the other."""

    def rewrite(stream: Stream) -> Stream:
        for one in rewrites:
            stream = one(stream)
        return stream

    return rewrite


def renamed(**names: str) -> Rewrite:
    types = {f"response.{old.replace('__', '.')}": f"response.{new}" for old, new in names.items()}
    return each(by=lambda wire: {**wire, "type": types.get(wire["type"], wire["type"])})


def dropping(*keys: str) -> Rewrite:
    """Those keys are nowhere in an event's own fields."""
    return each(by=lambda wire: {key: value for key, value in wire.items() if key not in keys})


def setting(**fields: Any) -> Rewrite:
    """Those fields have that value, where the event has them."""
    return each(by=lambda wire: {key: fields.get(key, value) for key, value in wire.items()})


def final(change: Callable[[Wire], Wire]) -> Rewrite:
    """The terminal event's Response changed."""
    return each(END, by=lambda wire: {**wire, "response": change(wire["response"])})


def final_items(change: Callable[[int, Wire], Wire]) -> Rewrite:
    return final(
        lambda response: {**response, "output": [change(at, item) for at, item in enumerate(response["output"])]}
    )


def late(at: int, item: Wire) -> Wire:
    """The item under ids drawn anew."""
    calls = {"call_id": f"call_late{at}"} if "call_id" in item else {}
    return {**item, "id": f"late_{at}", **calls}


def late_done(wire: Wire) -> Wire:
    return {**wire, "item": {**wire["item"], "id": f"done_{wire['output_index']}"}}


def a_new_id_each(stream: Stream) -> Stream:
    """No event but `added` names the item that it is about as any other does."""
    return [{**wire, "item_id": f"event_{at}"} if "item_id" in wire else wire for at, wire in enumerate(stream)]


def running_parts(stream: Stream) -> Stream:
    """One counter of parts across all items."""
    seen: list[tuple[Any, Any]] = []
    rewritten = []
    for wire in stream:
        if "content_index" in wire:
            place = (wire["output_index"], wire["content_index"])
            seen += [place] if place not in seen else []
            wire = {**wire, "content_index": seen.index(place)}  # noqa: PLW2901 - the rewritten one
        rewritten.append(wire)
    return rewritten


def slot(wire: Wire) -> int | None:
    return wire.get("output_index")


def by_item(stream: Stream) -> tuple[Stream, list[Stream], Stream]:
    """What comes before the items, the events of each, and what comes after."""
    items: dict[int, Stream] = {}
    for wire in stream:
        if (index := slot(wire)) is not None:
            items.setdefault(index, []).append(wire)
    before = [wire for wire in stream if slot(wire) is None and wire["type"] != END]
    return before, list(items.values()), [wire for wire in stream if wire["type"] == END]


def interleaved(stream: Stream) -> Stream:
    """The first event of every item, then the second of every item …"""
    before, items, after = by_item(stream)
    longest = max(map(len, items), default=0)
    return before + [item[at] for at in range(longest) for item in items if at < len(item)] + after


def backwards(stream: Stream) -> Stream:
    """The last item first."""
    before, items, after = by_item(stream)
    return before + [wire for item in reversed(items) for wire in item] + after


def dones_last(stream: Stream) -> Stream:
    """Every item ends at the end, the last one first."""
    ends = [wire for wire in stream if wire["type"] == ITEM[1]]
    rest = [wire for wire in stream if wire["type"] not in (ITEM[1], END)]
    return rest + ends[::-1] + [wire for wire in stream if wire["type"] == END]


def with_calls(stream: Stream) -> Stream:
    """`name` and `call_id` of a call are told by its done alone."""
    return [
        {**wire, "item": {key: value for key, value in wire["item"].items() if key not in ("name", "call_id")}}
        if wire["type"] == ITEM[0]
        else wire
        for wire in stream
    ]


def whole_at_once(stream: Stream) -> Stream:
    """An item's `added` shows all of it already."""
    ends = {slot(wire): wire["item"] for wire in stream if wire["type"] == ITEM[1]}
    return [
        {**wire, "item": ends.get(slot(wire), wire["item"])} if wire["type"] == ITEM[0] else wire for wire in stream
    ]


def one_delta_a_text(stream: Stream) -> Stream:
    rewritten: Stream = []
    for wire in stream:
        last = rewritten[-1] if rewritten else {}
        if wire["type"] in DELTAS and (last.get("type"), last.get("item_id")) == (wire["type"], wire["item_id"]):
            logprobs = {"logprobs": last["logprobs"] + wire["logprobs"]} if wire.get("logprobs") else {}
            rewritten[-1] = {**last, "delta": last["delta"] + wire["delta"], **logprobs}
        else:
            rewritten.append(wire)
    return rewritten


def a_delta_a_character(stream: Stream) -> Stream:
    cut: Stream = []
    for wire in stream:
        letters = wire["delta"] if wire["type"] in DELTAS and not wire.get("logprobs") else ""
        cut += [{**wire, "delta": letter} for letter in letters] or [wire]
    return cut


def every_second_delta(stream: Stream) -> Stream:
    return [wire for at, wire in enumerate(stream) if at % 2 or wire["type"] not in DELTAS]


def reversed_(stream: Stream) -> Stream:
    return stream[-2::-1] + stream[-1:]


def shuffled(seed: int) -> Rewrite:
    """In any order, but for the end."""
    return lambda stream: random.Random(seed).sample(stream[:-1], len(stream) - 1) + stream[-1:]


def twice(stream: Stream) -> Stream:
    """Everything but deltas comes twice."""
    return [wire for wire in stream for _ in range(1 if wire["type"] in DELTAS else 2)]


def last_item_open(stream: Stream) -> Stream:
    """Items end only when the next one begins."""
    last = max((index for wire in stream if (index := slot(wire)) is not None), default=None)
    return [wire for wire in stream if wire["type"] not in DONES or slot(wire) != last]


def messages_unannounced(stream: Stream) -> Stream:
    messages = {slot(wire) for wire in stream if wire["type"] == ITEM[0] and wire["item"]["type"] == "message"}
    return [wire for wire in stream if wire["type"] not in ADDED or slot(wire) not in messages]


def id_elsewhere(wire: Wire) -> Wire:
    """`item_id` for `id` inside the item."""
    return {**wire, "item": {"item_id" if key == "id" else key: value for key, value in wire["item"].items()}}


def without_id(wire: Wire) -> Wire:
    """No id anywhere, not even in items."""
    items = [
        {key: value for key, value in item.items() if key != "id"}
        for item in wire.get("response", {}).get("output", [])
    ]
    return {
        **{key: value for key, value in wire.items() if key != "item_id"},
        **({"item": {key: value for key, value in wire["item"].items() if key != "id"}} if "item" in wire else {}),
        **({"response": {**wire["response"], "output": items}} if "response" in wire else {}),
    }


def fields_as_null(wire: Wire) -> Wire:
    """All fields that any event has, null where this one has none."""
    keys = ("item_id", "output_index", "content_index", "summary_index", "delta", "text", "item", "part", "name")
    return {**dict.fromkeys((*keys, "arguments", "logprobs", "response", "annotation", "error", "code")), **wire}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def visible(item: Wire) -> bool:
    return item["type"] != "message" or any(part["text"].strip() for part in item["content"])


def ending_named(stream: Stream) -> Stream:
    """The terminal event is named for its status, as OpenAI's is."""
    return each(END, by=lambda wire: {**wire, "type": f"response.{wire['response']['status']}"})(stream)


NO_INDEX = dropping("output_index")
NO_ID = dropping("item_id")
NO_PART_INDEX = dropping("content_index")
OTHER_IDS = final_items(late)
VISIBLE_END = final(lambda response: {**response, "output": [item for item in response["output"] if visible(item)]})
EMPTY_END = final(lambda response: {**response, "output": []})
BARE_END = each(END, by=lambda wire: {"type": END, "response": {"status": wire["response"]["status"]}})
OPEN_RESPONSES = renamed(reasoning_text__delta="reasoning.delta", reasoning_text__done="reasoning.done")


def reasoning_parts(stream: Stream) -> Stream:
    """`reasoning_part.*`, as vLLM had it before 0.28."""
    return [
        {**wire, "type": wire["type"].replace("content_part", "reasoning_part")}
        if wire["type"] in PARTS and wire["part"]["type"] == "reasoning_text"
        else wire
        for wire in stream
    ]


# --- bytes ---


def frames(stream: Stream) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (wire["type"].encode(), encode(wire)) for wire in stream)


def bare_frames(stream: Stream) -> bytes:
    """No event lines, no space, comments and `[DONE]`, and nothing after it."""
    return b": hello\n\n" + b"".join(b"data:%b\n\n: ping\n\n" % encode(wire) for wire in stream) + b"data:[DONE]"


def crlf_frames(stream: Stream) -> bytes:
    lines = (b"id: %d\r\nevent: x\r\ndata: %b\r\n\r\n" % (at, encode(wire)) for at, wire in enumerate(stream))
    return b"\xef\xbb\xbfretry: 5\r\n" + b"".join(lines)


def broken_lines(stream: Stream) -> bytes:
    """JSON for people: each event's over several `data` lines."""
    lines = (json.dumps(wire, indent=1, ensure_ascii=False).encode().split(b"\n") for wire in stream)
    return b"".join(b"data: " + b"\ndata: ".join(event) + b"\n\n" for event in lines)


def document(stream: Stream) -> bytes:
    """No stream at all: the Response."""
    return b"\n" + encode(stream[-1]["response"])


# --- the dialects ---


@dataclass(frozen=True)
class Dialect:
    """`aside`: fields that it can't tell, or `null`s. `whole`: streams that broke off can't be told in it.

    `torn`: deltas are lost or out of order.
    """

    rewrite: Rewrite = list
    frames: Frames = frames
    aside: tuple[str, ...] = ()
    whole: bool = False
    torn: bool = False


DIALECTS: dict[str, Dialect] = {
    "vLLM 0.32": Dialect(),
    # names
    "reasoning_part": Dialect(reasoning_parts),
    "reasoning.delta and reasoning.done": Dialect(OPEN_RESPONSES),
    "reasoning.delta of objects": Dialect(
        both(
            OPEN_RESPONSES,
            each("response.reasoning.delta", by=lambda wire: {**wire, "delta": {"text": wire["delta"]}}),
        )
    ),
    "response.done": Dialect(renamed(completed="done")),
    "the terminal event is named for its status": Dialect(ending_named),
    "item.item_id": Dialect(each(*ITEM, by=id_elsewhere)),
    # numbers
    "sequence_number null": Dialect(setting(sequence_number=None)),
    "sequence_number -1": Dialect(setting(sequence_number=-1)),
    "sequence_number always 1": Dialect(setting(sequence_number=1)),
    "no sequence_number": Dialect(dropping("sequence_number")),
    "content_index runs across items": Dialect(running_parts),
    "no content_index": Dialect(NO_PART_INDEX),
    "no output_index": Dialect(NO_INDEX),
    "output_index from 1": Dialect(
        each(by=lambda wire: {**wire, "output_index": wire["output_index"] + 1} if "output_index" in wire else wire)
    ),
    "output_index always 0": Dialect(setting(output_index=0)),
    "output_index always 0, no added": Dialect(both(setting(output_index=0), without(*ADDED))),
    "output_index always 0, only item.done": Dialect(both(setting(output_index=0), only(ITEM[1], END)), whole=True),
    "output_index always 0, other ids, no added": Dialect(both(setting(output_index=0), OTHER_IDS, without(*ADDED))),
    "neither output_index nor content_index": Dialect(both(NO_INDEX, NO_PART_INDEX)),
    # ids
    "other ids in the terminal event": Dialect(OTHER_IDS),
    "other ids in the terminal event, which has no blank message": Dialect(both(OTHER_IDS, VISIBLE_END)),
    "the same, and no done events": Dialect(both(OTHER_IDS, VISIBLE_END, without(*DONES)), whole=True),
    "another id in item.done": Dialect(each(ITEM[1], by=late_done)),
    "an id for each stage": Dialect(both(OTHER_IDS, each(ITEM[1], by=late_done))),
    "an id for each event": Dialect(a_new_id_each),
    "an id for each event, output_index always 0": Dialect(both(a_new_id_each, setting(output_index=0))),
    "no item_id": Dialect(NO_ID),
    "item_id empty": Dialect(setting(item_id="")),
    "no id anywhere": Dialect(each(by=without_id), aside=("id",)),
    "no id anywhere, and no indices": Dialect(both(each(by=without_id), NO_INDEX, NO_PART_INDEX), aside=("id",)),
    "neither item_id nor indices": Dialect(both(NO_ID, NO_INDEX, NO_PART_INDEX)),
    # what is missing
    "no lifecycle events": Dialect(without(*LIFECYCLE)),
    "no added": Dialect(without(*ADDED)),
    "no item.added": Dialect(without(ITEM[0])),
    "messages not announced": Dialect(messages_unannounced),
    "no part events": Dialect(without(*PARTS)),
    "no text done": Dialect(without(*TEXT_DONES)),
    "no item.done": Dialect(without(ITEM[1]), whole=True),
    "no done events": Dialect(without(*DONES), whole=True),
    "no done events of the last item": Dialect(last_item_open),
    "no deltas": Dialect(without(*DELTAS), whole=True),
    "only deltas": Dialect(only(*DELTAS, END), whole=True),
    "only deltas, no indices": Dialect(both(only(*DELTAS, END), NO_INDEX, NO_PART_INDEX), whole=True),
    "only item.done": Dialect(only(ITEM[1], END), whole=True),
    "only item.done, and an empty terminal event": Dialect(both(only(ITEM[1], END), EMPTY_END), whole=True),
    "only the terminal event": Dialect(only(END), whole=True),
    "an empty terminal event": Dialect(EMPTY_END),
    "items in progress in the terminal event": Dialect(
        final_items(lambda _, item: {**item, "status": "in_progress"} if item.get("status") else item)
    ),
    "a terminal event without output": Dialect(BARE_END),
    # order
    "items interleaved": Dialect(interleaved),
    "items backwards": Dialect(backwards),
    "items end at the end, backwards": Dialect(dones_last),
    "everything twice": Dialect(twice),
    "everything backwards": Dialect(reversed_, whole=True, torn=True),
    "shuffled": Dialect(shuffled(1), whole=True, torn=True),
    "shuffled otherwise": Dialect(shuffled(2), whole=True, torn=True),
    # deltas
    "one delta a text": Dialect(one_delta_a_text),
    "a delta a character": Dialect(a_delta_a_character),
    "every second delta": Dialect(every_second_delta, whole=True, torn=True),
    "added shows the whole item": Dialect(whole_at_once),
    "calls are named by their done": Dialect(with_calls),
    # proxies
    "every field, null": Dialect(each(by=fields_as_null)),
    "no nulls": Dialect(each(by=without_nulls), aside=("null",)),
    # whole upstreams
    "older vLLM": Dialect(both(reasoning_parts, running_parts, OTHER_IDS, setting(sequence_number=-1))),
    "older vLLM, gpt-oss": Dialect(both(reasoning_parts, messages_unannounced, last_item_open, OTHER_IDS)),
    "SGLang": Dialect(both(OPEN_RESPONSES, OTHER_IDS, without(*PARTS), dropping("sequence_number"))),
    "a translating proxy": Dialect(
        both(a_new_id_each, setting(output_index=0), NO_PART_INDEX, without(*PARTS), EMPTY_END)
    ),
    "llama.cpp": Dialect(both(NO_INDEX, NO_PART_INDEX, without(*TEXT_DONES), dropping("sequence_number"))),
    # bytes
    "bare frames": Dialect(frames=bare_frames),
    "CRLF, ids, retry, a byte order mark": Dialect(frames=crlf_frames),
    "JSON over several lines": Dialect(frames=broken_lines),
    "JSON, no stream": Dialect(frames=document, whole=True),
}
