"""What a process logs: its own lines at the level asked for, libraries only where something is wrong.

A library's informational lines name URLs, commands or jobs: none of them is needed to run this, and any may come to
hold more than it should.
"""

import logging

from shared.settings import Settings

_OURS = ("api", "workers", "shared", "cli")


def set_up_logging(settings: Settings) -> None:
    """Log to stderr. Call it once, where a process begins."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    for name in _OURS:
        logging.getLogger(name).setLevel(settings.log_level.upper())
