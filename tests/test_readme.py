"""README's examples run as they stand there, and its list of parameters is the one the code has."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared.parameters import Parameters
from stack import Stack

README = (Path(__file__).parent.parent / "README.md").read_text()
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
    assert len(stack.upstream()) == 6, "a turn each; the call loop took two"


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
        assert (Path(__file__).parent.parent / target).exists(), target
