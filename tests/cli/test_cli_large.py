"""Events above 1 MiB on the command line: there and back, in little memory, and never on the screen."""

from __future__ import annotations

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
from penstock.cli._input import EventFeed, write_lines, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.stream import StreamStore
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

EventFeed.go_on = noting(EventFeed.go_on)
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
    """``tar c . | penstock write --file -``: how large it gets nobody needs to know before."""
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
    for name, size in (("small", 16 * MIB), ("large", 128 * MIB)):
        with tmp_path.joinpath(name).open("wb") as file:
            file.truncate(size)
    result = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    for what, (small, large) in json.loads(result.stdout).items():
        assert small > 0
        assert large - small < 32 << 10, f"{what}: {large - small} KiB more"


@pytest.mark.parametrize("command", ["tail a/b", "tail a/b --from head", "tail a/b -n 3 --limit 9"])
def test_tail_shows_size_and_pointer_of_a_large_event(call: Call, film: str, command: str) -> None:
    """Who looks at the last events wants to see them, not five million bytes of a film."""
    assert call(*command.split()).lines == ["before", short_line(film), "after"]


@pytest.mark.parametrize("command", ["tail a/b", "read a/b", "read a/b --from head --limit 3"])
def test_json_has_the_size_instead_of_the_event(call: Call, film: str, command: str) -> None:
    """A program that asks for a list gets a list; what is large it fetches by the pointer."""
    before, large, after = (json.loads(line) for line in call(*command.split(), "--json").lines)
    assert (before["event"], after["event"]) == ("before", "after")
    assert (large["pointer"], large["size"], "event" in large) == (film, len(FILM), False)
    shown = json.loads(call("cat", film, "--json").out)
    assert shown == {"pointer": film, "timestamp": large["timestamp"], "key": "cam1", "size": len(FILM)}


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


def test_follow_shows_large_events_and_goes_on(call: Call, shared: StreamStore) -> None:
    """They arrive through a reader, which does not return them, and count as events."""
    shared.create_stream("a/b")
    group_made = threading.Event()
    make_group = shared.create_reader_group

    def write_then_seal() -> None:
        assert group_made.wait(timeout=60)
        with shared.writer("a/b") as writer:
            for event in (b"before", FILM, b"between", FILM, b"after"):
                writer.write_event(event, key="cam1")
        shared.seal_stream("a/b")

    def noted(*arguments: object, **options: object) -> object:
        try:
            return make_group(*arguments, **options)  # type: ignore[arg-type]
        finally:
            group_made.set()

    shared.create_reader_group = noted  # type: ignore[method-assign, assignment]
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

    def __init__(self, error: BaseException) -> None:
        super().__init__(b"whole\n" + FILM.replace(b"\n", b" "))
        self._error = error

    def read1(self, size: int | None = -1, /) -> bytes:
        data = super().read1(size)
        if not data:
            raise self._error
        return data


@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize(("write", "expected"), [(write_lines, [b"whole"]), (write_whole, [])])
def test_error_in_the_middle_leaves_nothing_of_the_event(
    error: BaseException, write: Callable[..., None], expected: list[bytes]
) -> None:
    """Half a film must not look like a film; lines before it are events of their own, and stay."""
    with penstock.connect("memory:") as store:
        store.create_stream("a/b")
        with store.writer("a/b") as writer, pytest.raises(type(error)), EventFeed(writer, "k") as events:
            write(Breaking(error), events, lambda _: None)
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
