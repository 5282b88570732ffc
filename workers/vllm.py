"""The client of vLLM: one POST a turn, read as lists of upstream events.

Law: leaving `Vllm.stream`, in whatever way and at whatever moment, closes the upstream connection at once, and vLLM
then aborts the generation. Only an answer that was read to its end leaves its connection to the next turn.

httpx speaks through aiohttp here (`httpx-aiohttp`): reading a delta costs about half of what it costs through httpx's
own transport. But it reports every lost connection as a timeout, so a fault is told by aiohttp's own exception, which
is always the cause.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Final

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from shared.json_codec import Wire, encode
from shared.settings import Settings
from shared.upstream_address import upstream_headers, upstream_root
from shared.upstream_events import Finished, Skipped, UpstreamEvent
from workers.answers import AnswerDecoder, NoAnswer
from workers.refusals import Fault, breakdown, refusal
from workers.sse import EventTooLarge

#: vLLM's server closes a connection that was idle for 5 s; a request sent at that moment would be lost.
IDLE_LIMIT: Final = 4.0
#: Content types of answers. Which of them it is doesn't matter: the body says whether it is a stream.
_ANSWERS: Final = {"text/event-stream", "application/json", "text/plain", ""}
#: How long a finished answer may take to end its body, before its connection is given up.
_TAIL_TIMEOUT: Final = 0.05
#: How much of an error body is read, and for how long at most.
_REFUSAL_BYTES: Final = 64 * 1024
_REFUSAL_TIMEOUT: Final = 5.0


class Vllm:
    """One pool of connections to one vLLM, for all turns of a process.

    `idle_limit` is how many seconds an unused connection stays in the pool.
    """

    def __init__(self, settings: Settings, *, idle_limit: float = IDLE_LIMIT) -> None:
        self._url = httpx.URL(f"{upstream_root(settings)}/v1/responses")
        self._first_event_timeout = settings.first_event_timeout
        self._stall_timeout = settings.stall_timeout
        self._max_event_bytes = settings.max_event_bytes
        self._concurrency = settings.concurrency
        self._idle_limit = idle_limit
        # The transport alone: what httpx's client adds (redirects, cookies, authentication) is not wanted here, and
        # costs a turn as much as the request itself.
        self._transport: httpx.AsyncBaseTransport = AiohttpTransport(client=self._session, trust_env=False)
        self._headers = httpx.Headers(
            {
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": "rejoinder",
                **upstream_headers(settings),
            }
        )
        # `pool` bounds the whole way to a connection: the wait for a free one, the name look-up, the connect.
        timeout = httpx.Timeout(None, connect=settings.connect_timeout, pool=settings.connect_timeout)
        self._extensions = {"timeout": timeout.as_dict()}

    def _session(self) -> aiohttp.ClientSession:
        """The transport calls this inside the running loop, once. No cookies: they would tie all turns to a replica."""
        connector = aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=self._idle_limit)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)

    @asynccontextmanager
    async def stream(self, body: Wire) -> AsyncIterator[AsyncIterator[list[UpstreamEvent]]]:
        """POST `body`; give, for each read of the socket that completes events, the list of them, in order.

        The events end with the list that holds a `Finished`, or where the upstream's body ends properly without one.
        Entering raises `UpstreamError` where the upstream refuses or can't be reached; so does the iteration where it
        falls silent or breaks off. `first_event_timeout` runs from here to the first event of the generation itself:
        vLLM announces a response at once and then says nothing while the request waits in its queue.
        """
        deadline = asyncio.get_running_loop().time() + self._first_event_timeout
        response = await self._post(body, deadline)
        try:
            await _ensure_answer(response)
            async with aclosing(self._events(response, deadline)) as events:
                yield events
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close every connection, also those in use."""
        await self._transport.aclose()

    async def _post(self, body: Wire, deadline: float) -> httpx.Response:
        """The answer, its body not yet read."""
        request = httpx.Request(
            "POST", self._url, headers=self._headers, content=encode(body), extensions=self._extensions
        )
        with _faults():
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._transport.handle_async_request(request)
            except TimeoutError:
                raise breakdown(Fault.SILENT) from None

    async def _events(self, response: httpx.Response, deadline: float) -> AsyncGenerator[list[UpstreamEvent], None]:
        decoder = AnswerDecoder(self._max_event_bytes)
        reads = response.aiter_raw()
        clock = asyncio.get_running_loop().time
        begun = False
        with _faults():
            try:
                # One timeout, set anew for each read: making one for each would cost a third of the whole read.
                async with asyncio.timeout_at(deadline) as limit:
                    async for data in reads:
                        limit.reschedule(None)  # while the reader is busy, the silence is its own
                        events = decoder.feed(data)
                        finished = any(isinstance(event, Finished) for event in events)
                        if finished:
                            await _read_tail(reads)
                        if events:
                            yield events
                        if finished:
                            return
                        begun = begun or decoder.is_document or not all(isinstance(event, Skipped) for event in events)
                        limit.reschedule(clock() + self._stall_timeout if begun else deadline)
            except TimeoutError:
                raise breakdown(Fault.STALLED if begun else Fault.SILENT) from None
            if events := decoder.end():
                yield events


async def _read_tail(reads: AsyncIterator[bytes]) -> None:
    """Read what follows the terminal event, so that the connection can be used again: a moment's wait, no more.

    Read before the event is passed on, as the turn leaves when it sees it.
    """
    try:
        async with asyncio.timeout(_TAIL_TIMEOUT):
            async for _ in reads:
                pass
    except (TimeoutError, httpx.HTTPError, aiohttp.ClientError):
        return


async def _refusal_body(response: httpx.Response) -> bytes:
    """The start of an error body; what can't be read is left out, the status tells enough."""
    body = bytearray()
    try:
        async with asyncio.timeout(_REFUSAL_TIMEOUT):
            async for data in response.aiter_raw():
                body += data
                if len(body) >= _REFUSAL_BYTES:
                    break
    except (TimeoutError, httpx.HTTPError, aiohttp.ClientError):
        pass
    return bytes(body)


async def _ensure_answer(response: httpx.Response) -> None:
    """Raise `UpstreamError` for what can't be one. vLLM refuses in plain JSON, also where a stream was asked for."""
    if response.status_code >= 400:
        retry_after = response.headers.get("retry-after", "")
        raise refusal(response.status_code, await _refusal_body(response), retry_after)
    content_type: str = response.headers.get("content-type", "")
    if response.status_code != 200 or content_type.partition(";")[0].strip().lower() not in _ANSWERS:
        raise breakdown(Fault.GARBAGE)


@contextmanager
def _faults() -> Iterator[None]:
    """Turn what the network does into `UpstreamError`. No cause is kept: it may hold what the upstream sent."""
    try:
        yield
    except (httpx.HTTPError, aiohttp.ClientError) as error:
        raise breakdown(_fault(error)) from None
    except NoAnswer:
        raise breakdown(Fault.GARBAGE) from None
    except EventTooLarge:
        raise breakdown(Fault.OVERLONG) from None


def _fault(error: Exception) -> Fault:
    """Which fault an exception of the transport stands for."""
    match error.__cause__ or error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | httpx.UnsupportedProtocol():
            return Fault.UNREACHABLE
        case aiohttp.NonHttpUrlClientError() | aiohttp.InvalidUrlClientError():
            return Fault.UNREACHABLE
        case aiohttp.ClientResponseError():
            return Fault.GARBAGE
        case _:
            return Fault.BROKEN
