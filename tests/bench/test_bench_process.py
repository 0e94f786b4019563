"""Servers of a run start where a port is free, say why they do not, and are never left behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.bench._nats import NatsDefault
from penstock.bench._process import HOST, ServerProcess, accepts, find_program, free_port, run_folder, start_with_port
from penstock.bench._system import SystemMissing
from tests.bench.harness import is_missing

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(1000)"
WAIT_S = 60


def processes_in(folder: Path) -> list[int]:
    """Return the processes that name a folder in their command line, or are in it."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            if entry.name.isdigit() and entry.name != str(os.getpid()):
                words = (entry / "cmdline").read_bytes()
                if str(folder).encode() in words or (entry / "cwd").readlink().is_relative_to(folder):
                    found.append(int(entry.name))
    return found


def await_ends(pids: list[int]) -> None:
    """Wait until processes, which need not be ours, have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                assert select.select([descriptor], [], [], WAIT_S)[0], f"process {pid} goes on"
            finally:
                os.close(descriptor)


def test_a_port_that_is_taken_is_not_the_end(tmp_path: Path) -> None:
    """Between the choice of a free port and the server's start, another process may take it."""
    with socket.create_server((HOST, 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])

        def start(port: int) -> ServerProcess:
            return ServerProcess([sys.executable, "-c", LISTEN, str(port)], tmp_path)

        server, port = start_with_port(
            start, lambda _, port: port != taken.getsockname()[1] and accepts(port), ports=lambda: next(ports)
        )
        assert port != taken.getsockname()[1]
        server.stop()
    assert not accepts(port)


def test_a_server_that_ends_at_its_start_is_missing_with_its_last_words(tmp_path: Path) -> None:
    """Its own message is the only one that says what is wrong."""
    server = ServerProcess(["sh", "-c", "echo no luck today >&2; exit 3"], tmp_path)
    with pytest.raises(SystemMissing, match="sh: it ended at its start; its last words: no luck today"):
        server.wait(lambda: False)
    server.stop()


def test_a_program_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the report can do something about the gap."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemMissing, match="the program blue-server is missing: apt-get install blue"):
        find_program("blue-server", how_to_get="apt-get install blue")


def test_the_folder_goes_with_the_block_also_after_an_error(tmp_path: Path) -> None:
    """A run writes gigabytes."""
    with suppress(KeyboardInterrupt), run_folder(tmp_path) as folder:
        (folder / "data").write_bytes(b"data")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_an_interrupted_run_leaves_no_process_and_no_folder(tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C is how most long runs end; what is left would run, and fill the disk, until the next restart."""
    peers = "none" if is_missing(NatsDefault) else "nats"
    command = ["bench", "--full", "--only", "durable", "--penstock", "embedded,shared", "--peers", peers]
    run = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command, "--dir", str(tmp_path), "--html", str(tmp_path / "page.html")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with run:
        assert run.stderr is not None
        for line in run.stderr:
            if "durable" in line:
                break
        started = processes_in(tmp_path)
        run.send_signal(how)
        said = run.stderr.read()
    assert len(started) >= 3, "the run, the owner of the shared folder, and their guards"
    await_ends(started)
    await_ends(processes_in(tmp_path))  # a guard that counted the seconds of its server
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in said
    assert run.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
