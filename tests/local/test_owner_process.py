"""A process that owns a folder for others."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.errors import BadArgument, CpoUnavailable, StoreLocked, StoreUnreachable
from penstock.stream import Engine
from tests.local.owners import is_running, owner_of, wait_until

STREAM = "plant/readings"


def own(folder: Path, seconds: str = "0.1") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.local._owner_process", str(folder), seconds]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_the_owner_process_stays_while_a_client_is_connected(tmp_path: Path) -> None:
    """A prepared transaction needs no client, and the folder is free soon after the last one."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    with own(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"owner\n"
        with penstock.connect(tmp_path, own=False) as store:
            assert isinstance(store, RemoteStore)
            transaction = store.transactional_writer(STREAM).begin()
            transaction.write_event(b"event")
            with own(tmp_path) as other:
                assert other.stdout is not None
                assert other.stdout.readline() == b"locked\n"
                assert other.wait(30) == 0, "one is enough"
            transaction.prepare()
        assert process.wait(30) == 0
    with penstock.connect(tmp_path, exclusive=True) as store:
        store.transactional_writer(STREAM).get(transaction.id).commit()
        assert sum(map(len, store.read(STREAM))) == 1


def test_why_a_folder_cannot_be_owned_is_told_at_once(tmp_path: Path) -> None:
    """By who cannot, to who has asked for it."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    (tmp_path / "cpo.db").write_bytes(b"nonsense" * 1000)
    with (
        pytest.raises(CpoUnavailable, match="not a database"),
        penstock.connect(tmp_path, own=False) as other,
    ):
        other.tail(STREAM)


def test_a_client_that_does_not_own_a_folder_starts_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first, and when the owner ends; several at once start one."""
    monkeypatch.setenv("PENSTOCK_OWNER_IDLE_S", "0.1")
    with penstock.connect(tmp_path) as owner:
        owner.create_stream(STREAM)
        store = penstock.connect(tmp_path, own=False)
        store.tail(STREAM)
    with ThreadPoolExecutor() as threads:
        others = list(threads.map(lambda _: penstock.connect(tmp_path, own=False), range(3)))
    for one in (store, *others):
        with one, one.transactional_writer(STREAM).begin() as transaction:
            transaction.write_event(b"event")
            with pytest.raises(StoreLocked) as locked:
                penstock.connect(tmp_path, exclusive=True)
            number = locked.value.owner.split()[1]
            assert b"penstock.local._owner_process" in Path(f"/proc/{number}/cmdline").read_bytes()
    with penstock.connect(tmp_path, own=False) as store:
        assert sum(map(len, store.read(STREAM))) == 4


def test_a_folder_without_a_store_is_told_of(tmp_path: Path) -> None:
    """A client creates none, either; a caller that asks for exclusive access has to."""
    with pytest.raises(StoreUnreachable, match="the folder has no store"):
        penstock.connect(tmp_path, own=False)
    with pytest.raises(BadArgument, match="leave out own=False"):
        penstock.connect(tmp_path, exclusive=True, own=False)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_clients_is_left(tmp_path: Path) -> None:
    """An owner process without clients does not hold others up."""
    with own(tmp_path) as process:
        assert process.wait(30) == 0
    with penstock.connect(tmp_path, exclusive=True):
        pass


def test_an_idle_owner_process_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server, or a program, that is started after a command does not have to wait for the command's owner process."""
    monkeypatch.setenv("PENSTOCK_OWNER_IDLE_S", "600")
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    with penstock.connect(tmp_path, own=False) as client:
        client.tail(STREAM)
        with pytest.raises(StoreLocked):  # it has a client
            penstock.connect(tmp_path, exclusive=True)
    with penstock.connect(tmp_path, exclusive=True) as store:
        assert isinstance(store, Engine)
        assert [info.name for info in store.streams()] == [STREAM]


def test_an_owner_process_whose_folder_was_removed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People remove a store and make another in its place; the old owner must not touch that, nor its sockets."""
    monkeypatch.setenv("PENSTOCK_OWNER_IDLE_S", "5")
    folder = tmp_path / "data"
    with penstock.connect(folder) as store:
        store.create_stream(STREAM)
    with penstock.connect(folder, own=False) as client:
        old = owner_of(folder)
        client.tail(STREAM)
    shutil.rmtree(folder)
    with penstock.connect(folder) as store:
        wait_until(lambda: not is_running(old))
        assert (folder / "owner.sock").exists()
        with penstock.connect(folder, own=False) as client:
            assert client.streams() == []


def test_sigterm_ends_an_owner_process_in_order(tmp_path: Path) -> None:
    """That is how a user gets rid of one; it leaves no sockets behind."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    with own(tmp_path, "600") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 0
    assert not (tmp_path / "owner.sock").exists()


def test_an_owner_of_another_user_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is closed to others, and no second owner can help."""
    monkeypatch.setattr("penstock.local._finder.OwnerFinder.patience_s", 0.1)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with penstock.connect(tmp_path):
        monkeypatch.setattr(socket.socket, "connect", refuse)
        with pytest.raises(StoreUnreachable, match="its owner runs as another user"):
            penstock.connect(tmp_path)
        monkeypatch.undo()


def test_a_time_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip in a variable must not look like a broken store."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    monkeypatch.setenv("PENSTOCK_OWNER_IDLE_S", "soon")
    with pytest.raises(BadArgument, match="invalid PENSTOCK_OWNER_IDLE_S 'soon': use a number of seconds"):
        penstock.connect(tmp_path, own=False)
