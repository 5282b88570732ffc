"""What was odd about upstreams' streams, by kind: once a response in the log, and a total of the process for metrics.

Law: kinds are fixed names, written by us; an id and counts stand beside them, never content.
"""

import logging
from collections import Counter
from collections.abc import Mapping

_log = logging.getLogger(__name__)


class Anomalies:
    """The totals of one process. `skipped`: events of which nothing could be used. `repaired`: what was made good."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()

    def note(self, response_id: str, skipped: Mapping[str, int], repaired: Mapping[str, int]) -> None:
        """Add what one response had, as `Accumulator` counts it."""
        self.skipped.update(skipped)
        self.repaired.update(repaired)
        if skipped or repaired:
            _log.info("%s: upstream events skipped: %s, repaired: %s", response_id, dict(skipped), dict(repaired))
