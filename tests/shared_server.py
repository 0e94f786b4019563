"""Servers that take long to start: all processes of a test run share one, and it ends with the last of them.

Every user holds a shared lock on a file. A guard, the process that runs the server, waits for an exclusive one: it gets
it once the last user has let go or has died, ends the server, and removes its data.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ServerStart", "shared_server", "wait_for_port"]


class ServerStart(NamedTuple):
    """How a server is started, and what its users need to know."""

    command: Sequence[str]
    facts: dict[str, str]
    sockets: Sequence[str] = ()  # that it leaves elsewhere


@contextmanager
def shared_server(folder: Path, start: Callable[[Path], ServerStart]) -> Iterator[dict[str, str]]:
    """Use the server that belongs to a folder; ``start`` says how to run one whose data is in another folder."""
    folder.mkdir(exist_ok=True)
    with (folder / "turn").open("w") as turn, (folder / "users").open("w") as users:
        fcntl.flock(turn, fcntl.LOCK_EX)  # one process at a time looks whether the server runs
        fcntl.flock(users, fcntl.LOCK_SH)
        known = folder / "known.json"
        if not known.exists():
            data = Path(tempfile.mkdtemp(prefix="penstock-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
            server = start(data)
            guard = [sys.executable, __file__, str(folder), str(data), json.dumps(server.sockets), *server.command]
            os.posix_spawn(sys.executable, guard, os.environ, setsid=True)  # outlives this process, if it must
            known.write_text(json.dumps(server.facts))
        facts = json.loads(known.read_text())
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield facts


def wait_for_port(port: int) -> None:
    """Wait until a server listens."""
    for _ in range(6000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError(f"no server listens at port {port}")


def _guard(folder: Path, data: Path, sockets: list[str], command: Sequence[str]) -> None:
    """Run the server until no process uses it."""
    with (data / "log").open("wb") as log, (folder / "users").open("r") as users:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=data)
        fcntl.flock(users, fcntl.LOCK_EX)
        (folder / "known.json").unlink(missing_ok=True)
        server.kill()
        server.wait()
    shutil.rmtree(data, ignore_errors=True)
    for path in sockets:
        Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _guard(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])
