"""Ids that carry their place. Pure but for the random source.

A response id is `resp_` + two digits of shard + 46 hex digits. The shard is chosen at random for a root response and
inherited by every continuation, so one thread of turns lives in one Cluster slot and any process finds any key with
no lookup.
"""

import re
import secrets

SHARDS = 64

_ITEM_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_RESPONSE_ID = re.compile(r"resp_(\d\d)[0-9a-f]{46}")


def new_response_id(shard: int | None = None) -> str:
    """A fresh response id in `shard` (0 to 63), or in one chosen at random."""
    chosen = secrets.randbelow(SHARDS) if shard is None else shard
    return f"resp_{chosen:02d}{secrets.token_hex(23)}"


def shard_of(response_id: str) -> int | None:
    """The shard that a response id names; None where the text is no id of ours, so names nothing."""
    match = _RESPONSE_ID.fullmatch(response_id)
    if match is None or (shard := int(match[1])) >= SHARDS:
        return None
    return shard


def new_item_id(item_type: str) -> str:
    """An id for an item that its upstream gave none."""
    return f"{_ITEM_PREFIXES.get(item_type, 'item')}_{secrets.token_hex(24)}"


def new_request_id() -> str:
    """An id for one HTTP request, answered as `x-request-id`."""
    return f"req_{secrets.token_hex(16)}"
