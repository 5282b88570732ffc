import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

# isort: split
from records import enqueue

# isort: split
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.registry import clean_registries
from rq.serializers import JSONSerializer

from shared.ids import new_response_id
from shared.settings import Settings
from workers.executions import Ending, Executions


@pytest.fixture
def books(settings: Settings) -> Iterator[Executions]:
    books = Executions(settings, "me")
    yield books
    books.hang_up()


@pytest.fixture
def jobs(settings: Settings) -> list[str]:
    """Four jobs in the queue, in this order."""
    ids = [new_response_id() for _ in range(4)]
    asyncio.run(enqueue(settings, *ids))
    return ids


def ids_of(admitted: list[tuple[Job, Execution]]) -> list[str]:
    return [job.id for job, _ in admitted]


def status_of(job_id: str, books: Executions) -> JobStatus | None:
    job = books.queue.fetch_job(job_id)
    return job and job.get_status()


def started(books: Executions) -> list[str]:
    return books.queue.started_job_registry.get_job_ids(cleanup=False)


def test_taken_in_order_and_admitted_in_one_step(books: Executions, jobs: list[str]) -> None:
    assert books.take(3)
    assert books.queue.job_ids == jobs[3:]
    assert ids_of(books.admit()) == jobs[:3]
    assert sorted(started(books)) == sorted(jobs[:3])
    assert [status_of(job, books) for job in jobs] == [*[JobStatus.STARTED] * 3, JobStatus.QUEUED]
    assert books.admit() == []


def test_what_is_held_goes_back_to_the_front_in_order(books: Executions, jobs: list[str]) -> None:
    books.take(3)
    books.hand_back()
    books.hand_back()
    assert books.queue.job_ids == jobs
    assert started(books) == []


def test_after_an_admission_that_failed_the_next_take_starts_over(
    books: Executions, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    books.take(2)
    with monkeypatch.context() as broken:
        broken.setattr(Job, "fetch_many", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            books.admit()
    books.take(3)
    assert ids_of(books.admit()) == jobs[:3]


def test_what_others_took_back_during_the_admission_is_not_started(
    books: Executions, jobs: list[str], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker paused between pop and admission, given up by the others, and revived."""
    other = Executions(settings, "other")
    fetch_many = Job.fetch_many

    def paused(*arguments: Any, **named: Any) -> list[Job | None]:
        monkeypatch.undo()
        other.hand_back("me")
        return fetch_many(*arguments, **named)

    books.take(2)
    monkeypatch.setattr(Job, "fetch_many", paused)
    assert books.admit() == []
    assert started(books) == []
    assert books.queue.job_ids == jobs
    other.hang_up()


def test_one_id_in_two_workers_hands_is_started_once(
    books: Executions, jobs: list[str], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Executions(settings, "other")
    fetch_many = Job.fetch_many
    books.connection.lpush(books.queue.key, jobs[0])  # queued twice
    books.take(1)
    other.take(1)

    def overtaken(*arguments: Any, **named: Any) -> list[Job | None]:
        monkeypatch.undo()
        fetched = fetch_many(*arguments, **named)
        assert ids_of(other.admit()) == jobs[:1]
        return fetched

    monkeypatch.setattr(Job, "fetch_many", overtaken)
    assert books.admit() == []
    assert started(books) == jobs[:1]
    other.hang_up()


@pytest.mark.parametrize(
    ("failure", "status"),
    [(None, None), ("ValueError", JobStatus.FAILED), ("CancelledError", JobStatus.STOPPED)],
    ids=["success", "failure", "stopped"],
)
def test_a_verdict_is_written_once(
    books: Executions, jobs: list[str], failure: str | None, status: JobStatus | None
) -> None:
    books.take(1)
    [(job, execution)] = books.admit()
    ending = Ending(job, execution, failure, stopped=status is JobStatus.STOPPED)
    books.end([ending])
    books.end([ending])  # sent again: its answer was lost
    assert status_of(job.id, books) is status
    assert started(books) == []
    assert not books.connection.exists(execution.key)
    results = Job.fetch(job.id, connection=books.connection, serializer=JSONSerializer).results() if status else []
    assert [result.exc_string for result in results] == ([failure] if failure else [])


def test_of_a_job_that_was_given_up_neither_beat_nor_end_writes_anything(books: Executions, jobs: list[str]) -> None:
    books.take(2)
    (lost, lost_execution), (kept, kept_execution) = books.admit()
    books.connection.zrem(books.queue.started_job_registry.key, lost_execution.composite_key)
    assert books.beat([lost_execution, kept_execution]) == [lost_execution]
    books.end(
        [Ending(lost, lost_execution, "ValueError", stopped=False), Ending(kept, kept_execution, None, stopped=False)]
    )
    assert status_of(lost.id, books) is JobStatus.STARTED
    assert status_of(kept.id, books) is None
    assert started(books) == []


def test_cleaning_holds_a_short_lock_and_gives_it_back(books: Executions, monkeypatch: pytest.MonkeyPatch) -> None:
    """RQ's own lock, left by a worker that is killed while it cleans, keeps all others out for a quarter of an hour."""
    seen = []

    def spy(queue: Any) -> None:
        seen.append((books.connection.get(queue.registry_cleaning_key), books.connection.ttl(lock)))
        clean_registries(queue)

    lock = books.queue.registry_cleaning_key
    monkeypatch.setattr("workers.executions.clean_registries", spy)
    books.clean()
    [(owner, ttl)] = seen
    assert (owner, 0 < ttl <= 5) == (b"me", True)
    assert not books.connection.exists(lock)
    books.connection.set(lock, "another")
    books.clean()
    assert len(seen) == 1
    assert books.connection.get(lock) == b"another"
