import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError

# isort: split
from shared.queue import FAILURE_TTL, WAITING_TTL, TurnQueue, open_queue, rq_prefix

# isort: split
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from shared.ids import new_response_id
from shared.settings import Settings

PREFIX = "{rejoinder:rq}:"


@pytest.fixture
def queue(redis_url: str, settings: Settings) -> Iterator[TurnQueue]:
    queue = TurnQueue(redis_url, settings)
    yield queue
    queue.close()


@pytest.fixture
def connection(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


def job_of(response_id: str, connection: redis.Redis) -> Job:
    return Job.fetch(response_id, connection=connection, serializer=JSONSerializer)


def test_a_job_is_the_response_id_and_nothing_else(
    queue: TurnQueue, connection: redis.Redis, settings: Settings
) -> None:
    response_id = new_response_id()
    queue.enqueue(response_id)
    job = job_of(response_id, connection)
    assert (job.func_name, job.args, job.kwargs) == ("workers.jobs.run_response", [response_id], {})
    assert (job.description, job.meta, job.retries_left) == (response_id, {}, None)
    assert (job.timeout, job.result_ttl, job.failure_ttl) == (settings.turn_timeout + 60, 0, FAILURE_TTL)
    assert 0 < connection.ttl(job.key) <= WAITING_TTL
    assert sorted(map(bytes.decode, connection.keys())) == [
        f"{PREFIX}job:{response_id}",
        f"{PREFIX}queue:turns",
        f"{PREFIX}queues",
    ]


def test_enqueue_puts_a_response_on_the_queue_once(queue: TurnQueue, connection: redis.Redis) -> None:
    first, second = new_response_id(), new_response_id()
    assert not queue.is_waiting(first)
    for response_id in (first, second, first, first):
        queue.enqueue(response_id)
    assert open_queue(connection).job_ids == [first, second]
    assert queue.waiting() == 2
    assert queue.is_waiting(first)


@pytest.mark.parametrize("status", JobStatus, ids=lambda status: status.value)
def test_a_job_that_neither_waits_nor_runs_makes_room(
    queue: TurnQueue, connection: redis.Redis, status: JobStatus
) -> None:
    makes_room = status not in (JobStatus.QUEUED, JobStatus.STARTED)
    response_id = new_response_id()
    queue.enqueue(response_id)
    connection.delete(f"{PREFIX}queue:turns")
    job_of(response_id, connection).set_status(status)
    connection.hset(f"{PREFIX}job:{response_id}", "ended_at", "long ago")
    assert queue.is_waiting(response_id) is not makes_room
    queue.enqueue(response_id)
    assert queue.waiting() == makes_room
    assert queue.is_waiting(response_id)
    assert connection.hget(f"{PREFIX}job:{response_id}", "ended_at") == (b"" if makes_room else b"long ago")


def test_a_failed_job_enqueued_again_is_no_failed_job_any_more(queue: TurnQueue, connection: redis.Redis) -> None:
    response_id = new_response_id()
    queue.enqueue(response_id)
    job = job_of(response_id, connection)
    job.set_status(JobStatus.FAILED)
    job.failed_job_registry.add(job, ttl=60)
    queue.enqueue(response_id)
    assert job.failed_job_registry.get_job_ids() == []
    assert job_of(response_id, connection).get_status() is JobStatus.QUEUED


def test_a_lost_redis_is_redis_own_error_at_once(own_redis: Any, settings: Settings) -> None:
    server = own_redis()
    queue = TurnQueue(server.url, settings)
    queue.enqueue(new_response_id())
    server.kill()
    for call in (
        lambda: queue.enqueue(new_response_id()),
        queue.waiting,
        lambda: queue.is_waiting(new_response_id()),
    ):
        with pytest.raises(RedisConnectionError):
            call()
    server.start()
    queue.enqueue(new_response_id())
    queue.close()


@pytest.mark.parametrize(
    ("ours", "rqs"), [("rejoinder:", "{rejoinder:rq}"), ("", "{rq}"), ("a:b:", "{a:b:rq}")], ids=repr
)
def test_rq_prefix(ours: str, rqs: str) -> None:
    assert rq_prefix(ours) == rqs


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_environments_key_prefix_names_rqs_keys() -> None:
    code = "import workers.pool, rq.queue; print(rq.queue.Queue.redis_queues_keys)"
    said = run_python(code, REJOINDER_KEY_PREFIX="other:", RQ_KEY_PREFIX="rq")
    assert said.stdout == "{other:rq}:queues\n"


@pytest.mark.parametrize(
    "code",
    [
        "import rq; from shared.queue import TurnQueue; from shared.settings import Settings; prefix = 'rejoinder:'",
        "from shared.queue import TurnQueue; from shared.settings import Settings; prefix = 'other:'",
    ],
    ids=["rq imported first", "settings of another prefix"],
)
def test_rq_under_another_prefix_is_refused(code: str) -> None:
    said = run_python(f"{code}; TurnQueue('redis://127.0.0.1:1/0', Settings(key_prefix=prefix))")
    assert "RuntimeError: rq was imported before shared.queue" in said.stderr
