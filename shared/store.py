"""Responses in Redis: create, claim, renew, load, rehydrate. The one place that knows a record's fields in Redis.

Every change is one script, so a reader sees all of it or nothing. A missing ancestor fails closed: never a shorter
history.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from redis.asyncio import Redis

from shared.errors import InvalidRequest
from shared.events import PublicEvent, log_entry
from shared.history import Turn
from shared.ids import shard_of
from shared.json_codec import Wire, decode
from shared.keys import Keys
from shared.record import HEAD, Record
from shared.redis_client import Script, command, run_scripts
from shared.response import Status
from shared.settings import Settings

_CREATE = Script("create")
_CLAIM = Script("claim")
_RENEW = Script("renew")
_EXTEND = Script("extend")
_REHYDRATE = Script("rehydrate")

#: Ancestors read by one call of the rehydrate script: bounds how long Redis is kept busy.
_STEPS = 64
#: And bytes of items after which it adds no more of them.
_STEP_BYTES = 4 * 1024 * 1024

#: How long a created response may stay unclaimed before the sweeper looks whether its job exists.
_SUBMIT_LEASE_MS = 5_000
#: And how long until it looks again: a job may wait long in a long queue.
_WAITING_LEASE_MS = 30_000


class Claim(Enum):
    """Whose place is taken."""

    NEW = "new"  # nobody's: never claimed before
    LOST = "lost"  # that of a writer whose lease has run out
    CANCEL = "cancel"  # that of whoever holds it, unless another cancel is under way


class Creation(Enum):
    """What became of a creation."""

    READY = "ready"
    WAITING = "waiting"  # for its parent to end


def parent_not_found(response_id: str) -> InvalidRequest:
    """OpenAI's refusal of a `previous_response_id` that is unknown, expired or was not stored."""
    return InvalidRequest(
        f"Previous response with id '{response_id}' not found, or created with `store: false`.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


class ResponseStore:
    """All methods raise `redis.exceptions.RedisError` when Redis is away."""

    def __init__(self, client: Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.key_prefix)
        self._lease_ms = int(settings.lease * 1000)
        self._ttl_ms = int(settings.response_ttl * 1000)
        self._max_history_bytes = settings.max_history_bytes
        self._max_history_items = settings.max_history_items

    async def ensure_reachable(self) -> None:
        """Have one word with Redis, which changes nothing."""
        await self._client.ping()

    async def create(self, record: Record, items: Sequence[Wire], events: Sequence[PublicEvent]) -> Creation:
        """Save a new record with its first events; sending it twice creates it once.

        Raises `InvalidRequest` when the parent vanished, or still runs and this response is not a background one.
        """
        keys, response_id, fields = self._keys, record.response_id, record.fields(items)
        names = [keys.response(response_id), keys.events(response_id), keys.live_of(response_id)]
        if record.parent is not None:
            names += [keys.response(record.parent), keys.children(record.parent)]
        arguments: list[Any] = [_SUBMIT_LEASE_MS, response_id, int(record.background), len(fields)]
        for name, value in fields.items():
            arguments += [name, value]
        for event in events:
            arguments += log_entry(event)
        match await _CREATE(self._client, names, arguments):
            case b"waiting":
                creation = Creation.WAITING
            case b"no_parent":
                raise parent_not_found(record.parent or "")
            case b"parent_running":
                raise InvalidRequest(
                    f"Previous response '{record.parent}' has not ended yet. Wait for its end, or continue it with "
                    "`background: true`.",
                    param="previous_response_id",
                )
            case _:
                creation = Creation.READY
        if record.store:
            await self._index(response_id, items)
        return creation

    async def _index(self, response_id: str, items: Sequence[Wire]) -> None:
        """Note where these items live; an id that is noted already stays where it was first."""
        pipeline = self._client.pipeline(transaction=False)
        for item in items:
            if isinstance(item_id := item.get("id"), str):
                pipeline.set(self._keys.item(item_id), response_id, px=self._ttl_ms, nx=True)
        await pipeline.execute()

    async def item(self, item_id: str) -> Wire | None:
        """The stored item of this id, whichever response holds it."""
        found = await command(self._client, "GET", self._keys.item(item_id))
        record = await self.load(found.decode()) if found else None
        if record is None:
            return None
        items = [*record.output, *await self.input_items(record.response_id)]
        return next((item for item in items if item.get("id") == item_id), None)

    async def claim(self, response_id: str, token: str, claim: Claim = Claim.NEW) -> Record | None:
        """Become the one writer of a response, under a lease; None where somebody else is, or where it has ended.

        The same `token` claims once, however often it is sent. A cancel is told to workers at once.
        """
        keys = [self._keys.response(response_id), self._keys.live_of(response_id)]
        arguments = [response_id, self._lease_ms, token, claim.value, self._keys.cancels]
        fence = await _CLAIM(self._client, keys, arguments)
        record = await self.load(response_id) if fence else None
        # The fence that this claim was given: a later claim may have raised it since, and is the writer then.
        return replace(record, fence=int(fence)) if record else None

    async def renew(self, fences: dict[str, int]) -> set[str]:
        """Renew the leases of running turns, id -> fence; gives the ids that are no longer theirs."""
        commands = [
            _RENEW.command(
                [self._keys.response(response_id), self._keys.live_of(response_id)],
                [response_id, fence, self._lease_ms],
            )
            for response_id, fence in fences.items()
        ]
        answers = await run_scripts(self._client, commands, [_RENEW])
        return {response_id for response_id, renewed in zip(fences, answers, strict=True) if renewed == 0}

    async def load(self, response_id: str) -> Record | None:
        """The record with the items that are complete so far; None for an id that is unknown or no id of ours."""
        if shard_of(response_id) is None:
            return None
        key = self._keys.response(response_id)
        fields = dict(zip(HEAD, await command(self._client, "HMGET", key, *HEAD), strict=True))
        if fields["status"] is None or fields["sequence"] is None:
            return None
        present = {name.encode(): value for name, value in fields.items() if value is not None}
        return Record.read(response_id, present, await self._output(key))

    async def input_items(self, response_id: str) -> list[Wire]:
        """The response's own input, as it came."""
        key = self._keys.response(response_id)
        count = int(await command(self._client, "HGET", key, "inputs") or 0)
        names = [f"input:{index}" for index in range(count)]
        return [decode(item) for item in await command(self._client, "HMGET", key, *names)] if names else []

    async def _output(self, key: str) -> list[Wire]:
        """Items in order, up to the first that is not complete yet."""
        items: list[Wire] = []
        while True:
            names = [f"output:{index}" for index in range(len(items), len(items) + 16)]
            for item in await command(self._client, "HMGET", key, *names):
                if item is None:
                    return items
                items.append(decode(item))

    async def rehydrate(self, response_id: str) -> list[Turn]:
        """The turns from the root to `response_id`, itself included; their time to live starts anew.

        Raises `InvalidRequest`: `previous_response_not_found` when one of them is missing or was not stored,
        `context_length_exceeded` when their items are more than one request may hold. No more are read then.
        """
        turns: list[Turn] = []
        total = count = 0
        if shard_of(response_id) is None:
            raise parent_not_found(response_id)
        record_key = self._keys.response(response_id)
        base = record_key.removesuffix(response_id)
        at = response_id
        while at:
            arguments = [base, at, _STEPS, self._ttl_ms, _STEP_BYTES]
            more, found = await _REHYDRATE(self._client, [base + at], arguments)
            for turn_id, status, *items in found:
                if not status:
                    raise parent_not_found(turn_id.decode())
                total += sum(len(item) for side in items for item in side)
                count += sum(map(len, items))
                self.ensure_fits(total, count)
                own, output = ([decode(item) for item in side] for side in items)
                turns.append(Turn(turn_id.decode(), Status(status.decode()), own, output))
            at = more.decode()
        turns.reverse()
        return turns

    def ensure_fits(self, total: int, count: int) -> None:
        """Raise `InvalidRequest` (`context_length_exceeded`) for a history of more bytes or items than allowed."""
        for found, limit, name in (
            (total, self._max_history_bytes, "max_history_bytes"),
            (count, self._max_history_items, "max_history_items"),
        ):
            if found > limit:
                raise InvalidRequest(
                    f"The items of the conversation are more than this server takes at once: {name} is {limit}.",
                    param="input",
                    code="context_length_exceeded",
                )

    async def expired(self, shards: Sequence[int]) -> list[str]:
        """Ids of live responses in these shards whose lease has run out."""
        seconds, microseconds = await self._client.time()
        now = seconds * 1000 + microseconds // 1000
        pipeline = self._client.pipeline(transaction=False)
        for shard in shards:
            pipeline.zrangebyscore(self._keys.live(shard), "-inf", now, start=0, num=100)
        return [member.decode() for members in await pipeline.execute() for member in members]

    async def extend_unclaimed(self, response_id: str) -> None:
        """Look at an unclaimed response again later."""
        await _EXTEND(self._client, [self._keys.live_of(response_id)], [response_id, _WAITING_LEASE_MS])

    async def forget_live(self, response_id: str) -> None:
        """Drop a response from the live ones: it has ended, or it is gone."""
        await self._client.zrem(self._keys.live_of(response_id), response_id)
