"""The pictures in docs/console.md, of a store whose clock stands still: the same in every run.

``PENSTOCK_SCREENSHOTS=1`` writes them to docs; otherwise the pages are drawn all the same, and the files only compared
in number and size.
"""

from __future__ import annotations

import json
import os
import struct
from contextlib import ExitStack, contextmanager
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from penstock.console import Console
from penstock.embedded import open_store
from penstock.model import ByConsumption, BySize, ByTime, StreamConfig
from penstock.server._config import Config
from penstock.server._console import ConsoleAccess, ConsoleFigures
from penstock.server._futoin import FutoinPort
from penstock.server._health import Health
from penstock.server._http import HttpServer, new_app
from penstock.server._limits import Limits
from penstock.server._metrics import new_registry
from penstock.testing import ManualClock
from tests.console.pages import launched, window
from tests.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from penstock.stream import Engine, StreamWriter

STREAM: Final = "plant/readings"
BEGIN: Final = 1_795_003_200.0
PICTURES: Final = ROOT / "docs" / "console"
SIZE_MAX: Final = 150_000
DRAWN: Final = """() => new Promise((done) => {
    const way = new MessageChannel();
    way.port1.onmessage = done;
    way.port2.postMessage(0);
})"""
WIDE: Final = {"width": 1180, "height": 780}


@contextmanager
def served(store: Engine, folder: Path) -> Iterator[int]:
    """Serve a store that is open already, without users; give the port."""
    config = Config(http_port=0, shutdown_timeout_s=1.0, anonymous=True)
    http, health, futoin = HttpServer(config, None), Health(store, folder), FutoinPort(store, None, config)
    connections: dict[str, Callable[[], int]] = {"flight": lambda: 3, "http": lambda: 2, "websocket": lambda: 0}
    figures = ConsoleFigures(health, connections, list, None, sent_bytes=lambda: 0, cpo=None)
    console = Console(store, ConsoleAccess(None, Limits()), figures)
    registry = new_registry(store, connections, list, health, sent_bytes=lambda: 0)
    with ExitStack() as stack:
        stack.callback(console.close)
        stack.callback(http.shutdown)
        http.start(new_app(health, registry, None, futoin, console.routes))
        yield http.port


class Plant:
    """Three plants that write readings and note their time; the third is behind."""

    def __init__(self, store: Engine, clock: ManualClock) -> None:
        self._store, self._clock, self._random = store, clock, Random(7)
        self._writers: list[StreamWriter] = [store.writer(STREAM, writer_id=f"plant-{number}") for number in (1, 2, 3)]

    def run(self, seconds: int, *, offline: int | None = None) -> None:
        """Let some seconds pass."""
        for _ in range(seconds):
            for number, writer in enumerate(self._writers):
                if number != offline:
                    self._write(number, writer)
            self._clock.advance(1)
            self._store.maintain()

    def _write(self, number: int, writer: StreamWriter) -> None:
        now_ms = int(self._clock.now() * 1000)
        sensors = [f"sensor-{self._random.randrange(60)}" for _ in range(self._random.randint(14, 22))]
        readings = [
            {"sensor": sensor, "degrees": round(self._random.gauss(71, 9), 1), "plant": number + 1, "at": now_ms}
            for sensor in sensors
        ]
        writer.write_batch([json.dumps(reading).encode() for reading in readings], sensors).result()
        writer.note_time(now_ms - (1_500, 4_000, 9_000)[number])
        writer.flush()


def prepare(store: Engine, clock: ManualClock) -> Plant:
    store.create_stream(STREAM, segments=2, config=StreamConfig(retention=ByTime(7 * 86_400)))
    store.create_stream("plant/alarms", config=StreamConfig(retention=BySize(1 << 30)))
    store.create_stream("shop/orders", segments=4, config=StreamConfig(retention=ByConsumption()))
    plant = Plant(store, clock)
    plant.run(20)
    store.scale_stream(STREAM, [0], [(0.0, 0.3), (0.3, 0.5)])
    plant.run(30)
    store.scale_stream(STREAM, [1], [(0.5, 0.75), (0.75, 1.0)])
    plant.run(15)
    store.scale_stream(STREAM, [3, 4], [(0.3, 0.75)])
    plant.run(20)
    group = store.create_reader_group("dashboard", [STREAM])
    for reader in [group.reader("wall-1"), group.reader("wall-2")]:
        for _ in range(40):
            reader.read_next_event(timeout=0)
    store.register_consumer(STREAM, "archive")
    store.transactional_writer(STREAM, "etl").begin(lease=60)
    return plant


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


class Steps:
    """Lets time pass for the store and the page, a second at a time, and waits until the page has its answers."""

    def __init__(self, page: Page, plant: Plant) -> None:
        self._page, self._plant = page, plant
        self._asked = 0
        page.on("request", lambda _: self._count(1))
        page.on("requestfinished", lambda _: self._count(-1))
        page.on("requestfailed", lambda _: self._count(-1))

    def _count(self, more: int) -> None:
        self._asked += more

    def run(self, seconds: int, *, offline: int | None = None) -> None:
        for _ in range(seconds):
            self._plant.run(1, offline=offline)
            self._page.clock.run_for(1000)
            self.settle()

    def settle(self) -> None:
        self._page.evaluate(DRAWN)
        while self._asked:
            self._page.evaluate(DRAWN)
        self._page.evaluate(DRAWN)


def taken(page: Page, steps: Steps, name: str, folder: Path, *, full: bool = True) -> None:
    page.mouse.move(0, 0)
    steps.settle()
    picture = page.screenshot(full_page=full, animations="disabled")
    width, height = struct.unpack(">II", picture[16:24])
    assert len(picture) < SIZE_MAX
    assert width >= 360 <= height
    target = PICTURES if os.environ.get("PENSTOCK_SCREENSHOTS") else folder
    target.mkdir(exist_ok=True)
    (target / f"{name}.png").write_bytes(picture)
    assert (PICTURES / f"{name}.png").exists(), "run the test with PENSTOCK_SCREENSHOTS=1"


def test_pictures_of_the_console(browser: Browser, tmp_path: Path) -> None:
    """A reader of the documentation sees what the console is, and the pictures do not grow old."""
    clock = ManualClock(BEGIN)
    with (
        open_store("memory:", clock=clock) as store,
        served(store, tmp_path) as port,
        window(browser, port, viewport=WIDE) as page,
    ):
        plant = prepare(store, clock)
        page.clock.install(time=clock.now())
        steps = Steps(page, plant)
        page.goto(f"/console/#/stream/{STREAM}")
        expect(page.locator(".segment")).to_have_count(7)
        steps.run(24)
        page.locator("[data-segment='6']").click()
        expect(page.locator(".selection")).to_contain_text("Segment 6")
        taken(page, steps, "stream", tmp_path, full=False)
        page.emulate_media(color_scheme="dark")
        page.goto(f"/console/#/stream/{STREAM}/time")
        expect(page.locator(".chart.time")).to_be_visible()
        steps.run(4)
        steps.run(8, offline=2)
        expect(page.locator("main")).to_contain_text("holds time back")
        taken(page, steps, "time", tmp_path)
        page.emulate_media(color_scheme="light")
        page.goto(f"/console/#/stream/{STREAM}/events")
        expect(page.locator(".events li")).to_have_count(200)
        page.get_by_role("button", name="Pause").click()
        page.locator(".events li button").nth(-4).click()
        expect(page.locator(".detail pre")).to_contain_text("degrees")
        taken(page, steps, "events", tmp_path, full=False)
        page.set_viewport_size({"width": 360, "height": 740})
        page.goto("/console/#/streams")
        expect(page.get_by_role("link", name=STREAM)).to_be_visible()
        taken(page, steps, "narrow", tmp_path)
