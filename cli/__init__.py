"""The command `rejoinder`: composes the other packages."""

import sys
from types import TracebackType

_shown = sys.excepthook


def _unless_interrupted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Ctrl-C while a command is being loaded is no fault to trace."""
    if issubclass(kind, KeyboardInterrupt):
        raise SystemExit(130)
    _shown(kind, error, trace)


sys.excepthook = _unless_interrupted
