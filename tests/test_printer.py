"""What goes where, and how: a terminal, a pipe and a file for each of stdout and stderr."""

import os
import select
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TextIO

import pytest

from cli.printer import Printer, visible
from cli.transcript import Piece, Tone

PIECES = [
    Piece(Tone.PROGRESS, "queued\n"),
    Piece(Tone.REASONING, "Hm,\tI"),
    Piece(Tone.REASONING, " see.\n"),
    Piece(Tone.ANSWER, "\n\n"),
    Piece(Tone.ANSWER, "\nOne [bold]"),
    Piece(Tone.PROGRESS, "Nothing answers.\n"),
    Piece(Tone.ANSWER, " two \x1b[2Jthree\n"),
    Piece(Tone.ITEM, "function_call f {}\n"),
    Piece(Tone.STATUS, "completed\n"),
]
ANSWER = "\n\n\nOne [bold] two \x1b[2Jthree\n"
REST = "queued\nHm,\tI see.\nNothing answers.\nfunction_call f {}\ncompleted\n"
CALLS = "function_call f {}\ncompleted\n"
SCREEN = (
    "queued\nHm,\tI see.\n\nOne [bold]\n\nNothing answers.\n\n two \u241b[2Jthree\n\nfunction_call f {}\ncompleted\n"
)

Open = Callable[[str], tuple[TextIO, Callable[[], str]]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file of the kind that is named, and what was written to it."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as exits:

        def begin(kind: str) -> tuple[TextIO, Callable[[], str]]:
            if kind == "file":
                path = tmp_path / "file"
                return exits.enter_context(path.open("w")), path.read_text
            ends = os.pipe() if kind == "pipe" else os.openpty()
            reader, writer = ends
            file = exits.enter_context(os.fdopen(writer, "w"))
            exits.callback(os.close, reader)

            def read() -> str:
                read = b""
                while select.select([reader], [], [], 0.3)[0]:  # a terminal passes on what it got a moment later
                    read += os.read(reader, 65536)
                return read.decode().replace("\r\n", "\n")

            return file, read

        yield begin


def plain(text: str) -> str:
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m"):
        text = text.replace(code, "")
    return text


@pytest.mark.parametrize(
    ("out", "err", "answer", "rest"),
    [
        ("file", "pipe", ANSWER, REST),
        ("pipe", "file", ANSWER, REST),
        ("file", "terminal", ANSWER, REST),
        ("pipe", "terminal", ANSWER, CALLS),
        ("terminal", "pipe", "One [bold] two \u241b[2Jthree\n", REST),
    ],
)
def test_the_answer_goes_to_stdout_alone(opened: Open, out: str, err: str, answer: str, rest: str) -> None:
    (stdout, read_out), (stderr, read_err) = opened(out), opened(err)
    printer = Printer(stdout, stderr)
    for piece in PIECES:
        printer.show(piece)
    assert read_out() == answer
    said = read_err()
    assert plain(said) == rest
    assert ("\x1b" in said) is (err == "terminal")


def test_on_one_terminal_they_are_set_apart_and_reasoning_is_dimmed(opened: Open) -> None:
    terminal, read = opened("terminal")
    printer = Printer(terminal, terminal)
    for piece in PIECES:
        printer.show(piece)
    shown = read()
    assert "\x1b[2mHm,\tI\x1b[0m\x1b[2m see.\n\x1b[0m" in shown
    assert "\nOne [bold]\n" in shown, "plain"
    assert plain(shown) == SCREEN


def test_a_terminal_without_a_width_shows_everything(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setenv("LINES", "0")
    terminal, read = opened("terminal")
    Printer(terminal, terminal).show(Piece(Tone.ANSWER, f"One {'x' * 300}\n"))
    assert plain(read()) == f"One {'x' * 300}\n"


def test_a_notice_in_the_middle_of_a_reasoning_begins_a_line(opened: Open) -> None:
    (stdout, _), (stderr, read) = opened("pipe"), opened("file")
    printer = Printer(stdout, stderr)
    printer.show(Piece(Tone.REASONING, "Hm, I"))
    printer.say("Nothing answers.")
    printer.show(Piece(Tone.REASONING, " see.\n"))
    assert read() == "Hm, I\nNothing answers.\n see.\n"


def test_only_stdout_is_missed(opened: Open) -> None:
    with Path("/dev/full").open("w") as full:
        printer = Printer(opened("pipe")[0], full)
        printer.say("lost")
        with pytest.raises(OSError, match="space"):
            Printer(full, opened("pipe")[0]).show(Piece(Tone.ANSWER, "lost"))
        with suppress(OSError):
            full.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc\u2028d é 漢 🙂", "a\tb\nc\u2028d é 漢 🙂"),
        ("\x1b]0;title\x07", "\u241b]0;title\u2407"),
        ("\x9b31m\x85\x90", "\ufffd31m\ufffd\ufffd"),
        ("safe\rhidden\r\n", "safehidden\n"),
        ("\x00\x08\x7f", "\u2400\u2408\u2421"),
    ],
    ids=["plain", "a title", "C1", "carriage return", "the others"],
)
def test_no_control_character_reaches_a_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_character_but_line_feed_and_tab_is_left_of_all_controls() -> None:
    controls = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    assert {one for one in visible(controls) if one in controls} == {"\n", "\t"}
    rest = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0xD800), *range(0xE000, sys.maxunicode + 1)]))
    assert visible(rest) == rest
