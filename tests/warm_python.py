"""A Python that starts at once, for Spark.

Spark starts a process for every query that reads a stream, and several more for its tasks. To import PySpark, pandas
and Penstock takes each of them longer than the rest of a test does. Here one process, the *nursery*, imports them once.
The executable that is given to Spark only asks the nursery for a fork of itself, which then runs what Spark asked for,
with the environment and the files of the process that Spark started.

Processes of tests that start Spark as a user does, in a process of its own, do not use it.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

__all__ = ["warm_python"]

_REQUEST_SIZE_MAX: Final = 1 << 17  # of what a socket takes at once
_IMPORTED: Final = ("pandas", "pyarrow.flight", "pyspark.worker", "penstock.client", "penstock.spark")


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """Start a nursery; return an executable for ``PYSPARK_PYTHON``, which works as long as the block lasts."""
    executable, address = folder / "python", f"penstock-nursery-{uuid.uuid4()}"
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} ask {address} "$@"\n')
    executable.chmod(0o700)
    command = [sys.executable, __file__, "serve", address]
    nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with nursery:  # which closes its stdin: so it learns that it is over, however that is
        try:
            assert nursery.stdout is not None
            assert nursery.stdout.readline()
            yield executable
        finally:
            nursery.terminate()  # a copy of the pipe in this process would keep it waiting


def ask(address: str, *arguments: str) -> None:
    """Let a fork of the nursery run a module, and end when it has ended; anything else is left to Python."""
    if arguments[0] != "-m":
        os.execv(sys.executable, [sys.executable, *arguments])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as fork:
        fork.connect(f"\0{address}")
        request = json.dumps([arguments[1:], _folder(), dict(os.environ)]).encode()
        socket.send_fds(fork, [request], [0, 1, 2])
        pid = int(fork.recv(32))

        def end(number: int, _: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        signal.signal(signal.SIGTERM, end)
        fork.recv(1)


def _folder() -> str:
    """Return the folder of this process; Spark's is that of the first test that shares it, which may be deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def serve(address: str) -> None:
    """Fork for everybody who asks, until the process that started this one ends, or closes the pipe."""
    for name in _IMPORTED:
        __import__(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are waited for by those who asked
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which close the pipe
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{address}")
        listener.listen()
        os.write(1, b"ready\n")
        while _is_asked(listener):
            fork, _ = listener.accept()
            request, files, *_ = socket.recv_fds(fork, _REQUEST_SIZE_MAX, 3)
            if os.fork() == 0:
                _run(fork, request, files)
                return
            fork.close()
            for file in files:
                os.close(file)


def _is_asked(listener: socket.socket) -> bool:
    """Wait for a request, or the end."""
    ready, _, _ = select.select([listener.fileno(), 0], [], [])
    return 0 not in ready


def _run(fork: socket.socket, request: bytes, files: list[int]) -> None:
    """Run a module in the place of the process that asked for it."""
    (module, *arguments), folder, environment = json.loads(request)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    fork.send(b"%d" % os.getpid())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    {"ask": ask, "serve": serve}[sys.argv[1]](*sys.argv[2:])
