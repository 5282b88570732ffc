"""The jobs that run in this process's event loop.

Law: a job ends once, with one `Ending`, however it ended. What is kept of an exception is its class name.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# isort: split
from workers.executions import Ending

# isort: split
from rq.executions import Execution
from rq.job import Job
from rq.timeouts import JobTimeoutException

_log = logging.getLogger(__name__)

#: Seconds that cancelled jobs have to write their ending.
CANCEL_GRACE = 5.0


@dataclass(slots=True, eq=False)
class Slot:
    """One running job. `lost`: RQ has declared it dead; `stopped`: on somebody's command."""

    job: Job
    execution: Execution
    lost: bool = False
    stopped: bool = False


class Slots:
    """At most `size` running jobs. `on_end` is called in the loop with each job's ending."""

    def __init__(self, size: int, on_end: Callable[[Ending], None]) -> None:
        self._size = size
        self._on_end = on_end
        self._running: dict[asyncio.Task[None], Slot] = {}

    def __len__(self) -> int:
        return len(self._running)

    @property
    def free(self) -> int:
        """How many more jobs may start."""
        return self._size - len(self._running)

    def start(self, job: Job, execution: Execution) -> None:
        """Run the job's coroutine function under the job's timeout."""
        task = asyncio.create_task(_run(job), name=job.id)
        self._running[task] = Slot(job, execution)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        slot = self._running.pop(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        failure = None if error is None else type(error).__name__
        if task.cancelled():
            _log.info("%s: the job was cancelled", slot.job.id)
        elif failure is not None:
            _log.warning("%s: the job failed: %s", slot.job.id, failure)
        self._on_end(Ending(slot.job, slot.execution, failure, slot.stopped))

    def beating(self) -> tuple[Execution, ...]:
        """The executions that RQ is to believe alive."""
        return tuple(slot.execution for slot in self._running.values() if not slot.lost)

    def mark_lost(self, executions: Iterable[Execution]) -> None:
        """RQ has given these up. They go on: whether the turn is still ours, its lease and fence say."""
        lost = set(executions)
        for slot in self._running.values():
            slot.lost = slot.lost or slot.execution in lost

    def stop(self, job_id: str) -> None:
        """Cancel the job of that id, if it runs here."""
        for task, slot in self._running.items():
            if slot.job.id == job_id:
                slot.stopped = True
                task.cancel()

    async def drain(self, patience: float, forced: asyncio.Event) -> None:
        """Wait for the jobs to end; cancel what still runs after `patience` seconds, or once `forced` is set."""
        running = set(self._running)
        if not running:
            return
        ended, cut = asyncio.ensure_future(asyncio.wait(running)), asyncio.ensure_future(forced.wait())
        await asyncio.wait({ended, cut}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for task in (*running, ended, cut):
            task.cancel()
        _, stubborn = await asyncio.wait(running, timeout=CANCEL_GRACE)
        if stubborn:
            _log.warning("%d cancelled jobs did not end", len(stubborn))


async def _run(job: Job) -> None:
    deadline = asyncio.timeout(job.timeout)
    try:
        async with deadline:
            await job.func(*job.args)
    except TimeoutError:
        if deadline.expired():
            raise JobTimeoutException from None
        raise
