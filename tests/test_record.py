"""A record through its hash fields, and the Response made of it."""

import pytest

from records import record
from shared.json_codec import Wire, decode
from shared.record import HEAD, Ending, Record
from shared.response import Status
from wire import message, reasoning, summed

USAGE: Wire = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
ENDINGS: dict[str, Ending | None] = {
    "running": None,
    "completed": Ending(Status.COMPLETED, completed_at=1_800_000_001, usage=USAGE, service_tier="default"),
    "incomplete": Ending(Status.INCOMPLETE, incomplete_details={"reason": "max_output_tokens"}),
    "failed": Ending(Status.FAILED, error={"code": "x", "message": "m"}, http_status=502, retry_after=1),
    "with what vLLM added": Ending(Status.COMPLETED, extras={"input_messages": [{"message": "<|im_start|>"}]}),
}
ITEMS = [reasoning("rs_1", "x", encrypted_content=None), message("msg_1", "A")]


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
@pytest.mark.parametrize("options", [{}, {"background": True, "store": False, "metadata": {"k": "é"}}], ids=["", "odd"])
def test_a_record_reads_back(ending: Ending | None, options: Wire) -> None:
    new = record(**options)
    fields = {
        key: value if isinstance(value, bytes) else str(value).encode() for key, value in new.fields(ITEMS).items()
    }
    assert [decode(fields[f"input:{index}"]) for index in range(int(fields["inputs"]))] == ITEMS
    fields |= {"sequence": b"0"}
    if ending is not None:
        fields |= {"status": ending.status.value.encode(), "ending": ending.stored()}
        new = new.ended(ending, ITEMS)
    head = {key.encode(): value for key, value in fields.items() if key in HEAD}
    again = Record.read(new.response_id, head, new.output)
    assert again == new
    assert again.response() == new.response()
    assert (again.background, again.store, again.model) == ("background" in options, "store" not in options, "m")


def test_the_response_says_how_it_ended_and_what_vllm_added() -> None:
    ended = record().ended(ENDINGS["with what vLLM added"] or Ending(Status.COMPLETED), ITEMS).response()
    assert (ended["status"], ended["output"], ended["input_messages"]) == (
        "completed",
        ITEMS,
        [{"message": "<|im_start|>"}],
    )


def test_a_mirrored_summary_is_shown_and_not_kept() -> None:
    fields = {key.encode(): str(value).encode() for key, value in record().fields([]).items() if key != "options"}
    mirroring = Record.read(
        "resp_1", fields | {b"options": b'{"model":"m"}', b"sequence": b"0", b"mirror": b"1"}, ITEMS
    )
    assert mirroring.response()["output"] == [{**ITEMS[0], "summary": [summed("x")]}, ITEMS[1]]
    assert list(mirroring.output) == ITEMS
