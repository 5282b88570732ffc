"""A request to the simulated vLLM, read and checked as vLLM 0.32 does it. Pure.

Law: what vLLM refuses is refused with its status, type and `param`; what it ignores is ignored, unknown fields too.
"""

import re
from dataclasses import dataclass
from typing import Any

from cli import simulated_schema as schema
from cli.simulated_refusal import Refusal, bad_parameter, bad_schema
from shared.json_codec import Wire

_INCLUDES = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
)
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority")
_FORMATS = ("text", "json_object", "json_schema")
_SCHEMA_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
_MAX_LOGPROBS = 20

#: Kinds of tools that are taken; all but the first three are echoed and otherwise ignored.
_TOOLS = re.compile(
    r"function|custom|namespace|web_search(_\d{4}_\d\d_\d\d)?|web_search_preview(_\d{4}_\d\d_\d\d)?|file_search|mcp|"
    r"code_interpreter|image_generation|local_shell|shell|apply_patch|tool_search|computer|computer_use_preview"
)


def _tool(loc: str, value: Any) -> Wire:
    kind = value.get("type") if isinstance(value, dict) else None
    named = kind not in ("function", "custom", "namespace") or (
        isinstance(value.get("name"), str) and isinstance(value.get("parameters"), dict | None)
    )
    if isinstance(kind, str) and _TOOLS.fullmatch(kind) and named:
        return schema.mapping(loc, value)
    raise bad_schema(f"{loc}.FunctionTool.name", "missing", "Field required", value)


def _tool_choice(loc: str, value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return value
    return schema.one_of("none", "auto", "required")(loc, value)


def _reasoning(loc: str, value: Any) -> Wire:
    if (effort := schema.mapping(loc, value).get("effort")) is not None:
        schema.one_of(*_EFFORTS)(f"{loc}.effort", effort)
    return schema.mapping(loc, value)


def _text_config(loc: str, value: Any) -> Wire:
    if (form := schema.mapping(loc, value).get("format")) is not None:
        schema.one_of(*_FORMATS)(f"{loc}.format.type", schema.mapping(f"{loc}.format", form).get("type"))
    return schema.mapping(loc, value)


#: Every field that is read, with its reader, in the order in which vLLM checks them.
_READERS: dict[str, schema.Reader] = {
    "background": schema.boolean,
    "include": schema.list_of(schema.one_of(*_INCLUDES)),
    "input": schema.input_items,
    "instructions": schema.text,
    "max_output_tokens": schema.integer,
    "max_tool_calls": schema.integer,
    "metadata": schema.metadata,
    "model": schema.text,
    "parallel_tool_calls": schema.boolean,
    "previous_response_id": schema.text,
    "reasoning": _reasoning,
    "service_tier": schema.one_of(*_SERVICE_TIERS),
    "store": schema.boolean,
    "stream": schema.boolean,
    "temperature": schema.number,
    "text": _text_config,
    "tool_choice": _tool_choice,
    "tools": schema.list_of(_tool),
    "top_logprobs": schema.integer,
    "top_p": schema.number,
    "truncation": schema.one_of("auto", "disabled"),
    "user": schema.text,
    "presence_penalty": schema.number,
    "frequency_penalty": schema.number,
    "seed": schema.integer,
    "stop": schema.strings,
    "ignore_eos": schema.boolean,
    "include_reasoning": schema.boolean,
    "enable_response_messages": schema.boolean,
    "request_id": schema.text,
    "chat_template_kwargs": schema.mapping,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that vLLM would start to serve. `fields` holds what was given and known, read; nulls are left out."""

    fields: Wire

    def get(self, name: str, default: Any = None) -> Any:
        """A field; `default` where it was absent or null."""
        return self.fields.get(name, default)

    @property
    def stream(self) -> bool:
        """Whether events are asked for."""
        return bool(self.get("stream", False))

    @property
    def tools(self) -> list[Wire]:
        """As they were sent."""
        return list(self.get("tools", []))

    @property
    def tool_choice(self) -> Any:
        """What counts: without tools it is `none`, whatever was sent."""
        return self.get("tool_choice", "auto") if self.tools else "none"

    @property
    def parses_calls(self) -> bool:
        """Whether vLLM's tool parser is on; `none`, `allowed_tools` and hosted choices switch it off."""
        choice = self.tool_choice
        return choice in ("auto", "required") or (isinstance(choice, dict) and choice.get("type") == "function")

    @property
    def forced_tool(self) -> str | None:
        """The one tool that must be called, or `*` for any of them."""
        choice = self.tool_choice
        if choice == "required":
            return "*"
        return choice["name"] if isinstance(choice, dict) and choice.get("type") == "function" else None

    @property
    def thinking(self) -> bool:
        """Off with effort `none`, or by the template's switch."""
        if (self.get("reasoning") or {}).get("effort") == "none":
            return False
        return self.get("chat_template_kwargs", {}).get("enable_thinking") is not False

    @property
    def logprobs(self) -> int | None:
        """How many alternatives each token of a message comes with; None where no log probabilities were asked for."""
        if "message.output_text.logprobs" not in self.get("include", []):
            return None
        return int(self.get("top_logprobs", 0))

    @property
    def output_format(self) -> Wire | None:
        """`json_object` or `json_schema`; None for plain text."""
        form = (self.get("text") or {}).get("format")
        return form if form and form["type"] != "text" else None


def read_request(body: Any) -> Request:
    """The request in a decoded body. Raises `Refusal`."""
    if not isinstance(body, dict):
        raise bad_schema("body", "model_attributes_type", "Input should be a valid dictionary", body)
    if body.get("prompt") is not None:
        raise bad_parameter("prompt template is not supported", "prompt")
    if body.get("cache_salt") == "":
        raise bad_parameter("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if "input" not in body:
        raise bad_schema("body.input", "missing", "Field required", body)
    fields = {
        name: read(f"body.{name}", body[name])
        for name, read in _READERS.items()
        if body.get(name) is not None or (name == "input" and name in body)
    }
    return Request(fields)


def check(request: Request, models: tuple[str, ...], max_model_len: int) -> None:
    """What vLLM refuses after the schema, but for what it finds in the items. Raises `Refusal`."""
    model = request.get("model", models[0])
    if model not in models:
        message = f"The model `{model}` does not exist. Valid aliases: {', '.join(models)}."
        raise Refusal(message, status=404, kind="NotFoundError", param="model")
    if request.get("background"):
        raise Refusal(
            "This vLLM engine does not support `store=True` and therefore does not support the background mode. "
            "To enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when "
            "launching the vLLM server.",
            kind="invalid_request_error",
            param="background",
        )
    if previous := request.get("previous_response_id"):
        raise unknown_response(previous)
    _check_tools(request)
    _check_sampling(request, max_model_len)


def unknown_response(response_id: str) -> Refusal:
    """There is no store: every response id is unknown."""
    message = f"Response with id '{response_id}' not found."
    return Refusal(message, status=404, kind="invalid_request_error", param="response_id")


def _check_tools(request: Request) -> None:
    for tool in request.tools:
        if tool["type"] == "custom" and (tool.get("format") or {}).get("type") == "grammar":
            raise bad_parameter(
                "Custom tools with a grammar format are not supported; only free-form text custom tools are accepted.",
                "tools",
            )
    choice = request.get("tool_choice", "auto")
    if choice == "required" and not request.tools:
        raise bad_parameter("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
    if isinstance(choice, dict) and choice["type"] == "function":
        names = [tool.get("name") for tool in request.tools]
        if choice.get("name") not in names:
            raise bad_parameter("Tool choice 'function' not found in 'tools' parameter.", "tool_choice")
    form = request.output_format
    kind = ((form or {}).get("schema") or {}).get("type", "object")
    if isinstance(kind, str) and kind not in _SCHEMA_TYPES:
        raise Refusal(f"Grammar error: Invalid type: {kind}")


def _check_sampling(request: Request, max_model_len: int) -> None:
    temperature, top_p = request.get("temperature", 1.0), request.get("top_p", 1.0)
    if temperature < 0:
        raise bad_parameter(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
    if temperature > 2:
        raise bad_parameter(f"temperature must be in [0, 2], got {temperature}.", "temperature", temperature)
    if not 0 < top_p <= 1:
        raise bad_parameter(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)
    limit = request.get("max_output_tokens", 1)
    if limit < 1:
        raise bad_parameter(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
    if limit > max_model_len:
        raise bad_parameter(
            f"max_output_tokens={limit} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            "max_output_tokens",
            limit,
        )
    if (alternatives := request.logprobs or 0) > _MAX_LOGPROBS:
        raise bad_parameter(
            f"Requested sample logprobs of {alternatives}, which is greater than max allowed: {_MAX_LOGPROBS}",
            "logprobs",
            alternatives,
        )
