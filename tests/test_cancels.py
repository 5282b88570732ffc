"""A turn that waits hears of its cancel, whatever happens to the connection that tells it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from cli.embedded_redis import EmbeddedRedis
from records import created, record
from shared.keys import Keys
from shared.presence import Presence
from shared.record import Record
from shared.redis_client import connect
from shared.settings import Settings
from shared.store import Claim, ResponseStore
from shared.tasks import running
from workers import cancels
from workers.cancels import Cancels
from workers.leases import LeaseLost, Leases


@dataclass
class Worker:
    client: Redis
    store: ResponseStore
    leases: Leases

    async def turn(self) -> tuple[Record, "asyncio.Task[str]"]:
        """A turn that waits for its upstream."""
        new = record(background=True)
        await self.store.create(new, [], [created()])
        claimed = await self.store.claim(new.response_id, "worker")
        assert claimed is not None
        entered = asyncio.Event()

        async def wait() -> str:
            try:
                with self.leases.held(claimed):
                    entered.set()
                    await asyncio.sleep(60)
            except LeaseLost:
                return "stopped"
            return "slept"

        task = asyncio.create_task(wait())
        await entered.wait()
        return claimed, task

    async def listening(self, connections: int = 1) -> None:
        async with asyncio.timeout(10):
            while dict([(await self.client.pubsub_numsub(Keys().cancels))[0]])[Keys().cancels.encode()] != connections:
                await asyncio.sleep(0.01)


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[Worker]:
    """Its leases are never renewed here, so only the channel can tell."""
    client = connect(settings)
    store = ResponseStore(client, settings)
    leases = Leases(store, Presence(client, settings), settings)
    async with running(Cancels(leases, settings).run):
        yield Worker(client, store, leases)
    await client.aclose()


async def ended(task: "asyncio.Task[str]") -> str:
    async with asyncio.timeout(10):
        return await task


async def test_a_cancel_stops_the_turn_it_names_and_no_other(worker: Worker) -> None:
    await worker.listening()
    (first, its_task), (_, other_task) = await worker.turn(), await worker.turn()
    await worker.store.claim(first.response_id, "canceller", Claim.CANCEL)
    assert await ended(its_task) == "stopped"
    assert not other_task.done()
    other_task.cancel()


async def test_it_hears_again_after_its_connection_was_cut(worker: Worker) -> None:
    await worker.listening()
    await worker.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await worker.listening()
    turn, task = await worker.turn()
    await worker.store.claim(turn.response_id, "canceller", Claim.CANCEL)
    assert await ended(task) == "stopped"


async def test_a_silent_connection_is_asked_and_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cancels, "_SILENCE", 0.02)
    client = connect(settings)
    store = ResponseStore(client, settings)
    leases = Leases(store, Presence(client, settings), settings)
    async with running(Cancels(leases, settings).run):
        worker = Worker(client, store, leases)
        await worker.listening()
        pings = "cmdstat_ping"
        async with asyncio.timeout(10):
            while (await client.info("commandstats")).get(pings, {"calls": 0})["calls"] < 5:
                await asyncio.sleep(0.02)
        turn, task = await worker.turn()
        await store.claim(turn.response_id, "canceller", Claim.CANCEL)
        assert await ended(task) == "stopped"
    assert caplog.text == ""
    await client.aclose()


async def test_a_connection_that_no_longer_answers_is_opened_anew(
    settings: Settings, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open connection: it subscribed, and then nothing ever comes back."""
    monkeypatch.setattr(cancels, "_SILENCE", 0.1)
    monkeypatch.setattr(cancels, "_RETRY_PAUSE", 0.05)
    subscriptions = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal subscriptions
        from_redis, to_redis = await asyncio.open_unix_connection(redis_server.socket)
        while data := await reader.read(1024):
            to_redis.write(data)
            if b"PING" in data:
                continue
            writer.write(await from_redis.read(1024))
            subscriptions += b"SUBSCRIBE" in data
        to_redis.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    mine = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{port}/0"})
    client = connect(mine)
    leases = Leases(ResponseStore(client, mine), Presence(client, mine), mine)
    async with running(Cancels(leases, mine).run), asyncio.timeout(10):
        while subscriptions < 3:
            await asyncio.sleep(0.01)
    server.close()
    await client.aclose()


async def test_without_the_channel_the_lease_tells(settings: Settings) -> None:
    client = connect(settings)
    store = ResponseStore(client, settings)
    leases = Leases(store, Presence(client, settings), settings)
    async with running(leases.run):
        worker = Worker(client, store, leases)
        turn, task = await worker.turn()
        await store.claim(turn.response_id, "canceller", Claim.CANCEL)
        assert await ended(task) == "stopped"
    await client.aclose()
