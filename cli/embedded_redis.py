"""A Redis server of our own, for machines that have none: private, durable, gone with its parent.

Law: it listens on a Unix socket that only this user can reach, writes an append-only file in its data folder, so that a
restart keeps everything, never evicts, and ends with the process that started it. The data folder's lock is held by the
server itself as well, so two servers never write one folder, not even after the parent was killed. What it logs stands
in the data folder, of its last life only.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import redis

from cli.redis_binary import RedisNotStarted, find_server, version_of
from cli.tether import Tether

#: `sun_path` holds 104 bytes on macOS and 108 on Linux, the closing zero included.
LONGEST_SOCKET_PATH = 103


class EmbeddedRedis:
    """One server over one data folder. As a context manager: started and ready inside, ended and tidied after.

    Raises `RedisNotStarted` from `open` and `start`.
    """

    def __init__(self, data: Path, executable: Path | None = None, tether: Tether | None = None) -> None:
        self.folder = data.absolute() / "redis"
        self.log = self.folder / "log"
        self._executable = executable
        self._tether = tether or Tether()
        self._run = ""
        self._lock = -1
        self._server: subprocess.Popen[bytes] | None = None

    def open(self, timeout: float = 5.0) -> None:
        """Make the folders and take the lock: the server of a parent killed a moment ago may need a while to end."""
        if self._executable is None:
            self._executable = find_server()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RedisNotStarted(f"can't use the data folder {self.folder}: {error.strerror}; give another") from None
        try:
            self._take_lock(timeout)
            self._refuse_newer_data()
        except RedisNotStarted:
            self.close()
            raise
        self._run = _private_folder()
        self._tether.hold_folder(Path(self._run))

    def _take_lock(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = (
                        f"the data folder {self.folder.parent} is in use by another server; give another with --data"
                    )
                    raise RedisNotStarted(message) from None
                time.sleep(0.02)
            else:
                return

    def _refuse_newer_data(self) -> None:
        """Redis 7 keeps its log in a folder that Redis 6 would silently not see."""
        version = version_of(str(self._executable))
        if version and version < (7, 0) and (self.folder / "appendonlydir").exists():
            message = (
                f"{self.folder} was written by Redis 7 or newer, {self._executable} is older; give another with --data"
            )
            raise RedisNotStarted(message)

    def close(self) -> None:
        """Give the lock back and remove the socket's folder. The server must have ended."""
        self._tether.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._run:
            shutil.rmtree(self._run, ignore_errors=True)
            self._run = ""

    @property
    def socket(self) -> Path:
        """The Unix socket the server listens on: the same for the life of this object."""
        return Path(self._run) / "redis.sock"

    @property
    def url(self) -> str:
        """What `redis-py` connects by."""
        return f"unix://{quote(str(self.socket))}?db=0"

    @property
    def command(self) -> list[str]:
        """How to start the server; it must inherit `lock`."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": str(self.log),
            "loglevel": "warning",
            "crash-log-enabled": "no",  # it would show the arguments of a command: what users wrote
            "always-show-logo": "no",
        }
        return [str(self._executable), *(part for name, value in options.items() for part in (f"--{name}", value))]

    @property
    def lock(self) -> int:
        """The descriptor of the data folder's lock, for the server to inherit."""
        return self._lock

    @property
    def pid(self) -> int:
        """The process id of the server that `start` started."""
        if self._server is None:
            raise RuntimeError("not started")
        return self._server.pid

    def start(self, timeout: float = 30.0) -> None:
        """Start the server and wait until it has loaded its data."""
        with suppress(FileNotFoundError):
            self.socket.unlink()  # left by a server that was killed
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[self._lock],
                start_new_session=True,
            )
        self._tether.hold(self._server.pid)
        try:
            self._wait_ready(self._server, timeout)
        except RedisNotStarted:
            self.stop(timeout=0)
            raise

    def answers(self) -> bool:
        """Whether the server is there and has loaded its data."""
        with redis.Redis.from_url(self.url, socket_timeout=1.0, retry=None) as connection:
            try:
                return bool(connection.ping())
            except redis.RedisError:
                return False

    def _wait_ready(self, server: subprocess.Popen[bytes], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self.answers():
            if (code := server.poll()) is not None:
                raise RedisNotStarted(f"Redis ended at once with code {code}; its log is {self.log}")
            if time.monotonic() > deadline:
                raise RedisNotStarted(f"Redis did not get ready in {timeout:g} s over {self.folder}")
            time.sleep(0.01)

    def stop(self, timeout: float = 10.0) -> None:
        """End the server in order, its log flushed; after `timeout` seconds by force."""
        self._end(timeout)

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._end(0)

    def _end(self, timeout: float) -> None:
        if (server := self._server) is None:
            return
        if timeout:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout)
        server.kill()
        server.wait()
        self._tether.release(server.pid)
        self._server = None

    def __enter__(self) -> Self:
        self.open()
        try:
            self.start()
        except RedisNotStarted:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.close()


def _private_folder() -> str:
    """A fresh folder of this user alone, with a name short enough for a socket in it."""
    folder = tempfile.mkdtemp(prefix="rejoinder-")
    if len(os.fsencode(folder)) + len("/redis.sock") <= LONGEST_SOCKET_PATH:
        return folder
    Path(folder).rmdir()
    return tempfile.mkdtemp(prefix="rejoinder-", dir="/tmp")
