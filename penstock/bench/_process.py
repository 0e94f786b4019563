"""The processes and the folder of a run, of which nothing is left when it ends: in order, by Ctrl-C, or by kill -9.

Every server runs below a shell that waits for the end of its standard input, which is a pipe from this process: the
pipe closes however this process ends, and the shell ends the server. A session of their own protects them from Ctrl-C,
so that they are there while the run ends in order.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.bench._system import SystemMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["HOST", "ServerProcess", "find_program", "free_port", "run_folder", "start_with_port"]

HOST: Final = "127.0.0.1"
_SHELL: Final = "/bin/sh"
_START_S: Final = 60.0
_STOP_S: Final = 20.0
_POLL_S: Final = 0.005
_ATTEMPTS: Final = 3  # another process may take a port before the server does
_LAST_WORDS: Final = 300

# The reader's copy of the pipe is not the server's, which might hold it open.
_GUARD: Final = """
exec 3<&0
signal=$1; shift
"$@" </dev/null 3<&- & server=$!
(
  read -r other <&3
  kill -s "${other:-$signal}" $server
  for _ in $(seq 75); do sleep 0.2; done
  kill -s KILL $server
) >/dev/null 2>&1 & reader=$!
wait $server; code=$?
kill $reader 2>/dev/null
exit $code
"""
_REMOVER: Final = """
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  rm -rf "$1" 2>/dev/null && exit
  sleep 1
done
"""


class ServerProcess:
    """A server below its guard; its output goes to a file in the folder."""

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        *,
        stop_signal: str = "TERM",
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self._output = folder / "output"
        self._command = [str(part) for part in command]
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(
                [_SHELL, "-c", _GUARD, "sh", stop_signal, *self._command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=folder,
                env=None if environment is None else {**os.environ, **environment},
                user=user,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """What the server has written so far."""
        return self._output.read_text(errors="replace")

    def wait(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it is ready; if it ends or takes too long, stop it and raise SystemMissing with its last words."""
        deadline = time.monotonic() + _START_S
        while not is_ready():
            if self._process.poll() is not None:
                self.stop()
                raise SystemMissing(self._failure("it ended at its start"))
            if time.monotonic() > deadline:
                self.stop()
                raise SystemMissing(self._failure(f"it was not ready within {_START_S:g} s"))
            time.sleep(_POLL_S)

    def _failure(self, reason: str) -> str:
        said = " ".join(self.said.split())[-_LAST_WORDS:]
        return f"{Path(self._command[0]).name}: {reason}; its last words: {said or 'none'}"

    def stop(self) -> None:
        """End the server and wait for it."""
        assert self._process.stdin is not None
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def discard(self, signal_name: str = "KILL") -> None:
        """End the server and all of its processes at once, whatever becomes of its data."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(f"{signal_name}\n".encode())
            self._process.stdin.flush()
        self.stop()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def start_with_port(
    start: Callable[[int], ServerProcess],
    is_ready: Callable[[ServerProcess, int], bool],
    *,
    ports: Callable[[], int] | None = None,
) -> tuple[ServerProcess, int]:
    """Start a server at a free port, and at another one if that was taken meanwhile."""
    for attempt in range(1, _ATTEMPTS + 1):
        port = (ports or free_port)()
        process = start(port)
        try:
            process.wait(lambda: is_ready(process, port))  # noqa: B023 - called before the next attempt
        except SystemMissing:
            if attempt == _ATTEMPTS:
                raise
        except BaseException:
            process.stop()
            raise
        else:
            return process, port
    raise AssertionError("the last attempt returns or raises")


def free_port() -> int:
    """Return a port of loopback that no process listens on at the moment."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether a process listens at a port of loopback."""
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def find_program(name: str, *, how_to_get: str, folders: Sequence[Path | str] = ()) -> Path:
    """Return the path of a program that is installed; raise SystemMissing, which says how to get it, otherwise."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, folders)])
    found = shutil.which(name, path=path)
    if found is None:
        raise SystemMissing(f"the program {name} is missing: {how_to_get}")
    return Path(found)


@contextmanager
def run_folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder for the block; it is removed in the end, also if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=parent)).resolve()
    remover = subprocess.Popen(
        [_SHELL, "-c", _REMOVER, "sh", str(folder)], stdin=subprocess.PIPE, cwd="/", start_new_session=True
    )
    try:
        folder.chmod(0o711)  # PostgreSQL runs as a user of its own, in a folder of its own inside
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert remover.stdin is not None
        remover.stdin.close()
        remover.wait(_STOP_S)
