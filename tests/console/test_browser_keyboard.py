"""The pages with the keyboard alone, in a real browser: what a mouse can do, and where the focus is afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect

from tests.console.client import PASSWORD
from tests.console.pages import opened, press_until, shown, window

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.console.conftest import Served

STREAM: Final = "plant/readings"
FOCUSED: Final = "document.activeElement"


def tab_to(page: Page, text: str) -> None:
    """Press Tab until an element with this text, or this label, has the focus; it is outlined."""
    name = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    label = "document.activeElement.labels?.[0]?.textContent"
    press_until(page, "Tab", f"({name}) === '{text}' || {label} === '{text}'")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", text


def test_a_stream_is_found_and_its_segments_and_dialogs_are_reached(browser: Browser, lively: Served) -> None:
    """Not everybody has a mouse, or can use one; focus is visible, and comes back from a dialog."""
    with window(browser, lively.server.http_port) as page:
        page.goto("/console/")
        expect(page.get_by_label("User")).to_be_focused()
        page.keyboard.type("anna")
        page.keyboard.press("Tab")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name=STREAM)).to_be_visible()
        press_until(page, "Tab", f"document.activeElement.textContent === '{STREAM}'")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.locator(".segment")).to_have_count(5)
        press_until(page, "Tab", "document.activeElement.dataset.segment === '4'")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("[data-segment='3']")).to_be_focused()
        expect(page.locator("[data-segment='3']")).to_have_attribute("aria-pressed", "true")
        press_until(page, "Shift+Tab", "document.activeElement.textContent === 'Seal…'")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(page.get_by_label("Type the name")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Seal…")).to_be_focused()


def test_events_are_opened_filtered_found_and_downloaded(browser: Browser, served: Served, tmp_path: Path) -> None:
    """Who closes an event, or loads more of them, goes on where they were, not at the top of the page."""
    name = "plant/typed"
    served.store.create_stream(name, exist_ok=True)
    with served.store.writer(name) as writer:
        found = [writer.write_event(b"event %d" % number, key=f"key-{number % 5}").result() for number in range(250)]
    with opened(browser, served, place=f"#/stream/{name}") as page:
        rows, box = page.locator(".events li"), page.locator(".events")
        tab_to(page, "Events")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(200)
        tab_to(page, "From the head")
        page.keyboard.press("Enter")
        expect(rows.first).to_contain_text("event 0")
        press_until(page, "Tab", "document.activeElement.textContent.includes('event 0')")
        for key in ("End", "ArrowUp", "Home", "ArrowDown", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        page.keyboard.press("Enter")
        expect(page.locator(".detail pre")).to_have_text("event 3")
        expect(page.locator(".detail")).to_be_focused()
        tab_to(page, "Download")
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        download.value.save_as(tmp_path / "event")
        assert (tmp_path / "event").read_bytes() == b"event 3"
        press_until(page, "Shift+Tab", "document.activeElement.textContent === 'Close'")
        page.keyboard.press("Enter")
        expect(page.locator(".detail")).to_have_count(0)
        expect(rows.nth(3).get_by_role("button")).to_be_focused()
        page.keyboard.press("End")
        expect(rows.last.get_by_role("button")).to_be_focused()
        tab_to(page, "Next events")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(250)
        expect(page.get_by_role("button", name="Next events")).to_have_count(0)
        assert box.evaluate("box => box.contains(document.activeElement)"), "the button has gone, and the focus with it"
        page.keyboard.press("Home")
        press_until(page, "Shift+Tab", "document.activeElement.id === 'position'")
        page.keyboard.type(str(found[150]))
        page.keyboard.press("Enter")
        expect(page.locator(".events .marked")).to_contain_text("event 150")
        tab_to(page, "Only keys that contain")
        page.keyboard.type("key-3")
        expect(rows).to_have_count(20)
        expect(page.get_by_label("Only keys that contain")).to_be_focused()


def test_a_permission_is_granted_and_revoked(browser: Browser, served: Served) -> None:
    """The button that revokes goes with what it revoked; the focus stays with the user of the row."""
    with opened(browser, served, place="#/users") as page:
        row = page.get_by_role("row", name="nina")
        expect(row).to_be_visible()
        press_until(
            page, "Tab", f"{FOCUSED}.textContent === 'Grant…' && {FOCUSED}.closest('tr').dataset.key === 'nina'"
        )
        page.keyboard.press("Enter")
        expect(page.get_by_label("Permission", exact=True)).to_be_focused()
        page.keyboard.press("ArrowDown")
        tab_to(page, "Streams")
        page.keyboard.type("plant/*")
        page.keyboard.press("Enter")
        expect(row).to_contain_text("consume plant/*")
        expect(row.get_by_role("button", name="Grant…")).to_be_focused()
        press_until(page, "Shift+Tab", "document.activeElement.ariaLabel === 'Revoke consume plant/* of nina'")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        tab_to(page, "Revoke")
        page.keyboard.press("Enter")
        expect(row).to_contain_text("nothing was granted")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(row.get_by_role("button", name="Grant…")).to_be_focused()


def test_a_stream_is_created(browser: Browser, served: Served) -> None:
    """The form is sent with Enter, and the page of the new stream is where the keyboard goes on."""
    with opened(browser, served) as page:
        expect(page.get_by_role("link", name=STREAM)).to_be_visible()
        tab_to(page, "Create stream")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Name", exact=True)).to_be_focused()
        page.keyboard.type("plant/by-keyboard")
        tab_to(page, "Segments")
        page.keyboard.type("3")
        tab_to(page, "Retention")
        page.keyboard.press("ArrowDown")
        tab_to(page, "Limit of the retention")
        page.keyboard.type("3600")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="plant/by-keyboard", level=1)).to_be_visible()
        expect(page.locator("main")).to_be_focused()
        assert len(served.store.stream("plant/by-keyboard").segments) == 3
        shown(page, "#/streams")
        expect(page.get_by_role("row", name="plant/by-keyboard")).to_contain_text("1 h")
