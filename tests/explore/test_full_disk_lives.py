"""Lives on a disk that fills up, and has space again: what was said holds, and the store always opens again."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CommitUnfinished, DiskFull, NoSuchTransaction, PenstockError, WriterFailed
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.stream import Engine
from penstock.testing import ManualClock, MemoryDisk, SeededRandom
from tests.explore.small_disk import SmallDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from penstock.cpo import Cpo
    from penstock.model import PlogId
    from penstock.stream import StreamWriter
    from tests.explore.conftest import Lives

pytestmark = pytest.mark.long

STREAM: Final = "plant/readings"
KEYS: Final = "abcdef"
SIZES: Final = PlogSizes(first=512, largest=2048)
STEPS: Final = 80


class FullOracle:
    """A real oracle, on a database that lies on the same disk."""

    def __init__(self, cpo: Cpo, disk: SmallDisk) -> None:
        self._cpo, self._disk = cpo, disk
        self.metadata_plog, self.where = cpo.metadata_plog, cpo.where

    def set_metadata_plog(self, partition: str, plog_id: PlogId, *, expected: int) -> int:
        if self._disk.is_full:
            self._disk.refused += 1
            raise DiskFull("cpo.db")
        return self._cpo.set_metadata_plog(partition, plog_id, expected=expected)


class Life:
    """One life, told by its dice, and what has to be there whatever became of the disk."""

    def __init__(self, dice: Random, cpo: Cpo) -> None:
        self.dice, self.clock, self.disk = dice, ManualClock(), SmallDisk(MemoryDisk())
        self.cpo = FullOracle(cpo, self.disk)
        self.stack = ExitStack()
        self.store: Engine = self._open()
        self.writer: StreamWriter | None = None
        self.next_event = self.next_number = 0
        self.acked: list[tuple[str, int]] = []
        self.unsure: set[tuple[str, int]] = set()  # written, and not acknowledged
        self.begun: dict[str, list[tuple[str, int]]] = {}  # transactions whose outcome the store knows
        self.finished = set[str]()  # those that are committed, as somebody was told
        self.streams, self.groups = {STREAM}, set[str]()
        self.consumers: dict[str, int] = {}
        self.segments = 1
        self.store.create_stream(STREAM)

    def _open(self) -> Engine:
        random = SeededRandom(self.dice.randrange(1 << 32))
        with ExitStack() as resources:
            plogs = FilePlogs(self.disk, journal_size=4096, direct_size_min=700, random=random)
            resources.enter_context(plogs)
            manager = MetadataManager.open(plogs, self.cpo, "main", sizes=SIZES)  # type: ignore[arg-type]
            resources.enter_context(manager)
            store = Engine(manager, clock=self.clock, maintenance_interval_s=3600.0, resources=resources)
            self.stack = ExitStack()
            self.stack.callback(store.close)
            return store

    def run(self) -> None:
        """Live through it, and look at the end."""
        steps: Sequence[Callable[[], None]] = (
            *[self.write] * 4, *[self.commit] * 3, self.prepare, self.scale, self.truncate, self.create, self.delete,
            self.consume, self.group, self.read, self.note, self.maintain, self.fill, self.fill, self.free, self.reopen,
        )  # fmt: skip
        for _ in range(STEPS):
            self.dice.choice(steps)()
        self.reopen(full=False)
        self.check()
        self.write()
        assert not self.writer or self.writer._open.is_sound, "it writes again"
        self.stack.close()

    # What the disk does

    def fill(self) -> None:
        """Let there be no space, or little."""
        self.disk.limit = self.disk.used + self.dice.choice([0, 0, 500, 2000, 5000])

    def free(self) -> None:
        """Let there be space."""
        self.disk.limit = float("inf")
        self.check()

    def reopen(self, *, full: bool | None = None) -> None:
        """Close the store, which may fail, and open it, which may fail as long as there is no space."""
        with suppress(DiskFull):
            self.stack.close()
        self.writer = None
        try:
            if full is False:
                self.disk.limit = float("inf")
            self.store = self._open()
        except DiskFull:
            assert self.disk.limit != float("inf"), "there is space"
            self.disk.limit = float("inf")
            self.store = self._open()
        self.check_catalog()

    def tried(self, step: Callable[[], object]) -> bool:
        """Try something that a full disk may refuse; return whether it was done."""
        try:
            step()
        except (DiskFull, WriterFailed, CommitUnfinished) as error:
            if not isinstance(getattr(error, "cause", error), DiskFull) or self.disk.limit == float("inf"):
                raise
            return False
        return True

    # What the store is asked for

    def events(self, count: int) -> list[tuple[str, int]]:
        """Return new events."""
        first, self.next_event = self.next_event, self.next_event + count
        return [(self.dice.choice(KEYS), number) for number in range(first, first + count)]

    def write(self) -> None:
        """Write some events."""
        events = self.events(self.dice.randrange(1, 6))

        def write() -> None:
            if self.writer is None or not self.writer._open.is_sound:
                self.writer = self.store.writer(STREAM, "w")
            for key, number in events:
                self.unsure.add((key, number))
                self.writer.write_event(as_bytes(key, number), key=key).result()
                self.unsure.discard((key, number))
                self.acked.append((key, number))

        self.tried(write)

    def commit(self) -> None:
        """Commit a transaction, small or large."""
        events = self.events(self.dice.choice([1, 3, 3, 40]))
        transaction = None
        try:
            transaction = self.store.transactional_writer(STREAM, "t").begin()
            self.begun[transaction.id] = events
            for key, number in events:
                transaction.write_event(as_bytes(key, number), key=key)
            transaction.commit(int(self.clock.now() * 1000) if self.dice.random() < 0.3 else None)
        except CommitUnfinished as error:
            self.finished.add(error.transaction)
        except DiskFull:
            assert self.disk.limit != float("inf"), "there is space"
        else:
            self.finished.add(transaction.id)

    def prepare(self) -> None:
        """Prepare a transaction, and commit it under a number."""
        writer, events = self.store.transactional_writer(STREAM, "p"), self.events(3)
        number = self.next_number
        self.next_number += 1
        try:
            transaction = writer.begin()
            self.begun[transaction.id] = events
            for key, place in events:
                transaction.write_event(as_bytes(key, place), key=key)
            transaction.prepare()
            writer.commit_all([transaction.id], number)
            assert writer.last_number == number
            self.finished.add(transaction.id)
        except CommitUnfinished as error:
            self.finished.add(error.transaction)
        except DiskFull:
            assert self.disk.limit != float("inf"), "there is space"

    def scale(self) -> None:
        """Split or merge all segments."""
        current = [one.segment_id for one in self.store.stream(STREAM).segments]
        ranges = [(0.0, 1.0)] if len(current) > 1 else [(0.0, 0.5), (0.5, 1.0)]
        if self.tried(lambda: self.store.scale_stream(STREAM, current, ranges)):
            self.segments = len(ranges)

    def truncate(self) -> None:
        """Let go of everything so far."""
        if self.dice.random() < 0.5:
            return
        with suppress(PenstockError):
            if self.writer is not None:
                self.writer.flush()
        if self.store.catalog.commits:
            return
        cut, before = self.store.tail(STREAM), self.store.head(STREAM)
        if self.tried(lambda: self.store.truncate_stream(STREAM, cut)):
            self.acked, self.begun = [], {}
            self.unsure = set()
        else:
            assert self.store.head(STREAM) == before

    def create(self) -> None:
        """Create a stream."""
        name = f"plant/s{self.dice.randrange(6)}"
        if name not in self.streams and self.tried(lambda: self.store.create_stream(name)):
            self.streams.add(name)

    def delete(self) -> None:
        """Delete a stream, if it could be sealed."""
        name = max(self.streams)
        if name == STREAM or not self.tried(lambda: self.store.seal_stream(name)):
            return
        if self.tried(lambda: self.store.delete_stream(name)):
            self.streams.discard(name)

    def consume(self) -> None:
        """Let a consumer move."""
        name = f"c{self.dice.randrange(3)}"
        if self.tried(lambda: self.store.register_consumer(STREAM, name)):
            self.consumers[name] = 1

    def group(self) -> None:
        """Create a group."""
        name = f"g{self.dice.randrange(3)}"
        if name not in self.groups and self.tried(lambda: self.store.create_reader_group(name, [STREAM])):
            self.groups.add(name)

    def read(self) -> None:
        """Let a reader of a group read a little."""
        for name in sorted(self.groups)[:1]:
            with suppress(PenstockError), self.store.reader_group(name).reader("r") as reader:
                for _ in range(self.dice.randrange(8)):
                    reader.read_next_event(timeout=0)

    def note(self) -> None:
        """Note a time."""
        if self.writer is not None and self.writer._open.is_sound:
            with suppress(PenstockError):
                self.writer.note_time(int(self.clock.now() * 1000))
                self.writer.flush()

    def maintain(self) -> None:
        """Let maintenance run."""
        self.clock.advance(5)
        self.store.maintain()
        self.check_catalog()

    # What holds

    def check_catalog(self) -> None:
        """See that what was changed is, and what was refused is not."""
        assert {info.name for info in self.store.streams()} == self.streams
        assert set(self.store.reader_groups()) == self.groups
        assert self.store.consumers(STREAM).keys() == self.consumers.keys()
        assert len(self.store.stream(STREAM).segments) >= 1

    def check(self) -> None:
        """See that every acknowledged event is there once, and every transaction wholly or not at all."""
        self.check_catalog()
        self.store.maintain()  # which finishes commits that are on record
        assert not self.store.catalog.commits
        found = [event for batch in self.store.read(STREAM) for event in batch["event"].to_pylist()]
        there = [as_pair(event) for event in found]
        assert len(set(there)) == len(there), "doubled"
        for transaction, events in self.begun.items():
            is_there = [one in there for one in events]
            assert all(is_there) or not any(is_there), "half of a transaction"
            assert self.is_committed(transaction) == is_there[0], f"{transaction}: {is_there[0]}"
            assert is_there[0] or transaction not in self.finished, "lost"
        assert set(self.acked) <= set(there), "lost"
        committed = {one for events in self.begun.values() for one in events}
        assert set(there) <= set(self.acked) | self.unsure | committed, "it was never written"
        for key in KEYS:
            mine = [number for one, number in there if one == key and (one, number) in set(self.acked)]
            assert mine == sorted(mine), "out of order"

    def is_committed(self, transaction: str) -> bool:
        try:
            return self.store.transactions.get(transaction).status == "committed"
        except NoSuchTransaction:
            return False


def as_bytes(key: str, number: int) -> bytes:
    return f"{key}:{number}:".encode().ljust(60, b".")


def as_pair(event: bytes) -> tuple[str, int]:
    key, number, _ = event.split(b":")
    return key.decode(), int(number)


def test_lives_on_a_disk_that_fills_up(lives: Lives) -> None:
    """Whatever a full disk refuses is refused wholly, and whatever was said holds once there is space again."""
    refused = 0
    for dice in lives(sampled=6, explored=800):
        with open_cpo("memory:") as cpo:
            life = Life(dice, cpo)
            life.run()
            refused += life.disk.refused
    assert refused > 3, "the disk was never full"
