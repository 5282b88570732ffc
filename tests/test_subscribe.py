"""What a silent follower is told: to wait, that it has everything, or that events are lost."""

from collections.abc import AsyncIterator

import pytest

from api.hub import Hub
from api.subscribe import Subscriptions
from records import created, record
from shared.errors import ApiError, NotFound
from shared.event_log import Append, EventLog
from shared.events import PublicEvent
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
    new = record()
    await desk.store.create(new, [], [created()])
    claimed = await desk.store.claim(new.response_id, "t")
    assert claimed is not None
    assert await desk.expects_more(new, 0), "it runs"
    events = [PublicEvent("x.y", number, {}) for number in (1, 2)]
    last = PublicEvent("response.completed", 3, {"response": {}})
    await desk.event_log.append([Append(claimed, [*events, last], Ending(Status.COMPLETED))])
    return new


async def test_an_end_that_the_reader_has_not_brought_yet_is_waited_for(desk: Desk) -> None:
    response = await ended(desk)
    for last in (-1, 0, 1, 2):
        assert await desk.expects_more(response, last)


async def test_who_has_the_last_event_has_everything(desk: Desk) -> None:
    response = await ended(desk)
    for last in (3, 4, 100):
        assert not await desk.expects_more(response, last)


async def test_a_log_that_lost_its_end_is_told(desk: Desk) -> None:
    response = await ended(desk)
    await desk.client.delete(Keys().events(response.response_id))
    with pytest.raises(ApiError, match="no longer whole"):
        await desk.expects_more(response, 1)


async def test_a_response_that_is_gone_is_told(desk: Desk) -> None:
    response = await ended(desk)
    await desk.client.delete(Keys().response(response.response_id))
    with pytest.raises(NotFound, match="deleted or has expired"):
        await desk.expects_more(response, 1)
