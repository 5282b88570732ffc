"""The whole pipeline against its upstream alone: streams straight from the simulated vLLM, and through Rejoinder.

    python bench/pipeline.py [streams] [tokens] [tokens a second] [concurrency of the worker]
    python bench/pipeline.py 300                # more tokens a second than two cores carry one by one
    python bench/pipeline.py 300 200 50 100     # more streams than the worker runs at once: the rest waits its turn

Both in one run, with one client, so the ratios mean something; the seconds depend on the machine. Every stream is
checked: no number missing, repeated or out of order. A turn costs what streams of one token cost; a token, what is left
of the long ones. Memory a stream is what the peak lies above the level before. CPU and memory are read from /proc, so
those columns need Linux.
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
#: Seconds after which nobody keeps an unused connection: each load makes its own, as a first burst does.
IDLE = 5.5


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


class Use(NamedTuple):
    """What a process has used: CPU seconds, and KiB resident now and at its peak."""

    cpu: float
    resident: int
    peak: int


def used(pid: int, *, anew: bool = False) -> Use:
    """From /proc. `anew`: the peak begins here."""
    if anew:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, peak = (int(status[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return Use((int(times[11]) + int(times[12])) / CLOCK, resident, peak)


def parts(parent: int) -> dict[str, int]:
    """The processes of the pipeline, name -> pid: the children of `rejoinder up`, and this client."""
    found = {"(client)": os.getpid()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            title = (folder / "cmdline").read_text().replace("\0", " ").split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat[1]) == parent and title:
            found[title[1] if title[0] == "rejoinder" else Path(title[0]).name] = int(folder.name)
    return found


class Load(NamedTuple):
    """What is asked for: streams, tokens of each, tokens a second, turns that the worker runs at once."""

    count: int
    tokens: int
    pace: int
    concurrency: int


class Burst(NamedTuple):
    """All streams of one burst, its seconds, and what each process used before and after it."""

    streams: list[Stream]
    wall: float
    before: dict[str, Use]
    after: dict[str, Use]

    def cpu(self, part: str) -> float:
        """CPU seconds that a process spent on it."""
        return self.after[part].cpu - self.before[part].cpu


async def burst(url: str, count: int, tokens: int, pids: dict[str, int]) -> Burst:
    """Open all streams at once, with connections of their own, and read them to their ends."""
    await asyncio.sleep(IDLE)
    bodies = [
        {"model": "simulated", "input": f"Count to {tokens}. ({n})", "max_output_tokens": tokens, "stream": True}
        for n in range(count)
    ]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        before, began = {part: used(pid, anew=True) for part, pid in pids.items()}, time.perf_counter()
        streams = await asyncio.gather(*(read(session, url, body) for body in bodies))
        wall = time.perf_counter() - began
        return Burst(streams, wall, before, {part: used(pid) for part, pid in pids.items()})


def told(name: str, load: Load, turns: Burst, whole: Burst) -> None:
    """The figures of one way."""
    ideal = load.tokens / load.pace
    firsts = sorted(stream.first * 1000 for stream in whole.streams)
    p50, p99 = firsts[len(firsts) // 2], firsts[int(len(firsts) * 0.99)]
    deltas = sum(stream.deltas for stream in whole.streams)
    in_order = all(stream.in_order for stream in whole.streams)
    print(f"{name:9} wall {whole.wall:6.2f} s = {whole.wall / ideal:.2f} x ideal, ", end="")
    print(f"first delta p50 {p50:.0f} p99 {p99:.0f} ms")
    print(f"  {deltas} deltas, every stream in order and whole: {in_order}")
    print(f"  {'':14} us a turn us a token MiB before   peak  after KiB a stream")
    for part, after in sorted(whole.after.items()):
        turn, token = turns.cpu(part) / load.count, (whole.cpu(part) - turns.cpu(part)) / load.count / load.tokens
        if turn + token < 2e-5:
            continue
        before = whole.before[part]
        a_stream = (after.peak - before.resident) / load.count
        print(f"  {part:14} {turn * 1e6:9.0f} {token * 1e6:10.1f} ", end="")
        print(f"{before.resident / 1024:10.0f} {after.peak / 1024:6.0f} {after.resident / 1024:6.0f} {a_stream:12.0f}")


async def run(load: Load, ready: str, simulator: str, parent: int) -> None:
    """Measure both ways and print."""
    root = ready.removeprefix("ready ").removesuffix("/v1")
    faults = {"next": None, "tokens_per_second": load.pace}
    async with aiohttp.ClientSession() as session, session.post(f"{simulator}/simulator/faults", json=faults) as answer:
        answer.raise_for_status()
    pids = parts(parent)
    for name, url in (("direct", simulator), ("rejoinder", root)):
        await burst(url, 10, 1, pids)
        turns = await burst(url, load.count, 1, pids)
        told(name, load, turns, await burst(url, load.count, load.tokens, pids))


def main() -> None:
    """Start everything, measure, end everything."""
    given = [int(value) for value in sys.argv[1:]]
    load = Load(*given, *(100, 200, 50, 400)[len(given) :])
    simulator = "http://127.0.0.1:18957"
    with tempfile.TemporaryDirectory() as data:
        flags = ("--simulate", "--vllm", simulator, "--port", "0", "--concurrency", str(load.concurrency))
        command = (*PROGRAM, "up", *flags, "--data", data)
        up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert up.stdout is not None
            asyncio.run(run(load, up.stdout.readline().strip(), simulator, up.pid))
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(20)


if __name__ == "__main__":
    main()
