"""When a client leaves while its answer is being made.

Law: whoever serves a client stops as soon as it has left. What that means for the response is the route's to say.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from shared.tasks import stop

T = TypeVar("T")


async def while_present(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives. Raises `ClientDisconnect`, with the work cancelled, when the client leaves before."""
    serving, watching = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            raise ClientDisconnect
        return serving.result()
    finally:
        await stop(watching)
        await stop(serving)
        _ = serving.cancelled() or serving.exception()  # looked at, so that nobody reports it with its text


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
