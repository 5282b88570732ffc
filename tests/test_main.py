import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from cli import main
from cli.submission import Wish
from shared.settings import Settings


class Called:
    """Takes the place of what a command runs, and keeps what it was given."""

    def __init__(self, result: object = None) -> None:
        self.result = result
        self.arguments: tuple[Any, ...] = ()
        self.named: dict[str, Any] = {}

    def __call__(self, *arguments: Any, **named: Any) -> object:
        self.arguments, self.named = arguments, named
        return self.result


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    titles: list[str] = []
    monkeypatch.setattr(main, "setproctitle", titles.append)
    return titles


def stand_in(monkeypatch: pytest.MonkeyPatch, module: str, **names: object) -> None:
    made = ModuleType(module)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, module, made)


def rejoinder(*arguments: str, code: int = 0) -> str:
    """Run a command in this process; what it said."""
    result = CliRunner().invoke(main.app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.output


def changed(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(include=settings.model_fields_set)


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ([], {}),
        (["--vllm", "http://gpu:8000"], {"vllm_url": "http://gpu:8000"}),
        (["--redis", "redis://r:1"], {"redis_url": "redis://r:1"}),
        (["--host", "::1"], {"host": "::1"}),
        (["--port", "0"], {"port": 0}),
        (["--workers", "3"], {"workers": 3}),
        (["--concurrency", "7"], {"concurrency": 7}),
    ],
    ids=str,
)
def test_flags_of_up_become_settings(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], flags: list[str], given: dict[str, Any]
) -> None:
    up = Called(0)
    stand_in(monkeypatch, "cli.up", up=up)
    rejoinder("up", *flags)
    assert changed(up.arguments[0]) == given
    assert up.named == {"simulate": False, "simulate_at": given.get("vllm_url"), "data": Path(".rejoinder")}
    assert titles == ["rejoinder up"]


def test_the_other_flags_of_up(monkeypatch: pytest.MonkeyPatch, titles: list[str]) -> None:
    up = Called(2)
    stand_in(monkeypatch, "cli.up", up=up)
    rejoinder("up", "--simulate", "--data", "/d", code=2)
    assert up.named == {"simulate": True, "simulate_at": None, "data": Path("/d")}


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, titles: list[str]) -> None:
    monkeypatch.setenv("REJOINDER_PORT", "1")
    monkeypatch.setenv("REJOINDER_WORKERS", "2")
    monkeypatch.setenv("REDIS_URL", "redis://environment:1")
    up = Called(0)
    stand_in(monkeypatch, "cli.up", up=up)
    rejoinder("up", "--port", "3", "--redis", "redis://flag:1")
    assert changed(up.arguments[0]) == {"port": 3, "workers": 2, "redis_url": "redis://flag:1"}


def test_api_serves_on_its_own_address_or_an_inherited_socket(
    monkeypatch: pytest.MonkeyPatch, titles: list[str]
) -> None:
    serve = Called()
    stand_in(monkeypatch, "api.server", serve=serve)
    rejoinder("api", "--host", "h", "--port", "1", "--redis", "redis://r:1", "--vllm", "http://v")
    settings, sockets = serve.arguments
    assert sockets is None
    assert changed(settings) == {"host": "h", "port": 1, "redis_url": "redis://r:1", "vllm_url": "http://v"}

    with socket.create_server(("127.0.0.1", 0)) as listening:
        rejoinder("api", "--fd", str(os.dup(listening.fileno())))
        [inherited] = serve.arguments[1]
        assert inherited.getsockname() == listening.getsockname()
        inherited.close()
    assert titles == ["rejoinder api"] * 2


def test_worker_runs_with_its_connections_and_gives_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, titles: list[str]
) -> None:
    run_worker, connect = Called(5), Called("connected")
    stand_in(monkeypatch, "workers.pool", run_worker=run_worker)
    stand_in(monkeypatch, "workers.jobs", connect=connect)
    rejoinder("worker", "--concurrency", "7", "--redis", "redis://r:1", "--vllm", "http://v", code=5)
    settings, connected = run_worker.arguments
    assert changed(settings) == {"concurrency": 7, "redis_url": "redis://r:1", "vllm_url": "http://v"}
    assert connected() == "connected"
    assert connect.arguments == (settings,)
    assert titles == ["rejoinder worker"]


@pytest.mark.parametrize(
    ("flags", "path", "value"),
    [
        (["--model", "m"], "models", ("m",)),
        (["--max-model-len", "9"], "max_model_len", 9),
        (["--tokens-per-second", "2.5"], "faults.tokens_per_second", 2.5),
        (["--before-headers", "1"], "faults.before_headers_seconds", 1.0),
        (["--first-token", "1"], "faults.first_token_seconds", 1.0),
        (["--cut-after", "3"], "faults.cut_after", 3),
        (["--stall-after", "3"], "faults.stall_after", 3),
        (["--refuse", "503"], "faults.refuse", 503),
    ],
    ids=str,
)
def test_flags_of_the_simulated_vllm(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], flags: list[str], path: str, value: object
) -> None:
    serve = Called()
    monkeypatch.setattr("cli.simulated_vllm.serve", serve)
    rejoinder("simulate-vllm", "--host", "h", "--port", "1", *flags)
    host, port, options = serve.arguments
    assert (host, port) == ("h", 1)
    for name in path.split("."):
        options = getattr(options, name)
    assert options == value
    assert titles == ["rejoinder simulate-vllm"]


def test_demo_gives_its_exit_code(monkeypatch: pytest.MonkeyPatch, titles: list[str]) -> None:
    stand_in(monkeypatch, "cli.demo", run_demo=Called(1))
    rejoinder("demo", code=1)


@pytest.mark.parametrize(
    ("flags", "environment", "url"),
    [
        ([], "", "http://127.0.0.1:8700/v1"),
        ([], "http://there/v1", "http://there/v1"),
        (["--url", "http://h"], "http://there/v1", "http://h"),
    ],
    ids=["default", "variable", "flag"],
)
def test_clients_and_their_api(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], flags: list[str], environment: str, url: str
) -> None:
    monkeypatch.setenv("REJOINDER_URL", environment)
    watch, submit = Called(1), Called(130)
    stand_in(monkeypatch, "cli.watch", watch=watch)
    stand_in(monkeypatch, "cli.submission", submit=submit, Wish=Wish)
    assert rejoinder("watch", "resp_1", *flags, code=1) == ""
    assert watch.arguments == ("resp_1", url)
    assert rejoinder("submit", "Hi there", *flags, code=130) == ""
    assert submit.arguments == (Wish("Hi there"), url)
    assert titles == ["rejoinder watch", "rejoinder submit"], "which no prompt stands in"


@pytest.mark.parametrize(
    ("flags", "wish"),
    [
        ([], Wish(None)),
        (["-"], Wish("-")),
        (["--background", "x"], Wish("x", background=True)),
        (["--previous", "resp_1", "x"], Wish("x", previous="resp_1")),
        (["--model", "m", "x"], Wish("x", model="m")),
        (["--", "-x"], Wish("-x")),
    ],
    ids=str,
)
def test_flags_of_submit(monkeypatch: pytest.MonkeyPatch, titles: list[str], flags: list[str], wish: Wish) -> None:
    submit = Called(0)
    stand_in(monkeypatch, "cli.submission", submit=submit, Wish=Wish)
    rejoinder("submit", *flags)
    assert submit.arguments[0] == wish


def test_the_variable_of_clients_is_no_slip_of_the_pen(monkeypatch: pytest.MonkeyPatch, titles: list[str]) -> None:
    monkeypatch.setenv("REJOINDER_URL", "http://there/v1")
    stand_in(monkeypatch, "cli.up", up=Called(0))
    assert rejoinder("up") == ""


@pytest.mark.parametrize("command", ["up", "api", "worker"])
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("LEASE", "-77", "REJOINDER_LEASE: Input should be greater than 0"),
        ("LEASE", "hush", "REJOINDER_LEASE: Input should be a valid number, unable to parse string as a number"),
        ("LOG_LEVEL", "hush", "REJOINDER_LOG_LEVEL: Input should be 'debug', 'info', 'warning' or 'error'"),
        ("VLLM_URL", "hush:8000", "--vllm / REJOINDER_VLLM_URL: begin it with http:// or https://"),
        (
            "VLLM_URL",
            "http://me:hush@gpu",
            "--vllm / REJOINDER_VLLM_URL: write it like http://HOST:8000, without name, password or space",
        ),
        ("CHAT_TEMPLATE_KWARGS", "{hush", "REJOINDER_CHAT_TEMPLATE_KWARGS is not a JSON object"),
        ("CHAT_TEMPLATE_KWARGS", '["hush"]', "REJOINDER_CHAT_TEMPLATE_KWARGS is not a JSON object"),
        (
            "REASONING_CONTEXT",
            '{"hush": "a", "m": "b"}',
            "REJOINDER_REASONING_CONTEXT, for a model: Input should be 'all_turns' or 'current_turn'",
        ),
    ],
    ids=["range", "number", "choice", "scheme", "password", "no JSON", "no object", "of a model"],
)
def test_a_wrong_setting_is_named_as_its_user_knows_it_and_its_value_is_not(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], command: str, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"REJOINDER_{variable}", value)
    assert rejoinder(command, code=2) == f"rejoinder {command}: {says}\n"


@pytest.mark.parametrize("command", ["up", "api", "worker"])
@pytest.mark.parametrize("variable", ["", "REJOINDER_REDIS_URL", "REDIS_URL"], ids=["flag", "ours", "plain"])
@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "hush",
            "http://hush",
            "REDIS://hush",
            "redis://:hush/secret@h:6379",
            "redis://:6379/hush@h",
            "redis://h:hush",
        ),
        *(
            "redis://:1?hush@h",
            "redis://:1#hush@h",
            "redis://[hush",
            "redis://h?db=hush",
            "redis://h?hush=1",
            "unix://",
        ),
    ],
)
def test_what_is_no_redis_address_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], command: str, variable: str, url: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, url)
    said = rejoinder(command, *([] if variable else ["--redis", url]), code=2)
    assert said.startswith(f"rejoinder {command}: --redis / REJOINDER_REDIS_URL is no Redis address; give one like ")
    assert said.count("\n") == 1
    assert "hush" not in said


@pytest.mark.parametrize(
    "url",
    [
        *("redis://", "redis://h", "redis://h:1/2", "redis://me:%2Fhush@h:1/2", "redis://[::1]:1", "redis://h?db=1"),
        *("rediss://h:1/0", "rediss://h?ssl_cert_reqs=none", "unix:///s?db=1", "unix://me:hush@/at@home/s"),
        "redis://h?health_check_interval=3",
    ],
)
def test_every_redis_address_that_redis_py_takes_will_do(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], url: str
) -> None:
    up = Called(0)
    stand_in(monkeypatch, "cli.up", up=up)
    assert rejoinder("up", "--redis", url) == ""
    assert changed(up.arguments[0]) == {"redis_url": url}


def test_only_a_flag_that_the_command_has_is_named(monkeypatch: pytest.MonkeyPatch, titles: list[str]) -> None:
    monkeypatch.setenv("REJOINDER_PORT", "70000")
    names = {command: rejoinder(command, code=2).split(": ")[1] for command in ("up", "api", "worker")}
    flag = "--port / REJOINDER_PORT"
    assert names == {"up": flag, "api": flag, "worker": "REJOINDER_PORT"}
    monkeypatch.delenv("REJOINDER_PORT")
    assert rejoinder("up", "--port", "70000", code=2).split(": ")[1] == flag


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["REJOINDER_LEESE"], "REJOINDER_LEESE (do you mean REJOINDER_LEASE?)"),
        (["REJOINDER_ZZ", "REJOINDER_AA"], "REJOINDER_AA, REJOINDER_ZZ"),
    ],
    ids=["a typo", "two"],
)
def test_variables_that_are_no_settings_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, titles: list[str], names: list[str], says: str
) -> None:
    monkeypatch.setenv("rejoinder_lease", "3")  # case does not matter
    for name in names:
        monkeypatch.setenv(name, "hush")
    up = Called(0)
    stand_in(monkeypatch, "cli.up", up=up)
    assert rejoinder("up") == f"rejoinder up: no such setting, ignored: {says}\n"
    assert changed(up.arguments[0]) == {"lease": 3.0}


@pytest.mark.parametrize(
    ("flag", "value"), [("--refuse", "200"), ("--cut-after", "-1"), ("--first-token", "-1"), ("--before-headers", "-1")]
)
def test_a_wrong_pace_is_named(titles: list[str], flag: str, value: str) -> None:
    said = rejoinder("simulate-vllm", flag, value, code=2)
    assert said.startswith(f"rejoinder simulate-vllm: {flag}: Input should be greater than or equal to ")


FLAGS = {"up": {"vllm_url", "redis_url", "host", "port", "workers", "concurrency"}}
FLAGS |= {"api": {"vllm_url", "redis_url", "host", "port"}, "worker": {"vllm_url", "redis_url", "concurrency"}}


@pytest.mark.parametrize("command", [*FLAGS, "simulate-vllm", "demo", "watch", "submit"])
def test_help_tells_variable_and_default_of_every_flag_and_where_the_rest_stands(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = rejoinder(command, "--help")
    for name in FLAGS.get(command, ()):
        ours = command == "up" and name == "redis_url"
        default = "a Redis that is started for you" if ours else Settings.model_fields[name].default
        variables = f"REJOINDER_{name.upper()}" + (" or REDIS_URL" if name == "redis_url" else "")
        assert f"({variables}; default: {default})." in shown
    assert "README.md, section Settings" in shown
    assert ("a relative one is in the current folder" in shown) is (command == "up")


def test_the_installed_command_says_its_version() -> None:
    command = Path(sys.executable).parent / "rejoinder"
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert said.stdout == f"rejoinder {version('rejoinder')}\n"
