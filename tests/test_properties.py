"""Any stream of events, in any order, cut anywhere: what is told is legal, what is kept is what was told.

Hypothesis draws from the grammar of `tests/grammar.py`; `bench/fuzz.py` draws far more from it, without shrinking.
"""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammar import Grammar, framed, invariants, read
from shared.json_codec import decode, decode_foreign, encode
from shared.limits import Limits
from stories import EOF, STORIES
from workers.sse import SseDecoder

#: The same examples on every run: what is found belongs into a table.
bounded = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))

SIZES = st.sampled_from((1, 3, 20, 200, 2000))
limits = st.builds(Limits, SIZES, SIZES, st.integers(1, 4), st.integers(1, 4))


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """A stream of the grammar."""
    grammar = Grammar(lambda options: options[draw(st.integers(0, len(options) - 1))])
    return grammar.stream(draw(st.integers(1, 12)))


@st.composite
def shuffled(draw: st.DrawFn) -> list[Any]:
    """Any of a story's events, in any order, perhaps with some of another's among them."""
    rows = list(STORIES.values())
    wires = [*draw(st.sampled_from(rows)).upstream, *draw(st.sampled_from(rows)).upstream]
    return draw(st.lists(st.sampled_from([wire for wire in wires if wire is not EOF]), min_size=1, max_size=12))


def cuts(stream: bytes) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(stream)), max_size=8)


@given(st.data(), limits)
@settings(bounded, max_examples=300)
def test_streams_of_the_grammar(data: st.DataObject, limits: Limits) -> None:
    wires = data.draw(streams())
    invariants(wires, data.draw(cuts(framed(wires))), limits)


@given(st.data(), limits)
@settings(bounded, max_examples=300)
def test_events_of_the_stories_in_any_subset_and_order(data: st.DataObject, limits: Limits) -> None:
    wires = data.draw(shuffled())
    invariants(wires, data.draw(cuts(framed(wires))), limits)


@given(st.binary(max_size=200), st.data())
@settings(bounded, max_examples=200)
def test_any_bytes_cut_anywhere_are_the_same_events(raw: bytes, data: st.DataObject) -> None:
    stream = raw.replace(b"\x00", b"\n").replace(b"\x01", b"\r").replace(b"\x02", b"data: ")
    flat = [event for events in read(stream, []) for event in events]
    assert [event for events in read(stream, data.draw(cuts(stream))) for event in events] == flat


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))), st.data())
@settings(bounded, max_examples=100)
def test_what_is_framed_comes_back(texts: list[str], data: st.DataObject) -> None:
    stream = b"".join(b"data: %b\r\n\n" % text.encode() for text in texts)
    decoder, places = SseDecoder(1 << 20), sorted(data.draw(cuts(stream)))
    reads = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert [one.decode() for piece in reads for one in decoder.feed(piece)] == texts


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
@settings(bounded, max_examples=100)
def test_what_is_json_goes_as_it_came(value: Any) -> None:
    raw = encode(value)
    assert encode(decode(raw)) == raw
    assert repr(decode_foreign(raw)) == repr(value)
