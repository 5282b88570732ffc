"""The page of rules is true: every row names tests that there are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/rules.md").read_text()

#: A test as the page names it: module, function, and the row of its table.
NAMED = re.compile(r"`(test_\w+)::(test_\w+)(?:\[((?:[^`])+)\])?`")


def rows() -> list[list[str]]:
    """The cells of every row of every table, without the heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
    return [row for row, below in zip(cells, [*cells[1:], [""]], strict=True) if "---" not in row[0] + below[0]]


ROWS = rows()
TESTS = sorted({found for row in ROWS for found in NAMED.findall(row[-1])})


@pytest.fixture(scope="module")
def collected() -> dict[tuple[str, str], set[str]]:
    """Every test of the modules that the page names, and the ids of its rows."""
    modules = sorted({f"tests/{module}.py" for module, _, _ in TESTS})
    assert all((ROOT / module).exists() for module in modules)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *modules],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout
    found: dict[tuple[str, str], set[str]] = {}
    for module, test, row in re.findall(r"^tests/(\w+)\.py::(\w+)(?:\[(.*)\])?$", ran.stdout, re.MULTILINE):
        found.setdefault((module, test), set()).add(row)
    return found


def test_the_page_is_read_whole() -> None:
    assert len(ROWS) > 60
    assert [row for row in ROWS if len(row) != 3 or not all(row)] == [], "a rule, an example, its tests"
    assert len(re.findall(r"::test_", PAGE)) == sum(len(NAMED.findall(row[-1])) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_every_rule_names_a_test(row: list[str]) -> None:
    assert NAMED.findall(row[-1])
    assert not NAMED.sub("", row[-1]).strip(), "nothing but tests stands there"


def test_every_test_that_is_named_is_there(collected: dict[tuple[str, str], set[str]]) -> None:
    assert [name for name in TESTS if name[:2] not in collected] == []


def test_every_row_that_is_named_is_there(collected: dict[tuple[str, str], set[str]]) -> None:
    """A row's id may stand among those of other parameters: `row-1`, `asyncio-row`."""
    named = [(module, test, row) for module, test, row in TESTS if row and (module, test) in collected]
    assert [
        name for name in named if not any(f"-{name[2]}-" in f"-{own}-" for own in collected[name[0], name[1]])
    ] == []
