"""One worker's jobs in RQ's books, from the queue to the verdict. Blocking, so called in threads; raises `RedisError`.

    queue ──take──► held ──admit──► started ──end──► gone, or failed
      ▲              │                 │
      └──hand_back───┘                 └─ not beaten for a lease: failed, by the worker that cleans

Law: an id leaves a place only for the next one, in one atomic step, so whatever dies or is sent twice, no job is lost.
`held` belongs to one worker. (RQ's intermediate queue is shared: there an id counts as lost only after a minute. Here
the others know a dead worker by its missing heartbeat, and put back what it held.) An execution that was declared dead
belongs to others, its end writes nothing. That a response runs twice, its own fence prevents, not RQ's books.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis.client import Pipeline

# isort: split
from shared.queue import connect_sync, open_queue

# isort: split
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.job_lifecycle import record_job_failure
from rq.registry import clean_registries
from rq.scripts import release_lock
from rq.utils import as_text, missing_keys
from rq.worker import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY, get_keys

from shared.settings import Settings

#: Seconds that one BLMOVE waits. It ends earlier with a job, or when `wake` is called.
LONGEST_BLOCK = 5
#: Seconds that the lock of `clean` outlives a worker that was killed while it cleaned (RQ's own lives 15 minutes).
CLEANING_TTL = 5


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """How a job ended: `failure` is an exception's class name and never more; None after success."""

    job: Job
    execution: Execution
    failure: str | None
    stopped: bool


class Executions:
    """The books of the worker `name`. `lease` is how many seconds a started job lives without a beat."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.connection = connect_sync(settings.redis_url, settings, connections=8)
        self.queue = open_queue(self.connection)
        self.lease = max(2, math.ceil(settings.lease))
        self._popper = connect_sync(settings.redis_url, settings, connections=1, longest_block=LONGEST_BLOCK)
        self._popper_id: int | None = None
        self._name = name
        self._held = self._held_by(name)
        self._unsure = False

    def _held_by(self, name: str) -> str:
        return f"{self.queue.intermediate_queue_key}:{name}"

    def take(self, most: int) -> bool:
        """Hold up to `most` jobs from the front of the queue, or wait a while for one. Whether any came."""
        if self._unsure:
            self.hand_back()
        self._unsure = True
        with self.connection.pipeline(transaction=False) as pipe:
            for _ in range(most):
                pipe.lmove(self.queue.key, self._held, "LEFT", "RIGHT")
            if any(moved is not None for moved in pipe.execute()):
                return True
        self._popper_id = self._popper.client_id()  # another one after every reconnection
        return self._popper.blmove(self.queue.key, self._held, LONGEST_BLOCK, "LEFT", "RIGHT") is not None

    def wake(self) -> None:
        """Make a waiting `take` return now. Harmless when none waits, or not yet."""
        if self._popper_id is not None:
            self.connection.client_unblock(self._popper_id)

    def admit(self) -> list[tuple[Job, Execution]]:
        """Start what is held: all of it in one step, or none. Ids whose job has gone or is not queued are dropped."""
        admitted: list[tuple[Job, Execution]] = []

        def write(pipe: Pipeline) -> None:
            admitted[:] = self._admission(pipe)

        self.connection.transaction(write, self._held)
        self._unsure = False
        return admitted

    def _admission(self, pipe: Pipeline) -> list[tuple[Job, Execution]]:
        ids = list(dict.fromkeys(as_text(job_id) for job_id in pipe.lrange(self._held, 0, -1)))
        if ids:
            pipe.watch(*map(Job.key_for, ids))  # type: ignore[no-untyped-call]  # redis-py's own gap
        jobs = Job.fetch_many(ids, connection=self.connection, serializer=self.queue.serializer)
        pipe.multi()
        admitted = []
        for job in jobs:
            if job is None or job.get_status(refresh=False) is not JobStatus.QUEUED:
                continue
            execution = Execution.create(job, self.lease, pipeline=pipe, worker_name=self._name)
            job.prepare_for_execution(self._name, pipeline=pipe)
            pipe.persist(job.key)
            admitted.append((job, execution))
        pipe.delete(self._held)
        return admitted

    def hand_back(self, name: str | None = None) -> None:
        """Put what this worker holds, or a dead one of that name held, back at the front of the queue, in its order."""
        held = self._held if name is None else self._held_by(name)
        while count := self.connection.llen(held):
            with self.connection.pipeline() as pipe:
                for _ in range(count):
                    pipe.lmove(held, self.queue.key, "RIGHT", "LEFT")
                pipe.execute()

    def beat(self, executions: Sequence[Execution]) -> list[Execution]:
        """Keep these executions alive for another lease. Returns those that had been declared dead meanwhile."""
        if not executions:
            return []
        registry = self.queue.started_job_registry
        scores = self.connection.zmscore(registry.key, [execution.composite_key for execution in executions])
        with self.connection.pipeline(transaction=False) as pipe:
            for execution, score in zip(executions, scores, strict=True):
                if score is not None:
                    execution.heartbeat(registry, self.lease, pipeline=pipe)
            pipe.execute()
        return [execution for execution, score in zip(executions, scores, strict=True) if score is None]

    def end(self, endings: Sequence[Ending]) -> None:
        """Write the verdicts of the executions that are still ours. Can be sent again when its answer was lost."""
        started = self.queue.started_job_registry.key
        alive_until = time.time() + self.lease
        with self.connection.pipeline(transaction=False) as pipe:
            for ending in endings:
                pipe.zadd(started, {ending.execution.composite_key: alive_until}, xx=True, ch=True)
            ours = pipe.execute()
        with self.connection.pipeline() as pipe:
            for ending, is_ours in zip(endings, ours, strict=True):
                if is_ours:
                    self._write_end(ending, pipe)
            pipe.execute()

    @staticmethod
    def _write_end(ending: Ending, pipe: Pipeline) -> None:
        job = ending.job
        ending.execution.delete(job=job, pipeline=pipe)
        if ending.failure is None:
            pipe.delete(job.key)
            return
        record_job_failure(job, ending.failure, pipe)
        if ending.stopped:
            job.set_status(JobStatus.STOPPED, pipeline=pipe)

    def clean(self) -> None:
        """Bury the dead: their held jobs go back into the queue, their started jobs fail. One worker at a time."""
        lock = self.queue.registry_cleaning_key
        if not self.connection.set(lock, self._name, nx=True, ex=CLEANING_TTL):
            return
        try:
            for key in missing_keys(self.connection, list(get_keys(self.queue))):
                self.hand_back(key.removeprefix(BaseWorker.redis_worker_namespace_prefix))
                self.connection.srem(WORKERS_BY_QUEUE_KEY % self.queue.name, key)
                self.connection.srem(REDIS_WORKER_KEYS, key)
            clean_registries(self.queue)
        finally:
            release_lock(self.connection, lock, self._name)

    def hang_up(self) -> None:
        """Close every connection, under whoever is using it."""
        self._popper.connection_pool.disconnect()
        self.connection.connection_pool.disconnect()
