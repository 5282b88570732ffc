"""The public event log, folded back into the accumulator that wrote it. Pure.

Law: one path. The log speaks the upstream's language, so what read the upstream reads the log.
"""

from collections.abc import Iterable

from shared.accumulator import Accumulator
from shared.events import PublicEvent


def fold(events: Iterable[PublicEvent], accumulator: Accumulator | None = None) -> Accumulator:
    """An accumulator in the state of the one that gave these events out: it goes on with the next number.

    A long log is folded piece by piece: `accumulator` is what the pieces before gave.

    What was still held when the log broke off (an unsaid `output_item.done`, white space of a message that was not
    announced) is not in the log, so it is lost.
    """
    accumulator = accumulator or Accumulator()
    for event in events:
        accumulator.absorb(event)
    return accumulator
