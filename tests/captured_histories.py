"""Every recorded turn of a real vLLM as a history to go on with: what was asked, then what came."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.accumulator import Accumulator
from shared.items import user_message
from shared.json_codec import decode
from shared.normalize import read_event
from workers.sse import SseDecoder

Item = dict[str, Any]

CAPTURED = Path(__file__).parent / "captured"


@dataclass(frozen=True)
class History:
    """One turn. `streamed`: `output` is what the accumulator stored; else it is vLLM's own, nulls and all.

    Some recordings of a breakdown hold no request; a simple one stands for it.
    """

    request: Item
    output: list[Item]
    streamed: bool

    @property
    def input(self) -> list[Item]:
        """What was asked, as items."""
        asked = self.request["input"]
        return [user_message(asked)] if isinstance(asked, str) else asked

    @property
    def items(self) -> list[Item]:
        """The turn and the next input, as a client sends them that keeps its history itself."""
        return [*self.input, *self.output, *next_input(self.output)]


def next_input(output: list[Item]) -> list[Item]:
    """An answer to every call, and a new question."""
    outputs = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "sunny, 21 degrees"}
        for item in output
        if item["type"] in ("function_call", "custom_tool_call")
    ]
    return [*outputs, user_message("What is my name?")]


def histories() -> dict[str, History]:
    """By the recording's name; those without any output are left out, and so is what is no response."""
    found = {}
    for file in sorted(CAPTURED.glob("*.response.*")):
        name = file.name.partition(".")[0]
        output = _streamed(file.read_bytes()) if file.suffix == ".sse" else _plain(file.read_bytes())
        if output:
            found[name] = History(_request(name), output, file.suffix == ".sse")
    return found


def _request(name: str) -> Item:
    file = CAPTURED / f"{name}.request.json"
    request: Item = decode(file.read_bytes()) if file.exists() else {"input": "Count to 40."}
    return request


def _plain(raw: bytes) -> list[Item]:
    try:
        answer = decode(raw)
    except ValueError:
        return []
    return (answer.get("output") or []) if isinstance(answer, dict) and answer.get("object") == "response" else []


def _streamed(raw: bytes) -> list[Item]:
    decoder, accumulator = SseDecoder(1 << 20), Accumulator()
    for wires in (decoder.feed(raw), decoder.end()):
        accumulator.feed([read_event(wire) for wire in wires])
    if accumulator.ending is None:
        accumulator.fail()
    return accumulator.output
