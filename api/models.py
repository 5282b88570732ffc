"""The models that the upstream serves, and whether it is alive.

Law: at most one request at a time asks for the list, however many callers wait, and a failed one is not repeated at
once. A model is refused only by a list that was just read: an old list can't know what has been loaded since.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Final

import httpx

from shared.errors import NotFound
from shared.json_codec import Wire, decode
from shared.settings import Settings
from shared.upstream_address import upstream_headers, upstream_root

#: Seconds between two looks at the upstream on account of a model that is not in the list, or of a failed look.
_RETRY_INTERVAL: Final = 1.0
#: Models that a refusal names.
_NAMED: Final = 5


class Models:
    """The upstream's list, kept for `settings.models_cache` seconds. `clock` counts seconds."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cache = settings.models_cache
        self._timeout = settings.connect_timeout
        # Connections are not kept: they would idle past the upstream's limit between two looks.
        self._client = httpx.AsyncClient(
            base_url=upstream_root(settings),
            headers=upstream_headers(settings),
            timeout=settings.connect_timeout,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )
        self._models: list[Wire] | None = None
        self._looked_at = -math.inf
        self._is_current = False
        self._look: asyncio.Task[None] | None = None

    async def listed(self) -> list[Wire] | None:
        """The models in the public shape. An old list where the upstream fails; None where it never gave one."""
        if self._is_due(self._cache):
            await self._looked()
        return self._models

    async def ensure_known(self, model: str) -> None:
        """Raise `NotFound` (`model_not_found`) where the upstream certainly doesn't serve `model`.

        A model of the list passes without a wait, however busy the upstream is.
        """
        if self._lists(model):
            if self._is_due(self._cache):
                self._looking()
            return
        if self._is_due(_RETRY_INTERVAL):
            await self._looked()
        if self._is_current and not self._lists(model):
            known = ", ".join(entry["id"] for entry in (self._models or ())[:_NAMED])
            raise NotFound(
                f"The requested model does not exist. GET /v1/models lists those that do: {known or 'none now'}.",
                param="model",
                code="model_not_found",
            )

    async def healthy(self) -> bool:
        """Whether the upstream says that it can generate (vLLM: 200 on `/health`, 503 when its engine is dead)."""
        response = await self._get("/health")
        return response is not None and response.status_code == 200

    async def aclose(self) -> None:
        """Close the connections."""
        if self._look is not None:
            self._look.cancel()
        await self._client.aclose()

    def _lists(self, model: str) -> bool:
        return any(entry["id"] == model for entry in self._models or ())

    def _is_due(self, max_age: float) -> bool:
        limit = max_age if self._is_current else min(max_age, _RETRY_INTERVAL)
        return self._clock() - self._looked_at >= limit

    def _looking(self) -> asyncio.Task[None]:
        """The one look that is under way, or a new one."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._read_list(), name="models")
        return self._look

    async def _looked(self) -> None:
        """Wait for a look; a caller that leaves does not end it for the others."""
        await asyncio.shield(self._looking())

    async def _read_list(self) -> None:
        response = await self._get("/v1/models")
        models = None if response is None else _public_models(response)
        self._looked_at = self._clock()
        self._is_current = models is not None
        if models is not None:
            self._models = models

    async def _get(self, path: str) -> httpx.Response | None:
        """The whole answer, within the time limit; None where there is none."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._client.get(path)
        except (TimeoutError, httpx.HTTPError):
            return None


def _public_models(response: httpx.Response) -> list[Wire] | None:
    """The entries as OpenAI shapes them, and vLLM's `max_model_len`; None where the answer holds no list of models."""
    if response.status_code != 200:
        return None
    try:
        wire: Any = decode(response.content)
    except ValueError:
        return None
    entries = wire.get("data") if isinstance(wire, dict) else None
    if not isinstance(entries, list):
        return None
    return [_public_model(entry) for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _public_model(entry: Wire) -> Wire:
    created, owner = entry.get("created"), entry.get("owned_by")
    public: Wire = {
        "id": entry["id"],
        "object": "model",
        "created": created if isinstance(created, int) else 0,
        "owned_by": owner if isinstance(owner, str) else "vllm",
    }
    if "max_model_len" in entry:
        public["max_model_len"] = entry["max_model_len"]
    return public
