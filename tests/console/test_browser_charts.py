"""The charts and their axes, in a real browser: times of other days, writers and watermarks that stand still."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect

from tests.console.still import BEGIN, still

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from penstock.stream import Engine
    from penstock.testing import ManualClock

STREAM: Final = "plant/readings"
DAY_S: Final = 86_400
BOUNDS: Final = "path => { const box = path.getBBox(); return [box.x, box.x + box.width]; }"

CUT_OFF: Final = """chart => {
    const box = document.querySelector(chart).getBoundingClientRect();
    const isIn = (text) => text.left >= box.left && text.right <= box.right && text.bottom <= box.bottom + 2;
    return [...document.querySelectorAll(`${chart} .tick`)]
        .filter((text) => !isIn(text.getBoundingClientRect())).map((text) => text.textContent);
}"""  # a line of text is a little higher than its digits


def write(store: Engine, name: str = STREAM) -> None:
    with store.writer(name) as writer:
        writer.write_event(b"event", key="key").result()


def two_days(store: Engine, clock: ManualClock) -> None:
    """Write to a stream over two days, in two epochs."""
    store.create_stream(STREAM)
    write(store)
    clock.advance(DAY_S - 3600)
    write(store)
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    clock.advance(DAY_S)
    write(store)


def ticks(page: Page, chart: str) -> list[str]:
    return page.locator(f"{chart} .tick").all_text_contents()


def test_a_segment_of_several_days_says_on_which_day_it_ended(browser: Browser, tmp_path: Path) -> None:
    """An end without a date that is earlier than the beginning is read as a mistake."""
    with still(browser, tmp_path, two_days) as view:
        view.go(f"#/stream/{STREAM}")
        view.page.locator("[data-segment='0']").click()
        expect(view.page.locator(".selection")).to_contain_text("2026-11-18 12:00:00 to 2026-11-19 11:00:00")


def test_the_time_axis_of_segments_has_the_dates_of_other_days(browser: Browser, tmp_path: Path) -> None:
    """Epochs last for weeks; what has no date is of today."""
    with still(browser, tmp_path, two_days) as view:
        view.go(f"#/stream/{STREAM}")
        assert ticks(view.page, ".segments")[3:] == ["12:00:002026-11-18", "11:00:002026-11-19", "now"]
        assert view.page.evaluate(CUT_OFF, ".segments") == []


def test_the_axes_of_event_time_have_the_dates_of_other_days(browser: Browser, tmp_path: Path) -> None:
    """A stream that is filled with last week's readings has last week's time."""

    def prepare(store: Engine, clock: ManualClock) -> None:
        store.create_stream(STREAM)
        with store.writer(STREAM, writer_id="plant-1") as writer:
            for _ in range(3):
                writer.write_event(b"event").result()
                writer.note_time(int((clock.now() - 7 * DAY_S) * 1000))
                writer.flush()
                clock.advance(1.5)
                store.maintain()
        clock.advance(DAY_S)

    with still(browser, tmp_path, prepare) as view:
        view.go(f"#/stream/{STREAM}/time")
        shown = ticks(view.page, ".chart.time")
        assert shown[0].endswith("2026-11-11"), "event time, from below"
        assert shown[3].endswith("2026-11-18"), "the wall clock, from the left"
        assert re.fullmatch(r"\d\d:\d\d:\d\d", shown[5]), "now is today"
        assert view.page.evaluate(CUT_OFF, ".chart.time") == []
        view.page.set_viewport_size({"width": 360, "height": 740})
        view.run(1)
        assert view.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_watermark_that_stands_still_is_drawn_up_to_now(browser: Browser, tmp_path: Path) -> None:
    """A line that ends says that nothing is known; this one says since when nothing has moved, and who is the cause."""
    with still(browser, tmp_path, lambda store, _: store.create_stream(STREAM)) as view:
        fast, slow = (view.store.writer(STREAM, writer_id=name) for name in ("fast", "slow"))

        def note(*, stalls: bool) -> None:
            for writer in [fast] if stalls else [fast, slow]:
                writer.write_event(b"event", key="key").result()
                writer.note_time(int(view.clock.now() * 1000))
                writer.flush()

        view.go(f"#/stream/{STREAM}/time")
        view.run(10, lambda: note(stalls=False))
        expect(view.page.locator(".chart .lower")).to_be_attached()
        expect(view.page.locator(".legend")).not_to_contain_text("holds time back")
        view.run(10, lambda: note(stalls=True))
        right = float(view.page.locator(".chart.time .grid").first.get_attribute("x2") or 0)
        for line in (".lower", ".band"):
            assert abs(view.page.locator(f".chart {line}").evaluate(BOUNDS)[1] - right) < 1
        flat = lower_points(view.page)[-2:]
        assert flat[1][0] - flat[0][0] > 200, "as long as it stands still"
        assert flat[0][1] == flat[1][1]
        expect(view.page.locator(".legend")).to_contain_text("the writer that holds time back")
        expect(view.page.locator(".legend .swatch.holds")).to_be_visible()
        view.run(3, lambda: note(stalls=False))
        assert flat[0][1] > lower_points(view.page)[-1][1], "it goes on"
        stalls = [b[0] - a[0] for a, b in pairwise(lower_points(view.page)) if a[1] == b[1]]
        assert max(stalls) > 200, "the past stays as it was"


def lower_points(page: Page) -> list[tuple[float, float]]:
    """Return the points of the watermark's line, in pixels."""
    line = page.locator(".chart .lower").get_attribute("d") or ""
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", line)]


def test_the_lines_of_writers_begin_before_the_page_was_opened(browser: Browser, tmp_path: Path) -> None:
    """Whoever opens the page wants to know since when a writer has been behind, and not to wait for it."""
    with still(browser, tmp_path, lambda store, _: store.create_stream(STREAM)) as view:
        writer = view.store.writer(STREAM, writer_id="plant-1")
        for _ in range(40):
            writer.note_time(int(view.clock.now() * 1000) - 2_000)
            writer.flush()
            view.pass_time(1)
        view.go(f"#/stream/{STREAM}/time")
        left, right = view.page.locator(".chart .writer").evaluate(BOUNDS)
        assert right - left > 800, "as wide as the chart"


def test_a_chart_of_many_writers_says_how_many_are_drawn(browser: Browser, tmp_path: Path) -> None:
    """Otherwise the writer that is missing seems to be offline."""

    def prepare(store: Engine, clock: ManualClock) -> None:
        store.create_stream(STREAM)
        for number in range(8):
            note(store, clock, f"plant-{number}")

    def note(store: Engine, clock: ManualClock, name: str) -> None:
        store.writer(STREAM, writer_id=name).note_time(int(clock.now() * 1000))

    with still(browser, tmp_path, prepare) as view:
        view.go(f"#/stream/{STREAM}/time")
        expect(view.page.locator(".chart .writer-dot")).to_have_count(8)
        expect(view.page.locator(".legend")).not_to_contain_text("drawn")
        for number in range(8, 12):
            note(view.store, view.clock, f"plant-{number}")
        view.run(1)
        expect(view.page.locator(".chart .writer-dot")).to_have_count(8)
        expect(view.page.locator(".legend")).to_contain_text("8 of 12 writers drawn")


def test_a_chart_of_a_stream_without_events_has_an_axis(browser: Browser, tmp_path: Path) -> None:
    """Its marks were "0" and "0.0"."""
    with still(browser, tmp_path, lambda store, _: store.create_stream(STREAM)) as view:
        view.go("#/health")
        view.run(3)
        assert ticks(view.page, ".chart")[:2] == ["0", "1"]
        assert view.clock.now() == BEGIN + 3
