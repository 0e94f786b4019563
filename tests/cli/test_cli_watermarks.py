"""``penstock watermarks``, and what other commands tell about time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.embedded import open_store
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal

STREAM = "plant/readings"


@pytest.fixture
def marked(call: Call, tmp_path: Path) -> Path:
    """A stream of three events with a watermark behind each of the first two."""
    call("stream", "create", STREAM)
    clock = ManualClock()
    with (
        open_store(tmp_path / "penstock-data", clock=clock, maintenance_interval_s=3600) as store,
        store.writer(STREAM, "w") as writer,
    ):
        for time in (1_000, 2_000):
            writer.write_event(f"before {time}".encode())
            writer.note_time(time)
            writer.flush()
            for _ in range(2):
                clock.advance(3600)
                store.maintain()
        writer.write_event(b"last")
    return tmp_path


def test_watermarks_are_listed_with_times_and_cut(call: Call, marked: Path) -> None:
    """A line each, to be cut and grepped; the cut can be given to other commands as it is."""
    assert marked.is_dir()
    lines = [line.split("\t") for line in call("watermarks", STREAM).lines]
    assert [line[:2] for line in lines] == [["1000", "1000"], ["2000", "2000"]]
    assert call("read", STREAM, "--from", lines[0][2]).lines == ["before 2000", "last"]


def test_watermarks_are_chosen_by_time_and_number(call: Call, marked: Path) -> None:
    """All watermarks of a long stream are too many to read."""
    assert marked.is_dir()

    def lower(*options: str) -> list[int]:
        return [one["lower"] for one in json.loads(call("watermarks", STREAM, "--json", *options).out)]

    assert lower() == [1_000, 2_000]
    assert lower("--from", "1001") == lower("--last", "1") == [2_000]
    assert lower("--to", "2000") == [1_000]
    assert call("watermarks", STREAM, "--from", "-1").code == 2
    assert call("watermarks", "no/stream").code == 1


def test_a_stream_without_time_has_no_watermarks(call: Call, plant: Path) -> None:
    """Which is no error."""
    assert plant.is_dir()
    assert call("watermarks", STREAM).out == ""
    assert json.loads(call("watermarks", STREAM, "--json").out) == []
    assert json.loads(call("stream", "show", STREAM, "--json").out)["watermark"] is None
    assert "watermark\tnone" in call("stream", "show", STREAM).lines


def test_show_tells_the_last_watermark_and_its_age(call: Call, call_on_terminal: CallOnTerminal, marked: Path) -> None:
    """How far behind the writers are is what somebody on call looks for first."""
    assert marked.is_dir()
    mark = json.loads(call("stream", "show", STREAM, "--json").out)["watermark"]
    assert (mark["lower"], mark["upper"]) == (2_000, 2_000)
    assert mark["age_seconds"] > 1.7e9
    shown = call_on_terminal("stream", "show", STREAM)
    assert "1970-01-01T00:00:02.000Z" in shown
    assert " d ago" in shown


def test_tail_prints_the_window_of_each_event(call: Call, marked: Path) -> None:
    """So that one can see which events a late window still waits for."""
    assert marked.is_dir()
    assert call("tail", STREAM, "--windows").lines == [
        "-\t1000\tbefore 1000",
        "1000\t2000\tbefore 2000",
        "2000\t-\tlast",
    ]
    windows = [json.loads(line)["window"] for line in call("tail", STREAM, "--windows", "--json").lines]
    assert windows == [
        {"lower": None, "upper": 1_000},
        {"lower": 1_000, "upper": 2_000},
        {"lower": 2_000, "upper": None},
    ]


def test_tail_prints_no_times_where_there_are_none(call: Call, plant: Path) -> None:
    """The columns stay, so that a script need not know."""
    assert plant.is_dir()
    assert call("tail", STREAM, "--windows", "--last", "1").out.startswith("-\t-\t")
    assert json.loads(call("tail", STREAM, "--windows", "--json", "--last", "1").out)["window"] is None


def test_write_notes_a_time_for_the_writer(call: Call, tmp_path: Path) -> None:
    """A script that writes notes times, too; a later process makes a watermark of them."""
    call("stream", "create", STREAM)
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    assert call("write", STREAM, str(file), "--writer-id", "w", "--note-time", "1000").code == 0
    clock = ManualClock(4e9)
    with open_store(tmp_path / "penstock-data", clock=clock) as store:
        store.maintain()
        clock.advance(2)
        store.maintain()
        assert [(one.lower, one.cut) for one in store.watermarks(STREAM)] == [(1_000, store.tail(STREAM))]


@pytest.mark.parametrize(
    "options",
    [
        ["--note-time", "5"],
        ["--note-time", "-5", "--writer-id", "w"],
        ["--note-time", "1794803987", "--writer-id", "w"],  # seconds
    ],
)
def test_write_refuses_a_time_that_cannot_be(call: Call, tmp_path: Path, options: list[str]) -> None:
    """Before anything is written."""
    call("stream", "create", STREAM)
    file = tmp_path / "lines"
    file.write_text("one\n")
    assert call("write", STREAM, str(file), *options).code == 2
    assert call("read", STREAM).out == ""
