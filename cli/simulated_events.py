"""The event stream of one generation, token by token, as encoded SSE frames. Pure but for ids.

Law: one step a token, so that whoever sends can keep pace or break off anywhere. A delta's frame is put together from
parts that were encoded once for its item: only the token's text and the sequence number change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cli import simulated_items as items
from cli.simulated_request import Request
from cli.simulated_tokens import CALL_KINDS, Call, Kind, Segment
from shared.json_codec import Wire, encode

_encoded_text = lru_cache(maxsize=65_536)(encode)


@dataclass(frozen=True, slots=True)
class Step:
    """What one token puts on the wire: frames, perhaps none. `delta` says whether one of them is a delta."""

    frames: bytes
    delta: bool


class _Open:
    """An item that is being written: its ids, its text so far, its slot, and the parts of its delta frames."""

    __slots__ = ("call", "call_id", "head", "item_id", "kind", "logprobs", "middle", "slot", "tail", "words")

    def __init__(self, kind: str, slot: int, call: Call | None = None) -> None:
        self.kind = kind
        self.slot = slot
        self.call = call
        self.item_id, self.call_id = items.call_ids(call) if call else (items.new_id(_PREFIX[kind]), "")
        self.words: list[str] = []
        self.logprobs: list[Wire] = []
        name = f"response.{kind}.delta"
        place = '"content_index":0,' if call is None else ""
        logprobs = '"logprobs":[],' if kind == "output_text" else ""
        self.head = f'event: {name}\ndata: {{{place}"delta":'.encode()
        self.middle = f',"item_id":"{self.item_id}",{logprobs}"output_index":{slot},"sequence_number":'.encode()
        self.tail = f',"type":"{name}"}}\n\n'.encode()


_PREFIX = {"reasoning_text": "rs_", "output_text": "msg_"}


class EventStream:
    """Writes the events of one response. After the last step, `output` holds the items as they were streamed."""

    def __init__(self, begun: Wire, request: Request) -> None:
        self._begun = begun
        self._shows_reasoning = request.get("include_reasoning", True)
        self._parses_calls = request.parses_calls
        self._alternatives = request.logprobs
        self._next = 0
        self._open: _Open | None = None
        self.output: list[Wire] = []

    def opening(self) -> bytes:
        """`response.created` and `response.in_progress`."""
        return self._snapshot("response.created", self._begun) + self._snapshot("response.in_progress", self._begun)

    def steps(self, segments: tuple[Segment, ...]) -> Iterator[Step]:
        """One step a token, and a last one that closes what is open."""
        for segment in segments:
            kind = segment.kind
            if kind in CALL_KINDS and not self._parses_calls:
                kind = Kind.TEXT
            if kind is Kind.REASONING and self._shows_reasoning:
                yield from self._text("reasoning_text", segment)
            elif kind is Kind.TEXT:
                yield from self._text("output_text", segment)
            elif kind is Kind.ARGUMENTS and segment.call:
                for token in segment.tokens:
                    yield Step(self._delta(token), delta=True)
            else:
                yield from self._marks(kind, segment)
        yield Step(self._close(), delta=False)

    def completed(self, response: Wire) -> bytes:
        """`response.completed`, also for a cut response."""
        return self._snapshot("response.completed", response)

    def _text(self, kind: str, segment: Segment) -> Iterator[Step]:
        for token in segment.tokens:
            opening = self._begin_text(kind) if self._open is None or self._open.kind != kind else b""
            yield Step(opening + self._delta(token), delta=True)

    def _marks(self, kind: Kind, segment: Segment) -> Iterator[Step]:
        """Tokens that are mark-up: they close the item before them, and the name of a call opens the next."""
        closing = self._close() if kind in (Kind.THINK_CLOSE, Kind.CALL_OPEN, Kind.CALL_CLOSE, Kind.END) else b""
        for number, _ in enumerate(segment.tokens, 1):
            frames, closing = closing, b""
            if kind is Kind.CALL_OPEN and segment.complete and segment.call and number == len(segment.tokens):
                frames += self._begin_call(segment.call)
            yield Step(frames, delta=False)

    def _begin_text(self, kind: str) -> bytes:
        closing = self._close()
        self._open = opened = _Open(kind, len(self.output))
        if kind == "reasoning_text":
            item, part = items.reasoning_item(opened.item_id, None, "in_progress"), items.reasoning_part("")
        else:
            item, part = items.message_item(opened.item_id, [], "in_progress"), items.text_part("", [])
        added = self._event("response.output_item.added", {"item": item, "output_index": opened.slot})
        return closing + added + self._event("response.content_part.added", self._place() | {"part": part})

    def _begin_call(self, call: Call) -> bytes:
        kind = "custom_tool_call_input" if call.custom else "function_call_arguments"
        self._open = opened = _Open(kind, len(self.output), call)
        item = items.call_item(call, "", "in_progress", (opened.item_id, opened.call_id))
        return self._event("response.output_item.added", {"item": item, "output_index": opened.slot})

    def _delta(self, token: str) -> bytes:
        opened = self._open
        if opened is None:  # the name of the call was cut off: there is no item to write to
            return b""
        opened.words.append(token)
        middle = opened.middle
        if self._alternatives is not None and opened.kind == "output_text":
            opened.logprobs.append(items.logprob(token, self._alternatives))
            listed = encode([items.logprob(token, self._alternatives, with_bytes=False)])
            middle = middle.replace(b'"logprobs":[]', b'"logprobs":' + listed, 1)
        number = self._next
        self._next += 1
        return b"%b%b%b%d%b" % (opened.head, _encoded_text(token), middle, number, opened.tail)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        frames = self._close_call(self._open.call) if self._open.call else self._close_text()
        item = self.output[-1]
        frames += self._event("response.output_item.done", {"item": item, "output_index": self._open.slot})
        self._open = None
        return frames

    def _close_text(self) -> bytes:
        opened, place = self._opened, self._place()
        text = "".join(opened.words)
        if opened.kind == "reasoning_text":
            part = items.reasoning_part(text)
            self.output.append(items.reasoning_item(opened.item_id, text, "completed"))
            done = {"content_index": 0, "item_id": opened.item_id, "output_index": opened.slot}
        else:
            part = items.text_part(text, opened.logprobs if self._alternatives is not None else None)
            self.output.append(items.message_item(opened.item_id, [part], "completed"))
            done = {"content_index": 0, "item_id": opened.item_id, "logprobs": [], "output_index": opened.slot}
        frames = self._event(f"response.{opened.kind}.done", done, text=text)
        return frames + self._event("response.content_part.done", place | {"part": part})

    def _close_call(self, call: Call) -> bytes:
        # vLLM finishes also a call that was cut: empty arguments become an object, broken ones stay broken.
        opened = self._opened
        frames = b"" if opened.words or call.custom else self._delta("{}")
        text = "".join(opened.words)
        self.output.append(items.call_item(call, text, "completed", (opened.item_id, opened.call_id)))
        place = {"item_id": opened.item_id, "output_index": opened.slot}
        if call.custom:
            return frames + self._event(f"response.{opened.kind}.done", {"input": text} | place)
        done = {"arguments": text} | place
        return frames + self._event(f"response.{opened.kind}.done", done, after={"name": call.name})

    @property
    def _opened(self) -> _Open:
        if self._open is None:
            raise RuntimeError("no item is open")
        return self._open

    def _place(self) -> Wire:
        return {"content_index": 0, "item_id": self._opened.item_id, "output_index": self._opened.slot}

    def _snapshot(self, name: str, response: Wire) -> bytes:
        return self._event(name, {"response": response})

    def _event(self, name: str, body: Wire, *, text: str | None = None, after: Wire | None = None) -> bytes:
        numbered: Wire = body | {"sequence_number": self._next}
        if text is not None:
            numbered["text"] = text
        numbered["type"] = name
        self._next += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(numbered | (after or {})))
