"""`rejoinder watch`: one response, shown live until it has ended.

Law: exit code 0 where the response completed or came out incomplete, 1 where it failed or was cancelled, 2 where it
could not be watched, 130 after Ctrl-C, 141 where the reader of its output left. Watching changes nothing: whoever
stops watching leaves the response running.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeAlias, TypeVar

import httpx

from cli.endpoint import Refused, connect, why
from cli.follower import Follower
from cli.printer import Printer
from cli.setting_names import API
from cli.transcript import Transcript
from shared.json_codec import Wire
from shared.response import Status

INTERRUPTED: Final = 130
_UNREAD: Final = 141
_NOT_STARTED: Final = 2
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: As many seconds to take leave of a response.
_LEAVE: Final = 10.0

T = TypeVar("T")
#: What a command does with the API and the user's terminal; its exit code.
Work: TypeAlias = Callable[[httpx.AsyncClient, Printer], Awaitable[int]]


def watch(response_id: str, url: str) -> int:
    """Show the response; the exit code."""

    async def work(client: httpx.AsyncClient, printer: Printer) -> int:
        if not re.fullmatch(r"[\w-]+", response_id):
            raise Refused("that is no id of a response: they look like resp_…")

        async def leave() -> None:
            printer.fail(f"It goes on without you. To see it again: {again(response_id, url)}")

        return await staying(show(client, printer, response_id), leave)

    return run("watch", url, work)


def again(response_id: str, url: str) -> str:
    """The command that shows a response."""
    return f"rejoinder watch {response_id}{'' if url == API else f' --url {url}'}"


async def show(client: httpx.AsyncClient, printer: Printer, response_id: str) -> int:
    """Print a response as it comes, however often the connection breaks; the exit code. Raises `Refused`."""
    follower, transcript = Follower(client, response_id, printer.say), Transcript()
    async with aclosing(follower.events()) as events:
        async for event in events:
            for piece in transcript.feed(event):
                printer.show(piece)
    return finish(printer, transcript, follower.ended or {})


def finish(printer: Printer, transcript: Transcript, response: Wire) -> int:
    """Print what is not out yet, and how the response ended; the exit code."""
    for piece in transcript.end(response):
        printer.show(piece)
    return 1 if response.get("status") in (Status.FAILED, Status.CANCELLED) else 0


async def staying(work: Awaitable[int], leave: Callable[[], Awaitable[None]]) -> int:
    """What `work` gives; after an interrupt, or where its output can't be read any more, `leave` comes before the end.

    `leave` is cancelled by a second interrupt, or where it takes too long.
    """
    numbers = [number for number in _INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]  # as with nohup
    try:
        return await _interruptible(work, numbers)
    except asyncio.CancelledError:
        await _left(leave, numbers)
        return INTERRUPTED
    except OSError:
        await _left(leave, numbers)
        raise


async def _interruptible(work: Awaitable[T], numbers: list[signal.Signals]) -> T:
    task = asyncio.ensure_future(work)
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _left(leave: Callable[[], Awaitable[None]], numbers: list[signal.Signals]) -> None:
    with suppress(asyncio.CancelledError, TimeoutError):
        await _interruptible(asyncio.wait_for(leave(), _LEAVE), numbers)


def run(command: str, url: str, work: Work) -> int:
    """Connect and work. What goes wrong becomes one line on stderr, and an exit code."""
    if sys.stdout is None:  # it was closed
        sys.stderr.write(f"rejoinder {command}: stdout is closed\n")
        return _NOT_STARTED
    for file in (sys.stdout, sys.stderr):  # a terminal can't show every character; a pipe or a file takes all of them
        file.reconfigure(errors="replace", encoding=None if file.isatty() else "utf-8")  # type: ignore[union-attr]
    printer = Printer(sys.stdout, sys.stderr)
    try:
        return asyncio.run(_connected(url, work, printer))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        give_up_stdout()
        return _UNREAD
    except Refused as refusal:
        amiss = str(refusal)
    except httpx.TransportError as error:
        amiss = f"{why(error)} ({error})" if str(error) and str(error) != why(error) else why(error)
    except OSError as error:
        give_up_stdout()
        amiss = error.strerror or type(error).__name__
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        amiss = f"an answer had not the shape that it should have ({type(error).__name__})"
    printer.fail(f"rejoinder {command}: {amiss}")
    return _NOT_STARTED


def give_up_stdout() -> None:
    """Let go what it did not take: Python would try once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _connected(url: str, work: Work, printer: Printer) -> int:
    async with connect(url) as client:
        return await work(client, printer)
