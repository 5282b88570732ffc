"""What RQ calls, and what a worker process holds for all its turns."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from shared.event_log import EventLog
from shared.presence import Presence
from shared.queue import TurnQueue
from shared.redis_client import connect as connect_redis
from shared.settings import Settings
from shared.store import ResponseStore
from shared.tasks import running
from workers.anomalies import Anomalies
from workers.cancels import Cancels
from workers.leases import Leases
from workers.outbox import Outbox
from workers.publisher import Publisher
from workers.sweeper import Sweeper
from workers.turn import TurnContext, run_turn
from workers.vllm import Vllm

_run: Callable[[str], Awaitable[None]] | None = None


async def run_response(response_id: str) -> None:
    """The job: one turn. Its verdict is in the response; RQ learns only whether something of ours broke."""
    if _run is None:
        raise RuntimeError("run_response is only callable inside a worker process")
    await _run(response_id)


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[TurnContext]:
    """The connections and tasks that all turns of this process share, for as long as the block runs."""
    global _run  # noqa: PLW0603 - RQ calls jobs by dotted path: a module is the only place that both sides can see
    client = connect_redis(settings)
    store, event_log = ResponseStore(client, settings), EventLog(client, settings)
    queue, vllm, presence = TurnQueue(client, settings), Vllm(settings), Presence(client, settings)
    context = TurnContext(
        settings=settings,
        store=store,
        event_log=event_log,
        publisher=Publisher(event_log, settings),
        leases=Leases(store, presence, settings),
        outbox=Outbox(client, queue, settings),
        vllm=vllm,
        anomalies=Anomalies(),
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(vllm.aclose)
        stack.push_async_callback(presence.leave)
        sweeper, cancels = Sweeper(context, queue), Cancels(context.leases, settings)
        await stack.enter_async_context(running(context.publisher.run, context.leases.run, cancels.run, sweeper.run))
        _run = partial(_run_turn, context)
        try:
            yield context
        finally:
            _run = None


async def _run_turn(context: TurnContext, response_id: str) -> None:
    await run_turn(response_id, secrets.token_hex(8), context)
