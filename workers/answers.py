"""The body of an upstream's 200: an event stream, or one JSON document. Pure.

Law: the body itself says which it is, by its first byte: no line of an event stream begins with a brace, every JSON
object does. Some upstreams answer whole where a stream was asked for, and some name the wrong content type. A whole
Response is read as the terminal event that it would have been, so that its items are those of the stream.
"""

from typing import Final

from shared.normalize import read_answer, read_event
from shared.upstream_events import Skipped, UpstreamEvent
from workers.sse import EventTooLarge, SseDecoder

#: White space between values (RFC 8259) and the byte order mark.
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"


class NoAnswer(ValueError):
    """The body has ended, and was neither an event stream nor a Response nor an error."""


class AnswerDecoder:
    """Bytes in as they are read, upstream events out.

    `max_bytes` bounds one event of a stream, and a whole document; what goes beyond it raises `EventTooLarge`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._stream = SseDecoder(max_bytes)
        self._limit = max_bytes
        self._document: bytearray | None = None
        self._begun = False
        self._told = False

    @property
    def is_document(self) -> bool:
        """Whether what comes is a JSON document: all of it is one event, told at its end."""
        return self._document is not None

    def feed(self, raw: bytes) -> list[UpstreamEvent]:
        """The events that `raw` completes."""
        if not self._begun and (start := raw.lstrip(_BLANK)):
            self._begun = True
            if start.startswith(b"{"):
                self._document = bytearray()
        if self._document is None:
            return self._events(self._stream.feed(raw))
        self._document += raw
        if len(self._document) > self._limit:
            raise EventTooLarge("a JSON answer is larger than the limit")
        return []

    def end(self) -> list[UpstreamEvent]:
        """What the end of the body completes. Raises `NoAnswer`."""
        if self._document is None:
            events = self._events(self._stream.end())
            if not self._told:
                raise NoAnswer("no event")
            return events
        answer = read_answer(bytes(self._document.lstrip(_BLANK)))
        if isinstance(answer, Skipped):
            raise NoAnswer(answer.reason)
        return [answer]

    def _events(self, stream: list[bytes]) -> list[UpstreamEvent]:
        self._told = self._told or bool(stream)
        return [read_event(data) for data in stream]
