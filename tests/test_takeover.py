"""Ending a response in the place of its writer, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from records import created, record
from shared.accumulator import Accumulator
from shared.event_log import Append, Appended, EventLog, last_append
from shared.events import IN_PROGRESS, PublicEvent, public_event
from shared.ids import SHARDS
from shared.json_codec import Wire
from shared.keys import Keys
from shared.normalize import normalize
from shared.record import Ending, Record
from shared.redis_client import connect
from shared.response import Status
from shared.settings import Settings
from shared.store import Claim, ResponseStore
from shared.takeover import Takeover
from wire import added, call, done, fa_d, message, ot_d, reasoning, rt_d

#: One turn, event by event: it may be cancelled after each of them.
STORY: list[Wire] = [
    rt_d(0, "rs_1", 0, "hm"),
    rt_d(0, "rs_1", 0, "m"),
    done(0, reasoning("rs_1", "hmm")),
    added(1, "message", "msg_1", role="assistant", content=[], status="in_progress"),
    ot_d(1, "msg_1", 0, "I will"),
    ot_d(1, "msg_1", 0, " add."),
    done(1, message("msg_1", "I will add.")),
    added(2, "function_call", "fc_1", call_id="call_1", name="add", arguments=""),
    fa_d(2, "fc_1", '{"a":'),
    fa_d(2, "fc_1", "1}"),
    done(2, call("fc_1", '{"a":1}')),
]


@dataclass
class House:
    client: Redis
    store: ResponseStore
    event_log: EventLog
    takeover: Takeover

    async def started(self) -> tuple[Record, Accumulator]:
        """A background response that a worker has claimed."""
        new = record(background=True)
        await self.store.create(new, [{"role": "user", "content": "hi"}], [created()])
        claimed = await self.store.claim(new.response_id, "worker")
        assert claimed is not None
        accumulator = Accumulator(claimed.sequence)
        return claimed, accumulator

    async def append(self, owner: Record, events: list[PublicEvent]) -> Appended:
        [answer] = await self.event_log.append([Append(owner, events)])
        assert isinstance(answer, Appended)
        return answer

    async def log(self, response_id: str) -> list[PublicEvent]:
        return [public_event(*entry) for entry in await self.event_log.read(response_id, -1, 1000)]


@pytest.fixture
async def house(settings: Settings) -> AsyncIterator[House]:
    client = connect(settings)
    store, event_log = ResponseStore(client, settings), EventLog(client, settings)
    yield House(client, store, event_log, Takeover(store, event_log))
    await client.aclose()


@pytest.mark.parametrize("cut", range(len(STORY) + 1))
async def test_a_cancel_after_any_event_keeps_what_had_come_and_is_final(house: House, cut: int) -> None:
    owner, accumulator = await house.started()
    started = accumulator.number(IN_PROGRESS, {"response": owner.response()})
    written = [started, *accumulator.feed(map(normalize, STORY[:cut]))]
    assert await house.append(owner, written) is Appended.OK

    ended = await house.takeover.cancel(owner.response_id)
    assert ended is not None
    assert (ended.status, ended.response()["error"]) == (Status.CANCELLED, None)
    kept = [(item["type"], item["status"]) for item in ended.output]
    types = ["reasoning"] * (cut > 0) + ["message"] * (cut > 4) + ["function_call"] * (cut > 7)
    assert [kind for kind, _ in kept] == types
    assert all(status == "completed" for _, status in kept[:-1])
    if kept:
        assert kept[-1][1] == "incomplete"

    late = accumulator.feed(map(normalize, STORY[cut:])) or [accumulator.number(IN_PROGRESS, {})]
    for refused in (
        Append(owner, late),
        last_append(owner, accumulator, accumulator.fail(), Ending(Status.COMPLETED, completed_at=1)),
    ):
        assert await house.event_log.append([refused]) == [Appended.FENCED]
    assert await house.takeover.cancel(owner.response_id) == ended
    assert await house.store.load(owner.response_id) == ended

    log = await house.log(owner.response_id)
    assert [event.sequence_number for event in log] == list(range(len(log)))
    assert (log[-1].type, log[-1].body["response"]) == ("response.failed", ended.response())
    assert [event.type for event in log].count("response.failed") == 1


async def test_what_has_ended_stays_as_it_ended(house: House) -> None:
    owner, accumulator = await house.started()
    closing = last_append(owner, accumulator, accumulator.fail(), Ending(Status.COMPLETED, completed_at=1))
    assert await house.event_log.append([closing]) == [Appended.OK]
    before = await house.store.load(owner.response_id)
    assert await house.takeover.cancel(owner.response_id) == before
    assert before is not None
    assert before.status is Status.COMPLETED


async def test_a_queued_response_never_starts(house: House) -> None:
    new = record(background=True)
    await house.store.create(new, [], [created()])
    ended = await house.takeover.cancel(new.response_id)
    assert ended is not None
    assert (ended.status, list(ended.output)) == (Status.CANCELLED, [])
    assert await house.store.claim(new.response_id, "worker") is None
    assert await house.store.expired(range(SHARDS)) == []


async def test_an_unknown_response(house: House) -> None:
    assert await house.takeover.cancel(record().response_id) is None


async def test_many_cancels_at_once_are_one(house: House) -> None:
    owner, accumulator = await house.started()
    await house.append(owner, accumulator.feed(map(normalize, STORY[:2])))
    ends = await asyncio.gather(*(house.takeover.cancel(owner.response_id) for _ in range(20)))
    assert all(end == ends[0] is not None for end in ends)
    assert [event.type for event in await house.log(owner.response_id)].count("response.failed") == 1


async def test_a_cancel_and_the_turns_own_end_at_once_give_one_end(house: House) -> None:
    for _ in range(20):
        owner, accumulator = await house.started()
        closing = last_append(owner, accumulator, accumulator.fail(), Ending(Status.COMPLETED, completed_at=1))
        answers, ended = await asyncio.gather(
            house.event_log.append([closing]), house.takeover.cancel(owner.response_id)
        )
        assert ended is not None
        assert ended.status is (Status.COMPLETED if answers == [Appended.OK] else Status.CANCELLED)
        assert (await house.log(owner.response_id))[-1].body["response"] == ended.response()


async def test_who_dies_in_the_middle_of_a_cancel_leaves_it_to_the_sweeper(house: House) -> None:
    owner, accumulator = await house.started()
    await house.append(owner, accumulator.feed(map(normalize, STORY[:2])))
    assert await house.store.claim(owner.response_id, "canceller", Claim.CANCEL) is not None
    assert not await house.takeover.end_lost(owner.response_id), "it may still be alive"
    await house.client.zadd(Keys().live_of(owner.response_id), {owner.response_id: 1})
    assert await house.takeover.end_lost(owner.response_id)
    ended = await house.store.load(owner.response_id)
    assert ended is not None
    assert (ended.status, [item["status"] for item in ended.output]) == (Status.CANCELLED, ["incomplete"])


async def test_a_cancel_waits_for_another_that_died_no_longer_than_its_lease(house: House) -> None:
    owner, _ = await house.started()
    assert await house.store.claim(owner.response_id, "canceller", Claim.CANCEL) is not None
    second = asyncio.create_task(house.takeover.cancel(owner.response_id))
    done, _ = await asyncio.wait({second}, timeout=0.3)
    assert not done
    await house.client.zadd(Keys().live_of(owner.response_id), {owner.response_id: 1})
    async with asyncio.timeout(5):
        ended = await second
    assert ended is not None
    assert ended.status is Status.CANCELLED


async def test_a_log_that_is_gone_ends_with_nothing_but_ends(house: House) -> None:
    owner, accumulator = await house.started()
    await house.append(owner, accumulator.feed(map(normalize, STORY[:2])))
    await house.client.delete(Keys().events(owner.response_id))
    ended = await house.takeover.cancel(owner.response_id)
    assert ended is not None
    assert (ended.status, list(ended.output)) == (Status.CANCELLED, [])


async def test_a_long_log_is_folded_whole(house: House) -> None:
    owner, accumulator = await house.started()
    for _ in range(7):
        deltas = [rt_d(0, "rs_1", 0, f"{number} ") for number in range(200)]
        for delta in deltas:  # one by one: a read merges its deltas
            events = accumulator.feed([normalize(delta)])
            assert await house.append(owner, events) is Appended.OK
    ended = await house.takeover.cancel(owner.response_id)
    assert ended is not None
    [item] = ended.output
    assert item["content"][0]["text"] == "".join(f"{number} " for number in range(200)) * 7
