"""A reader group at work: its readers in this process, and what they change.

What the group has come to is in the catalog. Changes that readers make all the time (who takes which segment, how far
they are) may be forgotten in a crash: then some events are read again. Letting a reader go takes the locks of its
segments, each of which may be held while a writer waits for the disk; so that is done when the catalog's is free again.

Guests, readers of other processes, may outlive this one, and know where they are. So who of them has which segment is
never forgotten; and who opens the store next waits a while for those who had some. One that comes again goes on with
them where it was, and not where it was when that was last recorded. A reset of the group ends it all the same.

After a failed sync all of this goes on in memory only; what the group promises to keep (a committed position, a
checkpoint, a reset) is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.errors import (
    BadArgument,
    DataTruncated,
    NoSuchStream,
    PenstockError,
    ReaderInUse,
    ReaderOffline,
    StoreClosed,
)
from penstock.model import StreamCut, shown
from penstock.ports import uninterrupted
from penstock.stream.catalog import flat, followers, lost_segments, nested
from penstock.stream.format import (
    CheckpointBegun,
    CheckpointDropped,
    CheckpointReached,
    LossTold,
    ReaderGone,
    ReaderJoined,
    ReaderMoved,
    SegmentDone,
    SegmentsReleased,
    SegmentsTaken,
)
from penstock.stream.read import READER_LEASE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.model import TimeWindow
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, GroupState, Key, StreamState
    from penstock.stream.format import GroupRecord, Places, SegmentsLost
    from penstock.stream.read import Member
    from penstock.stream.segment import Segments, WakeUp
    from penstock.stream.time import MarkTimes, Watermarks

__all__ = ["REMOTE_READERS_AWAITED_S", "Claim", "Coordinator", "let_go"]

REMOTE_READERS_AWAITED_S: Final = 10.0  # twice as long as a client that has lost a server takes between two attempts


class Claim(NamedTuple):
    """What a reader claims that was a member before: its epoch, and up to where what it returned counts as read."""

    epoch: int
    places: Mapping[Key, int]


class Coordinator:
    """A group in this process: its readers here, and what they change. Whoever calls it holds the catalog's lock."""

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
        self.readers: dict[str, Member] = {}
        self.waiter: WakeUp | None = None  # of whoever waits for a checkpoint
        self._since = clock.elapsed()
        self._heads: dict[str, Mapping[int, int]] = {}  # of the streams when lost segments were last looked for
        self._tellers: dict[tuple[str, int | None], Member] = {}  # of what is lost, until they have told
        self._returned: dict[Key, tuple[Member, int]] = {}  # of what is lost: who was given all of it, up to where

    @property
    def state(self) -> GroupState:
        """What the catalog knows of it."""
        return self.catalog.group(self.name)

    @property
    def finished(self) -> bool:
        """Whether it has read everything; takes the lock itself: between two steps of a change nothing may be there."""
        with self.catalog.lock:
            state = self.catalog.groups.get(self.name)
            return state is not None and state.finished

    def alert(self, *, besides: str | None = None) -> None:
        """Let all readers look at the group."""
        for reader_id, reader in self.readers.items():
            if reader_id != besides:
                reader.attend()
        if self.waiter is not None:
            self.waiter.notify()

    # Who reads

    def join(self, reader: Member, claim: Claim | None = None) -> None:
        """Take in a reader; those that were left behind by a process that ended are gone then, unless they may come.

        One that comes again has a ``claim`` to what is still its own, or nobody's.
        """
        name = reader.reader_id
        if name in self.readers:
            raise ReaderInUse(self.name, name)
        if claim is not None and claim.epoch != self.state.epoch:
            raise self.offline("its group was reset")(name)
        self._commit(*self.left_behind())
        if claim is not None and name in self.state.guests:
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
                yield SegmentsTaken(self.name, name, {stream: list(some) for stream, some in nested(free).items()})
                yield from self._moved(name, free)

    def _moved(self, reader_id: str, places: Mapping[Key, int]) -> Iterator[GroupRecord]:
        if places:
            yield ReaderMoved(self.name, reader_id, nested(places))

    def _ahead(self, claim: Claim, known: Mapping[Key, int]) -> dict[Key, int]:
        """Return those places of a claim that are not behind what is known."""
        return {
            key: place
            for key, place in claim.places.items()
            if known.get(key, place + 1) <= place and self._is_place(key, place)
        }

    def _is_place(self, key: Key, place: int) -> bool:
        """Whether a reader may be there: nobody is believed what it says."""
        try:
            segment, end = self.segments.get(*key), self.end_of(key)
            return place <= (segment.tail if end is None else end) and segment.is_border(place)
        except (KeyError, PenstockError):
            return False  # truncated away, or deleted

    @property
    def is_waiting(self) -> bool:
        """Whether guests of a process that had the store before may come again; takes the lock itself."""
        with self.catalog.lock:
            state = self.catalog.groups.get(self.name)
            return state is not None and not state.guests <= self.readers.keys()

    def left_behind(self) -> Iterator[GroupRecord]:
        """Return what ends readers, and a checkpoint, of a process that ended without a word."""
        state = self.state
        if state.checkpoint is not None and self.waiter is None:
            yield CheckpointDropped(self.name, state.checkpoint)
        awaited = state.guests if self.clock.elapsed() - self._since < REMOTE_READERS_AWAITED_S else set()
        for reader_id in sorted(state.readers.keys() - self.readers.keys() - awaited):
            yield ReaderGone(self.name, reader_id, {})

    def leave(self, reader: Member, places: Mapping[Key, int]) -> None:
        """Note that a reader is gone, from these places."""
        self.come_back(reader, places)
        self._commit(self._gone(reader.reader_id, places), durable=True)
        del self.readers[reader.reader_id]
        self.alert()

    def take_offline(self, reader_id: str, places: Mapping[Key, int], reason: str) -> Member | None:
        """End a reader, here or left behind; return it if it is here."""
        self._commit(self._gone(reader_id, places), durable=True)
        reader = self.readers.pop(reader_id, None)
        if reader is not None:
            reader.stop(self.offline(reason)(reader_id))
        self.alert()
        return reader

    def expire(self, now: float) -> list[Member]:
        """Take readers offline that are silent; return them, to be let go without the lock."""
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
        """Stop all readers, of which the catalog knows nothing any more; return them."""
        ended = list(self.readers.values())
        self.readers.clear()
        for reader in ended:
            reader.stop(error(reader.reader_id))
        self.alert()
        return ended

    def offline(self, reason: str) -> Callable[[str], PenstockError]:
        """Return what to tell readers that are ended."""
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
        """Return the places that are not yet known, in segments that are the reader's."""
        held = self.state.readers[reader_id]
        return nested({key: place for key, place in places.items() if held.get(key, place) != place})

    def _commit(self, *records: GroupRecord, durable: bool = False) -> None:
        if records:
            self.catalog.commit_reading(*records, durable=durable)

    # What readers do

    def record(self, reader_id: str, places: Mapping[Key, int], *, durable: bool = False) -> None:
        """Note how far a reader has come."""
        moved = self._held(reader_id, places)
        if moved:
            self._commit(ReaderMoved(self.name, reader_id, moved))
        if durable:
            self.catalog.make_durable()

    def record_all(self) -> None:
        """Note how far all readers have come; what they returned last does not count yet."""
        for reader_id, reader in self.readers.items():
            self.record(reader_id, reader.places(returned=False))

    def rebalance(self, reader_id: str, places: Mapping[Key, int]) -> dict[Key, int]:
        """Let a reader give and take its share; return what it has then."""
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
        self._commit(*records, durable=bool(state.guests))
        if share.give:
            self.alert(besides=reader_id)
        return dict(held)

    def finish_segment(self, reader_id: str, key: Key, end: int) -> None:
        """Note that a reader has read a segment to its end."""
        stream, segment = key
        state = self.catalog.stream(stream)
        if key in self.state.readers[reader_id] and segment in state.segments:
            done = SegmentDone(self.name, reader_id, stream, segment, end, *followers(state, segment))
            self._commit(done, durable=bool(self.state.guests))
            self.alert(besides=reader_id)

    def leave_lost(self, reader: Member | None) -> None:
        """Where segments were truncated away before they were read, go on at the head, and tell who was to read them.

        If nobody was, or whoever was has not said so, ``reader`` is told, or the next one. Every truncation gives a
        stream another head; until then nothing is lost, and a look at all segments, each time that one of them ends,
        is saved.
        """
        known = self.catalog.streams
        truncated = [known[name] for name in self.state.streams if known[name].head is not self._heads.get(name)]
        lost = lost_segments(self.state, truncated) if truncated else []
        for record in lost:
            self._leave_lost_in(known[record.stream], record, reader)
        if lost:
            self.alert()
        self._heads |= {stream.name: stream.head for stream in truncated}
        if reader is not None:
            self._tell_untold(reader)

    def _leave_lost_in(self, stream: StreamState, record: SegmentsLost, reader: Member | None) -> None:
        missed = self._missed(stream, record, reader)
        returned = self._only_returned(stream.name, record, missed)
        together = {key[1]: place for places in (*missed.values(), returned) for key, place in places.items()}
        # If nothing was missed so far: whoever reads the new segments finds out what was lost before their heads.
        free = record.free if any(missed.values()) else dict.fromkeys(record.free, 0)
        self._commit(msgspec.structs.replace(record, free=free, missed=together))
        self._tellers |= {key: self._returned[key][0] for key in returned}
        for one, places in missed.items():
            if one is not None and places:
                self._tell(one, stream.name, {segment: place for (_, segment), place in places.items()})

    def _missed(
        self, stream: StreamState, record: SegmentsLost, reader: Member | None
    ) -> dict[Member | None, dict[Key, int]]:
        """Return who is to be told of which segments that were lost before they were read to the end."""
        state, name = self.state, stream.name
        lost = {(name, segment) for segment in record.segments}
        nobody = {key: state.free[key] for key in lost & state.free.keys()} | dict.fromkeys(lost & state.waiting, 0)
        missed: dict[Member | None, dict[Key, int]] = {reader: nobody}
        for one in self.readers.values():
            held = state.readers[one.reader_id]
            unread = one.missed({key: held[key] for key in lost & held.keys()})
            missed[one] = missed.get(one, {}) | unread
        if not any(missed.values()) and _has_gap(stream, record, state.ends[name]):
            missed[reader] = {key: place for key, place in flat(state.places()).items() if key in lost}
        return missed

    def _only_returned(
        self, stream: str, record: SegmentsLost, missed: Mapping[Member | None, Mapping[Key, int]]
    ) -> dict[Key, int]:
        """Return where readers are in lost segments whose last events they were given, and may not come back from."""
        found = {}
        for one in self.readers.values():
            counted, returned = one.places(returned=False), one.places(returned=True)
            held = self.state.readers[one.reader_id].keys() - missed[one].keys()
            for key in [(stream, segment) for segment in record.segments]:
                if key in held and counted.get(key, 0) < returned.get(key, 0):
                    found[key] = counted[key]
                    self._returned[key] = one, returned[key]
        return found

    def come_back(self, reader: Member, places: Mapping[Key, int] | None = None) -> None:
        """Note that what a reader was given of lost segments counts as read, if it does by these places."""
        for key, (one, end) in list(self._returned.items()):
            if one is reader:
                del self._returned[key]
                if places is None or places.get(key, 0) >= end:
                    self.note_told(key[0], [key[1]])

    def _tell_untold(self, reader: Member) -> None:
        """Tell a reader what was lost, but not what another reader is about to say."""
        for stream, places in self.state.untold.items():
            mine = {one: place for one, place in places.items() if not self._is_being_told((stream, one))}
            if mine or not (places or self._is_being_told((stream, None))):
                self._tell(reader, stream, mine)

    def _is_being_told(self, key: tuple[str, int | None]) -> bool:
        teller = self._tellers.get(key)
        return teller is not None and self.readers.get(teller.reader_id) is teller

    def _tell(self, reader: Member, stream: str, places: Mapping[int, int]) -> None:
        """Let a reader say that segments of a stream were lost, or all of it."""
        if places:
            head = StreamCut.of(stream, self.catalog.stream(stream).head)
            reader.miss(DataTruncated(StreamCut.of(stream, places), head=head))
        else:
            reader.miss(NoSuchStream(stream))
        self._tellers |= dict.fromkeys(_parts_of(stream, list(places)), reader)

    def note_told(self, stream: str, segments: Sequence[int]) -> None:
        """Note that a reader has said what was lost."""
        for key in _parts_of(stream, segments):
            self._tellers.pop(key, None)
        if stream in self.state.untold:
            self._commit(LossTold(self.name, stream, list(segments)))
            self.alert()

    def lose_stream(self, stream: str) -> None:
        """Tell all readers that a stream of theirs was deleted; they go on with the others."""
        if stream in self.state.untold:
            for reader in self.readers.values():
                self._tell(reader, stream, {})
            self.alert()

    # Where it is

    def places_now(self, *, returned: bool) -> Places:
        """Return how far the group has come, recorded or not; with what its readers returned last or without."""
        state = self.state
        places = state.places()
        for reader_id, reader in self.readers.items():
            for (stream, segment), place in reader.places(returned=returned).items():
                if (stream, segment) in state.readers[reader_id]:
                    places[stream][segment] = place
        return places

    def time_window(self, stream: str | None) -> TimeWindow | None:
        """Return between which times the group is in one of its streams; takes the lock itself."""
        with self.catalog.lock:
            places = self.places_now(returned=True)
            name = next(iter(places)) if stream is None and len(places) == 1 else stream
            if not isinstance(name, str) or name not in places:
                raise BadArgument(f"stream cannot be {shown(stream)}: group {self.name!r} reads {sorted(places)}")
            return self.watermarks.window(self.catalog.stream(name), places[name])

    def times(self, stream: str, segment_id: int) -> MarkTimes:
        """Return the times of a segment's events, by watermarks."""
        return self.watermarks.times(self.catalog.open_stream(stream), segment_id)

    # Checkpoints

    def checkpoint_of(self, reader_id: str) -> str | None:
        """Return the checkpoint that a reader is to come to."""
        state = self.state
        return state.checkpoint if reader_id in state.missing else None

    def reach_checkpoint(self, reader_id: str, places: Mapping[Key, int]) -> None:
        """Note that a reader has come to the checkpoint."""
        is_last = self.state.missing == {reader_id}
        self._commit(CheckpointReached(self.name, reader_id, self._held(reader_id, places)), durable=is_last)
        if is_last:
            self.alert(besides=reader_id)

    def begin_checkpoint(self, name: str, waiter: WakeUp) -> None:
        """Let all readers come to a checkpoint; where there are none, nobody is waited for."""
        if not self.readers:
            self._since -= REMOTE_READERS_AWAITED_S
        begun = CheckpointBegun(self.name, name)
        self.catalog.commit(*self.left_behind(), begun, durable=not self.readers)
        self.waiter = waiter
        self.alert()

    def end_checkpoint(self, name: str) -> None:
        """Wait for it no more; one that is still under way is dropped."""
        self.waiter = None
        state = self.catalog.groups.get(self.name)
        if state is not None and state.checkpoint == name:
            self._commit(CheckpointDropped(self.name, name))
            self.alert()


def let_go(readers: Iterable[Member]) -> None:
    """Have no segment wake these readers; the lock of the catalog is not held."""
    for reader in readers:
        reader.let_go()


def _parts_of(stream: str, segments: Sequence[int]) -> list[tuple[str, int | None]]:
    """Return what is lost, by segment; or the stream, as a whole."""
    return [(stream, segment) for segment in segments] if segments else [(stream, None)]


def _has_gap(stream: StreamState, record: SegmentsLost, ends: Mapping[int, int]) -> bool:
    """Whether there may have been events between the segments that were lost and those that the group goes on with."""
    new = [*record.free, *record.done]
    before = {one for segment in new for one in stream.segments[segment].predecessors}
    is_past_end = any(ends.get(segment, 0) for segment in record.done)
    return is_past_end or not before <= {*record.segments, *stream.segments}
