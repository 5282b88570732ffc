"""What every test may ask for: one real Redis, settings with short times, and a Redis of one's own to break."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from cli.embedded_redis import EmbeddedRedis
from shared.settings import Settings
from stack import Stack


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> None:
    """The caller's own settings change no test, and no test ever touches the caller's Redis."""
    for name in list(os.environ):
        if name.startswith("REJOINDER_") or name == "REDIS_URL":
            del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _heard_interrupts() -> None:
    """A run in the background of a shell ignores SIGINT, and so would every process that the tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """One real Redis for the whole run. Tests that break their Redis take `own_redis`."""
    with EmbeddedRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The run's Redis, empty."""
    with redis.Redis.from_url(redis_server.url) as connection:
        connection.flushall()
    return redis_server.url


@pytest.fixture
def settings(redis_url: str) -> Settings:
    """Times short enough for a test to wait for, long enough for a busy machine of two cores."""
    return Settings(
        redis_url=redis_url,
        port=0,
        redis_timeout=2.0,
        keepalive_interval=0.5,
        models_cache=0.2,
        connect_timeout=2.0,
        first_event_timeout=5.0,
        stall_timeout=5.0,
        turn_timeout=30.0,
        drain_timeout=2.0,
        lease=2.0,
        sweep_interval=0.2,
    )


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Callable[[], EmbeddedRedis]]:
    """Start a Redis to `kill`, `stop` and `start` again: `server = own_redis()`. It keeps its data and its URL."""
    servers: list[EmbeddedRedis] = []

    def start() -> EmbeddedRedis:
        server = EmbeddedRedis(tmp_path / f"own-redis-{len(servers)}")
        server.open()
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()
        server.close()


@pytest.fixture(scope="session")
def alive() -> Callable[[int], bool]:
    """Whether a process runs: one that ended and that nobody has reaped yet does not."""

    def ask(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        if stat.parent.parent.is_dir():  # Linux, where slim images have no ps
            with suppress(FileNotFoundError):
                return not stat.read_text().rpartition(")")[2].startswith(" Z")
            return False
        ps = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True)
        return bool(ps.stdout.strip()) and not ps.stdout.startswith("Z")

    return ask


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds, up to a deadline that fails the test: `wait_for(lambda: ..., timeout=15)`."""

    def wait(condition: Callable[[], object], timeout: float = 15.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout} s"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole house, once a run. Tests that break it take a `Stack` of their own."""
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture
def stack(running_stack: Stack) -> Stack:
    """The running house, with no faults filed and no requests recorded."""
    running_stack.forget()
    return running_stack
