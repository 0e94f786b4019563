"""Commands do not own a folder that others use: they start an owner process, which stands on its own."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from penstock import serve_folder
from penstock.local import open_shared
from penstock.server import Config, Server
from tests.local.owners import is_running, owner_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock import Store
    from tests.cli.conftest import Run

STREAM = "plant/readings"


def open_client(folder: Path) -> Store:
    """Open a folder without owning it; ``penstock.connect`` would own it in these tests."""
    return open_shared(folder, maintenance_interval_s=1, own=False, serve=serve_folder)


@pytest.fixture
def folder(plant: Path) -> Path:
    """The store of the plant."""
    return plant / "penstock-data"


@pytest.fixture
def tail(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """``penstock tail -f`` in a process group of its own, as a shell starts it; it has shown the first event."""
    with subprocess.Popen(
        ["penstock", "tail", STREAM, "-f"],
        cwd=folder.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"20.1\n"
        yield process
        process.kill()


def test_ctrl_z_on_a_command_does_not_stop_others(folder: Path, tail: subprocess.Popen[bytes]) -> None:
    """A user who looks at a stream and presses Ctrl-Z must not stop its writers."""
    os.killpg(tail.pid, signal.SIGSTOP)
    with open_client(folder) as store, store.writer(STREAM) as writer:
        assert writer.write_event(b"written").result(timeout=30)
    assert owner_of(folder) != tail.pid


def test_ctrl_c_on_a_command_leaves_its_owner_process(folder: Path, tail: subprocess.Popen[bytes]) -> None:
    """It is not in the group of processes that a terminal interrupts."""
    with open_client(folder) as store:
        owner = owner_of(folder)
        os.killpg(tail.pid, signal.SIGINT)
        assert tail.wait(30) == 130
        assert (owner_of(folder), is_running(owner)) == (owner, True)
        assert store.reader_groups() == ["dashboard"]


def test_an_owner_process_holds_no_terminal_pipe_or_folder(folder: Path, run: Run) -> None:
    """A pipeline ends with its command, a terminal can be closed, and a disk be unmounted."""
    result = run("penstock stream ls | cat; echo $(penstock stream ls)", PENSTOCK_OWNER_IDLE_S="600")
    assert result.stdout.count(STREAM) == 2, "and this did not wait for the owner process"
    owner = owner_of(folder)
    try:
        assert {os.readlink(f"/proc/{owner}/fd/{number}") for number in range(3)} == {os.devnull}
        assert os.readlink(f"/proc/{owner}/cwd") == "/"
        assert os.getsid(owner) == owner
    finally:
        os.kill(owner, signal.SIGTERM)
    wait_until(lambda: not is_running(owner))


def test_a_command_of_a_stopped_owner_says_what_to_do(folder: Path, run: Run) -> None:
    """Also which process it is: the terminal with the Ctrl-Z may be covered by others."""
    with open_client(folder) as store:
        store.tail(STREAM)
        owner = owner_of(folder)
        os.kill(owner, signal.SIGSTOP)
        try:
            result = run("penstock stream ls")
        finally:
            os.kill(owner, signal.SIGCONT)
    assert result.returncode == 1
    assert result.stderr == (
        f"penstock: cannot reach the store at {folder}: its owner, process {owner}, is stopped (Ctrl-Z?): "
        f"resume it with kill -CONT {owner}, or end it with kill -KILL {owner}\n"
    )


def test_a_server_starts_right_after_a_command(folder: Path, run: Run) -> None:
    """Scripts make streams and start a server then; the command's owner process gives way."""
    assert run("penstock stream ls", PENSTOCK_OWNER_IDLE_S="600").returncode == 0
    with Server(Config(store=str(folder), port=0, http_port=0, anonymous=True)):
        assert owner_of(folder) == os.getpid()
