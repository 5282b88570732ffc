"""Keeps parts running, each a process of its own, and ends them in order.

    run once ──died──► wait (0.2 s, doubled up to 10 s; from the start again once a run lasted 10 s) ──► run again
        └──told to end──► SIGTERM ──grace over, or hurried──► SIGKILL ──► done

What a part prints goes to the supervisor's stderr, each line behind the part's name; of a part that keeps a log of its
own, the last lines go there when it died. Every part is tethered: it ends with the supervisor, however that ends.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.tether import Tether

_READ_SIZE = 65536
_LAST_LINES = 10


@dataclass(frozen=True)
class Pace:
    """How fast a dead part comes back, in seconds."""

    first: float = 0.2
    longest: float = 10.0
    settled: float = 10.0


@dataclass(frozen=True)
class Part:
    """One process to keep.

    `grace` is the seconds it gets to end by itself; `descriptors` are inherited; `log` is the file that it logs to,
    where it prints nothing: emptied before each of its lives.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] | None = None
    descriptors: tuple[int, ...] = ()
    grace: float = 5.0
    log: Path | None = None


def say(line: str) -> None:
    """One line on stderr; a reader that went away stops nothing."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class Keeper:
    """One part, run again whenever it dies, until it is told to end."""

    def __init__(self, part: Part, tether: Tether, pace: Pace) -> None:
        self.part = part
        self.deaths = 0
        self._tether = tether
        self._pace = pace
        self._ending = asyncio.Event()
        self._hurried = asyncio.Event()
        self._task = asyncio.create_task(self._keep())

    async def end(self) -> None:
        """SIGTERM, then SIGKILL after the grace; returns when the process and its group are gone."""
        self._ending.set()
        await self._task

    def hurry(self) -> None:
        """End now."""
        self._hurried.set()
        self._ending.set()

    async def _keep(self) -> None:
        delay = self._pace.first
        while not self._ending.is_set():
            began = time.monotonic()
            outcome = await self._run()
            if self._ending.is_set():
                return
            self.deaths += 1
            if time.monotonic() - began >= self._pace.settled:
                delay = self._pace.first
            if self.part.log is not None:
                _say_last_lines(self.part.name, self.part.log)
            say(f"{self.part.name} {outcome}; starting it again in {delay:g} s")
            await _first(self._ending.wait(), timeout=delay)
            delay = min(delay * 2, self._pace.longest)

    async def _run(self) -> str:
        """One life of the part; how it ended."""
        if self.part.log is not None:
            with suppress(OSError):
                self.part.log.write_bytes(b"")
        try:
            process = await asyncio.create_subprocess_exec(
                *self.part.command,
                env=self.part.environment,
                pass_fds=self.part.descriptors,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"can't be started ({error.strerror})"
        self._tether.hold(process.pid)
        relay = asyncio.create_task(self._relay(process.stdout))
        await _first(process.wait(), self._ending.wait())
        if process.returncode is None:
            process.terminate()
            await _first(process.wait(), self._hurried.wait(), timeout=self.part.grace)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the part itself where it is still there, and what it left behind
        code = await process.wait()
        self._tether.release(process.pid)
        await relay
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    async def _relay(self, output: asyncio.StreamReader | None) -> None:
        assert output is not None  # noqa: S101 - asked for with PIPE
        rest = b""
        while read := await output.read(_READ_SIZE):
            *lines, rest = (rest + read).split(b"\n")
            if len(rest) > _READ_SIZE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                say(f"{self.part.name} | {line.decode(errors='replace')}")
        if rest:
            say(f"{self.part.name} | {rest.decode(errors='replace')}")


def _say_last_lines(name: str, log: Path) -> None:
    with suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        say("\n".join([f"{name} | the end of its log, {log}:", *(f"{name} | {line}" for line in lines)]))


class Supervisor:
    """All parts of one command."""

    def __init__(self, pace: Pace | None = None, tether_grace: float = 10.0) -> None:
        self.tether = Tether(tether_grace)
        self._pace = pace or Pace()
        self._keepers: list[Keeper] = []

    def start(self, part: Part) -> Keeper:
        """Keep `part` running from now on."""
        keeper = Keeper(part, self.tether, self._pace)
        self._keepers.append(keeper)
        return keeper

    def hurry(self, *, spare: str) -> None:
        """End everything now, but for the part named `spare`: it still gets its grace."""
        for keeper in self._keepers:
            if keeper.part.name != spare:
                keeper.hurry()

    def close(self) -> None:
        """End the watcher. Every part must have ended."""
        self.tether.close()


async def _first(*waits: Coroutine[Any, Any, Any], timeout: float | None = None) -> None:  # noqa: ASYNC109 - of a wait
    """Return when the first of `waits` is over, or after `timeout` seconds."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
