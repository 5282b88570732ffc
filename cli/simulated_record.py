"""What the simulated vLLM was sent, for tests and the demo: the last requests, within a bound of bytes."""

from collections import deque
from dataclasses import dataclass, field

from shared.json_codec import Wire, decode

#: Headers worth keeping; credentials are not among them.
_HEADERS = (b"content-type", b"user-agent", b"x-request-id", b"x-session-id", b"x-vllm-priority")


@dataclass(slots=True)
class Record:
    """One request. `ending` is `running`, `finished`, `refused`, `aborted` (the client left) or `broken` (a fault)."""

    number: int
    raw: bytes
    headers: dict[str, str] = field(default_factory=dict)
    response_id: str | None = None
    status: int | None = None
    stream: bool = False
    deltas: int = 0
    ending: str = "running"

    def view(self) -> Wire:
        """As JSON; `body` is null where it was none."""
        try:
            body = decode(self.raw)
        except ValueError:
            body = None
        return {
            "number": self.number,
            "body": body,
            "headers": self.headers,
            "response_id": self.response_id,
            "status": self.status,
            "stream": self.stream,
            "deltas": self.deltas,
            "ending": self.ending,
            "finished": self.ending == "finished",
            "aborted": self.ending == "aborted",
        }


class Recorder:
    """The last `limit` requests whose bodies fit in `byte_limit` together; the oldest go first."""

    def __init__(self, limit: int, byte_limit: int) -> None:
        self._limit = limit
        self._byte_limit = byte_limit
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._number = 0

    def open(self, raw: bytes, headers: list[tuple[bytes, bytes]]) -> Record:
        """Begin the record of a request that has arrived whole."""
        self._number += 1
        kept = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _HEADERS}
        record = Record(self._number, raw, kept)
        self._records.append(record)
        self._bytes += len(raw)
        while len(self._records) > self._limit or self._bytes > self._byte_limit:
            self._bytes -= len(self._records.popleft().raw)
        return record

    def clear(self) -> None:
        """Forget them; the numbers go on."""
        self._records.clear()
        self._bytes = 0

    def view(self) -> Wire:
        """The kept requests in order, and how many there ever were."""
        return {"received": self._number, "requests": [record.view() for record in self._records]}
