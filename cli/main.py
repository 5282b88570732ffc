"""The command `rejoinder`. Each command names its process, builds the settings from flags over environment, and starts.

What a command runs is imported inside it: `rejoinder --version` loads none of it, and a worker never loads the API.
"""

import os
import socket
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from setproctitle import setproctitle

from cli.setting_names import API, unknown_variables, variable, warning, wrong_settings
from shared.settings import Settings

#: The last line of every command's help.
SEE = "Every setting and its environment variable: README.md, section Settings. A flag wins over its variable."

app = typer.Typer(
    name="rejoinder",
    help="A stateful Responses API for self-hosted vLLM: every response is a durable job.",
    epilog=SEE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables would show what users wrote
)


def _flag(setting: str, metavar: str, says: str, *, flag: str = "", variables: str = "", default: object = None) -> Any:
    """The flag of a setting. `Settings` alone reads the variable and knows the default; the help tells of both."""
    variables = variables or variable(setting)
    default = default or Settings.model_fields[setting].default
    return typer.Option(flag or f"--{setting}", metavar=metavar, help=f"{says} ({variables}; default: {default}).")


_redis_flag = partial(
    _flag, "redis_url", "URL", "Address of Redis", flag="--redis", variables="REJOINDER_REDIS_URL or REDIS_URL"
)

Host = Annotated[str | None, _flag("host", "H", "Address to serve at")]
Port = Annotated[int | None, _flag("port", "P", "Port to serve at; 0 takes a free one")]
Vllm = Annotated[str | None, _flag("vllm_url", "URL", "Address of vLLM", flag="--vllm")]
Redis = Annotated[str | None, _redis_flag()]
RedisOrOurs = Annotated[str | None, _redis_flag(default="a Redis that is started for you")]
Workers = Annotated[int | None, _flag("workers", "N", "Worker processes")]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="REJOINDER_URL",
        show_envvar=False,
        show_default=False,
        help=f"Address of the API, with or without /v1 (REJOINDER_URL; default: {API}).",
    ),
]
Concurrency = Annotated[int | None, _flag("concurrency", "N", "Turns that one worker runs at once")]


def main() -> None:
    """The console entry. What is said to a stderr that was closed goes nowhere, and no connection becomes file 2."""
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it was closed
        sys.stderr = os.fdopen(2, "w")
    app()


def _fail(command: str, message: str) -> NoReturn:
    sys.stderr.write(f"rejoinder {command}: {message}\n")
    raise typer.Exit(2)


def _settings(command: str, **flags: Any) -> Settings:
    """Flags over environment over defaults. What is wrong is named; its value, perhaps a secret, is not."""
    if unknown := unknown_variables(os.environ):
        sys.stderr.write(f"rejoinder {command}: {warning(unknown)}\n")
    from cli.preflight import NotStarted, check_redis_address

    try:
        settings = Settings(**{name: value for name, value in flags.items() if value is not None})
        check_redis_address(settings.redis_url)
    except (ValidationError, SettingsError) as error:
        _fail(command, wrong_settings(error, flags))
    except NotStarted as error:
        _fail(command, str(error))
    return settings


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        sys.stdout.write(f"rejoinder {version('rejoinder')}\n")
        raise typer.Exit


@app.callback()
def rejoinder(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the flags that need no command."""


@app.command(epilog=SEE)
def up(
    *,
    vllm: Vllm = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Start a simulated vLLM and use it, at --vllm or at a free port.")
    ] = False,
    redis: RedisOrOurs = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    concurrency: Concurrency = None,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder that the Redis we start keeps its data in; a relative one is in the current folder.",
        ),
    ] = Path(".rejoinder"),
) -> None:
    """Run everything in one terminal: Redis where none is given, the API and its workers."""
    setproctitle("rejoinder up")
    flags = {"vllm_url": vllm, "redis_url": redis, "host": host, "port": port, "workers": workers}
    settings = _settings("up", **flags, concurrency=concurrency)
    from cli.up import up as run

    raise typer.Exit(run(settings, simulate=simulate, simulate_at=vllm, data=data))


@app.command(epilog=SEE)
def api(
    *,
    vllm: Vllm = None,
    redis: Redis = None,
    host: Host = None,
    port: Port = None,
    fd: Annotated[int | None, typer.Option("--fd", hidden=True, help="An inherited listening socket.")] = None,
) -> None:
    """Serve the HTTP API."""
    setproctitle("rejoinder api")
    settings = _settings("api", vllm_url=vllm, redis_url=redis, host=host, port=port)
    from api.server import serve

    serve(settings, None if fd is None else [socket.socket(fileno=fd)])


@app.command(epilog=SEE)
def worker(*, vllm: Vllm = None, redis: Redis = None, concurrency: Concurrency = None) -> None:
    """Run turns: stream them from vLLM and store what comes."""
    setproctitle("rejoinder worker")
    settings = _settings("worker", vllm_url=vllm, redis_url=redis, concurrency=concurrency)
    from workers.jobs import connect
    from workers.pool import run_worker

    raise typer.Exit(run_worker(settings, partial(connect, settings)))


@app.command(epilog=SEE)
def submit(
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="What to ask; read from stdin if it is - or not given.")
    ] = None,
    *,
    background: Annotated[
        bool, typer.Option("--background", help="Print the id of the response, and don't wait for it.")
    ] = False,
    previous: Annotated[
        str | None, typer.Option("--previous", metavar="ID", help="The response that this one continues.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model; not needed where there is only one.")
    ] = None,
    url: Url = API,
) -> None:
    """Ask something, and show the answer as it comes. Ctrl-C cancels it."""
    setproctitle("rejoinder submit")
    from cli.submission import Wish
    from cli.submission import submit as run

    raise typer.Exit(run(Wish(prompt, background=background, previous=previous, model=model), url))


@app.command(epilog=SEE)
def watch(
    response_id: Annotated[str, typer.Argument(metavar="RESPONSE_ID", help="The id of the response: resp_…")],
    *,
    url: Url = API,
) -> None:
    """Show a response, live until it has ended. Ctrl-C leaves it running."""
    setproctitle("rejoinder watch")
    from cli.watch import watch as run

    raise typer.Exit(run(response_id, url))


@app.command("simulate-vllm", epilog=SEE)
def simulate_vllm(
    *,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Address to serve at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="P", help="Port to serve at; 0 takes a free one.")] = 8000,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Name of the model it lists.")] = "simulated",
    max_model_len: Annotated[int, typer.Option("--max-model-len", metavar="N", help="Tokens of context.")] = 32_768,
    tokens_per_second: Annotated[
        float | None, typer.Option("--tokens-per-second", metavar="N", help="Pace; as fast as it goes if not given.")
    ] = None,
    before_headers: Annotated[
        float, typer.Option("--before-headers", metavar="S", help="Seconds before the answer's headers.")
    ] = 0.0,
    first_token: Annotated[
        float, typer.Option("--first-token", metavar="S", help="Seconds before the first token.")
    ] = 0.0,
    cut_after: Annotated[
        int | None, typer.Option("--cut-after", metavar="N", help="Break every stream off after N deltas.")
    ] = None,
    stall_after: Annotated[
        int | None, typer.Option("--stall-after", metavar="N", help="Go silent after N deltas.")
    ] = None,
    refuse: Annotated[
        int | None, typer.Option("--refuse", metavar="STATUS", help="Answer every request with this HTTP status.")
    ] = None,
) -> None:
    """Serve the wire of vLLM with no model behind it: every answer is made up."""
    setproctitle("rejoinder simulate-vllm")
    from cli.simulated_faults import Faults
    from cli.simulated_vllm import SimulatorOptions, serve

    try:
        faults = Faults(
            tokens_per_second=tokens_per_second,
            before_headers_seconds=before_headers,
            first_token_seconds=first_token,
            cut_after=cut_after,
            stall_after=stall_after,
            refuse=refuse,
        )
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        flags = (f"--{str(one['loc'][0]).removesuffix('_seconds').replace('_', '-')}: {one['msg']}" for one in found)
        _fail("simulate-vllm", "; ".join(flags))
    serve(host, port, SimulatorOptions(models=(model,), max_model_len=max_model_len, faults=faults))


@app.command(epilog=SEE)
def demo() -> None:
    """Show the main job in this terminal, with everything it needs."""
    setproctitle("rejoinder demo")
    from cli.demo import run_demo

    raise typer.Exit(run_demo())


if __name__ == "__main__":
    main()
