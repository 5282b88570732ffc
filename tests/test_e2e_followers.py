"""A thousand followers of one API process: they come and go and leave nothing, and no slow one costs the others."""

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis
import uvicorn

from api.app import create_app
from shared.json_codec import encode
from shared.settings import Settings
from stack import MODEL, Stack, until

CROWD = 1000
LONG = {"model": MODEL, "input": "Count to 5000.", "background": True}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CROWD + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} open files are needed, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with Stack(tmp_path_factory.mktemp("followers"), REJOINDER_STALL_TIMEOUT="60") as stack:
        yield stack


@pytest.fixture
def stack(house: Stack) -> Iterator[Stack]:
    house.forget()
    yield house
    for response_id in running(house):
        house.http.post(f"/v1/responses/{response_id}/cancel")


def running(stack: Stack) -> list[str]:
    with redis.Redis.from_url(stack.redis.url) as client:
        return [
            member.decode()
            for shard in range(64)
            for member in client.zrange(f"rejoinder:{{s{shard:02d}}}:live", 0, -1)
        ]


def submit(stack: Stack) -> str:
    response_id: str = stack.http.post("/v1/responses", json=LONG).json()["id"]
    until(lambda: stack.http.get(f"/v1/responses/{response_id}").json()["status"] == "in_progress")
    return response_id


def follow(port: int, response_id: str, **options: int) -> socket.socket:
    connection = socket.socket()
    if options:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive_buffer"])
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"GET /v1/responses/{response_id}?stream=true HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def raw_call(stack: Stack, body: object) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", stack.api_port), timeout=20)
    content = encode(body)
    head = f"POST /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def come_and_go(port: int, response_id: str) -> None:
    """A crowd, a third of which leaves before the first byte, a third after it, a third in the middle of a frame."""
    crowd = [follow(port, response_id) for _ in range(CROWD)]
    for number, connection in enumerate(crowd):
        if number % 3:
            assert connection.recv(300 if number % 3 == 1 else 65536)
    for connection in crowd:
        connection.close()


def held(stack: Stack) -> tuple[int, int]:
    """Open files of the API process, and its connections to Redis among all."""
    with redis.Redis.from_url(stack.redis.url) as client:
        name = f"rejoinder-{stack.api.pid}"
        connections = sum(entry["name"] == name for entry in client.client_list())
    return len(list(Path(f"/proc/{stack.api.pid}/fd").iterdir())), connections


def memory(pid: int) -> int:
    """Resident KiB."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts by /proc")


@needs_proc
def test_a_crowd_that_comes_and_goes_leaves_nothing(stack: Stack) -> None:
    stack.faults(stall_after=20)
    response_id = submit(stack)
    levels, connections = [], []
    for _ in range(4):  # the first crowd fills the pools; no other leaves anything behind
        come_and_go(stack.api_port, response_id)
        until(lambda: held(stack)[0] < 45)
        levels.append(memory(stack.api.pid))
        connections.append(held(stack)[1])
    assert max(connections) <= Settings().redis_connections + 3, connections
    assert levels[-1] - levels[0] < 8 * 1024, levels


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[int]:
    """The API in this very process, so that its tasks can be counted."""
    config = uvicorn.Config(create_app(settings), host="127.0.0.1", port=0, log_config=None, lifespan="on", ws="none")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    await serving


async def test_a_crowd_that_comes_and_goes_leaves_no_task(stack: Stack) -> None:
    stack.faults(stall_after=20)
    response_id = await asyncio.to_thread(submit, stack)
    async with served(Settings(redis_url=stack.redis.url, vllm_url=f"http://127.0.0.1:{stack.simulator_port}")) as port:
        one = await asyncio.to_thread(follow, port, response_id)
        await asyncio.to_thread(one.recv, 100)
        one.close()
        before = await settled()
        await asyncio.to_thread(come_and_go, port, response_id)
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.05)


async def settled() -> int:
    """The number of tasks, once it stands still."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < 0.5:
        if (now := len(asyncio.all_tasks())) != count:
            count, since = now, time.monotonic()
        await asyncio.sleep(0.02)
    return count


@needs_proc
def test_those_that_do_not_read_hold_nobody_back_and_get_every_byte_later(stack: Stack) -> None:
    stack.faults(stall_after=5)
    response_id = submit(stack)
    slow = [follow(stack.api_port, response_id, receive_buffer=65536) for _ in range(8)]
    level = memory(stack.api.pid)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(stack.http.get, f"/v1/responses/{response_id}?stream=true", timeout=60)
        write_a_lot(stack, response_id)
        fast = without_keepalives(reading.result().content)
    assert fast.endswith(b"data: [DONE]\n\n")
    assert len(fast) > 10_000_000, "more than the buffers of a connection take"
    # What the buffers do not take waits in Redis, not in the API: eight logs would be eight times this.
    assert memory(stack.api.pid) - level < 2 * len(fast) / 1024
    for connection in slow:
        assert body(connection) == fast
        connection.close()


def write_a_lot(stack: Stack, response_id: str) -> None:
    """A long answer, straight into the log that is followed."""
    key = f"rejoinder:{{s{response_id[5:7]}}}:"
    with redis.Redis.from_url(stack.redis.url) as client:
        client.hset(f"{key}response:{response_id}", "fence", 99)  # its worker writes nothing more
        number = client.xlen(f"{key}events:{response_id}")
        for _ in range(200):
            with client.pipeline() as pipe:
                for _ in range(100):
                    number += 1
                    pipe.xadd(f"{key}events:{response_id}", {"ot": f"1 0 msg_1 {'word ' * 80}"}, id=f"1-{number}")
                pipe.execute()
        end = encode({"type": "response.completed", "sequence_number": number, "response": {}})
        client.xadd(f"{key}events:{response_id}", {"response.completed": end}, id=f"1-{number + 1}")
        client.zrem(f"{key}live", response_id)


def body(connection: socket.socket) -> bytes:
    """A whole chunked answer's body, without keep-alives, which are each connection's own."""
    raw = bytearray()
    while not raw.endswith(b"\r\n0\r\n\r\n"):
        data = connection.recv(1 << 18)
        assert data
        raw += data
    at, parts = raw.find(b"\r\n\r\n") + 4, []
    while (size := int(raw[at : (line := raw.find(b"\r\n", at))], 16)) > 0:
        parts.append(bytes(raw[line + 2 : line + 2 + size]))
        at = line + size + 4
    return without_keepalives(b"".join(parts))


def without_keepalives(stream: bytes) -> bytes:
    frames = stream.split(b"\n\n")
    return b"\n\n".join(frame for frame in frames if not frame.startswith(b"event: keepalive"))


def ends(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection or ends the answer."""
    raw = b""
    while data := connection.recv(1 << 16):
        raw += data
        if raw.endswith(b"\r\n0\r\n\r\n"):
            break
    connection.close()
    return raw


def test_followers_of_a_response_that_vanishes_are_told_and_end(stack: Stack) -> None:
    stack.faults(stall_after=5)
    response_id = submit(stack)
    crowd = [follow(stack.api_port, response_id) for _ in range(20)]
    for connection in crowd:
        assert connection.recv(100)
    key = f"rejoinder:{{s{response_id[5:7]}}}:"
    with redis.Redis.from_url(stack.redis.url) as client:
        client.delete(f"{key}response:{response_id}", f"{key}events:{response_id}")
    for connection in crowd:
        told = ends(connection)
        assert b"event: error\n" in told
        assert b"data: [DONE]" in told


def test_followers_of_a_log_that_lost_its_end_are_told_and_end(stack: Stack) -> None:
    stack.faults(stall_after=5)
    response_id = submit(stack)
    crowd = [follow(stack.api_port, response_id) for _ in range(20)]
    for connection in crowd:
        assert connection.recv(100)
    key = f"rejoinder:{{s{response_id[5:7]}}}:"
    with redis.Redis.from_url(stack.redis.url) as client:
        client.delete(f"{key}events:{response_id}")
        client.hset(f"{key}response:{response_id}", mapping={"status": "completed", "sequence": 99, "ending": "{}"})
    for connection in crowd:
        told = ends(connection)
        assert b"no longer whole" in told
        assert b"data: [DONE]" in told


def test_followers_are_let_go_when_the_api_is_told_to_stop(tmp_path: Path) -> None:
    with Stack(tmp_path, REJOINDER_STALL_TIMEOUT="60") as own:
        own.faults(stall_after=5, next=None)
        response_id = submit(own)
        crowd = [follow(own.api_port, response_id) for _ in range(100)]
        for connection in crowd:
            assert connection.recv(100)
        plain = raw_call(own, {"model": MODEL, "input": "Hello"})
        until(lambda: len(running(own)) == 2)
        own.api.terminate()
        for connection in crowd:
            told = ends(connection)
            assert b"event: error\n" in told
            assert b"resume at your cursor" in told
            assert b"data: [DONE]" in told
        answer = ends(plain).decode()
        assert answer.startswith("HTTP/1.1 503 ")
        assert "\r\nx-should-retry: false\r\n" in answer, "it goes on, so a client must not send it again"
        assert own.api.wait(20) == 0
        assert "Traceback" not in own.log()
