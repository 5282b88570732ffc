import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
import redis

from cli import embedded_redis
from cli.embedded_redis import EmbeddedRedis
from cli.redis_binary import RedisNotStarted
from cli.up import environment, up
from shared.settings import Settings

#: Stands in for `python -m cli.main`: notes in a file what happens to each part, and when.
STAND_IN = """
import http.server, os, pathlib, signal, socket, sys, time
import redis
part, notes = sys.argv[1], pathlib.Path(os.environ["NOTES"])
def note(what):
    with notes.open("a") as file:
        file.write(f"{part} {what} {os.getpid()}\\n")
def end(*_):
    note("told")
    if part == "worker":
        time.sleep(float(os.environ.get("DRAIN", "0")))
    if part != "api":
        redis.Redis.from_url(os.environ["REJOINDER_REDIS_URL"]).rpush("ended", part)
    note("ended")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
if part == "worker":
    notes.with_suffix(".url").write_text(os.environ["REJOINDER_REDIS_URL"])
note("began")
print("a line of", part, flush=True)
if part == os.environ.get("BROKEN"):
    sys.exit(3)
if part != "api":
    signal.pause()
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        noted = notes.read_text()
        ready = "simulate-vllm began" in noted and noted.count("worker began") >= int(os.environ["NEEDED"])
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())
server = http.server.HTTPServer(("", 0), Ready, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
server.serve_forever()
"""

UP = """
import json, pathlib, sys
from cli.supervisor import Pace
from cli.up import up
from shared.settings import Settings
settings, data, stand_in = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
pace = Pace(first=0.05, longest=0.4, settled=1.0)
raise SystemExit(up(Settings(**settings), simulate=True, data=data, program=(sys.executable, stand_in), pace=pace))
"""


class Running:
    """`up` over stand-ins, in a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], settings: dict[str, object]) -> None:
        self.notes_file = folder / "notes"
        self.notes_file.touch()
        self.errors_file = folder / "stderr"
        stand_in = folder / "stand_in.py"
        stand_in.write_text(STAND_IN)
        given = json.dumps({"port": 0, "drain_timeout": 5.0} | settings)
        self.data = folder / "data"
        with self.errors_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", UP, given, self.data, stand_in],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={
                    **os.environ,
                    "NOTES": str(self.notes_file),
                    "NEEDED": str(settings.get("workers", 1)),
                    **environment,
                },
            )
        self.url = ""

    def wait_ready(self) -> str:
        """The `ready` line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), self.errors
        self.url = line.split()[1].removesuffix("/v1")
        return line

    @property
    def notes(self) -> list[tuple[str, str]]:
        return [(part, what) for part, what, _ in self._noted()]

    def pids(self, part: str = "") -> list[int]:
        return [int(pid) for one, what, pid in self._noted() if what == "began" and part in ("", one)]

    def _noted(self) -> list[tuple[str, str, str]]:
        return [(part, what, pid) for part, what, pid in map(str.split, self.notes_file.read_text().splitlines())]

    @property
    def errors(self) -> str:
        return self.errors_file.read_text()

    def redis_pid(self) -> int:
        with redis.Redis.from_url(self.redis_url()) as connection:
            return int(connection.info("server")["process_id"])

    def redis_url(self) -> str:
        """The address that the parts were given."""
        return self.notes_file.with_suffix(".url").read_text()

    def end(self, number: signal.Signals = signal.SIGTERM, timeout: float = 20.0) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Running] = []

    def begin(environment: dict[str, str] | None = None, **settings: object) -> Running:
        folder = tmp_path / f"up-{len(running)}"
        folder.mkdir()
        running.append(Running(folder, environment or {}, settings))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.end()
            one.end(signal.SIGINT)
        assert one.process.stdout is not None
        one.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_one_line_on_stdout_and_an_orderly_end(
    start: Start, alive: Callable[[int], bool], number: signal.Signals
) -> None:
    running = start(workers=2, host="127.0.0.1")
    port = int(running.wait_ready().rstrip().removeprefix("ready http://127.0.0.1:").removesuffix("/v1"))
    assert port > 0
    lines = running.errors.splitlines()
    assert lines[0] == f"redis keeps its data in {running.data}"
    assert [line for line in lines if line.startswith("redis |")] == []
    pids = [running.redis_pid(), *running.pids()]
    assert len(pids) == len(set(pids)) == 5
    assert all(alive(pid) for pid in pids)

    assert running.end(number) == 0
    assert running.process.stdout is not None
    assert running.process.stdout.read() == ""
    assert not any(alive(pid) for pid in pids)
    for name in ("worker-1", "worker-2", "simulate-vllm", "api"):
        assert f"{name} | a line of {name.split('-')[0]}" in running.errors
    ending = [note for note in running.notes if note[1] != "began"]
    assert ending[:2] == [("api", "told"), ("api", "ended")]
    assert sorted(ending[2:6]) == [("worker", "ended")] * 2 + [("worker", "told")] * 2
    assert ending[6:] == [("simulate-vllm", "told"), ("simulate-vllm", "ended")]
    with EmbeddedRedis(running.data) as server, redis.Redis.from_url(server.url, decode_responses=True) as connection:
        assert connection.lrange("ended", 0, -1) == ["worker", "worker", "simulate-vllm"]


def test_a_worker_that_drains_holds_the_end_up_for_its_grace_and_a_second_signal_does_not_wait(
    start: Start, alive: Callable[[int], bool], wait_for: Callable[..., None]
) -> None:
    running = start({"DRAIN": "60"}, drain_timeout=60.0)
    running.wait_ready()
    pids = [running.redis_pid(), *running.pids()]
    running.process.send_signal(signal.SIGINT)
    wait_for(lambda: ("worker", "told") in running.notes)
    began = time.monotonic()
    assert running.end(signal.SIGINT) == 0
    assert time.monotonic() - began < 5
    assert not any(alive(pid) for pid in pids)
    assert ("worker", "ended") not in running.notes


@pytest.mark.parametrize("part", ["api", "worker", "simulate-vllm"])
def test_a_part_that_dies_is_started_again(start: Start, wait_for: Callable[..., None], part: str) -> None:
    running = start()
    running.wait_ready()
    [pid] = running.pids(part)
    os.kill(pid, signal.SIGKILL)
    # The API's socket is inherited: a call made while it is away waits for the new one.
    answer = urllib.request.urlopen(f"{running.url}/ready", timeout=15).read().decode()
    wait_for(lambda: len(running.pids(part)) == 2)
    assert f"{part} ended by SIGKILL; starting it again in 0.05 s" in running.errors
    assert answer == str(running.pids("api")[-1])


def test_a_redis_that_dies_comes_back_at_its_address_with_its_data(start: Start, wait_for: Callable[..., None]) -> None:
    running = start()
    running.wait_ready()
    pid = running.redis_pid()
    with redis.Redis.from_url(running.redis_url(), retry=None) as connection:
        connection.set("k", "v")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "redis ended by SIGKILL" in running.errors)
        assert f"redis | the end of its log, {running.data / 'redis' / 'log'}:\nredis | " in running.errors

        def back() -> bool:
            try:
                return connection.get("k") == b"v"
            except redis.RedisError:
                return False

        wait_for(back)
    assert running.redis_pid() != pid


def test_a_part_that_keeps_dying_comes_back_ever_slower(start: Start, wait_for: Callable[..., None]) -> None:
    running = start({"BROKEN": "worker", "NEEDED": "6"})
    running.wait_ready()
    lines = [line for line in running.errors.splitlines() if "starting it again" in line]
    delays = ["0.05", "0.1", "0.2", "0.4", "0.4"]
    assert lines[:5] == [f"worker ended with code 3; starting it again in {delay} s" for delay in delays]


def test_the_delay_starts_over_once_a_part_lasted(start: Start, wait_for: Callable[..., None]) -> None:
    running = start()
    running.wait_ready()
    for number in (1, 2):
        wait_for(lambda number=number: len(running.pids("worker")) == number)
        os.kill(running.pids("worker")[-1], signal.SIGKILL)
    wait_for(lambda: running.errors.count("worker ended by") == 2)
    wait_for(lambda: len(running.pids("worker")) == 3)
    time.sleep(1.1)  # longer than `settled`: the one thing here that only time can bring
    os.kill(running.pids("worker")[-1], signal.SIGKILL)
    wait_for(lambda: running.errors.count("worker ended by") == 3)
    delays = [line.split()[-2] for line in running.errors.splitlines() if line.startswith("worker ended by")]
    assert delays == ["0.05", "0.1", "0.05"]


def test_all_ends_when_up_itself_is_killed(
    start: Start, alive: Callable[[int], bool], wait_for: Callable[..., None]
) -> None:
    running = start(workers=2)
    running.wait_ready()
    pids = [running.redis_pid(), *running.pids()]
    folder = Path(unquote(urlsplit(running.redis_url()).path)).parent
    assert folder.name.startswith("rejoinder-")
    running.end(signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in pids))
    wait_for(lambda: not folder.exists())


def test_a_signal_before_it_is_ready_ends_it_too(start: Start, wait_for: Callable[..., None]) -> None:
    running = start({"NEEDED": "99"})
    wait_for(lambda: ("api", "began") in running.notes)
    assert running.end() == 0
    assert running.process.stdout is not None
    assert running.process.stdout.read() == ""


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def fails(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, *, simulate_at: str | None = None, **settings: object
) -> str:
    """The one line that `up` says when it can't start."""
    given = {"port": 0, "redis_timeout": 1.0} | settings
    program = (sys.executable, "-c", "raise SystemExit('must not be started')")
    simulate = simulate_at is not None
    assert (
        up(Settings(**given), simulate=simulate, simulate_at=simulate_at, data=tmp_path / "data", program=program) == 2
    )
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("rejoinder up: ")
    return err


def test_a_port_in_use_is_told(capfd: pytest.CaptureFixture[str], tmp_path: Path, taken: int) -> None:
    line = fails(capfd, tmp_path, port=taken)
    assert line == f"rejoinder up: port {taken} of 127.0.0.1 is in use; give another with --port (0 takes a free one)\n"
    assert not (tmp_path / "data").exists()


def test_a_host_that_is_not_ours_is_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--host" in fails(capfd, tmp_path, host="192.0.2.1")


@pytest.mark.parametrize("where", ["http://127.0.0.1:{port}", "http://192.0.2.1:8000", "http://127.0.0.1:hush"])
def test_a_simulated_vllm_that_has_no_place_is_told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, taken: int, where: str
) -> None:
    line = fails(capfd, tmp_path, simulate_at=where.format(port=taken))
    assert "--vllm" in line
    assert "hush" not in line


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:hush@127.0.0.1:{port}/0", "Redis at redis://127.0.0.1:{port}/0 does not answer; start it"),
        ("unix:///nowhere/redis.sock?password=hush", "Redis at unix:///nowhere/redis.sock does not answer"),
        ("http://hush@127.0.0.1", "--redis / REJOINDER_REDIS_URL is no Redis address"),
        ("redis://127.0.0.1:hush", "--redis / REJOINDER_REDIS_URL is no Redis address"),
    ],
    ids=["port", "socket", "scheme", "malformed"],
)
def test_a_redis_that_does_not_answer_is_told_without_its_password(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, url: str, says: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    line = fails(capfd, tmp_path, redis_url=url.format(port=port))
    assert says.format(port=port) in line
    assert "hush" not in line


def test_a_redis_that_wants_another_password_is_told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, own_redis: Callable[[], EmbeddedRedis]
) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as connection:
        connection.config_set("requirepass", "hush")
    assert "refuses the password" in fails(capfd, tmp_path, redis_url=server.url)
    assert "refuses the password" in fails(capfd, tmp_path, redis_url=f"{server.url}&password=guess")


def test_no_redis_anywhere_is_told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise RedisNotStarted("no Redis server found: install one")

    monkeypatch.setattr(embedded_redis, "find_server", none)
    assert fails(capfd, tmp_path) == "rejoinder up: no Redis server found: install one\n"


def test_a_redis_that_cannot_start_is_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "appendonly.aof").write_text("this is no append-only file\n")
    assert up(Settings(port=0), data=tmp_path) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert f"redis | the end of its log, {tmp_path / 'redis' / 'log'}:" in lines
    assert any(line.startswith("redis | ") and "Bad file format" in line for line in lines)
    assert lines[-1].startswith(f"rejoinder up: Redis can't start over {tmp_path / 'redis'}, see its log above")


def test_a_second_up_on_one_data_folder_is_told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedRedis.open, "__defaults__", (0.05,))
    with EmbeddedRedis(tmp_path / "data"):
        assert "in use by another server; give another with --data" in fails(capfd, tmp_path)


def test_an_environment_gives_a_child_the_very_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(
        redis_url="redis://:hush@h:1/2",
        vllm_api_key="hush",
        port=0,
        lease=2.5,
        reasoning_context={"m": "current_turn"},
        chat_template_kwargs={"m": {"keep": True}},
    )
    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REDIS_URL", "redis://other:1")
    assert Settings() == settings


def test_a_variable_that_is_no_setting_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_LEESE", "1")
    monkeypatch.setenv("REJOINDER_LEASE", "2")
    given = environment(Settings())
    assert [name for name in given if name.startswith("REJOINDER_")] == ["REJOINDER_LEASE"]


def children(pid: int) -> dict[int, str]:
    """The command lines of a process's children."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                found[int(stat.parent.name)] = stat.with_name("cmdline").read_text().replace("\0", " ").strip()
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the process list of Linux")
def test_the_real_thing(tmp_path: Path, alive: Callable[[int], bool], wait_for: Callable[..., None]) -> None:
    command = [Path(sys.executable).with_name("rejoinder"), "up", "--simulate", "--port", "0", "--workers", "2"]
    folder = tmp_path / "api"  # a folder of one of our names where the user stands is none of ours
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('not ours')")

    def begin() -> tuple[subprocess.Popen[str], httpx.Client]:
        with (tmp_path / "stderr").open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path)
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("ready ").strip()
        return process, httpx.Client(base_url=url, trust_env=False, timeout=30)

    process, client = begin()
    with process, client:
        parts = children(process.pid)
        ours = sorted(line for line in parts.values() if line.startswith("rejoinder"))
        assert ours == ["rejoinder api", "rejoinder simulate-vllm", "rejoinder worker", "rejoinder worker"]
        answer = client.post("/responses", json={"model": "simulated", "input": "hello", "store": True}).json()
        assert answer["status"] == "completed"

        workers = [pid for pid, line in parts.items() if line == "rejoinder worker"]
        os.kill(workers[0], signal.SIGKILL)
        wait_for(lambda: list(children(process.pid).values()).count("rejoinder worker") == 2)
        parts |= children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert not any(alive(pid) for pid in parts)

    process, client = begin()
    with process, client:
        parts = children(process.pid)
        assert client.get(f"/responses/{answer['id']}").json() == answer
        process.kill()
    wait_for(lambda: not any(alive(pid) for pid in parts))
