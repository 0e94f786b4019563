"""Prepared transactions of many processes: the owner may be killed between the preparation and the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.errors import BadArgument, NoSuchTransaction
from tests.local.test_sharing import OWNER, STREAM, Process, events_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock import Store


TASK: Final = """
    import sys
    import pyarrow as pa
    import penstock
    folder, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with penstock.connect(folder) as store:
        transaction = store.transactional_writer("plant/readings", "query").begin(lease=3600)
        events = [f"{name}:{number}:".encode() + bytes(size) for number in range(100)]
        transaction.write_batch(pa.array(events), pa.array([f"key-{number % 10}" for number in range(100)]))
        transaction.prepare()
        print(transaction.id, flush=True)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Process]:
    """Another process that owns the folder ``data``, with a stream."""
    process = Process(OWNER, str(tmp_path / "data"))
    assert process.line() == "owner"
    yield process
    process.kill()


def run_tasks(folder: Path, names: list[str], size: int) -> list[str]:
    """Let processes write and prepare a transaction each, and end; return the ids."""
    tasks = [Process(TASK, str(folder), name, str(size)) for name in names]
    ids = [task.line() for task in tasks]
    assert [task.wait() for task in tasks] == [0] * len(tasks)
    return ids


def names_of(store: Store) -> list[str]:
    """Return whose events are there, in order, after seeing that those of each are all there, in order."""
    found = [event.split(b":")[:2] for event in events_of(store)]
    names = list(dict.fromkeys(name.decode() for name, _ in found))
    for key in range(10):
        mine = [(name.decode(), int(number)) for name, number in found if int(number) % 10 == key]
        assert mine == [(name, number) for name in names for number in range(key, 100, 10)]
    return names


@pytest.mark.parametrize("size", [10, 20_000])
def test_what_was_prepared_is_committed_after_its_owner_was_killed(owner: Process, tmp_path: Path, size: int) -> None:
    """By a process that has only the ids; those who wrote are gone, too. Run again, the batch is there already."""
    folder = tmp_path / "data"
    ids = run_tasks(folder, ["a", "b", "c"], size)
    owner.kill()
    with penstock.connect(folder) as store:
        writer = store.transactional_writer(STREAM, "query")
        assert [writer.get(one).status for one in ids] == ["prepared"] * 3
        assert events_of(store) == []
        assert writer.commit_all(ids, 0) is True
        assert (names_of(store), writer.last_number) == (["a", "b", "c"], 0)
    with penstock.connect(folder) as store:
        writer = store.transactional_writer(STREAM, "query")
        assert writer.commit_all(ids, 0) is False
        assert names_of(store) == ["a", "b", "c"]


@pytest.mark.parametrize("number", [0, None])
def test_a_driver_that_is_connected_when_the_owner_is_killed_commits_all_the_same(
    owner: Process, tmp_path: Path, number: int | None
) -> None:
    """It takes the folder over by itself; with or without a number, it need not ask what became of the call."""
    folder = tmp_path / "data"
    with penstock.connect(folder) as store:
        assert isinstance(store, RemoteStore)
        writer = store.transactional_writer(STREAM, "query")
        still_open = writer.begin(lease=3600)
        still_open.write_event(b"lost")
        alone = writer.begin(lease=3600)
        alone.write_batch([b"d:%d" % place for place in range(100)], [f"key-{place % 10}" for place in range(100)])
        with alone.begin_write_event("large") as large:
            large.write(bytes(3 << 20))
        alone.prepare()
        ids = run_tasks(folder, ["a", "b"], 100)
        owner.kill()
        if number is None:
            alone.commit()
            assert alone.status == "committed"
        else:
            ids.append(alone.id)
        assert writer.commit_all(ids, number) is True
        assert len(events_of(store)) == 301
        with pytest.raises(NoSuchTransaction):
            still_open.commit()


def test_a_task_that_prepares_after_its_owner_was_killed_is_told_that_all_is_lost(
    owner: Process, tmp_path: Path
) -> None:
    """What it had written was in the owner; what was prepared before that is not lost with it."""
    folder = tmp_path / "data"
    with penstock.connect(folder) as store:
        writer = store.transactional_writer(STREAM, "query")
        first, late = writer.begin(lease=3600), writer.begin(lease=3600)
        for transaction in (first, late):
            transaction.write_batch([bytes(50_000)] * 20, "key")
        first.prepare()
        owner.kill()
        with pytest.raises(NoSuchTransaction):
            late.prepare()
        first.prepare()
        assert writer.commit_all([first.id], 0)
        assert len(events_of(store)) == 20


DYING_OWNER: Final = """
    import os, sys, threading
    import penstock
    from penstock.stream.transaction import LocalTransaction
    store = penstock.connect(sys.argv[1])
    store.create_stream("plant/readings", 2)
    commit = LocalTransaction.commit
    def commit_and_die(self, timestamp=None):
        commit(self, timestamp)
        os._exit(9)
    LocalTransaction.commit = commit_and_die
    print("owner", flush=True)
    threading.Event().wait()
"""


def test_a_commit_whose_owner_dies_before_it_answers_is_no_error(tmp_path: Path) -> None:
    """A caller that gets an error takes it for not committed, and writes all of it again."""
    folder = tmp_path / "data"
    dying = Process(DYING_OWNER, str(folder))
    assert dying.line() == "owner"
    with penstock.connect(folder) as store:
        transaction = store.transactional_writer(STREAM).begin()
        transaction.write_event(b"small", key="k")
        with transaction.begin_write_event("k") as large:
            large.write(bytes(3 << 20))
        transaction.commit()
        dying.wait()
        assert transaction.status == "committed"
        assert store.stream(STREAM).events == 2
        with pytest.raises(BadArgument, match="no pointer"):
            _ = large.pointer
