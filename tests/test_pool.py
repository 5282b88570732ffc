import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

# isort: split
from shared.queue import open_queue

# isort: split
from rq.command import send_shutdown_command, send_stop_job_command
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.worker import Worker

from records import enqueue
from shared.ids import new_response_id
from shared.settings import Settings

#: As `pool_jobs.boom` says it.
SECRET = "what the model thought"
PREFIX = "{rejoinder:rq}:"
QUEUE, STARTED = f"{PREFIX}queue:turns", f"{PREFIX}wip:turns"


def until(holds: Callable[[], object], limit: float = 15.0) -> float:
    """Wait for it; how long it took. Fails after `limit` seconds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + limit, "it never came to hold"
        time.sleep(0.01)
    return time.monotonic() - began


class Pool:
    """Worker processes over one Redis, and what a test asks about them."""

    def __init__(self, url: str, settings: Settings, log: Path) -> None:
        self.redis = redis.Redis.from_url(url, retry=None)
        self.queue = open_queue(self.redis)
        self._settings = settings.model_copy(update={"redis_url": url})
        self._log = log
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *, ready: bool = True, **changes: Any) -> subprocess.Popen[bytes]:
        settings = self._settings.model_copy(update=changes)
        here = Path(__file__).parent
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pool_jobs", settings.model_dump_json()],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{here}:{here.parent}"},
                stderr=log,
            )
        self.processes.append(process)
        if ready:
            until(lambda: process.pid in self.workers())
        return process

    def enqueue(self, name: str, *arguments: float, timeout: int = 60) -> str:
        job_id = new_response_id()
        self.queue.enqueue(
            f"pool_jobs.{name}", job_id, *arguments, job_id=job_id, job_timeout=timeout, result_ttl=0, failure_ttl=60
        )
        return job_id

    def job(self, job_id: str) -> Job:
        return Job.fetch(job_id, connection=self.redis, serializer=JSONSerializer)

    def status(self, job_id: str) -> JobStatus:
        return self.job(job_id).get_status()

    def failure(self, job_id: str) -> str:
        """What RQ recorded of the failure, once it has."""
        until(lambda: self.status(job_id) in (JobStatus.FAILED, JobStatus.STOPPED))
        result = self.job(job_id).latest_result()
        assert result is not None
        return str(result.exc_string)

    def started(self) -> int:
        return self.redis.zcard(STARTED)

    def noted(self, key: str) -> list[str]:
        return [note.decode() for note in self.redis.lrange(key, 0, -1)]

    def workers(self) -> dict[int, Worker]:
        return {worker.pid: worker for worker in Worker.all(self.redis)}

    def held(self) -> list[bytes]:
        return list(self.redis.scan_iter(f"{QUEUE}:intermediate*"))

    def log(self) -> str:
        return self._log.read_text()

    def stop(self, process: subprocess.Popen[bytes], limit: float = 5.0) -> float:
        """SIGTERM; how long it took to exit 0."""
        began = time.monotonic()
        process.terminate()
        assert process.wait(limit) == 0, self.log()
        return time.monotonic() - began


@pytest.fixture
def make_pool(settings: Settings, tmp_path: Path) -> Iterator[Callable[[str], Pool]]:
    pools: list[Pool] = []

    def make(url: str) -> Pool:
        pools.append(Pool(url, settings, tmp_path / "worker.log"))
        return pools[-1]

    yield make
    for pool in pools:
        for process in pool.processes:
            process.kill()
            process.wait()
        pool.redis.close()


@pytest.fixture
def pool(redis_url: str, make_pool: Callable[[str], Pool]) -> Pool:
    return make_pool(redis_url)


def test_sixty_jobs_run_at_once_in_one_process_outlive_a_lease_and_leave_nothing(pool: Pool) -> None:
    jobs = [pool.enqueue("nap", 3.3) for _ in range(60)]  # a job that is not beaten is buried after 3 s
    worker = pool.start()
    until(lambda: pool.started() == 60)
    until(lambda: pool.workers()[worker.pid].get_state() == "busy")
    until(lambda: len(pool.noted("ran")) == 60)
    until(lambda: pool.started() == 0)
    assert sorted(pool.noted("ran")) == sorted(jobs)
    until(lambda: pool.workers()[worker.pid].successful_job_count == 60)
    until(lambda: pool.workers()[worker.pid].get_state() == "idle")
    pool.stop(worker)
    assert pool.noted("context") == ["entered", "left"]
    left_over = {key.decode() for key in pool.redis.scan_iter()} - {"ran", "context"}
    name = next(key for key in left_over if key.startswith(f"{PREFIX}worker:"))
    assert left_over == {f"{PREFIX}queues", name}
    assert 0 < pool.redis.ttl(name) <= 60
    assert "WARNING" not in pool.log()
    assert "ERROR" not in pool.log()


def test_no_more_than_concurrency_and_in_order(pool: Pool) -> None:
    jobs = [pool.enqueue("nap", 0.15) for _ in range(12)]
    pool.start(concurrency=3)
    most = 0
    while len(pool.noted("ran")) < 12:
        most = max(most, pool.started())
        assert most <= 3
    assert most == 3
    ran = pool.noted("ran")
    assert [sorted(ran[i : i + 3]) for i in range(0, 12, 3)] == [sorted(jobs[i : i + 3]) for i in range(0, 12, 3)]


def test_what_the_api_enqueues_runs(pool: Pool, settings: Settings, monkeypatch: Any) -> None:
    monkeypatch.setattr("shared.queue.JOB", "pool_jobs.run")
    response_id = new_response_id()
    asyncio.run(enqueue(settings, response_id))
    pool.start()
    until(lambda: pool.noted("ran") == [response_id])
    until(lambda: not pool.redis.exists(Job.key_for(response_id)))


@pytest.mark.parametrize(
    ("name", "failure"),
    [("boom", "ValueError"), ("not_a_coroutine", "TypeError")],
)
def test_a_failure_is_recorded_by_its_class_alone(pool: Pool, name: str, failure: str) -> None:
    worker = pool.start()
    failed, neighbour = pool.enqueue(name), pool.enqueue("nap", 0.0)
    assert pool.failure(failed) == failure
    assert pool.queue.failed_job_registry.get_job_ids() == [failed]
    until(lambda: pool.noted("ran") == [neighbour])
    pool.stop(worker)
    assert f"{failed}: the job failed: {failure}\n" in pool.log()
    stored = b"".join(pool.redis.dump(key) or b"" for key in pool.redis.scan_iter())
    for text in (pool.log(), stored.decode("latin-1")):
        assert SECRET not in text
        assert "Traceback" not in text


def test_a_jobs_timeout_is_its_own(pool: Pool) -> None:
    pool.start()
    slow, neighbour = pool.enqueue("nap", 30.0, timeout=1), pool.enqueue("nap", 1.2)
    assert pool.failure(slow) == "JobTimeoutException"
    until(lambda: pool.noted("ran") == [neighbour])


def test_stop_job_stops_one_among_neighbours(pool: Pool) -> None:
    pool.start()
    neighbours = [pool.enqueue("nap", 1.0) for _ in range(2)]
    stopped = pool.enqueue("write_ending")
    until(lambda: pool.started() == 3)
    send_stop_job_command(pool.redis, stopped, serializer=JSONSerializer)
    assert pool.failure(stopped) == "CancelledError"
    assert pool.status(stopped) is JobStatus.STOPPED
    assert pool.noted("ended") == [stopped]
    until(lambda: sorted(pool.noted("ran")) == sorted(neighbours))


def test_commands_reach_a_worker_that_was_idle_for_long(pool: Pool) -> None:
    worker = pool.start(redis_timeout=0.3)
    time.sleep(0.8)  # more than two timeouts of an idle connection
    assert "Redis is away" not in pool.log()
    pool.redis.publish(f"{PREFIX}pubsub:{pool.workers()[worker.pid].name}", "no JSON")
    send_shutdown_command(pool.redis, pool.workers()[worker.pid].name)
    assert worker.wait(5) == 0


def test_sigterm_ends_an_idle_worker_within_a_second(pool: Pool) -> None:
    worker = pool.start()
    time.sleep(0.3)  # into its blocking pop
    assert pool.stop(worker) < 1.0
    assert pool.workers() == {}


def test_sigterm_drains_what_runs_and_takes_nothing_new(pool: Pool) -> None:
    worker = pool.start(concurrency=2)
    running = [pool.enqueue("nap", 0.8) for _ in range(2)]
    until(lambda: pool.started() == 2)
    worker.terminate()
    late = pool.enqueue("nap", 0.0)
    assert worker.wait(5) == 0
    assert sorted(pool.noted("ran")) == sorted(running)
    assert pool.queue.job_ids == [late]
    assert pool.status(late) is JobStatus.QUEUED
    assert (pool.started(), pool.held(), pool.workers()) == (0, [], {})


def test_after_the_drain_timeout_jobs_are_cancelled_and_write_their_ending(pool: Pool) -> None:
    worker = pool.start(drain_timeout=0.5)
    job = pool.enqueue("write_ending")
    until(lambda: pool.started() == 1)
    assert 0.5 < pool.stop(worker) < 2.5
    assert pool.noted("ended") == [job]
    assert pool.failure(job) == "CancelledError"
    assert pool.started() == 0
    assert pool.noted("context") == ["entered", "left"]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_second_signal_cancels_at_once(pool: Pool, second: signal.Signals) -> None:
    worker = pool.start(drain_timeout=30.0)
    job = pool.enqueue("write_ending")
    until(lambda: pool.started() == 1)
    worker.terminate()
    until(lambda: "stopping, 1 jobs running" in pool.log())
    began = time.monotonic()
    worker.send_signal(second)
    assert worker.wait(5) == 0
    assert time.monotonic() - began < 2.0
    assert pool.noted("ended") == [job]


def test_a_flood_with_sigterm_again_and_again_loses_nothing_and_repeats_nothing(pool: Pool) -> None:
    jobs = [pool.enqueue("nap", 0.02) for _ in range(400)]
    for patience in (0.0, 0.05, 0.15):
        worker = pool.start(concurrency=20, drain_timeout=5.0)
        time.sleep(patience)
        pool.stop(worker, limit=20.0)
        assert (pool.started(), pool.held()) == (0, [])
        assert Counter(pool.noted("ran") + pool.queue.job_ids) == Counter(jobs)
    assert pool.noted("ran"), "the flood never began"
    pool.start()
    until(lambda: len(pool.noted("ran")) == 400)
    assert Counter(pool.noted("ran")) == Counter(jobs)


def test_kill_9_again_and_again_loses_nothing_and_the_others_clean_up_within_seconds(pool: Pool) -> None:
    """A job that ran when its worker was killed fails. Every other one runs, once, whatever hands it was in."""
    victim = pool.start()
    killed = [pool.enqueue("nap", 60.0) for _ in range(20)]
    until(lambda: pool.started() == 20)
    victim.kill()
    flood = [pool.enqueue("nap", 0.02) for _ in range(400)]
    for patience in (0.0, 0.03, 0.1):
        worker = pool.start(concurrency=20)
        time.sleep(patience)
        worker.kill()
    heir = pool.start()
    took = until(lambda: pool.redis.llen(QUEUE) == 0 and pool.started() == 0 and pool.held() == [])
    assert took < 8.0
    ran, failed = pool.noted("ran"), pool.queue.failed_job_registry.get_job_ids()
    assert {*ran, *failed} == {*killed, *flood}
    assert len(ran) == len(set(ran))
    assert set(killed) <= set(failed)
    assert len(failed) <= 20 + 3 * 20
    assert {pool.status(job) for job in failed} == {JobStatus.FAILED}
    until(lambda: set(pool.workers()) == {heir.pid})


def test_what_a_killed_worker_held_goes_back_to_the_front_in_order(pool: Pool) -> None:
    """kill -9 between the pop and the admission, as it stands in Redis afterwards."""
    held = [pool.enqueue("nap", 0.0) for _ in range(3)]
    first, last = pool.enqueue("nap", 1.0), pool.enqueue("nap", 0.0)
    dead = f"{PREFIX}worker:0123456789abcdef"
    for registry in ("workers", "workers:turns"):
        pool.redis.sadd(PREFIX + registry, dead)
    for _ in held:
        pool.redis.lmove(QUEUE, f"{QUEUE}:intermediate:0123456789abcdef", "LEFT", "RIGHT")
    pool.start(concurrency=1)
    until(lambda: len(pool.noted("ran")) == 5)
    assert [job for job in pool.noted("ran") if job != first] == [*held, last]
    assert pool.held() == []
    assert not pool.redis.sismember(f"{PREFIX}workers", dead)


def test_an_id_queued_twice_runs_once_and_one_without_a_job_is_dropped(pool: Pool) -> None:
    job = pool.enqueue("nap", 0.3)
    pool.redis.rpush(QUEUE, job, "resp_gone", job)
    last = pool.enqueue("nap", 0.0)
    pool.start(concurrency=2)
    until(lambda: len(pool.noted("ran")) == 2)
    until(lambda: (pool.started(), pool.redis.llen(QUEUE), pool.held()) == (0, 0, []))
    assert sorted(pool.noted("ran")) == sorted([job, last])


def test_an_execution_that_rq_gave_up_goes_on_and_its_end_writes_nothing(pool: Pool) -> None:
    pool.start()
    job = pool.enqueue("nap", 1.2)
    until(lambda: pool.started() == 1)
    pool.redis.delete(STARTED)
    pool.job(job).set_status(JobStatus.QUEUED)  # somebody enqueued it again
    until(lambda: "RQ had given up 1 running jobs" in pool.log())
    until(lambda: pool.noted("ran") == [job])
    until(lambda: next(iter(pool.workers().values())).successful_job_count == 1)
    assert pool.status(job) is JobStatus.QUEUED
    assert pool.log().count("RQ had given up") == 1


def test_rq_info_shows_the_pool_and_every_key_stands_under_the_prefix(pool: Pool) -> None:
    pool.start()
    running = [pool.enqueue("dream", 5.0) for _ in range(2)]
    until(lambda: pool.started() == 2)
    until(lambda: next(iter(pool.workers().values())).get_state() == "busy")
    url = pool.redis.connection_pool.connection_kwargs["path"]
    said = subprocess.run(
        [Path(sys.executable).parent / "rq", "info", "-u", f"unix://{url}"],
        env={"PATH": os.environ["PATH"], "RQ_KEY_PREFIX": PREFIX[:-1]},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    assert "turns" in said
    assert "busy" in said
    assert "1 workers, 1 queues" in said
    keys = [key.decode() for key in pool.redis.scan_iter() if key != b"context"]
    assert [key for key in keys if not key.startswith(PREFIX)] == []
    for job_id in running:
        assert pool.job(job_id).worker_name == next(iter(pool.workers().values())).name
    assert {execution.job_id for execution in executions(pool)} == set(running)


def executions(pool: Pool) -> list[Execution]:
    return next(iter(pool.workers().values())).get_current_executions()


def test_a_redis_that_comes_back_while_jobs_run_finds_them_running(own_redis: Any, make_pool: Any) -> None:
    server = own_redis()
    pool = make_pool(server.url)
    worker = pool.start()
    ends_later, ends_meanwhile = pool.enqueue("dream", 2.5), pool.enqueue("dream", 0.8)
    until(lambda: pool.started() == 2)
    server.stop()
    until(lambda: "Redis is away" in pool.log())
    time.sleep(0.6)
    server.start()
    until(lambda: pool.started() == 1)
    assert not pool.redis.exists(Job.key_for(ends_meanwhile))
    assert pool.status(ends_later) is JobStatus.STARTED
    until(lambda: pool.started() == 0)
    after = pool.enqueue("nap", 0.0)
    until(lambda: pool.noted("ran") == [after])
    until(lambda: pool.workers()[worker.pid].successful_job_count == 3)
    pool.stop(worker)


def test_a_redis_that_comes_back_empty_gets_to_know_the_idle_worker_again(own_redis: Any, make_pool: Any) -> None:
    server = own_redis()
    pool = make_pool(server.url)
    worker = pool.start()
    server.kill()
    for file in server.folder.rglob("*.aof*"):  # Redis 7 keeps them in a folder of their own
        file.unlink()
    until(lambda: "Redis is away" in pool.log())
    server.start()
    assert pool.noted("context") == []
    until(lambda: worker.pid in pool.workers())
    job = pool.enqueue("nap", 0.0)
    until(lambda: pool.noted("ran") == [job])
    assert pool.stop(worker) < 1.0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["gone", "silent"])
def test_sigterm_while_redis_is_away_ends_within_seconds(own_redis: Any, make_pool: Any, how: signal.Signals) -> None:
    server = own_redis()
    pool = make_pool(server.url)
    worker = pool.start(drain_timeout=0.3, redis_timeout=1.0)
    pool.enqueue("dream", 60.0)
    until(lambda: pool.started() == 1)
    os.kill(server.pid, how)
    if how is signal.SIGKILL:
        until(lambda: "Redis is away" in pool.log())
    try:
        assert pool.stop(worker, limit=8.0) < 8.0
    finally:
        os.kill(server.pid, signal.SIGKILL)
    assert "Traceback" not in pool.log()


def test_a_worker_waits_for_a_redis_that_is_not_there_yet(own_redis: Any, make_pool: Any) -> None:
    server = own_redis()
    pool = make_pool(server.url)
    job = pool.enqueue("dream", 0.1)
    server.stop()
    pool.start(ready=False)
    until(lambda: "Redis is away" in pool.log())
    server.start()
    until(lambda: not pool.redis.exists(Job.key_for(job)))
