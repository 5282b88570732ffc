"""How an answer leaves the simulated vLLM: at its pace, with its faults, until the client is gone.

Law: one timer a stream; without a pace several events go in one write. A client that leaves ends the generation at
once, and the record says `aborted`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from cli.simulated_events import Step
from cli.simulated_faults import Faults
from cli.simulated_record import Record
from shared.json_codec import encode

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_BATCH = 64
_SSE = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"vary", b"Origin")]
_JSON = [(b"content-type", b"application/json"), (b"vary", b"Origin")]
_GARBAGE = b'event: response.output_text.delta\ndata: {"type":"response.output_text.del\n\n'


class Broken(Exception):
    """A fault was asked for that ends the connection in the middle of an answer."""


async def until_gone(receive: Receive, serving: Awaitable[None], record: Record) -> None:
    """Serve until it is done, or the client has left. Raises `Broken`."""
    task = asyncio.ensure_future(serving)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        else:
            record.ending = "aborted"
    except asyncio.CancelledError:
        record.ending = "broken"  # the server is going down: it drains nothing
        raise
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.wait({task, watch})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, status: int, body: Any) -> None:
    """A whole JSON answer."""
    raw = encode(body)
    headers = [*_JSON, (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


async def send_plain(send: Send, body: Any, tokens: int, *, faults: Faults, record: Record) -> None:
    """A plain answer after the time that its tokens take. Any fault of a stream breaks it in its middle."""
    await asyncio.sleep(faults.first_token_seconds + tokens / (faults.tokens_per_second or float("inf")))
    if faults.stall_after is not None:
        await _stall(faults)
    raw = encode(body)
    headers = [*_JSON, (b"content-length", str(len(raw)).encode())]
    if faults.garbage_after is not None:
        raw = raw[: len(raw) // 2] + b" " * (len(raw) - len(raw) // 2)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if faults.cut_after is not None or faults.omit_completed:
        await send({"type": "http.response.body", "body": raw[: len(raw) // 2], "more_body": True})
        raise Broken
    await send({"type": "http.response.body", "body": raw})
    record.ending = "finished"


async def send_stream(
    send: Send, opening: bytes, steps: Iterable[Step], closing: Callable[[], bytes], *, faults: Faults, record: Record
) -> None:
    """A stream of events: headers and `opening` at once, then a step for each token, then `closing`."""
    await send({"type": "http.response.start", "status": 200, "headers": _SSE})
    await _write(send, [opening])
    await asyncio.sleep(faults.first_token_seconds)
    interval = 1 / faults.tokens_per_second if faults.tokens_per_second else 0.0
    clock = asyncio.get_running_loop().time
    due = clock()
    waiting: list[bytes] = []
    for step in steps:
        if interval and (wait := due - clock()) > 0:
            await _write(send, waiting)
            await asyncio.sleep(wait)
        elif len(waiting) >= _BATCH:
            await _write(send, waiting)
            await asyncio.sleep(0)
        due += interval
        if step.delta and faults.cut_after == record.deltas:
            break
        if step.delta:
            await _disturb(send, waiting, faults, record.deltas)
            record.deltas += 1
        if step.frames:
            waiting.append(step.frames)
    await _write(send, waiting)
    if faults.cut_after is not None:  # an answer of fewer deltas breaks before its last event
        raise Broken
    if not faults.omit_completed:
        await _write(send, [closing()])
    await send({"type": "http.response.body", "body": b""})
    record.ending = "broken" if faults.omit_completed else "finished"


async def _disturb(send: Send, waiting: list[bytes], faults: Faults, deltas: int) -> None:
    if deltas == faults.garbage_after:
        waiting.append(_GARBAGE)
    if deltas == faults.stall_after:
        await _write(send, waiting)
        await _stall(faults)


async def _stall(faults: Faults) -> None:
    await (asyncio.Event().wait() if faults.stall_seconds is None else asyncio.sleep(faults.stall_seconds))


async def _write(send: Send, frames: list[bytes]) -> None:
    if frames:
        await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
        frames.clear()
