"""One turn, from claim to terminal event: the one orchestration.

    claim ─ rehydrate ─ replay ─ vLLM ─ accumulate ─ append … ─ last append: terminal event, items, status, one step

Law: every turn whose writer this is ends with a terminal event, whatever happens to it. Only a lost lease, or a Redis
that stays away, leaves the end to the sweeper.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

from redis.exceptions import RedisError

from shared.accumulator import Accumulator
from shared.errors import ApiError, Unavailable, UpstreamError
from shared.event_log import Append, Appended, EventLog, last_append
from shared.events import IN_PROGRESS, PublicEvent
from shared.history import item_history
from shared.json_codec import Wire
from shared.limits import Limits, OverLimit
from shared.record import Ending, Record
from shared.replay import ReplayPolicy, upstream_body
from shared.response import Status
from shared.settings import Settings
from shared.store import ResponseStore
from workers.anomalies import Anomalies
from workers.leases import Lease, LeaseLost, Leases
from workers.outbox import Outbox
from workers.publisher import Publisher
from workers.refusals import over_limit, reported_failure
from workers.vllm import Vllm

_log = logging.getLogger(__name__)

#: How an upstream says that a turn ended well; anything else is a failure.
_ENDINGS = {"completed": Status.COMPLETED, "incomplete": Status.INCOMPLETE}


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What all turns of a process share."""

    settings: Settings
    store: ResponseStore
    event_log: EventLog
    publisher: Publisher
    leases: Leases
    outbox: Outbox
    vllm: Vllm
    anomalies: Anomalies


async def run_turn(response_id: str, claim_token: str, context: TurnContext) -> None:
    """Carry out the turn of `response_id`; nothing where it is somebody else's or has ended.

    Raises `redis.exceptions.RedisError` when Redis stays away: the sweeper ends the turn then.
    """
    record = await context.store.claim(response_id, claim_token)
    if record is None:
        return
    try:
        with context.leases.held(record) as lease:
            accumulator = Accumulator(record.sequence, mirror=record.mirror, limits=_limits(context.settings))
            await Turn(record, accumulator, context).run(lease)
    except LeaseLost:
        _log.info("%s: no longer ours, stopped", response_id)


def _limits(settings: Settings) -> Limits:
    return Limits(settings.max_item_bytes, settings.max_response_bytes, settings.max_items, settings.max_parts)


class Turn:
    """The turn of one claimed record; `accumulator` stands where the event log stands."""

    def __init__(self, record: Record, accumulator: Accumulator, context: TurnContext) -> None:
        self._record = record
        self._accumulator = accumulator
        self._context = context

    async def run(self, lease: Lease) -> None:
        """Generate, and end in every case. Raises `LeaseLost` when another writer has the response."""
        events: list[PublicEvent] = []
        failure: ApiError | None = None
        try:
            async with asyncio.timeout(self._context.settings.turn_timeout):
                events = await self._generate()
        except ApiError as error:
            failure = error
        except OverLimit as over:
            failure = over_limit(over.setting, over.limit)
        except TimeoutError:
            failure = UpstreamError("The turn took longer than this server allows.", status=504)
        except asyncio.CancelledError:
            if lease.lost:
                raise
            await self.end([], Unavailable("The worker was shut down before the turn had ended.", retry_after=None))
            raise
        except (LeaseLost, RedisError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a turn: a fault of ours must end it too
            # Neither text nor traceback: both may hold content.
            _log.error("%s: turn broke: %s", self._record.response_id, type(error).__name__)
            failure = ApiError("The server had an error while processing the turn.")
        await self.end(events, failure)

    async def _generate(self) -> list[PublicEvent]:
        """Stream, publishing as it comes; gives the events that go out together with the terminal one."""
        accumulator = self._accumulator
        started = accumulator.number(IN_PROGRESS, {"response": self._record.response()})
        await self._append(Append(self._record, [started]))
        async with self._context.vllm.stream(await self._upstream_body()) as reads:
            async for upstream in reads:
                events = accumulator.feed(upstream)
                if accumulator.ending is not None:
                    return events
                if events:
                    await self._append(Append(self._record, events))
        raise UpstreamError("The model server closed the stream before the response had ended.", status=502)

    async def _upstream_body(self) -> Wire:
        record, store = self._record, self._context.store
        history = item_history(await store.rehydrate(record.parent)) if record.parent else []
        own = await store.input_items(record.response_id)
        kwargs = self._context.settings.chat_template_kwargs.get(record.model, {})
        policy = ReplayPolicy(record.reasoning_context, kwargs)
        return upstream_body(record.options, history, own, seed=record.seed, policy=policy)

    async def end(self, events: list[PublicEvent], failure: ApiError | None) -> None:
        """The last append: what is still open is closed, and the response ends."""
        accumulator = self._accumulator
        if accumulator.ending is None:
            events = [*events, *accumulator.fail()]
        elif failure is None and accumulator.ending.status not in _ENDINGS:
            failure = reported_failure(accumulator.ending.error)
        await self._append(last_append(self._record, accumulator, events, self._ending(failure)))
        if failure is not None:
            _log.warning("%s: failed, %d: %s", self._record.response_id, failure.status, failure.message)
        self._context.anomalies.note(self._record.response_id, accumulator.skipped, accumulator.repaired)

    def _ending(self, failure: ApiError | None) -> Ending:
        upstream = self._accumulator.ending
        usage = upstream.usage if upstream else None
        if failure is not None or upstream is None:
            failure = failure or ApiError("The turn ended without a result.")
            return Ending(
                Status.FAILED,
                usage=usage,
                error=failure.response_error(),
                http_status=failure.status,
                retry_after=failure.retry_after,
            )
        status = _ENDINGS[upstream.status]
        return Ending(
            status,
            completed_at=int(time.time()) if status is Status.COMPLETED else None,
            usage=usage,
            incomplete_details=upstream.incomplete_details,
            service_tier=upstream.service_tier,
            extras=upstream.extras,
        )

    async def _append(self, append: Append) -> None:
        """Publish, as the response's one writer. Raises `LeaseLost` when that is somebody else."""
        answer = await self._context.publisher.append(append)
        if not answer.stored:
            raise LeaseLost
        if answer is Appended.OUTBOX:
            await self._context.outbox.drain_of(self._record.response_id)
