"""A console whose time stands still unless a test moves it: that of the store, and that of the page."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.console import Console
from penstock.embedded import open_store
from penstock.server._config import Config
from penstock.server._console import ConsoleAccess, ConsoleFigures
from penstock.server._futoin import FutoinPort
from penstock.server._health import Health
from penstock.server._http import HttpServer, new_app
from penstock.server._limits import Limits, QuotaUse
from penstock.server._log_counts import LogCounter, LogCounts, LoggedError
from penstock.server._metrics import new_registry
from penstock.testing import ManualClock
from tests.console.pages import window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from penstock.stream import Engine

__all__ = ["BEGIN", "Still", "still"]

BEGIN: Final = 1_795_003_200.0  # noon of a day, in UTC
_LIMITS: Final = (  # invented, as the connections and the sent bytes below: nothing here is measured
    QuotaUse("clients", 1024, 5, 0),
    QuotaUse("calls", 256, 12, 0),
    QuotaUse("handles", 4096, 3967, 0),
    QuotaUse("uploads", 64, 2, 3),
)
_LOGGED: Final = LogCounts(1, 3, LoggedError(BEGIN + 42, "a request failed: RuntimeError: can't start new thread"))
_COUNTED: Final = """
    window.callsUnderWay = 0;
    const [ask, read] = [window.fetch, Response.prototype.json];
    const ended = () => { window.callsUnderWay -= 1; };
    window.fetch = (...call) => {
        window.callsUnderWay += 1;
        const answer = ask(...call);
        answer.catch(ended);
        return answer;
    };
    Response.prototype.json = function () { return read.call(this).finally(ended); };
"""  # a call has ended when its answer was read; the events of the browser about it come later
_DRAWN: Final = """() => new Promise((done) => {
    const way = new MessageChannel();
    way.port1.onmessage = done;
    way.port2.postMessage(0);
})"""


class Still(NamedTuple):
    """A store, its clock, and a page of its console."""

    store: Engine
    clock: ManualClock
    page: Page
    console: Console

    def go(self, place: str) -> None:
        """Go to a place of the console, and wait until it has its answers."""
        self.page.goto(f"/console/{place}")
        self.settle()

    def run(self, seconds: int, work: Callable[[], None] | None = None) -> None:
        """Let time pass for the store and the page, a second at a time; ``work`` is done before each."""
        for _ in range(seconds):
            if work is not None:
                work()
            self.pass_time(1)
            self.page.clock.run_for(1000)
            self.settle()

    def pass_time(self, seconds: float) -> None:
        """Let time pass for the store alone, and for the samples that the server takes of it."""
        self.clock.advance(seconds)
        self.store.maintain()
        self.console.sample()

    def settle(self) -> None:
        """Wait until the page has the answers to its calls, and has drawn them."""
        self.page.evaluate(_DRAWN)
        while self.page.evaluate("window.callsUnderWay"):
            self.page.evaluate(_DRAWN)
        self.page.evaluate(_DRAWN)


@contextmanager
def still(
    browser: Browser,
    folder: Path,
    prepare: Callable[[Engine, ManualClock], object],
    **settings: Any,  # noqa: ANN401
) -> Iterator[Still]:
    """Open the console of a store in memory that was prepared; then both clocks say the same."""
    clock = ManualClock(BEGIN)
    with (
        open_store("memory:", clock=clock) as store,
        _served(store, folder) as (port, console),
        window(browser, port, **settings) as page,
    ):
        store.maintenance.close()  # it runs when a test says so, not when its thread gets its turn
        prepare(store, clock)
        page.clock.install(time=clock.now() - 1)
        page.clock.pause_at(clock.now())
        page.add_init_script(_COUNTED)
        yield Still(store, clock, page, console)


@contextmanager
def _served(store: Engine, folder: Path) -> Iterator[tuple[int, Console]]:
    """Serve a store that is open already, without users; give the port, and the console."""
    config = Config(http_port=0, shutdown_timeout_s=1.0, anonymous=True)
    http, health, futoin = HttpServer(config, None), Health(store, folder), FutoinPort(store, None, config)
    connections: dict[str, Callable[[], int]] = {"flight": lambda: 3, "http": lambda: 2, "websocket": lambda: 0}
    logged = LogCounter()
    logged.counts = _LOGGED
    figures = ConsoleFigures(
        health, connections, lambda: _LIMITS, None, sent_bytes=lambda: 100 << 20, logged=logged, cpo=None
    )
    console = Console(store, ConsoleAccess(None, Limits()), figures)
    registry = new_registry(store, connections, list, health, sent_bytes=lambda: 0, logged=logged)
    with ExitStack() as stack:
        stack.callback(console.close)
        stack.callback(http.shutdown)
        http.start(new_app(health, registry, None, futoin, console.routes))
        yield http.port, console
