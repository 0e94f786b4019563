"""The pages, in a real browser: what people do with them, and what goes wrong while they do."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from penstock.embedded import open_store
from penstock.model import StreamConfig
from penstock.stream.format import StreamCreated
from tests.console.client import PASSWORD
from tests.console.pages import launched, shown, sign_in, window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from penstock import Store
    from tests.console.conftest import Served, _Serving

STREAM: Final = "plant/readings"
PLACES: Final = {
    "#/streams": "Streams",
    f"#/stream/{STREAM}": STREAM,
    f"#/stream/{STREAM}/time": STREAM,
    f"#/stream/{STREAM}/readers": STREAM,
    f"#/stream/{STREAM}/events": STREAM,
    "#/health": "Health",
    "#/users": "Users",
}
UNLABELLED: Final = """() => [...document.querySelectorAll("input, select, button, a, [role=button]")]
    .filter((element) => !(element.labels?.length || element.getAttribute("aria-label") || element.textContent.trim()))
    .map((element) => element.outerHTML)"""


FORGED: Final = """url => fetch(url, {method: "POST", mode: "no-cors", credentials: "include",
    body: '{"name": "plant/forged"}'}).catch((error) => String(error))"""
NEWEST: Final = "Number(/\\d+/.exec(document.querySelector('.events li:last-child .event-text').textContent)[0])"
PRETTY: Final = """{
  "big": 9007199254740993,
  "list": [
    1,
    2
  ]
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def lively(served: Served) -> Served:
    """A stream that was split and merged, with writers that note time, readers, a consumer and a transaction."""
    store = served.store
    with store.writer(STREAM, writer_id="plant-1") as writer:
        for _ in range(3):
            writer.write_batch([b'{"degrees": 80}'] * 20, [f"sensor-{number}" for number in range(20)]).result()
            writer.note_time(1_000)
    store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    store.scale_stream(STREAM, [1, 3], [(0.25, 1.0)])
    group = store.create_reader_group("dashboard", [STREAM])
    group.reader("r1").read_next_event(timeout=1)
    store.register_consumer(STREAM, "archiver")
    store.transactional_writer(STREAM, "etl").begin(lease=600)
    return served


@contextmanager
def opened(browser: Browser, served: Served, user: str = "anna", place: str = "", **settings: Any) -> Iterator[Page]:  # noqa: ANN401
    with window(browser, served.server.http_port, **settings) as page:
        yield sign_in(page, user, place)


def write(store: Store, name: str, *events: bytes, key: str | None = None) -> None:
    with store.writer(name) as writer:
        for event in events:
            writer.write_event(event, key=key).result()


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
    [{}, {"viewport": {"width": 360, "height": 740}}, {"color_scheme": "dark"}],
    ids=["wide", "narrow", "dark"],
)
def test_every_page(browser: Browser, lively: Served, settings: dict[str, Any]) -> None:
    """Each page is there, fits the screen, has a label for everything that can be used, and logs no error."""
    with opened(browser, lively, **settings) as page:
        for place, heading in PLACES.items():
            shown(page, place)
            expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
            expect(page.get_by_text("Loading…")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{place} is too wide"
            assert page.evaluate(UNLABELLED) == []


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


def test_everything_works_with_the_keyboard(browser: Browser, lively: Served) -> None:
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


def press_until(page: Page, key: str, condition: str) -> None:
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate(condition):
            return
    raise AssertionError(f"{key} does not lead to {condition}")


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


@pytest.mark.parametrize("ends", ["tokens", "user"])
def test_a_user_who_is_revoked_loses_the_open_page(browser: Browser, served: Served, ends: str) -> None:
    """The page is not only refused what it asks for: what it shows is gone, too."""
    served.users.add("temp", PASSWORD, replace=True)
    served.users.grant("temp", "read", "plant/*")
    with opened(browser, served, "temp", f"#/stream/{STREAM}", allowed="401 (Unauthorized)") as page:
        expect(page.locator(".tile").first).to_be_visible()
        if ends == "user":
            served.users.remove("temp")
        else:
            served.users.revoke_tokens("temp")  # as an expired session
        expect(page.get_by_role("alert")).to_have_text("Your session has ended. Sign in again.")
        expect(page.locator(".tile")).to_have_count(0)


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


def test_a_page_of_another_site_changes_nothing(browser: Browser, served: Served) -> None:
    """The browser that is signed in may visit any other site at the same time."""
    port = served.server.http_port
    with opened(browser, served, allowed="") as page:
        page.goto("about:blank")
        page.evaluate(FORGED, f"http://127.0.0.1:{port}/console/api/streams")
    assert "plant/forged" not in [stream.name for stream in served.store.streams()]
