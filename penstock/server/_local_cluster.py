"""A cluster of plog servers on this machine, to try it out: each is a process of its own."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from penstock.cpo import open_cpo
from penstock.errors import PenstockError
from penstock.server._addresses import listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["local_cluster"]

_HOST: Final = "127.0.0.1"
_SERVERS: Final = 3
_END_S: Final = 10.0


@contextmanager
def local_cluster(folder: Path, cpo: str, *, name: str, group: str) -> Iterator[list[str]]:
    """Run three plog servers in a folder until the end of the block, registered in an oracle; give their addresses."""
    with ExitStack() as ports:
        listeners = [ports.enter_context(listen(_HOST, 0)) for _ in range(_SERVERS)]
        addresses = [f"{_HOST}:{listener.getsockname()[1]}" for listener in listeners]
    with open_cpo(cpo) as oracle:
        oracle.register_cluster(name, {group: addresses})
    with ExitStack() as processes:
        started = [
            processes.enter_context(_running(folder / f"plogs-{number}", address, cpo, name=name, group=group))
            for number, address in enumerate(addresses, 1)
        ]
        for process in started:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise PenstockError("a plog server has ended at its start: its messages say why")
        yield addresses


@contextmanager
def _running(folder: Path, address: str, cpo: str, *, name: str, group: str) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["--dir", str(folder), "--listen", address, "--cluster", name, "--group", group, "--cpo", cpo]
    command = [sys.executable, "-m", "penstock", "plog-server", "--end-with-stdin", *arguments]
    # A session of its own: Ctrl-C is for the server, which needs them to the end. If this process is killed, they see
    # the end of their standard input.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
