"""A Python that starts at once.

To import PyArrow, SQLAlchemy, PySpark, pandas and Penstock takes a process longer than most tests do. Here one process,
the *nursery*, imports them once. The executable that is given to Spark, or to a shell, only asks the nursery for a fork
of itself, which then runs what was asked for, with the arguments, the environment and the files of the process that
asked, and ends it with the same status.

Processes of tests that start Spark as a user does, in a process of its own, do not use it.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

__all__ = ["warm_python"]

_REQUEST_SIZE_MAX: Final = 1 << 17  # of what a socket takes at once
_IMPORTED: Final = (
    "argon2",
    "pandas",
    "penstock.cli",
    "penstock.client",
    "penstock.embedded",
    "penstock.local",
    "penstock.server",
    "penstock.spark",
    "pyarrow.flight",
    "pydantic.type_adapter",  # of typer
    "pyspark.worker",
    "sqlalchemy.dialects.sqlite",
    "sqlite3",
)


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """Start a nursery; return a ``python``, with a ``penstock`` beside it, which work as long as the block lasts."""
    executable, address = folder / "python", f"penstock-nursery-{uuid.uuid4()}"
    for path, arguments in ((executable, ""), (folder / "penstock", "-m penstock ")):
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} ask {address} {arguments}"$@"\n')
        path.chmod(0o700)
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
    """Let a fork of the nursery run a module or code, and end as it does; anything else is left to Python."""
    if arguments[0] == "-P":  # which leaves the folder of a process out of its path: that of a fork never has it
        arguments = arguments[1:]
    if arguments[0] not in ("-c", "-m"):
        os.execv(sys.executable, [sys.executable, *arguments])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as fork:
        fork.connect(f"\0{address}")
        request = json.dumps([arguments, _folder(), dict(os.environ)]).encode()
        socket.send_fds(fork, [request], [0, 1, 2])
        pid = int(fork.recv(32))

        def forward(number: int, _: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, forward)
        status = int(fork.recv(32) or 1)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _folder() -> str:
    """Return the folder of this process; Spark's is that of the first test that shares it, which may be deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def serve(address: str) -> None:
    """Fork at every request, until the process that started this one ends, or closes the pipe."""
    for name in _IMPORTED:
        __import__(name)
    gc.freeze()  # a fork that looked for garbage in all of this when it ends would copy it first
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which close the pipe
    asked: dict[int, socket.socket] = {}  # by file descriptors of forks
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{address}")
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([0, listener.fileno(), *asked], [], [])
            if 0 in ready:
                return
            for fork in asked.keys() & ready:
                _answer(fork, asked.pop(fork))
            if listener.fileno() not in ready:
                continue
            peer, _ = listener.accept()
            request, files, *_ = socket.recv_fds(peer, _REQUEST_SIZE_MAX, 3)
            if (pid := os.fork()) == 0:
                for other in (peer, *asked.values()):
                    other.close()
                _run(request, files)
                return
            peer.send(b"%d" % pid)
            asked[os.pidfd_open(pid)] = peer
            for file in files:
                os.close(file)


def _answer(fork: int, peer: socket.socket) -> None:
    """Let the process that asked for a fork know how the fork has ended."""
    ended = os.waitid(os.P_PIDFD, fork, os.WEXITED)
    os.close(fork)
    assert ended is not None
    status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with peer, suppress(OSError):  # it may have been killed
        peer.send(b"%d" % status)


def _run(request: bytes, files: list[int]) -> None:
    """Run a module or code in the place of the process that asked for it."""
    (kind, name, *arguments), folder, environment = json.loads(request)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if kind == "-m":
        sys.argv = [name, *arguments]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *arguments]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(name, vars(main))


if __name__ == "__main__":
    {"ask": ask, "serve": serve}[sys.argv[1]](*sys.argv[2:])
