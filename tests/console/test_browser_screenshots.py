"""The pictures in docs/console.md, of a store and a page whose clocks stand still: the same in every run.

``PENSTOCK_SCREENSHOTS=1`` writes them to docs. Otherwise they are compared with those in docs, so that a page that has
changed gets a new picture: every text must be the same, and nearly every small square of the picture.
"""

from __future__ import annotations

import json
import os
import struct
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from penstock._version import __version__
from penstock.model import ByConsumption, BySize, ByTime, StreamConfig
from penstock.plog import SyncTimes
from penstock.testing import SeededRandom
from tests.console.pictures import difference, texts_in, texts_of, with_texts
from tests.console.still import still
from tests.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, ViewportSize

    from penstock.stream import Engine, StreamWriter
    from penstock.testing import ManualClock
    from tests.console.still import Still

STREAM: Final = "plant/readings"
PICTURES: Final = ROOT / "docs" / "console"
SIZE_MAX: Final = 150_000
WIDE: Final[ViewportSize] = {"width": 1180, "height": 780}
NARROW: Final[ViewportSize] = {"width": 360, "height": 740}
SYNCS: Final = [0, 1, 9, 91, 269, 157, 46, 7, 0, 0, 0, 0, 0, 0]  # by duration; invented, as docs/console.md says
DIFFERENT_MAX: Final = 0.01  # of the squares


class Plant:
    """Three plants that write readings and note their time; the third is behind."""

    def __init__(self) -> None:
        self._random = Random(7)
        self._writers: list[StreamWriter] = []

    def prepare(self, store: Engine, clock: ManualClock) -> None:
        """Write for a while, with splits and a merge; then a group reads, and a transaction is open."""
        self._clock = clock
        store.create_stream(STREAM, segments=2, config=StreamConfig(retention=ByTime(7 * 86_400)))
        store.create_stream("plant/alarms", config=StreamConfig(retention=BySize(1 << 30)))
        store.create_stream("shop/orders", segments=4, config=StreamConfig(retention=ByConsumption()))
        self._writers = [store.writer(STREAM, writer_id=f"plant-{number}") for number in (1, 2, 3)]
        self._run(store, 20)
        store.scale_stream(STREAM, [0], [(0.0, 0.3), (0.3, 0.5)])
        self._run(store, 30)
        store.scale_stream(STREAM, [1], [(0.5, 0.75), (0.75, 1.0)])
        self._run(store, 15)
        store.scale_stream(STREAM, [3, 4], [(0.3, 0.75)])
        self._run(store, 20)
        group = store.create_reader_group("dashboard", [STREAM])
        for reader, count in [(group.reader("wall-1"), 40), (group.reader("wall-2"), 400)]:
            for _ in range(count):
                reader.read_next_event(timeout=0)
        store.register_consumer(STREAM, "archive")
        store.transactional_writer(STREAM, "etl").begin(lease=600)

    def _run(self, store: Engine, seconds: int) -> None:
        for _ in range(seconds):
            self.write()
            self._clock.advance(1)
            store.maintain()

    def write(self, *, offline: int | None = None) -> None:
        """Write what the plants measure in a second; one of them may be offline."""
        for number, writer in enumerate(self._writers):
            if number != offline:
                self._write(number, writer)

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


@pytest.fixture
def same_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let syncs take times that were not measured, and transactions have names that are not random."""
    names = SeededRandom(7)
    monkeypatch.setattr(SyncTimes, "figures", lambda _: (SYNCS, 1.6))
    monkeypatch.setattr("penstock.ports.SystemRandom.token", lambda _, size: names.token(size))


@pytest.fixture(scope="module")
def comparison(browser: Browser) -> Iterator[Page]:
    """An empty page, in which pictures are compared."""
    page = browser.new_page()
    yield page
    page.close()


def taken(view: Still, name: str, comparison: Page, *, full: bool = True) -> None:
    """Take a picture of the page, for docs, or to compare it with the one that is there."""
    view.page.mouse.move(0, 0)
    view.settle()
    picture = view.page.screenshot(full_page=full, animations="disabled")
    width, height = struct.unpack(">II", picture[16:24])
    assert len(picture) < SIZE_MAX
    assert width >= 360 <= height
    texts = [text.replace(__version__, "VERSION") for text in texts_of(view.page)]
    file = PICTURES / f"{name}.png"
    if os.environ.get("PENSTOCK_SCREENSHOTS"):
        PICTURES.mkdir(exist_ok=True)
        file.write_bytes(with_texts(picture, texts))
    stored, advice = file.read_bytes(), f"the page has changed: make {file} with PENSTOCK_SCREENSHOTS=1"
    assert texts_in(stored) == texts, advice
    assert difference(comparison, stored, picture) <= DIFFERENT_MAX, advice


@pytest.mark.usefixtures("same_in_every_run")
def test_pictures_of_the_console(browser: Browser, comparison: Page, tmp_path: Path) -> None:
    """A reader of the documentation sees what the console is, and the pictures do not grow old."""
    plant = Plant()
    with still(browser, tmp_path, plant.prepare, viewport=WIDE) as view:
        page = view.page
        view.go(f"#/stream/{STREAM}")
        expect(page.locator(".segment")).to_have_count(7)
        view.run(24, plant.write)
        page.locator("[data-segment='6']").click()
        expect(page.locator(".selection")).to_contain_text("Segment 6")
        taken(view, "stream", comparison, full=False)
        view.go(f"#/stream/{STREAM}/readers")
        taken(view, "readers", comparison)
        view.go("#/health")
        view.run(20, plant.write)
        taken(view, "health", comparison)
        page.emulate_media(color_scheme="dark")
        view.go(f"#/stream/{STREAM}/time")
        view.run(6, plant.write)
        view.run(8, partial(plant.write, offline=2))
        expect(page.locator("main")).to_contain_text("holds time back")
        taken(view, "time", comparison)
        page.emulate_media(color_scheme="light")
        view.go(f"#/stream/{STREAM}/events")
        page.get_by_role("button", name="Pause").click()
        page.locator(".events li button").nth(-4).click()
        expect(page.locator(".detail pre")).to_contain_text("degrees")
        taken(view, "events", comparison, full=False)
        page.set_viewport_size(NARROW)
        view.go("#/streams")
        taken(view, "narrow", comparison)


@pytest.mark.usefixtures("same_in_every_run")
def test_a_picture_is_the_same_in_every_run_and_another_page_is_not(
    browser: Browser, comparison: Page, tmp_path: Path
) -> None:
    """A comparison that fails by chance is switched off; one that never fails compares nothing."""
    pictures: list[tuple[bytes, list[str]]] = []
    for _ in range(2):
        plant = Plant()
        with still(browser, tmp_path, plant.prepare, viewport=WIDE) as view:
            view.go(f"#/stream/{STREAM}")
            view.run(4, plant.write)
            pictures.append((view.page.screenshot(), texts_of(view.page)))
            view.page.locator("[data-segment='6']").click()
            pictures.append((view.page.screenshot(), texts_of(view.page)))
    (first, texts), (selected, other_texts), (again, same_texts), _ = pictures
    assert same_texts == texts != other_texts
    assert texts_in(with_texts(first, texts)) == texts
    assert difference(comparison, first, again, square=1) == 0
    assert difference(comparison, first, with_texts(again, texts)) == 0
    assert difference(comparison, first, selected) > DIFFERENT_MAX
