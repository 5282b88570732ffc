"""The error table: every error that a client can meet, once for each mode in which it can.

A row says how it comes about, and what a client gets: the HTTP status, OpenAI's type, code and param, and whether the
request is to be sent again. The one test sends it, and holds what is true of every error: it has OpenAI's body and
headers, nothing of the request stands in it, nothing is stored or generated of what was refused, and what was accepted
is there to be read, with the items that had come.

`pytest tests/test_e2e_errors.py -s -k table` prints what was seen. Stories of outages stand in `test_e2e_failures`.
"""

import http.client
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import openai
import pytest
import redis

from scripted_vllm import HELLO, Reply, ScriptedVllm, refusing
from shared.json_codec import decode
from stack import MODEL, Stack, free_port, until

CANARY: Final = "zyxcanary"
CREATE: Final = "/v1/responses"
NO_ID: Final = "resp_00" + "0" * 46

PLAIN, STREAM, BACKGROUND, RAW = "plain", "stream", "background", "-"
MODES: Final = (PLAIN, STREAM, BACKGROUND)

BODY: Final = {
    "model": MODEL,
    "input": f"Hello, {CANARY}!",
    "instructions": CANARY,
    "metadata": {"note": CANARY},
    "user": CANARY,
}

SHORT: Final = {
    "REJOINDER_FIRST_EVENT_TIMEOUT": "1",
    "REJOINDER_STALL_TIMEOUT": "0.8",
    "REJOINDER_TURN_TIMEOUT": "2.5",
    "REJOINDER_REDIS_TIMEOUT": "1",
    "REJOINDER_MAX_BODY_BYTES": "20000",
    "REJOINDER_MAX_EVENT_BYTES": "20000",
}


class House(Stack):
    """The house in front of an upstream that answers as it is told. `ids` are the responses that rows name."""

    ids: dict[str, str]
    redis_runs = True

    def start_vllm(self) -> "subprocess.Popen[bytes]":
        self._environment["REJOINDER_VLLM_URL"] = f"http://127.0.0.1:{self.simulator_port}"
        self.upstream_server = ScriptedVllm(self.simulator_port, MODEL)
        self._exits.callback(self.upstream_server.down)
        return None  # type: ignore[return-value]  # no process

    def prepare(self) -> None:
        """Responses that ended, in the ways that later requests may stumble over."""
        created = {
            "foreground": {},
            "unstored": {"store": False},
            "background": {"background": True},
            "forgotten": {"background": True},
        }
        self.ids = {name: self.http.post(CREATE, json=BODY | extra).json()["id"] for name, extra in created.items()}
        for name in ("background", "forgotten"):
            until(lambda name=name: self.http.get(f"{CREATE}/{self.ids[name]}").json()["status"] == "completed")
        with self.client() as client:
            client.delete(*client.keys(f"*events:{self.ids['forgotten']}"))

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.redis.url)

    def responses(self) -> set[str]:
        """The ids of all responses in Redis."""
        return {key.decode().rpartition(":")[2] for key in self.keys() if b"}:response:" in key}

    def response(self, response_id: str) -> dict[str, Any]:
        """The response once it has ended."""

        def ended() -> dict[str, Any] | None:
            answer = self.http.get(f"{CREATE}/{response_id}")
            if answer.status_code != 200:
                return None
            found: dict[str, Any] = answer.json()
            return found if found["status"] not in ("queued", "in_progress") else None

        found: dict[str, Any] = until(ended)
        return found


@contextmanager
def redis_away(house: House) -> Iterator[None]:
    house.redis.stop()
    try:
        yield
    finally:
        house.start_redis()
        until(house.ready)


@contextmanager
def redis_full(house: House) -> Iterator[None]:
    with house.client() as client:
        client.config_set("maxmemory", "1")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")
            until(house.ready)


@contextmanager
def vllm_down(house: House) -> Iterator[None]:
    house.upstream_server.down()
    try:
        yield
    finally:
        house.upstream_server.up()


def worker_stops(house: House) -> None:
    house.worker.terminate()
    house.worker.wait()
    house.worker = house.start_worker()


def worker_dies(house: House) -> None:
    house.worker.kill()
    house.worker.wait()
    house.worker = house.start_worker()


def redis_stops(house: House) -> None:
    house.redis.stop()
    house.redis_runs = False


@dataclass(frozen=True)
class Row:
    """One error. `retry`: the seconds of `retry-after`; None: `x-should-retry: false`.

    `during` surrounds the request; `meanwhile` happens when the upstream has begun to think. `items` are those of the
    response that was accepted, and how it `ends`: None says that there is none. `<name>` in a path or a body is one of
    `House.ids`.
    """

    what: str
    status: int
    code: str | None
    param: str | None = None
    type: str = "invalid_request_error"
    retry: int | None = None
    modes: tuple[str, ...] = MODES
    method: str = "POST"
    path: str = CREATE
    body: Any = field(default_factory=lambda: BODY)
    headers: dict[str, str] = field(default_factory=dict)
    allow: str | None = None
    reply: Reply = field(default_factory=Reply)
    during: Callable[[House], AbstractContextManager[None]] | None = None
    meanwhile: Callable[[House], None] | None = None
    items: int | None = None
    ends: str = "failed"
    asked: int = 1  # how often the upstream is, by what was accepted


def bad(what: str, code: str | None, param: str | None = None, *, status: int = 400, **body: Any) -> Row:
    """A create that is refused at the door for `body`, which may take a key away with `...`."""
    merged = {key: value for key, value in (BODY | body).items() if value is not ...}
    return Row(what, status, code, param, body=merged)


def raw(what: str, status: int, code: str | None, param: str | None = None, **fields: Any) -> Row:
    """A request that has no modes."""
    return Row(what, status, code, param, **{"modes": (RAW,), "body": None, **fields})


def get(what: str, path: str, status: int, code: str | None, param: str | None = None, **fields: Any) -> Row:
    """A GET."""
    return raw(what, status, code, param, method="GET", path=path, **fields)


def failed(what: str, status: int, code: str = "server_error", *, items: int = 0, **fields: Any) -> Row:
    """A create that is accepted and fails."""
    kind = {503: "service_unavailable_error", 429: "requests", 400: "invalid_request_error"}.get(status, "server_error")
    return Row(what, status, code, **{"type": kind, "items": items, **fields})


def says(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def failing(**error: Any) -> list[bytes]:
    """A stream that ends as failed after some reasoning."""
    return [*HELLO[:8], says("response.failed", response={"status": "failed", "error": error, "output": []})]


SAID: Final = {"error": {"message": CANARY, "type": CANARY, "param": CANARY, "code": CANARY}}
NOT_FOUND: Final = {"error": {"message": CANARY, "type": "NotFoundError", "param": "model", "code": 404}}
TOO_LONG: Final = {"error": {"message": f"{CANARY} too long", "type": "BadRequestError", "param": "input_tokens"}}
NAMED: Final = {"error": {"message": f"{CANARY} (parameter=temperature, value={CANARY})", "type": "BadRequestError"}}
AWAY: Final = {"type": "service_unavailable_error", "retry": 1}
DEEP: Final = b'{"a":' * 193 + b"1" + b"}" * 193
BIG: Final = json.dumps(BODY | {"input": CANARY * 3000}).encode()
HOSTED: Final = [{"type": "web_search", "name": []}]
SEALED: Final = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": CANARY}]
REFERENCE: Final = [{"type": "item_reference", "id": "msg_1"}]

DOOR: Final = [
    raw("malformed JSON", 400, None, body=f'{{"model": "{MODEL}", "input": "{CANARY}'.encode()),
    raw("no body", 400, None, body=b""),
    raw("a form", 400, None, body=f"input={CANARY}".encode(), headers={"content-type": "multipart/form-data"}),
    raw("a compressed body", 415, None, body=b"\x1f\x8b" + CANARY.encode(), headers={"content-encoding": "gzip"}),
    raw("a body that is a list", 400, "invalid_type", body=f'["{CANARY}"]'.encode()),
    raw("nesting that could not be read again", 400, None, body=b'{"model":"%b","input":"x","user":%b}' % (b"m", DEEP)),
    raw("a body over the limit", 413, None, body=BIG),
    raw("a body over the limit, in chunks", 413, None, body=[BIG[:9000], BIG[9000:]]),
    bad("no model", "missing_required_parameter", "model", model=...),
    bad("an unknown model", "model_not_found", "model", status=404, model=f"{CANARY}-7b"),
    bad("no input", "missing_required_parameter", "input", input=...),
    bad("an empty input", "invalid_value", "input", input=[]),
    bad("input of a wrong type", "invalid_type", "input", input=5),
    bad("a wrong role", "invalid_value", "input[0].role", input=[{"role": CANARY, "content": CANARY}]),
    bad("an item with no type", "invalid_value", "input[0]", input=[{"text": CANARY}]),
    bad("temperature of a wrong type", "invalid_type", "temperature", temperature=CANARY),
    bad("temperature out of range", "invalid_value", "temperature", temperature=9),
    bad("an unknown include", "invalid_value", "include[0]", include=[CANARY]),
    bad("a metadata value of a wrong type", "invalid_type", "metadata.note", metadata={"note": [CANARY]}),
    bad("a parent that is unknown", "previous_response_not_found", "previous_response_id", previous_response_id=NO_ID),
    bad(
        "a parent id of another server", "previous_response_not_found", "previous_response_id", previous_response_id="r"
    ),
    bad("a parent id that is text", "invalid_value", "previous_response_id", previous_response_id=f"my {CANARY}"),
    bad("a parent id that is empty", "invalid_value", "previous_response_id", previous_response_id=""),
    bad(
        "a parent that was not stored",
        "previous_response_not_found",
        "previous_response_id",
        previous_response_id="<unstored>",
    ),
    bad("an item that is unknown", None, "input", status=404, input=REFERENCE),
    bad("reasoning that is only encrypted", "invalid_encrypted_content", "input", input=SEALED),
    bad("a forced hosted tool", "unsupported_value", "tools[0].type", tools=HOSTED, tool_choice="required"),
    bad("a chosen tool that is not there", "invalid_value", "tool_choice", tool_choice={"type": "custom", "name": "a"}),
    bad("conversation", "unsupported_parameter", "conversation", conversation="conv_1"),
    bad("parent and conversation", None, "conversation", conversation="conv_1", previous_response_id=NO_ID),
    bad("prompt", "unsupported_parameter", "prompt", prompt={"id": CANARY}),
    bad("moderation", "unsupported_parameter", "moderation", moderation={"model": CANARY}),
    bad("a closed program", "unsupported_value", "access_programs.cyber", status=403, access_programs={"cyber": "x"}),
    Row("stream of a wrong type", 400, "invalid_type", "stream", body=BODY | {"stream": "yes"}, modes=(PLAIN,)),
    Row(
        "stream_options with no stream",
        400,
        "invalid_value",
        "stream_options",
        body=BODY | {"stream_options": {}},
        modes=(PLAIN, BACKGROUND),
    ),
]

READS: Final = [
    get("an unknown URL", f"/v1/{CANARY}", 404, "unknown_url"),
    get("no /v1", f"/responses/{NO_ID}?{CANARY}", 404, "unknown_url"),
    get("a slash at the end", f"{CREATE}/", 404, "unknown_url"),
    raw("a slash at the end of a create", 404, "unknown_url", path=f"{CREATE}/"),
    get("an encoded slash", f"{CREATE}/{CANARY}%2Fa", 404, "unknown_url"),
    get("GET of a create", CREATE, 405, "method_not_allowed", allow="POST"),
    raw("DELETE of a create", 405, "method_not_allowed", method="DELETE", allow="POST"),
    raw("OPTIONS", 405, "method_not_allowed", method="OPTIONS", allow="POST"),
    raw("PUT of a response", 405, "method_not_allowed", method="PUT", path=f"{CREATE}/{NO_ID}", allow="GET"),
    raw("POST of a list", 405, "method_not_allowed", path="/v1/models", allow="GET"),
    get("an unknown response", f"{CREATE}/{NO_ID}", 404, None),
    get("an unknown response, its stream", f"{CREATE}/{NO_ID}?stream=true", 404, None),
    get("an id that is none", f"{CREATE}/{CANARY}", 404, None),
    get("an id that is text", f"{CREATE}/my%20{CANARY}%00%ff", 404, None),
    get("an id with no end", f"{CREATE}/resp_{CANARY * 1000}", 404, None),
    get("a response that was not stored", f"{CREATE}/<unstored>", 404, None),
    get(
        "the stream of a foreground response",
        f"{CREATE}/<foreground>?stream=true",
        400,
        "invalid_request_error",
        "stream",
    ),
    get(
        "a stream whose events have expired",
        f"{CREATE}/<forgotten>?stream=true",
        400,
        "invalid_request_error",
        "stream",
    ),
    get("stream=maybe", f"{CREATE}/<background>?stream={CANARY}", 400, "invalid_value", "stream"),
    get("stream=", f"{CREATE}/<background>?stream=", 400, "invalid_value", "stream"),
    *(
        get(
            f"starting_after={cursor:.9}",
            f"{CREATE}/<background>?stream=true&starting_after={cursor}",
            400,
            "invalid_value",
            "starting_after",
        )
        for cursor in ("-1", CANARY, "", "1.5", "9007199254740992", "1" * 5000)
    ),
    get("an unknown model", f"/v1/models/{CANARY}", 404, "model_not_found", "model"),
    raw("cancel of an unknown response", 404, None, path=f"{CREATE}/{NO_ID}/cancel"),
    raw("cancel of an id that is none", 404, None, path=f"{CREATE}/{CANARY}/cancel"),
    raw("cancel of a foreground response", 400, None, path=f"{CREATE}/<foreground>/cancel"),
    raw(
        "GET of a cancel",
        405,
        "method_not_allowed",
        method="GET",
        path=f"{CREATE}/<background>/cancel",
        body=None,
        allow="POST",
    ),
]

UPSTREAM: Final = [
    failed("vLLM: refuses the connection", 503, retry=1, during=vllm_down, asked=0),
    failed("vLLM: 400", 400, "invalid_prompt", reply=refusing(400, SAID)),
    failed("vLLM: 400 that names a parameter", 400, "invalid_prompt", param="temperature", reply=refusing(400, NAMED)),
    failed("vLLM: 400, too long", 400, "context_length_exceeded", param="input", reply=refusing(400, TOO_LONG)),
    failed("vLLM: 401", 502, reply=refusing(401, SAID)),
    failed("vLLM: 403", 502, reply=refusing(403, SAID)),
    failed(
        "vLLM: 404 of the model",
        404,
        "model_not_found",
        param="model",
        type="invalid_request_error",
        reply=refusing(404, NOT_FOUND),
    ),
    failed("vLLM: 404 of the URL", 502, reply=refusing(404, {"detail": CANARY})),
    failed(
        "vLLM: 413", 413, "invalid_prompt", param="input", type="invalid_request_error", reply=refusing(413, CANARY)
    ),
    failed("vLLM: 422", 400, "invalid_prompt", reply=refusing(422, {"detail": [{"msg": CANARY}]})),
    failed("vLLM: 429", 429, "rate_limit_exceeded", retry=1, reply=refusing(429, SAID)),
    failed("vLLM: 429 with a wait", 429, "rate_limit_exceeded", retry=7, reply=refusing(429, SAID, retry_after="7")),
    failed(
        "vLLM: 429 with a date",
        429,
        "rate_limit_exceeded",
        retry=1,
        reply=refusing(429, SAID, retry_after=f"Wed, {CANARY}"),
    ),
    failed("vLLM: 500", 502, reply=refusing(500, SAID)),
    failed("vLLM: 503", 503, retry=1, reply=refusing(503, SAID)),
    failed("vLLM: 503 with a wait", 503, retry=30, reply=refusing(503, SAID, retry_after="30")),
    failed("vLLM: 504", 504, reply=refusing(504, CANARY)),
    failed("vLLM: a redirect", 502, reply=Reply(307, {"location": f"/v1/responses?{CANARY}"}, [])),
    failed(
        "vLLM: 200 with JSON", 502, reply=Reply(200, {"content-type": "application/json"}, [json.dumps(SAID).encode()])
    ),
    failed("vLLM: 204", 502, reply=Reply(204, {}, [])),
    failed("vLLM: closes with no answer", 502, reply=Reply(then="nothing")),
    failed("vLLM: no answer in time", 504, reply=Reply(before=5, then="nothing")),
    failed("vLLM: no first token in time", 504, reply=Reply(parts=HELLO[:2], then="hang")),
    failed("vLLM: stalls", 504, items=1, reply=Reply(parts=HELLO[:8], then="hang")),
    failed("vLLM: breaks off in the reasoning", 502, items=1, reply=Reply(parts=HELLO[:8], then="break")),
    failed("vLLM: breaks off in the message", 502, items=2, reply=Reply(parts=HELLO[:24], then="break")),
    failed("vLLM: ends with no end", 502, items=2, reply=Reply(parts=HELLO[:24])),
    failed("vLLM: ends with no event", 502, reply=Reply(parts=[])),
    failed("vLLM: garbage, then its end", 502, items=1, reply=Reply(parts=[*HELLO[:8], b'data: {"zyxcanary\n\n'])),
    failed(
        "vLLM: an event over the limit",
        502,
        items=1,
        reply=Reply(parts=[*HELLO[:8], b"data: " + CANARY.encode() * 3000]),
    ),
    failed("vLLM: fails in the stream", 502, items=1, reply=Reply(parts=failing(code="server_error", message=CANARY))),
    failed(
        "vLLM: fails in the stream, 429",
        429,
        "rate_limit_exceeded",
        items=1,
        reply=Reply(parts=failing(code="rate_limit_exceeded", message=CANARY)),
    ),
    failed(
        "vLLM: an error event",
        502,
        items=1,
        reply=Reply(parts=[*HELLO[:8], says("error", code=CANARY, message=CANARY)]),
    ),
    failed("a turn over its time", 504, items=1, reply=Reply(pause=0.3)),
    failed("the worker is stopped", 503, items=1, reply=Reply(pause=0.1), meanwhile=worker_stops),
    failed("the worker dies", 500, items=1, reply=Reply(pause=0.1), meanwhile=worker_dies),
]

REDIS: Final = [
    Row("Redis is away", 503, "server_error", during=redis_away, **AWAY),
    Row(
        "Redis is away, with a parent",
        503,
        "server_error",
        during=redis_away,
        body=BODY | {"previous_response_id": "<foreground>"},
        **AWAY,
    ),
    get("Redis is away: GET", f"{CREATE}/<background>", 503, "server_error", during=redis_away, **AWAY),
    get(
        "Redis is away: its stream",
        f"{CREATE}/<background>?stream=true",
        503,
        "server_error",
        during=redis_away,
        **AWAY,
    ),
    raw(
        "Redis is away: cancel",
        503,
        "server_error",
        path=f"{CREATE}/<background>/cancel",
        body=None,
        during=redis_away,
        **AWAY,
    ),
    Row(
        "Redis is lost in the turn",
        503,
        "server_error",
        type="service_unavailable_error",
        modes=(PLAIN, STREAM),
        items=2,
        ends="completed",
        reply=Reply(pause=0.05),
        meanwhile=redis_stops,
    ),
    Row("Redis is full", 503, "server_error", type="service_unavailable_error", during=redis_full),
]

ROWS: Final = [*DOOR, *READS, *UPSTREAM, *REDIS]


@dataclass
class Seen:
    """What a client got. `text` is all of it, `http` what its HTTP answer was, `response` the one that failed."""

    http: str
    headers: Any
    error: dict[str, Any]
    text: str
    raised: str = "-"
    response: dict[str, Any] | None = None


def _filled(value: Any, ids: dict[str, str]) -> Any:
    """The value with the ids of the house's responses in it."""
    text = json.dumps(value)
    for name, response_id in ids.items():
        text = text.replace(f"<{name}>", response_id)
    return json.loads(text)


def _send(house: House, row: Row, mode: str) -> Seen:
    path = _filled(row.path, house.ids)
    if mode == RAW:
        return _http(house.http.request(row.method, path, content=row.body, headers=row.headers))
    body = _filled(row.body, house.ids)
    if mode == PLAIN:
        return _with_the_official_client(house, path, body)
    answer = house.http.post(path, json=body | {mode: True})
    if answer.status_code != 200:
        return _http(answer)
    if mode == STREAM:
        return _streamed(answer)
    response = house.response(answer.json()["id"])
    return Seen("200, status failed", answer.headers, response["error"], str(response["error"]), response=response)


def _http(answer: Any) -> Seen:
    return Seen(str(answer.status_code), answer.headers, _error_of(answer.text), answer.text)


def _error_of(text: str) -> dict[str, Any]:
    body = json.loads(text)
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


def _with_the_official_client(house: House, path: str, body: dict[str, Any]) -> Seen:
    with pytest.raises(openai.APIStatusError) as raised:
        house.openai.post(path.removeprefix("/v1"), body=body, cast_to=dict)
    error, answer = raised.value, raised.value.response
    seen = _http(answer)
    assert (error.code, error.param, error.type) == tuple(seen.error[key] for key in ("code", "param", "type"))
    assert error.request_id == answer.headers["x-request-id"]
    seen.raised = type(error).__name__
    return seen


def _streamed(answer: httpx.Response) -> Seen:
    assert answer.text.endswith("data: [DONE]\n\n")
    frames = [frame.partition("\ndata: ")[::2] for frame in answer.text.split("\n\n")]
    told = [(name, decode(data)) for name, data in frames if data and "keepalive" not in name]
    name, last = told[-1]
    if name == "event: error":
        return Seen("200, error", answer.headers, last, str(last))
    assert name == "event: response.failed"
    error = last["response"]["error"]
    return Seen("200, response.failed", answer.headers, error, str(error), response=last["response"])


CASES: Final = [(row, mode) for row in ROWS for mode in row.modes]
RAISED: Final = {
    400: "BadRequestError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    413: "APIStatusError",
    429: "RateLimitError",
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("errors"), **SHORT) as house:
        house.prepare()
        yield house


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    head = "what | mode | HTTP | type | code | param | retry-after | x-should-retry | client raises | items kept"
    print("", f"| {head} |", "|" + "---|" * (head.count("|") + 1), *lines, sep="\n")


@pytest.mark.parametrize(("row", "mode"), CASES, ids=[f"{row.what}-{mode}" for row, mode in CASES])
def test_table(house: House, table: list[str], row: Row, mode: str) -> None:
    house.upstream_server.replies = [row.reply]
    house.upstream_server.requests.clear()
    house.upstream_server.sent = 0
    before = house.responses()
    with row.during(house) if row.during else nullcontext():
        seen = _with_events(house, row, mode)
    kept = _kept(house, row, seen, house.responses() - before)
    table.append(_line(row, mode, seen, kept))

    assert {key: seen.error[key] for key in ("code", "param")} == {"code": row.code, "param": row.param}
    assert seen.error["message"]
    assert CANARY not in (seen.text + str(seen.headers)).lower()
    assert seen.headers["x-request-id"].startswith("req_")
    assert len(house.upstream_server.requests) == (0 if row.items is None else row.asked)
    assert kept == row.items
    if seen.http.startswith("200"):
        return
    assert (seen.http, seen.error["type"]) == (str(row.status), row.type)
    assert seen.headers.get("allow") == row.allow
    assert seen.headers["content-type"] == "application/json"
    again = {name: seen.headers.get(name) for name in ("retry-after", "x-should-retry")}
    assert again == {
        "retry-after": None if row.retry is None else str(row.retry),
        "x-should-retry": "false" if row.retry is None else None,
    }
    if seen.raised != "-":
        assert seen.raised == ("InternalServerError" if row.status >= 500 else RAISED[row.status])


def _with_events(house: House, row: Row, mode: str) -> Seen:
    if row.meanwhile is None:
        return _send(house, row, mode)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(_send, house, row, mode)
        until(lambda: house.upstream_server.sent >= 8)
        row.meanwhile(house)
        try:
            return sent.result(30)
        finally:
            _mend(house)


def _mend(house: House) -> None:
    if not house.redis_runs:
        house.start_redis()
        house.redis_runs = True
    until(house.ready)


def _kept(house: House, row: Row, seen: Seen, new: set[str]) -> int | None:
    """The number of items kept of the response that failed; None where none was stored."""
    if row.items is None:
        assert new == set()
        return None
    [response_id] = new
    response = house.response(response_id)
    assert response["status"] == row.ends
    if row.ends == "failed":
        assert (response["error"], seen.error["type"]) == (seen.error, row.type)
    if seen.response is not None:
        assert response == seen.response
    return len(response["output"])


def _line(row: Row, mode: str, seen: Seen, kept: int | None) -> str:
    error, headers = seen.error, seen.headers
    cells = (
        *(row.what, mode, seen.http, error.get("type"), error["code"], error["param"]),
        *(headers.get("retry-after"), headers.get("x-should-retry"), seen.raised, kept),
    )
    return "| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |"


def _raw(house: House, request: bytes, *, then_close: bool = False) -> tuple[int, dict[str, str], bytes]:
    """The answer to these bytes, read until the server falls silent or closes; status 0 where there is none."""
    with closing(socket.create_connection(("127.0.0.1", house.api_port))) as connection:
        connection.settimeout(10)
        connection.sendall(request)
        if then_close:
            connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection, method=request.split(b" ")[0].decode())
        try:
            answer.begin()
        except http.client.BadStatusLine:
            return 0, {}, b""
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


LARGE: Final = b"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status", "headers", "code"),
    [
        pytest.param(LARGE + b"\r\n", 413, {}, None, id="a length over the limit is refused before the body is sent"),
        pytest.param(LARGE + b"Expect: 100-continue\r\n\r\n", 413, {}, None, id="no 100 Continue for it"),
        pytest.param(
            b"GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            405,
            {"allow": "POST"},
            "method_not_allowed",
            id="WebSocket",
        ),
        pytest.param(
            b"PROPFIND /zyxcanary HTTP/1.1\r\nHost: zyxcanary\r\nX-Client-Request-Id: zyxcanary\r\n\r\n",
            404,
            {},
            "unknown_url",
            id="a method of others",
        ),
    ],
)
def test_what_http_itself_allows(
    house: House, request_bytes: bytes, status: int, headers: dict[str, str], code: str | None
) -> None:
    found, named, body = _raw(house, request_bytes)
    assert (found, _error_of(body.decode())["code"]) == (status, code)
    assert named.items() >= {**headers, "x-should-retry": "false"}.items()
    assert named["x-request-id"]
    assert CANARY not in f"{named}{body!r}"


def test_a_head_has_headers_only(house: House) -> None:
    status, headers, body = _raw(house, b"HEAD /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (status, headers["allow"], body) == (405, "GET", b"")
    assert headers["x-request-id"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b'POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n{"model": "simulated", "input": "zyx',
        b'POST /v1/responses HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"input":',
    ],
    ids=["by its length", "in chunks"],
)
def test_a_body_that_is_cut_off_starts_nothing(house: House, request_bytes: bytes) -> None:
    house.upstream_server.requests.clear()
    before = house.responses()
    assert _raw(house, request_bytes, then_close=True)[0] == 0
    assert house.http.get("/health").status_code == 200
    assert (house.responses(), house.upstream_server.requests) == (before, [])


@pytest.mark.parametrize(
    ("path", "headers", "reply"),
    [
        pytest.param(CREATE, {"content-type": "text/plain"}, Reply(), id="JSON under another content type"),
        pytest.param(f"{CREATE}?beta=true&{CANARY}=1", {}, Reply(), id="a query that nobody knows"),
        pytest.param(CREATE, {"expect": "100-continue"}, Reply(), id="Expect"),
        pytest.param(
            CREATE, {}, Reply(parts=[*HELLO[:8], b"data: {zyxcanary\n\n", *HELLO[8:]]), id="garbage among the events"
        ),
    ],
)
def test_what_is_no_error(house: House, path: str, headers: dict[str, str], reply: Reply) -> None:
    house.upstream_server.replies = [reply]
    answer = house.http.post(path, content=json.dumps(BODY), headers=headers)
    assert (answer.status_code, answer.json()["status"], len(answer.json()["output"])) == (200, "completed", 2)


def test_models_that_were_never_listed_are_not_unknown(house: House) -> None:
    with vllm_down(house):
        port = free_port()
        api = house.start("api", "--port", str(port))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as young:
            until(lambda: _answers(young))
            for path in ("/v1/models", f"/v1/models/{MODEL}"):
                answer = young.get(path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert _error_of(answer.text)["type"] == "service_unavailable_error"
        api.terminate()
        api.wait()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


class Client:
    """The official client as it comes, two retries; `attempts` are the statuses that it was answered with."""

    def __init__(self, house: House) -> None:
        self.attempts: list[int] = []
        self._house = house
        self.openai = openai.OpenAI(
            base_url=f"{house.url}/v1",
            api_key="none",
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [self._seen]}),
        )

    def _seen(self, answer: Any) -> None:
        self.attempts.append(answer.status_code)

    def create(self) -> Any:
        return self.openai.responses.create(model=MODEL, input=f"Hello, {CANARY}!")


def test_the_official_client_sends_again_what_was_not_accepted(house: House) -> None:
    client = Client(house)
    house.upstream_server.replies = [Reply()]
    house.upstream_server.requests.clear()
    before = house.responses()
    with ThreadPoolExecutor(1) as pool:
        with redis_away(house):
            sent = pool.submit(client.create)
            until(lambda: client.attempts)
        assert sent.result(30).status == "completed"
    assert client.attempts[0] == 503
    assert client.attempts[-1] == 200
    assert len(house.upstream_server.requests) == len(house.responses() - before) == 1


def test_the_official_client_gives_up_on_a_redis_that_stays_away(house: House) -> None:
    client = Client(house)
    before = house.responses()
    with redis_away(house), pytest.raises(openai.InternalServerError) as raised:
        client.create()
    assert raised.value.code == "server_error"
    assert client.attempts == [503, 503, 503]
    assert house.responses() == before


def test_the_official_client_sends_again_what_vllm_did_not_begin(house: House) -> None:
    client = Client(house)
    house.upstream_server.replies = [refusing(429, SAID), refusing(503, SAID), Reply()]
    house.upstream_server.requests.clear()
    assert client.create().status == "completed"
    assert client.attempts == [429, 503, 200]
    assert len(house.upstream_server.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [
        refusing(500, SAID),
        refusing(400, SAID),
        Reply(parts=HELLO[:8], then="break"),
        Reply(parts=HELLO[:2], then="hang"),
    ],
    ids=["refused", "invalid", "broken off", "silent"],
)
def test_the_official_client_generates_nothing_twice(house: House, reply: Reply) -> None:
    client = Client(house)
    house.upstream_server.replies = [reply]
    house.upstream_server.requests.clear()
    with pytest.raises(openai.APIStatusError):
        client.create()
    assert len(client.attempts) == len(house.upstream_server.requests) == 1


def test_no_line_of_a_log_holds_anything_of_a_request(house: House) -> None:
    assert [line for line in house.log().splitlines() if CANARY in line.lower()] == []
