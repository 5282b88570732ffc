"""What the sweeper does about responses that nobody looks after, on a real Redis and RQ's real queue."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from records import created, record
from shared.event_log import Append, EventLog
from shared.events import PublicEvent, public_event
from shared.json_codec import Wire
from shared.keys import Keys
from shared.queue import TurnQueue
from shared.record import Ending, Record
from shared.redis_client import connect
from shared.response import Status
from shared.settings import Settings
from shared.store import ResponseStore
from workers.jobs import connect as connect_worker
from workers.sweeper import Sweeper
from workers.turn import TurnContext

USER: Wire = {"role": "user", "content": "hi"}


@dataclass
class House:
    client: Redis
    store: ResponseStore
    event_log: EventLog
    queue: TurnQueue
    context: TurnContext
    sweeper: Sweeper

    async def create(self, parent: str | None = None) -> Record:
        """A background response as the API leaves it when it dies before it enqueues."""
        new = record(parent=parent, background=True)
        await self.store.create(new, [USER], [created()])
        return new

    async def let_lease_run_out(self, lost: Record) -> None:
        key = Keys().live_of(lost.response_id)
        assert await self.client.zadd(key, {lost.response_id: 1}, xx=True, ch=True) == 1


@pytest.fixture
async def house(settings: Settings) -> AsyncIterator[House]:
    slow = settings.model_copy(update={"sweep_interval": 3600.0})  # swept by hand
    client = connect(slow)
    queue = TurnQueue(client, slow)
    async with connect_worker(slow) as context:
        yield House(
            client, ResponseStore(client, slow), EventLog(client, slow), queue, context, Sweeper(context, queue)
        )
    await client.aclose()


async def test_a_response_whose_submitter_died_is_enqueued_once_its_lease_runs_out(house: House) -> None:
    lost = await house.create()
    await house.sweeper.sweep()
    assert await house.queue.waiting() == 0, "its submitter may be about to enqueue it"
    await house.let_lease_run_out(lost)
    await house.sweeper.sweep()
    await house.sweeper.sweep()
    assert await house.queue.waiting() == 1
    assert await house.queue.is_waiting(lost.response_id)


async def test_a_job_that_waits_in_a_long_queue_is_left_alone(house: House) -> None:
    lost = await house.create()
    await house.queue.enqueue(lost.response_id)
    for _ in range(3):
        await house.let_lease_run_out(lost)
        await house.sweeper.sweep()
    assert await house.queue.waiting() == 1
    loaded = await house.store.load(lost.response_id)
    assert loaded is not None
    assert loaded.status is Status.QUEUED


async def test_a_continuation_waits_for_its_parent_and_is_enqueued_by_its_end(house: House) -> None:
    parent = await house.create()
    child = await house.create(parent.response_id)
    claimed = await house.store.claim(parent.response_id, "t")
    assert claimed is not None
    await house.let_lease_run_out(child)
    await house.sweeper.sweep()
    assert await house.queue.waiting() == 0
    end = PublicEvent("response.completed", 1, {"response": {}})
    await house.event_log.append([Append(claimed, [end], Ending(Status.COMPLETED))])  # and its worker dies here
    await house.sweeper.sweep()
    assert await house.queue.is_waiting(child.response_id)
    assert await house.client.xlen(Keys().outbox_of(child.response_id)) == 0


async def test_a_continuation_that_even_the_outbox_lost_is_found(house: House) -> None:
    parent = await house.create()
    child = await house.create(parent.response_id)
    claimed = await house.store.claim(parent.response_id, "t")
    assert claimed is not None
    await house.client.delete(Keys().children(parent.response_id))
    end = PublicEvent("response.completed", 1, {"response": {}})
    await house.event_log.append([Append(claimed, [end], Ending(Status.COMPLETED))])
    await house.let_lease_run_out(child)
    await house.sweeper.sweep()
    assert await house.queue.is_waiting(child.response_id)


async def test_a_lost_turn_ends_as_failed_with_its_items_and_the_next_numbers(house: House) -> None:
    lost = await house.create()
    claimed = await house.store.claim(lost.response_id, "t")
    assert claimed is not None
    item: Wire = {"id": "rs_1", "type": "reasoning", "summary": [], "status": "in_progress"}
    place = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    events = [
        PublicEvent("response.in_progress", 1, {"response": {}}),
        PublicEvent("response.output_item.added", 2, {"output_index": 0, "item": item}),
        PublicEvent("response.content_part.added", 3, {**place, "part": {"type": "reasoning_text", "text": ""}}),
        PublicEvent("response.reasoning_text.delta", 4, {**place, "delta": "half a thou"}),
    ]
    await house.event_log.append([Append(claimed, events)])
    await house.sweeper.sweep()
    assert (await house.store.load(lost.response_id) or lost).status is Status.IN_PROGRESS, "its lease lives"
    await house.let_lease_run_out(lost)
    await house.sweeper.sweep()
    ended = await house.store.load(lost.response_id)
    assert ended is not None
    assert (ended.status, ended.failures, ended.fence) == (Status.FAILED, 1, 2)
    thought = [{"type": "reasoning_text", "text": "half a thou"}]
    assert list(ended.output) == [{**item, "content": thought, "status": "incomplete"}]
    log = [public_event(*entry) for entry in await house.event_log.read(lost.response_id, 4, 100)]
    assert [event.sequence_number for event in log] == list(range(5, 5 + len(log)))
    assert [event.type for event in log] == [
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.failed",
    ]
    assert log[-1].body["response"] == ended.response()
    assert await house.client.zscore(Keys().live_of(lost.response_id), lost.response_id) is None


async def test_a_log_that_can_not_be_read_ends_as_failed_and_stops_no_sweeper(house: House) -> None:
    broken, other = await house.create(), await house.create()
    for lost in (broken, other):
        assert await house.store.claim(lost.response_id, "t") is not None
        await house.let_lease_run_out(lost)
    key = Keys().events(broken.response_id)
    await house.client.delete(key)
    await house.client.xadd(key, {"response.created": b"{"}, id="1-1")
    await house.sweeper.sweep()
    for lost in (broken, other):
        assert (await house.store.load(lost.response_id) or lost).status is Status.FAILED


async def test_what_is_gone_is_forgotten(house: House) -> None:
    lost = await house.create()
    await house.client.delete(Keys().response(lost.response_id))
    await house.let_lease_run_out(lost)
    await house.sweeper.sweep()
    assert await house.client.zscore(Keys().live_of(lost.response_id), lost.response_id) is None
    assert await house.queue.waiting() == 0
