"""What reading one upstream delta costs the worker: CPU µs a delta, our client against httpx's own transport.

    python bench/vllm_client.py [--streams 100] [--seconds 5] [--rounds 2]

The upstream is a process of its own. Both arms are the same `Vllm`, decoder and normalizer; only the transport differs.
`trickle`: each stream gets one delta every 20 ms. `burst`: 50 deltas in one write, once a second.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import httpx
import uvloop

from shared.json_codec import encode
from shared.settings import Settings
from shared.upstream_events import TextDelta
from workers.vllm import Vllm

RATE = 50  # deltas a second and stream

Build = Callable[[Settings], Vllm]


def delta(number: int) -> bytes:
    """An event of the size of vLLM's own: about 250 bytes."""
    kind = "response.output_text.delta"
    wire = {
        "content_index": 0,
        "delta": f" word{number % 10}",
        "item_id": "msg_0123456789abcdef",
        "logprobs": [],
        "output_index": 1,
        "sequence_number": number,
        "type": kind,
    }
    data = b"event: %b\ndata: %b\n\n" % (kind.encode(), encode(wire))
    return b"%x\r\n%b\r\n" % (len(data), data)


async def upstream(ready: Connection) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            per_write, seconds = (
                (await reader.readexactly(length)).decode().strip('{}"').split(":")[1].strip('"').split("/")
            )
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            batch = b"".join(delta(number) for number in range(int(per_write)))
            pause = int(per_write) / RATE
            next_at = asyncio.get_running_loop().time()
            for _ in range(int(float(seconds) / pause)):
                next_at += pause
                writer.write(batch)
                await asyncio.sleep(next_at - asyncio.get_running_loop().time())
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve(ready: Connection) -> None:
    uvloop.run(upstream(ready))


def ours(settings: Settings) -> Vllm:
    return Vllm(settings)


def plain_httpx(settings: Settings) -> Vllm:
    vllm = Vllm(settings)
    limits = httpx.Limits(max_connections=settings.concurrency, keepalive_expiry=4.0)
    vllm._transport = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)  # noqa: SLF001 (the arm to compare with)
    return vllm


async def read(vllm: Vllm, order: str) -> int:
    deltas = 0
    async with vllm.stream({"order": order}) as answer:
        async for events in answer:
            deltas += sum(isinstance(event, TextDelta) for event in events)
    return deltas


async def measure(build: Build, port: int, streams: int, order: str) -> float:
    """CPU µs a delta, of this process."""
    vllm = build(Settings(vllm_url=f"http://127.0.0.1:{port}", concurrency=streams))
    try:
        began = time.process_time()
        deltas = sum(await asyncio.gather(*(read(vllm, order) for _ in range(streams))))
        return (time.process_time() - began) / deltas * 1e6
    finally:
        await vllm.aclose()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    process.start()
    there.close()
    port = here.recv()
    try:
        for name, per_write in (("trickle", 1), ("burst", RATE)):
            costs: dict[str, list[float]] = {"httpx": [], "ours": []}
            for _ in range(asked.rounds):
                for arm, build in (("httpx", plain_httpx), ("ours", ours)):
                    order = f"{per_write}/{asked.seconds}"
                    costs[arm].append(uvloop.run(measure(build, port, asked.streams, order)))
            plain, mine = min(costs["httpx"]), min(costs["ours"])
            print(f"{name:8} httpx {plain:6.1f}  ours {mine:6.1f}  CPU µs a delta, ratio {plain / mine:.2f}")
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
