"""Where the upstream is and how we sign our requests to it. Pure."""

from shared.settings import Settings


def upstream_root(settings: Settings) -> str:
    """The upstream's root, with no slash at its end. `vllm_url` may be given with `/v1`, a slash, both or neither."""
    return settings.vllm_url.rstrip("/").removesuffix("/v1").rstrip("/")


def upstream_headers(settings: Settings) -> dict[str, str]:
    """What every request to the upstream carries: `Authorization` only where a key is set."""
    if settings.vllm_api_key is None:
        return {}
    return {"Authorization": f"Bearer {settings.vllm_api_key.get_secret_value()}"}
