"""Everything in one terminal: Redis, a simulated vLLM if asked for, the API, its workers; kept running until a signal.

Order: Redis comes first and goes last. The listening socket is ours and the API inherits it, so a port is known before
anything serves, and a connection made while the API restarts waits instead of failing. On the first signal the API
stops accepting, workers drain, then the simulated vLLM and Redis end; a second signal ends all but Redis at once.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import httpx
from pydantic import SecretStr

from cli.embedded_redis import EmbeddedRedis
from cli.preflight import NotStarted, bracketed, check_redis, listen, simulator_address, warn_without_vllm
from cli.redis_binary import RedisNotStarted
from cli.setting_names import unknown_variables, variable
from cli.supervisor import Keeper, Pace, Part, Supervisor, say
from shared.json_codec import decode, encode
from shared.settings import Settings

#: How this program starts itself. `-P`: a folder named `api` or `cli` where the user stands is none of ours.
PROGRAM = (sys.executable, "-P", "-m", "cli.main")

_REDIS = "redis"
_READY_POLL = 0.1
_STILL_WAITING = 10.0


def up(
    settings: Settings,
    *,
    simulate: bool = False,
    simulate_at: str | None = None,
    data: Path = Path(".rejoinder"),
    program: tuple[str, ...] = PROGRAM,
    pace: Pace | None = None,
) -> int:
    """Run everything until a signal. Prints one line on stdout, `ready http://H:P/v1`, once it serves.

    With `simulate`, vLLM is a simulated one, at the URL `simulate_at` or at a free port. Redis is ours, over `data`,
    where the settings name none. Gives the exit code: 0 after a signal, 2 where it could not start.
    """
    return asyncio.run(_Up(settings, data, program, simulate=simulate, simulate_at=simulate_at, pace=pace).run())


class _Up:
    def __init__(
        self,
        settings: Settings,
        data: Path,
        program: tuple[str, ...],
        *,
        simulate: bool,
        simulate_at: str | None,
        pace: Pace | None,
    ) -> None:
        self._settings = settings
        self._simulate = simulate
        self._simulate_at = simulate_at
        self._simulated: tuple[str, int] | None = None
        self._data = data
        self._program = program
        self._supervisor = Supervisor(pace, tether_grace=settings.drain_timeout + 5)
        self._signalled = asyncio.Event()
        self._listening: socket.socket | None = None
        self._own_redis: EmbeddedRedis | None = None
        self._redis: Keeper | None = None
        self._simulator: Keeper | None = None
        self._workers: list[Keeper] = []
        self._api: Keeper | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        try:
            self._listening = listen(self._settings.host, self._settings.port)
            self._place_simulator()
            await self._open_redis()
            serving = asyncio.create_task(self._serve(self._listening))
            signalled = asyncio.create_task(self._signalled.wait())
            await asyncio.wait({serving, signalled}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                await signalled
            else:
                serving.cancel()
        except (NotStarted, RedisNotStarted) as error:
            say(f"rejoinder up: {error}")
            return 2
        finally:
            await self._end()
        return 0

    def _on_signal(self) -> None:
        if self._signalled.is_set():
            say("ending now")
            self._supervisor.hurry(spare=_REDIS)
        else:
            say("ending; once more to end at once")
            self._signalled.set()

    def _place_simulator(self) -> None:
        if self._simulate:
            host, port = self._simulated = simulator_address(self._simulate_at)
            self._settings = self._settings.model_copy(update={"vllm_url": f"http://{bracketed(host)}:{port}"})

    async def _open_redis(self) -> None:
        """Check the Redis that the settings name; where they name none, make ours ready to start."""
        if "redis_url" in self._settings.model_fields_set:
            await asyncio.to_thread(check_redis, self._settings)
            return
        own = EmbeddedRedis(self._data, tether=self._supervisor.tether)
        await asyncio.to_thread(own.open)
        say(f"redis keeps its data in {own.folder.parent}")
        self._own_redis = own
        self._settings = self._settings.model_copy(update={"redis_url": own.url})

    async def _serve(self, listening: socket.socket) -> None:
        """Start every part, wait until all of it serves, and say so."""
        if (own := self._own_redis) is not None:
            part = Part(_REDIS, tuple(own.command), descriptors=(own.lock,), grace=10.0, log=own.log)
            self._redis = self._supervisor.start(part)
            while not await asyncio.to_thread(own.answers):
                if self._redis.deaths:
                    raise NotStarted(
                        f"Redis can't start over {own.folder}, see its log above; mend it or give another --data"
                    )
                await asyncio.sleep(0.02)
        if self._simulated is not None:
            host, port = self._simulated
            part = self._part("simulate-vllm", "--host", host, "--port", str(port), grace=2.0)
            self._simulator = self._supervisor.start(part)
        else:
            await warn_without_vllm(self._settings)
        drain = self._settings.drain_timeout
        for number in range(1, self._settings.workers + 1):
            name = f"worker-{number}" if self._settings.workers > 1 else "worker"
            self._workers.append(self._supervisor.start(self._part("worker", name=name, grace=drain + 5)))
        descriptor = listening.fileno()
        self._api = self._supervisor.start(
            self._part("api", "--fd", str(descriptor), descriptors=(descriptor,), grace=drain + 5)
        )
        await self._wait_ready(listening)
        with suppress(OSError):
            sys.stdout.write(f"ready {_url(listening, self._settings.host)}/v1\n")
            sys.stdout.flush()

    def _part(
        self, command: str, *arguments: str, grace: float, name: str = "", descriptors: tuple[int, ...] = ()
    ) -> Part:
        return Part(
            name or command, (*self._program, command, *arguments), environment(self._settings), descriptors, grace
        )

    async def _wait_ready(self, listening: socket.socket) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)  # noqa: S104
        waited = 0.0
        async with httpx.AsyncClient(base_url=_url(listening, host), trust_env=False, timeout=2.0) as client:
            while True:
                missing = "the API"
                with suppress(httpx.HTTPError):
                    answer = await client.get("/ready")
                    if answer.status_code == httpx.codes.OK:
                        return
                    missing = _missing(answer)
                await asyncio.sleep(_READY_POLL)
                waited += _READY_POLL
                if waited - _READY_POLL < _STILL_WAITING <= waited:
                    say(f"not ready yet, still waiting for: {missing}")

    async def _end(self) -> None:
        """End what runs, in order and in bounded time."""
        if self._listening is not None:
            self._listening.close()
        api = asyncio.ensure_future(_end(self._api))
        await asyncio.wait([api], timeout=0.5)  # it stops accepting at once; open streams go on while workers drain
        await asyncio.gather(*map(_end, self._workers))
        await api
        await _end(self._simulator)
        await _end(self._redis)
        self._supervisor.close()
        if self._own_redis is not None:
            self._own_redis.close()


def _missing(answer: httpx.Response) -> str:
    """The parts that `GET /ready` does not find."""
    try:
        parts = decode(answer.content)
        return ", ".join(name for name, found in parts.items() if not found)
    except (ValueError, AttributeError):
        return f"the API (status {answer.status_code})"


async def _end(keeper: Keeper | None) -> None:
    if keeper is not None:
        await keeper.end()


def environment(settings: Settings) -> dict[str, str]:
    """The environment that gives a child these very settings. Secrets go this way: a command line is public.

    Variables that are no settings stay here: who started us has been warned of them once.
    """
    given = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if value is not None:
            given[variable(name)] = encode(value).decode() if isinstance(value, dict) else str(value)
    unknown = unknown_variables(os.environ)
    return {name: value for name, value in os.environ.items() if name not in unknown} | given


def _url(listening: socket.socket, host: str) -> str:
    return f"http://{bracketed(host)}:{listening.getsockname()[1]}"
