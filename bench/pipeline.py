"""The whole pipeline against its upstream alone: streams straight from the simulated vLLM, and through Rejoinder.

    python bench/pipeline.py [streams] [tokens] [tokens a second]

Both in one run, with one client, so the ratios mean something; the seconds depend on the machine. Every stream is
checked: no number missing, repeated or out of order. CPU is read from /proc, so those columns need Linux.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp

PROGRAM = (sys.executable, "-m", "cli.main")
NUMBER = re.compile(rb'"sequence_number":(\d+)')
CLOCK = os.sysconf("SC_CLK_TCK")


class Stream(NamedTuple):
    """One stream as its reader saw it, seconds."""

    first: float
    whole: float
    deltas: int
    in_order: bool


async def read(session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> Stream:
    """Read one stream to its end."""
    began = time.perf_counter()
    first, deltas, numbers, rest = 0.0, 0, [], b""
    async with session.post(f"{url}/v1/responses", json=body) as answer:
        answer.raise_for_status()
        async for data in answer.content.iter_any():
            *frames, rest = (rest + data).split(b"\n\n")
            for frame in frames:
                found = NUMBER.search(frame)
                if found is None or frame.startswith(b"event: keepalive"):
                    continue
                numbers.append(int(found[1]))
                if b".delta\n" in frame[:60]:
                    deltas += 1
                    first = first or time.perf_counter() - began
    return Stream(first, time.perf_counter() - began, deltas, numbers == list(range(len(numbers))))


def processes(parent: int) -> dict[str, tuple[float, int]]:
    """CPU seconds and resident KiB of the parts under `parent`, by name."""
    found: dict[str, tuple[float, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            title = (folder / "cmdline").read_text().replace("\0", " ").split()
            memory = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat[1]) == parent and title:
            name = title[1] if title[0] == "rejoinder" else Path(title[0]).name
            found[name] = ((int(stat[11]) + int(stat[12])) / CLOCK, memory)
    return found


def told(name: str, streams: list[Stream], wall: float, ideal: float) -> None:
    """One line of figures."""
    firsts = sorted(stream.first * 1000 for stream in streams)
    p50, p99 = firsts[len(firsts) // 2], firsts[int(len(firsts) * 0.99)]
    deltas, in_order = sum(stream.deltas for stream in streams), all(stream.in_order for stream in streams)
    print(f"{name:9} wall {wall:6.2f} s = {wall / ideal:.2f} x ideal, first delta p50 {p50:.0f} p99 {p99:.0f} ms")
    print(f"  {deltas} deltas, every stream in order and whole: {in_order}")


class Load(NamedTuple):
    """What is asked for: streams, tokens of each, tokens a second."""

    count: int
    tokens: int
    pace: int


async def run(load: Load, ready: str, simulator: str, parent: int) -> None:
    """Measure both ways and print."""
    count, tokens, pace = load
    root = ready.removeprefix("ready ").removesuffix("/v1")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        bodies = [
            {"model": "simulated", "input": f"Count to 9000. ({n})", "max_output_tokens": tokens, "stream": True}
            for n in range(count)
        ]
        await read(session, root, bodies[0])
        await session.post(f"{simulator}/simulator/faults", json={"next": None, "tokens_per_second": pace})
        for name, url in (("direct", simulator), ("rejoinder", root)):
            before, began = processes(parent), time.perf_counter()
            streams = await asyncio.gather(*(read(session, url, body) for body in bodies))
            wall, after = time.perf_counter() - began, processes(parent)
            told(name, streams, wall, tokens / pace)
            total = count * tokens
            for part, (seconds, memory) in sorted(after.items()):
                used = (seconds - before.get(part, (0, 0))[0]) * 1e6 / total
                if used >= 0.5:
                    print(f"  {part:14} {used:6.1f} us a token, {memory // 1024} MiB")


def main() -> None:
    """Start everything, measure, end everything."""
    given = [int(value) for value in sys.argv[1:]]
    load = Load(*given, *(100, 200, 50)[len(given) :])
    simulator = "http://127.0.0.1:18957"
    with tempfile.TemporaryDirectory() as data:
        options = ("--simulate", "--vllm", simulator, "--port", "0", "--concurrency", "400", "--data", data)
        up = subprocess.Popen([*PROGRAM, "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert up.stdout is not None
            asyncio.run(run(load, up.stdout.readline().strip(), simulator, up.pid))
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(20)


if __name__ == "__main__":
    main()
