"""Records and jobs as the API makes them, for the tests of what stands on them."""

from shared.events import PublicEvent
from shared.ids import new_response_id, shard_of
from shared.queue import TurnQueue
from shared.record import Record
from shared.redis_client import connect
from shared.response import Status
from shared.settings import Settings


def record(response_id: str | None = None, *, parent: str | None = None, **options: object) -> Record:
    """A new response to the request `options`; a continuation stays in its parent's shard."""
    return Record(
        response_id=response_id or new_response_id(shard_of(parent) if parent else None),
        created_at=1_800_000_000,
        status=Status.QUEUED if options.get("background") else Status.IN_PROGRESS,
        options={"model": "m", **options},
        seed=7,
        reasoning_context="all_turns",
        parent=parent,
    )


def created(number: int = 0) -> PublicEvent:
    return PublicEvent("response.created", number, {"response": {"id": "x"}})


async def enqueue(settings: Settings, *response_ids: str) -> None:
    """Jobs for these responses, in this order."""
    async with connect(settings) as client:
        queue = TurnQueue(client, settings)
        for response_id in response_ids:
            await queue.enqueue(response_id)
