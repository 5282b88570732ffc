"""Output items of a simulated response, their parts and ids: vLLM 0.32's keys in order, null or absent."""

import math
import secrets

from cli.simulated_tokens import Call, token_id
from shared.json_codec import Wire


def new_id(prefix: str) -> str:
    """`rs_`, `msg_`, `fc_`, `ctc_`, `resp_` or `chatcmpl-tool-` and 16 hex digits."""
    return f"{prefix}{secrets.token_hex(8)}"


def reasoning_item(item_id: str, text: str | None, status: str | None) -> Wire:
    """A reasoning item; without a text it has only been added."""
    content = None if text is None else [reasoning_part(text)]
    return {
        "id": item_id,
        "summary": [],
        "type": "reasoning",
        "content": content,
        "encrypted_content": None,
        "status": status,
    }


def reasoning_part(text: str) -> Wire:
    """The only content part of a reasoning item."""
    return {"text": text, "type": "reasoning_text"}


def message_item(item_id: str, content: list[Wire], status: str) -> Wire:
    """An assistant message."""
    return {
        "id": item_id,
        "content": content,
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def text_part(text: str, logprobs: list[Wire] | None) -> Wire:
    """The only content part of a message; `logprobs` is null when done and none were asked for, [] before."""
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def call_item(call: Call, arguments: str, status: str, ids: tuple[str, str] | None = None) -> Wire:
    """A function call, or a custom tool call, which has no status. `ids` are those of the item and of the call."""
    item_id, call_id = ids or call_ids(call)
    tail = {"async": None, "caller": None, "namespace": call.namespace}
    if call.custom:
        head = {"call_id": call_id, "input": arguments, "name": call.name, "type": "custom_tool_call", "id": item_id}
        return head | tail
    head = {"arguments": arguments, "call_id": call_id, "name": call.name, "type": "function_call", "id": item_id}
    return head | tail | {"status": status}


def call_ids(call: Call) -> tuple[str, str]:
    """New ids for the item and for the call."""
    return new_id("ctc_" if call.custom else "fc_"), new_id("chatcmpl-tool-")


def logprob(token: str, alternatives: int, *, with_bytes: bool = True) -> Wire:
    """A log probability for a token and its alternatives: made up, stable for the token."""
    best = -1e-3 * (1 + token_id(token) % 97)
    candidates = [(token, best), *((f" {token.strip()}{n}", best - math.log(7 * n)) for n in range(1, alternatives))]
    return _scored(token, best, with_bytes) | {
        "top_logprobs": [_scored(word, score, with_bytes) for word, score in candidates[:alternatives]]
    }


def _scored(token: str, score: float, with_bytes: bool) -> Wire:  # noqa: FBT001 - private
    return {"token": token, **({"bytes": list(token.encode())} if with_bytes else {}), "logprob": score}
