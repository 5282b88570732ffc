"""`rejoinder demo`: the main job shown to a person in a terminal, and checked on the way.

    house (rejoinder up --simulate) ── story (steps, claims) ── view (terminal or pipe)

Law: exit code 0 where every claim held, 1 where one did not or nothing could be started, 130 after Ctrl-C. In each
case nothing is left running, and no file behind.
"""

import asyncio
import signal
import time

import httpx

from cli.demo_house import House, NotReady
from cli.demo_story import Refuted, Story
from cli.demo_view import View
from cli.endpoint import Refused
from cli.up import PROGRAM

_TITLE = "Rejoinder: every response is a durable job"
_INTRODUCTION = (
    "Here run Redis, the API, a worker and a simulated vLLM: no model, its words are made up. "
    "All else is real, and every text below comes from live HTTP answers."
)
_NEXT = "With a vLLM of your own: .venv/bin/rejoinder up --vllm http://HOST:8000"
_INTERRUPTED = 130
#: Seconds without a byte before the demo gives up.
_PATIENCE = 30.0


def run_demo(program: tuple[str, ...] = PROGRAM) -> int:
    """Show it; the exit code. `program` is how `rejoinder` is started."""
    return asyncio.run(_Demo(program).run())


class _Demo:
    def __init__(self, program: tuple[str, ...]) -> None:
        self._house = House(program)
        self._view = View()
        self._began = time.monotonic()

    async def run(self) -> int:
        """Signals end the story, never the tidying behind it, which takes a bounded time."""
        show = asyncio.ensure_future(self._show())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, show.cancel)
        try:
            code = await self._outcome(show)
        finally:
            amiss = await self._house.close()
        for fault in amiss:
            self._view.refuted(fault)
        if not amiss:
            self._view.claim("All of it has ended in order, its ports are closed, its files are gone.")
        if code or amiss:
            return code or 1
        self._view.line(f"\n{_NEXT}")
        return 0

    async def _outcome(self, show: "asyncio.Task[None]") -> int:
        try:
            await show
        except asyncio.CancelledError:
            self._view.line("\nInterrupted, stopping everything ...")
            return _INTERRUPTED
        except (Refuted, Refused, NotReady, httpx.HTTPError, OSError) as error:
            self._view.refuted(str(error) or type(error).__name__)
            return 1
        except (LookupError, TypeError, ValueError) as error:
            self._view.refuted(f"an answer had not the shape that it should have ({type(error).__name__})")
            return 1
        return 0

    async def _show(self) -> None:
        self._view.title(_TITLE, _INTRODUCTION)
        with self._view.busy("Starting everything ..."):
            await self._house.open()
        self._view.claim(f"Serving at {self._house.url}/v1 after {time.monotonic() - self._began:.1f} s.")
        async with (
            httpx.AsyncClient(base_url=self._house.url, trust_env=False, timeout=_PATIENCE) as client,
            httpx.AsyncClient(base_url=self._house.simulator_url, trust_env=False, timeout=_PATIENCE) as simulator,
        ):
            story = Story(client, simulator, self._view)
            await story.tell()
        self._view.step(6, "The end", f"All {story.claims} claims held, in {time.monotonic() - self._began:.0f} s.")
