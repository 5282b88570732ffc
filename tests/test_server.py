"""How the server lets go of clients: as slow as they like, but not dead."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest
import uvicorn

from api.app import create_app
from api.server import let_go_of_the_dead
from records import created, record
from shared.keys import Keys
from shared.redis_client import connect
from shared.settings import Settings
from shared.store import ResponseStore

needs_linux = pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel knows no such timeout")

PATIENCE = 1.5


class House:
    def __init__(self, port: int, server: uvicorn.Server, response_id: str) -> None:
        self.port, self._server, self._response_id = port, server, response_id

    def open(self) -> int:
        return len(self._server.server_state.connections)

    async def follow(self) -> socket.socket:
        loop, connection = asyncio.get_running_loop(), socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", self.port))
        path = f"/v1/responses/{self._response_id}?stream=true"
        await loop.sock_sendall(connection, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return connection


@asynccontextmanager
async def house_with_a_long_response(settings: Settings) -> AsyncIterator[House]:
    """The application on a socket of the server's making; a log that no connection's buffers hold."""
    async with connect(settings) as client:
        new = record(background=True)
        await ResponseStore(client, settings).create(new, [], [created()])
        for start in range(1, 20_000, 500):
            pipeline = client.pipeline(transaction=False)
            for number in range(start, start + 500):
                pipeline.xadd(Keys().events(new.response_id), {"ot": "0 0 m " + "x" * 500}, id=f"1-{number + 1}")
            await pipeline.execute()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    let_go_of_the_dead(listening, PATIENCE)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None, lifespan="on", ws="none"))
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield House(listening.getsockname()[1], server, new.response_id)
    server.should_exit = True
    server.force_exit = True
    await serving


async def drain(connection: socket.socket) -> None:
    while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1 << 20), 5):
        pass


@needs_linux
async def test_who_takes_nothing_is_let_go(settings: Settings) -> None:
    async with house_with_a_long_response(settings) as house:
        loop = asyncio.get_running_loop()
        tasks = len(asyncio.all_tasks())
        with closing(await house.follow()) as connection:
            began = loop.time()
            async with asyncio.timeout(20):
                while not house.open():
                    await asyncio.sleep(0.01)
                while house.open():
                    await asyncio.sleep(0.05)
            assert loop.time() - began >= PATIENCE
            with pytest.raises(ConnectionResetError):
                await drain(connection)
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0.05)


@needs_linux
async def test_who_reads_slowly_is_not(settings: Settings) -> None:
    async with house_with_a_long_response(settings) as house:
        loop = asyncio.get_running_loop()
        with closing(await house.follow()) as connection:
            began, got = loop.time(), 0
            while loop.time() - began < 3 * PATIENCE:
                got += len(await asyncio.wait_for(loop.sock_recv(connection, 1 << 18), 5))
                await asyncio.sleep(PATIENCE / 5)
            assert house.open() == 1
            while got < 10_000_000:
                data = await asyncio.wait_for(loop.sock_recv(connection, 1 << 20), 5)
                assert data
                got += len(data)
