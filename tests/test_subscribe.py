"""What a silent follower is told: to wait, that it has everything, or that events are lost."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import pytest

from api.hub import Hub
from api.subscribe import Subscriptions
from cli.embedded_redis import EmbeddedRedis
from records import created, record
from shared.errors import ApiError, NotFound, Unavailable
from shared.event_log import Append, EventLog
from shared.events import PublicEvent
from shared.keys import Keys
from shared.record import Ending, Record
from shared.redis_client import connect
from shared.response import Status
from shared.settings import Settings
from shared.store import ResponseStore
from shared.tasks import running


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


async def test_a_client_that_saw_more_than_redis_kept_is_told(desk: Desk) -> None:
    """A failover takes back the last events: what follows then would not be what this client has seen."""
    new = record()
    await desk.store.create(new, [], [created()])
    assert await desk.subscriptions._expects_more(new.response_id, 0, 0)
    assert await desk.subscriptions._expects_more(new.response_id, 5, -1), "a cursor ahead is a wish, no memory"
    with pytest.raises(ApiError, match="no longer whole"):
        await desk.subscriptions._expects_more(new.response_id, 1, 1)
    finished = await ended(desk)
    with pytest.raises(ApiError, match="no longer whole"):
        await desk.subscriptions._expects_more(finished.response_id, 4, 4)


@pytest.mark.parametrize("background", [True, False])
async def test_followers_of_a_redis_that_comes_back_empty_are_told_and_end(
    own_redis: Callable[[], EmbeddedRedis], settings: Settings, *, background: bool
) -> None:
    server = own_redis()
    desk = Desk(settings.model_copy(update={"redis_url": server.url, "keepalive": "off"}))
    new = record(background=background)
    await desk.store.create(new, [], [created()])
    async with running(desk.hub.run), asyncio.timeout(20):
        streams = [asyncio.create_task(whole(desk.subscriptions.frames(new, -1))) for _ in range(10)]
        plain = asyncio.create_task(desk.subscriptions.final(new))
        while new.response_id not in desk.hub._topics or len(desk.hub._topics[new.response_id].followers) < 11:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.kill)
        for data in server.folder.rglob("*.aof*"):
            data.unlink()
        await asyncio.to_thread(server.start)
        for stream in streams:
            told = await stream
            assert told.count(b"event: response.created\n") == 1
            assert told.endswith(b"data: [DONE]\n\n")
            assert b"event: error\n" in told
        with pytest.raises(ApiError):
            await plain
        assert desk.hub._topics == {}
    await desk.hub.aclose()
    await desk.client.aclose()


@pytest.mark.parametrize(
    ("background", "advice"), [(True, "resume at your cursor"), (False, "retrieve it later")], ids=["background", "not"]
)
async def test_a_server_that_stops_says_how_to_go_on(desk: Desk, *, background: bool, advice: str) -> None:
    new = record(background=background)
    await desk.store.create(new, [], [created()])
    desk.subscriptions.stop()
    told = await whole(desk.subscriptions.frames(new, -1))
    assert told.startswith(b"event: error\n")
    assert advice.encode() in told
    assert told.endswith(b"data: [DONE]\n\n")
    with pytest.raises(Unavailable, match="retrieve it later") as refused:
        await desk.subscriptions.final(new)
    assert refused.value.retry_after is None, "it goes on, so a client must not send it again"


async def whole(frames: AsyncGenerator[bytes, None]) -> bytes:
    return b"".join([piece async for piece in frames])


async def test_a_response_that_is_gone_is_told(desk: Desk) -> None:
    response = await ended(desk)
    await desk.client.delete(Keys().response(response.response_id))
    with pytest.raises(NotFound, match="deleted or has expired"):
        await desk.expects_more(response, 1)
