"""The upstream body: order, merging, context, what is always sent and what never; and that a real vLLM would take it.

`vllm_rules.broken_rule` restates what vLLM 0.32 refuses; it is first held against every captured request and the status
that a real vLLM gave it.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import vllm_rules as rules
from chain import (
    BLOB,
    NEW,
    TURN_1,
    TURN_1_SENT,
    TURN_2,
    TURN_2_SENT,
    Item,
    call,
    call_sent,
    output,
    reasoning,
    reasoning_sent,
    said,
    user,
)
from shared.errors import ApiError, InvalidRequest
from shared.replay import ReplayPolicy, effective_context, ensure_replayable, upstream_body
from shared.request import parse_request
from vllm_rules import broken_rule

CAPTURED = Path(__file__).parent / "captured"
POLICY = ReplayPolicy()
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def body_of(
    new: list[Item], history: list[Item] | None = None, policy: ReplayPolicy = POLICY, **options: Any
) -> dict[str, Any]:
    """The upstream body; fails when anything that went in was changed, or shares a part with what came out."""
    given = (options | {"model": "tiny"}, history or [], new)
    before = copy.deepcopy(given)
    body = upstream_body(given[0], given[1], given[2], seed=7, policy=policy)
    assert given == before
    _spoil(body)
    assert given == before
    return upstream_body(given[0], given[1], given[2], seed=7, policy=policy)


def _spoil(value: Any) -> None:
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(part)
    if isinstance(value, dict | list):
        value.clear()


def test_three_turns_of_a_tool_loop_in_order() -> None:
    assert body_of(NEW, TURN_1 + TURN_2, tools=[TOOL], instructions="Be brief.", temperature=0) == {
        "model": "tiny",
        "instructions": "Be brief.",
        "temperature": 0,
        "stream": True,
        "store": False,
        "seed": 7,
        "input": [*TURN_1_SENT, *TURN_2_SENT, user("And tomorrow?")],
        "tools": [TOOL],
        "tool_choice": "auto",
    }


def test_second_turn_keeps_the_reasoning_before_its_calls() -> None:
    assert body_of(TURN_2[:2], TURN_1)["input"] == [*TURN_1_SENT, *TURN_2_SENT[:2]]


def test_no_mark_of_ours_goes_up() -> None:
    sent = json.dumps(body_of(NEW, TURN_1 + TURN_2))
    assert "_agentic_item_kind" not in sent
    assert "encrypted_content" not in sent
    assert "null" not in sent


# --- what can't be replayed ---

SEALED: dict[str, tuple[Item, str, str | None]] = {
    "blob, null content": (
        reasoning("rs_9", "", content=None, encrypted_content=BLOB),
        "rs_9",
        "invalid_encrypted_content",
    ),
    "blob, no content": (
        {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": BLOB},
        "rs_9",
        "invalid_encrypted_content",
    ),
    "blob, empty content": (
        reasoning("rs_9", "", content=[], encrypted_content=BLOB),
        "rs_9",
        "invalid_encrypted_content",
    ),
    "blob, empty text": (reasoning("rs_9", "", encrypted_content=BLOB), "rs_9", "invalid_encrypted_content"),
    "blob and a summary": (
        {
            "type": "reasoning",
            "id": "rs_9",
            "summary": [{"type": "summary_text", "text": "canary"}],
            "encrypted_content": BLOB,
        },
        "rs_9",
        "invalid_encrypted_content",
    ),
    "without an id": ({"type": "reasoning", "encrypted_content": BLOB}, "without an id", "invalid_encrypted_content"),
    "compaction": ({"type": "compaction", "id": "cmp_1", "encrypted_content": BLOB}, "cmp_1", "invalid_value"),
    "unresolved reference": ({"id": "msg_9"}, "msg_9", "invalid_value"),
}


@pytest.mark.parametrize(("item", "named", "code"), SEALED.values(), ids=SEALED.keys())
@pytest.mark.parametrize("where", ["history", "new"])
def test_unreadable_items_are_refused(item: Item, named: str, code: str, where: str) -> None:
    history, new = ([item], NEW) if where == "history" else ([], [item, *NEW])
    for attempt in (
        lambda: ensure_replayable([*history, *new]),
        lambda: upstream_body({"model": "tiny"}, history, new, seed=1, policy=POLICY),
        lambda: upstream_body(
            {"model": "tiny", "reasoning": {"context": "current_turn"}}, history, new, seed=1, policy=POLICY
        ),
    ):
        with pytest.raises(InvalidRequest) as caught:
            attempt()
        error = caught.value
        assert (error.status, error.type, error.param, error.code) == (400, "invalid_request_error", "input", code)
        assert named in error.message
        assert "canary" not in error.message


def test_a_blob_beside_plaintext_is_left_behind() -> None:
    stored = reasoning("rs_1", "a", encrypted_content=BLOB)
    ensure_replayable([stored])
    assert body_of(NEW, [stored])["input"] == [reasoning_sent("rs_1", "a"), user("And tomorrow?")]


def test_an_empty_blob_says_nothing() -> None:
    stored = reasoning("rs_1", "", content=[], encrypted_content="")
    assert body_of(NEW, [stored])["input"] == [user("And tomorrow?")]


NOTHING: dict[str, list[Item]] = {
    "no items": [],
    "an empty answer": [said("msg_1", "")],
    "an empty thought": [reasoning("rs_1", "")],
    "a search without results": [{"type": "web_search_call", "id": "ws_1", "action": {"query": "cats"}}],
    "a cut call and its output": [call("fc_1", "c1", "Pa", status="incomplete"), output("c1", "none")],
}


@pytest.mark.parametrize("items", NOTHING.values(), ids=NOTHING.keys())
def test_an_input_of_which_nothing_can_be_sent_is_refused(items: list[Item]) -> None:
    """vLLM answers an empty input with 400."""
    for attempt in (
        lambda: ensure_replayable(items),
        lambda: upstream_body({"model": "tiny", "instructions": "Be brief."}, items, [], seed=1, policy=POLICY),
    ):
        with pytest.raises(InvalidRequest) as caught:
            attempt()
        assert (caught.value.status, caught.value.param, caught.value.code) == (400, "input", "invalid_value")


# --- instructions, system and developer messages ---


def told(role: str, *texts: str) -> Item:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text} for text in texts]}


PICTURE: Item = {"role": "system", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}

#: Options, items, and what goes up as `instructions` and `input`.
TOLD: dict[str, tuple[str | None, list[Item], str | None, list[Item]]] = {
    "instructions alone": ("a", NEW, "a", NEW),
    "empty instructions": ("", NEW, None, NEW),
    "one message at the beginning": (None, [told("developer", "b"), *NEW], "b", NEW),
    "several, and instructions": (
        "a",
        [told("system", "b", "c"), {"role": "developer", "content": "d"}, *NEW],
        "a\n\nb\nc\n\nd",
        NEW,
    ),
    "one that is empty": ("a", [told("system"), *NEW], "a", NEW),
    "one further on stays, with its role": (
        "a",
        [told("system", "b"), *TURN_1, told("system", "c"), told("developer", "d"), *NEW],
        "a\n\nb",
        [*TURN_1_SENT, told("system", "c"), told("developer", "d"), *NEW],
    ),
    "behind one that is no text, all stay": (
        "a",
        [PICTURE, told("system", "b"), *NEW],
        "a",
        [{"type": "message", **PICTURE}, told("system", "b"), *NEW],
    ),
    "nothing else: vLLM needs an input": ("a", [told("system", "b")], "a", [told("system", "b")]),
    "nothing else at all": (None, [told("developer", "b")], None, [told("developer", "b")]),
}


@pytest.mark.parametrize(("given", "items", "instructions", "sent"), TOLD.values(), ids=TOLD.keys())
def test_what_the_prompt_begins_with_is_one_system_message(
    given: str | None, items: list[Item], instructions: str | None, sent: list[Item]
) -> None:
    body = body_of(items, **({} if given is None else {"instructions": given}))
    assert (body.get("instructions"), body["input"]) == (instructions, sent)
    assert "instructions" not in body or instructions is not None
    # The same where the messages are those of earlier turns.
    assert body_of(items[-1:], items[:-1], **({} if given is None else {"instructions": given})) == body


# --- cut calls ---


def test_a_cut_call_goes_with_its_output() -> None:
    history = [
        user("x"),
        reasoning("rs_1", "r"),
        call("fc_1", "c1", "Paris"),
        call("fc_2", "c2", "Ro", status="incomplete"),
        {"type": "custom_tool_call", "call_id": "c3", "name": "run", "input": "ca", "status": "incomplete"},
        {"type": "shell_call", "call_id": "c4", "action": {}, "status": "incomplete"},
    ]
    new = [
        output("c1", "sunny"),
        output("c2", "none"),
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "none"},
        {"type": "shell_call_output", "call_id": "c4", "output": "none"},
        output("c9", "orphan"),
    ]
    assert body_of(new, history)["input"] == [
        user("x"),
        reasoning_sent("rs_1", "r"),
        call_sent("fc_1", "c1", "Paris"),
        output("c1", "sunny"),
        output("c9", "orphan"),
    ]


def test_a_call_that_can_not_be_sent_takes_its_output_along() -> None:
    history = [
        user("x"),
        {"type": "shell_call", "call_id": "c1", "status": "completed"},  # asks nothing
        {"type": "local_shell_call", "id": "c2", "action": {"command": ["ls"]}, "status": "incomplete"},
    ]
    new = [
        {"type": "shell_call_output", "call_id": "c1", "output": "none"},
        {"type": "local_shell_call_output", "id": "c2", "output": "none"},
        *NEW,
    ]
    assert body_of(new, history)["input"] == [user("x"), *NEW]


def test_a_call_made_again_keeps_its_output() -> None:
    history = [call("fc_1", "c1", "Par", status="incomplete"), call("fc_2", "c1", "Paris")]
    assert body_of([output("c1", "sunny")], history)["input"] == [
        call_sent("fc_2", "c1", "Paris"),
        output("c1", "sunny"),
    ]


# --- reasoning.context ---

CONTEXTS = {
    "model default": (None, "all_turns", "all_turns"),
    "auto": ("auto", "current_turn", "current_turn"),
    "asked current": ("current_turn", "all_turns", "current_turn"),
    "asked all": ("all_turns", "current_turn", "all_turns"),
}


@pytest.mark.parametrize(("asked", "default", "effective"), CONTEXTS.values(), ids=CONTEXTS.keys())
def test_effective_context(asked: str | None, default: Any, effective: str) -> None:
    policy = ReplayPolicy(reasoning_context=default)
    options = {"model": "tiny"} | ({} if asked is None else {"reasoning": {"context": asked, "effort": None}})
    assert effective_context(options, policy) == effective
    # In a new turn the earlier reasoning goes; in a tool loop its own stays.
    thoughts = [
        [item["id"] for item in upstream_body(options, *items, seed=1, policy=policy)["input"] if "summary" in item]
        for items in ((TURN_1 + TURN_2, NEW), (TURN_1, TURN_2[:2]), (TURN_1 + TURN_2 + NEW, [reasoning("rs_3", "z")]))
    ]
    kept = [["rs_1", "rs_2"], ["rs_1"], ["rs_1", "rs_2", "rs_3"]]
    assert thoughts == (kept if effective == "all_turns" else [[], ["rs_1"], ["rs_3"]])


def test_only_a_user_message_starts_a_turn() -> None:
    history = [user("x"), reasoning("rs_1", "r"), said("msg_1", "I look it up."), call("fc_1", "c1", "Paris")]
    new = [output("c1", "sunny"), {"role": "developer", "content": "Be brief."}]
    sent = body_of(new, history, reasoning={"context": "current_turn"})["input"]
    assert sent == body_of(new, history)["input"]
    assert reasoning_sent("rs_1", "r") in sent


def test_current_turn_without_a_user_message_keeps_all() -> None:
    assert body_of([reasoning("rs_1", "a")], reasoning={"context": "current_turn"})["input"] == [
        reasoning_sent("rs_1", "a")
    ]


# --- parameters ---

SENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing given": ({}, {}),
    "the caller's seed wins": ({"seed": 0}, {"seed": 0}),
    "never sent": (
        {
            "background": True,
            "store": True,
            "stream": False,
            "previous_response_id": "resp_1",
            "metadata": {"a": "b"},
            "stream_options": {"include_obfuscation": True},
            "user": "u",
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "service_tier": "fast",
            "max_tool_calls": 3,
            "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
            "top_logprobs": 3,
            "text": {"verbosity": "low"},
            "reasoning": {"summary": "auto", "context": "all_turns"},
        },
        {},
    ),
    "sampling and limits": (
        {"temperature": 0, "top_p": 0.5, "max_output_tokens": 3, "truncation": "auto", "parallel_tool_calls": False},
        {"temperature": 0, "top_p": 0.5, "max_output_tokens": 3, "truncation": "auto", "parallel_tool_calls": False},
    ),
    "what vLLM adds": (
        {"top_k": 5, "stop": ["\n"], "ignore_eos": True, "priority": -5, "enable_response_messages": True},
        {"top_k": 5, "stop": ["\n"], "ignore_eos": True, "priority": -5, "enable_response_messages": True},
    ),
    "effort only": ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": {"effort": "low"}}),
    "log probabilities": (
        {"include": ["message.output_text.logprobs", "file_search_call.results"], "top_logprobs": 2},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    ),
    "plain text format": ({"text": {"format": {"type": "text"}}}, {}),
    "schema": (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": None}, "verbosity": "low"}},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
    ),
}


@pytest.mark.parametrize(("options", "sent"), SENT.values(), ids=SENT.keys())
def test_parameters(options: dict[str, Any], sent: dict[str, Any]) -> None:
    always = {"model": "tiny", "stream": True, "store": False, "seed": 7, "input": [user("And tomorrow?")]}
    assert body_of(NEW, **options) == always | sent


def test_template_kwargs_of_the_model_and_the_caller() -> None:
    policy = ReplayPolicy(chat_template_kwargs={"keep_thinking": True, "x": 1})
    assert body_of(NEW, policy=policy)["chat_template_kwargs"] == {"keep_thinking": True, "x": 1}
    asked = body_of(NEW, policy=policy, chat_template_kwargs={"x": 2})["chat_template_kwargs"]
    assert asked == {"keep_thinking": True, "x": 2}
    assert policy.chat_template_kwargs == {"keep_thinking": True, "x": 1}


def test_template_kwargs_by_the_reasoning_context() -> None:
    policy = ReplayPolicy(
        chat_template_kwargs={
            "x": 1,
            "all_turns": {"preserve_thinking": True, "x": 2},
            "current_turn": {"preserve_thinking": False},
        }
    )

    def sent(policy: ReplayPolicy, **options: Any) -> Any:
        return body_of(NEW, policy=policy, **options).get("chat_template_kwargs")

    current = {"reasoning": {"context": "current_turn"}}
    assert sent(policy) == {"preserve_thinking": True, "x": 2}
    assert sent(policy, **current) == {"preserve_thinking": False, "x": 1}
    own = {"chat_template_kwargs": {"preserve_thinking": True, "y": 3}}
    assert sent(policy, **current, **own) == {"preserve_thinking": True, "x": 1, "y": 3}
    keeps_only = ReplayPolicy("current_turn", {"all_turns": {"preserve_thinking": True}})
    assert sent(keeps_only) is None
    assert sent(keeps_only, reasoning={"context": "all_turns"}) == {"preserve_thinking": True}


# --- what a real vLLM takes ---


def captured() -> dict[str, tuple[dict[str, Any], int]]:
    """Captured requests to `/v1/responses`, by name: the body, and the status that a real vLLM 0.32 gave it."""
    elsewhere = {"chat", "chat_stream", "compact", "conversations", "detokenize", "err_cancel", "err_get"} | {
        "input_tokens",
        "render_responses",
        "tokenize_chat",
        "tokenize_prompt",
        "err_badjson",  # no body at all
        "err_ctype",
    }
    # Refused for what the served model is or how long its context is: no shape shows it.
    of_the_model = {"ctx_too_long", "ctx_too_long_stream", "ctx_tight_stream", "err_model", "err_model_stream"} | {
        "err_schema"
    }
    found = {}
    for line in (CAPTURED / "SUMMARY.txt").read_text().splitlines():
        name, status = line.split()[:2]
        file = CAPTURED / f"{name}.request.json"
        if file.exists() and name not in elsewhere | of_the_model and status.isdigit():
            found[name] = (json.loads(file.read_text()), int(status))
    return found


REQUESTS = captured()
TAKEN = {name: body for name, (body, status) in REQUESTS.items() if status == 200}

#: Requests that vLLM takes and that we refuse, with our `param`.
STRICTER = {
    "err_conversation": "conversation",  # vLLM ignores it: the caller would lose the history
    "err_no_model": "model",  # OpenAI requires it
    "params_many": "stream_options",  # without `stream` (OpenAI reference)
    "stream_string": "stream",  # "true" is no boolean
    "tc_hosted": "tool_choice",  # a hosted tool can't be forced
}


def test_there_are_captures() -> None:
    assert len(REQUESTS) > 150
    assert len(TAKEN) > 100
    assert STRICTER.keys() <= TAKEN.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_the_restated_rules_are_those_of_the_real_vllm(name: str) -> None:
    body, status = REQUESTS[name]
    assert (broken_rule(body) is None) == (status == 200)


_FUNCTION = {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}
_OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "a"}
_IMAGE = {"type": "input_image", "image_url": "data:,", "detail": "auto"}

#: One body that breaks each rule.
BREACHES: dict[str, dict[str, Any]] = {
    rules.SHAPE: {"input": [{"type": "reasoning"}]},
    rules.UNSUPPORTED: {"previous_response_id": "resp_1"},
    rules.EMPTY: {"input": []},
    rules.ITEM: {"input": [{"type": "item_reference", "id": "msg_1"}]},
    rules.SEALED: {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "b"}]},
    rules.NO_TEXT: {"input": [{"type": "message", "role": "assistant", "content": []}]},
    rules.IMAGE: {"input": [_FUNCTION, {**_OUTPUT, "output": [_IMAGE]}]},
    rules.NO_TOOLS: {"tool_choice": "required"},
    rules.NO_FUNCTION: {"tools": [TOOL], "tool_choice": {"type": "function", "name": "n"}},
    rules.GRAMMAR: {
        "tools": [
            {"type": "custom", "name": "n", "format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
        ]
    },
    rules.TWO_FORMATS: {"structured_outputs": {"regex": "a"}, "text": {"format": {"type": "json_object"}}},
    rules.SAMPLING: {"min_p": 1.5},
    rules.SALT: {"cache_salt": "a/b"},
    rules.ORPHAN: {"input": [_OUTPUT, _FUNCTION]},
    rules.OUTPUT_PARTS: {"input": [_FUNCTION, {**_OUTPUT, "output": [{"type": "input_text", "text": "a"}]}]},
    rules.CUSTOM: {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "a"}]},
}


def test_every_rule_can_be_broken() -> None:
    named = {value for name, value in vars(rules).items() if name.isupper() and isinstance(value, str)}
    assert named == BREACHES.keys()
    for rule, wire in BREACHES.items():
        body = {"input": "x", "tools": [TOOL] if "tool_choice" not in wire else [], **wire}
        of_all, of_gpt_oss = rules.broken_rule(body), rules.broken_rule_of_gpt_oss(body)
        assert (of_all, of_gpt_oss) == (None if rule.startswith("gpt-oss") else rule, rule)


@pytest.mark.parametrize("name", sorted(TAKEN.keys() - STRICTER.keys()))
def test_what_vllm_takes_is_taken_and_sent_in_a_shape_it_takes(name: str) -> None:
    request = parse_request(TAKEN[name])
    body = upstream_body(request.options, [], request.input, seed=1, policy=POLICY)
    assert broken_rule(body) is None
    # And as the history of another turn.
    later = upstream_body({"model": "tiny"}, request.input, NEW, seed=1, policy=POLICY)
    assert broken_rule(later) is None


@pytest.mark.parametrize(("name", "param"), STRICTER.items(), ids=STRICTER.keys())
def test_where_we_are_stricter(name: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(TAKEN[name])
    assert caught.value.param == param


#: Requests that a real vLLM refuses or dies on and that now work, because of what is sent in their place.
MENDED = {
    "assistant_empty_content",
    "assistant_null_status",
    "assistant_output_text_notype",
    "assistant_refusal",
    "err_background_nostore",
    "err_prev_id",
    "include_unknown",
    "include_unknown_stream",
    "item_apply_patch_call",
    "item_code_interpreter_call",
    "item_computer_call",
    "item_file_search_call",
    "item_image_generation_call",
    "item_local_shell_call",
    "item_mcp_approval_request",
    "item_mcp_approval_response",
    "item_mcp_call",
    "item_mcp_list_tools",
    "item_shell_call",
    "item_unknown_type",
    "item_web_search_call",
    "tool_custom_grammar",
    "tool_unknown",
    "turn2_enc_nonnull",
    "turn2_enc_nonnull_stream",
    "turn2_no_summary",
}


def test_what_vllm_refuses_is_mended_or_refused_at_the_door() -> None:
    mended = set()
    for name, (wire, status) in REQUESTS.items():
        if status == 200:
            continue
        try:
            request = parse_request(wire)
            body = upstream_body(request.options, [], request.input, seed=1, policy=POLICY)
        except ApiError:
            continue
        if broken_rule(body) is None:
            mended.add(name)
    assert mended == MENDED
