"""`rejoinder submit`: a prompt becomes a response, which is shown to its end.

Law: it is submitted in the background and followed, so that no break of a connection ends it; Ctrl-C cancels it, as
leaving does with any call that somebody waits for. With `--background` nobody waits: its id is all that is printed.
"""

import os
import sys
from dataclasses import dataclass

import httpx

from cli.endpoint import Refused, ask, path_of, unreached, why
from cli.printer import Printer
from cli.transcript import ending
from cli.watch import INTERRUPTED, again, run, show, staying
from shared.json_codec import Wire


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
        response_id = str((await _create(client, wish, prompt))["id"])
        if wish.background:
            sys.stdout.write(f"{response_id}\n")
            sys.stdout.flush()
            if sys.stderr.isatty():
                printer.say(f"To see it: {again(response_id, url)}")
            return 0

        async def leave() -> None:
            printer.fail(await _cancelled(client, response_id, again(response_id, url)))

        return await staying(show(client, printer, response_id), leave)

    return run("submit", url, work)


def _prompt(given: str | None) -> bytes:
    """The prompt as UTF-8, which what stands on a command line or comes from a file need not be."""
    if given is not None and given != "-":
        return os.fsencode(given)
    if sys.stdin.isatty():
        sys.stderr.write("Type the prompt, and end it with Ctrl-D.\n")
    return sys.stdin.buffer.read()


async def _create(client: httpx.AsyncClient, wish: Wish, prompt: bytes) -> Wire:
    try:
        text = prompt.decode()
    except UnicodeDecodeError:
        raise Refused("the prompt is no UTF-8 text") from None
    if not text.strip():
        raise Refused("the prompt is empty")
    try:
        body = {"model": wish.model or await _only_model(client), "input": text, "background": True}
        if wish.previous is not None:
            body["previous_response_id"] = wish.previous
        return await ask(client, "POST", "/v1/responses", body)
    except httpx.TransportError as error:
        raise Refused(unreached(client, error)) from None


async def _only_model(client: httpx.AsyncClient) -> str:
    listed = [str(model["id"]) for model in (await ask(client, "GET", "/v1/models"))["data"]]
    if len(listed) != 1:
        raise Refused(f"choose one with --model: {', '.join(listed)}" if listed else "no model is served")
    return listed[0]


async def _cancelled(client: httpx.AsyncClient, response_id: str, to_see_it: str) -> str:
    """Cancel it; in a line, how it ended, or that it goes on."""
    try:
        return ending(await ask(client, "POST", f"{path_of(response_id)}/cancel"))
    except httpx.TransportError as error:
        said = why(error)
    except Refused as refusal:
        said = str(refusal)
    return f"Not cancelled: {said}. To see it: {to_see_it}"
