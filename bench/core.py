"""What one delta costs between vLLM's bytes and our event log, and what of it plain JSON parsing would cost.

    python bench/core.py [deltas]

One stream of vLLM's shape; reads of one event (a lone stream) and of 64 (a busy socket).
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from shared.accumulator import Accumulator
from shared.events import log_entry
from shared.fold import fold
from shared.json_codec import decode, encode
from shared.normalize import read_event
from workers.sse import SseDecoder

LIMIT = 16 << 20


def frame(wire: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (wire["type"].encode(), encode(wire))


def stream(deltas: int) -> list[bytes]:
    place = {"item_id": "msg_8979eb9987727e87", "output_index": 0, "content_index": 0}
    item = {"id": place["item_id"], "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    delta = {**place, "delta": " word", "logprobs": [], "sequence_number": 7, "type": "response.output_text.delta"}
    return [
        frame({"type": "response.output_item.added", "output_index": 0, "item": item}),
        frame({"type": "response.content_part.added", **place, "part": part}),
        *[frame(delta)] * deltas,
    ]


def measured(work: Callable[[], object], deltas: int) -> float:
    """Microseconds of processor time a delta, best of five."""
    times = []
    for _ in range(5):
        gc.collect()
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times) / deltas * 1e6


def main(deltas: int) -> None:
    frames = stream(deltas)
    data = [one[one.index(b"data: ") + 6 : -2] for one in frames]

    def framed(reads: list[bytes]) -> list[list[bytes]]:
        decoder = SseDecoder(LIMIT)
        return [decoder.feed(read) for read in reads]

    def whole(reads: list[bytes], *, logged: bool = False) -> Accumulator:
        decoder, accumulator = SseDecoder(LIMIT), Accumulator()
        for read in reads:
            events = accumulator.feed([read_event(event) for event in decoder.feed(read)])
            if logged:
                for event in events:
                    log_entry(event)
        return accumulator

    plain = measured(lambda: [decode(event) for event in data], deltas)
    print(f"{'plain JSON parsing':<44}{plain:6.2f} us a delta")

    def show(name: str, work: Callable[[], object]) -> None:
        cost = measured(work, deltas)
        print(f"{name:<44}{cost:6.2f} us a delta   x {cost / plain:.1f}")

    for size in (1, 64):
        reads = [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]
        show(f"reads of {size}: framing", lambda reads=reads: framed(reads))  # type: ignore[misc]
        show(f"reads of {size}: bytes to public events", lambda reads=reads: whole(reads))  # type: ignore[misc]
        show(f"reads of {size}: bytes to log entries", lambda reads=reads: whole(reads, logged=True))  # type: ignore[misc]
    show("normalizing, with parsing", lambda: [read_event(event) for event in data])
    accumulator = Accumulator()
    events = [event for event in data for event in accumulator.feed([read_event(event)])]
    show("folding the log back", lambda: fold(events))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
