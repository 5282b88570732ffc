"""Where a transcript goes: the answer to stdout, everything else to stderr.

Law: into a pipe or a file goes the text as the model wrote it, and nothing of ours. On a terminal reasoning is dimmed,
and no control character reaches it: a model's text can't move the cursor, set the title or write the clipboard.
Nothing is ever written over. A blank line stands around an answer there, in place of those that it begins with itself.
"""

import os
import stat
from contextlib import nullcontext, suppress
from typing import Final, TextIO

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from cli.transcript import Piece, Tone

#: C0 as its pictures and C1 as one sign; line feed and tab stay, a carriage return would hide what stands before it.
_VISIBLE: Final = (
    {code: 0x2400 + code for code in range(0x20) if code not in b"\n\t\r"}
    | {0x0D: None, 0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
_STYLES: Final = {
    Tone.ANSWER: Style(),
    Tone.REASONING: Style(dim=True),
    Tone.PROGRESS: Style(dim=True),
    Tone.ITEM: Style(color="cyan"),
    Tone.STATUS: Style(bold=True),
}


def visible(text: str) -> str:
    """The text with nothing in it that a terminal would obey."""
    return text.translate(_VISIBLE)


class Printer:
    """Writes pieces as they come. Raises `OSError` where stdout can't be written; what stderr can't take is let go."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = _Channel(out), _Channel(err)
        self._one_screen = self._out.is_terminal and self._err.is_terminal
        # The reader of a pipe, such as a pager, may be drawing on the terminal that stderr is.
        self._is_shared = self._err.is_terminal and not self._out.is_terminal and _is_pipe(out)
        self._last: Tone | None = None

    def show(self, piece: Piece) -> None:
        """Write a piece."""
        if self._is_shared and piece.tone in (Tone.REASONING, Tone.PROGRESS):
            return
        channel = self._out if piece.tone is Tone.ANSWER else self._err
        if piece.tone is not self._last:
            self._part(piece.tone)
            channel.begins = True
        self._last = piece.tone
        with suppress(OSError) if channel is self._err else nullcontext():
            channel.write(piece.text, _STYLES[piece.tone])

    def say(self, line: str) -> None:
        """A line that tells of progress."""
        self.show(Piece(Tone.PROGRESS, f"{line}\n"))

    def fail(self, line: str) -> None:
        """A line that must be seen."""
        self.show(Piece(Tone.STATUS, f"{line}\n"))

    def _part(self, tone: Tone) -> None:
        """Where the tone changes, end the line that is broken off, and set an answer apart."""
        if self._last is None:
            return
        before = self._out if self._last is Tone.ANSWER else self._err
        if self._one_screen or (before is self._err and tone is not Tone.ANSWER):
            with suppress(OSError):
                if not before.at_line_start:
                    before.end_line()
                if self._one_screen and Tone.ANSWER in (tone, self._last):
                    self._err.end_line()


class _Channel:
    """stdout or stderr."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.is_terminal = file.isatty()
        # Nothing is wrapped, whatever the width; but rich would read COLUMNS, and show nothing where that is 0.
        self._console = Console(file=file, highlight=False, width=80, height=25) if self.is_terminal else None
        self.at_line_start = True
        self.begins = True  # a piece of another tone than the last

    def write(self, text: str, style: Style) -> None:
        """Write, at once."""
        if self._console is not None and self.begins:
            text = text.lstrip("\n")
        if not text:
            return
        self.begins = False
        self.at_line_start = text.endswith("\n")
        if self._console is None:
            self._file.write(text)
            self._file.flush()
        else:
            self._console.print(Segments([Segment(visible(text), style)]), end="", soft_wrap=True)

    def end_line(self) -> None:
        """A line feed of ours."""
        self._file.write("\n")
        self._file.flush()
        self.at_line_start = True


def _is_pipe(file: TextIO) -> bool:
    with suppress(OSError, ValueError):
        return stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    return False
