"""Rejoinder's API as a client sees it: its address, its answers, and in one line why it gave none.

Refused   the same request would be answered the same way again: for the user to read
Broken    it passes: a connection that broke, a server that is away or busy
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

import httpx

from shared.json_codec import Wire, decode, encode

_LONGEST_MESSAGE: Final = 500
#: Statuses below 500 that pass.
_PASSING: Final = frozenset({408, 425, 429})
#: Where a proxy of the user's has no business.
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: Seconds for a connection, and for an answer that is no stream. A new response may wait for Redis.
_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
#: Seconds for the whole of such an answer, which could else come byte by byte for ever.
_WHOLE: Final = 60.0


class Refused(Exception):
    """An answer that is final. The message is one line; `status` is the HTTP status, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Broken(httpx.TransportError):
    """No answer, or no whole one, for now. `status` as above; `retry_after`: seconds that the server asks to wait."""

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def connect(address: str) -> httpx.AsyncClient:
    """A client of the API at `address`, which may end with `/v1`. Raises `Refused` where it is no address."""
    try:
        url = httpx.URL(address.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or not 1 <= (80 if url.port is None else url.port) <= 65535:
        raise Refused("--url / REJOINDER_URL: write it like http://HOST:8700/v1")
    path = url.path.rstrip("/").removesuffix("/v1")
    return httpx.AsyncClient(
        base_url=url.copy_with(path=path or "/", query=None, fragment=None),
        timeout=_TIMEOUT,
        headers={"accept-encoding": "identity"},
        trust_env=url.host not in _LOOPBACK,
    )


def place(client: httpx.AsyncClient) -> str:
    """The client's API as a message may name it: without a user's name and password."""
    url = client.base_url
    return f"{url.scheme}://{url.netloc.decode()}{url.path.rstrip('/')}/v1"


def path_of(response_id: str) -> str:
    """The path of a response, whatever the text of its id."""
    return f"/v1/responses/{quote(response_id, safe='')}"


async def ask(
    client: httpx.AsyncClient, method: str, path: str, body: Wire | None = None, *, within: float = _WHOLE
) -> Wire:
    """The JSON object that answers. Raises `Refused`, `httpx.TransportError`, and `Broken` for a status or too late."""
    headers = {} if body is None else {"content-type": "application/json"}
    async with _whole(within):
        answer = await client.request(method, path, content=None if body is None else encode(body), headers=headers)
        await check(answer)
    try:
        found = decode(answer.content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused(f"what answers at {place(client)} is no Responses API")
    return found


async def check(answer: httpx.Response) -> None:
    """Raise `Refused` or `Broken` where an answer, read or not, is no success."""
    if answer.is_success:
        return
    async with _whole(_WHOLE):
        reason = _reason(await answer.aread())
    message = f"{answer.status_code} {reason or answer.reason_phrase}".strip()
    if answer.status_code >= 500 or answer.status_code in _PASSING:
        raise Broken(message, answer.status_code, _seconds(answer.headers.get("retry-after", "")))
    if "openai-version" not in answer.headers:  # which every answer of Rejoinder's has
        message += " (no answer of Rejoinder's: is --url the address of vLLM itself, or of a proxy?)"
    raise Refused(message, answer.status_code)


@asynccontextmanager
async def _whole(within: float) -> AsyncGenerator[None, None]:
    """Raise `Broken` where what is done in it takes longer, in seconds."""
    try:
        async with asyncio.timeout(within):
            yield
    except TimeoutError:
        raise Broken(f"no whole answer within {within:g} s") from None


def _reason(body: bytes) -> str:
    """What OpenAI's error body says, in one line; nothing where it is none."""
    try:
        error = decode(body)["error"]
        words = [error.get("code"), error["message"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return " ".join(": ".join(str(word) for word in words if word).split())[:_LONGEST_MESSAGE]


def _seconds(text: str) -> float:
    """`Retry-After` in seconds; a date is not worth reading."""
    return float(text) if text.isascii() and text.isdigit() else 0.0


def away(error: httpx.TransportError) -> bool:
    """Whether nobody took the connection."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)


def unreached(client: httpx.AsyncClient, error: httpx.TransportError) -> str:
    """Where nothing could be had, why, and what to look at, in one line."""
    look = "; is `rejoinder up` running? --url names another address" if away(error) else ""
    return f"{place(client)}: {why(error)}{look}"


def why(error: httpx.TransportError) -> str:
    """What happened, in a few words."""
    match error:
        case Broken():
            return str(error)
        case _ if away(error):
            return "nothing answers"
        case httpx.TimeoutException():
            return "silence"
        case _:
            return "the connection broke"
