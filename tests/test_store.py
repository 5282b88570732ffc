"""Records, claims, leases and rehydration on a real Redis."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from records import created, record
from shared.errors import InvalidRequest
from shared.event_log import Append, Appended, EventLog
from shared.events import PublicEvent
from shared.history import item_history
from shared.ids import new_response_id, shard_of
from shared.json_codec import Wire
from shared.record import Ending, Record
from shared.redis_client import connect
from shared.response import Status
from shared.settings import Settings
from shared.store import Claim, Creation, ResponseStore, parent_not_found

USER: Wire = {"role": "user", "content": "Grüße 北 \u2028"}
REASONING: Wire = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}, {"type": "reasoning_text", "text": " \n"}],
    "encrypted_content": None,
    "status": None,
    "x_unknown": {"big": 123456789012345678901234567890, "empty": []},
}
MESSAGE: Wire = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    connection = connect(settings)
    yield connection
    await connection.aclose()


@pytest.fixture
def store(client: Redis, settings: Settings) -> ResponseStore:
    return ResponseStore(client, settings)


@pytest.fixture
def event_log(client: Redis, settings: Settings) -> EventLog:
    return EventLog(client, settings)


async def finished(
    store: ResponseStore, event_log: EventLog, new: Record, items: list[Wire], output: list[Wire], status: Status
) -> Record:
    """Create a response and take it to its end."""
    assert await store.create(new, items, [created()]) is Creation.READY
    claimed = await store.claim(new.response_id, "t")
    assert claimed is not None
    done = [
        PublicEvent("response.output_item.done", 1 + index, {"output_index": index, "item": item})
        for index, item in enumerate(output)
    ]
    terminal = PublicEvent(f"response.{status.value}", 1 + len(output), {"response": {}})
    [answer] = await event_log.append([Append(claimed, [*done, terminal], Ending(status))])
    assert answer is Appended.OK
    return claimed


async def test_a_record_survives_the_store_whole(store: ResponseStore) -> None:
    new = record(background=True, tools=[{"type": "function", "name": "f", "parameters": None}], metadata={"k": "v"})
    await store.create(new, [USER, REASONING], [created()])
    loaded = await store.load(new.response_id)
    assert loaded is not None
    assert (loaded.options, loaded.seed, loaded.status, loaded.sequence) == (new.options, 7, Status.QUEUED, 1)
    assert await store.input_items(new.response_id) == [USER, REASONING]
    assert loaded.response() == new.response()


async def test_creating_twice_creates_once(store: ResponseStore, event_log: EventLog) -> None:
    new = record()
    await store.create(new, [USER], [created()])
    claimed = await store.claim(new.response_id, "t")
    await store.create(new, [USER], [created()])
    again = await store.load(new.response_id)
    assert claimed is not None
    assert again is not None
    assert again.fence == claimed.fence == 1
    assert len(await event_log.read(new.response_id, -1, 10)) == 1


@pytest.mark.parametrize("unknown", ["", "resp_1", new_response_id()])
async def test_an_unknown_id_is_nothing_anywhere(store: ResponseStore, unknown: str) -> None:
    assert await store.load(unknown) is None
    with pytest.raises(InvalidRequest) as refused:
        await store.rehydrate(unknown)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_of_many_claims_one_wins_and_sending_it_again_is_the_same_claim(store: ResponseStore) -> None:
    new = record()
    await store.create(new, [USER], [created()])
    claims = await asyncio.gather(*(store.claim(new.response_id, f"t{n}") for n in range(20)))
    winners = [number for number, claim in enumerate(claims) if claim is not None]
    assert len(winners) == 1
    again = await store.claim(new.response_id, f"t{winners[0]}")
    assert again is not None
    assert again.fence == 1


async def test_a_claim_for_a_lost_turn_needs_a_lease_that_ran_out(client: Redis, settings: Settings) -> None:
    store = ResponseStore(client, settings.model_copy(update={"lease": 0.3}))
    new = record(background=True)
    await store.create(new, [USER], [created()])
    assert await store.claim(new.response_id, "lost-0", Claim.LOST) is None, "never claimed: nobody lost it"
    first = await store.claim(new.response_id, "a")
    assert first is not None
    assert await store.claim(new.response_id, "lost-1", Claim.LOST) is None, "its lease lives"
    shard = shard_of(new.response_id)
    assert shard is not None
    async with asyncio.timeout(5):
        while await store.expired([shard]) != [new.response_id]:
            await asyncio.sleep(0.01)
    taken = await store.claim(new.response_id, "lost-2", Claim.LOST)
    assert taken is not None
    assert (taken.fence, taken.failures) == (2, 1)
    assert await store.renew({new.response_id: 1}) == {new.response_id}, "the old fence is lost"
    assert await store.renew({new.response_id: 2}) == set()


async def test_a_claim_that_is_overtaken_before_it_is_read_back_is_not_the_writer(
    client: Redis, settings: Settings, event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker paused between its claim and the next line must not wake up with its successor's fence."""
    slow, other = ResponseStore(client, settings), ResponseStore(client, settings)
    new = record()
    await slow.create(new, [USER], [created()])

    async def paused(response_id: str) -> Record | None:
        monkeypatch.undo()
        await client.zadd(f"rejoinder:{{s{shard_of(response_id):02d}}}:live", {response_id: 1})
        assert await other.claim(response_id, "later", Claim.LOST) is not None
        return await slow.load(response_id)

    monkeypatch.setattr(slow, "load", paused)
    overtaken = await slow.claim(new.response_id, "early")
    assert overtaken is not None
    assert await event_log.append([Append(overtaken, [created(1)])]) == [Appended.FENCED]


APPENDS = [
    # fence, first sequence number, number of events, answer
    ("the next events", 1, 1, 2, Appended.OK),
    ("another writer's", 0, 1, 1, Appended.FENCED),
    ("a writer to come", 2, 1, 1, Appended.FENCED),
    ("a gap", 1, 2, 1, Appended.GAP),
    ("what is there already", 1, 0, 1, Appended.OK),
]


@pytest.mark.parametrize(("name", "fence", "first", "count", "expected"), APPENDS, ids=[row[0] for row in APPENDS])
async def test_an_append_is_taken_only_from_the_writer_and_only_in_order(
    store: ResponseStore, event_log: EventLog, name: str, fence: int, first: int, count: int, expected: Appended
) -> None:
    new = record()
    await store.create(new, [USER], [created()])
    claimed = await store.claim(new.response_id, "t")
    assert claimed is not None
    writer = Record.read(new.response_id, _fields(claimed, fence))
    events = [PublicEvent("x.y", first + number, {"n": number}) for number in range(count)]
    for _ in range(2):  # sent again after a lost answer: the same answer, and nothing twice
        assert await event_log.append([Append(writer, events)]) == [expected]
    stored = [number for number, _ in await event_log.read(new.response_id, -1, 10)]
    assert stored == list(range(3 if name == "the next events" else 1))


def _fields(claimed: Record, fence: int) -> dict[bytes, bytes]:
    fields = {key.encode(): str(value).encode() for key, value in claimed.fields([]).items() if key != "options"}
    return fields | {b"options": b'{"model":"m"}', b"fence": str(fence).encode(), b"sequence": b"1"}


async def test_the_end_comes_with_its_items_in_one_step_and_is_final(store: ResponseStore, event_log: EventLog) -> None:
    new = record()
    claimed = await finished(store, event_log, new, [USER], [REASONING, MESSAGE], Status.COMPLETED)
    loaded = await store.load(new.response_id)
    assert loaded is not None
    assert (loaded.status, list(loaded.output)) == (Status.COMPLETED, [REASONING, MESSAGE])
    late = PublicEvent("response.failed", loaded.sequence, {"response": {}})
    assert await event_log.append([Append(claimed, [late], Ending(Status.FAILED))]) == [Appended.TERMINAL]
    assert await store.claim(new.response_id, "late") is None
    assert await store.claim(new.response_id, "late", Claim.LOST) is None
    assert (await store.load(new.response_id)) == loaded


async def test_the_last_append_sent_again_is_ok(store: ResponseStore, event_log: EventLog) -> None:
    new = record()
    await store.create(new, [USER], [created()])
    claimed = await store.claim(new.response_id, "t")
    assert claimed is not None
    last = Append(claimed, [PublicEvent("response.completed", 1, {"response": {}})], Ending(Status.COMPLETED))
    assert await event_log.append([last]) == [Appended.OK]
    assert await event_log.append([last]) == [Appended.OK]
    assert await event_log.append([last, last]) == [Appended.OK, Appended.OK]


async def test_scripts_come_back_after_the_server_forgot_them(
    client: Redis, store: ResponseStore, event_log: EventLog
) -> None:
    new = record()
    await store.create(new, [USER], [created()])
    await client.script_flush()
    claimed = await store.claim(new.response_id, "t")
    assert claimed is not None
    await client.script_flush()
    assert await event_log.append([Append(claimed, [created(1)])]) == [Appended.OK]
    await client.script_flush()
    assert await store.renew({new.response_id: 1}) == set()


async def test_times_to_live_begin_at_the_end(
    client: Redis, store: ResponseStore, event_log: EventLog, settings: Settings
) -> None:
    for stored, ttl in ((True, settings.response_ttl), (False, settings.unstored_ttl)):
        new = record(store=stored)
        keys = [key async for key in client.scan_iter(f"*{new.response_id}*")]
        await store.create(new, [USER], [created()])
        keys = [key async for key in client.scan_iter(f"*{new.response_id}*")]
        assert [await client.ttl(key) for key in keys] == [-1, -1]
        claimed = await store.claim(new.response_id, "t")
        assert claimed is not None
        end = PublicEvent("response.completed", 1, {"response": {}})
        await event_log.append([Append(claimed, [end], Ending(Status.COMPLETED))])
        left = sorted([await client.ttl(key) for key in keys])
        assert left == pytest.approx(sorted([ttl, settings.event_log_ttl]), abs=5)


@pytest.mark.parametrize("turns", [1, 2, 3, 63, 64, 65, 200])
async def test_a_chain_of_any_depth_comes_back_root_to_leaf(
    store: ResponseStore, event_log: EventLog, turns: int
) -> None:
    parent: str | None = None
    for turn in range(turns):
        new = record(parent=parent)
        asked: Wire = {"role": "user", "content": f"q{turn}"}
        await finished(store, event_log, new, [asked], [{**MESSAGE, "id": f"msg_{turn}"}], Status.COMPLETED)
        parent = new.response_id
    assert parent is not None
    chain = await store.rehydrate(parent)
    assert [turn.input[0]["content"] for turn in chain] == [f"q{turn}" for turn in range(turns)]
    assert [turn.output[0]["id"] for turn in chain] == [f"msg_{turn}" for turn in range(turns)]


async def test_many_items_of_one_turn_come_back_in_order(store: ResponseStore, event_log: EventLog) -> None:
    asked: list[Wire] = [{"role": "user", "content": str(number)} for number in range(1203)]
    output = [{**MESSAGE, "id": f"msg_{number}"} for number in range(37)]
    new = record()
    await finished(store, event_log, new, asked, output, Status.INCOMPLETE)
    [turn] = await store.rehydrate(new.response_id)
    assert (turn.input, turn.output, turn.status) == (asked, output, Status.INCOMPLETE)


@pytest.mark.parametrize("broken", ["missing", "not stored"])
async def test_a_chain_with_a_hole_fails_closed(
    client: Redis, store: ResponseStore, event_log: EventLog, settings: Settings, broken: str
) -> None:
    root = record(**({"store": False} if broken == "not stored" else {}))
    await finished(store, event_log, root, [USER], [MESSAGE], Status.COMPLETED)
    middle = record(parent=root.response_id)
    await finished(store, event_log, middle, [USER], [MESSAGE], Status.COMPLETED)
    if broken == "missing":
        assert await client.delete(f"rejoinder:{{s{shard_of(root.response_id):02d}}}:response:{root.response_id}")
    with pytest.raises(InvalidRequest) as refused:
        await store.rehydrate(middle.response_id)
    assert refused.value.code == "previous_response_not_found"


async def test_continuing_renews_the_ancestors_time_to_live(
    client: Redis, store: ResponseStore, event_log: EventLog
) -> None:
    root = record()
    await finished(store, event_log, root, [USER], [MESSAGE], Status.COMPLETED)
    key = f"rejoinder:{{s{shard_of(root.response_id):02d}}}:response:{root.response_id}"
    await client.expire(key, 100)
    await store.rehydrate(root.response_id)
    assert await client.ttl(key) > 1000


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
async def test_what_failed_is_no_basis(store: ResponseStore, event_log: EventLog, status: Status) -> None:
    root = record()
    await finished(store, event_log, root, [USER], [MESSAGE], status)
    with pytest.raises(InvalidRequest, match=status.value):
        item_history(await store.rehydrate(root.response_id))


async def test_a_background_continuation_waits_for_its_parent_and_a_foreground_one_is_refused(
    client: Redis, store: ResponseStore, event_log: EventLog
) -> None:
    parent = record(background=True)
    await store.create(parent, [USER], [created()])
    child = record(parent=parent.response_id, background=True)
    assert await store.create(child, [USER], [created()]) is Creation.WAITING
    with pytest.raises(InvalidRequest) as refused:
        await store.create(record(parent=parent.response_id), [USER], [created()])
    assert refused.value.param == "previous_response_id"
    claimed = await store.claim(parent.response_id, "t")
    assert claimed is not None
    end = PublicEvent("response.completed", 1, {"response": {}})
    assert await event_log.append([Append(claimed, [end], Ending(Status.COMPLETED))]) == [Appended.OUTBOX]
    shard = shard_of(parent.response_id)
    entries = await client.execute_command("XRANGE", f"rejoinder:{{s{shard:02d}}}:outbox", "-", "+")
    assert [fields for _, fields in entries] == [[b"enqueue", child.response_id.encode()]]
    late = record(parent=parent.response_id, background=True)
    assert await store.create(late, [USER], [created()]) is Creation.READY


async def test_a_creation_sent_twice_still_waits_for_its_parent(store: ResponseStore) -> None:
    parent = record(background=True)
    await store.create(parent, [USER], [created()])
    child = record(parent=parent.response_id, background=True)
    for _ in range(2):
        assert await store.create(child, [USER], [created()]) is Creation.WAITING


async def test_a_refused_creation_leaves_no_trace(client: Redis, store: ResponseStore) -> None:
    parent = record(background=True)
    await store.create(parent, [USER], [created()])
    before = set(await client.keys())
    sent: Wire = {"id": "msg_sent", "type": "message", "role": "user", "content": "hi"}
    with pytest.raises(InvalidRequest):
        await store.create(record(parent=parent.response_id), [sent], [created()])
    assert set(await client.keys()) == before


async def test_renewing_what_its_own_writer_has_just_ended_is_no_loss(
    store: ResponseStore, event_log: EventLog
) -> None:
    new = record()
    await finished(store, event_log, new, [USER], [MESSAGE], Status.COMPLETED)
    assert await store.renew({new.response_id: 1}) == set()
    assert await store.expired(range(64)) == []


async def test_items_are_found_by_id_from_the_moment_they_are_done(store: ResponseStore, event_log: EventLog) -> None:
    sent: Wire = {"id": "msg_sent", "type": "message", "role": "user", "content": "hi"}
    new = record()
    await finished(store, event_log, new, [sent], [REASONING], Status.COMPLETED)
    assert await store.item("rs_1") == REASONING
    assert await store.item("msg_sent") == sent
    assert await store.item("rs_2") is None
    unstored = record(store=False)
    await finished(store, event_log, unstored, [USER], [{**MESSAGE, "id": "msg_gone"}], Status.COMPLETED)
    assert await store.item("msg_gone") is None


async def test_the_fault_of_one_append_is_not_its_neighbours(
    client: Redis, store: ResponseStore, event_log: EventLog
) -> None:
    good, bad = record(), record()
    for new in (good, bad):
        await store.create(new, [USER], [created()])
    claims = [await store.claim(new.response_id, "t") for new in (bad, good)]
    shard = shard_of(bad.response_id)
    await client.delete(f"rejoinder:{{s{shard:02d}}}:events:{bad.response_id}")
    await client.set(f"rejoinder:{{s{shard:02d}}}:events:{bad.response_id}", "no stream")
    appends = [Append(claim, [created(1)]) for claim in claims if claim is not None]
    failed, stored = await event_log.append(appends)
    assert not isinstance(failed, Appended)
    assert stored is Appended.OK


def test_a_not_found_parent_is_told_as_openai_does() -> None:
    assert parent_not_found("resp_x").body() == {
        "error": {
            "message": "Previous response with id 'resp_x' not found, or created with `store: false`.",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }
    }
