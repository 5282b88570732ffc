"""Which Python the Makefile takes, in a folder of its own where all that it would install is there already."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")

#: Says that it is another version, and is this very Python otherwise.
DISGUISE = """#!/bin/sh
exec "{python}" -c 'import sys
sys.version, sys.version_info = "{version} (a disguise)", tuple(map(int, "{version}".split(".")))
exec(sys.argv[2])' "$@"
"""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.copy(ROOT / "Makefile", path)

    def python(self, name: str, version: str) -> Path:
        python = self.path / name
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(DISGUISE.format(python=sys.executable, version=version))
        python.chmod(0o755)
        return python

    def set_up(self, version: str) -> None:
        """As it is once `make demo` has run."""
        self.python(".venv/bin/python", version)
        (self.path / ".venv/bin/rejoinder").write_text('#!/bin/sh\necho "$1 ran"\n')
        (self.path / ".venv/bin/rejoinder").chmod(0o755)
        (self.path / ".venv/stamps").mkdir()
        for name in ("pyproject.toml", "constraints.txt", ".venv/stamps/venv", ".venv/stamps/runtime"):
            (self.path / name).touch()

    def make_demo(self, *arguments: str, **environment: str) -> tuple[int, str]:
        outside = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")  # of the make that runs the tests
        ran = subprocess.run(
            ["make", "demo", *arguments],
            check=False,
            cwd=self.path,
            env={name: value for name, value in os.environ.items() if name not in outside} | environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if not line.startswith("make: ***")]
        return ran.returncode, "\n".join(said)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("by", ["environment", "argument"])
@pytest.mark.parametrize(
    ("python", "there", "says"),
    [
        ("nowhere", None, "PYTHON={} does not run: name a Python 3.11 or 3.12"),
        ("nowhere", "3.11.7", "PYTHON={} does not run: name a Python 3.11 or 3.12"),
        ("3.10.4", None, "PYTHON={} is Python 3.10.4 of {prefix}: 3.11 or 3.12 is needed"),
        ("3.13.0", "3.11.7", "PYTHON={} is Python 3.13.0 of {prefix}: 3.11 or 3.12 is needed"),
        (
            "3.12.1",
            "3.11.7",
            "PYTHON={} is Python 3.12.1 of {prefix}, but .venv holds 3.11.7 of {prefix}: make clean first",
        ),
    ],
    ids=["missing", "missing beside a .venv", "too old", "too new", "another than in .venv"],
)
def test_a_python_that_does_not_suit_is_told_and_no_other_is_taken(
    folder: Folder, by: str, python: str, there: str | None, says: str
) -> None:
    wish = folder.path / "nowhere" if python == "nowhere" else folder.python("its folder/python", python)
    if there:
        folder.set_up(there)
    code, said = folder.make_demo(PYTHON=str(wish)) if by == "environment" else folder.make_demo(f"PYTHON={wish}")
    assert (code, said) == (2, says.format(wish, prefix=os.path.realpath(sys.base_prefix)))
    assert (folder.path / ".venv").exists() is bool(there)


def test_the_python_of_the_venv_and_none_are_both_fine(folder: Folder) -> None:
    folder.set_up("3.12.1")
    same = folder.python("its folder/python", "3.12.1")
    assert folder.make_demo(PYTHON=str(same)) == (0, "demo ran")
    assert folder.make_demo(PYTHON="") == (0, "demo ran")
    assert folder.make_demo() == (0, "demo ran")
