"""Every setting, read once from `REJOINDER_…` environment variables. The only reader of the environment.

README's table documents each of them; `tests/test_settings.py` fails when one is missing there.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0)]


def _by_context(kwargs: dict[str, object]) -> dict[str, object]:
    if not all(isinstance(kwargs.get(context, {}), dict) for context in ("all_turns", "current_turn")):
        raise ValueError("all_turns and current_turn must be objects")
    return kwargs


TemplateKwargs = Annotated[dict[str, object], AfterValidator(_by_context)]


class Settings(BaseSettings):
    """The settings of one process. Times are seconds unless a name says otherwise; sizes are bytes."""

    model_config = SettingsConfigDict(
        env_prefix="REJOINDER_", frozen=True, populate_by_name=True, hide_input_in_errors=True
    )

    redis_url: str = Field(
        "redis://127.0.0.1:6379/0", validation_alias=AliasChoices("REJOINDER_REDIS_URL", "REDIS_URL")
    )
    key_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+$")] = "rejoinder:"  # what RQ takes in its own prefix
    redis_connections: Annotated[int, Field(ge=2)] = 32
    redis_timeout: Seconds = 5.0

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    max_body_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    keepalive: Literal["event", "comment", "off"] = "event"
    keepalive_interval: Seconds = 15.0
    models_cache: Seconds = 30.0

    vllm_url: Annotated[str, Field(pattern=r"^https?://[^/@\s]+(/\S*)?$")] = "http://127.0.0.1:8000"
    vllm_api_key: SecretStr | None = None
    connect_timeout: Seconds = 5.0
    first_event_timeout: Seconds = 600.0
    stall_timeout: Seconds = 120.0
    turn_timeout: Seconds = 3600.0
    max_event_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    max_item_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    max_response_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    max_items: Annotated[int, Field(ge=1)] = 1000
    max_parts: Annotated[int, Field(ge=1)] = 10_000
    max_history_bytes: Annotated[int, Field(ge=1024)] = 128 * 1024 * 1024
    max_history_items: Annotated[int, Field(ge=1)] = 20_000

    workers: Annotated[int, Field(ge=1)] = 1
    concurrency: Annotated[int, Field(ge=1)] = 100
    drain_timeout: Seconds = 10.0
    lease: Seconds = 10.0
    sweep_interval: Seconds = 2.0
    flush_interval_ms: Annotated[float, Field(ge=0)] = 5.0

    response_ttl: Seconds = 30 * 24 * 3600.0
    unstored_ttl: Seconds = 600.0
    event_log_ttl: Seconds = 3600.0

    #: What `reasoning.context: auto` means, by model; models not named here use `all_turns`.
    reasoning_context: dict[str, Literal["all_turns", "current_turn"]] = {}
    #: A client that asks for reasoning summaries gets the reasoning as one, since vLLM gives none.
    mirror_reasoning_as_summary: bool = False
    #: Added to the upstream body's `chat_template_kwargs`, by model: what makes its template keep earlier reasoning.
    #: Entries named `all_turns` and `current_turn` are objects, added for that `reasoning.context` only.
    chat_template_kwargs: dict[str, TemplateKwargs] = {}

    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def outage_patience(self) -> float:
        """How long what can't be given up waits for a Redis that is away, seconds: past it a lease has run out."""
        return self.lease + 2 * self.redis_timeout
