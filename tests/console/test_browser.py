"""The pages, in a real browser: what people do with them, and what goes wrong while they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from penstock.console._calls import CALLS
from penstock.embedded import open_store
from penstock.model import StreamConfig
from penstock.stream.format import StreamCreated
from tests.console.pages import NARROW, check_fit, opened, shown, sign_in, window, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.console.conftest import Served, _Serving

STREAM: Final = "plant/readings"
PLACES: Final = {
    "#/streams": "Streams",
    f"#/stream/{STREAM}": STREAM,
    f"#/stream/{STREAM}/time": STREAM,
    f"#/stream/{STREAM}/readers": STREAM,
    f"#/stream/{STREAM}/events": STREAM,
    "#/health": "Health",
    "#/cluster": "Cluster",
    "#/users": "Users",
}


@pytest.mark.parametrize(
    "settings",
    [{}, {"viewport": NARROW}, {"color_scheme": "dark"}],
    ids=["wide", "narrow", "dark"],
)
def test_every_page(browser: Browser, lively: Served, settings: dict[str, Any]) -> None:
    """Each page is there, fits the screen, has a label for everything that can be used, and logs no error."""
    with opened(browser, lively, **settings) as page:
        for place, heading in PLACES.items():
            shown(page, place)
            expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
            expect(page.get_by_text("Loading…")).to_have_count(0)
            check_fit(page, place)


def test_one_stream_shows_its_segments_readers_and_time(browser: Browser, lively: Served) -> None:
    """A split and a merge are a picture; who is behind, and who holds time back, is a table."""
    with opened(browser, lively, place=f"#/stream/{STREAM}") as page:
        expect(page.locator(".segment")).to_have_count(5)
        expect(page.locator(".segment.active")).to_have_count(2)
        page.locator("[data-segment='4']").click()
        expect(page.locator(".selection")).to_contain_text("keys 0.2500\N{EN DASH}1.0000")
        boxes = {number: page.locator(f"[data-segment='{number}'] rect").bounding_box() for number in range(5)}
        assert all(boxes.values())
        left = {number: box["x"] for number, box in boxes.items() if box}
        assert left[0] == left[1] < left[2] == left[3] < left[4], "time goes from left to right"
        shown(page, f"#/stream/{STREAM}/readers")
        for text in ("dashboard", "r1", "archiver", "etl"):
            expect(page.locator("main")).to_contain_text(text)
        with lively.store.writer(STREAM, writer_id="plant-2") as writer:
            writer.note_time(2_000)
            writer.flush()
            shown(page, f"#/stream/{STREAM}/time")
            expect(page.get_by_role("row", name="plant-2")).to_contain_text("2,000")
            expect(page.locator(".chart .lower")).to_be_attached()


def test_what_a_user_may_not_do_is_not_offered(browser: Browser, lively: Served) -> None:
    """A button that only ever answers "you may not" is a nuisance."""
    with opened(browser, lively, "rita", f"#/stream/{STREAM}") as page:
        page.locator("[data-segment='4']").click()
        for name in ("Truncate…", "Seal…", "Split…"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        expect(page.get_by_role("link", name="Users")).to_have_count(0)
        shown(page, "#/streams")
        expect(page.get_by_role("row")).to_have_count(2)  # with the head of the table
        expect(page.get_by_role("button", name="Create stream")).to_have_count(0)


def test_a_stream_is_created_split_merged_truncated_and_sealed(browser: Browser, served: Served) -> None:
    """Everything that changes something asks first; what cannot be undone wants the name of the stream."""
    name = "plant/made-by-hand"
    with opened(browser, served, allowed="400 (Bad Request)") as page:
        page.get_by_role("button", name="Create stream").click()
        page.get_by_label("Name", exact=True).fill("no name")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("invalid stream name")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        page.locator("[data-segment='0']").click()
        page.get_by_role("button", name="Split…").click()
        page.get_by_role("button", name="Split", exact=True).click()
        expect(page.locator(".segment.active")).to_have_count(2)
        page.locator("[data-segment='1']").click()
        page.get_by_role("button", name="Merge with 2…").click()
        page.get_by_role("button", name="Merge", exact=True).click()
        expect(page.locator(".segment.active")).to_have_count(1)
        write(served.store, name, b"event")
        page.get_by_role("button", name="Truncate…").click()
        expect(page.get_by_role("button", name="Delete events")).to_be_disabled()
        expect(page.get_by_label("Position")).to_have_value("")
        page.get_by_label("Position").fill("tail")
        page.get_by_label("Type the name").fill(name)
        page.get_by_role("button", name="Delete events").click()
        expect(page.locator("#toasts")).to_contain_text("begins at")
        assert served.store.stream(name).events == 0
        page.get_by_role("button", name="Seal…").click()
        page.get_by_role("button", name="Cancel").click()
        assert served.store.stream(name).state == "active"
        page.get_by_role("button", name="Seal…").click()
        page.get_by_label("Type the name").fill(name)
        page.get_by_role("button", name="Seal stream").click()
        expect(page.locator("h1 + .pill")).to_have_text("sealed")
        expect(page.get_by_role("button", name="Seal…")).to_have_count(0)


def test_a_sealed_stream_can_be_truncated(browser: Browser, served: Served) -> None:
    """A stream that has ended is the one whose events are deleted next; the store allows it."""
    name = "plant/ended"
    served.store.create_stream(name)
    write(served.store, name, b"event")
    served.store.seal_stream(name)
    with opened(browser, served, place=f"#/stream/{name}") as page:
        expect(page.locator("h1 + .pill")).to_have_text("sealed")
        page.get_by_role("button", name="Truncate…").click()
        page.get_by_label("Position").fill("tail")
        page.get_by_label("Type the name").fill(name)
        page.get_by_role("button", name="Delete events").click()
        expect(page.locator("#toasts")).to_contain_text("begins at")
        assert served.store.stream(name).events == 0


def test_permissions_are_granted_and_revoked(browser: Browser, served: Served) -> None:
    """It counts at once, also on a page that another user has open."""
    with opened(browser, served, place="#/users") as page, opened(browser, served, "nina") as other:
        expect(other.locator("main")).to_contain_text("There is no stream that you may read.")
        row = page.get_by_role("row", name="nina")
        row.get_by_role("button", name="Grant…").click()
        page.get_by_label("Streams", exact=True).fill("plant/*")
        page.get_by_role("button", name="Grant", exact=True).click()
        expect(row).to_contain_text("read plant/*")
        expect(other.get_by_role("link", name=STREAM)).to_be_visible()
        row.get_by_role("button", name="Revoke read plant/*").click()
        page.get_by_role("button", name="Revoke", exact=True).click()
        expect(row).to_contain_text("nothing was granted")
        expect(other.get_by_role("link", name=STREAM)).to_have_count(0)


def test_colours_follow_the_system_or_the_user(browser: Browser, served: Served) -> None:
    """A page that is white at night is closed; a choice lasts over a reload."""
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, served, color_scheme="dark") as page:
        dark = page.evaluate(background)
        button = page.get_by_role("button", name="Colours")
        button.click()
        light = page.evaluate(background)
        assert light != dark
        page.reload()
        expect(button).to_have_text("Light")
        assert page.evaluate(background) == light
        page.emulate_media(color_scheme="light")
        button.click()
        assert page.evaluate(background) == dark
        button.click()
        assert (button.text_content(), page.evaluate(background)) == ("Auto", light)


def test_a_dialog_closes_when_its_page_is_left(browser: Browser, served: Served) -> None:
    """It would be about a stream that is no longer shown; a refusal that comes afterwards is still said."""
    with opened(browser, served, place="#/streams", allowed="400 (Bad Request)") as page:
        shown(page, f"#/stream/{STREAM}")
        page.get_by_role("button", name="Truncate…").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Streams", level=1)).to_be_visible()
        expect(page.locator("dialog")).to_have_count(0)
        page.route("**/console/api/streams", lambda route: (page.go_forward(), route.continue_()))
        page.get_by_role("button", name="Create stream").click()
        page.get_by_label("Name", exact=True).fill("no name")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.locator("#toasts")).to_contain_text("invalid stream name")
        expect(page.get_by_role("heading", name=STREAM, level=1)).to_be_visible()
        expect(page.locator("dialog")).to_have_count(0)


def test_a_link_past_the_navigation_stays_on_the_page(browser: Browser, served: Served) -> None:
    """It is the first stop of the keyboard; it led to the list of streams, away from what was to be read."""
    with opened(browser, served, place=f"#/stream/{STREAM}/readers") as page:
        expect(page.locator("main")).to_contain_text("No large event is being written.")
        page.reload()
        expect(page.locator("main")).to_contain_text("No large event is being written.")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        assert page.url.endswith(f"#/stream/{STREAM}/readers")
        expect(page.locator("main")).to_contain_text("No large event is being written.")
        page.keyboard.press("Tab")
        expect(page.locator("main").get_by_role("link", name="Streams")).to_be_focused()


@pytest.mark.parametrize("place", ["#/stream/a/%E0%A4%A", "#/stream/only-a-scope", "#/nothing"])
def test_an_address_of_no_page_is_not_found(browser: Browser, served: Served, place: str) -> None:
    """An address that was cut off on its way showed an empty page, or the list of streams as if it were right."""
    with opened(browser, served, place="#/health") as page:
        shown(page, place)
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()
        assert page.title() == "Not found · Penstock"
        page.get_by_role("link", name="All streams").click()
        expect(page.get_by_role("link", name=STREAM)).to_be_visible()


def test_a_stream_that_is_deleted_under_the_page_is_said_to_be_gone(browser: Browser, served: Served) -> None:
    """A page that goes on showing the last figures would be a lie."""
    for part in ("", "/time", "/readers", "/events"):
        served.store.create_stream("plant/short-lived")
        with opened(browser, served, place=f"#/stream/plant/short-lived{part}", allowed="404 (Not Found)") as page:
            expect(page.locator("h1 + .pill")).to_have_text("active")
            served.store.seal_stream("plant/short-lived")
            served.store.delete_stream("plant/short-lived")
            expect(page.get_by_role("alert")).to_contain_text("it was deleted, or never created")


def test_a_page_outlives_a_restart_of_the_server(
    browser: Browser, serve: Callable[..., _Serving], tmp_path: Path
) -> None:
    """Nobody wants to sign in again, or to reload, because a server was upgraded."""
    with serve(tmp_path) as first:
        first.store.create_stream(STREAM)
        port = first.server.http_port
        context = window(browser, port, allowed="Failed to load resource")
        page = context.__enter__()
        sign_in(page, "anna", f"#/stream/{STREAM}/events")
        write(first.store, STREAM, b"before")
        expect(page.locator(".events li")).to_have_count(1)
    expect(page.locator(".banner")).to_contain_text("The server does not answer")
    with serve(tmp_path, http_port=port) as second:
        write(second.store, STREAM, b"behind")
        expect(page.locator(".events li")).to_have_count(2)
        expect(page.locator(".banner")).to_have_count(0)
        context.__exit__(None, None, None)


def test_a_page_says_that_a_call_failed_in_the_server(
    browser: Browser, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the server does not answer would send the user to the network, and nobody to the log."""

    def fail(*_: object) -> None:
        raise RuntimeError("inside")

    with opened(browser, served, place="#/streams", allowed="500 (Internal Server Error)") as page:
        expect(page.get_by_role("link", name=STREAM)).to_be_visible()
        with monkeypatch.context() as patch:
            patch.setitem(CALLS, "streams", fail)
            expect(page.locator(".banner")).to_contain_text("the server failed at this call: its log says why")
        expect(page.locator(".banner")).to_have_count(0)


def test_ten_thousand_streams(browser: Browser, serve: Callable[..., _Serving], tmp_path: Path) -> None:
    """They are found by a part of the name, or page by page."""
    with open_store(tmp_path) as store, store.catalog.lock:
        for start in range(0, 10_000, 1000):
            names = [(f"many/stream-{number:05d}", number) for number in range(start, start + 1000)]
            store.catalog.commit(*(StreamCreated(name, uid, 1, StreamConfig()) for name, uid in names))
    with serve(tmp_path) as many, opened(browser, many) as page:
        expect(page.locator(".pager")).to_contain_text("1\N{EN DASH}50 of 10,000")
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_role("link", name="many/stream-00050")).to_be_visible()
        page.get_by_label("Filter by name").fill("stream-0777")
        expect(page.locator("tbody tr")).to_have_count(10)
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(10)
        page.get_by_role("link", name="many/stream-07777").click()
        expect(page.get_by_role("heading", name="many/stream-07777", level=1)).to_be_visible()
