"""Response ids carry their shard."""

import pytest

from shared.ids import SHARDS, new_item_id, new_request_id, new_response_id, shard_of
from shared.keys import Keys


@pytest.mark.parametrize("shard", range(SHARDS))
def test_an_id_names_its_shard(shard: int) -> None:
    response_id = new_response_id(shard)
    assert shard_of(response_id) == shard
    assert Keys("p:").response(response_id) == f"p:{{s{shard:02d}}}:response:{response_id}"


def test_roots_spread_over_the_shards_and_never_repeat() -> None:
    ids = {new_response_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert len({shard_of(response_id) for response_id in ids}) > SHARDS / 2


@pytest.mark.parametrize(
    "text",
    ["", "resp_", "resp_64" + "0" * 46, "resp_00" + "0" * 45, "resp_00" + "G" * 46, "conv_00" + "0" * 46, "resp_00\n"],
)
def test_any_other_text_names_nothing(text: str) -> None:
    assert shard_of(text) is None
    with pytest.raises(ValueError, match="not a response id"):
        Keys().events(text)


def test_all_keys_of_a_thread_share_one_hash_tag() -> None:
    keys, response_id = Keys(), new_response_id(7)
    names = [keys.response, keys.events, keys.children, keys.live_of, keys.outbox_of]
    assert all("{s07}" in name(response_id) for name in names)
    assert keys.live_of(response_id) == keys.live(7)
    assert keys.outbox_of(response_id) == keys.outbox(7)


def test_other_ids_say_what_they_are_of() -> None:
    types = ("message", "reasoning", "function_call", "custom_tool_call", "acme:x")
    ids = [*map(new_item_id, types), new_request_id()]
    assert [made.rpartition("_")[0] for made in ids] == ["msg", "rs", "fc", "ctc", "item", "req"]
    assert all(len(made) >= 32 for made in ids)
    assert new_request_id() != new_request_id()
