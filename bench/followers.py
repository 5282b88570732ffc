"""Many followers of one response, and of many: what a delivered event costs, and how late it is.

    python bench/followers.py [followers] [seconds] [events a second, of all responses together, several paces]

Everything in real processes. Followers are raw sockets in this process; a reader of its own, straight on the Redis
streams, says when each event could be read at the earliest. Every follower's bytes are hashed: all followers of one
response must have got the same. CPU is read from /proc, so this needs Linux.
"""

import asyncio
import hashlib
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import redis

from cli.embedded_redis import EmbeddedRedis
from shared.events import TERMINAL
from shared.keys import Keys

PROGRAM = (sys.executable, "-m", "cli.main")
CLOCK = os.sysconf("SC_CLK_TCK")
#: What the simulated vLLM waits before its first token: all followers are there by then.
ASSEMBLY = 8.0


class Follower(asyncio.Protocol):
    """One stream, read to its end: its bytes' hash, and when each event came."""

    def __init__(self, response_id: str) -> None:
        self._request = f"GET /v1/responses/{response_id}?stream=true HTTP/1.1\r\nhost: b\r\n\r\n".encode()
        self._rest = b""
        self._headed = False
        self._hash = hashlib.sha256()
        self.response_id = response_id
        self.times = array("d")
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        data = self._rest + data if self._rest else data
        at = 0
        if not self._headed:
            if (at := data.find(b"\r\n\r\n") + 4) < 4:
                self._rest = data
                return
            self._headed = True
            assert data.startswith(b"HTTP/1.1 200"), data[:200]
        while (line := data.find(b"\r\n", at)) >= 0:
            size = int(data[at:line], 16)
            if len(data) < line + size + 4:
                break
            body = data[line + 2 : line + 2 + size]
            at = line + size + 4
            self._hash.update(body)
            self.times.extend([now] * body.count(b"\n\n"))
            if size == 0:
                self.ended.set_result(self._hash.hexdigest())
                self._transport.close()
        self._rest = data[at:]

    def connection_lost(self, _: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(f"cut off after {len(self.times)} events"))


def reference(url: str, response_ids: list[str], answer: Connection) -> None:
    """When each event of each response could be read, straight from Redis."""
    cursors = {Keys().events(response_id).encode(): b"0-0" for response_id in response_ids}
    times: dict[str, list[float]] = {response_id: [] for response_id in response_ids}
    with redis.Redis.from_url(url, socket_timeout=None) as client:
        while cursors:
            for key, entries in client.xread(dict(cursors), block=60_000):
                now = time.monotonic()
                times[key.decode().rpartition(":")[2]] += [now] * len(entries)
                cursors[key] = entries[-1][0]
                if any(field.decode() in TERMINAL for field in entries[-1][1]):
                    del cursors[key]
    answer.send(times)


class Usage(NamedTuple):
    """A process's CPU seconds so far, its resident MiB and its open files."""

    cpu: float
    memory: float
    files: int


def usage(pid: int) -> Usage:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Usage((int(stat[11]) + int(stat[12])) / CLOCK, memory, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def child(parent: int, title: str) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat[1]) == parent and command.startswith(title.encode()):
            return int(folder.name)
    raise LookupError(title)


class House(NamedTuple):
    """The parts that are measured or told something."""

    url: str
    simulator: str
    redis: EmbeddedRedis
    up: int


class Load(NamedTuple):
    followers: int
    responses: int
    pace: float  # events a second, of all responses together
    seconds: float


async def measure(house: House, load: Load) -> None:
    """One row of the table."""
    api = child(house.up, "rejoinder api")
    tokens = int(load.pace / load.responses * load.seconds)
    faults = {"next": None, "first_token_seconds": ASSEMBLY, "tokens_per_second": load.pace / load.responses}
    async with aiohttp.ClientSession() as session:
        await session.post(f"{house.simulator}/simulator/faults", json=faults)
        ids: list[str] = []
        for _ in range(load.responses):
            body = {"model": "simulated", "input": "Count to 9000.", "max_output_tokens": tokens, "background": True}
            async with session.post(f"{house.url}/v1/responses", json=body) as answer:
                ids.append((await answer.json())["id"])
    assembled = time.monotonic() + ASSEMBLY
    mine, its = multiprocessing.Pipe()
    reader = multiprocessing.get_context("spawn").Process(target=reference, args=(house.redis.url, ids, its))
    reader.start()
    its.close()  # the reader's own is left: one that breaks is heard of
    before = usage(api)
    followers = [Follower(ids[number % load.responses]) for number in range(load.followers)]
    await asyncio.gather(*(connect(house.url, follower) for follower in followers))
    while min(len(follower.times) for follower in followers) < 3:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.05)
    assert time.monotonic() < assembled, "the followers came too late for the first token"
    started = {pid: usage(pid) for pid in (api, house.redis.pid)}
    with redis.Redis.from_url(house.redis.url) as client:
        connections = sum(entry["name"] == f"rejoinder-{api}" for entry in client.client_list())
    await asyncio.sleep(assembled - time.monotonic() + load.seconds / 2)
    during = usage(api)
    hashes: dict[str, set[str]] = {response_id: set() for response_id in ids}
    for follower in followers:
        hashes[follower.response_id].add(await follower.ended)
    ended = {pid: usage(pid) for pid in (api, house.redis.pid)}
    times: dict[str, list[float]] = await asyncio.to_thread(mine.recv)
    await asyncio.sleep(1)
    after = usage(api)
    tell(load, followers, times, same=all(len(found) == 1 for found in hashes.values()))
    frames = sum(len(follower.times) for follower in followers)
    cpu = {pid: ended[pid].cpu - started[pid].cpu for pid in ended}
    span = max(times[ids[0]]) - assembled
    print(
        f"  API {cpu[api] * 1e6 / frames:5.1f} us a frame = {cpu[api] / span:4.0%} of a core;"
        f" Redis {cpu[house.redis.pid] / span:4.0%};"
        f" RSS {before.memory:.0f} / {during.memory:.0f} / {after.memory:.0f} MiB; files {before.files} /"
        f" {during.files} / {after.files}; connections to Redis {connections}"
    )


async def connect(url: str, follower: Follower) -> None:
    host, port = url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().create_connection(lambda: follower, host, int(port))


def tell(load: Load, followers: list[Follower], times: dict[str, list[float]], *, same: bool) -> None:
    lags: list[float] = []
    whole = True
    for follower in followers:
        appended = times[follower.response_id]
        whole &= len(follower.times) == len(appended) + 1  # and [DONE]
        lags += [(came - at) * 1000 for came, at in zip(follower.times[3:], appended[3:], strict=False)]
    lags.sort()
    p50, p99 = lags[len(lags) // 2], lags[int(len(lags) * 0.99)]
    print(
        f"{load.followers} followers of {load.responses}, {load.pace:g} events/s together ="
        f" {load.pace / load.responses * load.followers:.0f} frames/s: same bytes {same}, whole {whole},"
        f" {len(lags)} frames, lag p50 {p50:.1f} p99 {p99:.1f} max {lags[-1]:.1f} ms",
        flush=True,
    )


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def main() -> None:
    """Start everything, measure, end everything."""
    given = [float(value) for value in sys.argv[1:]]
    count, seconds, *paces = *given, *(1000, 10, 10)[len(given) :]
    files = int(count) + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        raise SystemExit(f"{files} open files are needed, the limit is {hard}: see ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))
    simulator = f"http://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as data, EmbeddedRedis(Path(data)) as server:
        environment: dict[str, Any] = {**os.environ, "REJOINDER_REDIS_URL": server.url, "REJOINDER_KEEPALIVE": "off"}
        options = ("--simulate", "--vllm", simulator, "--port", "0", "--concurrency", "400")
        up = subprocess.Popen(
            [*PROGRAM, "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        try:
            assert up.stdout is not None
            url = up.stdout.readline().strip().removeprefix("ready ").removesuffix("/v1")
            for responses, factor in ((1, 1.0), (100, 100.0)):
                for pace in paces:
                    load = Load(int(count), responses, pace * factor, seconds)
                    asyncio.run(measure(House(url, simulator, server, up.pid), load))
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(30)


if __name__ == "__main__":
    main()
