"""`rejoinder demo` as a real process: what it shows, what it leaves, and that it can fail."""

import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.demo_story import Refuted, Story
from cli.demo_subscriber import Subscriber
from cli.demo_view import View
from stack import REJOINDER, until

HEADINGS = [
    "1. A background response is submitted",
    "2. Two subscribers follow it, and one is cut off",
    "3. The reasoning is stored, whole",
    "4. A continuation is sent, and the model gets its reasoning back",
    "5. A plain and a streamed call give the same items",
    "6. The end",
]

STOPPING = "Interrupted, stopping everything ..."
STOPPED = "✓ All of it has ended in order, its ports are closed, its files are gone."

needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


class Demo:
    """A running demo whose whole family carries a mark in its environment, and whose files go into a folder."""

    def __init__(self, folder: Path, *command: str | Path, stdout: int | None = None, **environment: str) -> None:
        self.files = folder / "files"
        self.files.mkdir()
        self._mark = f"DEMO_UNDER_TEST={folder}"
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command or (REJOINDER, "demo"),
                stdout=output if stdout is None else stdout,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "TMPDIR": str(self.files),
                    "COLUMNS": "80",
                    "DEMO_UNDER_TEST": str(folder),
                    "SPT_NOENV": "1",  # a process that names itself would overwrite the mark
                    **environment,
                },
                start_new_session=True,
            )

    def end(self, timeout: float = 40.0) -> tuple[int, str]:
        code = self.process.wait(timeout)
        return code, self.output.read_text()

    def family(self) -> list[int]:
        """Every process with the mark."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


@pytest.fixture
def start(tmp_path: Path) -> Any:
    running: list[Demo] = []

    def begin(*command: str | Path, **given: Any) -> Demo:
        running.append(Demo(tmp_path, *command, **given))
        return running[-1]

    yield begin
    for demo in running:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(40)


Start = Callable[..., Demo]


@needs_proc
def test_the_demo_shows_the_main_job_in_a_pipe_and_leaves_nothing(start: Start) -> None:
    elsewhere = {"REDIS_URL": "redis://127.0.0.1:1", "REJOINDER_REDIS_URL": "redis://127.0.0.1:1"}
    demo = start(**elsewhere, REJOINDER_VLLM_URL="http://127.0.0.1:1", FORCE_COLOR="")
    until(lambda: len(demo.family()) > 4)
    code, shown = demo.end()
    assert code == 0, shown
    assert demo.family() == []
    assert list(demo.files.iterdir()) == []
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80

    places = [shown.find(f"\n{heading} ─") for heading in HEADINGS]
    assert places == sorted(places)
    assert -1 not in places

    [cursor] = map(int, re.findall(r"starting_after=(\d+)", shown))
    cut, missed = map(int, re.search(r"✓ B was cut off at event (\d+); A got (\d+) more", shown).groups())
    first, after, last = map(int, re.search(r"✓ B got 0 to (\d+), then (\d+) to (\d+): none missing", shown).groups())
    assert (cut, first, after) == (cursor, cursor, cursor + 1)
    assert cursor + missed <= last
    assert f"✓ A got events 0 to {last} over one connection" in shown
    assert f"✓ all {last + 1} events are the same for both" in shown
    assert re.search(r"< resp_\w{48}, queued, after \d+ ms", shown)
    assert shown.count("✓") == int(re.search(r"All (\d+) claims held", shown).group(1)) + 2
    assert "✗" not in shown


@needs_proc
def test_a_demo_interrupted_while_it_starts_leaves_nothing(start: Start) -> None:
    demo = start()
    until(lambda: "Starting everything" in demo.output.read_text())
    demo.process.send_signal(signal.SIGTERM)
    code, shown = demo.end()
    assert (code, demo.family(), list(demo.files.iterdir())) == (130, [], [])
    assert shown.splitlines()[-2:] == [STOPPING, STOPPED]


@needs_proc
def test_on_a_terminal_panels_grow_and_an_interrupt_leaves_it_in_order(start: Start) -> None:
    terminal, inner = os.openpty()
    termios.tcsetwinsize(inner, (30, 80))
    demo = start(stdout=inner, TERM="xterm")
    os.close(inner)
    shown = ""
    while "[cut]" not in shown:
        shown += os.read(terminal, 65536).decode(errors="replace")
    demo.process.send_signal(signal.SIGINT)
    with suppress(OSError):  # Linux's word for the end of a terminal
        while read := os.read(terminal, 65536):
            shown += read.decode(errors="replace")
    os.close(terminal)
    assert demo.process.wait(40) == 130
    assert (demo.family(), list(demo.files.iterdir())) == ([], [])
    assert shown.count("subscriber A") > 10, "a frame each"
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l"), "the cursor is back"
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert plain.splitlines()[-2:] == [STOPPING, STOPPED]
    assert "Traceback" not in plain


#: Stands in for `rejoinder up`: gets ready, and serves what no Rejoinder would.
STAND_IN = """
import http.server, os, sys
url = sys.argv[sys.argv.index("--vllm") + 1]
class Wrong(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(int(os.environ["STATUS"]))
        self.end_headers()
        self.wfile.write(os.environ["ANSWER"].encode())
if not os.environ["ANSWER"]:
    sys.exit("no Redis here")
server = http.server.HTTPServer(("127.0.0.1", int(url.rpartition(":")[2])), Wrong)
print(f"ready {url}/v1", flush=True)
server.serve_forever()
"""


@needs_proc
@pytest.mark.parametrize(
    ("status", "answer", "refuted"),
    [
        (200, '{"id": "resp_1", "status": "completed", "output": []}', "✗ queued, with no output yet"),
        (200, "[]", "✗ an answer had not the shape that it should have (TypeError)"),
        (200, "no JSON", "✗ an answer had not the shape that it should have (ValueError)"),
        (503, "{}", "✗ Server error '503 Service Unavailable' for url"),
        (200, "", "✗ `rejoinder up --simulate` did not get ready. It said last:"),
    ],
    ids=["a claim", "no object", "no JSON", "a status", "no start"],
)
def test_what_is_not_as_claimed_is_named_and_ends_the_demo(
    start: Start, tmp_path: Path, status: int, answer: str, refuted: str
) -> None:
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    script = "import sys; from cli.demo import run_demo; raise SystemExit(run_demo((sys.executable, sys.argv[1])))"
    demo = start(sys.executable, "-c", script, stand_in, STATUS=str(status), ANSWER=answer)
    code, shown = demo.end()
    assert (code, demo.family(), list(demo.files.iterdir())) == (1, [], [])
    assert refuted in shown
    assert ("no Redis here" in shown) is (answer == "")
    assert "✗ `rejoinder up` ended with code " in shown, "an `up` that does not end in order is named too"


EVENTS = [{"type": "t", "sequence_number": number} for number in range(6)]


@pytest.mark.parametrize(
    ("seen", "holds"),
    [
        (EVENTS, True),
        (EVENTS[:3] + EVENTS[4:], False),
        (EVENTS[:3] + EVENTS[2:], False),
        (EVENTS[:5], False),
        ([*EVENTS[:5], EVENTS[5] | {"delta": "other"}], False),
        ([*EVENTS[:3], EVENTS[4], EVENTS[3], EVENTS[5]], False),
    ],
    ids=["the same", "one missing", "one twice", "cut short", "another text", "out of order"],
)
def test_the_proof_of_the_two_streams_can_fail(seen: list[Any], holds: bool) -> None:
    story = Story(httpx.AsyncClient(), httpx.AsyncClient(), View())
    whole, resumed = Subscriber("A"), Subscriber("B")
    whole.events, resumed.events, whole.done, resumed.done = EVENTS, seen, True, True
    if holds:
        story._check_streams(whole, resumed, 2)
    else:
        with pytest.raises(Refuted):
            story._check_streams(whole, resumed, 2)
