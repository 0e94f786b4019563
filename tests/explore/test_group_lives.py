"""Lives of a reader group: readers come and go, while streams are written, scaled, truncated and deleted."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import (
    DataTruncated,
    NoSuchStream,
    ReaderOffline,
    StoreClosed,
    WrongCut,
)
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.ports import OsDisk, OsFile
from penstock.stream import Engine
from penstock.stream.group import _groups
from penstock.stream.group._coordinator import REMOTE_READERS_AWAITED_S
from penstock.stream.read import READER_LEASE_S
from penstock.stream.segment._readable import WakeUp
from penstock.testing import ManualClock, SeededRandom
from tests.explore.group_model import GroupModel, Stream, Track
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from penstock.model import Position, StreamCut
    from penstock.stream import EventRead, LocalReaderGroup, Reader
    from tests.explore.conftest import Lives

pytestmark = pytest.mark.long

NAMES: Final = ("s/a", "s/b")
KEYS: Final = "abcdef"
SIZES: Final = PlogSizes(first=512, largest=2048)
STEPS: Final = 60
SECONDS_MAX: Final = 20.0


class Life:
    """One life, told by its dice."""

    def __init__(self, dice: Random, folder: Path, *, over_the_wire: bool = False) -> None:
        self.dice, self.folder, self.is_remote = dice, folder, over_the_wire
        self.opened = ExitStack()  # to the store, for readers
        self.clock = ManualClock()
        self.model = GroupModel()
        self.tags: dict[str, str] = {}  # of the streams that are there, by name
        self.counts: dict[tuple[str, str], int] = {}  # of events written, by tag and key
        self.cuts: list[tuple[StreamCut, dict[Track, tuple[int, int]]]] = []
        self.checkpoints: dict[str, dict[Track, tuple[int, int]]] = {}
        self.positions: list[tuple[Position, dict[Track, tuple[int, int]]]] = []
        self.readers: dict[str, Reader] = {}
        self.last: dict[str, EventRead] = {}  # what each reader was given last, if that was one event
        self.deleted, self.told_deleted = set[str](), set[str]()
        self.births = self.names = 0
        self.outside: Any = None  # the store, over the wire
        self.store = self.open()
        for name in NAMES:
            self.create(name)
        self.write()
        self.create_group()
        self.group = self.find_group()

    def open(self) -> Engine:
        with ExitStack() as resources:
            disk = OsDisk(self.folder / "plogs")
            plogs = FilePlogs(
                disk, journal_size=1 << 16, direct_size_min=700, random=SeededRandom(self.dice.getrandbits(40))
            )
            resources.enter_context(plogs)
            cpo = resources.enter_context(open_cpo(f"sqlite:{self.folder / 'cpo.db'}"))
            manager = resources.enter_context(MetadataManager.open(plogs, cpo, "main", sizes=SIZES))
            return Engine(manager, clock=self.clock, maintenance_interval_s=3600.0, resources=resources)

    def create_group(self) -> None:
        """Create a group that ends, or does not, at a cut."""
        ends = [self.store.tail(name) for name in NAMES if self.dice.random() < 0.2]
        for name in NAMES:
            self.model.streams[self.tags[name]] = stream = Stream(self.tags[name])
            for key in KEYS:
                count = self.counts[self.tags[name], key]
                ended = name in {cut.stream for cut in ends}
                stream.tracks[key] = Track(written=count, end=count if ended else None)
        self.store.create_reader_group("g", NAMES, end=ends or None)

    def find_group(self) -> LocalReaderGroup:
        """Return the group as readers have it, in this process or over the wire."""
        if not self.is_remote:
            return self.store.reader_group("g")
        self.outside = self.opened.enter_context(over_the_wire(self.store, self.clock))
        group: LocalReaderGroup = self.outside.reader_group("g")
        return group

    def close(self) -> None:
        self.opened.close()
        self.store.close()

    # Streams

    def create(self, name: str) -> None:
        self.births += 1
        self.tags[name] = f"{name}#{self.births}"
        self.store.create_stream(name, segments=self.dice.randint(1, 3))
        self.counts |= {(self.tags[name], key): 0 for key in KEYS}

    def write(self) -> None:
        name = self.dice.choice(NAMES)
        tag = self.tags[name]
        if self.store.stream(name).state == "sealed":
            return
        with self.store.writer(name) as writer:
            for _ in range(self.dice.randint(1, 12)):
                key = self.dice.choice(KEYS)
                writer.write_event(f"{tag}:{key}:{self.counts[tag, key]}".encode(), key=key)
                self.counts[tag, key] += 1
                if self.dice.random() < 0.3:
                    writer.flush()
        if tag in self.model.streams:
            for key, track in self.model.streams[tag].tracks.items():
                track.written = self.counts[tag, key]

    def scale(self) -> None:
        name = self.dice.choice(NAMES)
        current = self.store.stream(name).segments
        first = self.dice.randrange(len(current)) if current else 0
        chosen = current[first : first + self.dice.randint(1, 2)]
        if chosen:
            low, high = chosen[0].low, chosen[-1].high
            marks = sorted({low, high, *(low + (high - low) * self.dice.choice((1, 2, 3)) / 4 for _ in range(2))})
            marks = [low, high] if self.dice.random() < 0.4 or len(current) > 4 else marks
            self.store.scale_stream(name, [one.segment_id for one in chosen], list(pairwise(marks)))

    def note_cut(self) -> None:
        name = self.dice.choice(NAMES)
        stream = self.model.streams.get(self.tags[name])
        if stream is not None:
            self.cuts.append((self.store.tail(name), {t: (t.written, t.written) for t in stream.tracks.values()}))

    def truncate(self) -> None:
        cuts = [cut for cut, _ in self.cuts[-6:]]
        cuts += [cut for one in self.group.checkpoints.values() for cut in one.cuts] + list(self.group.position)
        if not cuts:
            return
        cut = self.dice.choice(cuts)
        with suppress(DataTruncated, WrongCut, NoSuchStream):
            self.store.truncate_stream(cut.stream, cut)
        stream = self.model.streams.get(self.tags[cut.stream])
        if stream is not None:
            self.note_floors(cut.stream, stream)

    def note_floors(self, name: str, stream: Stream) -> None:
        first: dict[str, int] = {}
        for batch in self.store.read(name):
            for event in batch["event"].to_pylist():
                _, key, number = event.decode().split(":")
                first.setdefault(key, int(number))
        stream.truncations += 1
        for key, track in stream.tracks.items():
            track.floors.append(first.get(key, track.written))

    def seal(self) -> None:
        self.store.seal_stream(self.dice.choice(NAMES))

    def delete(self) -> None:
        """Delete a stream that is sealed, and create another of its name."""
        name = self.dice.choice(NAMES)
        if self.store.stream(name).state == "sealed":
            stream = self.model.streams.pop(self.tags[name], None)
            if self.is_remote:
                self.model.late.add(self.tags[name])
            self.store.delete_stream(name)
            if stream is not None:
                self.deleted |= {name} if stream.has_unread() else set()
                self.cuts = [(cut, places) for cut, places in self.cuts if cut.stream != name]
                gone = set(stream.tracks.values())
                self.model.pending = {
                    reader: {track: number for track, number in some.items() if track not in gone}
                    for reader, some in self.model.pending.items()
                }
            self.create(name)

    # Readers

    def join(self) -> None:
        if len(self.readers) < 3:
            self.names += 1
            name = f"r{self.names}"
            self.readers[name] = self.group.reader(name)
            self.model.count(name)
            self.notice_gone()

    def chosen(self) -> str | None:
        return self.dice.choice(sorted(self.readers)) if self.readers else None

    def read(self) -> None:
        name = self.chosen()
        for _ in range(self.dice.randint(1, 6)) if name is not None else ():
            if name in self.readers:
                self.read_once(name, self.dice.choice(("event", "event", "batch", "stream")))

    def read_once(self, name: str, way: str) -> bool:
        """Let a reader read; return whether it was given or told anything."""
        reader = self.readers[name]
        self.model.count(name)
        self.last.pop(name, None)
        events: list[bytes] = []
        is_told, new_position = False, None
        try:
            if way == "event":
                read = reader.read_next_event(timeout=0)
                if read is not None and read.checkpoint is None:
                    self.last[name], events = read, [read.event]
                    new_position = read.position
                is_told = read is not None
            elif way == "batch":
                batch = reader.read_batch(self.dice.choice((1, 60, 1 << 20)), timeout=0)
                events = [] if batch is None else batch["event"].to_pylist()
            else:
                file = reader.read_next_event_as_stream(timeout=0)
                events = [] if file is None else [file.read()]
        except DataTruncated as error:
            self.note_truncated(error)
            is_told = True
        except NoSuchStream as error:
            self.told_deleted.add(error.stream)
            is_told = True
        self.notice_gone()
        self.model.give(name, events)
        if new_position is not None and self.dice.random() < 0.1:
            self.positions.append((new_position, self.model.snapshot()))
        return is_told or bool(events)

    def note_truncated(self, error: DataTruncated) -> None:
        place = error.place
        stream = self.model.streams.get(self.tags[place.stream])  # type: ignore[attr-defined]
        if stream is not None:
            assert stream.truncations, "it was never truncated"
            stream.told = stream.truncations

    def notice_gone(self) -> None:
        """Note which readers the group has ended."""
        alive = set(self.group.readers())
        for name in sorted(self.readers.keys() - alive):
            if self.is_remote:
                self.model.lose(name)  # it was where it had said that it was
            self.end(name)

    def end(self, name: str) -> None:
        self.model.leave(name)
        reader = self.readers.pop(name)
        self.last.pop(name, None)
        with pytest.raises((ReaderOffline, StoreClosed)):
            reader.read_next_event(timeout=0)

    def commit(self) -> None:
        name = self.chosen()
        if name is not None:
            self.readers[name].commit()
            self.model.commit(name)
            self.notice_gone()

    def leave(self) -> None:
        name = self.chosen()
        if name is None:
            return
        reader = self.readers[name]
        if self.dice.random() < 0.5:
            reader.close()
            self.model.commit(name)
        else:
            reader.__exit__(ValueError, ValueError(), None)
        self.end(name)

    def take_offline(self) -> None:
        name = self.chosen()
        if name is None:
            return
        read = self.last.get(name)
        if read is not None and self.dice.random() < 0.5:
            with suppress(WrongCut):
                self.group.reader_offline(name, read.position)
                self.model.commit(name)
        else:
            self.group.reader_offline(name)
        self.notice_gone()

    def pass_time(self) -> None:
        self.clock.advance(self.dice.choice((0.1, 1.5, READER_LEASE_S / 2, READER_LEASE_S + 1)))

    def record(self) -> None:
        if self.is_remote:
            self.outside.report_group("g")
        self.store.groups.positions.run_once()
        self.model.record()

    # The group

    def checkpoint(self) -> None:
        """Let all readers come to a checkpoint; each reads a little before."""
        self.names += 1
        name, arrived, wake_up = f"c{self.names}", set[str](), WakeUp()
        group = self.store.reader_group("g")
        group._begin_checkpoint(name, wake_up)  # as checkpoint() does, which waits: a life has just one thread
        self.notice_gone()
        places = self.model.snapshot()
        while group._groups.is_under_way(group.name, name):
            for reader in sorted(self.readers):
                if group._groups.is_under_way(group.name, name) and reader in self.readers:
                    self.come_to(name, reader, arrived, places)
        group._end_checkpoint(name, wake_up)
        self.checkpoints[name] = places
        for track, (low, _) in places.items():
            track.durable = max(track.durable, low)

    def come_to(self, name: str, reader: str, arrived: set[str], places: dict[Track, tuple[int, int]]) -> None:
        was_there = reader in arrived
        self.last.pop(reader, None)
        self.model.count(reader)
        try:
            read = self.readers[reader].read_next_event(timeout=0)
        except DataTruncated as error:
            self.note_truncated(error)
            return
        except NoSuchStream as error:
            self.told_deleted.add(error.stream)
            return
        finally:
            self.notice_gone()
        if read is not None and read.checkpoint == name:
            arrived.add(reader)
        elif read is not None:
            self.model.give(reader, [read.event])
            if not was_there:
                places |= {track: (track.low, track.high) for track in self.model.pending[reader]}

    def reset(self) -> None:
        ways = [self.reset_to_head, self.reset_to_cut, self.reset_to_checkpoint, self.reset_to_position]
        with suppress(DataTruncated, WrongCut):
            self.dice.choice(ways)()
        self.notice_gone()

    def reset_to_head(self) -> None:
        self.group.reset("head")
        self.model.reset({t: (floor := t.floors[-1] if t.floors else 0, floor) for t in self.model.tracks()})

    def reset_to_cut(self) -> None:
        if self.cuts:
            cut, places = self.dice.choice(self.cuts)
            self.group.reset(cut)
            self.model.reset(places)

    def reset_to_checkpoint(self) -> None:
        names = sorted(self.group.checkpoints.keys() & self.checkpoints.keys())
        if names:
            name = self.dice.choice(names)
            self.group.reset(self.group.checkpoints[name])
            alive = set(self.model.tracks())
            self.model.reset({track: place for track, place in self.checkpoints[name].items() if track in alive})

    def reset_to_position(self) -> None:
        """Read on behind an event that was read some time ago; segments that its reader did not have stay."""
        if self.positions:
            position, places = self.dice.choice(self.positions)
            self.group.reset(position)
            self.model.leave_all()
            alive = set(self.model.tracks())
            between = {t: (min(low, t.low), max(high, t.high)) for t, (low, high) in places.items() if t in alive}
            self.model.reset(between)

    def look(self) -> None:
        self.group.lag()
        assert {cut.stream for cut in self.group.position} == set(self.group.streams)
        if self.group.finished:
            self.check_finished()

    def check_finished(self) -> None:
        for stream in self.model.streams.values():
            stream.check_finished()

    # The process

    def reopen(self) -> None:
        self.close()
        for name in list(self.readers):
            self.end(name)
        self.come_back()

    def kill(self) -> None:
        """Go on with what the process has left, which knows nothing of it."""
        at_rest = threading.Event()
        self.store._manager.spawn(at_rest.set)  # plogs that come and go meanwhile are not copied as they are
        assert at_rest.wait(SECONDS_MAX)
        left = self.folder.with_name(f"{self.folder.name}+")
        shutil.copytree(self.folder, left)
        self.model.kill()
        self.readers.clear()
        self.last.clear()
        self.close()
        shutil.rmtree(self.folder)
        self.folder = left
        self.come_back()

    def come_back(self) -> None:
        self.store = self.open()
        self.group = self.find_group()
        _ = self.group.position
        self.clock.advance(REMOTE_READERS_AWAITED_S + 1)  # no reader comes again

    def live(self) -> None:
        """All of it."""
        often: list[Callable[[], None]] = [self.write, self.write, self.read, self.read, self.read, self.join]
        some = [
            self.scale,
            self.note_cut,
            self.truncate,
            self.commit,
            self.leave,
            self.pass_time,
            self.record,
            self.look,
        ]
        rare = [self.checkpoint, self.reset, self.take_offline, self.reopen, self.kill, self.seal, self.delete]
        ways = 4 * often + 2 * some + rare
        for _ in range(STEPS):
            self.dice.choice(ways)()
        self.finish()

    def finish(self) -> None:
        """Read all that is left, and look whether it is all."""
        for name in NAMES:
            self.store.seal_stream(name)
        for name in list(self.readers):
            self.readers[name].close()
            self.model.commit(name)
            self.end(name)
        for _ in range(self.dice.randint(1, 2)):
            self.join()
        while sum(self.read_once(name, "event") for name in sorted(self.readers)):
            pass
        assert self.group.finished, "there is nothing to read, and the group is not finished"
        self.check_finished()
        for stream in self.model.streams.values():
            stream.check_told()
        missing = self.deleted - self.told_deleted
        assert not missing, f"no reader was told that {missing} were deleted"


@pytest.mark.parametrize("where", ["in this process", "over the wire"])
def test_lives_of_a_group_leave_nothing_out_and_read_nothing_twice(
    lives: Lives, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens to readers, streams and the process: per key in order, and what is lost is told."""
    monkeypatch.setattr(_groups, "POSITIONS_EVERY_S", 3600.0)  # so that a life is told by its seed
    for kind, name in ((OsFile, "datasync"), (OsDisk, "sync")):  # a process that is killed leaves what it has written
        monkeypatch.setattr(kind, name, lambda _: None)
    is_remote = where == "over the wire"
    for number, dice in enumerate(lives(sampled=5, explored=200) if is_remote else lives(sampled=20, explored=1000)):
        folder = tmp_path / str(number)
        life = Life(dice, folder, over_the_wire=is_remote)
        try:
            life.live()
        finally:
            life.close()
            shutil.rmtree(life.folder)
