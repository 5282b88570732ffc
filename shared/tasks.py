"""The event loop of a process, and the tasks that it keeps running: never silently dead, and ended for sure."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_log = logging.getLogger(__name__)

#: Before a cancellation is sent again, seconds.
_PAUSE = 0.2


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop there is on this platform."""
    try:
        import uvloop  # noqa: PLC0415 - there is none on some platforms
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@asynccontextmanager
async def running(*loops: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run these endless loops while the block runs.

    One that breaks takes the process with it, as SIGTERM would: half a process looks alive and serves nobody.
    """
    tasks = [asyncio.create_task(loop(), name=loop.__qualname__) for loop in loops]
    for task in tasks:
        task.add_done_callback(_not_silently)
    try:
        yield
    finally:
        await asyncio.gather(*(stop(task) for task in tasks))


def _not_silently(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("%s broke: %s", task.get_name(), type(error).__name__)
        os.kill(os.getpid(), signal.SIGTERM)


async def stop(task: "asyncio.Task[Any]") -> None:
    """Cancel, and again until it ends: Python 3.11's `wait_for`, inside redis-py's sends, can swallow one."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_PAUSE)
