"""An owner of a folder that is stopped: clients notice, say which it is, and go on when it does."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.client import _connection
from penstock.errors import OwnerStopped, StoreUnreachable
from penstock.local import _owner_watch
from tests.local.owners import owner_of, wait_until
from tests.server.apart import suspend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM = "plant/readings"


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check more often than every second."""
    monkeypatch.setattr(_owner_watch, "_CHECK_S", 0.02)
    monkeypatch.setattr(_owner_watch, "_SETTLE_S", 0.02)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for the block; a thread of it may still answer a call until it is stopped itself."""
    try:
        suspend(pid)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stream in it."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    return tmp_path


@pytest.mark.parametrize("own", [True, False])
def test_who_opens_a_store_of_a_stopped_owner_is_told_at_once(folder: Path, *, own: bool) -> None:
    """A command that hangs does not show that a process in another terminal was stopped with Ctrl-Z."""
    with penstock.connect(folder, own=False) as client:
        client.tail(STREAM)
        owner = owner_of(folder)
        with stopped(owner), pytest.raises(OwnerStopped) as told:
            penstock.connect(folder, own=own)
        assert told.value.pid == owner
        assert f"process {owner}, is stopped (Ctrl-Z?): resume it with kill -CONT {owner}" in str(told.value)
        client.tail(STREAM)


def test_a_call_does_not_wait_for_a_stopped_owner_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told which process it is, as if the owner had gone and no process could take its place."""
    monkeypatch.setattr(_connection, "_PATIENCE_S", 0.5)
    with penstock.connect(folder, own=False) as client:
        client.tail(STREAM)
        owner = owner_of(folder)
        with stopped(owner), pytest.raises(StoreUnreachable, match=f"process {owner}, is stopped"):
            client.tail(STREAM)
        client.tail(STREAM)  # and it goes on when the owner does


def test_a_writer_goes_on_when_its_owner_does(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-Z and fg is no reason to lose a writer, or an event of it, or to write one twice."""
    caplog.set_level(logging.WARNING, "penstock.client")
    with penstock.connect(folder, own=False) as client, client.writer(STREAM) as writer:
        writer.write_event(b"before").result()
        owner = owner_of(folder)
        with stopped(owner):
            acks = [writer.write_event(b"%d" % number) for number in range(100)]
            thread = threading.Thread(target=writer.flush)
            thread.start()
            wait_until(lambda: "is stopped" in caplog.text)
        thread.join()
        for ack in acks:
            ack.result()
        events = [event for batch in client.read(STREAM) for event in batch.column("event").to_pylist()]
    assert events == [b"before", *(b"%d" % number for number in range(100))]


def test_a_stopped_owner_that_is_killed_is_followed_by_another(folder: Path) -> None:
    """That is what the message advises who cannot let it go on."""
    with penstock.connect(folder, own=False) as client:
        client.tail(STREAM)
        owner = owner_of(folder)
        with stopped(owner):
            os.kill(owner, signal.SIGKILL)
            client.tail(STREAM)
        assert owner_of(folder) != owner


def test_connections_are_shut_down_without_copies_of_other_files() -> None:
    """The copy of a pipe would keep its reader waiting for ever, and that of a lock would hold it."""
    reading, writing = os.pipe()
    _owner_watch._shut_down("/a/socket/of/no/service")
    os.close(writing)
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b"", "the pipe is at its end"
    os.close(reading)
