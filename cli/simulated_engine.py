"""One simulated engine and the turns that it runs: from a request's body to its answer on the wire."""

import secrets
import time
from collections import Counter
from typing import Any

from cli import simulated_wire as wire
from cli.simulated_delivery import Send, send_plain, send_stream
from cli.simulated_events import EventStream
from cli.simulated_faults import Faults
from cli.simulated_model import Generation, Sampling, generate
from cli.simulated_prefix_cache import PrefixCache
from cli.simulated_prompt import Chat, build_chat
from cli.simulated_record import Record
from cli.simulated_refusal import bad_parameter
from cli.simulated_request import Request, check, read_request
from cli.simulated_tokens import tokenise
from shared.json_codec import Wire


class Engine:
    """What all turns of a server share. `totals` counts tokens, and turns by their ending."""

    def __init__(self, models: tuple[str, ...], max_model_len: int) -> None:
        self.models = models
        self.max_model_len = max_model_len
        self.created_at = int(time.time())
        self.cache = PrefixCache()
        self.running = 0
        self.totals: Counter[str] = Counter()


class Turn:
    """One request that is generated for, and what the model made of it. Raises `Refusal` for one that is not."""

    def __init__(self, engine: Engine, body: Any) -> None:
        self._engine = engine
        self._request = request = read_request(body)
        check(request, engine.models, engine.max_model_len)
        model = request.get("model", engine.models[0])
        chat = build_chat(
            request.get("input"),
            model=model,
            instructions=request.get("instructions"),
            tools=request.tools,
            thinking=request.thinking,
        )
        self._prompt = chat.render()
        tokens = _fitted(tokenise(self._prompt), request, engine.max_model_len)
        self._prompt_tokens = len(tokens)
        self._cached, self._written = engine.cache.look_up(tokens, str(body.get("cache_salt") or ""))
        self._begun = wire.snapshot(
            request,
            model=model,
            created_at=int(time.time()),
            prompt_tokens=self._prompt_tokens,
            max_model_len=engine.max_model_len,
        )
        self._generation = _generated(request, chat, self._begun["max_output_tokens"])

    async def answer(self, send: Send, faults: Faults, record: Record) -> None:
        """Send the answer, streamed or plain. Raises `Broken` where a fault breaks it off."""
        record.response_id, record.status, record.stream = self._begun["id"], 200, self._request.stream
        self._engine.totals["prompt_tokens"] += self._prompt_tokens
        self._engine.running += 1
        try:
            streams = record.stream and not faults.answer_json
            await (self._stream if streams else self._plain)(send, faults, record)
        finally:
            self._engine.running -= 1
            written = self._generation.tokens if record.ending == "finished" else record.deltas
            self._engine.totals["generation_tokens"] += written
            self._engine.totals[record.ending] += 1

    async def _plain(self, send: Send, faults: Faults, record: Record) -> None:
        final = self._final(wire.plain_output(self._generation, self._request))
        await send_plain(send, final, self._generation.tokens, faults=faults, record=record)

    async def _stream(self, send: Send, faults: Faults, record: Record) -> None:
        events = EventStream(self._begun, self._request)

        def closing() -> bytes:
            return events.completed(self._final(events.output))

        steps = events.steps(self._generation.segments)
        await send_stream(send, events.opening(), steps, closing, faults=faults, record=record)

    def _final(self, output: list[Wire]) -> Wire:
        counts = wire.usage(self._generation, self._prompt_tokens, self._cached, self._written)
        prompt = self._prompt if self._request.get("enable_response_messages") else None
        return wire.finished(self._begun, self._generation, output, counts, prompt)


def _fitted(tokens: tuple[str, ...], request: Request, max_model_len: int) -> tuple[str, ...]:
    """The prompt's tokens; with `truncation: auto` the last that fit, one short of the whole context."""
    if request.get("truncation") == "auto":
        return tokens[-(max_model_len - 1) :]
    if len(tokens) >= max_model_len:
        raise bad_parameter(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
            f"{max_model_len + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce "
            "the length of the input prompt.",
            "input_tokens",
            max_model_len + 1,
        )
    return tokens


def _generated(request: Request, chat: Chat, max_tokens: int) -> Generation:
    sampling = Sampling(
        max_tokens=max_tokens,
        temperature=request.get("temperature", 1.0),
        seed=request.get("seed"),
        entropy=secrets.randbits(64),
        stop=tuple(request.get("stop", ())),
        ignore_eos=request.get("ignore_eos", False),
        forced_tool=request.forced_tool,
        parallel_calls=request.get("parallel_tool_calls", True),
        output_format=request.output_format,
    )
    return generate(chat, sampling)
