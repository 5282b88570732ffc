"""README's tables and the code say the same: every setting, command and flag, in both directions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import ValidationError

from cli.main import app
from shared.json_codec import encode
from shared.settings import Settings

README = (Path(__file__).parent.parent / "README.md").read_text()


def rows(section: str) -> list[list[str]]:
    """The cells of the one table under a heading of README, its head left out."""
    match = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert match, f"README has no section {section}"
    lines = [line for line in match[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def shown(default: Any) -> str:
    if default is None:
        return "none"
    return f"`{encode(default).decode() if isinstance(default, dict | bool) else default}`"


def test_every_setting_stands_in_readme_with_its_default_and_no_other() -> None:
    expected = [(f"`REJOINDER_{name.upper()}`", shown(field.default)) for name, field in Settings.model_fields.items()]
    assert [(variable, default) for variable, default, _ in rows("Settings")] == expected


def test_every_setting_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {
        "port": "17000",
        "keepalive": "off",
        "log_level": "error",
        "reasoning_context": '{"m":"current_turn"}',
        "chat_template_kwargs": '{"m":{"k":1}}',
        "mirror_reasoning_as_summary": "true",
    }
    for name, field in Settings.model_fields.items():
        text = f"{field.default}1"  # another text, another number
        monkeypatch.setenv(f"REJOINDER_{name.upper()}", other.get(name, text))
    settings = Settings()
    assert [
        name for name in Settings.model_fields if getattr(settings, name) == Settings.model_fields[name].default
    ] == []


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "redis://127.0.0.1:6379/0"),
        ({"REDIS_URL": "redis://plain:1"}, "redis://plain:1"),
        ({"REJOINDER_REDIS_URL": "redis://ours:1"}, "redis://ours:1"),
        ({"REDIS_URL": "redis://plain:1", "REJOINDER_REDIS_URL": "redis://ours:1"}, "redis://ours:1"),
    ],
    ids=["neither", "plain", "ours", "ours over plain"],
)
def test_redis_url(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings().redis_url == url
    assert ("redis_url" in Settings().model_fields_set) is bool(environment)
    assert Settings(redis_url="redis://given:1").redis_url == "redis://given:1"


def commands() -> Iterator[tuple[str, object]]:
    """Every command and flag of `rejoinder` as README writes it, with its default."""
    root = typer.main.get_command(app)
    for name, command in {"": root, **root.commands}.items():  # type: ignore[attr-defined]
        start = f"rejoinder {name}".strip()
        arguments = [one.metavar for one in command.params if one.param_type_name == "argument"]
        if name:
            yield f"`{' '.join([start, *arguments])}`", None
        for flag in command.params:
            if flag.name == "help" or flag.hidden or flag.param_type_name == "argument":
                continue
            value = "" if flag.is_flag else f" {flag.metavar}"
            yield f"`{start} {flag.opts[0]}{value}`", flag.default


def test_every_command_and_flag_stands_in_readme_and_no_other() -> None:
    assert sorted(row[0] for row in rows("Commands")) == sorted(text for text, _ in commands())


def test_readme_shows_the_default_of_every_flag_that_has_one() -> None:
    said = {row[0]: row[1] for row in rows("Commands")}
    for text, default in commands():
        if default is not None and default is not False:
            assert f"Default: `{default}`." in said[text], text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm_url", "ftp://127.0.0.1:1"),
        ("vllm_url", "127.0.0.1:8000"),
        ("vllm_url", "http://user:secret@host"),
        ("key_prefix", "with space"),
        ("port", "70000"),
        ("lease", "-5"),
        ("chat_template_kwargs", {"secret": {"all_turns": ["secret"]}}),
    ],
)
def test_a_value_that_can_not_be_is_refused_without_being_told(name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**{name: value})  # type: ignore[arg-type]  # as the environment gives it
    assert name in str(refused.value)
    assert str(value) not in str(refused.value)
