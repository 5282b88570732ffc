"""What routes depend on: the connections and tasks of one API process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from redis.asyncio import Redis

from api.cancellations import Cancellations
from api.hub import Hub
from api.models import Models
from api.submit import Submissions
from api.subscribe import Subscriptions
from shared.event_log import EventLog
from shared.presence import Presence
from shared.queue import TurnQueue
from shared.redis_client import connect
from shared.settings import Settings
from shared.store import ResponseStore
from shared.takeover import Takeover
from shared.tasks import running


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a route may ask for."""

    settings: Settings
    redis: Redis
    store: ResponseStore
    event_log: EventLog
    models: Models
    presence: Presence
    submissions: Submissions
    subscriptions: Subscriptions
    cancellations: Cancellations


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """The services, for as long as the block runs. Connects at first use, so Redis may come later."""
    client = connect(settings)
    store, event_log = ResponseStore(client, settings), EventLog(client, settings)
    queue, models, hub = TurnQueue(client, settings), Models(settings), Hub(client, event_log, settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(models.aclose)
        stack.push_async_callback(hub.aclose)
        await stack.enter_async_context(running(hub.run))
        yield Services(
            settings=settings,
            redis=client,
            store=store,
            event_log=event_log,
            models=models,
            presence=Presence(client, settings),
            submissions=Submissions(store, queue, models, settings),
            subscriptions=Subscriptions(hub, store, settings),
            cancellations=Cancellations(Takeover(store, event_log), settings),
        )


async def _services(request: Request) -> Services:  # async: FastAPI would send a plain function to a thread
    return cast("Services", request.app.state.services)


#: The services, as a parameter of a route.
ServicesDep = Annotated[Services, Depends(_services)]
