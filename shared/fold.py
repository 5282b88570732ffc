"""The public event log, folded back into the accumulator that wrote it. Pure.

Law: one path. The log speaks the upstream's language, so what read the upstream reads the log.
"""

from collections.abc import Iterable

from shared.accumulator import Accumulator
from shared.events import PublicEvent


def fold(events: Iterable[PublicEvent]) -> Accumulator:
    """An accumulator in the state of the one that gave these events out: it goes on with the next number.

    What was still held when the log broke off (an unsaid `output_item.done`, white space of a message that was not
    announced) is not in the log, so it is lost.
    """
    accumulator = Accumulator()
    for event in events:
        accumulator.absorb(event)
    return accumulator
