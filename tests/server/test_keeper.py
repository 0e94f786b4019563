"""A process that owns a folder for others."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.errors import BadArgument, FolderUnusable, StoreLocked, StoreUnreachable

STREAM = "plant/readings"


def keep(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.server._keeper", str(folder), "0.1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_a_folder_is_kept_while_somebody_is_there(tmp_path: Path) -> None:
    """What is prepared needs nobody, and the folder is free soon after the last client."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    with keep(tmp_path) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"mine\n"
        with penstock.connect(tmp_path) as store:
            assert isinstance(store, RemoteStore)
            transaction = store.transactional_writer(STREAM).begin()
            transaction.write_event(b"event")
            with keep(tmp_path) as other:
                assert other.stdout is not None
                assert other.stdout.readline() == b"locked\n"
                assert other.wait(30) == 0, "one is enough"
            transaction.prepare()
        assert keeper.wait(30) == 0
    with penstock.connect(tmp_path, exclusive=True) as store:
        store.transactional_writer(STREAM).get(transaction.id).commit()
        assert sum(map(len, store.read(STREAM))) == 1


def test_why_a_folder_cannot_be_owned_is_told_at_once(tmp_path: Path) -> None:
    """By who cannot, to who has asked for it."""
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
    (tmp_path / "cpo.db").write_bytes(b"nonsense" * 1000)
    with (
        pytest.raises(FolderUnusable, match=r"CpoUnavailable: .* not a database"),
        penstock.connect(tmp_path, own=False) as other,
    ):
        other.tail(STREAM)


def test_who_does_not_own_a_folder_starts_who_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first, and when the owner ends; several at once start one."""
    monkeypatch.setattr("penstock.server._share._LINGER_S", 0.1)
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
            assert b"penstock.server._keeper" in Path(f"/proc/{number}/cmdline").read_bytes()
    with penstock.connect(tmp_path, own=False) as store:
        assert sum(map(len, store.read(STREAM))) == 4


def test_a_folder_without_a_store_is_told_of(tmp_path: Path) -> None:
    """Who does not own makes none, either; and who wants it alone has to."""
    with pytest.raises(StoreUnreachable, match="there is no store in this folder"):
        penstock.connect(tmp_path, own=False)
    with pytest.raises(BadArgument, match="leave out own=False"):
        penstock.connect(tmp_path, exclusive=True, own=False)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_nobody_uses_is_left(tmp_path: Path) -> None:
    """A keeper without tasks does not hold others up."""
    with keep(tmp_path) as keeper:
        assert keeper.wait(30) == 0
    with penstock.connect(tmp_path, exclusive=True):
        pass
