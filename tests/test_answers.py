"""The body of an upstream's 200, from bytes to items: framing, what is skipped, what is no answer."""

import pytest

from shared.accumulator import Accumulator
from shared.json_codec import encode
from stream_rules import check
from wire import Wire, done, message, ot_d, reasoning, terminal
from workers.answers import AnswerDecoder, NoAnswer
from workers.sse import EventTooLarge

RS = reasoning("rs_1", "x")
MSG = message("msg_1", "A")
CUT = message("msg_1", "A", "incomplete")


def sse(*wires: Wire) -> bytes:
    return b"".join(b"data: %b\n\n" % encode(wire) for wire in wires)


DONE = sse(done(0, MSG))
END = sse(terminal())

#: name: (the whole body, the items, how it ended, what was skipped)
BODIES: dict[str, tuple[bytes, list[Wire], str, Wire]] = {
    "the event's name is its JSON type": (
        b"event: response.failed\n" + DONE + b"event: x\n" + END,
        [MSG],
        "completed",
        {},
    ),
    "comments, ids, retry times and unknown fields": (
        b": hi\n\nid: 7\nretry: 1\nfoo: bar\n" + DONE + b": keep-alive\n\n" + END,
        [MSG],
        "completed",
        {},
    ),
    "[DONE] behind the end": (DONE + END + b"data: [DONE]\n\n", [MSG], "completed", {}),
    "[DONE] is no end": (DONE + b"data: [DONE]\n\n", [CUT], "failed", {}),
    "a tail without its blank line": (DONE + END[:-1], [MSG], "completed", {}),
    "a tail without its line end": (DONE + END[:-2], [MSG], "completed", {}),
    "a tail cut in the middle": (DONE + END[:-9], [CUT], "failed", {"not_json": 1}),
    "unparsable data": (b"data: {\n\ndata: nul\n\n" + DONE + END, [MSG], "completed", {"not_json": 2}),
    "data that is no event": (
        b'data: null\n\ndata: []\n\ndata: {"type":7}\n\ndata: {}\n\n' + DONE + END,
        [MSG],
        "completed",
        {"not_an_object": 2, "no_type": 2},
    ),
    "garbage and nothing else": (b"data: <html>\n\n", [], "failed", {"not_json": 1}),
    "nothing after some text": (sse(ot_d(0, "msg_1", 0, "A")), [CUT], "failed", {}),
    "a Response, no stream": (encode({"status": "completed", "output": [RS, MSG]}), [RS, MSG], "completed", {}),
    "a Response behind white space": (b" \r\n\t" + encode({"output": [MSG]}), [MSG], "completed", {}),
    "a Response that was cut": (encode({"status": "incomplete", "output": [RS, MSG]}), [RS, CUT], "incomplete", {}),
    "an error, no stream": (encode({"error": {"code": 500, "message": "secret"}}), [], "failed", {}),
}


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(("body", "output", "status", "skipped"), BODIES.values(), ids=BODIES.keys())
def test_bodies(body: bytes, output: list[Wire], status: str, skipped: Wire, size: int) -> None:
    decoder, accumulator = AnswerDecoder(1 << 20), Accumulator()
    events = []
    for at in range(0, len(body), size):
        events += accumulator.feed(decoder.feed(body[at : at + size]))
    assert decoder.is_document is (body.strip()[:1] == b"{")
    events += accumulator.feed(decoder.end())
    events += accumulator.fail()
    check(events, accumulator.output)
    assert accumulator.ending is not None
    assert (accumulator.output, accumulator.ending.status) == (output, status)
    assert dict(accumulator.skipped) == skipped


NONE = {
    "nothing": b"",
    "white space": b" \n\n",
    "comments only": b": hi\n\n",
    "HTML": b"<html><body>502</body></html>",
    "JSON that is no object": b"[]",
    "an object that is no Response": b'{"id":"chatcmpl-1","choices":[]}',
    "half a Response": b'{"output":[',
    "a Response that has not ended": b'{"status":"in_progress","output":[]}',
}


@pytest.mark.parametrize("body", NONE.values(), ids=NONE.keys())
def test_what_is_no_answer(body: bytes) -> None:
    decoder = AnswerDecoder(1 << 20)
    assert decoder.feed(body) == []
    with pytest.raises(NoAnswer):
        decoder.end()


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("body", [b"data: " + b"x" * 200, b'{"output": "' + b"x" * 200], ids=["a line", "a document"])
def test_what_is_too_large_is_refused_while_it_comes(body: bytes, size: int) -> None:
    decoder = AnswerDecoder(100)
    reads = [body[at : at + size] for at in range(0, len(body), size)]
    with pytest.raises(EventTooLarge):
        list(map(decoder.feed, reads))
