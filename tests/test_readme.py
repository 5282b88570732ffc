"""README's and CONTRIBUTING's examples run as they stand there, and what they name is what there is."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared.parameters import Parameters
from stack import Stack, until

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
URL = "http://127.0.0.1:8700"


def examples(language: str) -> str:
    """All blocks of a language, one program."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert blocks
    return "\n".join(blocks)


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def test_the_python_examples(stack: Stack) -> None:
    script = examples("python")
    assert URL in script
    stack.faults(tokens_per_second=400)  # what is to be cancelled takes half a minute
    ran = subprocess.run(
        [sys.executable, "-c", script.replace(URL, stack.url)],
        check=False,  # its stderr says more than an exception
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout
    lines = said.split("\n")
    assert "Cleo" in said.partition(" 2 3 ")[0]
    assert "18 19 20." in said
    assert re.search(r"our name is Cleo", said)
    assert "queued" in said
    numbers = [int(line.split()[0]) for line in lines if re.fullmatch(r"\d+ response\.\S+", line)]
    assert numbers == list(range(6, numbers[-1] + 1))
    assert lines[lines.index(f"{numbers[-1]} response.completed") + 1] == "completed"
    assert "sunny in Paris, 21 degrees" in said
    assert "cancelled ['reasoning', 'message']" in said
    until(lambda: any(request["aborted"] for request in stack.upstream()))
    stayed = [request for request in stack.upstream() if not request["aborted"]]
    assert len(stayed) == 6, "a turn each; the call loop took two, the cancelled one was broken off"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_examples(stack: Stack) -> None:
    script = examples("sh")
    assert URL in script
    ran = subprocess.run(
        ["sh", "-e", "-c", script.replace(URL, stack.url)], capture_output=True, text=True, check=True, timeout=30
    )
    plain, _, stream = ran.stdout.partition("event: response.created\n")
    assert '"status":"completed"' in plain
    assert stream.endswith("data: [DONE]\n\n")


def test_every_parameter_stands_in_the_table_and_no_other() -> None:
    rows = [line for line in section("What a request may hold").splitlines() if line.startswith("|")]
    cells = " ".join(row.strip("| ").partition(" | ")[2] for row in rows)
    named = {name.partition(".")[0] for name in re.findall(r"`([a-z_.]+)`", cells)}
    values = {"item_reference", "message", "soonest", "standard", "encrypted_content", "default"}
    refused = {"conversation", "prompt", "moderation"}
    others = {"access_programs", "input"}  # read apart from the shapes
    assert named - values == {*Parameters.model_fields, *refused, *others}


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_example_of_contributing_selects_tests() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    [arguments] = re.findall(r"^\.venv/bin/python (-m pytest .*?)(?: +#.*)?$", contributing, re.MULTILINE)
    ran = subprocess.run(
        [sys.executable, *shlex.split(arguments), "--collect-only", "-q"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout
    assert "::test_" in ran.stdout


def test_what_contributing_points_at_exists() -> None:
    found = re.search(r"^## Where to look\n(.*?)^## ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    rows = [line.strip("| ").split(" | ") for line in found[1].splitlines()[2:] if line.startswith("|")]
    assert len(rows) == 7
    for _, code, tests in rows:
        folder = ""
        for name in re.findall(r"`([^`]+)`", code):
            folder, _, module = name.rpartition("/") if "/" in name else (folder, "", name)
            assert list(ROOT.glob(f"{folder}/{module}.py")), name
        for name in re.findall(r"`([^`]+)`", tests):
            assert (ROOT / f"tests/{name}.py").exists(), name
