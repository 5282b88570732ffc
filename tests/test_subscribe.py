"""What a silent follower is told: to wait, that it has everything, or that events are lost."""

from collections.abc import AsyncIterator

import pytest

from api.hub import Hub
from api.subscribe import Subscriptions
from shared.errors import ApiError, NotFound
from shared.event_log import Append, EventLog
from shared.events import PublicEvent
from shared.ids import new_response_id
from shared.keys import Keys
from shared.record import Ending, Record
from shared.redis_client import connect
from shared.response import Status
from shared.settings import Settings
from shared.store import ResponseStore


class Desk:
    """A hub whose reader stands still: the moment in which it is behind the log, made to last."""

    def __init__(self, settings: Settings) -> None:
        self.client = connect(settings)
        self.store, self.event_log = ResponseStore(self.client, settings), EventLog(self.client, settings)
        self.hub = Hub(self.client, self.event_log, settings)
        self.subscriptions = Subscriptions(self.hub, self.store, settings)

    async def expects_more(self, record: Record, last: int) -> bool:
        return await self.subscriptions._expects_more(record.response_id, last)


@pytest.fixture
async def desk(settings: Settings) -> AsyncIterator[Desk]:
    opened = Desk(settings)
    yield opened
    await opened.hub.aclose()
    await opened.client.aclose()


async def ended(desk: Desk) -> Record:
    """Four events, 0 to 3, the last one terminal."""
    record = Record(
        response_id=new_response_id(),
        created_at=1,
        status=Status.IN_PROGRESS,
        options={"model": "m"},
        seed=1,
        reasoning_context="all_turns",
    )
    await desk.store.create(record, [], [PublicEvent("response.created", 0, {"response": {}})])
    claimed = await desk.store.claim(record.response_id, "t")
    assert claimed is not None
    assert await desk.expects_more(record, 0), "it runs"
    events = [PublicEvent("x.y", number, {}) for number in (1, 2)]
    last = PublicEvent("response.completed", 3, {"response": {}})
    await desk.event_log.append([Append(claimed, [*events, last], Ending(Status.COMPLETED))])
    return record


async def test_an_end_that_the_reader_has_not_brought_yet_is_waited_for(desk: Desk) -> None:
    record = await ended(desk)
    for last in (-1, 0, 1, 2):
        assert await desk.expects_more(record, last)


async def test_who_has_the_last_event_has_everything(desk: Desk) -> None:
    record = await ended(desk)
    for last in (3, 4, 100):
        assert not await desk.expects_more(record, last)


async def test_a_log_that_lost_its_end_is_told(desk: Desk) -> None:
    record = await ended(desk)
    await desk.client.delete(Keys().events(record.response_id))
    with pytest.raises(ApiError, match="no longer whole"):
        await desk.expects_more(record, 1)


async def test_a_response_that_is_gone_is_told(desk: Desk) -> None:
    record = await ended(desk)
    await desk.client.delete(Keys().response(record.response_id))
    with pytest.raises(NotFound, match="deleted or has expired"):
        await desk.expects_more(record, 1)
