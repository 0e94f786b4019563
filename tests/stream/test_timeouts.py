"""Calls with a timeout come back in time, however long the disk takes.

The disk is stalled until a call has come back; one that waits for the disk never does, and fails the test.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CheckpointFailed
from penstock.testing import FaultyDisk, MemoryDisk
from tests.stream.harness import STREAM, store_on
from tests.stream.wire_harness import Outside, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS_MAX: Final = 30.0


class Slow(NamedTuple):
    """A store, in this process or over the wire, on a disk that can be stalled, and threads that may not come back."""

    store: Any
    disk: FaultyDisk
    pool: ThreadPoolExecutor

    def while_stalled(self, call: Callable[[], object]) -> object:
        """Return what a call returns, or raise what it raises, while no sync returns."""
        with self.disk.stalled():
            return self.pool.submit(call).result(SECONDS_MAX)


@pytest.fixture(params=["embedded", "remote"])
def slow(request: pytest.FixtureRequest) -> Iterator[Slow]:
    disk = FaultyDisk(MemoryDisk())
    with (
        ThreadPoolExecutor(2) as pool,
        open_cpo("memory:") as cpo,
        store_on(disk, cpo, "main", seed=1) as store,
    ):
        store.create_stream(STREAM, segments=8)
        store.create_reader_group("group", [STREAM])
        if request.param == "embedded":
            yield Slow(store, disk, pool)
        else:
            with served(store) as (_, finder), Outside(finder) as outside:
                yield Slow(outside, disk, pool)


def test_an_acknowledgement_is_not_waited_for_longer_than_told(slow: Slow) -> None:
    """The thread that waits would make the sync itself; the event is written all the same, and once."""
    with slow.store.writer(STREAM) as writer:
        with pytest.raises(TimeoutError, match=r"no acknowledgement from stream 'plant/readings' within 0\.1 s"):
            slow.while_stalled(lambda: writer.write_event(b"a").result(timeout=0.1))
        writer.write_event(b"b").result(timeout=SECONDS_MAX)
    assert sum(map(len, slow.store.read(STREAM))) == 2


def test_the_acknowledgement_of_a_batch_is_not_waited_for_longer_than_told(slow: Slow) -> None:
    """It goes to many segments, which have the time together."""
    with slow.store.writer(STREAM) as writer:
        ack = writer.write_batch([b"event"] * 100, [str(key) for key in range(100)])
        with pytest.raises(TimeoutError, match="no acknowledgement"):
            slow.while_stalled(lambda: ack.result(timeout=0.1))
        assert len(ack.result(timeout=SECONDS_MAX)) == 100


def test_acknowledgements_with_a_timeout_are_as_good_as_others(slow: Slow) -> None:
    """From many threads, also with no time at all: a moment is always there."""
    with slow.store.writer(STREAM) as writer, ThreadPoolExecutor(8) as threads:

        def write(number: int) -> object:
            return writer.write_event(b"%d" % number).result(timeout=SECONDS_MAX)

        assert len(set(threads.map(write, range(100)))) == 100
        assert writer.write_event(b"last").result(timeout=0) is not None


@pytest.mark.parametrize("how", ["read_next_event", "read_batch", "read_next_event_as_stream"])
def test_a_read_does_not_wait_for_a_catalog_that_waits_for_the_disk(slow: Slow, how: str) -> None:
    """Another thread changes the store; a reader with a timeout has something else to do meanwhile."""
    with slow.store.reader_group("group").reader("reader") as reader:
        read = getattr(reader, how)
        assert read(timeout=0) is None
        with slow.disk.stalled():
            changing = slow.pool.submit(slow.store.create_stream, "plant/other")
            reader._member.attend()  # as if its group had notified it
            assert slow.pool.submit(read, timeout=0.1).result(SECONDS_MAX) is None
            assert not changing.done()
        changing.result(SECONDS_MAX)
        with slow.store.writer(STREAM) as writer:
            writer.write_event(b"event").result()
        assert read(timeout=SECONDS_MAX) is not None


def test_a_checkpoint_is_not_waited_for_longer_than_told(slow: Slow) -> None:
    """It has to be durable; one that is not in time has failed, and once it has ended the next one is taken."""
    group = slow.store.reader_group("group")
    with pytest.raises(CheckpointFailed, match="in time"):
        slow.while_stalled(lambda: group.checkpoint("first", timeout=0.1))
    second = None
    while second is None:
        with suppress(CheckpointFailed):  # the first may still be under way
            second = group.checkpoint("second", timeout=SECONDS_MAX)
    assert second.name == "second"
