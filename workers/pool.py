"""A worker process: many turns in one event loop, under RQ.

Law: jobs are coroutine functions from the one queue `turns`, up to `concurrency` at a time. The loop never waits for
Redis: RQ's books (`workers/executions.py`) are kept in threads. While Redis is away running jobs are left alone and
everything else tries again; what RQ then thinks of a job is its own business, leases and fences decide.

SIGTERM or SIGINT: take no new job, put back what is only held, give the running ones `drain_timeout`, then cancel them.
A second signal cancels at once. RQ's commands stop-job, stop-execution and shutdown are obeyed; there is no scheduler,
no `rq suspend` and no horse.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar
from uuid import uuid4

from redis.exceptions import RedisError

# isort: split
from workers.executions import Ending, Executions

# isort: split
from rq import worker_registration
from rq.executions import Execution
from rq.serializers import JSONSerializer
from rq.timeouts import TimerDeathPenalty
from rq.utils import now
from rq.worker import BaseWorker, WorkerStatus

from shared.json_codec import decode
from shared.logs import set_up_logging
from shared.redis_client import connect_blocking
from shared.settings import Settings
from shared.tasks import new_event_loop
from workers.slots import Slots

_log = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[object]]

#: Jobs admitted in one step.
BATCH = 20
#: Seconds between two tries while Redis is away.
RETRY = 0.25
#: Seconds to wait for Redis when leaving; afterwards the other workers find out by themselves.
LEAVE = 1.5


class TurnWorker(BaseWorker):
    """One RQ worker. `serve` is its whole life."""

    death_penalty_class = TimerDeathPenalty  # RQ's books are kept in threads, where alarms don't work
    connection_timeout = 0  # keeps RQ from stretching our socket timeouts to minutes

    def __init__(self, settings: Settings) -> None:
        name = uuid4().hex
        self._books = Executions(settings, name)
        super().__init__(
            [self._books.queue],
            name=name,
            connection=self._books.connection,
            serializer=JSONSerializer,
            log_job_description=False,
            prepare_for_work=False,  # it would need Redis at once
        )
        self.hostname, self.pid, self.birth_date = socket.gethostname(), os.getpid(), now()
        self._settings = settings
        self._slots = Slots(settings.concurrency, self._ended)
        self._endings: asyncio.Queue[Ending] = asyncio.Queue()
        self._settling: list[Ending] = []
        self._registered = self._broken = False
        self._stopping, self._forced, self._may_take = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="rq")  # fetch, beat, settle, clean: one call each

    def procline(self, message: str) -> None:
        """Leave the process title alone: it is no place for job ids."""

    def request_shutdown(self) -> None:
        """Stop in order; asked again, at once."""
        if self._stopping.is_set():
            self._forced.set()
        self._stopping.set()
        self._may_take.set()
        _log.info("stopping, %d jobs running", len(self._slots))

    async def serve(self, connect: Connect) -> int:
        """Work until told to stop, inside `connect()`. The exit code: 1 when a loop of ours broke."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.request_shutdown)
        async with connect():
            _log.info("taking up to %d turns at once", self._settings.concurrency)
            lease = self._books.lease
            fetch = self._spawn(self._keep(self._fetch, until=self._stopping))
            others = [
                self._spawn(self._keep(self._beat, every=lease / 4)),
                self._spawn(self._keep(self._settle)),
                # after an outage the living get a lease's time to beat, before anyone is buried
                self._spawn(self._keep(self._clean, every=self._settings.sweep_interval, after_outage=lease)),
                self._spawn(self._keep(self._obey)),
            ]
            await self._stopping.wait()
            await self._end_fetch(fetch)
            await self._slots.drain(self._settings.drain_timeout, self._forced)
            await self._leave()
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._books.hang_up()
        _log.info("stopped")
        return int(self._broken)

    async def _end_fetch(self, fetch: "asyncio.Task[None]") -> None:
        async with _at_most(LEAVE):
            while not fetch.done():
                with suppress(RedisError):
                    await self._call(self._books.wake)
                await asyncio.wait({fetch}, timeout=0.05)
            with suppress(RedisError):
                await self._call(self._books.hand_back)
        fetch.cancel()  # only where Redis does not answer: what is held goes back when this worker's lease has run out

    async def _leave(self) -> None:
        with suppress(RedisError):
            async with _at_most(LEAVE):
                await self._endings.join()
                await self._call(self._books.hand_back)  # again: only who holds nothing may leave RQ's list of workers
                await self._call(self.register_death)

    # -- what it does all the time

    def _spawn(self, life: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(life)
        task.add_done_callback(self._watch)
        return task

    def _watch(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            _log.critical("the worker broke: %s", type(error).__name__)
            self._broken = True
            self.request_shutdown()

    async def _keep(
        self,
        step: Callable[[], Awaitable[None]],
        *,
        every: float = 0.0,
        after_outage: float = RETRY,
        until: asyncio.Event | None = None,
    ) -> None:
        over, away = until or asyncio.Event(), False
        while not over.is_set():
            try:
                await step()
            except RedisError as error:
                if not away:
                    _log.warning("%s: Redis is away: %s", step.__name__, type(error).__name__)
                away, pause = True, after_outage
            else:
                away, pause = False, every
            if pause:
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), pause)

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _fetch(self) -> None:
        """Admit a batch. Never cancelled: a job popped for a cancelled task would be run by nobody."""
        if not self._registered or self._slots.free <= 0:
            self._may_take.clear()
            await self._may_take.wait()
            return
        if not await self._call(self._books.take, min(self._slots.free, BATCH)) or self._stopping.is_set():
            return
        for job, execution in await self._call(self._books.admit):
            self._slots.start(job, execution)

    async def _beat(self) -> None:
        lost = await self._call(self._write_beat, self._slots.beating())
        running = {execution.id for execution in self._slots.beating()}  # some may have ended meanwhile
        if lost := [execution for execution in lost if execution.id in running]:
            _log.warning("RQ had given up %d running jobs; they go on", len(lost))
            self._slots.mark_lost(lost)
        if not self._registered:
            self._registered = True
            self._may_take.set()

    def _write_beat(self, executions: Sequence[Execution]) -> list[Execution]:
        """All that RQ knows of this worker, whole, at each beat: a Redis that came back empty learns it again."""
        self.last_heartbeat = now()
        with self.connection.pipeline() as pipe:
            worker_registration.register(self, pipe)
            pipe.hset(self.key, mapping=self.serialize())
            pipe.hset(self.key, "successful_job_count", self.successful_job_count)
            pipe.hset(self.key, "failed_job_count", self.failed_job_count)
            self.set_state(WorkerStatus.BUSY if executions else WorkerStatus.IDLE, pipeline=pipe)
            self.heartbeat(self._books.lease, pipeline=pipe)
            pipe.execute()
        return self._books.beat(executions)

    def _ended(self, ending: Ending) -> None:
        if ending.failure is None:
            self.successful_job_count += 1
        else:
            self.failed_job_count += 1
        self._endings.put_nowait(ending)
        self._may_take.set()

    async def _settle(self) -> None:
        if not self._settling:
            self._settling.append(await self._endings.get())
        while not self._endings.empty():
            self._settling.append(self._endings.get_nowait())
        await self._call(self._books.end, self._settling)
        while self._settling:
            self._settling.pop()
            self._endings.task_done()

    async def _clean(self) -> None:
        await self._call(self._books.clean)

    async def _obey(self) -> None:
        client = connect_blocking(self._settings, longest_block=0)
        async with client, client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(self.pubsub_channel_name)
            async for message in channel.listen():
                with suppress(ValueError):
                    self._command(decode(message["data"]))

    def _command(self, command: Any) -> None:
        match command:
            case {"command": "shutdown"}:
                self.request_shutdown()
            case {"command": "stop-job" | "stop-execution", "job_id": str(job_id)}:
                self._slots.stop(job_id)


@asynccontextmanager
async def _at_most(seconds: float) -> AsyncIterator[None]:
    """Leave the block after so many seconds, done or not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield


def run_worker(settings: Settings, connect: Connect) -> int:
    """What `rejoinder worker` runs: one worker, inside `connect()`, until a signal. Returns the exit code."""
    set_up_logging(settings)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(TurnWorker(settings).serve(connect))
