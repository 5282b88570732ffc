"""How the demo looks: headings, requests, panels, claims. Knows nothing of what they mean.

Law: cursor movement, spinners and pauses only on a real terminal that can do more than print lines; colour as rich
decides (none in a pipe, with NO_COLOR, on a dumb terminal). What came over HTTP is shown as text, never as mark-up.
"""

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import Final, NamedTuple

from rich import box
from rich.console import Console
from rich.json import JSON
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.demo_subscriber import ANSWER, REASONING, Subscriber
from shared.items import kind, plain_text
from shared.json_codec import Wire, encode

#: Columns. Wider lines are hard to read.
_WIDEST: Final = 100
#: Seconds between two pictures of what moves.
_FRAME: Final = 0.08


class _Style(NamedTuple):
    label: str
    style: str


_LONG_ID: Final = re.compile(r"\b(resp_\w{8})\w{8,}")

_STYLES: Final = {REASONING: _Style("reasoning: ", "italic dim"), ANSWER: _Style("answer: ", "")}


class View:
    """A terminal, a pipe or a file."""

    def __init__(self) -> None:
        console = self._console = Console(highlight=False)
        console.width = min(console.width, _WIDEST)
        self._live = console.is_interactive and console.file.isatty()
        plain = console.options.ascii_only
        self._good, self._bad = ("ok", "FAILED") if plain else ("✓", "✗")

    async def pause(self, seconds: float) -> None:
        """Time to read, where somebody watches."""
        if self._live:
            await asyncio.sleep(seconds)

    def busy(self, text: str) -> AbstractContextManager[object]:
        """Say that something takes a while."""
        if self._live:
            return self._console.status(text)
        self.line(text)
        return nullcontext()

    def line(self, text: str, style: str = "") -> None:
        """One line, or a few."""
        self._console.print(Text(text, style=style))

    def title(self, title: str, text: str) -> None:
        """What this is."""
        self._console.print(Text(title, style="bold cyan"))
        self.line(text)
        self._console.print()

    def step(self, number: int, title: str, explanation: str) -> None:
        """The heading of a step and the line that explains it."""
        self._console.print()
        self._console.rule(Text(f"{number}. {title}", style="bold cyan"), align="left", style="cyan")
        self.line(explanation)
        self._console.print()

    def request(self, line: str, body: Wire | None = None) -> None:
        """A request as it was sent, long ids shortened."""
        text = Text.assemble((_LONG_ID.sub(r"\1...", line), "bold"), " ")
        self._marked(">", "bold", text.append(_LONG_ID.sub(r"\1...", encode(body).decode()) if body else ""))

    def answer(self, text: str) -> None:
        """What came back, in words."""
        self._marked("<", "bold", Text(text))

    def claim(self, text: str) -> None:
        """Something that was just checked."""
        self._marked(self._good, "bold green", Text(text))

    def refuted(self, text: str) -> None:
        """Something that should have been so."""
        self._marked(self._bad, "bold red", Text(text))

    def _marked(self, mark: str, style: str, text: Text) -> None:
        text.overflow = "fold"
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(mark, style=style), text)
        self._console.print(grid)

    def wire(self, value: Wire) -> None:
        """A JSON value, whole."""
        self._console.print(JSON.from_data(value))

    def items(self, columns: Mapping[str, Sequence[Wire]]) -> None:
        """Items in their order, a column for each list, under its heading."""
        table = Table(expand=True, border_style="dim", box=box.ROUNDED, show_lines=True)
        for heading in columns:
            table.add_column(heading, ratio=1)
        for row in zip_longest(*columns.values()):
            table.add_row(*(Text("") if item is None else _said(item) for item in row))
        self._console.print(table)

    async def watch(self, subscribers: Sequence[Subscriber], work: Coroutine[None, None, None]) -> None:
        """Show subscribers side by side until `work` is done: as it happens, or, where nothing can move, at the end."""
        task = asyncio.create_task(work)
        try:
            if self._live:
                with Live(_columns(subscribers), console=self._console, auto_refresh=False) as live:
                    while not task.done():
                        await asyncio.wait([task], timeout=_FRAME)
                        live.update(_columns(subscribers), refresh=True)
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not self._live:
            self._console.print(_columns(subscribers))


def _columns(subscribers: Sequence[Subscriber]) -> Table:
    table = Table(expand=True, show_footer=True, border_style="dim", box=box.ROUNDED)
    for one in subscribers:
        table.add_column(f"subscriber {one.name}", _standing(one), ratio=1)
    table.add_row(*map(_heard, subscribers))
    return table


def _standing(one: Subscriber) -> Text:
    if one.done:
        return Text(f"ended at event {one.cursor}", style="green")
    if one.cuts and not one.connected:
        return Text(f"cut off at event {one.cursor}", style="bold red")
    return Text(f"event {one.cursor}" if one.events else "waiting")


def _heard(one: Subscriber) -> Text:
    """The words of a subscriber's deltas, with a mark where its connection was cut."""
    text = Text()
    speaking = ""
    for event in one.events:
        if event["type"] in _STYLES:
            if event["type"] != speaking:
                speaking = event["type"]
                text.append("\n\n" if text else "").append(_STYLES[speaking].label, style="bold")
            text.append(event["delta"].replace("\n", ""), style=_STYLES[speaking].style)
        if event["sequence_number"] in one.cuts:
            text.append(" [cut] ", style="bold red")
    return text


def _said(item: Wire) -> Text:
    """The words of an item, behind what it is."""
    what = kind(item)
    label = f"{what}, {item['role']}" if what == "message" else what
    words = f"{item['name']} {item['arguments']}" if what == "function_call" else plain_text(item.get("content"))
    return Text.assemble((f"{label}: ", "bold"), words.strip())
