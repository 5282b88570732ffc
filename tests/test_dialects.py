"""Every recording of a real vLLM in every dialect of other upstreams: the same items, a legal public stream."""

from pathlib import Path
from typing import Any

import pytest

from dialects import DIALECTS, END, Dialect, Stream, frames, streamed, without_nulls
from shared.accumulator import Accumulator
from shared.events import PublicEvent
from shared.json_codec import decode
from stream_rules import check
from workers.answers import AnswerDecoder

Wire = dict[str, Any]

CAPTURED = Path(__file__).parent / "captured"
LIMIT = 1 << 20
#: Bytes of a read: reads end anywhere inside events.
READ = 700


def recordings() -> dict[str, Stream]:
    """Every recorded stream, and every plain answer as the stream that it would have been."""
    streams = {}
    for path in sorted(CAPTURED.glob("*.response.*")):
        raw = path.read_bytes()
        if path.suffix == ".sse" and b"event: response.created" in raw:
            streams[path.name] = [decode(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: ")]
        elif path.suffix == ".json" and b'"output":[' in raw:
            streams[path.name] = streamed(decode(raw))
    return streams


RECORDINGS = recordings()


def told(raw: bytes) -> tuple[list[Wire], list[PublicEvent]]:
    """What the bytes come to. The public stream is legal, and no event of the upstream was useless."""
    decoder, accumulator, events = AnswerDecoder(LIMIT), Accumulator(), list[PublicEvent]()
    for at in range(0, len(raw), READ):
        events += accumulator.feed(decoder.feed(raw[at : at + READ]))
    events += accumulator.feed(decoder.end())
    events += accumulator.fail()
    check(events, accumulator.output)
    assert accumulator.skipped.keys() <= {"late", "item_changed"}
    return accumulator.output, events


def _check_deltas(events: list[PublicEvent]) -> None:
    """The deltas of a text are nothing, or all of it."""
    texts: dict[tuple[str, int, int | None], str] = {}
    for event in events:
        prefix, _, verb = event.type.rpartition(".")
        place = (prefix, event.body.get("output_index", -1), event.body.get("content_index"))
        if verb == "delta":
            texts[place] = texts.get(place, "") + event.body["delta"]
        elif verb == "done" and place in texts:
            assert texts[place] == event.body.get("text", event.body.get("arguments", event.body.get("input")))


def as_far_as_told(item: Wire, dialect: Dialect) -> Wire:
    kept = {key: value for key, value in item.items() if key not in dialect.aside}
    return without_nulls(kept) if "null" in dialect.aside else kept


ITEMS = {name: told(frames(stream))[0] for name, stream in RECORDINGS.items()}


def test_recordings_are_all_there() -> None:
    assert len(RECORDINGS) == 30 + 109


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_every_recording_in_every_dialect(dialect: Dialect) -> None:
    spoken = 0
    for name, stream in RECORDINGS.items():
        if dialect.whole and stream[-1]["type"] != END:
            continue
        raw = dialect.frames(dialect.rewrite(stream))
        output, events = told(raw)
        assert [as_far_as_told(item, dialect) for item in output] == [
            as_far_as_told(item, dialect) for item in ITEMS[name]
        ], name
        if not dialect.torn:
            _check_deltas(events)
        spoken += raw != frames(stream)
    assert spoken or dialect == Dialect(), "a dialect that nobody speaks"
