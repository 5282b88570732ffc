"""Line and branch coverage of the pure modules by their own tests: `make coverage`. Ends with 2 below the limit.

The pure modules are those that `test_architecture` holds to be pure, in `shared` and `workers`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from test_architecture import MODULES, PURE

ROOT = Path(__file__).parent.parent
LIMIT = 98  # percent
#: Tests of what several of them do together.
ALSO = ("test_field_bugs", "test_whole_items")


def main() -> int:
    measured = [name for name in PURE if name.partition(".")[0] in ("shared", "workers")]
    own = [ROOT / f"tests/test_{name.rpartition('.')[2]}.py" for name in measured]
    tests = [path for path in own if path.exists()] + [ROOT / f"tests/{name}.py" for name in ALSO]
    include = ",".join(str(MODULES[name]) for name in measured)
    with tempfile.TemporaryDirectory() as folder:
        coverage = [sys.executable, "-m", "coverage"]
        about = {"cwd": ROOT, "env": os.environ | {"COVERAGE_FILE": f"{folder}/data"}}
        run = [*coverage, "run", "--branch", f"--include={include}", "-m", "pytest", "-q", *map(str, tests)]
        if failed := subprocess.run(run, check=False, **about).returncode:
            return failed
        report = [*coverage, "report", "--show-missing", f"--include={include}", f"--fail-under={LIMIT}"]
        return subprocess.run(report, check=False, **about).returncode


if __name__ == "__main__":
    sys.exit(main())
