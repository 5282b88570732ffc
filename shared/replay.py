"""From a stored history and a new input to the body that vLLM is sent. Pure.

Law: the body is a copy, built key by key, so stored items never change and no mark of ours can leave. Items keep their
order: ancestors root to leaf, each turn's input then output, then the new input. Reasoning that nobody here can read is
refused, never dropped or replaced by its summary; so is an item that stands for others and can't be resolved: a history
is whole or it is not sent.

Instructions are this request's only. System and developer messages at the very beginning join them, because many chat
templates take one system message and no second (Qwen3.5 and later, Mistral, Gemma: 400). Those further on stay where
they stand, with their role: vLLM moves developer messages to the front where a template doesn't know the role.
`truncation: auto` goes up as it came: vLLM then cuts the prompt from its left.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, Literal

from shared.errors import InvalidRequest
from shared.items import kind, name_of, plain_text
from shared.json_codec import Wire
from shared.merge import merge_input
from shared.parameters import UPSTREAM_EXTRAS
from shared.rewrite import CUT, answers, asks, is_text, upstream_items
from shared.tools import upstream_tools

ReasoningContext = Literal["all_turns", "current_turn"]

_AS_ASKED: Final = (
    "model",
    "max_output_tokens",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "truncation",
    *UPSTREAM_EXTRAS,
)
_CONTEXTS: Final[dict[object, ReasoningContext]] = {"all_turns": "all_turns", "current_turn": "current_turn"}
_LOGPROBS: Final = "message.output_text.logprobs"
_UNRESOLVED: Final = {
    "compaction": "holds an earlier history that only its maker can read",
    "item_reference": "stands for a stored item and was not resolved",
}


@dataclass(frozen=True)
class ReplayPolicy:
    """What the settings say about one model."""

    #: What `reasoning.context: auto` means.
    reasoning_context: ReasoningContext = "all_turns"
    #: What the model's template is told: entries named `all_turns` and `current_turn` are objects that hold for that
    #: `reasoning.context`, any other entry for both. The caller's own entries win.
    chat_template_kwargs: Wire = field(default_factory=dict)


def ensure_replayable(items: Sequence[Wire]) -> None:
    """Refuse what vLLM could not be given in full: encrypted-only reasoning, compactions, unresolved references.

    Raises `InvalidRequest` (400, param `input`) that names the item's id, or says that nothing is left to be sent (vLLM
    refuses an empty input). The blob is not echoed.
    """
    _replayable(items)


def _replayable(items: Sequence[Wire]) -> list[Wire]:
    """What is sent for the items, at least one. Raises as `ensure_replayable` does."""
    for item in items:
        what = kind(item)
        if what == "reasoning" and item.get("encrypted_content") and not plain_text(item.get("content")):
            message = f"Reasoning {name_of(item)} holds only encrypted content, which this server can't read."
            raise InvalidRequest(message, param="input", code="invalid_encrypted_content")
        if what in _UNRESOLVED:
            raise InvalidRequest(f"Input {name_of(item)} {_UNRESOLVED[what]}.", param="input", code="invalid_value")
    if not (sent := _sent_items(items)):
        message = "The input holds nothing that the model could be given."
        raise InvalidRequest(message, param="input", code="invalid_value")
    return sent


def effective_context(options: Wire, policy: ReplayPolicy) -> ReasoningContext:
    """The `reasoning.context` in force: the caller's, or for `auto` and none the model's."""
    return _CONTEXTS.get((options.get("reasoning") or {}).get("context"), policy.reasoning_context)


def upstream_body(
    options: Wire, history: Sequence[Wire], new: Sequence[Wire], *, seed: int, policy: ReplayPolicy
) -> Wire:
    """The body of vLLM's `POST /v1/responses`. The caller's own `seed` wins over `seed`.

    Raises `InvalidRequest` as `ensure_replayable` and `merge_input` do.
    """
    items = merge_input(history, new)
    sent, context = _replayable(items), effective_context(options, policy)
    if context == "current_turn":
        sent = _without_earlier_reasoning(sent)
    body: Wire = {key: options[key] for key in _AS_ASKED if key in options}
    body |= {"stream": True, "store": False, "seed": options.get("seed", seed)}
    body |= _instructed(options.get("instructions"), sent)
    body |= upstream_tools(options, items) | _reasoning(options) | _text(options) | _logprobs(options)
    if kwargs := _template_kwargs(policy, context) | options.get("chat_template_kwargs", {}):
        body["chat_template_kwargs"] = kwargs
    return deepcopy(body)


def _without_earlier_reasoning(items: Sequence[Wire]) -> list[Wire]:
    """Reasoning after the last user message stays: a tool loop in progress keeps its own."""
    users = [index for index, item in enumerate(items) if kind(item) == "message" and item["role"] == "user"]
    start = users[-1] if users else 0
    return [item for index, item in enumerate(items) if index >= start or kind(item) != "reasoning"]


def _sent_items(items: Sequence[Wire]) -> list[Wire]:
    """What is sent for the items. A call that was cut is left out, and so is what answers a left-out call only."""
    sent = [[] if asks(item) and item.get("status") == CUT else upstream_items(item) for item in items]
    whole = {asks(item) for item, own in zip(items, sent, strict=True) if own}
    lost = {asks(item) for item, own in zip(items, sent, strict=True) if not own} - whole - {None}
    return [one for item, own in zip(items, sent, strict=True) if answers(item) not in lost for one in own]


def _instructed(instructions: str | None, sent: Sequence[Wire]) -> Wire:
    """The keys `instructions` and `input`: what the prompt begins with as one system message, and the rest."""
    leading = list(takewhile(_is_instruction, sent))
    if len(leading) == len(sent):
        return ({"instructions": instructions} if instructions else {}) | {"input": sent}
    texts = [instructions, *(plain_text(item["content"]) for item in leading)]
    said = "\n\n".join(part for part in texts if part)
    return ({"instructions": said} if said else {}) | {"input": sent[len(leading) :]}


def _is_instruction(item: Wire) -> bool:
    return item.get("role") in ("system", "developer") and is_text(item["content"])


def _template_kwargs(policy: ReplayPolicy, context: ReasoningContext) -> Wire:
    both = {key: value for key, value in policy.chat_template_kwargs.items() if key not in _CONTEXTS}
    own: Wire = policy.chat_template_kwargs.get(context, {})
    return both | own


def _reasoning(options: Wire) -> Wire:
    effort = (options.get("reasoning") or {}).get("effort")
    return {"reasoning": {"effort": effort}} if effort else {}


def _text(options: Wire) -> Wire:
    form = (options.get("text") or {}).get("format") or {"type": "text"}
    if form["type"] == "text":
        return {}
    return {"text": {"format": {key: value for key, value in form.items() if value is not None}}}


def _logprobs(options: Wire) -> Wire:
    """The only `include` value that changes what vLLM generates; without it no log probabilities are returned."""
    if _LOGPROBS not in options.get("include", ()):
        return {}
    return {"include": [_LOGPROBS]} | ({"top_logprobs": options["top_logprobs"]} if "top_logprobs" in options else {})
