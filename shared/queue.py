"""The way to the workers: one RQ queue, on which a job is a response id and nothing else.

Law: a job's id is the response's id, and so is its one argument. Enqueueing what is queued or started does nothing.
RQ never retries and keeps no result: what became of a response is in its record, RQ's verdict is bookkeeping.

RQ names all its keys by one prefix, `{rejoinder:rq}` for our prefix `rejoinder:`: one hash tag, so one Cluster slot.
It reads that prefix from the environment, once, when it is first imported. So it is set here, and whoever needs rq
imports this module first. `RQ_KEY_PREFIX='{rejoinder:rq}' rq info` shows the queue to a person.
"""

import os

from redis import BlockingConnectionPool, Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shared.redis_client import Script
from shared.settings import Settings


def rq_prefix(key_prefix: str) -> str:
    """What RQ's keys begin with, given what ours begin with."""
    return f"{{{key_prefix}rq}}"


os.environ["RQ_KEY_PREFIX"] = rq_prefix(Settings().key_prefix)

# ruff: noqa: E402 - rq reads its prefix when it is imported
from rq import Queue
from rq.defaults import RQ_KEY_PREFIX
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.timeouts import TimerDeathPenalty
from rq.utils import now

#: The coroutine function that a worker runs. A dotted path: the API never imports workers.
JOB = "workers.jobs.run_response"
#: The one queue. With a single queue RQ's workers move an id out of it by LMOVE: a crash loses none.
QUEUE = "turns"

#: Seconds that RQ's own deadline comes after the turn's.
TIMEOUT_MARGIN = 60
#: Seconds that a job waits in the queue at most. The sweeper enqueues a response whose job has gone.
WAITING_TTL = 24 * 3600
#: Seconds that a failed job, which holds the name of an exception, stays visible to `rq info`.
FAILURE_TTL = 600

_ENQUEUE = Script("enqueue")
_WAITING = frozenset({JobStatus.QUEUED.encode(), JobStatus.STARTED.encode()})


def ensure_prefix(settings: Settings) -> None:
    """Raise `RuntimeError` where rq was loaded with another key prefix than the settings name."""
    if rq_prefix(settings.key_prefix) != RQ_KEY_PREFIX:
        raise RuntimeError("rq was imported before shared.queue, or the key prefix is not the environment's")


def connect_sync(redis_url: str, settings: Settings, connections: int, longest_block: float = 0.0) -> Redis:
    """A blocking client, as RQ needs it: bounded, with a deadline, never sending a command twice.

    Raises `RuntimeError` as `ensure_prefix`.
    """
    ensure_prefix(settings)
    timeout = settings.redis_timeout
    pool = BlockingConnectionPool.from_url(
        redis_url,
        max_connections=connections,
        timeout=timeout,
        socket_timeout=longest_block + timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,  # with RESP3 redis-py 8 no longer notices pooled connections that the server has closed
    )
    return Redis.from_pool(pool)


def open_queue(connection: Redis) -> Queue:
    """RQ's view of the queue. JSON, not pickle: whoever can write to Redis can't run code in a worker."""
    return Queue(QUEUE, connection, serializer=JSONSerializer, death_penalty_class=TimerDeathPenalty)


class TurnQueue:
    """Enqueues turns: what RQ's own `enqueue` writes, by one script. Raises `RedisError` when Redis is away."""

    def __init__(self, client: AsyncRedis, settings: Settings) -> None:
        ensure_prefix(settings)
        self._client = client
        self._queue = open_queue(Redis())  # never connected: RQ's names of keys and fields, nothing more
        self._timeout = int(settings.turn_timeout) + TIMEOUT_MARGIN

    async def enqueue(self, response_id: str) -> None:
        """Queue the response's turn, unless its job is queued or started. A job that ended makes room for a new one."""
        job = self._queue.create_job(
            JOB,
            args=(response_id,),
            job_id=response_id,
            description=response_id,
            timeout=self._timeout,
            ttl=WAITING_TTL,
            result_ttl=0,
            failure_ttl=FAILURE_TTL,
        )
        job.enqueued_at = now()
        keys = [job.key, self._queue.failed_job_registry.key, Queue.redis_queues_keys, self._queue.key]
        fields = [word for field in job.to_dict().items() for word in field]
        await _ENQUEUE(self._client, keys, [job.id, WAITING_TTL, *fields])

    async def waiting(self) -> int:
        """How many turns are queued, not yet started."""
        return await self._client.llen(self._queue.key)

    async def is_waiting(self, response_id: str) -> bool:
        """Whether RQ takes the response's job for queued or started; a dead worker's jobs count for some seconds."""
        return await self._client.hget(Job.key_for(response_id), "status") in _WAITING
