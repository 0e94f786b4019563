"""``penstock stream``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import ByConsumption, ByDataRate, ByEventRate, BySize, ByTime, Fixed, StreamConfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal, Result


def config_of(folder: Path, name: str) -> StreamConfig:
    with penstock.connect(folder / "penstock-data") as store:
        return store.stream(name).config


def shown(call: Call, name: str) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(call("stream", "show", name, "--json").out)
    return info


def segments(info: dict[str, Any]) -> list[tuple[float, ...]]:
    return [(one["segment_id"], one["low"], one["high"]) for one in info["segments"]]


def assert_one_line(result: Result, *, code: int) -> None:
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("penstock: ")
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", StreamConfig()),
        ("--retention-time 7d", StreamConfig(retention=ByTime(7 * 86_400))),
        ("--retention-size 10GB", StreamConfig(retention=BySize(10_000_000_000))),
        ("--retention-consumption", StreamConfig(retention=ByConsumption())),
        ("--scale-events 1000", StreamConfig(scaling=ByEventRate(1000))),
        ("--scale-bytes 1MB", StreamConfig(scaling=ByDataRate(1_000_000))),
        ("--segments 2", StreamConfig(scaling=Fixed())),
        ("--tag hot --tag plant-7", StreamConfig(tags=("hot", "plant-7"))),
    ],
)
def test_create_turns_options_into_a_configuration(
    call: Call, tmp_path: Path, options: str, expected: StreamConfig
) -> None:
    """Each option is one field of the configuration that Python users know."""
    assert call("stream", "create", "a/b", *options.split()).code == 0
    assert config_of(tmp_path, "a/b") == expected


def test_create_tells_how_many_segments_there_are(call: Call) -> None:
    """In words, and as JSON with everything else."""
    assert call("stream", "create", "a/b", "--segments", "4").out == "a/b: 4 segments\n"
    info = json.loads(call("stream", "create", "c/d", "--segments", "2", "--json").out)
    assert segments(info) == [(0, 0.0, 0.5), (1, 0.5, 1.0)]


def test_create_again_is_refused_unless_it_may_exist(call: Call) -> None:
    """A script that runs twice says so; one that does not is told."""
    assert call("stream", "create", "a/b").code == 0
    assert_one_line(call("stream", "create", "a/b"), code=1)
    assert call("stream", "create", "a/b", "--segments", "3", "--exist-ok").out == "a/b: 1 segment\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-scope"],
        ["a/b c"],
        ["a/b", "--segments", "0"],
        ["a/b", "--segments", "10001"],
        ["a/b", "--retention-time", "7x"],
        ["a/b", "--retention-time", "0d"],
        ["a/b", "--retention-time", "1d", "--retention-size", "1GB"],
        ["a/b", "--retention-size", "1GB", "--retention-consumption"],
        ["a/b", "--retention-size", "0"],
        ["a/b", "--scale-events", "nan"],
        ["a/b", "--scale-events", "10", "--scale-bytes", "1MB"],
        ["a/b", "--scale-bytes", "fast"],
        ["a/b", "--tag", ""],
        ["a/b", "--tag", "\udcff"],
    ],
)
def test_create_refuses_what_cannot_be_and_makes_no_store(call: Call, tmp_path: Path, arguments: list[str]) -> None:
    """A typing mistake leaves nothing behind."""
    assert_one_line(call("stream", "create", *arguments), code=2)
    assert list(tmp_path.iterdir()) == []


def test_ls_lists_all_or_those_of_a_scope(call: Call) -> None:
    """One line a stream, to be cut and grepped: name, state, segments, events, bytes."""
    for name in ("b/two", "a/one", "a/more"):
        call("stream", "create", name)
    call("stream", "seal", "a/one")
    assert call("stream", "ls").lines == ["a/more\tactive\t1\t0\t0", "a/one\tsealed\t0\t0\t0", "b/two\tactive\t1\t0\t0"]
    assert [info["name"] for info in json.loads(call("stream", "ls", "a", "--json").out)] == ["a/more", "a/one"]
    assert call("stream", "ls", "nobody").out == ""
    assert json.loads(call("stream", "ls", "nobody", "--json").out) == []
    assert_one_line(call("stream", "ls", "no scope"), code=2)


def test_show_tells_all(call: Call, plant: Path) -> None:
    """What a script needs next is in it: places that other commands take, ranges that scale takes."""
    assert plant.is_dir()
    size = 64 + 4 * (4 + 4)
    info = shown(call, "plant/readings")
    assert info == {
        "name": "plant/readings",
        "state": "active",
        "epoch": 0,
        "segments": [{"segment_id": 0, "low": 0.0, "high": 1.0}],
        "config": {
            "scaling": {"type": "fixed", "segments": None},
            "retention": None,
            "timestamp_aggregation_timeout": 60.0,
            "tags": [],
            "keep_keys": True,
        },
        "events": 4,
        "size_bytes": size,
        "head": "plant/readings:0@0",
        "watermark": None,
        "consumers": {},
        "tail": f"plant/readings:0@{size}",
    }
    with penstock.connect(plant / "penstock-data") as store:
        store.register_consumer("plant/readings", "report", store.tail("plant/readings"))
    rows = dict(line.split("\t") for line in call("stream", "show", "plant/readings").lines)
    assert rows["consumer report"] == info["tail"]
    assert (rows["size"], rows["tail"], rows["segment 0"]) == (str(size), info["tail"], "0.0-1.0")


@pytest.mark.parametrize(
    ("options", "scaling", "retention"),
    [
        ("", "fixed", "none"),
        ("--scale-events 100 --retention-time 90m", "above 100 events/s per segment", "time 5400"),
        ("--scale-bytes 1MB --retention-size 1GB", "above 1000000/s per segment", "size 1000000000"),
        ("--retention-consumption", "fixed", "consumption"),
    ],
)
def test_show_tells_the_configuration(call: Call, options: str, scaling: str, retention: str) -> None:
    """Figures are plain where no human reads them."""
    call("stream", "create", "a/b", *options.split())
    rows = dict(line.split("\t") for line in call("stream", "show", "a/b").lines)
    assert (rows["scaling"], rows["retention"]) == (scaling, retention)


@pytest.mark.parametrize(
    "command", ["show a/c", "scale a/c --split 0", "truncate a/c --at tail", "seal a/c", "rm a/c", "rm a/c --force"]
)
def test_unknown_stream_is_an_error(call: Call, command: str) -> None:
    """Its name is in the message."""
    call("stream", "create", "a/b")
    result = call("stream", *command.split())
    assert_one_line(result, code=1)
    assert "'a/c'" in result.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--split 0", [(2, 0.0, 0.25), (3, 0.25, 0.5), (1, 0.5, 1.0)]),
        ("--split 0,1", [(2, 0.0, 0.25), (3, 0.25, 0.5), (4, 0.5, 0.75), (5, 0.75, 1.0)]),
        ("--merge 1,0", [(2, 0.0, 1.0)]),
        ("--seal 1 --ranges 0.5-0.6,0.6-1", [(0, 0.0, 0.5), (2, 0.5, 0.6), (3, 0.6, 1.0)]),
    ],
)
def test_scale_goes_on_in_other_segments(call: Call, options: str, expected: list[tuple[float, ...]]) -> None:
    """A split in two and a merge need no arithmetic; any other change can be written down."""
    call("stream", "create", "a/b", "--segments", "2")
    assert call("stream", "scale", "a/b", *options.split()).out == f"a/b: {len(expected)} segments\n".replace(
        " 1 segments", " 1 segment"
    )
    assert segments(shown(call, "a/b")) == expected


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--split 0 --merge 0,1",
        "--split 7",
        "--split x",
        "--split 0,0",
        "--merge 0,2",
        "--seal 0",
        "--ranges 0-1",
        "--seal 0 --ranges 0-0.2",
        "--seal 0 --ranges 0-x",
        "--seal 0 --ranges 0-0.5,0.5-2",
    ],
)
def test_scale_refuses_what_cannot_be(call: Call, options: str) -> None:
    """A key would have no segment, or two."""
    call("stream", "create", "a/b", "--segments", "3")
    before = shown(call, "a/b")
    assert_one_line(call("stream", "scale", "a/b", *options.split()), code=2)
    assert shown(call, "a/b") == before


def test_truncate_lets_the_stream_begin_later(call: Call, plant: Path) -> None:
    """At a cut that some other command printed, or at the tail."""
    assert plant.is_dir()
    second, third = (json.loads(line)["pointer"] for line in call("read", "plant/readings", "--json").lines[1:3])
    assert call("stream", "truncate", "plant/readings", "--at", second).out == f"plant/readings: begins at {second}\n"
    assert call("read", "plant/readings").lines == ["20.4", "20.9", "21.2"]
    assert json.loads(call("stream", "truncate", "plant/readings", "--at", third, "--json").out)["head"] == third
    assert call("stream", "truncate", "plant/readings", "--at", "tail").code == 0
    assert call("read", "plant/readings").out == ""
    assert_one_line(call("stream", "truncate", "plant/readings", "--at", second), code=1)


@pytest.mark.parametrize(
    ("place", "code"), [("nonsense", 2), ("a/c:0@0", 1), ("plant/readings:0@9999", 1), ("plant/readings:0@65", 1)]
)
def test_truncate_refuses_other_places(call: Call, plant: Path, place: str, code: int) -> None:
    """Nothing is lost by mistake."""
    assert plant.is_dir()
    assert_one_line(call("stream", "truncate", "plant/readings", "--at", place), code=code)
    assert len(call("read", "plant/readings").lines) == 4


def test_sealed_stream_takes_no_more_events(call: Call, plant: Path) -> None:
    """It stays to be read; sealing it again does nothing."""
    assert plant.is_dir()
    assert call("stream", "seal", "plant/readings").out == "plant/readings: sealed\n"
    assert json.loads(call("stream", "seal", "plant/readings", "--json").out)["state"] == "sealed"
    assert_one_line(call("write", "plant/readings", stdin=b"late\n"), code=1)
    assert len(call("read", "plant/readings").lines) == 4


def test_rm_deletes_what_is_sealed_or_with_force(call: Call) -> None:
    """A user who deletes a stream that is still written to has to say so."""
    call("stream", "create", "a/b")
    call("stream", "create", "a/c")
    assert_one_line(call("stream", "rm", "a/b"), code=1)
    assert call("stream", "rm", "a/b", "--force").out == "a/b: deleted\n"
    call("stream", "seal", "a/c")
    assert json.loads(call("stream", "rm", "a/c", "--json").out) == {"name": "a/c", "state": "deleted"}
    assert call("stream", "ls").out == ""


def test_terminal_gets_tables_and_human_figures(call_on_terminal: CallOnTerminal, plant: Path) -> None:
    """Headings and units are for people; programs get plain lines."""
    assert plant.is_dir()
    commands = ("stream ls", "stream show plant/readings", "group lag")
    shown = "".join(call_on_terminal(*command.split()) for command in commands)
    for expected in ("segments", "96 B", "plant/readings:0@96", "dashboard"):
        assert expected in shown
    assert "\t" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--retention-size 0B", "invalid --retention-size 0: use a whole number of at least 1"),
        ("--retention-size 10", "invalid --retention-size '10': use a number and B, kB, MB"),
        ("--retention-time 7", "invalid --retention-time '7': use a number and ms, s, m, h, d or w, like 7d"),
        ("--retention-time 0s", "invalid --retention-time 0.0: use a number above 0"),
        ("--retention-time 1x", "invalid --retention-time '1x': use a number and ms, s, m, h, d or w, like 7d"),
        ("--scale-events 0", "invalid --scale-events 0.0: use a number above 0"),
        ("--scale-bytes 0B", "invalid --scale-bytes 0: use a number above 0"),
        ("--segments 0", "invalid --segments 0: use a whole number from 1 to 10,000"),
        ("--retention-size 1MB --retention-time 1d", "--retention-time and --retention-size contradict each other"),
    ],
)
def test_mistakes_name_options(call: Call, arguments: str, message: str) -> None:
    """A user who types --retention-size has never heard of size_bytes."""
    result = call("stream", "create", "a/b", *arguments.split())
    assert result.code == 2
    assert result.err.startswith(f"penstock: {message}")


def test_advice_names_options(call: Call) -> None:
    """Neither exist_ok=True nor a call can be typed here."""
    call("stream", "create", "a/b")
    assert call("stream", "create", "a/b").err == (
        "penstock: stream 'a/b' exists: choose another name, or give --exist-ok to keep it as it is\n"
    )
    assert call("stream", "rm", "a/b").err == ("penstock: stream 'a/b' is not sealed: seal it first, or use --force\n")


def test_update_changes_what_is_named(call: Call) -> None:
    """A stream is made once and lives for years; what is not named stays as it is."""
    call("stream", "create", "a/b", "--retention-time", "7d", "--tag", "old", "--scale-events", "9")
    assert call("stream", "update", "a/b", "--retention-size", "1MB").out == (
        "a/b: scaling above 9 events/s per segment, retention size 1000000, tags old\n"
    )
    changed = json.loads(call("stream", "update", "a/b", "--tag", "x", "--tag", "y", "--no-scaling", "--json").out)
    assert changed["config"]["tags"] == ["x", "y"]
    assert changed["config"]["scaling"]["type"] == "fixed"
    assert changed["config"]["retention"]["size_bytes"] == 1_000_000
    assert call("stream", "update", "a/b", "--no-retention", "--no-tags").out == "a/b: scaling fixed, retention none\n"


def test_keys_are_kept_unless_told_otherwise(call: Call) -> None:
    """They cost a few bytes an event, which some streams do not want to pay."""
    assert json.loads(call("stream", "create", "a/b", "--no-keys", "--json").out)["config"]["keep_keys"] is False
    assert json.loads(call("stream", "update", "a/b", "--keys", "--json").out)["config"]["keep_keys"] is True
    assert json.loads(call("stream", "create", "a/c", "--json").out)["config"]["keep_keys"] is True


def test_update_without_a_change_is_a_mistake(call: Call) -> None:
    """Something was forgotten."""
    call("stream", "create", "a/b")
    assert (call("stream", "update", "a/b").code, call("stream", "update", "a/c", "--no-tags").code) == (2, 1)
    contradiction = call("stream", "update", "a/b", "--retention-size", "1MB", "--no-retention")
    assert contradiction.err.startswith("penstock: --retention-size and --no-retention contradict each other")
