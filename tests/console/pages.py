"""A real browser for the tests of the pages: one for all of them, and a new window for each."""

from __future__ import annotations

from contextlib import contextmanager
from shutil import which
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import Error, expect, sync_playwright

from tests.console.client import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, ViewportSize

    from penstock import Store
    from tests.console.conftest import Served

__all__ = ["MISSING", "NARROW", "check_fit", "launched", "opened", "press_until", "shown", "sign_in", "window", "write"]

CHROMIUM: Final = which("chromium") or which("chromium-browser")
MISSING: Final = None if CHROMIUM else "there is no chromium: tools/setup.sh installs it where it may"
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",
)
NARROW: Final[ViewportSize] = {"width": 360, "height": 740}
_UNLABELLED: Final = """() => [...document.querySelectorAll("input, select, button, a, [role=button]")]
    .filter((element) => !(element.labels?.length || element.getAttribute("aria-label") || element.textContent.trim()))
    .map((element) => element.outerHTML)"""
_WAIT_MS: Final = 20_000  # the machine may be busy with other tests


@contextmanager
def launched() -> Iterator[Browser]:
    """Run chromium; skip the tests where there is none."""
    if MISSING is not None:
        pytest.skip(MISSING)
    expect.set_options(timeout=_WAIT_MS)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        except Error as error:
            pytest.skip(f"chromium does not start here: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@contextmanager
def window(browser: Browser, port: int, *, allowed: str | None = None, **settings: Any) -> Iterator[Page]:  # noqa: ANN401
    """Open the console in a window without cookies; at its end, no error was logged but those that are ``allowed``."""
    given = {"viewport": {"width": 1280, "height": 860}, "timezone_id": "UTC", "locale": "en-GB", **settings}
    context = browser.new_context(base_url=f"http://127.0.0.1:{port}", reduced_motion="reduce", **given)
    context.set_default_timeout(_WAIT_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    try:
        yield page
        assert [text for text in problems if allowed is None or allowed not in text] == []
    finally:
        context.close()


def sign_in(page: Page, user: str, place: str = "") -> Page:
    """Sign in, and go to a place."""
    page.goto(f"/console/{place}")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    return page


def shown(page: Page, place: str) -> Page:
    """Go to another place of the console."""
    page.goto(f"/console/{place}")
    return page


@contextmanager
def opened(browser: Browser, served: Served, user: str = "anna", place: str = "", **settings: Any) -> Iterator[Page]:  # noqa: ANN401
    """Open the console in a window, as a user who has signed in."""
    with window(browser, served.server.http_port, **settings) as page:
        yield sign_in(page, user, place)


def check_fit(page: Page, place: str) -> None:
    """Check that the page fits the screen, and that everything that can be used has a label."""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{place} is too wide"
    assert page.evaluate(_UNLABELLED) == [], place


def press_until(page: Page, key: str, condition: str) -> None:
    """Press a key until the page says that it has led there."""
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate(condition):
            return
    raise AssertionError(f"{key} does not lead to {condition}")


def write(store: Store, name: str, *events: bytes, key: str | None = None) -> None:
    """Append events one after the other."""
    with store.writer(name) as writer:
        for event in events:
            writer.write_event(event, key=key).result()
