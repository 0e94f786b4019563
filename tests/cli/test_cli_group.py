"""``penstock group``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import penstock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call


@pytest.fixture
def two(call: Call, plant: Path) -> Path:
    """The group ``both`` reads two streams, of which one is empty."""
    call("stream", "create", "plant/alarms")
    with penstock.connect(plant / "penstock-data") as store:
        store.create_reader_group("both", ["plant/readings", "plant/alarms"])
    return plant


def position(folder: Path, group: str) -> list[str]:
    with penstock.connect(folder / "penstock-data") as store:
        return [str(cut) for cut in store.reader_group(group).position]


def test_ls_lists_groups_with_streams_and_checkpoints(call: Call, two: Path) -> None:
    """What lag and reset take as names is to be found here."""
    assert two.is_dir()
    assert call("group", "ls").lines == ["both\tplant/readings,plant/alarms\t\t", "dashboard\tplant/readings\t\tfriday"]
    assert json.loads(call("group", "ls", "--json").out)[1] == {
        "name": "dashboard",
        "streams": ["plant/readings"],
        "readers": [],
        "checkpoints": ["friday"],
    }


def test_lag_tells_what_is_not_read_yet(call: Call, two: Path) -> None:
    """Of the groups that are named, or of all."""
    assert two.is_dir()
    lags = {one["name"]: one for one in json.loads(call("group", "lag", "--json").out)}
    assert (lags["dashboard"]["bytes"], lags["both"]["bytes"]) == (24, 96)
    assert lags["both"]["seconds"] >= 0
    assert (lags["dashboard"]["events"], lags["both"]["events"]) == (3, 4)
    name, events, size, seconds = call("group", "lag", "dashboard").out.rstrip("\n").split("\t")
    assert (name, int(events), size) == ("dashboard", lags["dashboard"]["events"], "24")
    assert float(seconds) >= 0


def test_lag_is_nothing_once_all_is_read(call: Call, plant: Path) -> None:
    """A check that watches a group goes by this."""
    assert plant.is_dir()
    call("group", "reset", "dashboard", "--to", "tail")
    assert json.loads(call("group", "lag", "--json").out) == [
        {"name": "dashboard", "events": 0, "bytes": 0, "seconds": 0.0}
    ]


@pytest.mark.parametrize(("place", "offset"), [("head", 0), ("tail", 96), ("friday", 72), ("plant/readings:0@80", 80)])
def test_reset_moves_a_group(call: Call, plant: Path, place: str, offset: int) -> None:
    """To either end, a checkpoint or a cut."""
    call("group", "reset", "dashboard", "--to", "head" if place != "head" else "tail")
    expected = f"plant/readings:0@{offset}"
    assert call("group", "reset", "dashboard", "--to", place).out == f"dashboard: continues from {expected}\n"
    assert position(plant, "dashboard") == [expected]


def test_reset_to_an_unknown_checkpoint_names_those_there_are(call: Call, two: Path) -> None:
    """A list in brackets, and an empty one above all, is no help."""
    assert two.is_dir()
    assert call("group", "reset", "dashboard", "--to", "monday").err.endswith("no checkpoint 'monday': it has friday\n")
    assert "it has none; use head, tail" in call("group", "reset", "both", "--to", "monday").err


def test_reset_of_several_streams_takes_a_cut_for_each(call: Call, two: Path) -> None:
    """A stream without one stays where it is."""
    told = call("group", "reset", "both", "--to", "plant/readings:0@96", "--to", "plant/alarms:0@0", "--json").out
    assert json.loads(told) == {"name": "both", "position": ["plant/readings:0@96", "plant/alarms:0@0"]}
    call("group", "reset", "both", "--to", "plant/alarms:0@0")
    assert position(two, "both") == ["plant/readings:0@96", "plant/alarms:0@0"]
    call("group", "reset", "both", "--to", "head")
    assert position(two, "both") == ["plant/readings:0@0", "plant/alarms:0@0"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("lag nobody", 1),
        ("reset nobody --to head", 1),
        ("reset dashboard --to monday", 1),
        ("reset dashboard --to head --to tail", 2),
        ("reset dashboard --to plant/readings:0", 2),
        ("reset dashboard --to plant/readings:0@65", 1),
        ("reset dashboard --to plant/alarms:0@0", 1),
        ("reset dashboard --to plant/readings:0@0 --to head", 2),
    ],
)
def test_wrong_call_is_one_line_and_moves_nothing(call: Call, two: Path, arguments: str, code: int) -> None:
    """A group that was moved by mistake would read again, or leave out."""
    before = position(two, "dashboard")
    result = call("group", *arguments.split())
    assert (result.code, result.out, len(result.err.splitlines())) == (code, "", 1)
    assert position(two, "dashboard") == before


def test_create_makes_a_group_that_reads_from_a_place(call: Call, plant: Path) -> None:
    """A script that sets up a machine creates the groups of its programs there."""
    assert call("group", "create", "late", "plant/readings", "--from", "tail").out == "late: reads plant/readings\n"
    assert call("group", "create", "early", "plant/readings").code == 0
    with penstock.connect(plant / "penstock-data") as store:
        assert store.reader_group("late").position == (store.tail("plant/readings"),)
        assert store.reader_group("early").position == (store.head("plant/readings"),)


def test_create_tells_of_a_group_that_is_there(call: Call, plant: Path) -> None:
    """In the words of the command line; a script that runs again says --exist-ok."""
    before = position(plant, "dashboard")
    result = call("group", "create", "dashboard", "plant/readings")
    assert (result.code, result.err) == (
        1,
        "penstock: reader group 'dashboard' exists: choose another name, or give --exist-ok to keep it as it is\n",
    )
    made = json.loads(call("group", "create", "dashboard", "plant/readings", "--exist-ok", "--json").out)
    assert made == {"name": "dashboard", "streams": ["plant/readings"], "position": before}
    call("stream", "create", "plant/alarms")
    other = call("group", "create", "dashboard", "plant/alarms", "--exist-ok")
    assert (other.code, "exists, and has other streams" in other.err) == (1, True)


@pytest.mark.parametrize("start", ["head", "tail", "10m", "2026-11-15T12:00"])
def test_create_with_exist_ok_runs_again(call: Call, plant: Path, start: str) -> None:
    """The same line in a script succeeds however far the stream, its head and the group have come."""
    command = ("group", "create", "alarms", "plant/readings", "--from", start, "--exist-ok")
    assert call(*command).code == 0
    call("write", "plant/readings", stdin=b"more\n")
    call("stream", "truncate", "plant/readings", "--at", "tail")
    before = position(plant, "alarms")
    assert call(*command).out == "alarms: reads plant/readings\n"
    assert position(plant, "alarms") == before


def test_create_with_exist_ok_at_another_cut_is_refused(call: Call, plant: Path) -> None:
    """No group reads on silently from a place that was not meant; the cut that it began at is fine, wherever it is."""
    head, tail = (
        json.loads(call("group", "create", place, "plant/readings", "--from", place, "--json").out)["position"][0]
        for place in ("head", "tail")
    )
    assert call("group", "create", "a", "plant/readings", "--from", head).code == 0
    call("group", "reset", "a", "--to", "tail")
    assert call("group", "create", "a", "plant/readings", "--from", head, "--exist-ok").code == 0
    other = call("group", "create", "a", "plant/readings", "--from", tail, "--exist-ok")
    assert (other.code, "reader group 'a' exists, and has another start" in other.err) == (1, True)
    assert position(plant, "a") == [tail]


def test_rm_deletes_a_group(call: Call, plant: Path) -> None:
    """Retention by consumption would wait for a group that is no longer used."""
    assert plant.is_dir()
    assert call("group", "rm", "dashboard").out == "dashboard: deleted\n"
    assert call("group", "ls").out == ""
    assert call("group", "rm", "dashboard").err == "penstock: no reader group 'dashboard': create it first\n"
