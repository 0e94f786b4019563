"""``penstock read`` and ``penstock cat``."""

from __future__ import annotations

import base64
import json
import os
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock
from penstock.cli._save import save
from penstock.stream import READ_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal

BINARY = b"\xff\x00\n\xfe"
ALL = ["20.1", "20.4", "20.9", "21.2"]


@pytest.fixture
def places(call: Call, plant: Path) -> list[str]:
    """The pointers of the events; in a stream of one segment they are cuts, too."""
    assert plant.is_dir()
    return [json.loads(line)["pointer"] for line in call("read", "plant/readings", "--json").lines]


def arrow_batches(path: Path) -> pa.Table:
    with pa.ipc.open_file(str(path)) as file:
        return file.read_all()


def test_prints_each_event_as_a_line(call: Call, plant: Path) -> None:
    """What was written as lines comes out as lines."""
    assert plant.is_dir()
    assert call("read", "plant/readings").lines == ALL


def test_json_has_pointers_that_cat_takes(call: Call, places: list[str]) -> None:
    """A pointer on the screen is copied into the next command."""
    assert len(set(places)) == 4
    assert [call("cat", place).out for place in places] == ALL
    shown = json.loads(call("cat", places[0], "--json").out)
    assert (shown.pop("timestamp") > 1_700_000_000_000, shown) == (True, {"pointer": places[0], "event": "20.1"})


def test_event_that_is_no_text_is_base64_in_json_and_raw_otherwise(call: Call, plant: Path) -> None:
    """JSON holds text only; under a name of its own the other form cannot be mistaken for it."""
    plant.joinpath("binary").write_bytes(BINARY)
    pointer = json.loads(call("write", "plant/readings", "--file", "binary", "--json").out)["pointer"]
    expected = {"pointer": pointer, "event_base64": base64.b64encode(BINARY).decode()}
    shown = json.loads(call("read", "plant/readings", "--json").lines[-1])
    assert shown == expected | {"timestamp": shown["timestamp"]}
    assert json.loads(call("cat", pointer, "--json").out) == shown
    assert call("cat", pointer).raw == BINARY
    assert call("read", "plant/readings", "--from", pointer).raw == BINARY + b"\n"


@pytest.mark.parametrize(
    "command",
    ["read a/b --from", "read a/b --to", "tail a/b --from", "stream truncate a/b --at", "group create g a/b --from",
     "group reset dash --to"],
)  # fmt: skip
def test_pointer_is_no_place_in_a_stream_of_several_segments(call: Call, command: str) -> None:
    """It says nothing of the other segments: the error says so, and what to give instead."""
    call("stream", "create", "a/b", "--segments", "2")
    call("write", "a/b", stdin=b"x\n" * 9)
    call("group", "create", "dash", "a/b")
    result = call(*command.split(), "a/b:0@0")
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    reason = "a cut needs every segment once, as in a/b:0@0,1@0; give such a cut, a time, head or tail"
    assert result.err == f"penstock: invalid cut a/b:0@0 of stream 'a/b': {reason}\n"


def test_reads_from_one_place_to_another_and_up_to_a_limit(call: Call, places: list[str]) -> None:
    """The first is part of it, the second is not."""
    assert call("read", "plant/readings", "--from", places[1], "--to", places[3]).lines == ["20.4", "20.9"]
    assert call("read", "plant/readings", "--from", "tail").out == ""
    assert call("read", "plant/readings", "--to", "head").out == ""
    assert call("read", "plant/readings", "--limit", "3").lines == ALL[:3]
    assert call("read", "plant/readings", "--limit", "9", "--from", places[3]).lines == ALL[3:]


def test_reads_whole_streams_across_scaling(call: Call, plant: Path) -> None:
    """Older segments come before those that follow them."""
    assert plant.is_dir()
    call("stream", "scale", "plant/readings", "--split", "0")
    call("write", "plant/readings", "--key", "k", stdin=b"new\n")
    assert call("read", "plant/readings").lines == [*ALL, "new"]
    assert call("read", "plant/readings", "--limit", "2").lines == ALL[:2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("plant/other", 1),
        ("nonsense", 1),
        ("plant/readings --from nonsense", 2),
        ("plant/readings --from plant/readings:0@65", 1),
        ("plant/readings --to plant/other:0@0", 1),
        ("plant/readings --limit 0", 2),
        ("plant/readings -o no/such/folder", 1),
        ("plant/readings -o .", 2),
        ("plant/readings -o x.parquet --json", 2),
        ("plant/other -o x.parquet", 1),
    ],
)
def test_wrong_call_is_refused(call: Call, plant: Path, arguments: str, code: int) -> None:
    """Nothing is printed, and no file is made."""
    before = sorted(plant.iterdir())
    result = call("read", *arguments.split())
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    assert sorted(plant.iterdir()) == before


def test_columns_are_saved_as_parquet_and_arrow(call: Call, plant: Path) -> None:
    """Other programs read those; the columns are those of ``store.read``."""
    for name in ("x.parquet", "x.arrow"):
        assert call("read", "plant/readings", "-o", name) == (0, b"", "")
    with penstock.connect(plant / "penstock-data") as store:
        expected = pa.Table.from_batches(store.read("plant/readings"))
    assert parquet.read_table(plant / "x.parquet").equals(expected)
    assert arrow_batches(plant / "x.arrow").equals(expected)
    assert not list(plant.glob("*.part"))


def test_limit_holds_for_columns_and_an_empty_stream_has_them_too(call: Call, plant: Path) -> None:
    """A file without rows is still one that can be read."""
    call("read", "plant/readings", "--limit", "3", "-o", "x.arrow")
    assert arrow_batches(plant / "x.arrow").num_rows == 3
    call("stream", "create", "plant/empty")
    call("read", "plant/empty", "-o", "x.parquet")
    assert parquet.read_table(plant / "x.parquet").column_names == READ_SCHEMA.names


def test_lines_are_saved_under_any_other_name(call: Call, plant: Path) -> None:
    """As they would be printed; an older file is replaced."""
    plant.joinpath("x.txt").write_text("older, and longer than what comes now")
    call("read", "plant/readings", "-o", "x.txt")
    assert plant.joinpath("x.txt").read_text().splitlines() == ALL
    call("read", "plant/readings", "-o", "x.jsonl", "--json")
    assert [json.loads(line)["event"] for line in plant.joinpath("x.jsonl").read_text().splitlines()] == ALL


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.txt"])
def test_failure_leaves_no_half_of_a_file(tmp_path: Path, name: str) -> None:
    """An older file of that name is still there, whole."""
    tmp_path.joinpath(name).write_text("older")

    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(
            [{"event": b"event", "timestamp": 0, "segment_id": 0, "offset": 64}], schema=READ_SCHEMA
        )
        raise OSError("the disk is gone")

    with penstock.connect("memory:") as memory, pytest.raises(OSError, match="the disk is gone"):
        save(broken(), tmp_path / name, memory, "a/b", as_json=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert tmp_path.joinpath(name).read_text() == "older"


def test_pipe_in_place_of_a_file_is_written_to(call: Call, plant: Path) -> None:
    """``-o >(gzip > x.gz)`` and /dev/stdout are files to a shell."""
    os.mkfifo(plant / "pipe")
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(plant.joinpath("pipe").read_text()))
    thread.start()
    call("read", "plant/readings", "-o", "pipe")
    thread.join()
    assert read[0].splitlines() == ALL


@pytest.mark.parametrize(
    ("pointer", "code"),
    [
        ("nonsense", 2),
        ("plant/readings:0@64,1@64", 2),
        ("plant/readings:0@65", 1),
        ("plant/readings:0@99999", 1),
        ("plant/readings:7@56", 1),
        ("plant/other:0@64", 1),
    ],
)
def test_cat_refuses_what_points_to_no_event(call: Call, plant: Path, pointer: str, code: int) -> None:
    """Never the wrong bytes."""
    assert plant.is_dir()
    result = call("cat", pointer)
    assert (result.code, result.out, len(result.err.splitlines())) == (code, "", 1)


def test_terminal_gets_a_progress_bar_while_a_file_is_written(call_on_terminal: CallOnTerminal, plant: Path) -> None:
    """Lines on the screen are their own progress; a file shows none."""
    assert plant.is_dir()
    assert "reading plant/readings" in call_on_terminal("read", "plant/readings", "-o", "x.parquet")
    assert call_on_terminal("read", "plant/readings").split() == ALL
