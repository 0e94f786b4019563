"""A disk that refuses: every call of a store's life fails once; nothing acknowledged is lost, and the store goes on."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from penstock.cpo import open_cpo
from penstock.errors import DiskFailed, DiskFull, PenstockError, WriterFailed
from penstock.testing import Fault, FaultyDisk, ManualClock, MemoryDisk
from tests.sampling import failing_calls
from tests.stream.harness import STREAM, event_of, numbers_of, store_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cpo import Cpo
    from penstock.stream import Engine, StreamWriter
    from penstock.testing._faulty import Call

KEYS = "abcd"


class Life:
    """What happens to a store, whatever fails of it."""

    def __init__(self) -> None:
        self.acked: set[int] = set()
        self.errors: list[PenstockError] = []
        self._numbers = iter(range(1000))

    def run(self, store: Engine) -> None:
        """Live through all of it."""
        self._try(lambda: store.create_stream(STREAM))
        self._write(store)
        self._try(lambda: store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)]))
        self._write(store)
        self._try(lambda: store.create_reader_group("group", [STREAM]))
        self._try(lambda: store.scale_stream(STREAM, [1, 2], [(0.0, 1.0)]))
        self._write(store)

    def _write(self, store: Engine) -> None:
        def write() -> None:
            with store.writer(STREAM, "w") as writer:
                for key in KEYS * 2:
                    number = next(self._numbers)
                    writer.write_event(event_of(number, key), key=key, number=number).result()
                    self.acked.add(number)

        self._try(write)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except PenstockError as error:
            self.errors.append(error)


def live(disk: FaultyDisk, cpo: Cpo) -> Life:
    """Live through a life on a disk; closing the store may fail, too."""
    life = Life()
    with suppress(PenstockError), store_on(disk, cpo, "main", seed=1) as store:
        life.run(store)
    return life


def calls_of_a_life(call: Call) -> int:
    disk = FaultyDisk(MemoryDisk())
    with open_cpo("memory:") as cpo:
        assert not live(disk, cpo).errors
    return disk.calls[call]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call", ["create", "pwritev", "datasync", "sync", "reserve", "truncate", "remove"])
def test_any_call_may_fail_and_nothing_acknowledged_is_lost(call: Call, fault: Fault) -> None:
    """Calls of each kind are tried; afterwards the store opens, holds what it should, and takes events."""
    for number in failing_calls(calls_of_a_life(call), fault):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        disk.fail(fault, on=call, call=number)
        with open_cpo("memory:") as cpo:
            life = live(disk, cpo)
            with store_on(memory, cpo, "main", seed=2) as store:
                store.create_stream(STREAM, exist_ok=True)
                found = numbers_of(store)
                assert len(set(found)) == len(found), f"doubled: {call} {number}"
                assert life.acked <= {number for _, number in found}, f"lost: {call} {number}"
                for key in KEYS:
                    numbers = [number for own, number in found if own == key]
                    assert numbers == sorted(numbers), f"out of order: {call} {number}"
                with store.writer(STREAM, "w") as writer:
                    writer.write_event(event_of(999, "a"), key="a", number=999).result()


def write_until_it_fails(writer: StreamWriter) -> int:
    """Write event after event; return the number of the one that failed."""
    for number in count(1):
        try:
            writer.write_event(event_of(number, "a"), key="a", number=number).result()
        except DiskFull:
            return number
    raise AssertionError


def create_streams(store: Engine, number: int) -> None:
    for one in range(number):
        store.create_stream(f"plant/stream-{one}")


def test_a_full_disk_stops_the_writer_and_not_the_store() -> None:
    """Once there is budget again a new writer goes on, without opening the store anew."""
    disk = FaultyDisk(MemoryDisk())
    with open_cpo("memory:") as cpo, store_on(disk, cpo, "main", seed=1) as store:
        store.create_stream(STREAM)
        writer = store.writer(STREAM, "w")
        writer.write_event(event_of(0, "a"), key="a", number=0).result()
        for call in ("reserve", "create"):
            disk.fail(Fault.ENOSPC, on=call, call=None)
        written = write_until_it_fails(writer)
        with pytest.raises(WriterFailed, match="no space left") as caught:
            writer.write_event(b"late")
        assert isinstance(caught.value.cause, DiskFull)
        assert caught.value.__cause__ is caught.value.cause
        with pytest.raises(DiskFull):
            create_streams(store, 100)
        disk.heal()
        store.create_stream("plant/after")
        with store.writer(STREAM, "w") as writer:
            assert writer.last_number == written - 1
            for number in range(written + 20):
                writer.write_event(event_of(number, "a"), key="a", number=number).result()
        assert numbers_of(store) == [("a", number) for number in range(written + 20)]


@pytest.mark.parametrize("change", ["truncate", "delete"])
def test_a_change_that_is_on_record_does_not_fail_because_its_space_cannot_be_freed(change: str) -> None:
    """Told that the disk is full, the caller would believe that the stream is as it was."""
    disk = FaultyDisk(MemoryDisk())
    with open_cpo("memory:") as cpo, store_on(disk, cpo, "main", seed=1) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM, "w") as writer:
            for number in range(40):
                writer.write_event(event_of(number, "a"), key="a", number=number)
        cut = store.tail(STREAM)
        if change == "delete":
            store.seal_stream(STREAM)
        with patch.object(store._manager, "record", side_effect=DiskFull("the metadata")):
            store.truncate_stream(STREAM, cut) if change == "truncate" else store.delete_stream(STREAM)
        if change == "truncate":
            assert store.head(STREAM) == cut
            store.truncate_stream(STREAM, cut)
        store.maintain()
        assert store._manager.log("s0.0").start > 0 if change == "truncate" else not store._manager.has_log("s0.0")


def test_what_is_committed_is_read_on_after_a_failed_sync() -> None:
    """Readers get everything that was acknowledged while somebody looks for a new disk; only writes are refused."""
    disk, clock, found, refused = FaultyDisk(MemoryDisk()), ManualClock(), list[Any](), 0
    with open_cpo("memory:") as cpo, suppress(DiskFailed), store_on(disk, cpo, "main", seed=1, clock=clock) as store:
        store.create_stream(STREAM)
        writer = store.writer(STREAM)
        pointers: list[Any] = [writer.write_event(b"%d" % number).result() for number in range(5)]
        reader = store.create_reader_group("group", [STREAM]).reader("reader")
        assert reader.read_batch(1, 0) is not None, "it has its segment"
        disk.fail(Fault.EIO, on="datasync", call=None)
        with pytest.raises(DiskFailed):
            writer.write_event(b"lost").result()
        while (read := reader.read_next_event(0)) is not None:
            found.append(read.pointer)
            clock.advance(2)
        found += [store.fetch_event(pointer) for pointer in pointers]
        found.append(sum(map(len, store.read(STREAM))))
        for change in (reader.commit, partial(store.create_stream, "other/stream")):
            try:
                change()
            except DiskFailed:
                refused += 1
    assert found == [*pointers[1:], b"0", b"1", b"2", b"3", b"4", 5]
    assert refused == 2
