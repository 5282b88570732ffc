"""What must be true before anything starts: an address to serve at, a Redis that answers, perhaps a vLLM.

A failure is one line that names what to do. No password that stands in an address is ever shown.
"""

import errno
import socket
from urllib.parse import urlsplit

import httpx
import redis

from cli.redis_binary import OLDEST
from cli.supervisor import say
from shared.settings import Settings
from shared.upstream_address import upstream_root


class NotStarted(Exception):
    """Why nothing was started, and what to do about it, in one line."""


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address to serve at; port 0 picks a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError:
        raise NotStarted(f"can't find the host {host}; give another with --host") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(1024)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use; give another with --port (0 takes a free one)"
        else:
            message = f"can't serve at {host}, port {port} ({error.strerror}); give others with --host and --port"
        raise NotStarted(message) from None
    return bound


def simulator_address(wish: str | None) -> tuple[str, int]:
    """Where to run a simulated vLLM: at the host and port of a wished-for URL, or at a free port of the loopback."""
    if wish is None:
        return "127.0.0.1", _free_port()
    try:
        parts = urlsplit(wish)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        raise NotStarted("--vllm is no address; give one like http://127.0.0.1:8000") from None
    try:
        listen(host, port).close()
    except NotStarted:
        message = (
            f"can't run a simulated vLLM at {_shown(wish)}; leave --vllm out, or --simulate to use what runs there"
        )
        raise NotStarted(message) from None
    return host, port


def _free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def check_redis_address(url: str) -> None:
    """Raises `NotStarted` where redis-py makes nothing of the address, or another thing than its user means."""
    try:
        parts = urlsplit(url)
        past_host = parts.path + parts.query + parts.fragment
        whole = parts.path != "" if parts.scheme == "unix" else "@" not in past_host  # a / in a password ends the host
        pool = redis.ConnectionPool.from_url(url)
        pool.connection_class(**pool.connection_kwargs)  # it connects at its first command
    except (ValueError, TypeError, redis.RedisError):
        whole = False
    if not whole:
        raise NotStarted(
            "--redis / REJOINDER_REDIS_URL is no Redis address; give one like redis://127.0.0.1:6379/0 "
            "(in a password, / is %2F, ? is %3F, # is %23)"
        )


def check_redis(settings: Settings) -> None:
    """Raises `NotStarted` unless the given Redis answers and is new enough."""
    check_redis_address(settings.redis_url)
    where = _shown(settings.redis_url)
    timeout = settings.redis_timeout
    try:
        with redis.Redis.from_url(
            settings.redis_url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=None
        ) as connection:
            version = str(connection.info("server")["redis_version"])
    except redis.AuthenticationError:
        raise NotStarted(f"Redis at {where} refuses the password; put the right one into --redis") from None
    except (redis.RedisError, OSError):
        message = f"Redis at {where} does not answer; start it, give another with --redis, or none to have one started"
        raise NotStarted(message) from None
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise NotStarted(f"Redis at {where} is version {version}; give one of {'.'.join(map(str, OLDEST))} or newer")


async def warn_without_vllm(settings: Settings) -> None:
    """Say on stderr that nothing answers at the upstream's address: it may come later."""
    try:
        async with httpx.AsyncClient(timeout=settings.connect_timeout) as client:
            await client.get(f"{upstream_root(settings)}/health")
    except (httpx.HTTPError, httpx.InvalidURL):
        where = _shown(settings.vllm_url)
        say(f"no vLLM at {where} yet: start it, give another with --vllm, or a simulated one with --simulate")


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _shown(url: str) -> str:
    """An address without the password that may stand in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
