"""Random event streams through the accumulator: the same rules for each, whatever it holds.

    python bench/fuzz.py [streams] [seed]

Half of them come from the grammar of `tests/grammar.py`, half are recordings of a real vLLM with events dropped,
doubled, swapped, cut off or changed. A stream that breaks a rule is printed with its seed, which makes it again.
"""

import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from grammar import ODD, Grammar, counted, framed, invariants  # noqa: E402 - the tests' own rules
from shared.json_codec import decode  # noqa: E402
from shared.limits import Limits  # noqa: E402
from workers.sse import SseDecoder  # noqa: E402

#: Streams of one task.
BATCH = 250
LONGEST = 60


@cache
def recordings() -> list[list[Any]]:
    found = []
    for path in sorted(TESTS.glob("captured/*.sse")):
        decoder = SseDecoder(1 << 24)
        data = decoder.feed(path.read_bytes()) + decoder.end()
        wires = [decode(one) for one in data if one.startswith(b"{")]
        if any("output_item" in str(wire.get("type")) for wire in wires):
            found.append(wires)
    return found


def odd(value: Any, dice: random.Random, other: Any) -> Any:
    """The value with one thing in it changed: to something odd, or to what stands in another event."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(list(value))
        if dice.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: odd(value[key], dice, other.get(key) if isinstance(other, dict) else None)}
    if isinstance(value, list) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return [*value[:at], odd(value[at], dice, None), *value[at + 1 :]]
    return other if other is not None and dice.random() < 0.6 else dice.choice(ODD)


def mutated(dice: random.Random) -> list[Any]:
    wires = list(dice.choice(recordings()))
    if len(wires) > LONGEST:  # the deltas in the middle are all alike
        cut = dice.randrange(LONGEST // 3, LONGEST - 12)
        wires = [*wires[:cut], *wires[-(LONGEST - cut) :]]
    for _ in range(dice.randrange(1, 8)):
        at, to = dice.randrange(len(wires)), dice.randrange(len(wires))
        match dice.randrange(6):
            case 0:
                del wires[at]
            case 1:
                wires.insert(to, wires[at])
            case 2:
                wires[at], wires[to] = wires[to], wires[at]
            case 3 if dice.random() < 0.3:
                del wires[at:]
            case _:
                wires[at] = odd(wires[at], dice, wires[to])
        if not wires:
            break
    return wires


def stream(seed: int) -> tuple[list[Any], list[int], Limits]:
    dice = random.Random(seed)
    grammar = Grammar(dice.choice, odds=dice.choice((4, 12, 60)))
    wires = mutated(dice) if seed % 2 else grammar.stream(dice.randrange(1, 26))
    length = len(framed(wires))
    cuts = [dice.randrange(length + 1) for _ in range(dice.choice((0, 1, 5, 40)))]
    sizes = (1, 3, 20, 200, 2000)
    return wires, cuts, Limits(dice.choice(sizes), dice.choice(sizes), dice.choice((1, 2, 5)), dice.choice((1, 2, 5)))


def batch(seeds: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    counts: Counter[str] = Counter()
    broken = []
    for seed in seeds:
        try:
            counts += counted(invariants(*stream(seed)))
        except Exception:  # noqa: BLE001 - any is a find
            broken.append((seed, traceback.format_exc(limit=-4)))
    return counts, broken


def batches(streams: int, first: int) -> Iterator[range]:
    for at in range(first, first + streams, BATCH):
        yield range(at, min(at + BATCH, first + streams))


def main(streams: int, first: int) -> int:
    started = time.monotonic()
    counts: Counter[str] = Counter()
    broken: list[tuple[int, str]] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for some, finds in pool.map(batch, batches(streams, first)):
            counts += some
            broken += finds
    print(f"{streams} streams, seeds {first} to {first + streams - 1}, {time.monotonic() - started:.0f} s")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{len(broken)} broke a rule")
    for seed, trace in broken[:5]:
        print(f"\nseed {seed}:\n{trace}")
    return 1 if broken else 0


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    raise SystemExit(main(*(numbers + [5_000, 0][len(numbers) :])))
