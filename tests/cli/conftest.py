"""Running the command line: in this process, which is quick, and in one of its own where that matters."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import argon2
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import penstock
from penstock.cli import main
from penstock.cpo import _sqlite
from penstock.server import _run
from penstock.server._users import Users
from penstock.spark import demo as story
from tests.cli.shop import open_shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store


Run = Callable[..., "subprocess.CompletedProcess[str]"]
Call = Callable[..., "Result"]
CallOnTerminal = Callable[..., str]


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


@pytest.fixture(autouse=True)
def quick_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores of this process wait for no disk, and passwords cost little: other tests test both."""
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(_sqlite, "_PRAGMAS", (*_sqlite._PRAGMAS, "PRAGMA synchronous=OFF"))
    monkeypatch.setattr(argon2, "PasswordHasher", partial(argon2.PasswordHasher, memory_cost=32))


@pytest.fixture(autouse=True)
def owned_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of this process own their folder: an owner process takes most of a second to start."""
    connect = penstock.connect
    monkeypatch.setattr(penstock, "connect", lambda address, **given: connect(address, **given | {"own": True}))


@pytest.fixture(autouse=True)
def short_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers of this process be told to stop as soon as they serve."""
    monkeypatch.setattr(_run, "stop_signals", lambda: nullcontext(lambda: "SIGTERM"))


@pytest.fixture(scope="package")
def spark_of_all(python_of_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the Spark that a command starts go on to the last test of the package.

    Java starts in a folder that stays, since the folder of a test is removed with it.
    """
    del python_of_spark
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("java"))
        SparkContext._ensure_initialized()
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture
def one_spark(spark_of_all: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of this process share one Spark: it takes seconds to start."""
    del spark_of_all
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)


@pytest.fixture
def short_demo(one_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo tell two minutes instead of ten, with fewer readings and a smaller film."""
    del one_spark
    short = {"_LENGTH_S": 120, "_DOWN": (30, 90), "_ROUND_S": 30, "_PER_SECOND": 5, "LARGE_SIZE": 2 << 20}
    for name, value in short.items():
        monkeypatch.setattr(story, name, value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which this process is in; no output is wrapped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "500")
    return tmp_path


def _exit_code(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], stdin: bytes | io.BufferedReader) -> int:
    """Call the command line."""
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    given = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert isinstance(exit_info.value.code, int | None)
    return exit_info.value.code or 0


@pytest.fixture
def call(here: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Call the command line in this process, in an empty folder."""
    assert here.is_dir()

    def call_main(*arguments: str, stdin: bytes | io.BufferedReader = b"") -> Result:
        code = _exit_code(monkeypatch, arguments, stdin)
        captured = capsysbinary.readouterr()
        return Result(code, captured.out, captured.err.decode())

    return call_main


@pytest.fixture
def call_on_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> CallOnTerminal:
    """Call the command line in this process, with output and errors on a terminal; return what that shows."""
    assert here.is_dir()

    def call_main(*arguments: str, stdin: bytes = b"") -> str:
        ours, theirs = pty.openpty()
        shown: list[bytes] = []
        thread = threading.Thread(target=lambda: shown.extend(iter(lambda: _read(ours), b"")))
        thread.start()
        with open(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            code = _exit_code(patch, arguments, stdin)
        thread.join()
        os.close(ours)
        assert code == 0, shown
        return b"".join(shown).decode()

    return call_main


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that no process has the other side open any more
        return b""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that this test has open, too, while a command works on it."""
    with penstock.connect(tmp_path / "penstock-data") as store:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(penstock, "connect", lambda _, **__: nullcontext(store))
        yield store


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """A folder with what the examples need: a store with streams, a reader group, a user; an outbox; a file."""
    tmp_path.joinpath("readings.txt").write_text("21.5\n21.7\n")
    with penstock.connect(tmp_path / "penstock-data") as store:
        store.create_stream("plant/readings")
        with store.writer("plant/readings") as writer:
            writer.write_batch([b"20.1", b"20.4", b"20.9", b"21.2"])
        group = store.create_reader_group("dashboard", ["plant/readings"])
        with group.reader("screen") as reader:
            assert reader.read_next_event(timeout=0) is not None
        group.checkpoint("friday")
        open_shop(store, tmp_path)
    users = Users.open(tmp_path / "penstock-data" / "users.json")
    users.add("anna", "secret")
    users.grant("anna", "read", "plant/*")
    return tmp_path
