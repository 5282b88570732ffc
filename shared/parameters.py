"""The parameters of a create request as pydantic shapes: names, types, limits. Pure.

Law: these check, nothing is read back through them: what is stored and sent are the wire values as they came. A name
that stands nowhere here is unknown, and goes nowhere.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.checks import MAX_TEXT

_INT64 = 2**63 - 1

Int64 = Annotated[int, Field(ge=-_INT64, le=_INT64)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)


class _BackgroundOptions(_Strict):
    completion_window: Literal["soonest", "2h", "8h"] | None = None
    continuation_id: str | None = None


class _StreamOptions(_Strict):
    include_obfuscation: bool | None = None


class _Reasoning(_Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class _Text(_Strict):
    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class _CacheOptions(_Strict):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    prewarm: bool | None = None
    comparison_response_id: str | None = None


class _ContextManagement(_Strict):
    type: Literal["compaction"]
    compact_threshold: int | None = None


class _MultiAgent(_Strict):
    enabled: bool | None = None


Include = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class UpstreamExtras(_Strict):
    """What vLLM takes beyond OpenAI's parameters; sent on as it came. Never `request_id`: response ids are ours."""

    cache_salt: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    enable_response_messages: bool | None = None
    frequency_penalty: Penalty | None = None
    ignore_eos: bool | None = None
    include_reasoning: bool | None = None
    include_stop_str_in_output: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    logit_bias: dict[str, float] | None = None
    media_io_kwargs: dict[str, Any] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    presence_penalty: Penalty | None = None
    priority: Int64 | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    seed: Int64 | None = None
    session_id: str | None = None
    skip_special_tokens: bool | None = None
    stop: Any = None
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(fail_fast=True)] | None = None
    structured_outputs: dict[str, Any] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None  # 0 and -1: no limit
    vllm_xargs: dict[str, Any] | None = None


class Parameters(UpstreamExtras):
    """The parameters of OpenAI's reference. `input` is checked apart."""

    model: Annotated[str, Field(min_length=1)]
    background: bool | None = None
    background_options: _BackgroundOptions | None = None
    context_management: Annotated[list[_ContextManagement], Field(fail_fast=True)] | None = None
    image: dict[str, Any] | None = None
    include: Annotated[list[Include], Field(fail_fast=True)] | None = None
    instructions: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    # OpenAI's floor is 16. vLLM takes 1, and a short limit is how a cut is tried out.
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
        ]
        | None
    ) = None
    multi_agent: _MultiAgent | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,256}$")] | None = None  # named in refusals
    prompt_cache_key: Annotated[str, Field(max_length=1024)] | None = None
    prompt_cache_options: _CacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    reasoning: _Reasoning | None = None
    safety_identifier: Annotated[str, Field(max_length=128)] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    text: _Text | None = None
    tool_choice: Any = None
    tools: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None


#: The vLLM parameters that are sent on as they came (`seed` among them).
UPSTREAM_EXTRAS: Final = tuple(UpstreamExtras.model_fields)
