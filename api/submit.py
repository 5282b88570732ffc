"""From a request to a durable job: checks, record, job, in this order.

Law: what can be refused is refused before anything is written; what is accepted is a record first and a job second, so
that a crash in between loses nothing (the sweeper enqueues it).
"""

import logging
import secrets
import time

from redis.exceptions import RedisError

from api.models import Models
from shared.errors import NotFound, Unavailable
from shared.events import CREATED, QUEUED, PublicEvent
from shared.history import item_history
from shared.ids import new_response_id, shard_of
from shared.items import references
from shared.json_codec import Wire
from shared.limits import json_size
from shared.merge import merge_input
from shared.queue import TurnQueue
from shared.record import Record
from shared.replay import ReplayPolicy, effective_context, ensure_replayable
from shared.request import ResponseRequest
from shared.response import Status, wants_summary
from shared.settings import Settings
from shared.store import Creation, ResponseStore

_log = logging.getLogger(__name__)


class Submissions:
    """Turns requests into jobs."""

    def __init__(self, store: ResponseStore, queue: TurnQueue, models: Models, settings: Settings) -> None:
        self._store = store
        self._queue = queue
        self._models = models
        self._settings = settings

    async def submit(self, request: ResponseRequest) -> Record:
        """Create and enqueue.

        Raises `ApiError`, or `redis.exceptions.RedisError` where nothing was written: the request may be sent again.
        """
        await self._models.ensure_known(request.model)
        parent = request.previous_response_id
        history = item_history(await self._store.rehydrate(parent)) if parent else []
        items = await self._resolved(request.input)
        ensure_replayable(merge_input(history, items))
        record = self._record(request)
        events = [PublicEvent(CREATED, 0, {"response": record.response()})]
        if record.background:
            events.append(PublicEvent(QUEUED, 1, {"response": record.response()}))
        if await self._create(record, items, events) is Creation.READY:
            try:
                await self._queue.enqueue(record.response_id)
            except RedisError as error:  # it is created, so a retry would generate twice; the sweeper enqueues it
                _log.warning("%s: left to the sweeper: %s", record.response_id, type(error).__name__)
        return record

    async def _create(self, record: Record, items: list[Wire], events: list[PublicEvent]) -> Creation:
        """Save the record. Redis may write and its answer be lost, so a Redis that is away shows by a word before."""
        await self._store.ensure_reachable()
        try:
            return await self._store.create(record, items, events)
        except RedisError as error:
            _log.warning("%s: perhaps created: %s", record.response_id, type(error).__name__)
            raise Unavailable(
                "The server's store did not take the response, or did not say so.", retry_after=None
            ) from None

    def _record(self, request: ResponseRequest) -> Record:
        parent = request.previous_response_id
        policy = ReplayPolicy(self._settings.reasoning_context.get(request.model, ReplayPolicy.reasoning_context))
        seed = request.options.get("seed")
        return Record(
            response_id=new_response_id(shard_of(parent) if parent else None),
            created_at=int(time.time()),
            status=Status.QUEUED if request.background else Status.IN_PROGRESS,
            options=request.options,
            seed=seed if seed is not None else secrets.randbelow(2**31),
            reasoning_context=effective_context(request.options, policy),
            mirror=self._settings.mirror_reasoning_as_summary and wants_summary(request.options),
            parent=parent,
        )

    async def _resolved(self, items: list[Wire]) -> list[Wire]:
        """The items with every `item_reference` replaced by the stored item.

        Raises `NotFound` (404, `input`) without one, `InvalidRequest` where they hold more than a history may.
        """
        resolved = list(items)
        total = 0
        for index, item_id in references(items):
            item = await self._store.item(item_id)
            if item is None:
                raise NotFound(f"Item with id '{item_id}' not found.", param="input")
            total += json_size(item)
            self._store.ensure_fits(total, 0)
            resolved[index] = item
        return resolved
