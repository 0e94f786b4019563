"""The table, the JSON and the chart of a report say the same."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

from penstock.bench import kind_rows, page_of, summary_rows
from penstock.bench._page import _FIGURE, _LABEL, _WIDTH
from tests.bench.harness import DELAY, SPEED, report_of

REPORT = report_of(
    {
        "won": (SPEED, {"penstock-served": 2_000_000, "penstock-embedded": 3_000_000, "synced": 100, "unsynced": 5}),
        "lost": (DELAY, {"penstock-served": 9, "penstock-embedded": 3, "synced": 1, "unsynced": "at most <1> MB"}),
    }
)


class Bars(HTMLParser):
    """What a page draws: by work and system, the median, or None where there is a reason; and whether tags match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[tuple[str, str], float | None] = {}
        self.open: list[str] = []
        self._work = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "rect", "line"}:
            self.open.append(tag)
        given = dict(attrs)
        self._work = given.get("data-work") or self._work
        if system := given.get("data-system"):
            median = given.get("data-median")
            self.found[self._work, system] = None if median is None else float(median)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"rect", "line"}, attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_chart_has_what_the_json_has() -> None:
    """The chart is what people see; a system that is missing in it was left out in silence."""
    written = json.loads(json.dumps(REPORT.to_json()))
    assert Bars(page_of(REPORT)).found == {
        (each["work"], each["system"]): each.get("median") for each in written["results"]
    }


def test_the_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    """It is sent by mail and opened years later; names and reasons of peers are text, not markup."""
    page = page_of(REPORT)
    assert Bars(page).open == []
    assert not re.search(r"https?:|<script|<link|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    for text in ("at most &lt;1&gt; MB", "write &lt;fast&gt;", "client: a &amp; b", "get &lt;it&gt;"):
        assert text in page
    assert page.index("Where Penstock loses") < page.index(">wait<") < page.index("Where no peer is faster")


def test_bars_to_the_right_are_faster() -> None:
    """The one thing that a reader has to know; the width of a bar is the power of ten, up to the edge."""
    page = page_of(REPORT)
    width = _WIDTH - _LABEL - _FIGURE
    middle = _LABEL + width / 2
    faster = re.findall(r'class="faster" x="([\d.]+)" y="\d+" width="([\d.]+)"', page)
    slower = re.findall(r'class="slower(?: unsynced)?" x="([\d.]+)" y="\d+" width="([\d.]+)"', page)
    assert [float(x) for x, _ in faster] == [middle], "nine times as fast"
    assert abs(float(faster[0][1]) - width / 6 * 0.9542) < 0.2
    assert [float(x) + float(width) for x, width in slower] == [middle, middle]
    assert {x for x, _ in slower} == {f"{_LABEL:.1f}"}, "both are slower than the chart is wide"


def test_json_has_the_fields_that_programs_use() -> None:
    """A script that follows the figures over months relies on these names."""
    written = REPORT.to_json()
    assert set(written) == {
        "format",
        "mode",
        "penstock",
        "started",
        "seconds",
        "machine",
        "warnings",
        "baseline",
        "systems",
        "skipped",
        "results",
    }
    head = {"work", "metric", "title", "system", "unit", "more_is_better"}
    for result in written["results"]:
        assert set(result) == head | ({"reason"} if "reason" in result else {"median", "low", "high", "values"})
    assert set(written["systems"][0]) == {"key", "title", "penstock", "synced", "default", "settings"}
    assert set(written["skipped"][0]) == {"key", "title", "reason"}
    assert written["baseline"] == "penstock-served"


def test_the_page_says_which_figures_are_of_events_that_were_sent() -> None:
    """The middle line of such a figure is another one; both kinds of reading are there to be seen."""
    figures: dict[str, float | str] = {
        "penstock-served": 90,
        "penstock-sent": 10,
        "penstock-embedded": 20,
        "synced": 30,
    }
    report = report_of({"read": (SPEED, figures), "wait": (DELAY, {"penstock-served": 9, "synced": 10})})
    page = page_of(report)
    assert "Where events are read, it is Penstock-Sent" in page
    assert "Penstock embedded, which needs no server, loses 1 " in page
    assert page.count("Penstock embedded loses, too") == 1
    assert "Where events are read" not in page_of(REPORT)


def test_where_there_is_no_server_the_embedded_store_is_named_once() -> None:
    """It is the middle line then; to say that it loses, too, would count the same loss twice."""
    report = report_of({"read": (SPEED, {"penstock-embedded": 20, "synced": 30})})
    alone = dataclasses.replace(
        report, systems=tuple(each for each in report.systems if each.key not in {"penstock-served", "penstock-sent"})
    )
    page = page_of(alone)
    assert "Penstock loses 1 to a peer that syncs as well" in page
    assert "Penstock embedded loses" not in page
    assert "which needs no server" not in page
    assert summary_rows(alone)[1][3] == "-"


def test_the_tables_have_both_kinds_of_reading() -> None:
    """The client that maps the files of the server is how a server on the same machine is used."""
    read: dict[str, float | str] = {"penstock-served": 90, "penstock-sent": 10, "penstock-embedded": 20, "synced": 30}
    report = report_of({"read": (SPEED, read), "wait": (DELAY, {"penstock-served": 9, "synced": 10})})
    assert summary_rows(report)[1][1] == "10 events/s ± 15 %, sent"
    assert kind_rows(report)[1:] == [
        ("write <fast>", "20 events/s ± 15 %", "90 events/s ± 15 %", "10 events/s ± 15 %"),
        ("wait", "-", "9 ms ± 15 %", "-"),
    ]


def test_a_machine_that_was_not_idle_is_named_in_the_page_and_in_the_json() -> None:
    """Figures of a busy machine are noise, and nobody sees that in the figures."""
    busy = dataclasses.replace(REPORT, machine={"cores": 2, "load_before": 7.5})
    (warning,) = busy.to_json()["warnings"]
    assert "the load was 7.5 before the run" in warning
    assert warning in page_of(busy)
    for machine in ({"load_before": 1.0}, {}):
        idle = dataclasses.replace(REPORT, machine=machine)
        assert idle.to_json()["warnings"] == []
        assert "Warning" not in page_of(idle)


def test_tables_have_the_fastest_peer_of_each_durability() -> None:
    """One look says where Penstock stands; a peer that does not sync is named as one."""
    assert summary_rows(REPORT) == [
        (
            "work",
            "Penstock-Served",
            "fastest peer that syncs",
            "the same to Penstock embedded",
            "fastest peer that does not",
        ),
        ("wait", "9 ms ± 15 %", "Synced: 9 times as fast", "3 times as fast", "-"),
        (
            "write <fast>",
            "2 M events/s ± 15 %",
            "Synced: 20 k times slower",
            "30 k times slower",
            "Unsynced: 400 k times slower",
        ),
    ]
    assert kind_rows(REPORT) == [
        ("work", "Penstock-Embedded", "Penstock-Served"),
        ("write <fast>", "3 M events/s ± 15 %", "2 M events/s ± 15 %"),
        ("wait", "3 ms ± 15 %", "9 ms ± 15 %"),
    ]
