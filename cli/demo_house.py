"""Everything the demo needs, started as a newcomer would: `rejoinder up --simulate`, in a folder that goes with it.

Law: nothing of the user's is touched. Their settings are not passed on, so Redis is one of our own; ports are free
ones; and whatever way the demo ends, what it started ends too.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from cli.preflight import simulator_address
from cli.tether import Tether
from cli.up import PROGRAM

#: Seconds. A cold start reads every module from disk, perhaps on a busy machine.
_START = 60.0
#: Longer than `rejoinder up` takes to end all its parts in order.
_END = 30.0


class NotReady(Exception):
    """`rejoinder up` did not come up; the message ends with what it said last."""


class House:
    """`rejoinder up` as a child. `open`, then `url` and `simulator_url` serve, then `close`."""

    def __init__(self, program: tuple[str, ...] = PROGRAM) -> None:
        self._program = program
        self._tether = Tether(_END)
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""
        self.simulator_url = ""

    async def open(self) -> None:
        """Start everything and wait until it serves. Raises `NotReady`."""
        host, port = simulator_address(None)
        self.simulator_url = f"http://{host}:{port}"
        folder = self._folder = Path(tempfile.mkdtemp(prefix="rejoinder-demo-"))
        self._tether.hold_folder(folder)
        with (folder / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._program,
                *("up", "--simulate", "--vllm", self.simulator_url, "--port", "0", "--data", str(folder / "data")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=_plain_environment(),
                start_new_session=True,
            )
        self._tether.hold(self._process.pid)
        self.url = await self._ready(self._process.stdout, folder / "log")

    async def _ready(self, output: asyncio.StreamReader | None, log: Path) -> str:
        assert output is not None  # noqa: S101 - asked for with PIPE
        line = b""
        with suppress(TimeoutError):
            line = await asyncio.wait_for(output.readline(), _START)
        word, _, url = line.decode().strip().partition(" ")
        if word != "ready":
            raise NotReady(f"`rejoinder up --simulate` did not get ready. {_last_lines(log)}".strip())
        return url.removesuffix("/v1")

    async def close(self) -> list[str]:
        """End everything and remove its files; what did not end as it should, in words."""
        amiss = []
        if (process := self._process) is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END)
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own tether ends its parts
                await process.wait()
            # Not ready yet, it may not have heard of signals: then it has started nothing either.
            if process.returncode != 0 and (self.url or process.returncode != -signal.SIGTERM):
                amiss.append(f"`rejoinder up` ended with code {process.returncode}")
            self._tether.release(process.pid)
        self._tether.close()
        amiss += [f"{url} is still served" for url in (self.url, self.simulator_url) if url and await _serves(url)]
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._folder.exists():
                amiss.append(f"{self._folder} could not be removed")
        return amiss


def _last_lines(log: Path) -> str:
    return "\n".join(["It said last:", *log.read_text(errors="replace").splitlines()[-5:]])


def _plain_environment() -> dict[str, str]:
    """The environment without the user's settings for Rejoinder, their Redis above all."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("REJOINDER_") and name.upper() != "REDIS_URL"
    }
    return plain | {"REJOINDER_DRAIN_TIMEOUT": "0.5"}  # whoever interrupts the demo waits for no answer


async def _serves(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True
