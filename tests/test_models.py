"""The cached list of models against a raw HTTP server; the clock is the test's."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from api.models import Models
from shared.errors import NotFound
from shared.json_codec import encode
from shared.settings import Settings

CAPTURED = Path(__file__).parent / "captured" / "models.response.json"
TINY = {"id": "tiny", "object": "model", "created": 1796076347, "owned_by": "vllm", "max_model_len": 2048}
CACHE = 30.0


def listing(*ids: str) -> bytes:
    return encode({"object": "list", "data": [{"id": name, "created": 1, "owned_by": "us"} for name in ids]})


def shaped(*ids: str) -> list[dict[str, Any]]:
    return [{"id": name, "object": "model", "created": 1, "owned_by": "us"} for name in ids]


@dataclass
class Upstream:
    """Answers every request with `status` and `body`, once `open` is set."""

    port: int = 0
    status: int = 200
    body: bytes = b""
    heads: list[bytes] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            await self.open.wait()
            writer.write(
                b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (self.status, len(self.body), self.body)
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @property
    def looks(self) -> int:
        return len(self.heads)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def upstream() -> AsyncGenerator[Upstream, None]:
    served = Upstream(body=listing("a", "b"))
    served.open.set()
    server = await asyncio.start_server(served.connected, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    yield served
    served.open.set()
    server.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def models_of(port: int, clock: Clock, **changes: Any) -> AsyncIterator[Models]:
    values = {"vllm_url": f"http://127.0.0.1:{port}/v1/", "models_cache": CACHE, "connect_timeout": 2.0}
    models = Models(Settings(**{**values, **changes}), clock=clock)
    try:
        yield models
    finally:
        await models.aclose()


async def test_a_real_vllms_list_in_the_public_shape(upstream: Upstream, clock: Clock) -> None:
    upstream.body = CAPTURED.read_bytes()
    async with models_of(upstream.port, clock) as models:
        assert await models.listed() == [TINY]
    assert upstream.heads[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert b"authorization" not in upstream.heads[0].lower()


@pytest.mark.parametrize(
    ("entry", "public"),
    [
        ({"id": "m"}, [{"id": "m", "object": "model", "created": 0, "owned_by": "vllm"}]),
        (
            {"id": "m", "created": "x", "owned_by": 1},
            [{"id": "m", "object": "model", "created": 0, "owned_by": "vllm"}],
        ),
        ({"id": 7}, []),
        ("m", []),
    ],
    ids=["bare", "odd types", "no id", "no object"],
)
async def test_odd_entries(upstream: Upstream, clock: Clock, entry: Any, public: list[Any]) -> None:
    upstream.body = encode({"data": [entry]})
    async with models_of(upstream.port, clock) as models:
        assert await models.listed() == public


async def test_the_key_is_sent_where_one_is_set(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock, vllm_api_key=SecretStr("k-1")) as models:
        await models.listed()
        assert await models.healthy()
    assert all(b"authorization: bearer k-1\r\n" in head.lower() for head in upstream.heads)


async def test_the_list_is_kept_for_its_time(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock) as models:
        assert await models.listed() == shaped("a", "b")
        upstream.body = listing("c")
        clock.now += CACHE - 0.1
        assert await models.listed() == shaped("a", "b")
        clock.now += 0.2
        assert await models.listed() == shaped("c")
    assert upstream.looks == 2


async def test_many_ask_and_one_looks(upstream: Upstream, clock: Clock) -> None:
    upstream.open.clear()
    async with models_of(upstream.port, clock) as models:
        asking = [asyncio.create_task(models.listed()) for _ in range(50)]
        unknown = [asyncio.create_task(models.ensure_known("nope")) for _ in range(50)]
        await asyncio.sleep(0.05)
        asking[0].cancel()  # the first one, who began the look, leaves: nobody else notices
        upstream.open.set()
        assert await asyncio.gather(*asking[1:]) == [shaped("a", "b")] * 49
        refused = await asyncio.gather(*unknown, return_exceptions=True)
    assert {type(error) for error in refused} == {NotFound}
    assert upstream.looks == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b""), (200, b"<html>"), (200, b"[]"), (200, b'{"data":{}}'), (404, listing("c")), (307, b"")],
)
async def test_an_old_list_stands_while_the_upstream_fails(
    upstream: Upstream, clock: Clock, status: int, body: bytes
) -> None:
    async with models_of(upstream.port, clock) as models:
        await models.listed()
        upstream.status, upstream.body = status, body
        clock.now += CACHE
        assert await models.listed() == shaped("a", "b")
        assert await models.listed() == shaped("a", "b")
        assert upstream.looks == 2  # a failed look is not repeated at once
        await models.ensure_known("loaded since, perhaps")
        upstream.status, upstream.body = 200, listing("c")
        clock.now += 1
        assert await models.listed() == shaped("c")


async def test_nothing_is_known_of_an_upstream_that_is_away(clock: Clock) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with models_of(port, clock) as models:
        assert await models.listed() is None
        await models.ensure_known("anything")
        assert not await models.healthy()


async def test_a_silent_upstream_is_given_up(upstream: Upstream, clock: Clock) -> None:
    upstream.open.clear()
    async with models_of(upstream.port, clock, connect_timeout=0.1) as models, asyncio.timeout(2):
        assert await models.listed() is None
        assert not await models.healthy()


async def test_known_models_pass_without_a_look_of_their_own(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock) as models:
        for model in ("a", "b", "a"):
            await models.ensure_known(model)
    assert upstream.looks == 1


async def test_a_known_model_does_not_wait_for_a_busy_upstream(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock) as models:
        await models.listed()
        upstream.open.clear()
        upstream.body = listing("c")
        clock.now += CACHE
        async with asyncio.timeout(0.5):
            await models.ensure_known("a")  # passes, and a look begins
        upstream.open.set()
        async with asyncio.timeout(2):
            while await models.listed() != shaped("c"):
                await asyncio.sleep(0.005)
    assert upstream.looks == 2


async def test_an_unknown_model_is_refused(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock) as models:
        with pytest.raises(NotFound) as raised:
            await models.ensure_known("Ada's secret")
    assert raised.value.status == 404
    assert raised.value.body()["error"] == {
        "message": "The requested model does not exist. GET /v1/models lists those that do: a, b.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_a_model_that_was_just_loaded_is_found(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock) as models:
        await models.listed()
        upstream.body = listing("a", "b", "new")
        clock.now += 1
        await models.ensure_known("new")
    assert upstream.looks == 2


async def test_unknown_models_make_one_look_a_second(upstream: Upstream, clock: Clock) -> None:
    async with models_of(upstream.port, clock) as models:
        for _ in range(20):
            with pytest.raises(NotFound):
                await models.ensure_known("nope")
            clock.now += 0.1
    assert upstream.looks == 2


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (404, False)])
async def test_health(upstream: Upstream, clock: Clock, status: int, healthy: bool) -> None:
    upstream.status, upstream.body = status, b""
    async with models_of(upstream.port, clock) as models:
        assert await models.healthy() is healthy
    assert upstream.heads[0].startswith(b"GET /health HTTP/1.1\r\n")


async def test_proxies_of_the_environment_are_not_used(
    upstream: Upstream, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with models_of(upstream.port, clock) as models:
        assert await models.listed() == shaped("a", "b")


async def test_closing_ends_a_look(upstream: Upstream, clock: Clock) -> None:
    upstream.open.clear()
    async with models_of(upstream.port, clock) as models:
        asking = asyncio.create_task(models.listed())
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await asking
