"""Every Redis key name, in one place. Pure.

`{sNN}` is a Cluster hash tag: all keys of one thread of turns live in one slot (see `shared/ids.py`).
"""

from dataclasses import dataclass

from shared.ids import shard_of


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix. A text that is no response id of ours raises `ValueError`."""

    prefix: str = "rejoinder:"

    def _shard(self, response_id: str) -> str:
        shard = shard_of(response_id)
        if shard is None:
            raise ValueError("not a response id")
        return f"{self.prefix}{{s{shard:02d}}}"

    def response(self, response_id: str) -> str:
        """Hash: the record of one response, its items among the fields."""
        return f"{self._shard(response_id)}:response:{response_id}"

    def events(self, response_id: str) -> str:
        """Stream: the public event log of one response."""
        return f"{self._shard(response_id)}:events:{response_id}"

    def children(self, response_id: str) -> str:
        """Set: ids of background responses that wait for this one to end."""
        return f"{self._shard(response_id)}:children:{response_id}"

    def live_of(self, response_id: str) -> str:
        """The `live` key of the response's shard."""
        return f"{self._shard(response_id)}:live"

    def live(self, shard: int) -> str:
        """Sorted set: responses that are not terminal, scored by the end of their lease in milliseconds."""
        return f"{self.prefix}{{s{shard:02d}}}:live"

    def outbox_of(self, response_id: str) -> str:
        """The `outbox` key of the response's shard."""
        return f"{self._shard(response_id)}:outbox"

    def outbox(self, shard: int) -> str:
        """Stream: what must happen in other slots after a commit in this one."""
        return f"{self.prefix}{{s{shard:02d}}}:outbox"

    @property
    def cancels(self) -> str:
        """Channel: ids of responses that were cancelled, for the workers that may be generating them."""
        return f"{self.prefix}cancels"

    def item(self, item_id: str) -> str:
        """String: the id of the response that holds the item (for `item_reference`)."""
        return f"{self.prefix}item:{item_id}"
