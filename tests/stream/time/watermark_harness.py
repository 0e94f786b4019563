"""What tests of watermarks share: a store whose passes the test runs itself."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from penstock.embedded import open_store
from penstock.log import MetadataManager, PlogSizes
from penstock.model import StreamConfig
from penstock.plog import FilePlogs
from penstock.stream import Engine
from penstock.testing import ManualClock, SeededRandom
from tests.stream.wire_harness import come_to_rest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from penstock.cpo import Cpo
    from penstock.plog import Plogs
    from penstock.ports import Disk
    from penstock.stream import StreamWriter

STREAM: Final = "plant/readings"
OTHER: Final = "plant/alarms"
MAINTENANCE_INTERVAL_S: Final = 600.0  # by the store's own thread; no test takes that long
TIMEOUT_S: Final = 6000.0
CONFIG: Final = StreamConfig(timestamp_aggregation_timeout=TIMEOUT_S)
SIZES: Final = PlogSizes(first=4096, largest=64 << 10)


def open_timed(address: str | PathLike[str], clock: ManualClock) -> Engine:
    """Open a store whose own passes never come."""
    return open_store(address, clock=clock, sizes=SIZES, maintenance_interval_s=MAINTENANCE_INTERVAL_S)


@contextmanager
def timed_store_on(disk: Disk, cpo: Cpo, partition: str, clock: ManualClock, *, seed: int) -> Iterator[Engine]:
    """Open one on any disk, with small plogs and a small journal."""
    plogs = FilePlogs(disk, journal_size=1 << 16, direct_size_min=4096, random=SeededRandom(seed))
    with plogs, timed_store(plogs, cpo, partition, clock) as store:
        yield store


@contextmanager
def timed_store(plogs: Plogs, cpo: Cpo, partition: str, clock: ManualClock) -> Iterator[Engine]:
    """Open one on any plogs, which stay open."""
    with ExitStack() as resources:
        sizes = PlogSizes(first=2048, largest=4096)
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, partition, sizes=sizes))
        with Engine(manager, clock=clock, maintenance_interval_s=MAINTENANCE_INTERVAL_S, resources=resources) as store:
            yield store


class Timed:
    """A store and its clock."""

    def __init__(self, store: Engine, clock: ManualClock) -> None:
        self.store, self.clock = store, clock

    def run_pass(self, passes: int = 1) -> None:
        """Let time go by, and let the store do what it does from time to time."""
        for _ in range(passes):
            self.clock.advance(MAINTENANCE_INTERVAL_S)
            self.store.maintain()
            come_to_rest(self.store)

    def lowers(self, stream: str = STREAM) -> list[int]:
        """Return the times of all watermarks."""
        return [mark.lower for mark in self.store.watermarks(stream)]

    def begin(self, time: int = 1, stream: str = STREAM) -> StreamWriter:
        """Open a writer ``w`` that has noted a time, and let the intentional delay be over."""
        writer = self.store.writer(stream, "w")
        note(writer, time)
        self.run_pass(2)
        assert self.lowers(stream)[-1] == time
        return writer


def note(writer: StreamWriter, time: int) -> None:
    """Note a time, and see it marked."""
    writer.note_time(time)
    writer.flush()


def write(writer: StreamWriter, *events: bytes, key: str = "key") -> None:
    """Write events, durably."""
    for event in events:
        writer.write_event(event, key=key)
    writer.flush()
