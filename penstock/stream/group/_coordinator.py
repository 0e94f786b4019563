"""The coordinator of a reader group: it shares out the segments among the group's members.

The catalog keeps the state of the group. Changes that readers make all the time (which reader holds which segment, and
its position there) may be lost in a crash: then some events are read again. Letting a reader go takes the locks of its
segments, and a writer that waits for the disk may hold one of them; so that is done after the catalog's lock is
released.

Remote readers, those of other processes, may outlive this process, and know their own positions. So the segments that a
remote reader holds are always durable, and the next process that opens the store waits a while for the remote readers
that held some. A reader that returns continues where it was, and not at its last recorded position. A reset of the
group ends it all the same.

After a failed sync all of this continues in memory only; what the group promises to keep (a committed position, a
checkpoint, a reset) is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import (
    BadArgument,
    CorruptData,
    LogError,
    PlogError,
    ReaderInUse,
    ReaderOffline,
    StoreClosed,
    StreamError,
)
from penstock.model import shown
from penstock.ports import uninterrupted
from penstock.stream.catalog import nested
from penstock.stream.format import (
    CheckpointBegun,
    CheckpointDropped,
    CheckpointReached,
    ReaderGone,
    ReaderJoined,
    ReaderMoved,
    SegmentDone,
    SegmentsReleased,
    SegmentsTaken,
)
from penstock.stream.group._losses import Losses
from penstock.stream.read import READER_LEASE_S
from penstock.stream.segment import is_reader_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.errors import PenstockError
    from penstock.model import TimeWindow
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, GroupState, Key
    from penstock.stream.format import GroupRecord, Places
    from penstock.stream.read import Member
    from penstock.stream.segment import Segments, WakeUp
    from penstock.stream.time import Watermarks, WatermarkTimes

__all__ = ["REMOTE_READERS_AWAITED_S", "Claim", "Coordinator", "let_go"]

REMOTE_READERS_AWAITED_S: Final = 10.0  # twice as long as a client that has lost a server takes between two attempts


class Claim(NamedTuple):
    """What a reader claims that was a member before: its epoch, and up to where what it returned counts as read."""

    epoch: int
    places: Mapping[Key, int]


class Coordinator:
    """Coordinates one group. The caller holds the catalog's lock; a method that takes it itself says so."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        segments: Segments,
        watermarks: Watermarks,
        clock: Clock,
        *,
        wake_positions: Callable[[], None],
    ) -> None:
        self.name: Final = name
        self.catalog, self.segments, self.watermarks, self.clock = catalog, segments, watermarks, clock
        self._wake_positions = wake_positions
        self.streams: Final = tuple(self.state.streams)
        self.end_of: Final = self.state.end_of
        self.readers: Final[dict[str, Member]] = {}
        self.waiter: WakeUp | None = None  # of the caller that waits for a checkpoint
        self._since = clock.elapsed()
        self.losses: Final = Losses(name, catalog, self.readers, commit=self._commit, alert=self.alert)

    @property
    def state(self) -> GroupState:
        """The group as the catalog knows it."""
        return self.catalog.group(self.name)

    @property
    def finished(self) -> bool:
        """Whether the group has read everything; takes the lock itself, because a change may be half done."""
        with self.catalog.lock:
            state = self.catalog.groups.get(self.name)
            return state is not None and state.finished

    def alert(self, *, besides: str | None = None) -> None:
        """Let all readers sync with the group before their next event."""
        for reader_id, reader in self.readers.items():
            if reader_id != besides:
                reader.attend()
        if self.waiter is not None:
            self.waiter.notify()

    # Members

    def join(self, reader: Member, claim: Claim | None = None) -> None:
        """Add a reader; the readers of a process that ended are removed first, unless they may still return.

        A reader that returns has a ``claim`` to the segments that it still holds, or that no other reader took.
        """
        name = reader.reader_id
        if name in self.readers:
            raise ReaderInUse(self.name, name)
        if claim is not None and claim.epoch != self.state.epoch:
            raise self.offline("its group was reset")(name)
        self._commit(*self.left_behind())
        if claim is not None and name in self.state.remote_readers:
            self._commit(*self._moved(name, self._ahead(claim, self.state.readers[name])))
        else:
            self._commit(*self._joined(reader, claim), durable=reader.is_remote)
        self.readers[name] = reader
        self._wake_positions()
        self.alert(besides=name)

    def _joined(self, reader: Member, claim: Claim | None) -> Iterator[GroupRecord]:
        name, state = reader.reader_id, self.state
        if name in state.readers:
            yield ReaderGone(self.name, name, {})
        yield ReaderJoined(self.name, name, reader.is_remote)
        if claim is not None and state.checkpoint is None:
            free = self._ahead(claim, state.free)
            if free:
                yield SegmentsTaken(
                    self.name, name, {stream: list(segments) for stream, segments in nested(free).items()}
                )
                yield from self._moved(name, free)

    def _moved(self, reader_id: str, places: Mapping[Key, int]) -> Iterator[GroupRecord]:
        if places:
            yield ReaderMoved(self.name, reader_id, nested(places))

    def _ahead(self, claim: Claim, known: Mapping[Key, int]) -> dict[Key, int]:
        """Return the positions of a claim that are not behind the known ones."""
        return {
            key: claim.places[key]
            for key, place in known.items()
            if place <= claim.places.get(key, -1) and self._is_place(key, claim.places[key])
        }

    def _is_place(self, key: Key, place: int) -> bool:
        """Whether a position is valid: a remote reader may claim anything.

        A disk or a bucket that fails, or a store that has a new owner, says nothing about it.
        """
        try:
            segment, end = self.segments.get(*key), self.end_of(key)
            return place <= (segment.tail if end is None else end) and is_reader_place(segment, place)
        except (KeyError, StreamError, LogError, PlogError, CorruptData):
            return False  # truncated away, deleted, or damaged

    def check_place(self, key: Key, place: int) -> bool:
        """Refuse a position that a remote reader cannot have; return whether the group has the segment.

        What was truncated away is not looked at. It needs no lock.
        """
        state = self.catalog.streams.get(key[0])
        if key[0] not in self.streams or state is None or key[1] not in state.segments:
            return False
        if place < state.head.get(key[1], 0) or self._is_place(key, place):
            return True
        raise BadArgument(f"invalid position {place}: no event of segment {key[1]} of {key[0]} begins or ends there")

    @property
    def is_waiting(self) -> bool:
        """Whether remote readers of the previous owner may still return; takes the lock itself."""
        with self.catalog.lock:
            state = self.catalog.groups.get(self.name)
            return state is not None and not state.remote_readers <= self.readers.keys()

    def left_behind(self) -> Iterator[GroupRecord]:
        """Return the records that remove the readers, and the checkpoint, of a process that ended abruptly."""
        state = self.state
        if state.checkpoint is not None and self.waiter is None:
            yield CheckpointDropped(self.name, state.checkpoint)
        awaited = state.remote_readers if self.clock.elapsed() - self._since < REMOTE_READERS_AWAITED_S else set()
        for reader_id in sorted(state.readers.keys() - self.readers.keys() - awaited):
            yield ReaderGone(self.name, reader_id, {})

    def leave(self, reader: Member, places: Mapping[Key, int]) -> None:
        """Remove a reader that closed; others continue from ``places``."""
        self.losses.confirm(reader, places)
        self._commit(self._gone(reader.reader_id, places), durable=True)
        del self.readers[reader.reader_id]
        self.alert()

    def await_return(self, reader: Member, places: Mapping[Key, int]) -> None:
        """Keep a remote reader whose server ends as a member, like one of a server that was killed.

        Its client has returned events that it has not reported: others would read them again.
        """
        del self.readers[reader.reader_id]
        self._since = self.clock.elapsed()
        self.record(reader.reader_id, places)

    def take_offline(self, reader_id: str, places: Mapping[Key, int], reason: str) -> Member | None:
        """Remove a reader, also one of a process that ended; return it if it is of this process."""
        self._commit(self._gone(reader_id, places), durable=True)
        reader = self.readers.pop(reader_id, None)
        if reader is not None:
            reader.stop(self.offline(reason)(reader_id))
        self.alert()
        return reader

    def expire(self, now: float) -> list[Member]:
        """Take silent readers offline; return them: the caller lets them go when it has released the lock."""
        silent = [reader for reader in self.readers.values() if reader.is_silent(now)]
        for reader in silent:
            reason = f"it was silent for more than {READER_LEASE_S:g} seconds"
            self.take_offline(reader.reader_id, reader.places(returned=False), reason)
        gone = list(self.left_behind()) if self.is_waiting else []
        if gone:
            self._commit(*gone)
            self.alert()
        return silent

    def end_all(self, error: Callable[[str], PenstockError]) -> list[Member]:
        """Stop all readers, which the catalog has removed already; return them."""
        ended = list(self.readers.values())
        self.readers.clear()
        for reader in ended:
            reader.stop(error(reader.reader_id))
        self.alert()
        return ended

    def offline(self, reason: str) -> Callable[[str], PenstockError]:
        """Return the error of a reader that was taken offline, by its id."""
        return lambda reader_id: ReaderOffline(self.name, reader_id, reason=reason)

    @uninterrupted
    def close(self) -> None:
        """End all readers, because the store is closed; takes the lock itself."""
        with self.catalog.lock:
            try:
                gone = [self._gone(name, reader.places(returned=False)) for name, reader in self.readers.items()]
                if gone:
                    self._commit(*gone, durable=True)
            finally:
                ended = self.end_all(lambda _: StoreClosed("the store"))
        let_go(ended)

    def _gone(self, reader_id: str, places: Mapping[Key, int]) -> ReaderGone:
        return ReaderGone(self.name, reader_id, self._held(reader_id, places))

    def _held(self, reader_id: str, places: Mapping[Key, int]) -> Places:
        """Return the positions that the catalog does not have yet, in segments that the reader holds."""
        held = self.state.readers[reader_id]
        return nested({key: places[key] for key, place in held.items() if places.get(key, place) != place})

    def _commit(self, *records: GroupRecord, durable: bool = False) -> None:
        if records:
            self.catalog.commit_reading(*records, durable=durable)

    # Segments and positions

    def record(self, reader_id: str, places: Mapping[Key, int], *, durable: bool = False) -> None:
        """Record the position of a reader."""
        moved = self._held(reader_id, places)
        if moved:
            self._commit(ReaderMoved(self.name, reader_id, moved))
        if durable:
            self.catalog.make_durable()

    def record_all(self) -> None:
        """Record the positions of all readers, without the events that they returned last."""
        for reader_id, reader in self.readers.items():
            self.record(reader_id, reader.places(returned=False))

    def rebalance(self, reader_id: str, places: Mapping[Key, int]) -> dict[Key, int]:
        """Let a reader release and take segments up to its fair share; return the segments that it holds then."""
        state = self.state
        share = state.share(reader_id)
        held = state.readers[reader_id]
        records: list[GroupRecord] = []
        if share.give:
            given = {key: places.get(key, held[key]) for key in share.give}
            records.append(SegmentsReleased(self.name, reader_id, nested(given)))
        if share.take:
            taken = nested(dict.fromkeys(share.take, 0))
            records.append(
                SegmentsTaken(self.name, reader_id, {stream: list(segments) for stream, segments in taken.items()})
            )
        self._commit(*records, durable=bool(state.remote_readers))
        if share.give:
            self.alert(besides=reader_id)
        return dict(held)

    def finish_segment(self, reader_id: str, key: Key, end: int) -> None:
        """Record that a reader has read a segment to its end."""
        stream, segment = key
        state = self.catalog.stream(stream)
        if key in self.state.readers[reader_id] and segment in state.segments:
            limit = self.end_of(key)
            if end != (state.segments[segment].end if limit is None else limit):
                raise BadArgument(f"segment {segment} of {stream} is not read to its end at {end}")
            done = SegmentDone(self.name, reader_id, stream, segment, end, *map(sorted, state.succession(segment)))
            self._commit(done, durable=bool(self.state.remote_readers))
            self.alert(besides=reader_id)
        else:
            self.losses.settle_doubts(self.readers[reader_id])

    def places_now(self, *, returned: bool) -> Places:
        """Return the group's position, recorded or not; ``returned`` includes the events that readers returned last."""
        state = self.state
        places = state.places()
        for reader_id, reader in self.readers.items():
            for (stream, segment), place in reader.places(returned=returned).items():
                if (stream, segment) in state.readers[reader_id]:
                    places[stream][segment] = place
        return places

    def time_window(self, stream: str | None) -> TimeWindow | None:
        """Return the time window of the group in one of its streams; takes the lock itself."""
        with self.catalog.lock:
            places = self.places_now(returned=True)
            name = next(iter(places)) if stream is None and len(places) == 1 else stream
            if not isinstance(name, str) or name not in places:
                raise BadArgument(
                    f"invalid stream {shown(stream)}: group {self.name!r} reads {', '.join(sorted(places))}"
                )
            return self.watermarks.window(self.catalog.stream(name), places[name])

    def times(self, stream: str, segment_id: int) -> WatermarkTimes:
        """Return the times of a segment's events, by watermarks."""
        return self.watermarks.times(self.catalog.open_stream(stream), segment_id)

    # Checkpoints

    def checkpoint_of(self, reader_id: str) -> str | None:
        """Return the checkpoint that a reader has not reached yet."""
        state = self.state
        return state.checkpoint if reader_id in state.missing else None

    def reach_checkpoint(self, reader_id: str, places: Mapping[Key, int]) -> None:
        """Record that a reader has reached the checkpoint."""
        is_last = self.state.missing == {reader_id}
        self._commit(CheckpointReached(self.name, reader_id, self._held(reader_id, places)), durable=is_last)
        if is_last:
            self.alert(besides=reader_id)

    def begin_checkpoint(self, name: str, waiter: WakeUp) -> None:
        """Begin a checkpoint that all readers have to reach; without readers it is complete at once."""
        if not self.readers:
            self._since -= REMOTE_READERS_AWAITED_S
        begun = CheckpointBegun(self.name, name)
        self.catalog.commit(*self.left_behind(), begun, durable=not self.readers)
        self.waiter = waiter
        self.alert()

    def end_checkpoint(self, name: str) -> None:
        """Stop waiting for a checkpoint; one that is not complete is dropped."""
        self.waiter = None
        state = self.catalog.groups.get(self.name)
        if state is not None and state.checkpoint == name:
            self._commit(CheckpointDropped(self.name, name))
            self.alert()


def let_go(readers: Iterable[Member]) -> None:
    """Let no segment wake these readers any more; the caller does not hold the catalog's lock."""
    for reader in readers:
        reader.let_go()
