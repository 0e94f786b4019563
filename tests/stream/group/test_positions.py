"""Positions: what a reader has read is durable within a second, or at once with ``commit()``."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock.embedded import open_store
from penstock.errors import DiskFull, ReaderOffline, StoreClosed
from penstock.stream.group import _groups
from tests.stream.group.test_groups import SECONDS_MAX, STREAM, killed, new_group, put, rest, take
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.stream import Engine, Reader

READS: Final[dict[str, Callable[[Reader], object]]] = {
    "event": lambda reader: reader.read_next_event(timeout=0),
    "batch": lambda reader: reader.read_batch(max_bytes=1, timeout=0),
    "stream": lambda reader: reader.read_next_event_as_stream(timeout=0),
}


@contextmanager
def stores(folder: Path, process: str) -> Iterator[tuple[Engine, Engine]]:
    """A store in a folder as its owner has it, and as who reads does."""
    with open_store(folder) as owner, nullcontext(owner) if process == "owner" else over_the_wire(owner) as store:
        yield owner, store


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when something is as it should be."""
    limit = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("process", ["owner", "client"])
@pytest.mark.parametrize("way", READS)
def test_positions_become_durable_while_the_reader_is_not_called_and_nothing_else_is_written(
    folder: Path, way: str, process: str
) -> None:
    """When the process is killed, the events before the one that it works on are not read again."""
    with stores(folder, process) as (owner, store):
        group = new_group(store)
        put(owner, b"a", b"b", b"c", b"d")
        reader = group.reader("r")
        for _ in range(3):
            READS[way](reader)
        wait_until(lambda: owner.catalog.group("g").places()[STREAM][0] > 0)
        owner.groups.positions.run_once()
        with killed(folder) as found:
            found.reader_group("g").reader_offline("r")
            with found.reader_group("g").reader("r2") as other:
                assert rest(other) == [b"c", b"d"]


@pytest.mark.parametrize("process", ["owner", "client"])
@pytest.mark.parametrize("way", READS)
def test_what_a_reader_commits_is_durable_at_once_with_what_it_returned_last(
    folder: Path, way: str, process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has processed an event commits it, and does not get it again, however the process ends."""
    monkeypatch.setattr(_groups, "POSITIONS_EVERY_S", 3600.0)
    with stores(folder, process) as (owner, store):
        group = new_group(store)
        put(owner, b"a", b"b", b"c", b"d")
        reader = group.reader("r")
        for _ in range(2):
            READS[way](reader)
        reader.commit()
        assert take(reader, 1) == [b"c"]
        with killed(folder) as found:
            found.reader_group("g").reader_offline("r")
            with found.reader_group("g").reader("r2") as other:
                assert rest(other) == [b"c", b"d"]


@pytest.mark.parametrize("way", READS)
def test_an_error_does_not_take_back_what_was_committed(store: Engine, way: str) -> None:
    """The event before the error was dealt with: its reader said so."""
    group = new_group(store)
    put(store, b"a", b"b", b"c")

    def fail(reader: Reader) -> None:
        with reader:
            READS[way](reader)
            reader.commit()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(group.reader("r1"))
    with group.reader("r2") as reader:
        assert rest(reader) == [b"b", b"c"]


def test_a_reader_that_lost_its_segments_cannot_commit(store: Engine) -> None:
    """Another has them: to say that all is well would be a lie."""
    group = new_group(store)
    put(store, b"a")
    reader = group.reader("r")
    take(reader, 1)
    group.reader_offline("r")
    with pytest.raises(ReaderOffline):
        reader.commit()
    closed = group.reader("r")
    closed.close()
    with pytest.raises(StoreClosed):
        closed.commit()


def test_positions_are_recorded_as_long_as_there_are_readers_and_no_longer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that is not needed costs wake-ups; one that is missing costs positions."""
    monkeypatch.setattr(_groups, "POSITIONS_EVERY_S", 0.001)
    with open_store(folder) as store:
        group = new_group(store)
        for name in ("r1", "r2"):
            put(store, b"a")
            reader = group.reader(name)
            take(reader, 2)
            assert store.groups.positions.is_at_work
            reader.close()
            wait_until(lambda: not store.groups.positions.is_at_work)


def test_positions_that_could_not_be_recorded_are_recorded_the_next_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for a while does not end the thread."""
    monkeypatch.setattr(_groups, "POSITIONS_EVERY_S", 0.001)
    with open_store(folder) as store:
        group = new_group(store)
        put(store, b"a", b"b")
        failures = [DiskFull("disk"), ValueError("foreign")]
        commit = store.catalog.make_durable

        def refuse() -> None:
            if failures:
                raise failures.pop()
            commit()

        monkeypatch.setattr(store.catalog, "make_durable", refuse)
        with group.reader("r") as reader:
            take(reader, 2)
            wait_until(lambda: not failures and store.catalog.group("g").places()[STREAM][0] > 0)


OWNER: Final = """
import sys, time, penstock
with penstock.connect(sys.argv[1]) as store:
    with store.writer("plant/readings") as writer:
        writer.write_batch([b"%d" % number for number in range(10)]).result()
    reader = store.create_reader_group("g", ["plant/readings"]).reader("r")
    for _ in range(5):
        reader.read_next_event(timeout=5)
    print("read", flush=True)
    time.sleep(60)
"""


def test_an_owner_that_is_killed_after_a_second_has_lost_no_position(folder: Path) -> None:
    """A reader that owned its folder began at the first event again, after every kill."""
    with penstock.connect(folder) as store:
        store.create_stream(STREAM)
    with subprocess.Popen([sys.executable, "-c", OWNER, folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "read\n"
        time.sleep(1.0)  # it is about what happens in that time
        process.send_signal(signal.SIGKILL)
    with penstock.connect(folder) as store, store.reader_group("g").reader("r2") as reader:
        assert rest(reader) == [b"%d" % number for number in range(4, 10)]
