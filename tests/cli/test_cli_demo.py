"""``penstock demo``: a short one, with a real Spark, and what it prints."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import penstock
from penstock import spark
from penstock.spark import demo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call


@pytest.mark.usefixtures("short_demo")
def test_nothing_is_lost_with_the_writers_watermark_and_much_with_sparks_own(call: Call, here: Path) -> None:
    """That is what the demo is there to show; the chart shows the same."""
    result = call("demo", "--output", "shown", "--json")
    assert (result.code, result.err) == (0, ""), result.err
    figures = json.loads(result.out)
    assert (figures["events"], figures["windows"]) == (3 * 120 * 5, 4)
    assert (figures["exact_lost"], figures["exact_right"]) == (0, 4)
    assert figures["spark_lost"] > 0
    assert figures["spark_right"] < 4
    assert figures["large_event_is_whole"]
    assert figures["archived"] == figures["events"] + 2, "with the last one, and the large one"
    page = (here / "shown" / "chart.html").read_text()
    kept, late, lines = parts_of(page)
    assert len(lines) == 2
    assert all(len(line.split()) > 6 for line in lines)
    assert lines[0] != lines[1]
    assert len(kept) > 1000
    assert len(late) == figures["spark_lost"], "each reading of so few is drawn"
    assert call("stream", "ls", "--store", "shown/data").lines[0].startswith("plant/readings\t")


def parts_of(page: str) -> tuple[list[ET.Element], list[ET.Element], list[str]]:
    """Return the dots of a chart, those that were lost, and its lines."""
    picture = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])
    kept, late = picture.findall("g")
    return list(kept), list(late), [line.attrib["points"] for line in picture.findall("polyline")]


def test_a_folder_that_is_not_of_the_demo_stays_as_it_is(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo empties its folder; it must be sure that it is its own, and says so before anything is started."""
    monkeypatch.setattr(spark, "local_session", None)
    (here / "mine").mkdir()
    (here / "mine" / "thesis.txt").write_text("years of work")
    result = call("demo", "--output", "mine")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("penstock: ")
    assert "not made by an earlier demo" in result.err
    assert result.err.count("\n") == 1
    assert [path.name for path in (here / "mine").iterdir()] == ["thesis.txt"]
    with penstock.connect(here / "data") as store:
        store.create_stream("my/own")
    assert call("demo", "--output", ".").code == 1, "a store is no demo"
    with penstock.connect(here / "data") as store:
        assert [one.name for one in store.streams()] == ["my/own"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> demo.Story:
    """What the demo is told happened, in no time: of three readings, Spark alone lost one."""
    readings = [demo.Reading(number, "north", at, at + 1) for number, at in enumerate((1.0, 2.0, 31.0))]
    story = demo.Story(readings, Counter({0: 2, 30: 1}), Counter({0: 1, 30: 1}), {1}, large_is_whole=True, archived=4)

    def tell(*given: object) -> demo.Story:
        say = given[-1]
        assert callable(say)
        for text in ("minute 1 of 2", "minute 1.5 of 2", "archiving"):
            say(text)
        return story

    monkeypatch.setattr(spark, "local_session", lambda _: nullcontext())
    monkeypatch.setattr(demo, "tell", tell)
    return story


def test_the_table_fits_a_terminal_and_says_what_to_do_next(
    call: Call, told: demo.Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first that many see of Penstock; elsewhere than on a terminal, few lines tell how far it is."""
    del told
    monkeypatch.setenv("COLUMNS", "80")
    result = call("demo")
    assert result.code == 0
    assert result.err.splitlines() == ["starting Spark", "minute 1 of 2", "archiving"]
    assert all(len(line) <= 80 for line in result.lines)
    exact, guessed = (line.split("│")[1:5] for line in result.lines if line.startswith("│"))
    assert [cell.strip() for cell in exact] == ["with the writers' watermark", "3", "0", "2 of 2"]
    assert [cell.strip() for cell in guessed] == ["with Spark's own, 10 s", "2", "1", "1 of 2"]
    assert "penstock-demo/chart.html" in result.out
    assert "penstock tail plant/readings --windows --store penstock-demo/data" in result.out


@pytest.mark.parametrize("fault", ["lost", "damaged"])
def test_a_demo_that_shows_the_contrary_fails(call: Call, told: demo.Story, fault: str) -> None:
    """A script that runs it is told."""
    if fault == "lost":
        told.exact[0] = 1
    else:
        told.large_is_whole = False
    assert call("demo", "--json").code == 1
