"""The whole house in real processes: Redis, a worker, the API, a simulated vLLM or a given one."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import openai
import redis

from cli.embedded_redis import EmbeddedRedis

T = TypeVar("T")

REJOINDER = str(Path(sys.executable).with_name("rejoinder"))
MODEL = "simulated"

#: Short enough to wait for, long enough for a busy machine of two cores.
TIMES = {
    "REJOINDER_LEASE": "2",
    "REJOINDER_SWEEP_INTERVAL": "0.2",
    "REJOINDER_REDIS_TIMEOUT": "2",
    "REJOINDER_KEEPALIVE_INTERVAL": "0.5",
    "REJOINDER_MODELS_CACHE": "0.5",
    "REJOINDER_FIRST_EVENT_TIMEOUT": "3",
    "REJOINDER_STALL_TIMEOUT": "2",
    "REJOINDER_DRAIN_TIMEOUT": "1",
}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def until(condition: Callable[[], T], timeout: float = 20.0) -> T:
    """The first true answer of `condition`."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.02)
    return answer


class Stack:
    """`with Stack(folder) as stack`; its parts are processes that tests may kill and start.

    With `vllm_url` there is no simulated vLLM; what asks or faults it is not to be used then.
    """

    def __init__(self, folder: Path, *, vllm_url: str | None = None, **environment: str) -> None:
        self._folder = folder
        self._exits = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.redis = EmbeddedRedis(folder / "redis")
        self.simulator_port, self.api_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.api_port}"
        self.simulator = httpx.Client(base_url=f"http://127.0.0.1:{self.simulator_port}", trust_env=False)
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=30)
        self.openai = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=30)
        self._environment = {**os.environ, **TIMES, **environment}
        self._is_simulated = vllm_url is None
        self._environment["REJOINDER_VLLM_URL"] = vllm_url or f"http://127.0.0.1:{self.simulator_port}"

    def __enter__(self) -> Self:
        self.redis.open()
        self._exits.callback(self.redis.close)
        self.start_redis()
        self._exits.callback(self.redis.stop)
        self._exits.callback(self._end_processes)
        if self._is_simulated:
            self.vllm = self.start_vllm()
        self.worker = self.start_worker()
        self.api = self.start("api", "--port", str(self.api_port))
        until(self.ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def start_redis(self) -> None:
        self.redis.start()
        self._environment["REJOINDER_REDIS_URL"] = self.redis.url

    def start_vllm(self) -> "subprocess.Popen[bytes]":
        return self.start("simulate-vllm", "--port", str(self.simulator_port))

    def start_worker(self) -> "subprocess.Popen[bytes]":
        return self.start("worker")

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen([REJOINDER, *command], stdout=log, stderr=log, env=self._environment)
        self._processes.append(process)
        return process

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def _end_processes(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ready(self) -> bool:
        try:
            return self.http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def faults(self, **faults: Any) -> None:
        """What the simulated vLLM does to its next requests."""
        self.simulator.post("/simulator/faults", json=faults).raise_for_status()

    def upstream(self) -> list[dict[str, Any]]:
        """What the simulated vLLM was sent, each with how it ended."""
        requests: list[dict[str, Any]] = self.simulator.get("/simulator/requests").json()["requests"]
        return requests

    def keys(self) -> set[bytes]:
        """Every key in Redis but for those that beat like a heart."""
        with redis.Redis.from_url(self.redis.url) as client:
            found = client.keys("rejoinder:*")
        return {key for key in found if b"response:" in key or b"events:" in key or b"job:" in key}

    def forget(self) -> None:
        """Forget faults and requests."""
        self.simulator.delete("/simulator/faults")
        self.simulator.delete("/simulator/requests")
