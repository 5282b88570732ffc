"""A tether ties child processes to the life of this one: they end when it does, even by `kill -9`.

A small watcher process reads a pipe whose only writer is this process. Lines on it say which children there are; its
end says that this process is gone, however that happened. The watcher then sends SIGTERM to what is left, and SIGKILL
after a grace. Each child must lead a process group of its own (`start_new_session=True`): the whole group is ended, and
a Ctrl-C in the terminal reaches this process alone. Folders that were only for this process and its children go last.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Tether:
    """The children of one process. `grace` is the seconds between SIGTERM and SIGKILL for what outlives it."""

    def __init__(self, grace: float = 10.0) -> None:
        self._grace = grace
        self._children: set[int] = set()
        self._folders: list[Path] = []
        self._watcher: subprocess.Popen[bytes] | None = None

    def hold(self, pid: int) -> None:
        """Tie the process group that `pid` leads to this process."""
        self._children.add(pid)
        self._tell(f"+{pid}\n")

    def release(self, pid: int) -> None:
        """Forget a child that has ended."""
        self._children.discard(pid)
        self._tell(f"-{pid}\n")

    def hold_folder(self, folder: Path) -> None:
        """Tie a folder to this process: it is removed, with all that is in it, after the last child has ended."""
        self._folders.append(folder)
        self._tell(_folder_line(folder))

    def close(self) -> None:
        """End the watcher; what is still held ends with it, folders too."""
        if self._watcher is not None and self._watcher.stdin is not None:
            with suppress(OSError):
                self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None

    def _tell(self, line: str) -> None:
        """Tell the watcher; one that was killed is replaced, and told everything."""
        if self._watcher is not None and self._watcher.poll() is not None:
            self.close()
        if self._watcher is None:
            # Run by path, isolated and without site: a small process that needs nothing of ours.
            command = [sys.executable, "-I", "-S", __file__, str(self._grace)]
            self._watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)
            line = "".join([*(f"+{pid}\n" for pid in self._children), *map(_folder_line, self._folders)])
        assert self._watcher.stdin is not None  # noqa: S101 - asked for with PIPE
        with suppress(BrokenPipeError):  # killed this very moment: replaced at the next line
            self._watcher.stdin.write(line.encode())


def _folder_line(folder: Path) -> str:
    """The path in hexadecimal: it may hold any byte but zero."""
    return f"/{os.fsencode(folder).hex()}\n"


def watch(lines: Iterable[str], grace: float) -> None:
    """Follow `+pid`, `-pid` and `/folder` lines to their end, then end every group that is left; folders go last."""
    groups: set[int] = set()
    folders = []
    for line in lines:
        if line[0] == "/":
            folders.append(bytes.fromhex(line[1:]))
        else:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while _signal(groups, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal(groups, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _signal(groups: Iterable[int], number: int) -> int:
    """Signal each group; how many of them exist."""
    found = 0
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            found += 1
    return found


if __name__ == "__main__":
    watch(sys.stdin, float(sys.argv[1]))
