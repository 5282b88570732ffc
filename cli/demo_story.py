"""What the demo shows: the main job, step by step, over HTTP only.

Law: nothing is claimed that was not just checked. A claim that does not hold ends the demo with `Refuted`.
"""

import asyncio
import time
from typing import Final

import httpx

from cli.demo_subscriber import ANSWER, REASONING, Subscriber
from cli.demo_view import View
from shared.items import kind, plain_text
from shared.json_codec import Wire, decode

MODEL: Final = "simulated"
FIRST: Final = "My favourite colour is teal. Count to 40."
SECOND: Final = "What is my favourite colour?"
THIRD: Final = "What is the weather in Paris?"
WEATHER: Final = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

#: How the simulated vLLM gives the first answer: slow enough to read along.
_PACE: Final = {"first_token_seconds": 1.2, "tokens_per_second": 20}
#: Characters of the answer that B gets before it is cut off, and the seconds it stays away.
_CUT_AFTER: Final = 20
_AWAY: Final = 1.0
#: Seconds to read a heading, and what a step showed.
_HEADING: Final = 0.8
_SHOWN: Final = 1.4


class Refuted(Exception):
    """A claim that turned out not to hold; the message is the claim."""


class Story:
    """The steps in order. `http` speaks to Rejoinder, `simulator` to what it takes for its vLLM."""

    def __init__(self, http: httpx.AsyncClient, simulator: httpx.AsyncClient, view: View) -> None:
        self._http = http
        self._simulator = simulator
        self._view = view
        self._submitted = self._returned = 0.0
        self.claims = 0

    async def tell(self) -> None:
        """All of it. Raises `Refuted`, or `httpx.HTTPError` where nothing answers."""
        queued = await self._submit()
        follower = await self._follow(queued["id"])
        await self._view.pause(_SHOWN)
        reasoning = await self._stored(queued["id"], follower)
        await self._view.pause(_SHOWN)
        await self._continue(queued["id"], reasoning)
        await self._view.pause(_SHOWN)
        await self._compare()

    def claim(self, text: str, holds: object) -> None:
        """Say it if it holds."""
        if not holds:
            raise Refuted(text)
        self.claims += 1
        self._view.claim(text)

    async def _step(self, number: int, title: str, explanation: str) -> None:
        self._view.step(number, title, explanation)
        await self._view.pause(_HEADING)

    async def _create(self, body: Wire) -> Wire:
        """`POST /v1/responses`, shown and answered."""
        self._view.request("POST /v1/responses", body)
        return await _read(self._http, "POST", "/v1/responses", body)

    async def _submit(self) -> Wire:
        await self._step(
            1,
            "A background response is submitted",
            "It is stored and queued, and answered at once: the model has not written a word.",
        )
        await _read(self._simulator, "POST", "/simulator/faults", {"next": 1} | _PACE)
        self._submitted = time.monotonic()
        queued = await self._create({"model": MODEL, "input": FIRST, "background": True})
        self._returned = time.monotonic()
        self._view.answer(f"{queued['id']}, {queued['status']}, after {self._waited(self._returned) * 1000:.0f} ms")
        self.claim("queued, with no output yet", queued["status"] == "queued" and queued["output"] == [])
        return queued

    def _waited(self, until: float) -> float:
        return until - self._submitted

    async def _follow(self, response_id: str) -> Subscriber:
        await self._step(
            2,
            "Two subscribers follow it, and one is cut off",
            "B's connection breaks in the middle; B asks again for what follows its cursor.",
        )
        a, b = Subscriber("A"), Subscriber("B")
        self._view.request(f"GET /v1/responses/{response_id}?stream=true")
        missed = 0

        async def cut_off() -> None:
            nonlocal missed
            await b.follow(self._http, response_id, cut=lambda: len(b.text(ANSWER)) >= _CUT_AFTER)
            seen = len(a.events)
            await asyncio.sleep(_AWAY)
            missed = len(a.events) - seen
            await b.follow(self._http, response_id)

        async def both() -> None:
            await asyncio.gather(a.follow(self._http, response_id), cut_off())

        await self._view.watch([a, b], both())
        ran = self._waited(time.monotonic())
        cursor = b.cuts[0] if b.cuts else -1
        self._view.request(f"GET /v1/responses/{response_id}?stream=true&starting_after={cursor}")
        self.claim(f"B was cut off at event {cursor}; A got {missed} more while B was away", b.cuts and missed > 0)
        self._check_streams(a, b, cursor)
        waited = self._waited(self._returned)
        self.claim(f"the answer to the submission took {waited:.2f} s, the response {ran:.1f} s", waited < ran / 2)
        return a

    def _check_streams(self, a: Subscriber, b: Subscriber, cursor: int) -> None:
        whole = list(range(len(a.events)))
        self.claim(f"A got events 0 to {a.cursor} over one connection, in order", a.numbers == whole and a.done)
        self.claim(
            f"B got 0 to {cursor}, then {cursor + 1} to {b.cursor}: none missing, none twice",
            b.numbers == whole and b.done,
        )
        self.claim(f"all {len(a.events)} events are the same for both, key by key", a.events == b.events)

    async def _stored(self, response_id: str, follower: Subscriber) -> Wire:
        """The reasoning item as it is stored."""
        await self._step(
            3,
            "The reasoning is stored, whole",
            "It is an item of the response like the answer itself, with all of its text.",
        )
        self._view.request(f"GET /v1/responses/{response_id}")
        stored = await _read(self._http, "GET", f"/v1/responses/{response_id}")
        self.claim(
            "completed, with a reasoning item and a message", _kinds(stored["output"]) == ["reasoning", "message"]
        )
        reasoning: Wire = stored["output"][0]
        self._view.wire(reasoning)
        self.claim(
            "its text is the one that streamed, letter by letter",
            plain_text(reasoning["content"]) == follower.text(REASONING) != "",
        )
        self.claim("the stored response is the one in the last event", stored == follower.events[-1].get("response"))
        return reasoning

    async def _continue(self, response_id: str, reasoning: Wire) -> None:
        await self._step(
            4,
            "A continuation is sent, and the model gets its reasoning back",
            "The client sends a new question and an id. The rest comes out of the store.",
        )
        body = {"model": MODEL, "input": SECOND, "previous_response_id": response_id}
        answer = await self._create(body)
        recorded = await _read(self._simulator, "GET", "/simulator/requests")
        sent = recorded["requests"][-1]["body"]
        self._view.items({"what vLLM was sent for it, as the simulated vLLM recorded it": sent["input"]})
        self.claim(
            "question, reasoning, answer, new question: in this order",
            _kinds(sent["input"]) == ["message", "reasoning", "message", "message"],
        )
        again: Wire = next((item for item in sent["input"] if kind(item) == "reasoning"), {})
        self.claim(
            "the reasoning is the stored one, as plain text",
            (again.get("id"), again.get("content")) == (reasoning["id"], reasoning["content"])
            and not again.get("encrypted_content"),
        )
        self.claim("vLLM needed no id of an earlier response", "previous_response_id" not in sent)
        self._view.items({"what the model made of it": answer["output"]})
        self.claim('it remembers: the answer says "teal"', "teal" in plain_text(answer["output"][-1].get("content")))

    async def _compare(self) -> None:
        await self._step(
            5,
            "A plain and a streamed call give the same items",
            "The same request in both ways, with a tool; temperature 0 gives the same words.",
        )
        body = {"model": MODEL, "input": THIRD, "temperature": 0, "tools": [WEATHER]}
        plain = await self._create(body)
        self._view.request("POST /v1/responses", body | {"stream": True})
        stream = Subscriber("stream")
        await stream.create(self._http, body | {"stream": True})
        done = [event["item"] for event in stream.events if event["type"] == "response.output_item.done"]
        self._view.items({"plain": plain["output"], "streamed": done})
        self.claim("a reasoning item and a call of the tool", _kinds(plain["output"]) == ["reasoning", "function_call"])
        self.claim(
            "the items are equal, key by key; set aside: their ids, new for each response",
            _without_ids(plain["output"]) == _without_ids(done),
        )


def _kinds(items: list[Wire]) -> list[str]:
    return [kind(item) for item in items]


def _without_ids(items: list[Wire]) -> list[Wire]:
    return [{key: value for key, value in item.items() if key not in {"id", "call_id"}} for item in items]


async def _read(client: httpx.AsyncClient, method: str, path: str, body: Wire | None = None) -> Wire:
    answer = await client.request(method, path, json=body)
    answer.raise_for_status()
    found: Wire = decode(answer.content)
    return found
