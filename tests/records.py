"""Records as the API makes them, for the tests of the store and of what stands on it."""

from shared.events import PublicEvent
from shared.ids import new_response_id, shard_of
from shared.record import Record
from shared.response import Status


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
