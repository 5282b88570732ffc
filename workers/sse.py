"""SSE bytes to the data of each event. Pure.

Law: the same bytes give the same events, wherever the reads cut them. Lines end at LF, CRLF or CR and nowhere else:
U+2028, U+2029 and U+0085 stand unescaped inside JSON strings, which is why no library's line reader is used. Only
`data` means anything here: the event's name comes from its JSON `type`; comments, `id`, `retry` and unknown fields are
ignored (WHATWG server-sent events). A tail without its final blank line still counts, since a server that dies after
its last event often forgets it.
"""

from typing import Final

_BOM: Final = b"\xef\xbb\xbf"
_TOO_LARGE: Final = "an event of the stream is larger than the limit"


class EventTooLarge(ValueError):
    """A line, or the data of one event, is longer than the limit."""


class SseDecoder:
    """Bytes in as they are read, whole events out. Linear in the bytes fed, whatever their cuts.

    `max_event_bytes` bounds a line as well as all `data` lines of one event. What goes beyond it raises `EventTooLarge`
    as soon as it is seen, and takes the events of that read with it: there is nothing to go on with.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._line = bytearray()  # of the line that has not ended yet
        self._data: list[bytes] = []  # `data` lines of the event that has not ended yet
        self._data_bytes = 0
        self._after_cr = False
        self._started = False

    def feed(self, raw: bytes) -> list[bytes]:
        """The data of each event that `raw` completes, several `data` lines joined by LF."""
        if self._after_cr or b"\r" in raw:
            raw = self._with_plain_ends(raw)
        lines = raw.split(b"\n")
        tail = lines.pop()
        events: list[bytes] = []
        if lines:
            if self._line:
                lines[0] = bytes(self._line + lines[0])
                self._line.clear()
            events = self._events(lines)
        if tail:
            self._line += tail
            if len(self._line) > self._limit:
                raise EventTooLarge(_TOO_LARGE)
        return events

    def end(self) -> list[bytes]:
        """The event that the end of the stream completes, if there is one."""
        lines = [bytes(self._line), b""]
        self._line.clear()
        return self._events(lines)

    def _with_plain_ends(self, raw: bytes) -> bytes:
        """`raw` with every line end as LF; a CRLF that two reads share is one end."""
        if self._after_cr and raw:
            raw = raw.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or raw.endswith(b"\r")
        return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, lines: list[bytes]) -> list[bytes]:
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._data_bytes += len(line)
            elif line == b"data":
                self._data.append(b"")
                self._data_bytes += len(line)
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
                self._data_bytes = 0
            if self._data_bytes > self._limit or len(line) > self._limit:
                raise EventTooLarge(_TOO_LARGE)
        return events
