"""What an upstream's refusal means to the caller: literal bodies in, whole errors out."""

import json
from pathlib import Path
from typing import Any

import pytest

from workers.refusals import Fault, breakdown, refusal, reported_failure

CAPTURED = Path(__file__).parent / "captured"
SECRET = "Ada's secret"

CONTEXT = "The input exceeds the context window of the model."


def vllm_error(message: str, kind: str = "BadRequestError", param: str | None = None, code: int = 400) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def bad_request(message: str, param: str | None, code: str = "invalid_prompt") -> dict[str, Any]:
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


def server_error(message: str, kind: str = "server_error") -> dict[str, Any]:
    return {"message": message, "type": kind, "param": None, "code": "server_error"}


MODEL_NOT_FOUND = bad_request("The model does not exist.", "model", "model_not_found")
REFUSED = bad_request("The model server refused the request as invalid.", None)
FAILED = server_error("The model server had an error.")
UNAVAILABLE = server_error("The model server is not available; try again later.", "service_unavailable_error")


def limited(when: str) -> dict[str, Any]:
    message = f"The model server is at its limit. Please try again {when}."
    return {"message": message, "type": "requests", "param": None, "code": "rate_limit_exceeded"}


def refused_value(param: str) -> dict[str, Any]:
    return bad_request(f"The model server refused the value of '{param}'.", param)


@pytest.mark.parametrize(
    ("capture", "upstream_status", "status", "error"),
    [
        (
            "ctx_too_long",
            400,
            400,
            bad_request(
                f"{CONTEXT} It has at least 2049 tokens. The context holds 2048.", "input", "context_length_exceeded"
            ),
        ),
        (
            "max_huge",
            400,
            400,
            bad_request("max_output_tokens is 100000; the model's context holds 2048.", "max_output_tokens"),
        ),
        ("max_0", 400, 400, refused_value("max_output_tokens")),
        ("logprobs_top_21", 400, 400, refused_value("top_logprobs")),
        ("err_temp", 400, 400, refused_value("temperature")),
        ("err_temp_str", 400, 400, refused_value("temperature")),
        ("err_effort", 400, 400, refused_value("reasoning")),
        ("err_metadata", 400, 400, refused_value("metadata")),
        ("include_unknown", 400, 400, refused_value("include")),
        ("tc_bad_function", 400, 400, refused_value("tool_choice")),
        ("tool_custom_grammar", 400, 400, refused_value("tools")),
        ("turn2_enc_nonnull", 400, 400, refused_value("input")),
        ("item_mcp_call", 400, 400, refused_value("input")),
        ("item_unknown_type", 400, 400, refused_value("input")),
        ("input_file", 400, 400, refused_value("input")),
        ("input_image_text_only_model", 400, 400, bad_request("The model takes text only.", "input")),
        ("input_empty_list", 400, 400, REFUSED),
        (
            "err_schema",
            400,
            400,
            bad_request("A JSON schema or grammar of the request (text.format, tools) is not supported.", None),
        ),
        ("err_badjson", 400, 400, REFUSED),
        ("err_model", 404, 404, MODEL_NOT_FOUND),
        ("assistant_empty_content", 500, 502, FAILED),
        ("crash_engine_nonstream", 500, 502, FAILED),
        (
            "render_responses",
            403,
            502,
            server_error("The model server did not accept this server's credentials."),
        ),
    ],
)
def test_what_a_real_vllm_said(capture: str, upstream_status: int, status: int, error: dict[str, Any]) -> None:
    raised = refusal(upstream_status, (CAPTURED / f"{capture}.response.json").read_bytes())
    assert (raised.status, raised.body()) == (status, {"error": error})


@pytest.mark.parametrize(
    ("upstream_status", "body", "status", "error"),
    [
        pytest.param(
            400,
            vllm_error(
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
                "(4744 in the messages, 256 in the completion). Please reduce the length of the messages or completion."
            ),
            400,
            bad_request(
                f"{CONTEXT} It has at least 4744 tokens. The context holds 4096.", "input", "context_length_exceeded"
            ),
            id="context, older wording",
        ),
        pytest.param(
            400,
            vllm_error("The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
            400,
            bad_request(
                f"{CONTEXT} It has at least 5000 tokens. The context holds 4096.", "input", "context_length_exceeded"
            ),
            id="context, engine's wording",
        ),
        pytest.param(
            400,
            vllm_error(f"{SECRET} too long", param="input_tokens"),
            400,
            bad_request(CONTEXT, "input", "context_length_exceeded"),
            id="context, unknown wording",
        ),
        pytest.param(
            400,
            vllm_error(f"{SECRET}: This model's maximum context length is 1 tokens"),
            400,
            REFUSED,
            id="an echo that looks like a known message",
        ),
        pytest.param(400, vllm_error(f"{SECRET} (parameter={'x' * 20})"), 400, REFUSED, id="unknown parameter"),
        pytest.param(400, vllm_error("no", param=f"body.{SECRET}"), 400, REFUSED, id="parameter that echoes"),
        pytest.param(422, b'{"detail":[{"loc":["body"]}]}', 400, REFUSED, id="422 of a bare FastAPI"),
        pytest.param(400, b"<html>Bad Request</html>", 400, REFUSED, id="400 of a proxy"),
        pytest.param(400, b"", 400, REFUSED, id="400 without a body"),
        pytest.param(400, b"[1]", 400, REFUSED, id="400 with a list"),
        pytest.param(400, b'{"error":{"message":7,"type":null,"param":{}}}', 400, REFUSED, id="400 with odd types"),
        pytest.param(
            404,
            b'{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null}',
            404,
            MODEL_NOT_FOUND,
            id="404 in the older shape",
        ),
        pytest.param(
            404,
            b'{"detail":"Not Found"}',
            502,
            server_error("The model server has no Responses API at the configured address."),
            id="404 of a wrong address",
        ),
        pytest.param(
            401,
            b'{"error":"Unauthorized"}',
            502,
            server_error("The model server did not accept this server's credentials."),
            id="401",
        ),
        pytest.param(
            413,
            b"",
            413,
            bad_request("The request, with its history, is larger than the model server takes.", "input"),
            id="413 of a proxy",
        ),
        pytest.param(429, b"", 429, limited("in 1s"), id="429"),
        pytest.param(503, vllm_error(SECRET, "ServiceUnavailableError", code=503), 503, UNAVAILABLE, id="503"),
        pytest.param(504, b"", 504, server_error("The model server did not answer in time."), id="504 of a proxy"),
        pytest.param(502, b"", 502, FAILED, id="502 of a proxy"),
        pytest.param(501, vllm_error(SECRET, "NotImplementedError", code=501), 502, FAILED, id="501"),
        pytest.param(418, b"", 502, FAILED, id="an odd 4xx is no fault of the caller"),
    ],
)
def test_refusals_by_status_and_body(upstream_status: int, body: bytes, status: int, error: dict[str, Any]) -> None:
    raised = refusal(upstream_status, body)
    assert (raised.status, raised.body()) == (status, {"error": error})


@pytest.mark.parametrize(
    ("upstream_status", "header", "seconds"),
    [
        (429, "", 1),
        (429, "0", 0),
        (429, "7", 7),
        (429, "3600", 3600),
        (429, "-1", 1),
        (429, "1.5", 1),
        (429, "\u0667", 1),
        (429, "9" * 400, 1),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", 1),
        (503, "7", 7),
        (503, "", 1),
        (500, "7", None),
        (400, "7", None),
        (504, "7", None),
    ],
)
def test_when_a_refused_request_may_be_sent_again(upstream_status: int, header: str, seconds: int | None) -> None:
    raised = refusal(upstream_status, b"", header)
    assert raised.retry_after == seconds
    if upstream_status == 429:
        assert raised.message.endswith(f"in {seconds}s.")


def test_no_message_holds_what_the_upstream_wrote() -> None:
    for status in range(400, 600):
        for text in (
            SECRET,
            f"{SECRET} (parameter=input)",
            f"This model's maximum context length is 9 tokens. {SECRET}",
        ):
            raised = refusal(status, vllm_error(text, SECRET, SECRET))
            assert SECRET not in repr(raised.body())
            assert isinstance(raised.code, str)


@pytest.mark.parametrize(
    ("error", "status", "wire"),
    [
        (None, 502, FAILED),
        ({}, 502, FAILED),
        ({"code": "server_error", "type": "server_error"}, 502, FAILED),
        ({"code": "rate_limit_exceeded"}, 429, limited("later")),
        ({"code": "context_length_exceeded"}, 400, bad_request(CONTEXT, "input", "context_length_exceeded")),
        ({"code": "invalid_prompt"}, 400, REFUSED),
        ({"code": "model_not_found"}, 404, MODEL_NOT_FOUND),
        ({"code": 400, "type": "BadRequestError"}, 400, REFUSED),
        ({"code": 500, "type": "InternalServerError"}, 502, FAILED),
        ({"code": None, "type": "ServiceUnavailableError"}, 503, UNAVAILABLE),
        ({"code": "engine_dead", "type": None}, 502, FAILED),
        ({"code": True, "type": []}, 502, FAILED),
    ],
    ids=str,
)
def test_failures_reported_inside_a_stream(error: dict[str, Any] | None, status: int, wire: dict[str, Any]) -> None:
    raised = reported_failure(error)
    assert (raised.status, raised.body(), raised.retry_after) == (status, {"error": wire}, None)


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        (Fault.UNREACHABLE, 503, "service_unavailable_error"),
        (Fault.SILENT, 504, "server_error"),
        (Fault.STALLED, 504, "server_error"),
        (Fault.BROKEN, 502, "server_error"),
        (Fault.GARBAGE, 502, "server_error"),
        (Fault.OVERLONG, 502, "server_error"),
    ],
)
def test_breakdowns(fault: Fault, status: int, kind: str) -> None:
    raised = breakdown(fault)
    assert (raised.status, raised.type, raised.code, raised.param) == (status, kind, "server_error", None)


def test_only_an_upstream_that_was_never_reached_generated_nothing() -> None:
    again = {fault for fault in Fault if breakdown(fault).retry_after is not None}
    assert again == {Fault.UNREACHABLE}


def test_every_fault_has_a_message_of_its_own() -> None:
    assert len({breakdown(fault).message for fault in Fault}) == len(Fault)
