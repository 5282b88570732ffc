"""From events to what a client reads: an SSE stream, or the final response of a plain call.

Law: every stream ends, with the terminal event or with a clear error, and then `[DONE]`. A frame leaves in one write.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.departure import while_present
from api.hub import Hub, LogNotWhole, Stopped
from api.topics import Frame
from shared.errors import ApiError, NotFound, Unavailable
from shared.events import LogEntry, public_event
from shared.json_codec import Wire, encode
from shared.record import Record
from shared.settings import Settings
from shared.store import ResponseStore

DONE = b"data: [DONE]\n\n"

#: Against proxies that gather a stream before they pass it on.
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}


class Subscriptions:
    """Follows responses for clients."""

    def __init__(self, hub: Hub, store: ResponseStore, settings: Settings) -> None:
        self._hub = hub
        self._store = store
        self._settings = settings

    def stop(self) -> None:
        """Tell everybody who follows that this server stops."""
        self._hub.stop()

    async def frames(self, record: Record, after: int) -> AsyncGenerator[bytes, None]:
        """SSE bytes of the events after the cursor, ending with `[DONE]`.

        Raises `ApiError` where it can't start; what goes wrong later is told in the stream.
        """
        last, told = after, -1
        if record.status.terminal and after >= record.sequence - 1:
            yield DONE
            return
        try:
            async with aclosing(self._follow(record, after)) as reads:
                async for frames in reads:
                    if frames:
                        last = told = frames[-1].sequence_number
                        yield b"".join(frame.bytes for frame in frames)
                        continue
                    if not await self._expects_more(record.response_id, last, told):
                        break
                    if keepalive := self._keepalive(last):
                        yield keepalive
        except ApiError as error:
            yield _error_frame(error, last)
        except RedisError:
            yield _error_frame(Unavailable(f"The event log can't be read right now. {_resume(record)}"), last)
        except Stopped:
            yield _error_frame(Unavailable(f"The server stops. {_resume(record)}"), last)
        yield DONE

    def _follow(self, record: Record, after: int) -> AsyncGenerator[list[Frame], None]:
        return self._hub.follow(record.response_id, after, self._settings.keepalive_interval, known=record.sequence - 1)

    async def final(self, record: Record) -> Wire:
        """The Response object inside the terminal event.

        Raises `ApiError` where the response failed, or its end can't be waited for: it goes on then, so a request that
        is sent again would generate twice.
        """
        try:
            async with aclosing(self._follow(record, -1)) as reads:
                last = -1
                async for frames in reads:
                    if not frames:
                        if not await self._expects_more(record.response_id, last, last):
                            break
                        continue
                    last = frames[-1].sequence_number
                    if frames[-1].terminal:
                        return await self._outcome(record.response_id, last, frames[-1].terminal)
        except RedisError:
            raise Unavailable(f"The event log can't be read right now. {_later(record)}", retry_after=None) from None
        except Stopped:
            raise Unavailable(f"The server stops. {_later(record)}", retry_after=None) from None
        raise ApiError("The response ended without a terminal event.")

    async def _outcome(self, response_id: str, number: int, terminal: LogEntry) -> Wire:
        response: Wire = public_event(number, terminal).body["response"]
        if response["status"] != "failed":
            return response
        record = await self._store.load(response_id)
        if record is None or record.ending is None:
            raise ApiError("The response failed, and was deleted.")
        raise ApiError(status=record.ending.http_status, retry_after=record.ending.retry_after, **response["error"])

    async def _expects_more(self, response_id: str, last: int, told: int = -1) -> bool:
        """Nothing came for a while: whether something still can, after `last`, with `told` the last that was sent.

        Raises `ApiError` where events are lost.
        """
        record = await self._store.load(response_id)
        if record is None:
            raise NotFound(f"Response '{response_id}' was deleted or has expired.")
        if told >= record.sequence:  # a failover or a crash of Redis took back what this client has seen
            raise LogNotWhole(response_id)
        if not record.status.terminal:
            return True
        if last >= record.sequence - 1:
            return False
        # It ended just now: the log has its last events, the reader will bring them. (The record was loaded first.)
        if await self._hub.holds_more(response_id, last):
            return True
        raise LogNotWhole(response_id)

    def _keepalive(self, last: int) -> bytes | None:
        if last < 0:
            return None  # it repeats a number, and none was told yet: a client would take any for its cursor
        match self._settings.keepalive:
            case "event":
                return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % last
            case "comment":
                return b": keepalive\n\n"
            case "off":
                return None


def _later(record: Record) -> str:
    return f"Response '{record.response_id}' goes on; retrieve it later."


def _resume(record: Record) -> str:
    """What the client of a stream that ends early does; a foreground one can't be followed again."""
    return "The response goes on: resume at your cursor." if record.background else _later(record)


def _error_frame(error: ApiError, last: int) -> bytes:
    told = {
        "type": "error",
        "sequence_number": max(last, 0),
        "code": error.code,
        "message": error.message,
        "param": error.param,
    }
    return b"event: error\ndata: %b\n\n" % encode(told)


class EventStream(StreamingResponse):
    """Frames as they come. When the client leaves, the source is closed at once, and `left` called."""

    def __init__(self, frames: AsyncGenerator[bytes, None], left: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(frames, headers=HEADERS)
        self._frames = frames
        self._left = left

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        try:
            await while_present(receive, self.stream_response(send))
        except ClientDisconnect:
            if self._left is not None:
                await self._left()

    async def stream_response(self, send: Send) -> None:
        """Send until the source ends or the client leaves."""
        async with aclosing(self._frames):
            await super().stream_response(send)
