"""Pace and faults on demand: how slowly, and how badly, the simulated vLLM serves a request.

Three layers, the later wins field by field: the process's own (command line), the admin's for the next requests
(`POST /simulator/faults`), the request's (`"simulate": {…}` in its body, which a real vLLM ignores). A gateway forwards
no unknown fields, so behind one the admin's layer is the one to use.
"""

from collections import deque
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cli.simulated_refusal import Refusal
from shared.json_codec import Wire

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


class Faults(BaseModel):
    """One layer. Counts are deltas that the client has got before the fault; a plain answer breaks in its middle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Tokens a second; null or 0 is as fast as it goes.
    tokens_per_second: Seconds | None = None
    #: Between the HTTP request and the answer's headers: a full queue in front of the engine.
    before_headers_seconds: Seconds = 0.0
    #: Between `response.in_progress` and the first token.
    first_token_seconds: Seconds = 0.0
    #: The chunked body breaks off after that many deltas, as when the engine dies.
    cut_after: Count | None = None
    #: Nothing more is sent after that many deltas, and the connection stays open until the client leaves.
    stall_after: Count | None = None
    #: The stall ends after that long and the stream goes on; null: never.
    stall_seconds: Seconds | None = None
    #: One event that is no JSON is sent after that many deltas; the stream goes on.
    garbage_after: Count | None = None
    #: The body ends cleanly, with no `response.completed`.
    omit_completed: bool = False
    #: Answer in plain JSON although a stream was asked for, as some upstreams do.
    answer_json: bool = False
    #: Answer with this HTTP status instead, and with `refuse_body` or an error body of vLLM's.
    refuse: Annotated[int, Field(ge=400, le=599)] | None = None
    refuse_body: Any = None
    #: Close the connection with no answer at all.
    drop_before_headers: bool = False


class FaultDesk:
    """Where the layers meet. What is filed for the next n requests is used up in the order of filing."""

    def __init__(self, own: Faults) -> None:
        self._own = own
        self._standing: Wire = {}
        self._filed: deque[tuple[int, Wire]] = deque()

    def file(self, body: Any) -> Wire:
        """Take `{"next": n, …faults}`: for the next n requests (default 1), with null for all until cleared."""
        if not isinstance(body, dict):
            raise Refusal("faults are a JSON object")
        uses = body.get("next", 1)
        layer = {name: value for name, value in body.items() if name != "next"}
        _checked(layer)
        if uses is None:
            self._standing = layer
        elif isinstance(uses, int) and uses > 0:
            self._filed.append((uses, layer))
        else:
            raise Refusal("`next` is a positive number or null", param="next")
        return self.view()

    def clear(self) -> None:
        """Forget what the admin has filed."""
        self._standing = {}
        self._filed.clear()

    def view(self) -> Wire:
        """All layers but the requests'."""
        return {
            "own": self._own.model_dump(),
            "standing": self._standing,
            "filed": [{"next": uses, **layer} for uses, layer in self._filed],
        }

    def draw(self, requested: Any) -> Faults:
        """The faults of one request, whose own wishes are `requested`. Raises `Refusal` where they make no sense."""
        wishes = requested if isinstance(requested, dict) else {}
        _checked(wishes)
        filed: Wire = {}
        if self._filed:
            uses, filed = self._filed.popleft()
            if uses > 1:
                self._filed.appendleft((uses - 1, filed))
        layers = self._standing | filed | wishes
        return Faults.model_validate(self._own.model_dump() | layers) if layers else self._own


def _checked(layer: Wire) -> None:
    try:
        Faults.model_validate(layer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Refusal(first["msg"], param=".".join(map(str, first["loc"]))) from None
