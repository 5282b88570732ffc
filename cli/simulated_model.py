"""The simulated model: a chat and sampling parameters in, tokens out. Pure, and the same every time.

Law: the same chat with the same seed, or at temperature 0, gives the same tokens. A chat that ends in an unfinished
assistant message is continued: with the same seed the rest is what an uncut generation would have said. Without think
tags of its own such a rest is taken for reasoning by vLLM's parser, unless thinking is off.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from cli import simulated_answers as answers
from cli.simulated_answers import Reply
from cli.simulated_calls import choose_calls, example_object
from cli.simulated_prompt import Chat, ChatMessage
from cli.simulated_tokens import END_OF_TURN, WHITESPACE, Call, Kind, Segment, tokenise
from shared.json_codec import Wire

#: How many differently worded replies are tried for one that begins as an unfinished message does.
_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to generate. `entropy` stands in for a seed where none was given; `forced_tool` is a name or `*`."""

    max_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    entropy: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    forced_tool: str | None = None
    parallel_calls: bool = True
    output_format: Wire | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What came out. `tokens` counts the end of the turn and a token cut by a stop string too."""

    segments: tuple[Segment, ...]
    tokens: int
    reasoning_tokens: int
    truncated: bool

    @property
    def text(self) -> str:
        """All of it as the model wrote it, but for the end of the turn."""
        return "".join(segment.text for segment in self.segments if segment.kind is not Kind.END)


#: Dice for an attempt at a reply: attempt 0 is the reply itself, the others are words that it might have used.
_Dice: TypeAlias = Callable[[int], Random]


def generate(chat: Chat, sampling: Sampling) -> Generation:
    """Think about the last user message, answer it, stop where the parameters say."""
    dice = _dice(chat, sampling)
    reply, said = (
        _continued(chat, chat.unfinished, dice, sampling) if chat.unfinished else (_reply(chat, dice(0), sampling), "")
    )
    segments = list(_segments(chat, reply, said, sampling))
    if sampling.ignore_eos and not reply.calls:
        segments[-1:] = [_endless(segments, dice(0), sampling.max_tokens)]
    return _stopped(_truncated(segments, sampling.max_tokens), sampling.stop)


def _dice(chat: Chat, sampling: Sampling) -> _Dice:
    """Dice that fall the same way for the same chat and seed. The unfinished message is no part of the chat here."""
    seed = "greedy" if sampling.temperature == 0 else sampling.seed if sampling.seed is not None else sampling.entropy
    known = Chat(chat.messages, chat.tools, thinking=True).render()
    digest = hashlib.sha256(f"{seed}\0{known}".encode()).digest()
    start = int.from_bytes(digest[:8])
    return lambda attempt: Random(start + attempt)  # noqa: S311 - a simulated sampler, no secret


def _reply(chat: Chat, dice: Random, sampling: Sampling) -> Reply:
    asked = answers.last_user_text(chat)
    calls: list[Call] = []
    text = ""
    if not answers.pending_results(chat) or sampling.forced_tool:
        calls = choose_calls(asked, chat.tools, sampling.forced_tool)
    if calls:
        calls = calls if sampling.parallel_calls else calls[:1]
        names = " and ".join(dict.fromkeys(call.name for call in calls))
        plan = f"{dice.choice(('I will call', 'I need to call'))} {names}."
    elif sampling.output_format is not None:
        plan, text = "I will write it as JSON.", example_object(asked, sampling.output_format.get("schema"))
    else:
        plan, text = answers.answer(chat, asked, dice)
    return Reply(answers.reasoning_about(chat, asked, plan, dice), text, tuple(calls))


def _continued(chat: Chat, unfinished: ChatMessage, dice: _Dice, sampling: Sampling) -> tuple[Reply, str]:
    """The reply that an unfinished message is the beginning of, and how much of its text has been said."""
    said, thought = (unfinished.content or "").lstrip("\n"), (unfinished.reasoning or "").strip("\n")
    replies = (_reply(chat, dice(attempt), sampling) for attempt in range(_CANDIDATES))
    for reply in replies:
        if reply.text.startswith(said) and (said or not thought or reply.reasoning == thought):
            return reply, said
    if not said:
        return _reply(chat, dice(0), sampling), ""
    return Reply("", f"{said} and so on: {' '.join(answers.filler(dice(0), 12))}."), said


def _segments(chat: Chat, reply: Reply, said: str, sampling: Sampling) -> Iterator[Segment]:
    fresh = chat.unfinished is None
    if fresh and chat.thinking:
        yield Segment(Kind.THINK_OPEN, ("<think>",))
        yield Segment(Kind.REASONING, tokenise(f"\n{reply.reasoning}\n"))
        yield Segment(Kind.THINK_CLOSE, ("</think>",))
    # A grammar (JSON, a forced call) leaves no room for the blank line between the thinking and the answer.
    grammar = sampling.output_format is not None or sampling.forced_tool is not None
    gap = WHITESPACE if fresh and chat.thinking and not grammar else ""
    if text := gap + reply.text[len(said) :]:
        kind = Kind.REASONING if chat.thinking and not fresh else Kind.TEXT
        yield Segment(kind, tokenise(text))
    for number, call in enumerate(reply.calls):
        yield from _call_segments(call, first=number == 0)
    yield Segment(Kind.END, (END_OF_TURN,))


def _call_segments(call: Call, *, first: bool) -> Iterator[Segment]:
    head = f'{"" if first else chr(10)}<tool_call>\n{{"name": "{call.full_name}"'
    yield Segment(Kind.CALL_OPEN, (*tokenise(head), ","), call)
    gap = ' "arguments": {"input": "' if call.custom else ' "arguments": '
    yield Segment(Kind.CALL_GAP, tokenise(gap), call)
    yield Segment(Kind.ARGUMENTS, tokenise(call.arguments), call)
    yield Segment(Kind.CALL_CLOSE, tokenise('"}}\n</tool_call>' if call.custom else "}\n</tool_call>"), call)


def _endless(segments: list[Segment], dice: Random, budget: int) -> Segment:
    """More words in place of the end of the turn, up to the budget."""
    kind = next((part.kind for part in reversed(segments) if part.kind in (Kind.TEXT, Kind.REASONING)), Kind.TEXT)
    missing = max(0, budget - sum(len(part.tokens) for part in segments) + 1)
    words = " ".join(answers.filler(dice, missing))
    return Segment(kind, tokenise(f" {words}")[:missing])


def _truncated(segments: list[Segment], budget: int) -> Generation:
    kept: list[Segment] = []
    for segment in segments:
        room = budget - sum(len(part.tokens) for part in kept)
        if room >= len(segment.tokens):
            kept.append(segment)
        elif room:
            kept.append(segment.cut(segment.tokens[:room]))
    tokens = sum(len(part.tokens) for part in kept)
    ended = bool(kept) and kept[-1].kind is Kind.END
    return Generation(tuple(kept), tokens, _thinking(kept), not ended)


def _thinking(segments: list[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments if segment.kind is Kind.REASONING)


def _stopped(generation: Generation, stop: tuple[str, ...]) -> Generation:
    """The same up to the first stop string, which also matches inside the thinking and inside tokens."""
    found = [place for word in stop if word and (place := generation.text.find(word)) >= 0]
    if not found:
        return generation
    end = min(found)
    last = end + min(len(word) for word in stop if generation.text.startswith(word, end))
    kept: list[Segment] = []
    written = tokens = 0
    for segment in generation.segments:
        words: list[str] = []
        for token in segment.tokens:
            if written >= last:
                break
            tokens += 1
            if written < end:
                words.append(token[: end - written])
            written += len(token)
        if words:
            whole = tuple(words) == segment.tokens
            kept.append(segment if whole else segment.cut(tuple(words)))
    return Generation(tuple(kept), tokens, _thinking(kept), truncated=False)
