"""`rejoinder submit` at a server that is slow, with streams that are closed, and interrupted anywhere."""

import asyncio
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from shared.json_codec import encode
from stack import REJOINDER

ID = f"resp_00{'1' * 46}"
RESPONSE = {"id": ID, "status": "queued", "output": []}
DEADLINE = 30.0


class Api:
    """Answers a POST once `answering` is set; `arrived` tells that one is there. Whatever is to be cancelled, is."""

    def __init__(self, *, cancels: bool = True) -> None:
        self.url = ""
        self.arrived, self.answering = asyncio.Event(), asyncio.Event()
        self.paths: list[str] = []
        self._cancels = cancels

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if length := re.search(r"content-length: (\d+)", head, re.IGNORECASE):
                await reader.readexactly(int(length[1]))
            self.paths.append(head.split()[1])
            if self.paths[-1] == "/v1/responses":
                self.arrived.set()
                await self.answering.wait()
            elif not self._cancels:
                await reader.read()
            cancelled = self.paths[-1].endswith("/cancel")
            body = encode(RESPONSE | {"status": "cancelled"} if cancelled else RESPONSE)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(*, cancels: bool = True) -> AsyncIterator[Api]:
    api = Api(cancels=cancels)
    async with await asyncio.start_server(api.serve, "127.0.0.1", 0) as server:
        api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield api
        api.answering.set()


async def run(api: Api | None, line: str, stdout: int = PIPE) -> Process:
    """The words of a shell's line after `rejoinder`; redirections are the shell's."""
    url = api.url if api else "http://127.0.0.1:1"
    environment = {**os.environ, "REJOINDER_URL": url}
    command = f"exec {shlex.quote(str(REJOINDER))} {line}"
    return await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=PIPE, env=environment
    )


async def end(process: Process) -> tuple[int | None, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    return process.returncode, (out or b"").decode(), err.decode()


@pytest.mark.parametrize("flags", ["", " --background"], ids=["foreground", "background"])
async def test_who_interrupts_the_request_has_its_response_cancelled(flags: str) -> None:
    async with serving() as api:
        process = await run(api, f"submit Hi --model m{flags}")
        await asyncio.wait_for(api.arrived.wait(), DEADLINE)
        process.send_signal(signal.SIGINT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.5)
        api.answering.set()
        assert await end(process) == (130, "", f"cancelled, {ID}\n")
        assert api.paths == ["/v1/responses", f"/v1/responses/{ID}/cancel"]


async def test_a_second_interrupt_leaves_at_once_and_says_what_may_be() -> None:
    async with serving() as api:
        process = await run(api, "submit Hi --model m")
        await asyncio.wait_for(api.arrived.wait(), DEADLINE)
        process.send_signal(signal.SIGINT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.5)
        process.send_signal(signal.SIGINT)
        code, _, err = await asyncio.wait_for(end(process), 3)
    assert (code, err) == (130, "Not cancelled: the response may be running, its id has not come.\n")


async def test_a_second_interrupt_while_it_is_cancelled_names_it() -> None:
    async with serving(cancels=False) as api:
        api.answering.set()
        process = await run(api, "submit Hi --model m")
        while len(api.paths) < 2:  # its stream is asked for, and never comes
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        while not api.paths[-1].endswith("/cancel"):
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        code, _, err = await asyncio.wait_for(end(process), 3)
        told = f"Not cancelled: it may be running. To see it: rejoinder watch {ID} --url {api.url}\n"
    assert (code, err) == (130, told)


async def test_an_id_that_stdout_does_not_take_is_told_on_stderr() -> None:
    async with serving() as api:
        api.answering.set()
        code, _, err = await end(await run(api, "submit Hi --model m --background >/dev/full"))
        assert (code, err) == (1, f"rejoinder submit: {ID}, which stdout did not take (No space left on device)\n")


async def test_an_id_whose_reader_has_left_is_told_on_stderr() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    async with serving() as api:
        api.answering.set()
        code, _, err = await end(await run(api, "submit Hi --model m --background", stdout=writer))
    os.close(writer)
    assert (code, err) == (141, f"rejoinder submit: {ID}, which stdout did not take (Broken pipe)\n")
    assert api.paths == ["/v1/responses"], "it is not cancelled"


async def test_a_request_that_breaks_may_have_arrived() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        told = f"rejoinder submit: {url}/v1: the connection broke; the response may be running\n"
        assert await end(await run(None, f"submit Hi --model m --url {url}")) == (2, "", told)


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("submit Hi --model m >&-", (2, "", "rejoinder submit: stdout is closed\n")),
        ("submit Hi --model m --background >&-", (2, "", "rejoinder submit: stdout is closed\n")),
        ("submit --model m <&-", (2, "", "rejoinder submit: stdin is closed\n")),
        ("submit Hi --model m --background <&-", (0, f"{ID}\n", "")),
        ("submit Hi --model m --background 2>&-", (0, f"{ID}\n", "")),
        ("submit Hi --model m <&- >&- 2>&-", (2, "", "")),
        (f"watch {ID} >&-", (2, "", "rejoinder watch: stdout is closed\n")),
        ("watch x/y 2>&-", (2, "", "")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_stream_that_is_closed(line: str, result: tuple[int, str, str]) -> None:
    async with serving() as api:
        api.answering.set()
        assert await end(await run(api, line)) == result
        assert len(api.paths) == (result[0] == 0), "nothing is created that can't be shown"


@pytest.mark.parametrize("line", ["submit Hi", f"watch {ID}"])
async def test_a_port_that_there_is_not(line: str) -> None:
    command = line.split(maxsplit=1)[0]
    told = f"rejoinder {command}: --url / REJOINDER_URL: write it like http://HOST:8700/v1\n"
    assert await end(await run(None, f"{line} --url http://127.0.0.1:99999")) == (2, "", told)


@pytest.mark.parametrize("module", ["typer", "cli.setting_names", "cli.watch", "httpx"])
async def test_an_interrupt_while_it_is_imported_is_quiet(module: str, tmp_path: Path) -> None:
    """`module` is the one whose import is interrupted."""
    script = f"""
import os, runpy, signal, sys
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["rejoinder", "watch", "resp_1", "--url", "http://127.0.0.1:1"]
from cli.main import main
main()
"""
    path = tmp_path / "interrupted.py"
    path.write_text(script)
    root = str(Path(__file__).parent.parent)
    process = await asyncio.create_subprocess_exec(
        sys.executable, path, stdout=PIPE, stderr=PIPE, env={**os.environ, "PYTHONPATH": root}
    )
    assert await end(process) == (130, "", "")
