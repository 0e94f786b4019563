"""Pages of other sites, in the browser that is signed in: the server gets their requests, and refuses them.

Another port of the same host is the same site to a browser: it sends the cookie along, so the check of the origin alone
refuses the request. Another host is another site, and its requests come without the cookie.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from tests.console.pages import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.console.conftest import Served

FORGED: Final = "plant/forged"
ATTACKS: Final = {
    "fetch": """url => { fetch(url, {method: "POST", mode: "no-cors", credentials: "include",
        body: '{"name": "plant/forged"}'}).catch(() => {}); }""",
    "form": """url => {
        const form = document.createElement("form");
        Object.assign(form, {method: "POST", action: url, enctype: "text/plain"});
        const field = document.createElement("input");
        Object.assign(field, {name: '{"name": "plant/forged", "retention": "unlimited', value: '"}'});
        form.append(field);
        document.body.append(form);
        form.submit();
    }""",
}


class _AttackerPage(BaseHTTPRequestHandler):
    """An empty page, which the test then runs its script in."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Another site</title><body>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gives it
        del format, args


@contextmanager
def attacker() -> Iterator[int]:
    """Serve another site; give its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _AttackerPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class Traffic:
    """What goes over the network from a page, also where the browser then hides the answer from the page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.sent: dict[str, dict[str, str]] = {}  # the headers of requests
        self.statuses: dict[str, int] = {}  # of their answers
        session = page.context.new_cdp_session(page)
        session.on("Network.requestWillBeSentExtraInfo", self._note_sent)
        session.on("Network.responseReceivedExtraInfo", self._note_answer)
        session.send("Network.enable")

    def _note_sent(self, event: dict[str, Any]) -> None:
        self.sent[event["requestId"]] = {name.lower(): value for name, value in event["headers"].items()}

    def _note_answer(self, event: dict[str, Any]) -> None:
        self.statuses[event["requestId"]] = event["statusCode"]

    def wait(self, port: int) -> tuple[dict[str, str], int]:
        """Return the headers of a request to the server at a port, and the status of its answer."""
        over = time.monotonic() + 20
        while time.monotonic() < over:
            for request, headers in self.sent.items():
                if headers.get("host") == f"127.0.0.1:{port}" and request in self.statuses:
                    return headers, self.statuses[request]
            self._page.wait_for_timeout(50)
        raise AssertionError(f"there was no answer from the server: {self.sent}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_page_of_another_site_changes_nothing(browser: Browser, served: Served, attack: str, host: str) -> None:
    """The browser that is signed in may visit any other site at the same time."""
    own = served.server.http_port
    with attacker() as port, opened(browser, served, allowed="") as page:
        page.goto(f"http://{host}:{port}/")
        traffic = Traffic(page)
        page.evaluate(ATTACKS[attack], f"http://127.0.0.1:{own}/console/api/streams")
        sent, status = traffic.wait(own)
        assert ("cookie" in sent) == (host == "127.0.0.1"), "other ports of the host are the same site to a browser"
        assert sent["origin"] == f"http://{host}:{port}"
        assert status == 403, "the server has got the request, and refuses it for its origin"
        other = page.context.new_page()
        other.goto("/console/")
        expect(other.get_by_role("button", name="Sign out")).to_be_visible()  # the session was there all the time
    assert FORGED not in [stream.name for stream in served.store.streams()]
