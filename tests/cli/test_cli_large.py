"""Events above 1 MiB on the command line: there and back, in little memory, and never on the screen."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock
from penstock.cli import _input
from penstock.cli._input import EventFeed, write_json, write_lines, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock import Store
    from penstock.stream import Engine
    from tests.cli.conftest import Call, CallOnTerminal, Run

MIB = 1 << 20
FILM = random.Random(7).randbytes(5 * MIB + 3)

# Prints how much memory (KiB) it took to write, and to print, a small event and a large one: the most that there was
# whenever a part of an event was written or printed. Only memory of our own counts: what is mapped of a store's
# files the system takes back when it needs it.
MEMORY = """
import contextlib, io, json, re, sys
from penstock.cli import main
from penstock.cli._input import EventFeed
from penstock.stream import EventOutputStream

peak = 0

def noting(write):
    def noted(*arguments):
        global peak
        with open("/proc/self/status") as status:
            peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]))
        return write(*arguments)
    return noted

class Nowhere(io.RawIOBase):
    def writable(self):
        return True
    @noting
    def write(self, data):
        return len(data)

def memory(*arguments, out=None):
    global peak
    peak = 0
    sys.argv = ["penstock", *arguments]
    with contextlib.redirect_stdout(out or io.TextIOWrapper(io.BufferedWriter(Nowhere()))):
        with contextlib.suppress(SystemExit):
            main()
    return peak

EventFeed.add_part = noting(EventFeed.add_part)
EventOutputStream.write = noting(EventOutputStream.write)
memory("stream", "create", "a/b")
files, lines, pointers = [], [], []
for size in ("small", "large"):
    told = io.StringIO()
    files.append(memory("write", "a/b", "--json", "--file", size, out=told))
    lines.append(memory("write", "a/b", size))
    pointers.append(json.loads(told.getvalue())["pointer"])
print(json.dumps({
    "write --file": files,
    "write": lines,
    "cat": [memory("cat", pointer) for pointer in pointers],
    "read": [memory("read", "a/b", "--limit", limit) for limit in ("1", "4")],
    "read --json": [memory("read", "a/b", "--limit", limit, "--json") for limit in ("1", "3")],
    "write --json": [memory("write", "a/b", "--json", size + ".json") for size in ("small", "large")],
}))
"""


@pytest.fixture
def stream(call: Call) -> str:
    call("stream", "create", "a/b")
    return "a/b"


@pytest.fixture
def film(call: Call, stream: str, tmp_path: Path) -> str:
    """The pointer of a large event between two small ones."""
    tmp_path.joinpath("film").write_bytes(FILM)
    call("write", stream, "--key", "cam1", stdin=b"before\n")
    pointer: str = json.loads(call("write", stream, "--file", "film", "--key", "cam1", "--json").out)["pointer"]
    call("write", stream, "--key", "cam1", stdin=b"after\n")
    return pointer


def short_line(pointer: str) -> str:
    return f"(large event, size {len(FILM)}: penstock cat {pointer})"


def test_file_goes_there_and_back_byte_for_byte(call: Call, stream: str, tmp_path: Path) -> None:
    """The pointer that write prints is all that cat needs."""
    tmp_path.joinpath("film").write_bytes(FILM)
    told = call("write", "--file", "film", "--key", "cam1", stream)
    assert (told.code, told.out.split(": ")[0]) == (0, "1 event written")
    assert call("cat", told.out.split()[-1]).raw == FILM


def test_standard_input_is_a_whole_file_too(call: Call, stream: str) -> None:
    """``tar c . | penstock write --file -``: its size need not be known before."""
    pointer = call("write", stream, "--file", "-", stdin=FILM).out.split()[-1]
    assert call("cat", pointer).raw == FILM


def test_empty_file_is_an_empty_event(call: Call, stream: str, tmp_path: Path) -> None:
    """Nothing is something that was written."""
    tmp_path.joinpath("empty").touch()
    pointer = call("write", stream, "--file", "empty").out.split()[-1]
    assert call("cat", pointer) == (0, b"", "")
    assert call("read", stream).raw == b"\n"


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, MIB + (256 << 10), 3 * MIB])
def test_line_of_any_size_is_an_event(call: Call, stream: str, size: int) -> None:
    """Around the limit, with small ones before and behind it, and at the end without an end of line."""
    line = FILM.replace(b"\n", b" ")[:size]
    stdin = b"one\n" + line + b"\ntwo\n\n" + line
    assert call("write", stream, "--key", "k", stdin=stdin).out == "5 events written\n"
    assert call("read", stream).raw == stdin + b"\n"


def test_memory_does_not_grow_with_the_event(tmp_path: Path) -> None:
    """An event may be larger than the machine's memory: as a file, as a line, and on the way out."""
    for name, size in (("small", 16 * MIB), ("large", 64 * MIB)):
        with tmp_path.joinpath(name).open("wb") as file:
            file.truncate(size)
        with tmp_path.joinpath(f"{name}.json").open("wb") as file:
            file.write(b'{"key":"k","event_base64":"')
            for _ in range(size // MIB):
                file.write(b"A" * (4 * MIB // 3 // 4 * 4))
            file.write(b'"}\n')
    result = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    for what, (small, large) in json.loads(result.stdout).items():
        assert small > 0
        assert large - small < 32 << 10, f"{what}: {large - small} KiB more"


@pytest.mark.parametrize("command", ["tail a/b", "tail a/b --from head", "tail a/b -n 3 --limit 9"])
def test_tail_shows_size_and_pointer_of_a_large_event(call: Call, film: str, command: str) -> None:
    """A user who looks at the last events wants to see them, not five million bytes of a film."""
    assert call(*command.split()).lines == ["before", short_line(film), "after"]


def test_tail_as_json_has_the_size_instead_of_the_event(call: Call, film: str) -> None:
    """A program that looks at the last events fetches what is large by its pointer, and cannot copy it as it is."""
    before, large, after = (json.loads(line) for line in call("tail", "a/b", "--json").lines)
    assert (before["event"], after["event"]) == ("before", "after")
    del large["timestamp"]
    assert large == {"pointer": film, "key": "cam1", "size": len(FILM)}
    refused = call("write", "a/b", "--json", stdin=call("tail", "a/b", "--json").raw)
    assert (refused.code, f"line 2: only the size of the event {film} is given" in refused.err) == (2, True)


@pytest.mark.parametrize("command", ["read a/b --limit 3", "read a/b --to tail"])
def test_json_has_large_events_too(call: Call, film: str, command: str, tmp_path: Path) -> None:
    """A line is an event, whatever its size: printed, saved, or one by itself."""
    printed = call(*command.split(), "--json").raw
    before, large, after = (json.loads(line) for line in printed.splitlines())
    assert (before["event"], after["event"]) == ("before", "after")
    assert (large["pointer"], large["key"], base64.b64decode(large["event_base64"])) == (film, "cam1", FILM)
    assert json.loads(call("cat", film, "--json").out) == large
    call(*command.split(), "--json", "-o", "x.json")
    assert tmp_path.joinpath("x.json").read_bytes() == printed


TEXT = ('two\nlines, "quoted" \\ \u00fc \u2028 \U0001f600 \x00\x7f\t' * (1 << 18)).encode()[: 5 * MIB]


def carried(store: Store, stream: str) -> list[tuple[object, ...]]:
    """Return keys, headers and events of a stream, and which of the events are large."""
    rows: list[tuple[object, ...]] = []
    for batch in store.read(stream):
        for row in batch.to_pylist():
            pointer = penstock.EventPointer(stream, row["segment_id"], row["offset"])
            event = store.fetch_event(pointer)
            rows.append((row["key"], row["headers"], event, row["event"] is None))
    return rows


@pytest.mark.parametrize("line_max", [1 << 10, 64 << 20])
def test_read_and_write_as_json_lose_nothing_of_large_events(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_max: int
) -> None:
    """A pipe copies a stream, whether a line is held or decoded as it comes: films and texts, keys and headers."""
    monkeypatch.setattr(_input, "_JSON_LINE_MAX", line_max)
    with penstock.connect(tmp_path / "penstock-data") as store:
        store.create_stream("a/b")
        store.create_stream("a/c")
        with store.writer("a/b") as writer:
            writer.write_event(b"small\n", key="k", headers={"event": b"{"})
            writer.write_event(FILM, key=b"\xff key", headers={"event": b'"}', "raw": b"\xff"})
            writer.write_event(TEXT, key='"event":"')
            writer.write_event(b"x" * 4096, headers={"trace": b"1"})
            writer.write_event(TEXT, headers=[("d", b"1"), ("d", b"\xff")])
            writer.write_event(FILM[: MIB + 1])
        rows = carried(store, "a/b")
    lines = call("read", "a/b", "--json").raw
    assert lines.count(b"\n") == len(rows)
    assert json.loads(call("write", "a/c", "--json", stdin=lines).out)["events"] == len(rows)
    with penstock.connect(tmp_path / "penstock-data") as store:
        assert carried(store, "a/c") == rows
    assert [row[3] for row in rows] == [False, True, True, False, True, True]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_line_that_comes_in_small_pieces_is_the_same_event(
    monkeypatch: pytest.MonkeyPatch, size: int, ascii_only: bool
) -> None:
    """A pipe ends its pieces anywhere: within an escape, a character, two escapes that are one, a group of base64."""
    monkeypatch.setattr(_input, "_JSON_LINE_MAX", 64)
    monkeypatch.setattr(_input, "_READ_SIZE", size)
    text, data = TEXT[:400].decode(errors="ignore"), FILM[:301]
    lines = [{"key": "k", "event": text}, {"event_base64": base64.b64encode(data).decode(), "window": None}] * 2
    file = io.BytesIO("\n".join(json.dumps(line, ensure_ascii=ascii_only) for line in lines).encode())
    with penstock.connect("memory:") as store:
        store.create_stream("a/b")
        with store.writer("a/b") as writer, EventFeed(writer, None) as events:
            write_json(file, events, lambda _: None)
        assert [row[2] for row in carried(store, "a/b")] == [text.encode(), data] * 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"event":"%s","key":"k"}', "put key and headers before the event"),
        ('{"event":"%s","headers":{"a":"b"}}', "put key and headers before the event"),
        ('{"event":"%s","event":"b"}', "put key and headers before the event"),
        ('{"event":"%s","event_base64":"YQ=="}', "both event and event_base64"),
        ('{"key":"%s","event":"b"', "put key and headers before the event"),
        ('{"event":"%s', "the line ends within the event"),
        ('{"event":"%s"', "truncated"),
        ('{"event":"%s"}}', "not an event as read --json prints it"),
        ('{"evnt":1,"event":"%s"}', "unknown field `evnt`"),
        ('{"event":"%s\\ud800 and some more text"}', "invalid character"),
        ('{"event":"%s\\x and some more text"}', "invalid escape"),
        ('{"event_base64":"%s="}', "Invalid base64"),
        ('{"event_base64":"%s!aaaaaaaaaaaaaaa"}', "Invalid base64"),
        ('{"event_base64":"%sYQ==%s"}', "Invalid base64"),
    ],
)
def test_long_line_that_is_no_event_leaves_nothing(
    call: Call, stream: str, monkeypatch: pytest.MonkeyPatch, line: str, reason: str
) -> None:
    """What is wrong may show when most of a film is on the disk: it is told with its line, and no event is left."""
    monkeypatch.setattr(_input, "_JSON_LINE_MAX", MIB)
    monkeypatch.setattr(_input, "_READ_SIZE", 64 << 10)
    stdin = b'{"event":"a"}\n' + line.replace("%s", "a" * (2 * MIB)).encode()
    result = call("write", stream, "--json", stdin=stdin)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith("penstock: line 2: ")
    assert reason in result.err
    assert call("read", stream).lines == ["a"]


def test_killed_pipe_leaves_no_part_of_an_event(run: Run, film: str) -> None:
    """The command cannot know why a line ends in the middle: the line is refused, and those before it stay."""
    run("penstock stream create a/c")
    result = run("penstock read a/b --json | head -c 3000000 | penstock write a/c --json; exit ${PIPESTATUS[2]}")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("penstock: line 2: not an event as read --json prints it")
    assert run("penstock read a/c").stdout == "before\n"
    assert film


def test_terminal_never_gets_a_large_event(call: Call, call_on_terminal: CallOnTerminal, film: str) -> None:
    """Bytes of a film would leave the terminal in ruins; elsewhere read leaves nothing out."""
    for command in ("read", "tail"):
        assert call_on_terminal(command, "a/b").splitlines() == [
            "before",
            f"(large event, size 5.24 MB: penstock cat {film})",
            "after",
        ]
    assert call("read", "a/b").raw == b"before\n" + FILM + b"\nafter\n"


def test_saved_lines_are_whole_and_columns_have_null(call: Call, film: str, tmp_path: Path) -> None:
    """A row has the place of its event, so what is large can be fetched."""
    call("read", "a/b", "-o", "x.txt")
    assert tmp_path.joinpath("x.txt").read_bytes() == b"before\n" + FILM + b"\nafter\n"
    for name in ("x.parquet", "x.arrow"):
        assert call("read", "a/b", "-o", name).code == 0
    with pa.ipc.open_file(str(tmp_path / "x.arrow")) as file:
        table = file.read_all()
    assert table.equals(parquet.read_table(tmp_path / "x.parquet"))
    assert table["event"].to_pylist() == [b"before", None, b"after"]
    place = penstock.EventPointer("a/b", table["segment_id"][1].as_py(), table["offset"][1].as_py())
    assert str(place) == film


def test_follow_shows_large_events_and_goes_on(call: Call, shared: Engine) -> None:
    """They are shown by where they are, in their place among the others, and count as events."""
    shared.create_stream("a/b")
    follows = threading.Event()
    next_cut = shared.next_cut

    def write_then_seal() -> None:
        assert follows.wait(timeout=60)
        with shared.writer("a/b") as writer:
            for event in (b"before", FILM, b"between", FILM, b"after"):
                writer.write_event(event, key="cam1")
        shared.seal_stream("a/b")

    def noted(*arguments: object, **options: object) -> object:
        try:
            return next_cut(*arguments, **options)  # type: ignore[arg-type]
        finally:
            follows.set()

    shared.next_cut = noted  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=write_then_seal)
    thread.start()
    result = call("tail", "a/b", "-f")
    thread.join()
    large = re.compile(rf"\(large event, size {len(FILM)}: penstock cat (a/b:0@\d+)\)")
    assert [large.sub("film", line) for line in result.lines] == ["before", "film", "between", "film", "after"]
    assert (result.code, result.err) == (0, "")
    for pointer in large.findall(result.out):
        assert shared.fetch_event(penstock.EventPointer.parse(pointer)) == FILM


class Breaking(io.BytesIO):
    """A file that cannot be read to its end."""

    def __init__(self, error: BaseException, *, as_json: bool) -> None:
        lines = b'{"event":"whole"}\n{"event":"' + b"x" * (17 * MIB)
        super().__init__(lines if as_json else b"whole\n" + FILM.replace(b"\n", b" "))
        self._error = error

    def read1(self, size: int | None = -1, /) -> bytes:
        data = super().read1(size)
        if not data:
            raise self._error
        return data


@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("write", "expected"), [(write_lines, [b"whole"]), (write_whole, []), (write_json, [b"whole"])]
)
def test_error_in_the_middle_leaves_nothing_of_the_event(
    error: BaseException, write: Callable[..., None], expected: list[bytes]
) -> None:
    """Half a film must not look like a film; lines before it are events of their own, and stay."""
    with penstock.connect("memory:") as store:
        store.create_stream("a/b")
        with store.writer("a/b") as writer, pytest.raises(type(error)), EventFeed(writer, "k") as events:
            write(Breaking(error, as_json=write is write_json), events, lambda _: None)
        assert [event for batch in store.read("a/b") for event in batch["event"].to_pylist()] == expected


def test_ctrl_c_in_the_middle_leaves_nothing_behind(call: Call, stream: str, tmp_path: Path) -> None:
    """Neither an event nor the room on the disk that it had taken."""
    call("write", stream, stdin=b"before\n")
    os.mkfifo(tmp_path / "film")
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    over, taken = threading.Event(), list[int]()

    def write_and_interrupt() -> None:
        with tmp_path.joinpath("film").open("wb", buffering=0) as pipe:
            pipe.write(FILM)  # returns when all but what a pipe holds was read
            taken.append(size_of_plogs(tmp_path))
            signal.pthread_kill(main_thread, signal.SIGINT)
            over.wait(timeout=60)

    thread = threading.Thread(target=write_and_interrupt)
    thread.start()
    result = call("write", stream, "--file", "film")
    over.set()
    thread.join()
    assert (result.code, result.out) == (130, "")
    assert call("read", stream).lines == ["before"]
    assert size_of_plogs(tmp_path) < MIB < taken[0]


def size_of_plogs(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("penstock-data/plogs/*.plog"))


def test_large_event_ends_with_its_reader(run: Run, film: str) -> None:
    """``| head -c 100`` looks at the beginning of a film, without a word about the rest."""
    result = run(f"penstock cat {film} | head -c 5 | wc -c; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stdout.strip(), result.stderr) == (1, "5", "")


def test_pointer_into_a_large_event_is_refused(call: Call, film: str) -> None:
    """An event is printed from its beginning or not at all."""
    place, _, offset = film.partition("@")
    for wrong in (int(offset) + 1, int(offset) - 1, int(offset) + MIB, int(offset) + 3 * MIB):
        result = call("cat", f"{place}@{wrong}")
        assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    call("stream", "truncate", "a/b", "--at", "tail")
    assert "truncated away" in call("cat", film).err
