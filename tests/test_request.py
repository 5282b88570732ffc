"""A create body at the door: what is taken, what is kept of it, and every refusal."""

import copy
from typing import Any, get_args

import pytest
from openai.types.responses import ResponseIncludable
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from pydantic import ValidationError

from shared.errors import InvalidRequest
from shared.parameters import Include, Parameters
from shared.request import ResponseRequest, parse_request

CANARY = "canary-7f3a"
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
BARE = {"model": "tiny", "input": "Hello"}


def test_the_least_request() -> None:
    assert parse_request(BARE) == ResponseRequest(
        model="tiny",
        stream=False,
        background=False,
        store=True,
        previous_response_id=None,
        input=[HELLO],
        options={"model": "tiny"},
    )


FULL: dict[str, Any] = {
    "model": "tiny",
    "input": [{"role": "user", "content": "Hello", "x": None}],
    "stream": True,
    "background": True,
    "store": False,
    "previous_response_id": "resp_1",
    "instructions": "Be brief.",
    "background_options": {"completion_window": "soonest", "continuation_id": "c"},
    "context_management": [{"type": "compaction", "compact_threshold": 1000}],
    "image": {"context_compression": "auto"},
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 1,
    "max_tool_calls": 1,
    "metadata": {"k" * 64: "v" * 512},
    "multi_agent": {"enabled": False},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m", "prewarm": False},
    "prompt_cache_retention": "in_memory",
    "reasoning": {"effort": "minimal", "summary": "auto", "context": "auto", "mode": "standard", "new": 1},
    "safety_identifier": "s",
    "service_tier": "ultrafast",
    "stream_options": {"include_obfuscation": False},
    "temperature": 0,
    "text": {"format": {"type": "text", "new": None}, "verbosity": "high"},
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "add", "parameters": None}, {"type": "acme:x", "y": None}],
    "top_logprobs": 20,
    "top_p": 1,
    "truncation": "auto",
    "user": "u",
    # vLLM's
    "cache_salt": "s",
    "chat_template_kwargs": {"enable_thinking": False},
    "ec_transfer_params": {},
    "enable_response_messages": True,
    "frequency_penalty": -2,
    "ignore_eos": True,
    "include_reasoning": True,
    "include_stop_str_in_output": True,
    "kv_transfer_params": {"do_remote_decode": True},
    "logit_bias": {"7": -1.5},
    "media_io_kwargs": {},
    "min_p": 0.1,
    "mm_processor_kwargs": {},
    "presence_penalty": 2,
    "priority": -5,
    "repetition_penalty": 1.1,
    "seed": 0,
    "session_id": "s",
    "skip_special_tokens": False,
    "stop": ["a", "b", "c", "d"],
    "stop_token_ids": [1],
    "structured_outputs": {"regex": "a"},
    "top_k": -1,
    "vllm_xargs": {"a": 1},
}


def test_everything_known_is_kept_as_it_came() -> None:
    assert FULL.keys() - {"input"} == Parameters.model_fields.keys()
    before = copy.deepcopy(FULL)
    request = parse_request(FULL | {"request_id": "mine", "client_metadata": {"a": 1}, "acme": 1, "mm_payload": "none"})
    assert request == ResponseRequest(
        model="tiny",
        stream=True,
        background=True,
        store=False,
        previous_response_id="resp_1",
        input=before["input"],
        options={key: value for key, value in before.items() if key != "input"},
    )
    assert before == FULL


def test_null_is_not_given() -> None:
    nulls = dict.fromkeys([*Parameters.model_fields, "conversation", "prompt", "moderation", "access_programs"])
    assert parse_request(nulls | BARE) == parse_request(BARE)
    inner = {"reasoning": {"effort": None, "context": None}, "text": {"format": None, "verbosity": None}}
    assert parse_request(BARE | inner).options == {"model": "tiny"} | inner


def test_every_parameter_of_the_openai_client_is_known_or_refused() -> None:
    elsewhere = {"input", "conversation", "prompt", "moderation", "access_programs"}
    assert ResponseCreateParamsBase.__annotations__.keys() - elsewhere <= Parameters.model_fields.keys()
    assert set(get_args(Include)) == set(get_args(ResponseIncludable))


TAKEN: dict[str, dict[str, Any]] = {
    "auto without tools": {"tool_choice": "auto"},
    "background without store": {"background": True, "store": False},
    "empty include": {"include": []},
    "every include": {"include": [*get_args(Include)]},
    "summary alone, as Codex sends it": {"reasoning": {"summary": "auto"}},
    "background and stream": {"background": True, "stream": True},
    "a whole number for a temperature": {"temperature": 2},
    "one stop text": {"stop": "\n"},
    "unknown tools": {"tools": [{"type": "namespace", "name": "n", "tools": []}, {"type": "oven"}]},
    "empty text": {"text": {}},
    "empty input to go on with": {"input": [], "previous_response_id": "resp_1"},
    "standard access": {"access_programs": {"cyber": "standard"}},
    "a tool that the input adds": {
        "tool_choice": "required",
        "input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "a"}]}],
    },
}


@pytest.mark.parametrize("given", TAKEN.values(), ids=TAKEN.keys())
def test_taken(given: dict[str, Any]) -> None:
    parse_request(BARE | given)


MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"
PARAMETER, UNSUPPORTED = "unsupported_parameter", "unsupported_value"
SCHEMA = {"type": "json_schema", "name": "n", "schema": {}}

REFUSED: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "no model": ({"model": None}, "model", MISSING),
    "empty model": ({"model": ""}, "model", VALUE),
    "model is a number": ({"model": 7}, "model", TYPE),
    "no input": ({"input": None}, "input", MISSING),
    "no items": ({"input": []}, "input", VALUE),
    "bad item": ({"input": [{"role": "user", "content": CANARY}, CANARY]}, "input[1]", TYPE),
    "both histories": ({"conversation": CANARY, "previous_response_id": CANARY}, "conversation", None),
    "conversation": ({"conversation": {"id": CANARY}}, "conversation", PARAMETER),
    "prompt": ({"prompt": {"id": CANARY}}, "prompt", PARAMETER),
    "moderation": ({"moderation": {"model": CANARY}}, "moderation", PARAMETER),
    "many agents": ({"multi_agent": {"enabled": True}}, "multi_agent.enabled", UNSUPPORTED),
    "2h window": (
        {"background": True, "background_options": {"completion_window": "2h"}},
        "background_options",
        UNSUPPORTED,
    ),
    "8h window": (
        {"background": True, "background_options": {"completion_window": "8h"}},
        "background_options",
        UNSUPPORTED,
    ),
    "unknown window": (
        {"background_options": {"completion_window": CANARY}},
        "background_options.completion_window",
        VALUE,
    ),
    "prewarm": ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options.prewarm", UNSUPPORTED),
    "pro mode": ({"reasoning": {"mode": CANARY}}, "reasoning.mode", UNSUPPORTED),
    "unknown context management": (
        {"context_management": [{"type": CANARY}]},
        "context_management[0].type",
        VALUE,
    ),
    "stream options alone": ({"stream_options": {"include_obfuscation": True}}, "stream_options", VALUE),
    "stream options without stream": ({"stream": False, "stream_options": {}}, "stream_options", VALUE),
    "stream is text": ({"stream": "true"}, "stream", TYPE),
    "background is a number": ({"background": 1}, "background", TYPE),
    "store is text": ({"store": CANARY}, "store", TYPE),
    "previous is text": ({"previous_response_id": f"my {CANARY}"}, "previous_response_id", VALUE),
    "previous is long": ({"previous_response_id": CANARY * 30}, "previous_response_id", VALUE),
    "previous is an object": ({"previous_response_id": {"id": CANARY}}, "previous_response_id", TYPE),
    "instructions are items": ({"instructions": [CANARY]}, "instructions", TYPE),
    "instructions too long": ({"instructions": CANARY * 1_000_000}, "instructions", VALUE),
    "unknown include": ({"include": ["file_search_call.results", CANARY]}, "include[1]", VALUE),
    "include is text": ({"include": CANARY}, "include", TYPE),
    "metadata is a list": ({"metadata": [CANARY]}, "metadata", TYPE),
    "metadata value is a number": ({"metadata": {"key": 7}}, "metadata.key", TYPE),
    "metadata value too long": ({"metadata": {"key": CANARY * 50}}, "metadata.key", VALUE),
    "metadata key too long": ({"metadata": {CANARY * 6: "v"}}, "metadata", VALUE),
    "metadata key that is no name": ({"metadata": {f"{CANARY}: x": 7}}, "metadata", TYPE),
    "metadata of 17": ({"metadata": {str(number): CANARY for number in range(17)}}, "metadata", VALUE),
    "temperature is text": ({"temperature": CANARY}, "temperature", TYPE),
    "temperature is true": ({"temperature": True}, "temperature", TYPE),
    "temperature below": ({"temperature": -0.1}, "temperature", VALUE),
    "temperature above": ({"temperature": 2.1}, "temperature", VALUE),
    "temperature beyond floats": ({"temperature": 10**400}, "temperature", TYPE),
    "top_p of nothing": ({"top_p": 0}, "top_p", VALUE),
    "top_p above": ({"top_p": 1.1}, "top_p", VALUE),
    "top_logprobs above": ({"top_logprobs": 21}, "top_logprobs", VALUE),
    "top_logprobs below": ({"top_logprobs": -1}, "top_logprobs", VALUE),
    "half a token": ({"max_output_tokens": 1.5}, "max_output_tokens", TYPE),
    "no token": ({"max_output_tokens": 0}, "max_output_tokens", VALUE),
    "no tool call": ({"max_tool_calls": 0}, "max_tool_calls", VALUE),
    "truncation": ({"truncation": CANARY}, "truncation", VALUE),
    "tier": ({"service_tier": CANARY}, "service_tier", VALUE),
    "effort": ({"reasoning": {"effort": CANARY}}, "reasoning.effort", VALUE),
    "summary": ({"reasoning": {"summary": CANARY}}, "reasoning.summary", VALUE),
    "context": ({"reasoning": {"context": CANARY}}, "reasoning.context", VALUE),
    "reasoning is text": ({"reasoning": CANARY}, "reasoning", TYPE),
    "verbosity": ({"text": {"verbosity": CANARY}}, "text.verbosity", VALUE),
    "text is text": ({"text": CANARY}, "text", TYPE),
    "format is text": ({"text": {"format": CANARY}}, "text.format", TYPE),
    "format without type": ({"text": {"format": {"name": CANARY}}}, "text.format.type", MISSING),
    "unknown format": ({"text": {"format": {"type": CANARY}}}, "text.format.type", VALUE),
    "schema in chat style": (
        {"text": {"format": {"type": "json_schema", "json_schema": {"name": CANARY}}}},
        "text.format.name",
        MISSING,
    ),
    "empty schema name": ({"text": {"format": SCHEMA | {"name": ""}}}, "text.format.name", VALUE),
    "no schema": ({"text": {"format": SCHEMA | {"schema": None}}}, "text.format.schema", MISSING),
    "schema is text": ({"text": {"format": SCHEMA | {"schema": CANARY}}}, "text.format.schema", TYPE),
    "strict is text": ({"text": {"format": SCHEMA | {"strict": CANARY}}}, "text.format.strict", TYPE),
    "safety identifier too long": ({"safety_identifier": CANARY * 20}, "safety_identifier", VALUE),
    "retention": ({"prompt_cache_retention": CANARY}, "prompt_cache_retention", VALUE),
    "context management without a type": ({"context_management": [{}]}, "context_management[0].type", MISSING),
    "tools are an object": ({"tools": {"name": CANARY}}, "tools", TYPE),
    "a tool is text": ({"tools": [CANARY]}, "tools[0]", TYPE),
    "a chat tool": ({"tools": [{"type": "function", "function": {"name": CANARY}}]}, "tools[0].name", MISSING),
    "tool choice": ({"tool_choice": CANARY}, "tool_choice", VALUE),
    "required without tools": ({"tool_choice": "required"}, "tool_choice", VALUE),
    "a call required of an empty namespace": (
        {"tools": [{"type": "namespace", "name": CANARY, "tools": []}], "tool_choice": "required"},
        "tools[0].type",
        UNSUPPORTED,
    ),
    "a call required of custom tools in a namespace": (
        {
            "tools": [{"type": "namespace", "name": CANARY, "tools": [{"type": "custom", "name": CANARY}]}],
            "tool_choice": "required",
        },
        "tools[0].type",
        UNSUPPORTED,
    ),
    "a forced hosted tool": (
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        "tools[0].type",
        UNSUPPORTED,
    ),
    "empty salt": ({"cache_salt": ""}, "cache_salt", VALUE),
    "a salt with a slash": ({"cache_salt": f"{CANARY}/"}, "cache_salt", VALUE),
    "a long salt": ({"cache_salt": CANARY * 20}, "cache_salt", VALUE),
    "min_p": ({"min_p": 1.1}, "min_p", VALUE),
    "top_k": ({"top_k": -2}, "top_k", VALUE),
    "structured twice": (
        {"structured_outputs": {"regex": CANARY}, "text": {"format": {"type": "json_object"}}},
        "structured_outputs",
        VALUE,
    ),
    "an empty stop": ({"stop": [CANARY, ""]}, "stop", VALUE),
    "nothing but an empty stop": ({"stop": ""}, "stop", VALUE),
    "seed beyond 64 bits": ({"seed": 2**63}, "seed", VALUE),
    "seed is text": ({"seed": CANARY}, "seed", TYPE),
    "penalty": ({"presence_penalty": 3}, "presence_penalty", VALUE),
    "bias": ({"logit_bias": {"7": CANARY}}, "logit_bias.7", TYPE),
    "bias of a word": ({"logit_bias": {CANARY: 1}}, "logit_bias", VALUE),
    "bias of a negative token": ({"logit_bias": {"-1": 1}}, "logit_bias", VALUE),
    "a negative stop token": ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]", VALUE),
    "media options": ({"media_io_kwargs": {CANARY: CANARY}}, "media_io_kwargs", TYPE),
    "schema description": (
        {"text": {"format": {**SCHEMA, "description": [CANARY]}}},
        "text.format.description",
        TYPE,
    ),
    "stop is a number": ({"stop": 7}, "stop", TYPE),
    "stop holds a number": ({"stop": [CANARY, 7]}, "stop", TYPE),
    "five stops": ({"stop": [CANARY] * 5}, "stop", VALUE),
    "kwargs are text": ({"chat_template_kwargs": CANARY}, "chat_template_kwargs", TYPE),
}


@pytest.mark.parametrize(("given", "param", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(given: dict[str, Any], param: str, code: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(BARE | given)
    error = caught.value
    assert error.body() == {
        "error": {"message": error.message, "type": "invalid_request_error", "param": param, "code": code}
    }
    assert error.status == 400
    free = param.startswith(("metadata.", "logit_bias."))  # the caller's own key: never in a message
    place = param.partition(".")[0] if free else param
    assert f"'{place}'" in error.message
    assert CANARY not in error.message


@pytest.mark.parametrize("body", [None, [], "x", 7], ids=repr)
def test_a_body_is_an_object(body: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(body)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, None, "invalid_type")


def test_absent_keys_read_like_nulls() -> None:
    for body, param in (({"input": "x"}, "model"), ({"model": "tiny"}, "input")):
        with pytest.raises(InvalidRequest) as caught:
            parse_request(body)
        assert (caught.value.param, caught.value.code) == (param, MISSING)


def test_access_programs_are_forbidden() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(BARE | {"access_programs": {"cyber": CANARY}})
    assert (caught.value.status, caught.value.param) == (403, "access_programs.cyber")
    assert CANARY not in caught.value.message


@pytest.mark.parametrize("name", ["include", "tools", "stop_token_ids", "context_management"])
def test_a_million_faults_are_one_fault(name: str) -> None:
    """A report on each would take gigabytes: the first one is enough."""
    with pytest.raises(ValidationError) as refused:
        Parameters.model_validate({"model": "m", "input": "x", name: [None, "no", 3.5] * 100})
    assert refused.value.error_count() == 1


@pytest.mark.parametrize(("name", "most"), [("metadata", 16), ("logit_bias", 1024)])
def test_keys_are_counted_before_they_are_looked_at(name: str, most: int) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request({"model": "m", "input": "x", name: {f"canary{number}": None for number in range(most + 1)}})
    assert (refused.value.status, refused.value.param) == (400, name)
    assert "canary" not in refused.value.message
