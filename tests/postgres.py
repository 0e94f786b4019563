"""A PostgreSQL server for tests: its own folder, a Unix socket, no network. The user ``locked`` needs a password."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PASSWORD", "Postgres", "missing", "postgres_server"]

PASSWORD: Final = "correct-horse"  # of the user locked

_USER: Final = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
_OPTIONS: Final = "-c listen_addresses= -c max_connections=20 -c shared_buffers=16MB"


def missing() -> str | None:
    """Return why there can be no server here; None if there can."""
    if _binaries() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    return None


def _binaries() -> Path | None:
    """Return the folder of the newest version; Debian does not put it into the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


class Postgres:
    """A server that can be stopped and started again; a copy of ``primary`` that follows it, if there is one."""

    def __init__(self, folder: Path, *, is_durable: bool = False, primary: Postgres | None = None) -> None:
        binaries = _binaries()
        assert binaries is not None, "the caller has looked"
        self.folder: Final = folder
        self._binaries = binaries
        self._options = f"{_OPTIONS} -c fsync={'on' if is_durable else 'off'} -k {folder}"
        self.url: Final = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        if primary is not None:
            source = ("-h", str(primary.folder), "-U", "postgres")
            self._run("pg_basebackup", *source, "-D", f"{folder}/data", "-R", "--no-sync", "-c", "fast")
            return
        self._run("initdb", "-D", f"{folder}/data", "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        rules = folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("pg_ctl", "start", "-w", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-o", self._options)

    def stop(self, *, mode: str = "immediate") -> None:
        """Stop it, whatever its clients do; with the mode ``fast``, its standby has all that was committed."""
        self._run("pg_ctl", "stop", "-w", "-D", f"{self.folder}/data", "-m", mode)

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w", "-D", f"{self.folder}/data")

    @contextmanager
    def standby(self) -> Iterator[Postgres]:
        """Start a server that follows this one, without waiting for it, for the block."""
        with _folder() as folder:
            server = Postgres(folder, primary=self)
            server.start()
            try:
                yield server
            finally:
                server.stop()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all of its processes for the block, as by Ctrl-Z: connections stay open, and there is no answer."""
        server = int(self.folder.joinpath("data", "postmaster.pid").read_text().split()[0])
        os.kill(server, signal.SIGSTOP)  # first, so that it starts no others
        pids = [*map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split()), server]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(  # to a file, since a server that goes on would keep a pipe open
            command, cwd=self.folder, user=_USER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0, f"{command} failed: see {self.folder}/log"


@contextmanager
def postgres_server(*, is_durable: bool = False) -> Iterator[Postgres]:
    """Start a server for the block."""
    with _folder() as folder:
        server = Postgres(folder, is_durable=is_durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder for a server, outside of pytest's, which only root may enter."""
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as folder:
        if _USER is not None:
            shutil.chown(folder, _USER)
        yield Path(folder)
