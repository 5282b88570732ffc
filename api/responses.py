"""`/v1/responses`: create, retrieve, follow, cancel."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from api.bodies import json_answer, read_json
from api.departure import while_present
from api.services import Services, ServicesDep
from api.subscribe import EventStream
from shared.errors import InvalidRequest, NotFound
from shared.ids import shard_of
from shared.record import Record
from shared.request import parse_request

router = APIRouter(prefix="/v1/responses")


@router.post("")
async def create(request: Request, services: ServicesDep) -> Response:
    """Submit a response; answer with its stream, with its end, or, in the background, at once."""
    wanted = parse_request(await read_json(request, services.settings.max_body_bytes))
    record = await services.submissions.submit(wanted)
    left = partial(services.cancellations.client_left, record.response_id)
    if wanted.stream:
        return EventStream(services.subscriptions.frames(record, -1), None if wanted.background else left)
    if wanted.background:
        return json_answer(record.response())
    try:
        return json_answer(await while_present(request.receive, services.subscriptions.final(record)))
    except ClientDisconnect:
        await left()
        raise


@router.get("/{response_id}")
async def retrieve(
    response_id: str,
    services: ServicesDep,
    stream: Annotated[bool, Query()] = False,  # noqa: FBT002 - a query parameter
    starting_after: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
) -> Response:
    """The response as it stands, or, with `stream=true`, its events after the cursor, live until it ends."""
    record = await _known(response_id, services)
    if not stream:
        return json_answer(record.response())
    after = -1 if starting_after is None else starting_after
    await _ensure_followable(record, services)
    return EventStream(services.subscriptions.frames(record, after))


@router.post("/{response_id}/cancel")
async def cancel(response_id: str, services: ServicesDep) -> Response:
    """End a background response; answers with it as it ended, now or before."""
    record = await services.cancellations.cancel(await _known(response_id, services))
    return json_answer(record.response())


async def _known(response_id: str, services: Services) -> Record:
    record = await services.store.load(response_id)
    if record is None or not (record.store or record.background):
        # What is no id of ours may be any text.
        named = f" with id '{response_id}'" if shard_of(response_id) is not None else ""
        raise NotFound(f"Response{named} not found.")
    return record


async def _ensure_followable(record: Record, services: Services) -> None:
    if not record.background:
        raise InvalidRequest(
            "Only a response created with `background: true` can be streamed after its creation.",
            param="stream",
            code="invalid_request_error",
        )
    if not await services.event_log.exists(record.response_id):
        raise InvalidRequest(
            "The events of this response are no longer kept. Retrieve the response without `stream`.",
            param="stream",
            code="invalid_request_error",
        )
