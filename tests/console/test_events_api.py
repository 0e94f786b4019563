"""Events as the console shows them: pages, filters, positions, and events that are binary, huge or HTML."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.console._events import as_shown, event_page
from penstock.console._positions import PAGE_BYTES
from penstock.embedded import open_store
from penstock.model import EventPointer
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine
    from tests.console.client import Client
    from tests.console.conftest import Served

STREAM: Final = "plant/events"
LARGE: Final = 3 << 20


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store in memory with a stream of two segments, at a time that stands still."""
    with open_store("memory:", clock=ManualClock()) as store:
        store.create_stream(STREAM, segments=2)
        yield store


def write(store: Engine, count: int, *, size: int = 0, first: int = 0) -> list[bytes]:
    """Write numbered events with seven keys, at one time each."""
    events = [b"%06d" % number + b"." * size for number in range(first, first + count)]
    with store.writer(STREAM) as writer:
        for number, event in enumerate(events, first):
            writer.write_event(event, key=f"key-{number % 7}").result()
            assert isinstance(store.clock, ManualClock)
            store.clock.advance(0.01)
    return events


def texts(page: Any) -> list[str]:  # noqa: ANN401 - an ShownEvents, or its JSON
    return [event["text"] for event in page.events]


def test_pages_have_every_event_once_and_in_order(store: Engine) -> None:
    """A page ends with the cut where the next one begins, so that nothing is lost between two calls."""
    events = write(store, 450)
    found: list[str] = []
    page = event_page(store, STREAM, start="head")
    found += texts(page)
    while not page.at_tail:
        page = event_page(store, STREAM, start=page.next)
        found += texts(page)
    assert sorted(found) == [event.decode() for event in events]
    assert found[:50] == sorted(found[:50])
    assert event_page(store, STREAM, start=page.next).events == []


def test_pages_that_are_filtered_have_every_event_with_the_key(store: Engine) -> None:
    """A filter must not lose what lies behind the first matches of a page."""
    write(store, 900)
    found: list[str] = []
    page = event_page(store, STREAM, start="head", key="ey-3")
    while True:
        assert {event["key"] for event in page.events} <= {"key-3"}
        found += texts(page)
        if page.at_tail:
            break
        page = event_page(store, STREAM, start=page.next, key="ey-3")
    assert found == [f"{number:06d}" for number in range(900) if number % 7 == 3]
    with_all = event_page(store, STREAM, start="head", key="key")
    assert (len(with_all.events), with_all.skipped_events) == (200, 0)
    assert event_page(store, STREAM, start="head", key="no such").events == []


def test_a_page_that_follows_keeps_up_and_says_what_it_skipped(store: Engine) -> None:
    """At a high rate a page that shows everything would fall behind for ever."""
    start = str(store.tail(STREAM))
    write(store, 300, size=8 << 10)
    page = event_page(store, STREAM, start=start, follow=True)
    assert page.skipped_bytes > PAGE_BYTES
    assert (page.at_tail, texts(page)[-1][:6]) == (True, "000299")
    write(store, 500, first=300)
    page = event_page(store, STREAM, start=page.next, follow=True)
    assert (page.skipped_bytes, page.skipped_events, len(page.events)) == (0, 300, 200)
    assert texts(page)[-1] == "000799"


def test_the_latest_events_are_found_behind_a_split(store: Engine) -> None:
    """Right after a stream was scaled its new segments are empty, and the page would be, too."""
    write(store, 400)
    for segment in store.stream(STREAM).segments:
        middle = (segment.low + segment.high) / 2
        store.scale_stream(STREAM, [segment.segment_id], [(segment.low, middle), (middle, segment.high)])
    assert texts(event_page(store, STREAM, start="latest", follow=True))[-1] == "000399"


def test_a_position_is_a_cut_a_time_or_a_pointer(store: Engine) -> None:
    """People have what a log or another tool has printed."""
    write(store, 300)
    first = event_page(store, STREAM, start="head")
    event = first.events[120]
    assert texts(event_page(store, STREAM, start=first.next)) == texts(event_page(store, STREAM, start=first.next))
    by_pointer = event_page(store, STREAM, start=event["pointer"])
    assert event["pointer"] in [found["pointer"] for found in by_pointer.events[:3]]
    by_time = event_page(store, STREAM, start=str(event["time_ms"]))
    assert by_time.events[0]["time_ms"] == event["time_ms"]
    assert event_page(store, STREAM, start="tail").events == []


@pytest.mark.parametrize("start", ["", "nowhere", "12 o'clock", "9" * 30, "a/b:0@0", "plant/other:0@0", f"{STREAM}:x"])
def test_a_text_that_is_no_position_is_refused_with_what_to_use(served: Served, start: str) -> None:
    """Whatever is typed into the field, the page says what to type instead."""
    served.store.create_stream(STREAM, segments=2, exist_ok=True)
    client = served.client("rita")
    answer = client.get("events", name=STREAM, start=start)
    assert (answer.status, answer.error) == (400, "BadArgument")
    assert client.get("events", name=STREAM, start=f"{STREAM}:0@7").status in {400, 409}


def test_a_page_whose_place_was_truncated_begins_at_the_head(store: Engine) -> None:
    """Retention may delete what a page has just shown; the page goes on and says so."""
    write(store, 300)
    page = event_page(store, STREAM, start="head")
    store.truncate_stream(STREAM, store.tail(STREAM))
    write(store, 5, first=300)
    again = event_page(store, STREAM, start=page.next)
    assert (again.truncated, texts(again)) == (True, [f"{number:06d}" for number in range(300, 305)])


def test_large_events_are_shown_by_their_beginning(store: Engine) -> None:
    """An event may be larger than the memory of the server."""
    write(store, 2)
    with store.writer(STREAM) as writer:
        for _ in range(2):
            with writer.begin_write_event("cam") as output:
                for _ in range(3):
                    output.write(b"x" * (1 << 20))
    found: list[dict[str, Any]] = []
    page = event_page(store, STREAM, start="latest", follow=True)
    found += page.events
    while not page.at_tail:
        page = event_page(store, STREAM, start=page.next, follow=True)
        found += page.events
    assert [(event["size"], event["shown"]) for event in found] == [(6, 6), (6, 6), (LARGE, 2048), (LARGE, 2048)]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", {"text": "", "shown": 0}),
        (b"plain \xe2\x82\xac\n", {"text": "plain €\n", "shown": 10}),
        (b"<script>alert(1)</script>", {"text": "<script>alert(1)</script>", "shown": 25}),
        (b"\x00\x01", {"hex": "0001", "shown": 2}),
        (b"bell \x07", {"hex": "62656c6c2007", "shown": 6}),
        (b"\xff" * 20, {"hex": "ff" * 16, "shown": 16}),
        (b"\xe2\x82", {"hex": "e282", "shown": 2}),
    ],
)
def test_bytes_are_shown_as_text_only_if_they_are_text(data: bytes, shown: dict[str, object]) -> None:
    """Control characters would show as something else, and be copied as such."""
    assert as_shown(data, len(data), hex_bytes=16) == shown


def test_a_text_that_is_cut_off_inside_a_character_is_a_text(store: Engine) -> None:
    """What is shown ends at a number of bytes, which may be inside of a character."""
    assert as_shown(b"ab\xe2\x82", 100, hex_bytes=16) == {"text": "ab", "shown": 4}


def test_an_event_in_detail_and_as_a_file(served: Served) -> None:
    """The page shows 64 KiB at most, the file has all of it, and no browser takes it for a page."""
    served.store.create_stream(STREAM, segments=2, exist_ok=True)
    html = b"<html><script>alert(1)</script>" * 4000
    with served.store.writer(STREAM) as writer:
        pointer = writer.write_event(html, key=b"\xff\x00", headers={"trace": b"abc"}).result()
        with writer.begin_write_event("cam") as output:
            output.write(bytes(LARGE))
    client = served.client("rita")
    shown = client.get("event", pointer=pointer).json
    assert (shown["key"], shown["headers"], shown["size"]) == ("0xff00", [["trace", "abc"]], len(html))
    assert (shown["shown"], shown["text"]) == (64 << 10, html[: 64 << 10].decode())
    for place, content in ((pointer, html), (output.pointer, bytes(LARGE))):
        answer = client.get("event/data", pointer=place)
        assert (answer.status, answer.body) == (200, content)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"].startswith("attachment; ")


@pytest.mark.parametrize("pointer", ["", "x", f"{STREAM}:0@1", f"{STREAM}:9@0", f"{STREAM}:0@0,1@0", "plant/no:0@0"])
@pytest.mark.parametrize("call", ["event", "event/data"])
def test_a_pointer_to_nothing_is_an_error_that_says_so(served: Served, call: str, pointer: str) -> None:
    """A pointer may be mistyped, or its event truncated away."""
    served.store.create_stream(STREAM, segments=2, exist_ok=True)
    answer = served.client("rita").get(call, pointer=pointer)
    assert answer.status in {400, 404}
    assert answer.json["message"]


def test_a_download_ends_when_the_user_may_not_read_any_more(served: Served) -> None:
    """A large event takes long to send, and the permission may end meanwhile."""
    served.store.create_stream(STREAM, segments=2, exist_ok=True)
    with served.store.writer(STREAM) as writer, writer.begin_write_event("cam") as output:
        for _ in range(32):
            output.write(bytes(1 << 20))
    served.users.add("temp", "secret", replace=True)
    served.users.grant("temp", "read", STREAM)
    client = served.client("temp")
    with closing(HTTPConnection("127.0.0.1", client.port, timeout=30)) as connection:
        path = f"/console/api/event/data?pointer={output.pointer}"
        connection.request("GET", path, headers={"Cookie": client.cookie or ""})
        response = connection.getresponse()
        assert len(response.read(1 << 20)) == 1 << 20
        served.users.remove("temp")
        with pytest.raises((IncompleteRead, ConnectionError)):
            response.read()


Bad = tuple[str, dict[str, object] | bytes]
BAD_BODIES: Final[list[Bad]] = [
    ("streams", b""),
    ("streams", b"{"),
    ("streams", b"[]"),
    ("streams", b"null"),
    ("streams", b"\xff\xfe"),
    ("streams", b'{"name": "plant/x", "segments": 1e400}'),
    ("streams", b"[" * 5000),
    ("streams", json.dumps({"name": "plant/x" + "y" * 70_000}).encode()),
    ("streams", {"name": 7}),
    ("streams", {"name": "plant/x", "segments": "two"}),
    ("streams", {"name": "plant/x", "segments": 1.5}),
    ("streams", {"name": "plant/x", "segments": 0}),
    ("streams", {"name": "plant/x", "segments": 10**9}),
    ("streams", {"name": "plant/x", "colour": "red"}),
    ("streams", {"name": "plant/x", "retention": "for ever"}),
    ("streams", {"name": "plant/x", "retention": "time"}),
    ("streams", {"name": "plant/x", "retention": "time", "limit": -1}),
    ("streams", {"name": "plant/x", "retention": "size", "limit": 0.5}),
    ("streams", {"name": "../../etc/passwd"}),
    ("scale", {"name": STREAM, "seal": "all", "ranges": []}),
    ("scale", {"name": STREAM, "seal": [0], "ranges": [[0, 2]]}),
    ("scale", {"name": STREAM, "seal": [0], "ranges": [["a", "b"]]}),
    ("truncate", {"name": STREAM, "confirm": STREAM, "to": "yesterday"}),
    ("truncate", {"name": STREAM, "confirm": STREAM, "to": 5}),
    ("seal", {"name": STREAM}),
    ("grant", {"user": "rita", "permission": "everything", "pattern": "*"}),
    ("session", {"user": "rita"}),
    ("session", {"user": 1, "password": 2}),
]


@pytest.mark.parametrize(("call", "body"), BAD_BODIES)
def test_a_body_that_is_wrong_is_refused_and_changes_nothing(served: Served, call: str, body: Any) -> None:  # noqa: ANN401
    """A program may send anything; the answer says what is wrong with it."""
    served.store.create_stream(STREAM, segments=2, exist_ok=True)
    before = served.store.streams()
    answer = served.client("anna").post(call, body)
    assert (answer.status, answer.error) == (400, "BadArgument")
    assert len(answer.json["message"]) < 500
    assert served.store.streams() == before


@pytest.mark.parametrize(
    "call",
    [
        "streams?page=0",
        "streams?page=x",
        "streams?page=-1",
        "streams?page=99999999999",
        "streams?order=size",
        "streams?filter=" + "x" * 300,
        "stream",
        "stream?name=",
        "stream?name=a",
        "stream?name=a/b/c",
        "stream?name=%00/x",
        f"time?name={STREAM}&past=yes",
        f"events?name={STREAM}&follow=2",
        f"events?name={STREAM}&key=" + "x" * 300,
    ],
)
def test_a_question_that_is_wrong_is_refused(served: Served, call: str) -> None:
    """The address of a page may be changed by hand."""
    served.store.create_stream(STREAM, segments=2, exist_ok=True)
    answer = served.client("anna").get(call)
    assert (answer.status, answer.error) == (400, "BadArgument")


def test_a_stream_that_is_gone_is_not_there(served: Served) -> None:
    """A page may be open while its stream is deleted."""
    client: Client = served.client("anna")
    served.store.create_stream("plant/gone")
    served.store.seal_stream("plant/gone")
    served.store.delete_stream("plant/gone")
    for call in ("stream", "segments", "time", "readers", "events"):
        answer = client.get(call, name="plant/gone")
        assert (answer.status, answer.error) == (404, "NoSuchStream")


@pytest.mark.parametrize("path", ["/console/api/nothing", "/console/../etc/passwd", "/console/static/..%2f_app.py"])
def test_there_is_nothing_else(served: Served, path: str) -> None:
    """Only the files of the pages are served, whatever the path says."""
    answer = served.client("anna").ask("GET", path)
    assert answer.status == 404
    assert b"def " not in answer.body


def test_the_address_without_a_slash_leads_to_the_page(served: Served) -> None:
    """People type /console."""
    client = served.client()
    assert client.ask("GET", "/console").headers["Location"] == "/console/"
    page = client.ask("GET", "/console/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert client.ask("GET", "/console/", If_None_Match=page.headers["ETag"]).status == 304


def test_a_pointer_is_checked_before_its_stream_is_looked_for(served: Served) -> None:
    """Whether a stream exists is not for those who may not read it."""
    client = served.client("rita")
    for stream in ("secret/plans", "secret/no-such"):
        assert client.get("event", pointer=EventPointer(stream, 0, 0)).error == "NotPermitted"
