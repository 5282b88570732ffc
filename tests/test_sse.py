import time

import pytest

from workers.sse import EventTooLarge, SseDecoder

LIMIT = 1 << 20


def decoded(*reads: bytes, limit: int = LIMIT) -> list[bytes]:
    decoder = SseDecoder(limit)
    return [event for read in reads for event in decoder.feed(read)] + decoder.end()


EXAMPLES = {
    "one event": (b"event: a\ndata: {}\n\n", [b"{}"]),
    "two events": (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
    "CRLF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
    "CR": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "mixed ends": (b"data: 1\r\n\ndata: 2\n\r\n", [b"1", b"2"]),
    "several data lines": (b"data: a\ndata: b\n\n", [b"a\nb"]),
    "several data lines, CRLF": (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
    "no space after the colon": (b"data:{}\n\n", [b"{}"]),
    "one space is taken, not two": (b"data:  x\n\n", [b" x"]),
    "data without a colon": (b"data\n\n", [b""]),
    "empty data": (b"data:\n\n", [b""]),
    "two empty data lines": (b"data\ndata\n\n", [b"\n"]),
    "no data, no event": (b"event: a\nid: 7\nretry: 5\n\n", []),
    "comments": (b": ping\n\n: pong\ndata: 1\n\n", [b"1"]),
    "unknown and similar fields": (b"datum: 1\ndata2: 2\n data: 3\ndata: 4\n\n", [b"4"]),
    "[DONE] is data like any other": (b"data: [DONE]\n\n", [b"[DONE]"]),
    "tail without blank line": (b"data: 1\n\ndata: 2\n", [b"1", b"2"]),
    "tail without line end": (b"data: 1\n\ndata: 2", [b"1", b"2"]),
    "byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
    "byte order mark only at the start": (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [b"1"]),
    "U+2028, U+2029, U+0085 end no line": (
        "data: a\u2028b\u2029c\u0085d\n\n".encode(),
        ["a\u2028b\u2029c\u0085d".encode()],
    ),
    "nothing": (b"", []),
    "blank lines": (b"\n\n\r\n", []),
    "bytes that are no UTF-8": (b"data: \xff\xfe\n\n", [b"\xff\xfe"]),
}


@pytest.mark.parametrize(("raw", "events"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_events(raw: bytes, events: list[bytes]) -> None:
    assert decoded(raw) == events


@pytest.mark.parametrize(("raw", "events"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_any_one_or_two_cuts_change_nothing(raw: bytes, events: list[bytes]) -> None:
    for first in range(len(raw) + 1):
        for second in range(first, len(raw) + 1):
            assert decoded(raw[:first], raw[first:second], raw[second:]) == events


def test_every_byte_alone_changes_nothing() -> None:
    for raw, events in EXAMPLES.values():
        assert decoded(*(raw[at : at + 1] for at in range(len(raw)))) == events


def test_a_character_cut_in_the_middle_is_intact() -> None:
    assert decoded(b'data: {"delta":"\xe5\x8c', b'\x97"}\n\n') == ['{"delta":"北"}'.encode()]


def test_an_event_is_given_by_the_read_that_completes_it() -> None:
    decoder = SseDecoder(LIMIT)
    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\ndata: 2\n\ndata: 3") == [b"1", b"2"]
    assert decoder.feed(b"\r") == []
    assert decoder.feed(b"\n\r") == [b"3"]
    assert decoder.feed(b"\ndata: 4") == []
    assert decoder.end() == [b"4"]


TOO_LARGE = {
    "one line": b"data: " + b"x" * 95 + b"\n\n",
    "a line that never ends": b"data: " + b"x" * 200,
    "a comment": b":" + b"x" * 100 + b"\n\n",
    "many lines of one event": b"data: 12345678\n" * 8 + b"\n",
    "many empty lines of one event": b"data\n" * 26 + b"\n",
    "a tail": b"data: 12345678\n" * 8,
}


@pytest.mark.parametrize("raw", TOO_LARGE.values(), ids=TOO_LARGE.keys())
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_too_large(raw: bytes, step: int) -> None:
    with pytest.raises(EventTooLarge, match=r"^an event of the stream is larger than the limit$"):
        decoded(*(raw[at : at + step] for at in range(0, len(raw), step)), limit=100)


def test_a_line_without_end_is_refused_while_it_comes() -> None:
    decoder = SseDecoder(100)
    assert decoder.feed(b"data: " + b"x" * 94) == []
    with pytest.raises(EventTooLarge):
        decoder.feed(b"x")


def test_the_limit_itself_fits_and_holds_for_each_event_alone() -> None:
    line = b"data: " + b"x" * 94
    assert decoded(*([line + b"\n\n"] * 3), limit=100) == [line[6:]] * 3


def test_a_20_mb_line_in_64_kib_reads_takes_linear_time() -> None:
    line = b"data: " + b"x" * (20 << 20) + b"\n\n"
    reads = [line[at : at + 65536] for at in range(0, len(line), 65536)]
    started = time.process_time()
    assert decoded(*reads, limit=32 << 20) == [line[6:-2]]
    assert time.process_time() - started < 1.0
