"""The page to sign in, in a real browser: what everybody sees first, and again when a session has ended."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from penstock.server import Config, Server
from tests.console.client import PASSWORD
from tests.console.pages import NARROW, check_fit, opened, window

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.console.conftest import Served

STREAM: Final = "plant/readings"


def test_sign_in_and_out(browser: Browser, served: Served) -> None:
    """It is the first thing that every user does, and a wrong password the first that goes wrong."""
    with window(browser, served.server.http_port, allowed="401 (Unauthorized)") as page:
        page.goto("/console/#/health")
        page.get_by_label("User").fill("rita")
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The user or the password is wrong.")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Health")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Health")).to_be_visible()
        assert page.evaluate("document.cookie") == "", "no script sees the session"
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    "settings",
    [{}, {"viewport": NARROW}, {"color_scheme": "dark"}],
    ids=["wide", "narrow", "dark"],
)
def test_the_page_to_sign_in_fits_and_has_labels(browser: Browser, served: Served, settings: dict[str, Any]) -> None:
    """Nobody gets past a page whose button is outside the screen, or whose fields have no names."""
    with window(browser, served.server.http_port, allowed="401 (Unauthorized)", **settings) as page:
        page.goto("/console/")
        expect(page.get_by_text("Use the name and the password of a user of this server.")).to_be_visible()
        check_fit(page, "the page to sign in")
        page.get_by_label("User").fill("rita")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("The user or the password is wrong.")
        expect(page.get_by_label("Commands to run")).to_have_count(0)
        check_fit(page, "the page that refuses a password")


def test_the_page_of_a_server_without_users_says_how_to_add_the_first(browser: Browser, tmp_path: Path) -> None:
    """It is the first page that whoever installs a server sees, and no password is right there."""
    with (
        Server(Config(store=str(tmp_path), port=0, http_port=0)) as server,
        window(browser, server.http_port, allowed="401 (Unauthorized)", viewport=NARROW) as page,
    ):
        page.goto("/console/")
        expect(page.get_by_text("This server has no users yet.")).to_be_visible()
        check_fit(page, "the page to sign in")
        page.get_by_label("User").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("Nobody can sign in yet.")
        commands = page.get_by_label("Commands to run").inner_text().splitlines()
        for command in commands:
            words = shlex.split(command.replace("DATA", str(tmp_path)))
            assert words[0] == "penstock"
            subprocess.run([sys.executable, "-m", *words], input=f"{PASSWORD}\n", text=True, check=True)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Streams", level=1)).to_be_visible()
        expect(page.get_by_role("link", name="Users")).to_be_visible()


@pytest.mark.parametrize("ends", ["tokens", "user"])
def test_a_user_who_is_revoked_loses_the_open_page(browser: Browser, served: Served, ends: str) -> None:
    """The page is not only refused what it asks for: what it shows is gone, too, and a dialog with it.

    A modal dialog that stays open makes the page to sign in again inert.
    """
    served.users.add("temp", PASSWORD, replace=True)
    served.users.grant("temp", "admin", "plant/*")
    with opened(browser, served, "temp", f"#/stream/{STREAM}", allowed="401 (Unauthorized)") as page:
        expect(page.locator(".tile").first).to_be_visible()
        page.get_by_role("button", name="Truncate…").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        if ends == "user":
            served.users.remove("temp")
        else:
            served.users.revoke_tokens("temp")  # as an expired session
        expect(page.locator("main").get_by_role("alert")).to_have_text("Your session has ended. Sign in again.")
        expect(page.locator(".tile")).to_have_count(0)
        expect(page.locator("dialog")).to_have_count(0)
        expect(page.get_by_label("User")).to_be_focused()
        page.keyboard.type("rita")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".tile").first).to_be_visible()
