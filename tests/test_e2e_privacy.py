"""What a user wrote, a model thought or an upstream said stands in no log, RQ key, error body or process title.

One story goes through real processes with a canary in every place that can hold content: it succeeds, fails in every
way that a test can bring about, is refused, is cancelled, breaks inside the house, and outlives its worker. Then the
traces are searched: `pytest tests/test_e2e_privacy.py -s` prints how many, and how large. Names that a client gave may
stand in an error body, as they are no content: ids (of a parent, of an item), and a key of `metadata` or `logit_bias`
that is a plain word.
"""

import base64
import re
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from shared.json_codec import Wire, decode
from shared.parameters import Parameters
from shared.queue import JOB
from stack import MODEL, Stack, until

CANARY = "zyxcanary"

FUNCTION: Wire = {
    "type": "function",
    "name": "get_weather",
    "description": f"Tells the weather, {CANARY}.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": CANARY}}},
}
CUSTOM: Wire = {"type": "custom", "name": "run_code", "description": f"Runs code, {CANARY}."}

#: One of everything that a client can send back.
HISTORY: list[Wire] = [
    {"role": "developer", "content": f"Always say {CANARY}."},
    {"role": "user", "content": [{"type": "input_text", "text": f"I like {CANARY}."}]},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": CANARY}],
        "content": [{"type": "reasoning_text", "text": f"They like {CANARY}."}],
        "encrypted_content": CANARY,
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": f'{{"a":"{CANARY}"}}'},
    {"type": "function_call_output", "call_id": "c1", "output": f"Sunny, {CANARY}."},
    {"type": "custom_tool_call", "call_id": "c2", "name": "run_code", "input": CANARY},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": CANARY}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": CANARY, "annotations": []}]},
    {"role": "user", "content": f"Say {CANARY} again."},
]

BODY: Wire = {
    "model": MODEL,
    "input": HISTORY,
    "instructions": f"Never forget {CANARY}.",
    "tools": [FUNCTION, CUSTOM],
    "metadata": {"note": CANARY, CANARY: "key"},
    "user": CANARY,
    "prompt_cache_key": CANARY,
    "safety_identifier": CANARY,
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    CANARY: CANARY,
}

#: A question whose answer is a call, with the canary in its arguments.
CALL: Wire = BODY | {"tool_choice": "required", "input": f"What is the weather in {CANARY}?"}

MODES: list[Wire] = [{}, {"stream": True}, {"background": True}]

#: What the simulated vLLM does to the three modes of one body; the last two take seconds, so all three go at once.
FAULTS: list[Wire] = [
    {"refuse": 400, "refuse_body": {"error": {"message": CANARY, "type": CANARY, "param": CANARY, "code": CANARY}}},
    {
        "refuse": 400,
        "refuse_body": {"error": {"message": f"{CANARY} (parameter=input, value={CANARY})", "type": "BadRequestError"}},
    },
    {"refuse": 404, "refuse_body": {"error": {"message": CANARY, "type": "NotFoundError", "param": "model"}}},
    {"refuse": 422, "refuse_body": {"detail": [{"msg": CANARY, "input": CANARY}]}},
    {"refuse": 429, "refuse_body": CANARY},
    {"refuse": 500, "refuse_body": {"error": {"message": CANARY}}},
    {"refuse": 503, "refuse_body": [CANARY]},
    {"drop_before_headers": True},
    {"cut_after": 3},
    {"omit_completed": True},
    {"stall_after": 3},
    {"first_token_seconds": 60},
]

#: Bodies that are refused, or could be; each is sent as it stands.
BAD: list[Any] = [
    f'{{"model": "{MODEL}", "input": "{CANARY}',
    f'{{"model": "{MODEL}", "input": "{CANARY}\\ud800"}}',
    f'{{"model": "{MODEL}", "input": {"[" * 500}"{CANARY}"{"]" * 500}}}',
    f'"{CANARY}"',
    {**BODY, "model": CANARY},
    {**BODY, "input": [{"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": CANARY}]},
    {**BODY, "input": [{"type": "compaction", "id": "cmp_1", "encrypted_content": CANARY}]},
    {**BODY, "input": [{"type": "item_reference", "id": f"{CANARY}!"}]},
    {**BODY, "input": [{"type": "message", "role": CANARY, "content": CANARY}]},
    {**BODY, "input": [{"role": "user", "content": {CANARY: CANARY}}]},
    {**BODY, "input": [{"role": "user", "content": [{"type": "input_text", "text": [CANARY]}]}]},
    {**BODY, "input": [{"type": "function_call", "call_id": "c1", "name": CANARY, "arguments": {CANARY: CANARY}}]},
    {**BODY, "input": [{"type": "additional_tools", "tools": [CANARY]}]},
    {**BODY, "tools": [{**FUNCTION, "parameters": CANARY}]},
    {**BODY, "tools": [{"type": "custom", "name": CANARY, "format": {"type": CANARY}}]},
    {**BODY, "tool_choice": {"type": "function", "name": CANARY}},
    {**BODY, "tool_choice": {"type": CANARY}},
    {**BODY, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": CANARY, "name": CANARY}]}},
    {**BODY, "text": {"format": {"type": CANARY}}},
    {**BODY, "text": {"format": {"type": "json_schema", "name": "a", "schema": CANARY}}},
    {**BODY, "metadata": {CANARY * 10: "key"}},
    {**BODY, "conversation": CANARY},
    {**BODY, "prompt": {"id": CANARY}},
    # The canary as the value of every parameter; a parent is an id.
    *({**BODY, name: CANARY} for name in Parameters.model_fields if name != "previous_response_id"),
    *({**BODY, name: [CANARY]} for name in Parameters.model_fields),
    *({**BODY, name: {f"{CANARY}!": CANARY}} for name in Parameters.model_fields),
]

#: Where the canary must have stood for the story to prove anything.
CONTENT = {
    *("answered reasoning_text.text", "answered output_text.text", "answered function_call.arguments"),
    *("answered .instructions", "answered metadata.note", "answered function.description"),
    *("sent reasoning_text.text", "sent output_text.text", "sent input_text.text", "sent function_call.arguments"),
    *("sent function_call_output.output", "sent custom_tool_call.input", "sent body.instructions"),
    *("stored reasoning.encrypted_content", "stored summary_text.text", "stored reasoning_text.text"),
    *("stored input.content", "stored function_call.arguments", "stored metadata.note", "stored options.instructions"),
}

LEFT = "cancelled, its client left"

NOT_HTTP = [
    f"{CANARY} {CANARY}\r\n\r\n",
    f"GET /v1/responses HTTP/1.1\r\n{CANARY}\r\n\r\n",
    f'POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n{{"input": "{CANARY}',
    f'POST /v1/responses HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"{CANARY}"\r\n',
]


@dataclass
class Traces:
    """What the story left behind. `held` counts where the canary stood rightly: it proves that it was there."""

    log: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    rq: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)

    def places(self) -> dict[str, list[str]]:
        """Where the canary may not be."""
        return {
            "log lines": self.log,
            "keys of RQ, with their values": self.rq,
            "error bodies": self.errors,
            "titles of processes and threads": self.titles,
        }

    def table(self) -> str:
        """What was searched, and what was found."""
        rows = [
            f"| {place} | {len(texts):,} | {sum(len(text.encode()) for text in texts):,} | {len(hits(texts))} |"
            for place, texts in self.places().items()
        ]
        head = ["", "| place | number | bytes | hits |", "|---|---|---|---|"]
        where = f"The canary stood {self.held.total():,} times in {len(self.held)} places where it may stand."
        return "\n".join([*head, *rows, "", where])


def hits(texts: list[str]) -> list[str]:
    return [text for text in texts if CANARY in text.lower()]


def holding(value: Any, at: str = "") -> Iterator[str]:
    """Where the canary stands in a wire value: an object's type, or the key that it is under, and the key in it."""
    if isinstance(value, dict):
        kind = str(value.get("type", at.rpartition(".")[2]))
        for key, part in value.items():
            yield from holding(part, f"{kind}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from holding(part, at)
    elif isinstance(value, str) and CANARY in value:
        yield at


def unpacked(value: Any) -> Iterator[bytes]:
    """All that RQ wrote: as it stands, and, where it is compressed, what it says."""
    if isinstance(value, bytes):
        yield value
        for packed in (value, _decoded(value)):
            with suppress(zlib.error):
                yield zlib.decompress(packed)
    elif isinstance(value, dict):
        yield from unpacked([*value.keys(), *value.values()])
    elif isinstance(value, (list, tuple, set)):
        for part in value:
            yield from unpacked(part)


def _decoded(value: bytes) -> bytes:
    with suppress(ValueError):
        return base64.b64decode(value, validate=True)
    return b""


class Story:
    """Goes through the house and gathers traces."""

    def __init__(self, stack: Stack, redis_client: redis.Redis) -> None:
        self.stack = stack
        self.redis = redis_client
        self.traces = Traces()

    def send(self, body: Any) -> str:
        """POST, and wait for the end in any mode. The id, where there is one."""
        content = {"content": body.encode()} if isinstance(body, str) else {"json": body}
        answer = self.stack.http.post("/v1/responses", **content)
        if answer.status_code >= 400:
            self.traces.errors.append(answer.text)
            return ""
        text = answer.text
        response_id: str = re.findall(r'"id":"(resp_\w+)"', text)[0]
        if "text/event-stream" in answer.headers["content-type"]:
            frames = [frame for frame in text.split("\n\n") if frame.startswith(("event: response.", "event: error"))]
            self._told(decode(frames[-1].partition("data: ")[2])["response"])
        elif decode(text)["background"]:
            self.ended(response_id)
        else:
            self._told(decode(text))
        return response_id

    def ended(self, response_id: str) -> None:
        """Wait for the end of a response in the background."""

        def end() -> Any:
            response = self.stack.http.get(f"/v1/responses/{response_id}").json()
            return response if response["status"] not in ("queued", "in_progress") else None

        self._told(until(end))

    def _told(self, response: Wire) -> None:
        if response["error"] is not None:
            self.traces.errors.append(str(response["error"]))
        self.hold("answered", response)

    def hold(self, where: str, value: Any, at: str = "") -> None:
        """Count where the canary stands rightly."""
        self.traces.held.update(f"{where} {place}" for place in holding(value, at))

    def begin(self, body: Wire, **faults: Any) -> str:
        """A response in the background that takes its time, once it runs. Its id."""
        self.stack.faults(next=1, **faults)
        response_id: str = self.stack.http.post("/v1/responses", json=body | {"background": True}).json()["id"]
        until(lambda: self.redis.xlen(self.record_key(response_id).replace(":response:", ":events:")) > 2)
        return response_id

    def cancel(self, response_id: str) -> int:
        """Ask for it. The answer's status."""
        answer = self.stack.http.post(f"/v1/responses/{response_id}/cancel")
        if answer.status_code >= 400:
            self.traces.errors.append(answer.text)
        return answer.status_code

    def look(self) -> None:
        """RQ's keys and the processes' titles, as they are now."""
        for key in self.redis.scan_iter("*rq*", count=1000):
            with self.redis.pipeline() as pipe:
                pipe.dump(key)
                pipe.type(key)
                dumped, kind = pipe.execute()
            self.traces.rq.append(f"{key!r} {dumped!r} {list(unpacked(self._value(key, kind)))!r}")
        self.traces.titles += _titles(self.stack)

    def _value(self, key: bytes, kind: bytes) -> object:
        """A dump may be compressed by Redis, so the value too."""
        readers: dict[bytes, Callable[[], object]] = {
            b"string": lambda: self.redis.get(key),
            b"list": lambda: self.redis.lrange(key, 0, -1),
            b"set": lambda: self.redis.smembers(key),
            b"zset": lambda: self.redis.zrange(key, 0, -1),
            b"hash": lambda: self.redis.hgetall(key),
            b"stream": lambda: self.redis.xrange(key),
            b"none": lambda: None,
        }
        return readers[kind]()

    def record_key(self, response_id: str) -> str:
        """Where the record lies."""
        return f"rejoinder:{{s{response_id[5:7]}}}:response:{response_id}"


def _titles(stack: Stack) -> list[str]:
    """Titles and thread names of the house's processes and their children, where there is a /proc."""
    ours = {process.pid for process in (stack.api, stack.worker, stack.vllm)} | {stack.redis.pid}
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = int(re.findall(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE)[0])
            if ours & {parent, int(status.parent.name)}:
                found.append((status.parent / "cmdline").read_text())
                found += [name.read_text() for name in status.parent.glob("task/*/comm")]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _answers(story: Story, crowd: ThreadPoolExecutor) -> None:
    for _ in crowd.map(story.send, [BODY | mode for mode in MODES]):
        story.look()
    parent = story.send(CALL | {"store": True})
    story.send({**BODY, "input": f"And {CANARY}?", "previous_response_id": parent, "background": True})
    story.send(BODY | {"max_output_tokens": 5, "store": False})
    with story.stack.http.stream("POST", "/v1/responses", json=BODY | {"stream": True}) as left:
        next(left.iter_raw())
    path = f"/v1/responses/{parent}?stream={CANARY}&starting_after={CANARY}"
    story.traces.errors.append(story.stack.http.get(path).text)


def _refusals(story: Story, crowd: ThreadPoolExecutor) -> None:
    list(crowd.map(story.send, BAD))
    for text in NOT_HTTP:
        with closing(socket.create_connection(("127.0.0.1", story.stack.api_port))) as connection:
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            while data := connection.recv(65536):
                story.traces.errors.append(data.decode())


def _faults(story: Story, crowd: ThreadPoolExecutor) -> None:
    for fault in FAULTS:
        story.stack.faults(next=len(MODES), **fault)
        list(crowd.map(story.send, [BODY | mode for mode in MODES]))
        story.stack.forget()
        story.look()


def _cancels(story: Story) -> None:
    """Queued, running in every place of an answer, twice, ended, in the foreground, unknown; and clients that leave."""
    stack = story.stack
    slow = [
        (BODY, {"before_headers_seconds": 60}),
        (BODY, {"stall_after": 5}),
        (BODY, {"tokens_per_second": 20}),
        (CALL, {"tokens_per_second": 20}),
    ]
    for body, faults in slow:
        running = story.begin(body, **faults)
        story.look()
        assert [story.cancel(running), story.cancel(running)] == [200, 200]
        story.ended(running)
    assert story.cancel(story.send(BODY | {"background": True})) == 200
    foreground = story.send(BODY)
    assert [story.cancel(foreground), story.cancel(f"resp_{'0' * 48}")] == [400, 404]
    stack.http.post(f"/v1/responses/resp_{CANARY}/cancel")  # its answer names the id

    stack.worker.terminate()
    stack.worker.wait()
    queued = stack.http.post("/v1/responses", json=BODY | {"background": True}).json()["id"]
    assert story.cancel(queued) == 200
    story.look()
    stack.worker = stack.start_worker()

    left_before = stack.log().count(LEFT)
    stack.faults(next=2, tokens_per_second=20)
    with stack.http.stream("POST", "/v1/responses", json=BODY | {"stream": True}) as left:
        next(left.iter_raw())
    with suppress(httpx.ReadTimeout):
        stack.http.post("/v1/responses", json=BODY, timeout=0.5)
    until(lambda: stack.log().count(LEFT) == left_before + 2)
    story.look()
    stack.forget()


def _held(story: Story) -> None:
    """Where the canary stands in what vLLM was sent and in what is stored."""
    story.hold("sent", story.stack.upstream())
    for key in story.redis.scan_iter("rejoinder:*:response:*", count=1000):
        for name, value in story.redis.hgetall(key).items():
            with suppress(ValueError):
                story.hold("stored", decode(value), name.decode().partition(":")[0])


def _faults_of_ours(story: Story) -> None:
    """Values that can't be read break the code that reads them: what is told of an exception that nobody foresaw."""
    stack, store = story.stack, story.redis
    broken = story.send(BODY | {"background": True})
    store.hset(story.record_key(broken), "output:0", f'{{"{CANARY}"')
    story.traces.errors.append(stack.http.get(f"/v1/responses/{broken}").text)

    stack.worker.terminate()
    stack.worker.wait()
    waiting = [stack.http.post("/v1/responses", json=BODY | {"background": True}).json()["id"] for _ in range(3)]
    store.hset(story.record_key(waiting[0]), "input:0", f'{{"{CANARY}"')
    story.look()
    stack.worker = stack.start_worker()
    for response_id in waiting:
        story.ended(response_id)


def _a_worker_dies(story: Story) -> None:
    stack = story.stack
    stack.faults(next=1, tokens_per_second=10)
    response_id = stack.http.post("/v1/responses", json=BODY | {"background": True}).json()["id"]
    until(lambda: story.redis.xlen(story.record_key(response_id).replace(":response:", ":events:")) > 5)
    story.look()
    stack.worker.kill()
    stack.worker.wait()
    stack.worker = stack.start_worker()
    story.ended(response_id)
    story.look()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    folder = tmp_path_factory.mktemp("privacy")
    with (
        Stack(folder, REJOINDER_LOG_LEVEL="debug") as stack,
        redis.Redis.from_url(stack.redis.url) as client,
        ThreadPoolExecutor(len(MODES)) as crowd,
    ):
        story = Story(stack, client)
        _answers(story, crowd)
        _refusals(story, crowd)
        _faults(story, crowd)
        _cancels(story)
        _faults_of_ours(story)
        _a_worker_dies(story)
        _held(story)
        of_redis = (stack.redis.folder / "log").read_text()
    # After the end: what a process says when it leaves has been said.
    story.traces.log = [*stack.log().splitlines(), *of_redis.splitlines()]
    print(story.traces.table())
    return story.traces


def test_the_story_held_the_canary_and_every_kind_of_failure(traces: Traces) -> None:
    assert set(traces.held) >= CONTENT
    told = " ".join(traces.errors)
    for words in (
        "could not parse",
        "Invalid type",
        "does not exist",
        "encrypted content",
        "refused the value of 'input'",
        "refused the request as invalid",
        "at its limit",
        "is not available",
        "connection to the model server broke",
        "did not begin",
        "in the middle of its answer",
        "closed the stream",
        "The server had an error while processing the turn",
        "The server had an error.",
        "worker that generated this response died",
        "Only a response created with `background: true` can be cancelled",
    ):
        assert words in told, words
    log = "\n".join(traces.log)
    for words in (
        "turn broke",
        "broke: ValueError",
        "its worker is gone",
        "Invalid HTTP request",
        "no longer ours",
        LEFT,
    ):
        assert words in log, words
    assert any(JOB in key for key in traces.rq), "the call in a job, which RQ compresses"


def test_no_process_logs_content(traces: Traces) -> None:
    assert hits(traces.log) == []
    assert [line for line in traces.log if "Traceback" in line] == []


def test_no_key_of_rq_holds_content(traces: Traces) -> None:
    assert hits(traces.rq) == []


def test_no_error_holds_content(traces: Traces) -> None:
    assert hits(traces.errors) == []


def test_no_process_title_holds_content(traces: Traces) -> None:
    assert traces.titles or not Path("/proc/self").exists()
    assert hits(traces.titles) == []
