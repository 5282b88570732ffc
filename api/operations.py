"""`/v1/models`, `/health`, `/ready`."""

import asyncio

from fastapi import APIRouter
from redis.exceptions import RedisError
from starlette.responses import Response

from api.bodies import json_answer
from api.services import Services, ServicesDep
from shared.errors import NotFound, Unavailable

router = APIRouter()


@router.get("/v1/models")
async def list_models(services: ServicesDep) -> Response:
    """The upstream's models."""
    models = await services.models.listed()
    if models is None:
        raise _unlisted()
    return json_answer({"object": "list", "data": models})


@router.get("/v1/models/{model:path}")
async def retrieve_model(model: str, services: ServicesDep) -> Response:
    """One model."""
    models = await services.models.listed()
    if models is None:
        raise _unlisted()
    for known in models:
        if known["id"] == model:
            return json_answer(known)
    raise NotFound("The model does not exist or is not served here.", param="model", code="model_not_found")


def _unlisted() -> Unavailable:
    return Unavailable("The model server can't be reached right now, so its models are not known.")


@router.get("/health")
async def health() -> Response:
    """Whether this process answers."""
    return json_answer({"status": "ok"})


@router.get("/ready")
async def ready(services: ServicesDep) -> Response:
    """Whether a response submitted now would be generated: Redis, a live worker and the upstream are there."""
    workers, upstream = await asyncio.gather(_workers(services), services.models.healthy())
    parts = {"redis": workers is not None, "worker": bool(workers), "upstream": upstream}
    return json_answer(parts, 200 if all(parts.values()) else 503)


async def _workers(services: Services) -> int | None:
    try:
        return await services.presence.count()
    except RedisError:
        return None
