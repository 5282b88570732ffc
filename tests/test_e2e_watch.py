"""`rejoinder watch` and `rejoinder submit` as a user runs them: real processes, in pipes and on a terminal."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stack import MODEL, REJOINDER, Stack, until

#: "Count to 60." as the simulated model answers it.
COUNT = f"{' '.join(map(str, range(1, 61)))}."
BACKGROUND = {"model": MODEL, "input": "Count to 60.", "background": True}


class Command:
    """A running command whose output goes into files, as in a pipe, or onto a terminal."""

    def __init__(self, folder: Path, stack: Stack, *arguments: str, **given: Any) -> None:
        self.out, self.err = folder / "out", folder / "err"
        environment = {**os.environ, "REJOINDER_URL": stack.url} | given.pop("environment", {})
        with self.out.open("wb") as out, self.err.open("wb") as err:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err} | given
            self.process = subprocess.Popen([REJOINDER, *arguments], env=environment, **streams)

    def end(self, timeout: float = 30.0) -> tuple[int, str, str]:
        code = self.process.wait(timeout)
        return code, self.out.read_text(), self.err.read_text()


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Command] = []

    def begin(stack: Stack, *arguments: str, **given: Any) -> Command:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        running.append(Command(folder, stack, *arguments, **given))
        return running[-1]

    yield begin
    for command in running:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def background(stack: Stack, **fields: Any) -> str:
    response_id: str = stack.http.post("/v1/responses", json=BACKGROUND | fields).json()["id"]
    return response_id


def stored(stack: Stack, response_id: str) -> dict[str, Any]:
    found: dict[str, Any] = stack.http.get(f"/v1/responses/{response_id}").json()
    return found


def answer(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def reasoning(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


def ended(err: str) -> str:
    """The last line of stderr, without the id, which is checked."""
    *_, last = err.splitlines()
    line, _, response_id = last.rpartition(", ")
    assert re.fullmatch(r"resp_\w{48}", response_id), last
    return line


def usage(response: dict[str, Any]) -> str:
    told = response["usage"]
    reasoned = told["output_tokens_details"]["reasoning_tokens"]
    return f"{told['input_tokens']} tokens in, {told['output_tokens']} out ({reasoned} reasoning)"


@pytest.mark.parametrize("pace", [None, 40], ids=["ended", "running"])
def test_watch_in_a_pipe(stack: Stack, start: Start, pace: int | None) -> None:
    stack.faults(tokens_per_second=pace)
    response_id = background(stack)
    if pace is None:
        until(lambda: stored(stack, response_id)["status"] == "completed")
    code, out, err = start(stack, "watch", response_id, environment={"FORCE_COLOR": "1"}).end()
    response = stored(stack, response_id)
    assert (code, out) == (0, f"{answer(response)}\n")
    assert out.strip() == COUNT
    assert err.startswith(f"queued, {response_id}\nin progress\n{reasoning(response)}")
    assert ended(err) == f"completed, {usage(response)}"
    assert "\x1b" not in err


def test_watch_on_a_terminal_dims_the_reasoning(stack: Stack, start: Start) -> None:
    stack.faults(tokens_per_second=200)
    response_id = background(stack)
    terminal, inner = os.openpty()
    streams = {"stdin": inner, "stdout": inner, "stderr": inner, "environment": {"TERM": "xterm", "NO_COLOR": ""}}
    command = start(stack, "watch", response_id, **streams)
    os.close(inner)
    shown = b""
    with suppress(OSError):  # Linux's word for the end of a terminal
        while read := os.read(terminal, 65536):
            shown += read
    os.close(terminal)
    assert command.process.wait(10) == 0
    text = shown.decode().replace("\r\n", "\n")
    dimmed = "".join(re.findall(r"\x1b\[2m(.*?)\x1b\[0m", text, re.DOTALL))
    response = stored(stack, response_id)
    assert dimmed == f"queued, {response_id}\nin progress\n{reasoning(response).strip()}\n"
    plain = re.sub(r"\x1b\[[0-9;]*m.*?\x1b\[0m", "", text, flags=re.DOTALL)
    assert plain == f"\n{COUNT}\n\n"
    assert set(re.findall(r"\x1b[^m]*m", text)) == {"\x1b[0m", "\x1b[1m", "\x1b[2m"}, "no tricks"


def test_the_api_is_killed_and_comes_back_and_nothing_is_lost(tmp_path: Path, start: Start) -> None:
    with Stack(tmp_path) as stack:
        stack.faults(next=2, tokens_per_second=25)
        watching = start(stack, "watch", background(stack, input="Count to 2000."))  # longer than any outage
        submitted = start(stack, "submit", "Count to 2000.")
        both = (watching, submitted)
        until(lambda: all(" 3 4 5 " in one.out.read_text() for one in both))
        for outage in (1, 2):
            stack.api.kill()
            stack.api.wait()
            until(lambda n=outage: all(one.err.read_text().count("Trying again.") == n for one in both))
            stack.api = stack.start("api", "--port", str(stack.api_port))
            until(lambda n=outage: all(one.err.read_text().count("Going on after") == n for one in both))
        assert all(one.process.poll() is None for one in both), "in the middle"
        for command in both:
            response_id = command.err.read_text().splitlines()[0].removeprefix("queued, ")
            stack.http.post(f"/v1/responses/{response_id}/cancel").raise_for_status()
            code, out, err = command.end()
            assert (code, ended(err)) == (1, "cancelled")
            assert out == f"{answer(stored(stack, response_id))}\n"
            assert f"{' '.join(map(str, range(1, 2001)))}.".startswith(out.strip())


def test_submit_shows_an_answer_and_its_continuation_recalls_it(stack: Stack, start: Start) -> None:
    code, out, err = start(stack, "submit", "My name is Cleo.").end()
    first = err.splitlines()[-1].rpartition(", ")[2]
    assert code == 0
    assert "Cleo" in out
    assert ended(err) == f"completed, {usage(stored(stack, first))}"
    question = start(
        stack, "submit", "--previous", first, "--model", MODEL, "--url", f"{stack.url}/v1/", "What is my name?"
    )
    code, out, _ = question.end()
    assert (code, "name is Cleo" in out) == (0, True)


@pytest.mark.parametrize("arguments", [[], ["-"]], ids=["nothing", "a dash"])
def test_submit_reads_stdin_and_in_the_background_prints_the_id_alone(
    stack: Stack, start: Start, tmp_path: Path, arguments: list[str]
) -> None:
    prompt = tmp_path / "prompt"
    prompt.write_text("Say: grüß dich\n")
    with prompt.open() as stdin:
        code, out, err = start(stack, "submit", "--background", *arguments, stdin=stdin).end()
    assert (code, err) == (0, "")
    assert re.fullmatch(r"resp_\w{48}\n", out)
    code, out, _ = start(stack, "watch", out.strip(), environment={"PYTHONIOENCODING": "ascii"}).end()
    assert (code, out.strip()) == (0, "grüß dich")


def test_calls_are_lines_and_no_part_of_the_answer(stack: Stack, start: Start) -> None:
    tool = {"type": "function", "name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}
    response_id = background(stack, input="What is the weather in Paris?", tools=[tool], tool_choice="required")
    code, out, err = start(stack, "watch", response_id).end()
    assert (code, out) == (0, "")
    assert 'function_call get_weather {"city":"Paris"} (completed)\n' in err


def test_a_foreground_response_is_waited_for(stack: Stack, start: Start) -> None:
    stack.faults(tokens_per_second=60)
    with stack.openai.responses.create(model=MODEL, input="Count to 60.", stream=True) as events:
        response_id = next(iter(events)).response.id
        command = start(stack, "watch", response_id)
        until(lambda: "Waiting for its end." in command.err.read_text())
        assert command.out.read_text() == ""
        for _ in events:
            pass
    code, out, err = command.end()
    assert (code, out.strip()) == (0, COUNT)
    assert ended(err).startswith("completed, ")


def test_a_response_that_failed(stack: Stack, start: Start) -> None:
    stack.faults(cut_after=40)
    code, out, err = start(stack, "submit", "Count to 60.").end()
    assert code == 1
    assert out.startswith("\n\n1 2 "), "what had come"
    assert ended(err) == "failed (server_error: The connection to the model server broke.)"


def test_a_response_that_is_cut_short(stack: Stack, start: Start) -> None:
    code, out, err = start(stack, "watch", background(stack, max_output_tokens=40)).end()
    assert (code, out.startswith("\n\n1 2 ")) == (0, True)
    assert ended(err).startswith("incomplete (max_output_tokens), ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_watching_leaves_it_running(stack: Stack, start: Start, number: int) -> None:
    stack.faults(tokens_per_second=60)
    response_id = background(stack, input="Count to 2000.")
    command = start(stack, "watch", response_id)
    until(lambda: " 3 4 " in command.out.read_text())
    command.process.send_signal(number)
    code, out, err = command.end()
    assert code == 130
    assert err.endswith(f"It goes on without you. To see it again: rejoinder watch {response_id} --url {stack.url}\n")
    assert stored(stack, response_id)["status"] == "in_progress"
    cancelled = stack.http.post(f"/v1/responses/{response_id}/cancel").json()
    assert answer(cancelled).startswith(out), "it has written on"


def test_who_stops_submitting_cancels_it(stack: Stack, start: Start) -> None:
    stack.faults(tokens_per_second=40)
    command = start(stack, "submit", "Count to 600.")
    until(lambda: " 3 4 " in command.out.read_text())
    command.process.send_signal(signal.SIGINT)
    code, _, err = command.end()
    assert (code, ended(err)) == (130, "cancelled")
    assert stored(stack, err.splitlines()[-1].rpartition(", ")[2])["status"] == "cancelled"
    code, _, err = start(stack, "watch", err.splitlines()[-1].rpartition(", ")[2]).end()
    assert (code, ended(err)) == (1, "cancelled")


def test_a_reader_that_leaves_ends_it(stack: Stack, start: Start) -> None:
    stack.faults(tokens_per_second=40)
    reader, writer = os.pipe()
    command = start(stack, "submit", "Count to 600.", stdout=writer)
    os.close(writer)
    assert os.read(reader, 100)
    os.close(reader)
    code, _, err = command.end()
    assert (code, ended(err)) == (141, "cancelled")


UNKNOWN = f"resp_00{'0' * 46}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["watch", UNKNOWN], f"404 Response with id '{UNKNOWN}' not found."),
        (["watch", "resp_1"], "404 Response not found."),
        (["watch", "../models?x"], "that is no id of a response: they look like resp_…"),
        (["watch", " "], "that is no id of a response: they look like resp_…"),
        (["watch", UNKNOWN, "--url", "localhost"], "--url / REJOINDER_URL: write it like http://HOST:8700/v1"),
        (["submit", " "], "the prompt is empty"),
        (["submit"], "the prompt is empty"),
        (["submit", os.fsdecode(b"\xff")], "the prompt is no UTF-8 text"),
        (
            ["submit", "Hi", "--url", "http://127.0.0.1:1"],
            "http://127.0.0.1:1/v1: nothing answers; is `rejoinder up` running? --url names another address",
        ),
        (
            ["submit", "Hi", "--model", "other"],
            "404 model_not_found: The requested model does not exist. GET /v1/models lists those that do: simulated.",
        ),
        (
            ["submit", "Hi", "--previous", UNKNOWN],
            (
                f"400 previous_response_not_found: Previous response with id '{UNKNOWN}' not found, "
                "or created with `store: false`."
            ),
        ),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_what_can_not_be_is_told_in_a_line(stack: Stack, start: Start, arguments: list[str], says: str) -> None:
    assert start(stack, *arguments).end() == (2, "", f"rejoinder {arguments[0]}: {says}\n")


@pytest.mark.parametrize("arguments", [["submit", "Hi"], ["watch", UNKNOWN]], ids=["submit", "watch"])
def test_vllm_itself_is_not_taken_for_the_api(stack: Stack, start: Start, arguments: list[str]) -> None:
    code, out, err = start(stack, *arguments, "--url", f"http://127.0.0.1:{stack.simulator_port}").end()
    assert (code, out) == (2, "")
    assert err.endswith(" (no answer of Rejoinder's: is --url the address of vLLM itself, or of a proxy?)\n")
