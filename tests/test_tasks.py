"""A process's own tasks: one that breaks is no secret, and all of them end."""

import asyncio
import os
import signal

import pytest

from shared.tasks import running, stop


async def test_a_loop_that_breaks_takes_the_process_with_it_and_tells_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)

    async def breaks() -> None:
        raise ValueError("canary")

    try:
        async with running(breaks):
            await asyncio.wait_for(told.wait(), 5)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert "ValueError" in caplog.text
    assert "canary" not in caplog.text
    assert os.getpid()


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await asyncio.wait_for(stop(task), 5)
    assert (task.cancelled(), swallowed) == (True, 3)
