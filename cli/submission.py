"""`rejoinder submit`: a prompt becomes a response, which is shown to its end.

Law: it is submitted in the background and followed, so that no break of a connection ends it; Ctrl-C cancels it, as
leaving does with any call that somebody waits for. With `--background` nobody waits: its id is all that is printed.
No response runs on without its id having been told, or else that one may be running.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Final

import httpx

from cli.endpoint import Broken, Refused, ask, away, path_of, unreached, why
from cli.printer import Printer
from cli.transcript import ending
from cli.watch import INTERRUPTED, again, give_up_stdout, run, show, staying
from shared.json_codec import Wire

_UNTOLD: Final = 1
#: Seconds that an interrupt waits for the id of what is to be cancelled.
_ID: Final = 5.0


@dataclass(frozen=True)
class Wish:
    """What to submit. Without a prompt, or for `-`, stdin is read; without a model the only one there is, is taken."""

    prompt: str | None
    background: bool = False
    previous: str | None = None
    model: str | None = None


def submit(wish: Wish, url: str) -> int:
    """Submit it, and show what comes, or its id; the exit code, as `rejoinder watch` has them."""
    try:
        prompt = _prompt(wish.prompt)
    except KeyboardInterrupt:
        return INTERRUPTED

    async def work(client: httpx.AsyncClient, printer: Printer) -> int:
        created = asyncio.ensure_future(_create(client, await _body(client, wish, prompt)))

        async def follow() -> int:
            response_id = str((await asyncio.shield(created))["id"])
            return 0 if wish.background else await show(client, printer, response_id)

        async def leave() -> None:
            await _undo(client, printer, created, url)

        code = await staying(follow(), leave)
        return _tell_id(printer, str((await created)["id"]), url) if wish.background and not code else code

    return run("submit", url, work)


def _prompt(given: str | None) -> bytes | None:
    """The prompt as UTF-8, which what stands on a command line or comes from a file need not be; None: no stdin."""
    if given is not None and given != "-":
        return os.fsencode(given)
    if sys.stdin is None:
        return None  # it was closed
    if sys.stdin.isatty():
        sys.stderr.write("Type the prompt, and end it with Ctrl-D.\n")
    return sys.stdin.buffer.read()


async def _body(client: httpx.AsyncClient, wish: Wish, prompt: bytes | None) -> Wire:
    if prompt is None:
        raise Refused("stdin is closed")
    try:
        text = prompt.decode()
    except UnicodeDecodeError:
        raise Refused("the prompt is no UTF-8 text") from None
    if not text.strip():
        raise Refused("the prompt is empty")
    try:
        body = {"model": wish.model or await _only_model(client), "input": text, "background": True}
    except httpx.TransportError as error:
        raise Refused(unreached(client, error)) from None
    return body if wish.previous is None else body | {"previous_response_id": wish.previous}


async def _create(client: httpx.AsyncClient, body: Wire) -> Wire:
    try:
        return await ask(client, "POST", "/v1/responses", body)
    except httpx.TransportError as error:
        is_answered = isinstance(error, Broken) and error.status
        doubt = "" if away(error) or is_answered else "; the response may be running"
        raise Refused(f"{unreached(client, error)}{doubt}") from None


def _tell_id(printer: Printer, response_id: str, url: str) -> int:
    try:
        sys.stdout.write(f"{response_id}\n")
        sys.stdout.flush()
    except OSError as error:
        printer.fail(f"rejoinder submit: {response_id}, which stdout did not take ({error.strerror})")
        if isinstance(error, BrokenPipeError):
            raise
        give_up_stdout()
        return _UNTOLD
    if sys.stderr.isatty():
        printer.say(f"To see it: {again(response_id, url)}")
    return 0


async def _only_model(client: httpx.AsyncClient) -> str:
    listed = [str(model["id"]) for model in (await ask(client, "GET", "/v1/models"))["data"]]
    if len(listed) != 1:
        raise Refused(f"choose one with --model: {', '.join(listed)}" if listed else "no model is served")
    return listed[0]


async def _undo(client: httpx.AsyncClient, printer: Printer, created: "asyncio.Task[Wire]", url: str) -> None:
    """Cancel it as soon as its id has come, and tell; where that is broken off, tell what may be."""
    told = "Not cancelled: the response may be running, its id has not come."
    try:
        async with asyncio.timeout(_ID):
            response_id = str((await created)["id"])
        to_see_it = again(response_id, url)
        told = f"Not cancelled: it may be running. To see it: {to_see_it}"
        told = await _cancelled(client, response_id, to_see_it)
    except Refused as refusal:
        told = str(refusal)
    except TimeoutError:
        pass
    finally:
        printer.fail(told)


async def _cancelled(client: httpx.AsyncClient, response_id: str, to_see_it: str) -> str:
    """Cancel it; in a line, how it ended, or that it goes on."""
    try:
        return ending(await ask(client, "POST", f"{path_of(response_id)}/cancel"))
    except httpx.TransportError as error:
        said = why(error)
    except Refused as refusal:
        said = str(refusal)
    return f"Not cancelled: {said}. To see it: {to_see_it}"
