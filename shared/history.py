"""The item history of a chain of responses. Pure.

Order is root to leaf, each turn's input then its output (OpenAI reference: the previous input and output, in order,
before the new input).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import InvalidRequest
from shared.json_codec import Wire
from shared.merge import Merge
from shared.response import Status


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a chain: its response, and its items in order."""

    response_id: str
    status: Status
    input: list[Wire]
    output: list[Wire]


def item_history(turns: Sequence[Turn]) -> list[Wire]:
    """The items of a chain, root to leaf.

    Raises `InvalidRequest` when the newest turn failed or was cancelled: what it left is no basis for another. An
    incomplete one is. Of one that still runs only the input is known. Items sent again keep their first place.
    """
    if turns and turns[-1].status in {Status.FAILED, Status.CANCELLED}:
        newest = turns[-1]
        raise InvalidRequest(
            f"Previous response '{newest.response_id}' is {newest.status.value} and can't be continued. "
            "Continue the response before it.",
            param="previous_response_id",
        )
    history = Merge()
    for turn in turns:
        history.add(turn.input)
        if turn.status.terminal:
            history.keep(turn.output)
    return history.items
