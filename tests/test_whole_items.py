"""One upstream item is one item, whichever way it comes (a stream, a terminal event, a JSON body) and wherever it goes.

`KEPT` are items as they are kept; the sweeps put every optional field through absent, null, empty and given.
"""

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from records import created, record
from shared.accumulator import Accumulator
from shared.event_log import Append, EventLog
from shared.events import PublicEvent
from shared.fold import fold
from shared.items import input_items
from shared.json_codec import decode, encode
from shared.normalize import normalize, read_event
from shared.record import Ending
from shared.redis_client import connect
from shared.replay import ReplayPolicy, upstream_body
from shared.response import Status
from shared.settings import Settings
from shared.store import ResponseStore
from stories import LOGPROB, URL
from stream_rules import check
from wire import (
    Wire,
    added,
    call,
    done,
    message,
    part_added,
    part_done,
    reasoning,
    summed,
    terminal,
    text_part,
    thought,
)
from workers.answers import AnswerDecoder

ABSENT: Final = object()
REFUSAL = {"type": "refusal", "refusal": "No"}


def given(**fields: Any) -> Wire:
    return {key: value for key, value in fields.items() if value is not ABSENT}


# --- one item, three ways ---


def streamed(item: Wire) -> list[Wire]:
    """The events of the item as vLLM streams one: announced as it will be, with its texts empty."""
    fields = {key: value for key, value in item.items() if key not in ("id", "type")}
    fields |= {key: [] for key in ("content", "summary") if fields.get(key)}
    fields |= {key: "" for key in ("arguments", "input") if key in fields}
    fields |= {"status": "in_progress"} if fields.get("status") else {}
    about = {"output_index": 0, "item_id": item["id"]}
    events = [added(0, item["type"], item["id"], **fields)]
    for number, part in enumerate(item.get("summary") or ()):
        place = {**about, "summary_index": number}
        text = {"type": "response.reasoning_summary_text", **place}
        events += [
            {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
            {**text, "type": f"{text['type']}.delta", "delta": part["text"]},
            {**text, "type": f"{text['type']}.done", "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **place, "part": part},
        ]
    for number, part in enumerate(item.get("content") or ()):
        key = "refusal" if part["type"] == "refusal" else "text"
        text = {**about, "content_index": number}
        odds = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
        events += [
            part_added(0, item["id"], number, {**part, key: ""}),
            {"type": f"response.{part['type']}.delta", **text, "delta": part[key], **odds},
            {"type": f"response.{part['type']}.done", **text, key: part[key], **odds},
            part_done(0, item["id"], number, part),
        ]
    for name, key in (("function_call_arguments", "arguments"), ("custom_tool_call_input", "input")):
        if key in item:
            events.append({"type": f"response.{name}.delta", **about, "delta": item[key]})
            events.append({"type": f"response.{name}.done", **about, key: item[key]})
    return [*events, done(0, item)]


def kept(*wires: Wire) -> list[Wire]:
    """What is kept of a stream, which is legal and folds back."""
    accumulator = Accumulator()
    events = accumulator.feed(read_event(encode(wire)) for wire in wires)
    check(events, accumulator.output)
    assert fold(events).output == accumulator.output
    return accumulator.output


def answered(item: Wire) -> list[Wire]:
    """What is kept of the item in an answer that is no stream."""
    decoder, accumulator = AnswerDecoder(1 << 20), Accumulator()
    accumulator.feed(decoder.feed(encode({"object": "response", "status": "completed", "output": [item]})))
    accumulator.feed(decoder.end())
    return accumulator.output


def same_every_way(item: Wire, expected: Wire) -> None:
    events = streamed(item)
    ways = {
        "in the terminal event alone": kept(terminal(output=[item])),
        "in a JSON body": answered(item),
        "streamed": kept(*events, terminal()),
        "streamed, and in the terminal event": kept(*events, terminal(output=[item])),
        "its done alone": kept(events[-1], terminal()),
    }
    assert ways == {way: [expected] for way in ways}


CALL_FIELDS = {"call_id": "call_1", "name": "add"}
LOOSE = [ABSENT, None, [], {"n": None}]


def test_reasoning() -> None:
    contents = [ABSENT, None, [], [thought("")], [thought("a"), thought("b")]]
    summaries = [ABSENT, None, [], [summed("s")], [summed("s"), summed("t")]]
    blobs = [ABSENT, None, "", "gAAA+/="]
    for content, summary, blob, status, extra in itertools.product(
        contents, summaries, blobs, [ABSENT, None, "completed", "incomplete"], LOOSE
    ):
        item = {"id": "rs_1", "type": "reasoning"}
        item |= given(content=content, summary=summary, encrypted_content=blob, status=status, extra=extra)
        same_every_way(item, {"summary": [], **item})  # a summary is required by every published type


def test_messages() -> None:
    full = {**text_part("A"), "annotations": [URL], "logprobs": [LOGPROB]}
    contents = [[], [text_part("A")], [full], [{**text_part("A"), "logprobs": None}], [text_part("A"), REFUSAL]]
    for content, phase, status, extra in itertools.product(
        contents, [ABSENT, None, "commentary"], ["completed", "incomplete"], LOOSE
    ):
        item = {"id": "msg_1", "type": "message", "role": "assistant", "content": content}
        item |= given(phase=phase, status=status, extra=extra)
        # On a message a null phase and null logprobs say nothing.
        parts = [{key: value for key, value in part.items() if value is not None} for part in content]
        tidied = {key: value for key, value in item.items() if (key, value) != ("phase", None)}
        same_every_way(item, {**tidied, "content": parts})


def test_calls() -> None:
    for text, caller, namespace, extra in itertools.product(
        ["", "{}", '{"a'], [ABSENT, None, {"type": "direct"}], [ABSENT, None, "ns"], LOOSE
    ):
        odds = given(caller=caller, namespace=namespace, extra=extra)
        item = {"id": "fc_1", "type": "function_call", **CALL_FIELDS, "arguments": text, "status": "completed", **odds}
        same_every_way(item, item)
        item = {"id": "ctc_1", "type": "custom_tool_call", **CALL_FIELDS, "input": text, **odds}
        same_every_way(item, item)


def test_items_of_types_that_we_do_not_know() -> None:
    for status, content, extra in itertools.product([ABSENT, None, "completed"], LOOSE, LOOSE):
        item = {"id": "x_1", "type": "acme:x"} | given(status=status, content=content, extra=extra)
        events = [added(0, "acme:x", "x_1"), done(0, item)]
        ways = [kept(terminal(output=[item])), answered(item), kept(*events, terminal()), kept(events[1], terminal())]
        assert ways == [[item]] * 4


# --- over a real Redis ---

BIG = 123456789012345678901234567890

#: Items as they come; each is stored, found by its id, rehydrated and shown as exactly these bytes.
KEPT: dict[str, Wire] = {
    "reasoning with all it may have": reasoning(
        "rs_1",
        "a",
        " \n",
        "",
        summary=[summed("s"), summed("")],
        encrypted_content="gAAA+/==",
        status="incomplete",
        extra={"deep": [None, {"n": []}]},
    ),
    "reasoning, all null": {
        "id": "rs_1",
        "type": "reasoning",
        "summary": None,
        "content": None,
        "encrypted_content": None,
        "status": None,
    },
    "reasoning, all empty": {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [],
        "content": [],
        "encrypted_content": "",
        "extra": {},
    },
    "reasoning, nothing but what it must have": {"id": "rs_1", "type": "reasoning", "summary": []},
    "reasoning whose parts say more": reasoning("rs_1")
    | {"content": [{"type": "reasoning_text", "text": "a", "x": None}, {"type": "acme:trace", "steps": []}]},
    "a message": {**message("msg_1", "A"), "phase": "final_answer"},
    "a message with log probabilities and annotations": {
        **message("msg_1", ""),
        "content": [{**text_part("A"), "annotations": [URL], "logprobs": [LOGPROB]}, REFUSAL],
    },
    "a call": call("fc_1", '{"a": 1.50}', caller=None, namespace=None),
    "a call whose arguments are no JSON": call("fc_1", '{"a', status="incomplete"),
    "a custom call": {"id": "ctc_1", "type": "custom_tool_call", **CALL_FIELDS, "input": "cats \\ \"'", "caller": None},
    "a type that we don't know": {"id": "x_1", "type": "acme:x", "content": 5, "arguments": {}, "n": [[]]},
    "integers of any size": {"id": "x_1", "type": "acme:x", "n": [BIG, -BIG, 2**63, 0]},
    "fractions": {"id": "x_1", "type": "acme:x", "n": [0.1, 1.0, -0.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308]},
    "text of any kind": reasoning("rs_1", "é 北 😀 \u2028\u2029\u0085 \x00\x1f\x7f \ufeff\uffff \U0010ffff e\u0301"),
    "keys of any kind": {"id": "x_1", "type": "acme:x", "": 1, "é\u2028": 2, "b": 3, "a": 4, "_item_kind": "theirs"},
}


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    connection = connect(settings)
    yield connection
    await connection.aclose()


@pytest.mark.parametrize("item", KEPT.values(), ids=KEPT.keys())
async def test_an_item_survives_the_store_byte_for_byte(client: Redis, settings: Settings, item: Wire) -> None:
    store, event_log = ResponseStore(client, settings), EventLog(client, settings)
    new = record()
    await store.create(new, [], [created()])
    claimed = await store.claim(new.response_id, "t")
    assert claimed is not None
    accumulator = Accumulator(1)
    events = accumulator.feed([normalize(done(0, item)), normalize(terminal(output=[item]))])
    shown = claimed.ended(Ending(Status.COMPLETED), accumulator.output).response()
    last = PublicEvent("response.completed", 1 + len(events), {"response": shown})
    await event_log.append([Append(claimed, [*events, last], Ending(Status.COMPLETED))])

    loaded = await store.load(new.response_id)
    assert loaded is not None
    [turn] = await store.rehydrate(new.response_id)
    logged = decode((await event_log.read(new.response_id, -1, 100))[-1][1].value)
    places = {
        "the accumulator": accumulator.output[0],
        "the record": loaded.output[0],
        "the response that a GET gives": loaded.response()["output"][0],
        "the response of the last event": logged["response"]["output"][0],
        "the history of the next turn": turn.output[0],
        "the item by its id": await store.item(item["id"]),
    }
    # Keys are compared in the item's own order, the one thing that is not kept.
    assert {where: _ordered(found, item) for where, found in places.items()} == dict.fromkeys(places, encode(item))


def _ordered(found: Any, item: Wire) -> bytes:
    assert found.keys() == item.keys()
    return encode({key: found[key] for key in item})


#: Bytes that are an upstream's JSON, and what of it comes out: what a double can't hold, and what is no text.
BEYOND: dict[str, tuple[bytes, Any]] = {
    "a fraction beyond a double is the nearest": (b"0.1000000000000000000001", 0.1),
    "a pair of surrogates is its character": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "NUL is a character": (b'"\\u0000"', "\0"),
}


@pytest.mark.parametrize(("raw", "value"), BEYOND.values(), ids=BEYOND.keys())
def test_what_comes_out_of_odd_values(raw: bytes, value: Any) -> None:
    accumulator = Accumulator()
    item = b'{"id":"x_1","type":"acme:x","n":%b}' % raw
    accumulator.feed([read_event(b'{"type":"response.output_item.done","output_index":0,"item":%b}' % item)])
    accumulator.feed([normalize(terminal())])
    assert decode(encode(accumulator.output)) == [{"id": "x_1", "type": "acme:x", "n": value}]


@pytest.mark.parametrize(
    "raw",
    [b'"\\ud83d"', b'"\\ude00\\ud83d"', b'"\xed\xa0\xbd"', b"NaN", b"Infinity", b"1e999", b"[" * 5000],
    ids=["half a pair", "a pair turned", "a surrogate's bytes", "NaN", "Infinity", "beyond a double", "too deep"],
)
def test_what_no_store_could_hold_is_counted_and_left_out(raw: bytes) -> None:
    accumulator = Accumulator()
    item = b'{"id":"x_1","type":"acme:x","n":%b}' % raw
    accumulator.feed([read_event(b'{"type":"response.output_item.done","output_index":0,"item":%b}' % item)])
    accumulator.feed([normalize(done(0, message("msg_1", "A"))), normalize(terminal())])
    assert accumulator.output == [message("msg_1", "A")]
    assert dict(accumulator.skipped) == {"not_json": 1}


# --- marks ---

#: Every key that vLLM is ever sent in an item.
SENT = {
    *("type", "id", "role", "status", "content", "text", "annotations", "summary", "phase"),
    *("call_id", "name", "namespace", "arguments", "input", "output"),
}


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(inner)


@pytest.mark.parametrize("item", KEPT.values(), ids=KEPT.keys())
@pytest.mark.parametrize("again", ["stored", "sent again by the client"])
def test_no_mark_and_no_unknown_field_goes_upstream(item: Wire, again: str) -> None:
    marked = {**item, "_item_kind": "x", "tenant": "t", "attempt": 3}
    user = {"type": "message", "role": "user", "content": "Hi"}
    history, new = ([marked], [user]) if again == "stored" else ([], input_items([marked, user]))
    body = upstream_body({"model": "tiny"}, history, new, seed=1, policy=ReplayPolicy())
    assert set(keys(body["input"])) <= SENT
