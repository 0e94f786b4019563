"""Running the command line: as a user does, on a terminal, and in this process, which is quick."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import penstock
from penstock.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import StreamStore

Run = Callable[..., "subprocess.CompletedProcess[str]"]
RunOnTerminal = Callable[[str], str]
Call = Callable[..., "Result"]


class Result(NamedTuple):
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture
def environment() -> dict[str, str]:
    """An environment in which ``penstock`` is found, and no output is wrapped."""
    known = {name: value for name, value in os.environ.items() if name != "PENSTOCK_STORE"}
    return known | {"COLUMNS": "500", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run a command line in an empty folder."""

    def run_command(command: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment | changes,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run_command


@pytest.fixture
def run_on_terminal(tmp_path: Path, environment: dict[str, str]) -> RunOnTerminal:
    """Run a command line whose output and errors go to a terminal; return what it shows."""

    def run_command(command: str) -> str:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            ["bash", "-c", command], cwd=tmp_path, env=environment | {"TERM": "xterm"}, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            shown = b"".join(iter(lambda: _read(ours), b""))
            assert process.wait() == 0, shown
        os.close(ours)
        return shown.decode()

    return run_command


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has the other side open any more
        return b""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Call the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)

    def call_main(*arguments: str, stdin: bytes | io.BufferedReader = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        given = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsysbinary.readouterr()
        assert isinstance(exit_info.value.code, int | None)
        return Result(exit_info.value.code or 0, captured.out, captured.err.decode())

    return call_main


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamStore]:
    """A store that this test has open, too, while a command works on it."""
    with penstock.connect(tmp_path / "penstock-data") as store:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(penstock, "connect", lambda _: nullcontext(store))
        yield store


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """A folder with what the examples need: a store with a stream, its events, a reader group, and a file."""
    tmp_path.joinpath("readings.txt").write_text("21.5\n21.7\n")
    with penstock.connect(tmp_path / "penstock-data") as store:
        store.create_stream("plant/readings")
        with store.writer("plant/readings") as writer:
            writer.write_batch([b"20.1", b"20.4", b"20.9", b"21.2"])
        group = store.create_reader_group("dashboard", ["plant/readings"])
        with group.reader("screen") as reader:
            assert reader.read_next_event(timeout=0) is not None
        group.checkpoint("friday")
    return tmp_path
