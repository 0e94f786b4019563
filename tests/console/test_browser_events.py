"""The list of events, in a real browser: any content, any position, and any rate."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from tests.console.pages import opened, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, FloatRect, Page, Route

    from tests.console.conftest import Served

NEWEST: Final = "Number(/\\d+/.exec(document.querySelector('.events li:last-child .event-text').textContent)[0])"
PRETTY: Final = """{
  "big": 9007199254740993,
  "list": [
    1,
    2
  ]
}"""


def test_events_that_are_html_binary_or_huge(browser: Browser, served: Served, tmp_path: Path) -> None:
    """An event is whatever somebody has written; it is shown as text, as bytes, or by its beginning."""
    name = "plant/strange"
    served.store.create_stream(name, exist_ok=True)
    html = b"<script>window.broken = true</script><img src=x onerror='window.broken = true'>"
    write(served.store, name, html, key="<b onclick=alert(1)>key</b>")
    write(served.store, name, bytes(range(256)), b'{"big": 9007199254740993, "list": [1, 2]}')
    with served.store.writer(name) as writer, writer.begin_write_event("huge") as output:
        output.write(b"A" * (3 << 20))
    write(served.store, name, nested := b"[" * 32_000 + b"]" * 32_000)
    with opened(browser, served, place=f"#/stream/{name}/events") as page:
        rows = page.locator(".events li")
        expect(rows).to_have_count(5)
        page.get_by_role("button", name="Pause").click()
        expect(rows.nth(0)).to_contain_text("<script>window.broken = true</script>")
        rows.nth(0).get_by_role("button").click()
        expect(page.locator(".detail pre")).to_have_text(html.decode())
        expect(page.locator(".detail")).to_contain_text("<b onclick=alert(1)>key</b>")
        rows.nth(1).get_by_role("button").click()
        expect(page.locator(".detail pre")).to_contain_text("000030  30 31 32")
        rows.nth(2).get_by_role("button").click()
        expect(page.locator(".detail pre")).to_have_text(PRETTY)
        rows.nth(4).get_by_role("button").click()
        expect(page.locator(".detail")).to_contain_text("too deep or too large to be indented")
        assert page.locator(".detail pre").text_content() == nested.decode()
        rows.nth(2).get_by_role("button").click()
        page.get_by_label("Indent JSON").uncheck()
        expect(page.locator(".detail pre")).to_have_text('{"big": 9007199254740993, "list": [1, 2]}')
        rows.nth(3).get_by_role("button").click()
        expect(page.locator(".detail")).to_contain_text("The first 64 KiB of 3 MiB are shown.")
        assert len(page.locator(".detail pre").text_content() or "") == 64 << 10
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        download.value.save_as(tmp_path / "event")
        assert (tmp_path / "event").read_bytes() == b"A" * (3 << 20)
        assert page.evaluate("window.broken") is None


def test_events_from_a_position_on_and_by_key(browser: Browser, served: Served) -> None:
    """A pointer, a cut or a time comes from a log or another tool; a key from whoever asks what happened."""
    name = "plant/positions"
    served.store.create_stream(name, segments=2, exist_ok=True)
    with served.store.writer(name) as writer:
        found = [writer.write_event(b"event %d" % number, key=f"key-{number % 5}").result() for number in range(300)]
    with opened(browser, served, place=f"#/stream/{name}/events", allowed="400 (Bad Request)") as page:
        position, rows = page.get_by_label("Go to a cut, a time or a pointer"), page.locator(".events li")
        expect(rows.last).to_contain_text("event")
        position.fill(str(found[150]))
        position.press("Enter")
        expect(page.locator(".events .marked")).to_contain_text("event 150")
        expect(page.locator(".detail pre")).to_have_text("event 150")
        position.fill(str(served.store.head(name)))
        position.press("Enter")
        expect(rows).to_have_count(200)
        page.get_by_role("button", name="Next events").click()
        expect(rows).to_have_count(300)
        expect(page.get_by_role("status").filter(has_text="This is the tail.")).to_be_visible()
        position.fill("2026-01-01 12:00")
        position.press("Enter")
        expect(rows).to_have_count(200)
        position.fill("not a position")
        position.press("Enter")
        expect(page.locator(".status")).to_contain_text("invalid position")
        expect(rows).to_have_count(200)
        expect(page.locator(".status")).to_contain_text("on the page also 12:30 or 2026-11-20 12:30")
        for text in ("25:99", "12:60", "2026-02-31", "2026-13-01 12:00", "2026-02-28 12:61", "2026-02-28 noon"):
            position.fill(text)
            position.press("Enter")
            expect(page.locator(".status")).to_contain_text(f"There is no such time: {text}.")
            expect(rows).to_have_count(200)
        position.fill("2024-02-29")
        position.press("Enter")
        expect(page.locator(".status")).not_to_contain_text("no such time")
        expect(rows).to_have_count(200)
        page.get_by_role("button", name="From the head").click()
        page.get_by_label("Only keys that contain").fill("key-3")  # applied without Enter
        expect(rows).to_have_count(60)


@pytest.fixture
def flood(served: Served) -> Iterator[Callable[[], int]]:
    """Write to a stream as quickly as a writer can, until the test is over; give how many events that are."""
    served.store.create_stream("plant/flood", segments=2, exist_ok=True)
    over, written = threading.Event(), [0]

    def work() -> None:
        with served.store.writer("plant/flood") as writer:
            while not over.is_set():
                events = [b'{"number": %d, "padding": "%s"}' % (written[0] + n, b"." * 200) for n in range(2000)]
                writer.write_batch(events, [f"key-{n % 50}" for n in range(2000)]).result()
                written[0] += 2000
                over.wait(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    yield lambda: written[0]
    over.set()
    thread.join()


def test_the_tail_keeps_up_with_a_flood(browser: Browser, served: Served, flood: Callable[[], int]) -> None:
    """The page shows the newest events, says what it skipped, stays small, and obeys its buttons."""
    with opened(browser, served, place="#/stream/plant/flood/events") as page:
        expect(page.locator(".status")).to_contain_text("passed too quickly to be shown")
        expect(page.locator(".events li")).to_have_count(500)
        before = flood()
        page.wait_for_function(f"n => {NEWEST} >= n", arg=before)
        page.get_by_role("button", name="Pause").click()
        last = page.locator(".events li").last.text_content()
        page.get_by_role("button", name="Follow").click()
        expect(page.locator(".events li").last).not_to_have_text(last or "")


def test_a_paused_list_says_so_and_offers_the_next_events(browser: Browser, served: Served) -> None:
    """It said that it showed the tail while events arrived that it did not show, and had no way to them but Follow."""
    name = "plant/paused"
    served.store.create_stream(name, exist_ok=True)
    write(served.store, name, b"first")
    with opened(browser, served, place=f"#/stream/{name}/events") as page:
        rows, status, more = (
            page.locator(".events li"),
            page.locator(".status"),
            page.get_by_role("button", name="Next"),
        )
        expect(rows).to_have_count(1)
        expect(more).to_have_count(0)
        page.get_by_role("button", name="Pause").click()
        expect(status).to_have_text("Paused.")
        write(served.store, name, b"second")
        page.wait_for_timeout(1500)  # an answer that was on its way must not undo it
        expect(status).to_have_text("Paused.")
        expect(rows).to_have_count(1)
        more.click()
        expect(rows).to_have_count(2)
        expect(status).to_have_text("This is the tail.")
        expect(more).to_have_count(0)


def test_an_answer_that_comes_after_the_pause_is_not_shown(browser: Browser, served: Served) -> None:
    """The list would move under the eyes of the user who has just stopped it; its events are not lost either."""
    name = "plant/late"
    served.store.create_stream(name, exist_ok=True)
    write(served.store, name, b"first")
    with opened(browser, served, place=f"#/stream/{name}/events") as page:
        rows = page.locator(".events li")
        expect(rows).to_have_count(1)
        held: list[Route] = []
        page.route("**/console/api/events?*", lambda route: route.continue_() if held else held.append(route))
        write(served.store, name, b"second")
        while not held:
            page.wait_for_timeout(50)
        page.get_by_role("button", name="Pause").click()
        with page.expect_response("**/console/api/events?*"):
            held[0].continue_()
        page.wait_for_timeout(200)
        expect(rows).to_have_count(1)
        expect(page.locator(".status")).to_have_text("Paused.")
        page.get_by_role("button", name="Next events").click()
        expect(rows).to_have_count(2)


def test_a_list_that_is_paused_before_its_first_event_offers_the_next(browser: Browser, served: Served) -> None:
    """It would say for ever that it loads."""
    served.store.create_stream("plant/bare", exist_ok=True)
    with opened(browser, served, place="#/stream/plant/bare/events") as page:
        expect(page.locator(".empty")).to_contain_text("No event yet.")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".empty")).to_have_text("No event is shown.")
        write(served.store, "plant/bare", b"first")
        page.get_by_role("button", name="Next events").click()
        expect(page.locator(".events li")).to_have_count(1)


@pytest.mark.parametrize("way", ["wheel", "keyboard", "touch"])
def test_scrolling_up_pauses_the_list(browser: Browser, served: Served, flood: Callable[[], int], way: str) -> None:
    """Whoever scrolls up wants to read; a list that is pulled back twice a second cannot be read."""
    with opened(browser, served, place="#/stream/plant/flood/events", has_touch=True) as page:
        expect(page.locator(".events li")).to_have_count(500)
        assert page.get_by_role("button", name="Pause").is_visible(), "new events alone do not pause it"
        box = page.locator(".events")
        if way == "wheel":
            box.hover()
            page.mouse.wheel(0, -300)
        elif way == "keyboard":
            box.get_by_role("button").last.focus()
            page.keyboard.press("PageUp")
        else:
            swipe_down(page, box.bounding_box())
        expect(page.locator(".status")).to_contain_text("Paused.")
        written = flood()
        page.wait_for_timeout(1200)
        assert flood() > written
        left = box.evaluate("box => box.scrollHeight - box.clientHeight - box.scrollTop")
        assert left > 50, "it is not pulled back to the end"


def swipe_down(page: Page, box: FloatRect | None) -> None:
    """Move a finger down over a box, which scrolls it up."""
    assert box is not None
    session, x, y = page.context.new_cdp_session(page), box["x"] + 100, box["y"] + 60
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in range(10, 210, 10):
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y + moved}]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_events_of_another_day_are_shown_with_their_date(browser: Browser, served: Served) -> None:
    """After a jump to last week, a clock time alone is taken for one of today."""
    name = "plant/yesterday"
    served.store.create_stream(name, exist_ok=True)
    write(served.store, name, b"event")
    with opened(browser, served, place=f"#/stream/{name}/events") as page:
        page_time = page.locator(".event-time").inner_text()
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", page_time)
        today = page.evaluate("new Date().toISOString().slice(0, 10)")
        page.clock.set_fixed_time(time.time() + 2 * 86_400)
        page.reload()
        assert page.locator(".event-time").inner_text() == f"{today} {page_time}"
        cell = page.locator(".event-time")
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth"), "the date is not cut off"
