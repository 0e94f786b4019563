"""The owner process: it owns a folder for processes that may be killed at any time.

``python -m penstock.local._owner_process FOLDER SECONDS`` prints ``owner`` once it owns the folder, ``locked`` if
another process does, or why it cannot. It ends when no client was connected for so many seconds, on SIGTERM, or when it
has no clients and a process that wants to own the folder asks for it.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, FolderUnusable, PenstockError, StoreLocked
from penstock.local._folder import raise_file_limit
from penstock.local._owner_socket import open_owner_socket
from penstock.wire import pack_error, unpack_error

if TYPE_CHECKING:
    from penstock.local._owner_socket import Serve

__all__ = ["await_owner_process", "start_owner_process"]

_IDLE_S: Final = "30"  # that an owner process stays while no client is connected: the next command finds it
_IDLE_VARIABLE: Final = "PENSTOCK_OWNER_IDLE_S"
_CHECKS: Final = 10  # of its clients, while it is idle
_OWNER: Final = b"owner"
_LOCKED: Final = b"locked"
_REFUSED: Final = b"refused "  # behind it is the error


def start_owner_process(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that owns a folder; it holds no terminal, pipe or working directory of this process."""
    idle_s = os.environ.get(_IDLE_VARIABLE, _IDLE_S)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock.local._owner_process", str(folder), idle_s],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},  # it imports what we import
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # or it would be stopped and killed together with this process
    )


def await_owner_process(process: subprocess.Popen[bytes], address: str) -> None:
    """Return when a process that was started owns the folder, or another one does; raise why neither is so."""
    assert process.stdout is not None
    with process.stdout as out:
        line = out.readline().strip()
    threading.Thread(target=process.wait, name="penstock-owner-process", daemon=True).start()  # or it stays a zombie
    if line.startswith(_REFUSED):
        raise unpack_error(bytes.fromhex(line.removeprefix(_REFUSED).decode()))
    if line not in {_OWNER, _LOCKED}:
        raise FolderUnusable(address, reason=line.decode(errors="replace") or "its owner has ended at once")


def main(folder: str, seconds: str, *, serve: Serve) -> None:
    """Own a folder, and print that, or why not."""
    try:
        _own(Path(folder), _seconds(seconds), serve)
    except StoreLocked:
        _print(_LOCKED)
    except PenstockError as error:
        _print(_REFUSED + pack_error(error).hex().encode())
        raise
    except Exception as error:
        _print(f"{type(error).__name__}: {error}".encode())
        raise


def _own(folder: Path, idle_s: float, serve: Serve) -> None:
    from penstock.embedded import open_store  # noqa: PLC0415 - processes that only start an owner do without

    raise_file_limit()
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    with open_store(folder) as store:
        listener = open_owner_socket(store, folder, serve=serve, leave=leave)
        _print(_OWNER)
        idle = 0
        while idle < _CHECKS and not leave.wait(idle_s / _CHECKS):
            idle = 0 if listener.connections() else idle + 1
            if not listener.is_there():
                os._exit(0)  # the folder was removed, and another may be in its place: do not touch it


def _print(line: bytes) -> None:
    """Print a line for the process that has started this one, if it still runs; print nothing after that."""
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line + b"\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadArgument(f"invalid {_IDLE_VARIABLE} {text!r}: use a number of seconds")
    return seconds


if __name__ == "__main__":
    from penstock import serve_folder

    main(*sys.argv[1:], serve=serve_folder)
