"""Processes that tests of Spark start and kill: each in a session of its own, which ends as a whole."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["ROOT", "Gates", "descendants", "done", "job", "kill_session", "process_of", "start", "until"]

ROOT: Final = Path(__file__).parents[2]
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)


def start(command: list[str], log: Path | None = None, **env: str) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; what it says goes to a log, or is not heard."""
    paths = [str(ROOT), str(ROOT / "tests" / "spark" / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {
        "PYTHONPATH": os.pathsep.join(paths),  # with that of another PySpark: make matrix
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": os.environ["SPARK_SUBMIT_OPTS"],  # of executors, too
    }
    with (Path(os.devnull) if log is None else log).open("wb") as out:
        return subprocess.Popen(
            command,
            env=os.environ | settings | env,
            start_new_session=True,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_tests,  # noqa: PLW1509 - it does one call of the system
        )


def _end_with_tests() -> None:
    """Let a process end when that of the tests does, however it does; what it has started notices."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_session(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it started, without a word; Spark puts some of them into groups of their own."""
    while found := [pid for pid, (_, session) in _processes().items() if session == process.pid]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()  # or the first of them would stay, as a dead one
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return the processes that one has started, and those that they have."""
    parents = {child: parent for child, (parent, _) in _processes().items()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _processes() -> dict[int, tuple[int, int]]:
    """Return parent and session of all processes that are not dead."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended meanwhile
            state, parent, _, session = (path / "stat").read_text().rpartition(") ")[2].split()[:4]
            if state not in "ZX":
                found[int(path.name)] = int(parent), int(session)
    return found


@contextmanager
def process_of(module: str, *args: object, log: Path | None = None, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a process, and end it at the end of the block if it has not ended by then."""
    process = start([sys.executable, "-m", module, *map(str, args)], log, **env)
    try:
        yield process
    finally:
        kill_session(process)


def job(*args: object, log: Path | None = None, **env: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a job that copies."""
    return process_of("tests.spark.copy_job", *args, log=log, **env)


def until(process: subprocess.Popen[Any], holds: Callable[[], bool]) -> None:
    """Wait until something holds, which is while a process runs."""
    while not holds():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None, "it ended before that"


def done(checkpoint: Path) -> int:
    """Return how many batches a query has finished."""
    notes = checkpoint / "commits"
    return sum(path.name.isdigit() for path in notes.iterdir()) if notes.exists() else 0


class Gates:
    """Where tasks wait in the middle: each gate that is shut stops the next task that comes to it, and no other.

    One that is shut in a batch stops only tasks of that batch, whichever task is faster.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        folder.mkdir()

    def shut(self, count: int = 1, *, batch: int | None = None) -> None:
        """Let the next tasks wait, or the next of a batch."""
        for number in range(count):
            (self.folder / f"shut-{'any' if batch is None else batch}-{number}").touch()

    def waiting(self) -> list[int]:
        """Return the processes that wait."""
        return [int(path.name.removeprefix("at-")) for path in self.folder.glob("at-*")]

    def open(self) -> None:
        """Let the tasks that still wait continue."""
        for pid in self.waiting():
            path = self.folder / f"at-{pid}"
            while pid in _processes():  # or it was killed, and does not read
                with suppress(OSError):  # it is about to
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    break
            path.unlink()
