"""The record of one response: what its hash holds, and the Response object made from it. Pure.

Law: the Response object is a function of the record alone, so the object inside the terminal event and the one that a
GET gives later are the same, byte for byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from shared.json_codec import Wire, decode, encode
from shared.mirror import mirrored
from shared.replay import ReasoningContext
from shared.response import Status, response_object

#: Raised by one when the fields of a record change their meaning; two releases may run side by side.
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Ending:
    """How a response ended. `http_status` is what a plain call answers with, 200 unless the response failed.

    `retry_after` is `ApiError.retry_after` of what it failed with.
    `extras` are fields that vLLM added to its Response because the request asked for them.
    """

    status: Status
    completed_at: int | None = None
    usage: Wire | None = None
    error: Wire | None = None
    incomplete_details: Wire | None = None
    service_tier: str | None = None
    extras: Wire | None = None
    http_status: int = 200
    retry_after: int | None = None

    def stored(self) -> bytes:
        """The `ending` field; the status stands in a field of its own, where scripts read it."""
        return encode(
            {
                "completed_at": self.completed_at,
                "usage": self.usage,
                "error": self.error,
                "incomplete_details": self.incomplete_details,
                "service_tier": self.service_tier,
                "extras": self.extras,
                "http_status": self.http_status,
                "retry_after": self.retry_after,
            }
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One response. `options` is the request without its input; items are wire dicts, losslessly.

    `cancelled` says that somebody asked for its cancel, at whatever `status` it is: it can only end as cancelled.
    `mirror` says that subscribers see reasoning as a summary too; `output` holds what the upstream sent all the same.
    """

    response_id: str
    created_at: int
    status: Status
    options: Wire
    seed: int
    reasoning_context: ReasoningContext
    parent: str | None = None
    fence: int = 0
    failures: int = 0
    sequence: int = 0
    cancelled: bool = False
    mirror: bool = False
    ending: Ending | None = None
    output: Sequence[Wire] = field(default=())

    @property
    def background(self) -> bool:
        """Whether the response outlives its request."""
        return bool(self.options.get("background"))

    @property
    def store(self) -> bool:
        """Whether the response may be continued, and read after its foreground request."""
        return self.options.get("store") is not False

    @property
    def model(self) -> str:
        """The model that the request names."""
        return str(self.options["model"])

    def response(self) -> Wire:
        """The Response object as of this record."""
        ending = self.ending or Ending(self.status)
        response = response_object(
            response_id=self.response_id,
            created_at=self.created_at,
            options=self.options,
            status=self.status,
            output=[mirrored(item) for item in self.output] if self.mirror else list(self.output),
            usage=ending.usage,
            error=ending.error,
            incomplete_details=ending.incomplete_details,
            completed_at=ending.completed_at,
            service_tier=ending.service_tier,
            reasoning_context=self.reasoning_context,
        )
        return response | (ending.extras or {})

    def ended(self, ending: Ending, output: Sequence[Wire]) -> Self:
        """The record after its last event."""
        return replace(self, status=ending.status, ending=ending, output=tuple(output))

    def fields(self, items: Sequence[Wire]) -> dict[str, Any]:
        """The hash fields of a new record whose own input is `items`."""
        return {
            "version": FORMAT_VERSION,
            "status": self.status.value,
            "fence": self.fence,
            "failures": self.failures,
            "created_at": self.created_at,
            "options": encode(self.options),
            "seed": self.seed,
            "reasoning_context": self.reasoning_context,
            "store": int(self.store),
            "parent": self.parent or "",
            "mirror": int(self.mirror),
            "inputs": len(items),
        } | {f"input:{index}": encode(item) for index, item in enumerate(items)}

    @classmethod
    def read(cls, response_id: str, fields: Mapping[bytes, bytes], output: Sequence[Wire] = ()) -> Self:
        """A record from its hash fields, those of `HEAD` at least."""
        status = Status(fields[b"status"].decode())
        ending = fields.get(b"ending")
        return cls(
            response_id=response_id,
            created_at=int(fields[b"created_at"]),
            status=status,
            options=decode(fields[b"options"]),
            seed=int(fields[b"seed"]),
            reasoning_context=cast("ReasoningContext", fields[b"reasoning_context"].decode()),
            parent=fields[b"parent"].decode() or None,
            fence=int(fields[b"fence"]),
            failures=int(fields[b"failures"]),
            sequence=int(fields[b"sequence"]),
            cancelled=b"cancelled" in fields,
            mirror=fields.get(b"mirror") == b"1",
            ending=Ending(status=status, **decode(ending)) if ending else None,
            output=tuple(output),
        )


#: The fields that `Record.read` needs.
HEAD = (
    "status",
    "created_at",
    "options",
    "seed",
    "reasoning_context",
    "parent",
    "fence",
    "failures",
    "sequence",
    "cancelled",
    "mirror",
    "ending",
)
