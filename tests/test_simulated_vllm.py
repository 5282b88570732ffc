import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.simulated_faults import Faults
from cli.simulated_vllm import SimulatorOptions, create_app, listen, server
from shared.json_codec import Wire, decode, encode

CAPTURED = Path(__file__).parent / "captured"
STATUS = {line.split()[0]: int(line.split()[1]) for line in (CAPTURED / "SUMMARY.txt").read_text().splitlines() if line}

#: Recordings of vLLM's other faces, which the simulator does not have.
OTHER_FACES = {
    "chat", "chat_stream", "tokenize_chat", "tokenize_prompt", "detokenize", "render_responses", "openapi",
}  # fmt: skip
#: Recordings whose method and path are not POST /v1/responses.
ELSEWHERE = {
    "models": ("GET", "/v1/models"),
    "version": ("GET", "/version"),
    "load": ("GET", "/load"),
    "err_get": ("GET", "/v1/responses/resp_x"),
    "err_cancel": ("POST", "/v1/responses/resp_x/cancel"),
    "err_404": ("GET", "/v1/nothing"),
    "err_405": ("GET", "/v1/responses"),
    "input_tokens": ("POST", "/v1/responses/input_tokens"),
    "compact": ("POST", "/v1/responses/compact"),
    "conversations": ("POST", "/v1/conversations"),
}
#: Recordings of a server that died, with no request kept: asked for by a fault.
DEATHS = {"crash_engine_stream", "sigterm_stream", "crash_engine_nonstream"}
#: What the tiny recorded model did that no sound model does: the structure differs, and must.
WHIMS = {
    "ctx_too_long_trunc_auto": "its prompt's head cut off, it left out <think>, so its one token was visible",
    "expect_100": "far outside its training it repeated one number, in its thoughts, until the context was full",
}
#: Differences in one key only, which must be there.
OWN_WAY = {
    "namespace_tool_use": {"namespace": "it wrote a bare name; a model that writes ns__name has its namespace told"},
    "namespace_tool_use_stream": {"namespace": "the same"},
}
#: The tiny model's tokenizer cuts " Hello" in two, ours does not: a window as much smaller.
WINDOW = {"ctx_tight_stream": 1900}
#: The tiny model thinks in fewer tokens: limits that cut in the same place.
CUT = {"max_16": 30, "max_16_stream": 30, "max_midtool": 44, "max_midtool_stream": 44}
#: Words of the contract, whose values are compared too.
CONTRACT = {"type", "status", "reason", "role", "object", "tool_choice", "truncation", "service_tier"}

NAMES = sorted({path.name.split(".")[0] for path in CAPTURED.glob("*.response.*")})
DRIVEN = [name for name in NAMES if name not in OTHER_FACES | ELSEWHERE.keys() | DEATHS]


def frames(raw: str) -> list[dict[str, Any]]:
    """The events of a stream, each checked to be framed as vLLM frames it."""
    *blocks, rest = raw.split("\n\n")
    assert rest == ""
    events = []
    for block in blocks:
        kind, data = re.fullmatch(r"event: (\S+)\ndata: (.*)", block).groups()  # type: ignore[union-attr]
        event = decode(data)
        assert event["type"] == kind
        events.append(event)
    return events


def shape(value: Any) -> Any:
    """Keys in order, null or absent, JSON types; a run of equal shapes once. Texts, ids and numbers are left out."""
    if isinstance(value, dict):
        return [
            (name, entry if name in CONTRACT and isinstance(entry, str) else shape(entry))
            for name, entry in value.items()
        ]
    if isinstance(value, list):
        shapes = [shape(entry) for entry in value]
        return [entry for index, entry in enumerate(shapes) if index == 0 or entry != shapes[index - 1]]
    return {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}[type(value)]


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """Where two shapes part, by place."""
    if ours == theirs:
        return
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{place}.{index}")
    elif isinstance(ours, tuple) and isinstance(theirs, tuple) and ours[0] == theirs[0]:
        yield from differences(ours[1], theirs[1], f"{place}.{ours[0]}")
    else:
        yield f"{place}: ours {ours}, recorded {theirs}"


def client_of(options: SimulatorOptions) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(options)), base_url="http://simulator")


async def replay_capture(name: str) -> httpx.Response:
    """What the simulator answers to a recorded request."""
    raw = (CAPTURED / f"{name}.request.json").read_text()
    options = SimulatorOptions(models=("tiny",), max_model_len=WINDOW.get(name, 2048))
    async with client_of(options) as client:
        body = decode(raw) if name != "err_badjson" else raw
        if name in CUT:
            body["max_output_tokens"] = CUT[name]
        content = raw if isinstance(body, str) else encode(body)
        return await client.post("/v1/responses", content=content, headers={"content-type": "application/json"})


def recorded(name: str) -> Any:
    return decode((CAPTURED / f"{name}.response.json").read_bytes())


def same_error(ours: Any, theirs: Any) -> bool:
    """All but the message; and the same keys in the same order."""
    return list(ours["error"].items())[1:] == list(theirs["error"].items())[1:] and [*ours] == [*theirs]


@pytest.mark.parametrize("name", DRIVEN)
async def test_has_the_structure_of_the_recording(name: str) -> None:
    answer = await replay_capture(name)
    assert answer.status_code == STATUS[name]
    stream = CAPTURED / f"{name}.response.sse"
    if answer.status_code != 200:
        assert same_error(decode(answer.content), recorded(name))
        return
    if stream.exists():
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        ours, theirs = frames(answer.text), frames(stream.read_text())
        assert [event["sequence_number"] for event in ours] == list(range(len(ours)))
    else:
        ours, theirs = decode(answer.content), recorded(name)
    found = list(differences(shape(ours), shape(theirs)))
    keys = {line.split(":")[0].rsplit(".", 1)[-1] for line in found}
    assert keys == OWN_WAY.get(name, {}).keys() or name in WHIMS, found
    assert found or name not in WHIMS


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_other_places_answer_as_recorded(name: str) -> None:
    method, path = ELSEWHERE[name]
    async with client_of(SimulatorOptions(models=("tiny",))) as client:
        answer = await client.request(method, path)
    assert answer.status_code == STATUS[name]
    assert list(differences(shape(answer.json()), shape(recorded(name)))) == []


def test_every_recording_is_accounted_for() -> None:
    exempt = OTHER_FACES | ELSEWHERE.keys() | DEATHS | WHIMS.keys() | OWN_WAY.keys() | WINDOW.keys() | CUT.keys()
    assert exempt <= set(NAMES)
    assert len(DRIVEN) > 190


@pytest.mark.parametrize("name", ["crash_engine_stream", "sigterm_stream"])
async def test_a_broken_stream_has_the_structure_of_the_recording(name: str) -> None:
    theirs = [event for event in frames((CAPTURED / f"{name}.response.sse").read_text()) if "part" not in event]
    async with running(SimulatorOptions()) as client:
        body = {"input": "Count to 100.", "stream": True, "simulate": {"cut_after": 60}}
        events, ending = await broken_stream(client, body)
    assert isinstance(ending, httpx.RemoteProtocolError)
    assert events[-1]["type"] == "response.output_text.delta"
    opening = [event["type"] for event in theirs[:3]]
    assert [event["type"] for event in events[:3]] == opening
    assert list(differences(shape(events[:2]), shape(theirs[:2]))) == []


async def test_streamed_ids_hold_from_the_first_event_to_the_last() -> None:
    answer = await replay_capture("tool_call_two_stream")
    events = frames(answer.text)
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    assert [(item["id"], item.get("call_id")) for item in added] == [(item["id"], item.get("call_id")) for item in done]
    ids = [word for item in done for word in (item["id"], item.get("call_id")) if word] + [events[0]["response"]["id"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"(rs_|msg_|fc_|resp_|chatcmpl-tool-)[0-9a-f]{16}", word) for word in ids)
    texts: dict[str, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
    assert [texts[item["id"]] for item in done] == [
        item["arguments"] if "arguments" in item else item["content"][0]["text"] for item in done
    ]


PAIRS = [name for name in DRIVEN if f"{name}_stream" in DRIVEN and name not in WHIMS and STATUS[name] == 200]


@pytest.mark.parametrize("name", PAIRS)
async def test_plain_and_streamed_say_the_same(name: str) -> None:
    plain = decode((await replay_capture(name)).content)
    streamed = frames((await replay_capture(f"{name}_stream")).text)[-1]["response"]
    assert plain["usage"] == streamed["usage"]
    if name != "max_midtool":  # a cut call: finished in a stream, raw text in a plain answer
        assert said(plain["output"]) == said(streamed["output"])


def said(output: list[Wire]) -> list[Any]:
    """What the items say, without the streamed whitespace message."""
    texts = [
        item.get("arguments") or item.get("input") or "".join(part["text"] for part in item.get("content") or [])
        for item in output
    ]
    return [text for text in texts if text.strip()]


# --- in process: what a request does ----------------------------------------------------------------------------------


async def post(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_request_id_becomes_the_response_id() -> None:
    async with client_of(SimulatorOptions()) as client:
        assert (await post(client, input="Hello", request_id="resp_mine"))["id"] == "resp_mine"


async def test_models_are_configurable_and_the_first_is_the_default() -> None:
    async with client_of(SimulatorOptions(models=("a", "b"))) as client:
        listed = (await client.get("/v1/models")).json()
        assert [card["id"] for card in listed["data"]] == ["a", "b"]
        assert (await post(client, input="Hello"))["model"] == "a"
        refused = await client.post("/v1/responses", json={"input": "Hello", "model": "simulated"})
        assert refused.json()["error"]["message"] == "The model `simulated` does not exist. Valid aliases: a, b."


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"input": [{"type": [], "role": "user", "content": "x"}]}, 400),
        ({"input": [{"role": "user", "content": [3]}]}, 400),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": [[]]}]}, 400),
        ({"input": "x", "tools": [{"type": "function", "name": "x", "parameters": 3}]}, 400),
        (
            {
                "input": "x",
                "tools": [{"type": "function", "name": "x", "parameters": {"required": 3}}],
                "tool_choice": "required",
            },
            500,
        ),
    ],
    ids=str,
)
async def test_nonsense_gets_an_error_body(fields: Wire, status: int) -> None:
    async with client_of(SimulatorOptions()) as client:
        answer = await client.post("/v1/responses", json=fields)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)


async def test_the_prefix_cache_counts_blocks_seen_before() -> None:
    async with client_of(SimulatorOptions()) as client:
        long = "one two three " * 100
        first = (await post(client, input=long))["usage"]["input_tokens_details"]
        second = (await post(client, input=long))["usage"]["input_tokens_details"]
    assert (first["cached_tokens"], first["cache_write_tokens"]) == (0, 256)
    assert (second["cached_tokens"], second["cache_write_tokens"]) == (256, 0)


async def test_records_bodies_in_order_and_how_they_ended() -> None:
    async with client_of(SimulatorOptions()) as client:
        bodies = [{"input": "one"}, {"input": "two", "stream": True, "x": [None, {"b": 1, "a": 2}]}, {"input": 3}]
        for body in bodies:
            await client.post("/v1/responses", json=body, headers={"x-request-id": "r1", "authorization": "Bearer s"})
        seen = (await client.get("/simulator/requests")).json()
        assert seen["received"] == 3
        assert [record["body"] for record in seen["requests"]] == bodies
        assert list(seen["requests"][1]["body"]["x"][1]) == ["b", "a"]
        assert [(record["status"], record["ending"]) for record in seen["requests"]] == [
            (200, "finished"),
            (200, "finished"),
            (400, "refused"),
        ]
        assert seen["requests"][0]["headers"]["x-request-id"] == "r1"
        assert "authorization" not in seen["requests"][0]["headers"]
        assert (await client.delete("/simulator/requests")).json()["requests"] == []
        assert (await client.get("/simulator/requests")).json()["received"] == 3


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        pytest.param(SimulatorOptions(recorded_requests=2), [3, 4], id="requests"),
        pytest.param(SimulatorOptions(recorded_bytes=60), [3, 4], id="bytes"),
    ],
)
async def test_records_are_bounded(options: SimulatorOptions, kept: list[int]) -> None:
    async with client_of(options) as client:
        for _ in range(4):
            await client.post("/v1/responses", json={"input": "x" * 15})
        seen = (await client.get("/simulator/requests")).json()
    assert [record["number"] for record in seen["requests"]] == kept


async def test_admin_faults_are_used_up_in_order() -> None:
    async with client_of(SimulatorOptions()) as client:
        await client.post("/simulator/faults", json={"next": 2, "refuse": 503})
        await client.post("/simulator/faults", json={"refuse": 500, "refuse_body": {"error": "no"}})
        answers = [await client.post("/v1/responses", json={"input": "Hello"}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [503, 503, 500, 200]
    assert answers[0].json()["error"]["type"] == "ServiceUnavailableError"
    assert answers[2].json() == {"error": "no"}


async def test_standing_faults_last_until_cleared_and_a_request_overrides_them() -> None:
    async with client_of(SimulatorOptions(faults=Faults(refuse=500))) as client:
        await client.post("/simulator/faults", json={"next": None, "refuse": 429})
        statuses = [(await client.post("/v1/responses", json={"input": "Hello"})).status_code for _ in range(2)]
        own = await client.post("/v1/responses", json={"input": "Hello", "simulate": {"refuse": None}})
        cleared = (await client.delete("/simulator/faults")).json()
        after = await client.post("/v1/responses", json={"input": "Hello"})
    assert statuses == [429, 429]
    assert own.status_code == 200
    assert (cleared["standing"], cleared["filed"]) == ({}, [])
    assert after.status_code == 500


@pytest.mark.parametrize("body", [{"cut_aftre": 1}, {"cut_after": -1}, {"next": 0}, [], {"refuse": 200}], ids=str)
async def test_faults_that_make_no_sense_are_refused(body: Any) -> None:
    async with client_of(SimulatorOptions()) as client:
        assert (await client.post("/simulator/faults", json=body)).status_code == 400


async def test_garbage_and_a_missing_end() -> None:
    async with client_of(SimulatorOptions()) as client:
        body = {"input": "Hello", "stream": True, "simulate": {"garbage_after": 2, "omit_completed": True}}
        answer = await client.post("/v1/responses", json=body)
    blocks = answer.text.split("\n\n")
    bad = [index for index, block in enumerate(blocks[:-1]) if not block.endswith("}")]
    assert [block.split("\n")[0] for block in blocks[bad[0] - 2 : bad[0]]] == [
        "event: response.reasoning_text.delta"
    ] * 2
    assert len(bad) == 1
    assert "event: response.output_item.done" in blocks[-2]


async def test_a_plain_answer_where_a_stream_was_asked_for() -> None:
    async with client_of(SimulatorOptions()) as client:
        body = {"input": "Hello", "stream": True, "temperature": 0}
        told = (await client.post("/v1/responses", json=body | {"simulate": {"answer_json": True}})).json()
        plain = (await client.post("/v1/responses", json=body | {"stream": False})).json()
    texts = [[item["content"] for item in response["output"]] for response in (told, plain)]
    assert texts[0] == texts[1] != []
    assert told["status"] == "completed"


# --- over real sockets ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(options: SimulatorOptions) -> AsyncIterator[httpx.AsyncClient]:
    """A served simulator and a client of it."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    simulator = server(options)
    serving = asyncio.create_task(simulator.serve(sockets=[listener]))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client
    finally:
        simulator.should_exit = True
        await serving


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


async def broken_stream(client: httpx.AsyncClient, body: Wire) -> tuple[list[Wire], Exception | None]:
    """The events of a stream up to its end, and how it ended where it broke."""
    raw = ""
    ending: Exception | None = None
    try:
        async with client.stream("POST", "/v1/responses", json=body) as answer:
            async for text in answer.aiter_text():
                raw += text
    except httpx.HTTPError as error:
        ending = error
    return frames(raw), ending


@pytest.mark.parametrize("cut", [0, 1, 2, 17, 70])
async def test_a_cut_breaks_the_body_after_that_many_deltas(cut: int) -> None:
    async with running(SimulatorOptions()) as client:
        body = {"input": "Count to 50.", "temperature": 0, "stream": True, "simulate": {"cut_after": cut}}
        events, ending = await broken_stream(client, body)
        record = (await client.get("/simulator/requests")).json()["requests"][0]
    assert isinstance(ending, httpx.RemoteProtocolError)
    assert sum(event["type"].endswith(".delta") for event in events) == cut == record["deltas"]
    assert events[-1]["type"] != "response.completed"
    assert (record["status"], record["ending"]) == (200, "broken")


@pytest.mark.parametrize("fault", [{"drop_before_headers": True}, {"cut_after": 3}], ids=str)
async def test_a_plain_call_breaks_too(fault: Wire) -> None:
    async with running(SimulatorOptions()) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/responses", json={"input": "Hello", "simulate": fault})


async def ending_is(client: httpx.AsyncClient, ending: str) -> bool:
    seen = (await client.get("/simulator/requests")).json()
    return seen["running"] == 0 and [record["ending"] for record in seen["requests"]] == [ending]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", [{"tokens_per_second": 20}, {"stall_after": 2}], ids=str)
async def test_a_client_that_leaves_aborts_the_generation(fault: Wire, *, stream: bool) -> None:
    async with running(SimulatorOptions()) as client:
        body = {"input": "Count to 2000.", "stream": stream, "simulate": fault}
        reading = asyncio.create_task(broken_stream(client, body))

        async def is_running() -> bool:
            return bool((await client.get("/simulator/running")).json()["running"] == 1)

        await until(is_running)
        assert "vllm:num_requests_running" in (await client.get("/metrics")).text
        reading.cancel()
        await until(lambda: ending_is(client, "aborted"))


async def test_a_stall_can_end() -> None:
    async with running(SimulatorOptions()) as client:
        body = {"input": "Hello", "stream": True, "simulate": {"stall_after": 3, "stall_seconds": 0.2}}
        began = time.monotonic()
        events, ending = await broken_stream(client, body)
    assert ending is None
    assert events[-1]["type"] == "response.completed"
    assert time.monotonic() - began >= 0.2


async def test_pace_holds_for_streams_and_plain_calls() -> None:
    async with running(SimulatorOptions()) as client:

        async def seconds(rate: int, *, stream: bool) -> float:
            simulate = {"tokens_per_second": rate}
            body = {"input": "Count to 30.", "temperature": 0, "stream": stream, "simulate": simulate}
            began = time.monotonic()
            (await client.post("/v1/responses", json=body)).raise_for_status()
            return time.monotonic() - began

        for stream in (True, False):
            assert await seconds(100, stream=stream) > 2 * await seconds(1000, stream=stream)


async def test_the_first_token_waits_and_the_opening_does_not() -> None:
    async with running(SimulatorOptions(faults=Faults(first_token_seconds=0.3))) as client:
        times = {}
        began = time.monotonic()
        async with client.stream("POST", "/v1/responses", json={"input": "Hello", "stream": True}) as answer:
            async for line in answer.aiter_lines():
                times.setdefault(line, time.monotonic() - began)
    assert times["event: response.output_item.added"] - times["event: response.in_progress"] > 0.25


async def test_an_idle_connection_is_closed() -> None:
    async with running(SimulatorOptions(keep_alive=1)) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(b"GET /health HTTP/1.1\r\nhost: simulator\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        began = time.monotonic()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert 0.8 < time.monotonic() - began < 4
        writer.close()


def test_the_process_says_what_it_is_and_cuts_its_streams_on_sigterm() -> None:
    code = "from cli.simulated_vllm import *; serve('127.0.0.1', 0, SimulatorOptions())"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        banner = process.stderr.readline()
        match = re.fullmatch(r"simulated vLLM \S+ on (http://127\.0\.0\.1:\d+): no model runs here, .*\n", banner)
        assert match is not None, banner
        with httpx.stream("POST", f"{match[1]}/v1/responses", json=SLOW, timeout=10) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if line.startswith("event: response.reasoning_text.delta"))
            os.kill(process.pid, signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert process.wait(5) in (0, -signal.SIGTERM)
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


SLOW = {"input": "Count to 2000.", "stream": True, "simulate": {"tokens_per_second": 50}}


async def test_many_streams_keep_their_pace_at_once() -> None:
    async with running(SimulatorOptions(faults=Faults(tokens_per_second=40))) as client:

        async def one(number: int) -> int:
            body = {"input": f"Count to 20. {number}", "stream": True}
            events, ending = await broken_stream(client, body)
            assert ending is None
            assert events[-1]["response"]["status"] == "completed"
            return int(events[-1]["response"]["usage"]["output_tokens"])

        began = time.monotonic()
        tokens = await asyncio.gather(*(one(number) for number in range(40)))
        assert time.monotonic() - began < 3 * max(tokens) / 40
