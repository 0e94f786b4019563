"""``penstock write``."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import penstock
from penstock.cli._input import EventFeed
from penstock.cpo import open_cpo
from penstock.errors import PenstockError
from penstock.testing import Fault, FaultyDisk, MemoryDisk
from tests.stream.harness import STREAM, store_on

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine
    from penstock.stream.format import GivenHeaders
    from tests.cli.conftest import Call, CallOnTerminal


@pytest.fixture
def stream(call: Call) -> str:
    call("stream", "create", "a/b", "--segments", "2")
    return "a/b"


@pytest.mark.parametrize(
    ("stdin", "events"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\n\nthree\r\n", ["one", "", "three\r"]),
        (b"\n", [""]),
    ],
)
def test_every_line_is_an_event(call: Call, stream: str, stdin: bytes, events: list[str]) -> None:
    """Only the end of the line is not part of it, and the last line needs none."""
    assert call("write", stream, stdin=stdin).code == 0
    assert call("read", stream).raw == "".join(f"{event}\n" for event in events).encode()


def test_count_is_told_and_of_one_event_the_pointer(call: Call, stream: str) -> None:
    """The pointer of a single event is what the next command needs."""
    assert call("write", stream, stdin=b"one\ntwo\n").out == "2 events written\n"
    assert json.loads(call("write", stream, "--json", stdin=b'{"event":"a"}\n{"event":"b"}\n').out) == {
        "stream": stream,
        "events": 2,
        "pointer": None,
    }
    pointer = json.loads(call("write", stream, "--json", stdin=b'{"event":"three"}').out)["pointer"]
    assert call("cat", pointer).out == "three"
    told = call("write", stream, stdin=b"four\n").out
    assert told.startswith("1 event written: ")
    assert call("cat", told.split()[-1]).out == "four"


def test_files_are_read_in_order_and_dash_is_the_standard_input(call: Call, stream: str, tmp_path: Path) -> None:
    """As with cat; a line does not go on in the next file."""
    tmp_path.joinpath("one").write_text("1\n2")
    tmp_path.joinpath("two").write_text("5\n")
    call("write", stream, "one", "-", "two", "--key", "k", stdin=b"3\n4\n")
    assert call("read", stream).lines == ["1", "2", "3", "4", "5"]


def test_whole_file_is_one_event(call: Call, stream: str, tmp_path: Path) -> None:
    """Byte for byte, whatever is in it."""
    data = bytes(range(256)) * 3
    tmp_path.joinpath("image").write_bytes(data)
    tmp_path.joinpath("empty").write_bytes(b"")
    assert call("write", stream, "--file", "image", "--file", "empty").out == "2 events written\n"
    pointer = json.loads(call("write", stream, "--file", "image", "--json").out)["pointer"]
    assert call("cat", pointer).raw == data


@pytest.mark.parametrize("key", ["sensor-7", "", "\udcff"])
def test_events_of_a_key_are_in_one_segment(call: Call, stream: str, key: str) -> None:
    """Their order is kept; a key may be any bytes that a shell can give."""
    for number in range(5):
        assert call("write", stream, "--key", key, stdin=b"%d\n" % number).code == 0
    places = [json.loads(line)["pointer"].partition("@")[0] for line in call("read", stream, "--json").lines]
    assert len(places) == 5
    assert len(set(places)) == 1
    assert call("read", stream).lines == ["0", "1", "2", "3", "4"]


def test_writer_id_is_remembered(call: Call, stream: str, tmp_path: Path) -> None:
    """Its numbers go on where they were."""
    call("write", stream, "--writer-id", "w1", stdin=b"a\nb\n")
    call("write", stream, "--writer-id", "w1", stdin=b"c\n")
    with penstock.connect(tmp_path / "penstock-data") as store, store.writer(stream, "w1") as writer:
        assert writer.last_number == 2


def test_more_than_any_buffer_holds_arrives_whole(call: Call, stream: str, tmp_path: Path) -> None:
    """Reads end within lines; the lines do not."""
    lines = [f"{number} {'x' * (number % 1000)}" for number in range(10_000)]
    tmp_path.joinpath("lines").write_text("\n".join(lines))
    assert call("write", stream, "lines", "--key", "k").out == "10000 events written\n"
    assert call("read", stream).lines == lines


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a/c"], 1),
        (["nonsense"], 1),
        (["a/b", "file", "no-such-file"], 1),
        (["a/b", "--file", "file", "--file", "no-such-file"], 1),
        (["a/b", "--file", "."], 2),
        (["a/b", "."], 2),
        (["a/b", "file", "--file", "file"], 2),
        (["a/b", "--writer-id", "no name"], 2),
    ],
)
def test_wrong_call_writes_nothing(call: Call, stream: str, tmp_path: Path, arguments: list[str], code: int) -> None:
    """The message names what is wrong; the stream is as it was."""
    tmp_path.joinpath("file").write_text("line\n")
    result = call("write", *arguments, stdin=b"line\n")
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    assert call("read", stream).out == ""


def test_lines_of_a_slow_pipe_are_written_as_they_come(call: Call, shared: Engine) -> None:
    """A program that logs a line an hour does not wait for a full buffer: the next comes when the last was read."""
    shared.create_stream("a/b")
    reader = shared.create_reader_group("g", ["a/b"]).reader("r")
    ours, theirs = os.pipe()
    seen: list[object] = []

    def write_lines() -> None:
        with open(theirs, "wb", buffering=0) as pipe:
            for line in (b"first", b"second"):
                pipe.write(line + b"\n")
                read = reader.read_next_event(timeout=30)
                seen.append(None if read is None else read.event)

    thread = threading.Thread(target=write_lines)
    with open(ours, "rb") as stdin:
        thread.start()
        result = call("write", "a/b", stdin=stdin)
    thread.join()
    reader.close()
    assert (result.code, seen) == (0, [b"first", b"second"])


def test_terminal_gets_a_progress_bar(call_on_terminal: CallOnTerminal, plant: Path) -> None:
    """Large files take a while, and the user sees that the command still runs."""
    assert plant.is_dir()
    assert "writing" in call_on_terminal("write", "plant/readings", "readings.txt")
    assert "writing" in call_on_terminal("write", "plant/readings", "--file", "readings.txt")
    assert "writing" not in call_on_terminal("write", "plant/readings", stdin=b"1\n")


# Lines of JSON


def carried(store: Path, stream: str) -> list[tuple[bytes, bytes | None, list[tuple[str, bytes]] | None]]:
    """Return events, keys and headers of a stream."""
    with penstock.connect(store) as opened:
        columns = pa.Table.from_batches(opened.read(stream)).select(["event", "key", "headers"])
        return [tuple(row.values()) for row in columns.to_pylist()]


def test_read_and_write_as_json_lose_nothing(call: Call, here: Path) -> None:
    """A stream is copied by a pipe: with keys, headers, ends of lines and bytes that are no text."""
    rows: list[tuple[bytes, str | bytes | None, GivenHeaders | None]] = [
        (b"plain", None, None),
        (b"", b"", {}),
        (b"two\nlines\r\n\x00", "sensor-7", {"trace": b"1", "empty": b""}),
        (b"\xff\xfe binary \n", b"\xff key", {"raw": b"\x00\xff", "\u00fc": "\u00fc".encode()}),
        ('\u2028 \U0001f600 "quoted"'.encode(), "\u00fc", None),
        (b"twice", "k", [("d", b"1"), ("e", b"\xff"), ("d", b"2")]),
        (b"x" * (1 << 20), "full", None),
    ]
    for stream in ("a/b", "a/c"):
        call("stream", "create", stream)
    with penstock.connect(here / "penstock-data") as store, store.writer("a/b") as writer:
        for event, key, headers in rows:
            writer.write_event(event, key, headers=headers)
    lines = call("read", "a/b", "--json").raw
    assert lines.count(b"\n") == len(rows)
    assert json.loads(call("write", "a/c", "--json", stdin=lines).out)["events"] == len(rows)
    copied = carried(here / "penstock-data", "a/c")
    assert copied == carried(here / "penstock-data", "a/b")
    assert [row[0] for row in copied] == [row[0] for row in rows]


def test_json_lines_without_a_key_get_that_of_the_option(call: Call, stream: str, here: Path) -> None:
    """What a line says itself comes first."""
    call("write", stream, "--json", "--key", "k", stdin=b'{"event":"a"}\n\n{"event":"b","key":"own"}\n')
    assert {row[:2] for row in carried(here / "penstock-data", stream)} == {(b"a", b"k"), (b"b", b"own")}


def test_json_line_may_hold_a_large_event(call: Call) -> None:
    """Large and small events come in any order, from any program that prints such lines."""
    stream = "a/c"
    call("stream", "create", stream)
    event = "x" * (3 << 20)
    lines = json.dumps({"event": "small"}) + "\n" + json.dumps({"event": event}) + "\n" + json.dumps({"event": "last"})
    assert json.loads(call("write", stream, "--json", stdin=lines.encode()).out)["events"] == 3
    assert call("read", stream).lines == ["small", event, "last"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"21.5", "not an event as read --json prints it"),
        (
            b'{"evnt":"a"}',
            "unknown field `evnt`): use the fields event or event_base64, key or key_base64, and headers",
        ),
        (b'{"event":"a","event_base64":"YQ=="}', "both event and event_base64"),
        (b'{"event":"a","key":"a","key_base64":"YQ=="}', "both key and key_base64"),
        (b'{"key":"a"}', "neither event nor event_base64"),
        (b'{"event_base64":"!"}', "Invalid base64"),
        (b'{"event":"a","headers":[1]}', "headers"),
        (b'{"event":"a"', "truncated"),
        (b"\xff", "not an event"),
    ],
)
def test_json_line_that_is_no_event_is_told_with_its_number(call: Call, stream: str, line: bytes, reason: str) -> None:
    """A file of a million lines has to be looked at in one place only."""
    result = call("write", stream, "--json", stdin=b'{"event":"a"}\n' + line + b"\n")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith("penstock: line 2: ")
    assert reason in result.err


def write_until_the_disk_is_full(store: Engine, disk: FaultyDisk) -> None:
    with store.writer(STREAM) as writer, EventFeed(writer, None) as feed:
        feed.add([b"event"] * 5)
        writer.flush()
        for call in ("reserve", "create"):
            disk.fail(Fault.ENOSPC, on=call, call=None)
        feed.add([bytes(5000)] * 50)
        writer.flush()


def test_full_disk_is_reported_with_the_number_of_events_that_were_written() -> None:
    """The user frees space and continues behind those events; a hint at another writer would not help."""
    disk = FaultyDisk(MemoryDisk())
    with open_cpo("memory:") as cpo, store_on(disk, cpo, "main", seed=1) as store:
        store.create_stream(STREAM)
        with pytest.raises(PenstockError, match=r"^no space left on the disk .*; 5 events written before$"):
            write_until_the_disk_is_full(store, disk)
        disk.heal()
