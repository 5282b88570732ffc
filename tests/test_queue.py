import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError

# isort: split
from shared.queue import FAILURE_TTL, JOB, WAITING_TTL, TurnQueue, open_queue, rq_prefix

# isort: split
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from shared.ids import new_response_id
from shared.redis_client import connect
from shared.settings import Settings

PREFIX = "{rejoinder:rq}:"


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[TurnQueue]:
    async with connect(settings) as client:
        yield TurnQueue(client, settings)


@pytest.fixture
def connection(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


def job_of(response_id: str, connection: redis.Redis) -> Job:
    return Job.fetch(response_id, connection=connection, serializer=JSONSerializer)


async def test_a_job_is_the_response_id_and_nothing_else(
    queue: TurnQueue, connection: redis.Redis, settings: Settings
) -> None:
    response_id = new_response_id()
    await queue.enqueue(response_id)
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


async def test_enqueue_puts_a_response_on_the_queue_once(queue: TurnQueue, connection: redis.Redis) -> None:
    first, second = new_response_id(), new_response_id()
    assert not await queue.is_waiting(first)
    for response_id in (first, second, first, first):
        await queue.enqueue(response_id)
    assert open_queue(connection).job_ids == [first, second]
    assert await queue.waiting() == 2
    assert await queue.is_waiting(first)


@pytest.mark.parametrize("status", JobStatus, ids=lambda status: status.value)
async def test_a_job_that_neither_waits_nor_runs_makes_room(
    queue: TurnQueue, connection: redis.Redis, status: JobStatus
) -> None:
    makes_room = status not in (JobStatus.QUEUED, JobStatus.STARTED)
    response_id = new_response_id()
    await queue.enqueue(response_id)
    connection.delete(f"{PREFIX}queue:turns")
    job_of(response_id, connection).set_status(status)
    connection.hset(f"{PREFIX}job:{response_id}", "ended_at", "long ago")
    assert await queue.is_waiting(response_id) is not makes_room
    await queue.enqueue(response_id)
    assert await queue.waiting() == makes_room
    assert await queue.is_waiting(response_id)
    assert connection.hget(f"{PREFIX}job:{response_id}", "ended_at") == (b"" if makes_room else b"long ago")


async def test_a_failed_job_enqueued_again_is_no_failed_job_any_more(queue: TurnQueue, connection: redis.Redis) -> None:
    response_id = new_response_id()
    await queue.enqueue(response_id)
    job = job_of(response_id, connection)
    job.set_status(JobStatus.FAILED)
    job.failed_job_registry.add(job, ttl=60)
    await queue.enqueue(response_id)
    assert job.failed_job_registry.get_job_ids() == []
    assert job_of(response_id, connection).get_status() is JobStatus.QUEUED


async def test_a_lost_redis_is_redis_own_error(own_redis: Any, settings: Settings) -> None:
    server = own_redis()
    async with connect(settings.model_copy(update={"redis_url": server.url})) as client:
        queue = TurnQueue(client, settings)
        await queue.enqueue(new_response_id())
        server.kill()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: queue.enqueue(new_response_id()),
            queue.waiting,
            lambda: queue.is_waiting(new_response_id()),
        ]
        for call in calls:
            with pytest.raises(RedisConnectionError):
                await call()
        server.start()
        await queue.enqueue(new_response_id())


async def test_what_rq_writes_itself_is_what_we_write(queue: TurnQueue, connection: redis.Redis) -> None:
    ours, rqs = new_response_id(), new_response_id()
    await queue.enqueue(ours)
    open_queue(connection).enqueue(JOB, rqs, job_id=rqs, description=rqs, ttl=WAITING_TTL, result_ttl=0)
    written = [connection.hgetall(f"{PREFIX}job:{response_id}") for response_id in (ours, rqs)]
    times = {b"created_at", b"enqueued_at"}
    assert written[0].keys() - {b"failure_ttl"} == written[1].keys()
    for name in written[1].keys() - times - {b"data", b"description", b"timeout"}:
        assert written[0][name] == written[1][name], name


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
    said = run_python(f"{code}; TurnQueue(None, Settings(key_prefix=prefix))")
    assert "RuntimeError: rq was imported before shared.queue" in said.stderr
