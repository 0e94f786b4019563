"""A reader group's state: which reader reads which segment from where, and what its records add up to.

Every segment that the group has reached is in one of four states: assigned to a reader, free, done (read to its end),
or waiting until its predecessors are done. The segments in the first three states always form a cut of their stream. A
segment that is done stays in that cut, at its end, until all its successors are free. Where segments have successors in
common (a merge, or a shifted border between two), all of these successors become free at once.

While a checkpoint is under way, no segment is assigned to another reader. Each reader that reaches the checkpoint
records its positions. The checkpoint contains the other segments at the positions that they had when it began, or where
a reader finished or released them before it reached the checkpoint.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from penstock.stream.format import (
    CheckpointBegun,
    CheckpointDropped,
    CheckpointReached,
    GroupClaimed,
    GroupCreated,
    GroupFull,
    GroupReset,
    LossReported,
    ReaderGone,
    ReaderJoined,
    ReaderMoved,
    SegmentDone,
    SegmentsLost,
    SegmentsReleased,
    SegmentsTaken,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.stream.catalog._stream_state import StreamState
    from penstock.stream.format import GroupRecord, Places

__all__ = ["CHECKPOINTS_MAX", "GroupState", "Key", "Share", "flat", "lost_segments", "nested"]

T = TypeVar("T")
CHECKPOINTS_MAX: Final = 100
_CHECKPOINT_PLACES_MAX: Final = 50_000  # of all checkpoints together, so that a group fits into one append

Key = tuple[str, int]  # a segment, by stream


class Share(NamedTuple):
    """What a reader is to take and to give back, so that all have the same number of segments, or one more."""

    take: list[Key]
    give: list[Key]


def flat(places: Places) -> dict[Key, int]:
    """Return places by segment."""
    return {(stream, segment): place for stream, offsets in places.items() for segment, place in offsets.items()}


def nested(places: Mapping[Key, int], streams: Iterable[str] = ()) -> Places:
    """Return places by stream first, with these streams even if they have none."""
    by_stream: Places = {stream: {} for stream in streams}
    for (stream, segment), place in places.items():
        by_stream.setdefault(stream, {})[segment] = place
    return by_stream


class GroupState:
    """The streams, readers and positions of one reader group, as the catalog records them."""

    def __init__(self, created: GroupCreated) -> None:
        self.name, self.owner = created.group, created.owner
        self.epoch = created.epoch  # what readers know of an earlier one does not count
        self.streams = list(created.starts)
        self.starts = dict(created.starts)  # when it was created
        self.ends = {stream: dict(created.ends.get(stream, {})) for stream in self.streams}
        self.readers: dict[str, dict[Key, int]] = {}
        self.remote_readers: set[str] = set()  # readers that may outlive the process that has the store open
        self.free = flat(created.starts)
        self.done: dict[Key, int] = {}
        self.waiting: set[Key] = set()  # something must be read before them
        self.checkpoint: str | None = None
        self.missing: set[str] = set()
        self.reached: dict[Key, int] = {}
        self.checkpoints: dict[str, Places] = {}
        self.untold: Places = {}  # what was lost before it was read; nothing of a stream that was deleted

    @classmethod
    def restore(cls, full: GroupFull) -> GroupState:
        """Return the state that a snapshot holds."""
        starts: Places = {stream: {} for stream in full.streams}
        state = cls(GroupCreated(full.group, starts, full.ends, full.epoch, full.owner))
        state.readers = {reader: flat(places) for reader, places in full.readers.items()}
        state.remote_readers = set(full.remote_readers)
        state.free, state.done = flat(full.free), flat(full.done)
        state.waiting = {(stream, segment) for stream, segments in full.waiting.items() for segment in segments}
        state.checkpoint, state.missing, state.reached = full.checkpoint, set(full.missing), flat(full.reached)
        state.checkpoints = dict(full.checkpoints)
        state.untold = {stream: dict(places) for stream, places in full.untold.items()}
        state.starts = dict(full.starts)
        return state

    def full(self) -> GroupFull:
        """Return the record that holds all of it."""
        waiting: dict[str, list[int]] = {}
        for stream, segment in sorted(self.waiting):
            waiting.setdefault(stream, []).append(segment)
        return GroupFull(
            group=self.name,
            ends={stream: dict(end) for stream, end in self.ends.items()},
            streams=list(self.streams),
            readers={reader: nested(held) for reader, held in self.readers.items()},
            free=nested(self.free),
            done=nested(self.done),
            waiting=waiting,
            checkpoint=self.checkpoint,
            reached=nested(self.reached),
            missing=sorted(self.missing),
            checkpoints=dict(self.checkpoints),
            epoch=self.epoch,
            remote_readers=sorted(self.remote_readers),
            untold={stream: dict(places) for stream, places in self.untold.items()},
            starts=dict(self.starts),
            owner=self.owner,
        )

    def apply(self, record: GroupRecord) -> None:
        """Take in one record; ``KeyError`` or ``ValueError`` if it does not follow from those before."""
        match record:
            case GroupClaimed():
                self.owner = record.owner
            case GroupReset():
                self._reset(record)
            case ReaderJoined():
                self._join(record.reader, is_remote=record.is_remote)
            case ReaderGone():
                self._leave(record.reader, flat(record.places))
            case ReaderMoved():
                self._move(record.reader, flat(record.places))
            case SegmentsTaken():
                self._take(record.reader, record.segments)
            case SegmentsReleased():
                self._release(record.reader, flat(record.places))
            case SegmentDone():
                self._finish_segment(record)
            case SegmentsLost():
                self._lose(record)
            case LossReported():
                self._note_loss_reported(record)
            case CheckpointBegun() | CheckpointReached() | CheckpointDropped():
                self._apply_checkpoint(record)

    def _apply_checkpoint(self, record: CheckpointBegun | CheckpointReached | CheckpointDropped) -> None:
        match record:
            case CheckpointBegun():
                self._begin_checkpoint(record.name)
            case CheckpointReached():
                self._reach_checkpoint(record.reader, flat(record.places))
            case CheckpointDropped():
                self._drop_checkpoint(record.name)

    @property
    def finished(self) -> bool:
        """Whether everything is read, up to the group's end or that of its streams, which are sealed, or told lost."""
        return not (self.free or self.waiting or self.untold or any(self.readers.values()))

    def places(self) -> Places:
        """Return how far the group has come: a cut of each of its streams."""
        places = self.free | self.done
        for held in self.readers.values():
            places |= held
        return nested(places, self.streams)

    def end_of(self, key: Key) -> int | None:
        """Return where the group ends in this segment; None if it reads on to the segment's own end."""
        stream, segment = key
        return self.ends[stream].get(segment)

    def drop_stream(self, stream: str) -> None:
        """Forget a stream, which was deleted; another of its name is none of the group's."""
        if stream not in self.streams:
            return
        if any(key[0] == stream for key in (*self.free, *self.waiting, *chain(*self.readers.values()))):
            self.untold[stream] = {}
        else:
            self.untold.pop(stream, None)
        self.streams = [name for name in self.streams if name != stream]  # anew: readers of it hold no lock
        del self.ends[stream], self.starts[stream]
        self.free, self.done, self.reached = (
            _without(places, stream) for places in (self.free, self.done, self.reached)
        )
        self.waiting = {key for key in self.waiting if key[0] != stream}
        self.readers = {reader: _without(held, stream) for reader, held in self.readers.items()}
        for places in self.checkpoints.values():
            places.pop(stream, None)

    def share(self, reader: str) -> Share:
        """Return what the reader is to take and to give back.

        Readers that have just one more than the fewest are the first to keep it; if more may have it, the first that
        comes takes it. So once all have given, each needs to look just once, in any order, and nothing is left over.
        """
        held = self.readers[reader]
        if self.checkpoint is not None:
            return Share([], [])
        counts = {name: len(segments) for name, segments in self.readers.items()}
        fewest, extra = divmod(len(self.free) + sum(counts.values()), len(counts))
        above = sorted((name for name in counts if counts[name] > fewest), key=lambda name: (counts[name], name))
        rank = above.index(reader) if reader in above else len(above)
        more = fewest + (rank < extra) - len(held)
        return Share(sorted(self.free)[:more] if more > 0 else [], sorted(held)[more:] if more < 0 else [])

    def _reset(self, record: GroupReset) -> None:
        if record.starts.keys() != set(self.streams):
            raise ValueError(f"group {self.name!r} has other streams")
        self.epoch = record.epoch
        self.readers, self.free, self.done, self.waiting = {}, flat(record.starts), {}, set()
        self.remote_readers = set()
        self.checkpoint, self.missing, self.reached = None, set(), {}
        self.untold = {stream: places for stream, places in self.untold.items() if stream not in record.chosen}

    def _join(self, reader: str, *, is_remote: bool) -> None:
        if reader in self.readers:
            raise ValueError(f"reader {reader!r} is in the group already")
        self.readers[reader] = {}
        if is_remote:
            self.remote_readers.add(reader)

    def _leave(self, reader: str, places: Mapping[Key, int]) -> None:
        self._move(reader, places)
        held = self.readers.pop(reader)
        self.remote_readers.discard(reader)
        self.free |= held
        if reader in self.missing:
            self._count_in(reader, held)

    def _move(self, reader: str, places: Mapping[Key, int]) -> None:
        held = self.readers[reader]
        for key, place in places.items():
            if key not in held:
                raise KeyError(key)
            held[key] = place

    def _take(self, reader: str, segments: Mapping[str, Iterable[int]]) -> None:
        self._check_no_checkpoint()
        held = self.readers[reader]
        for key in [(stream, segment) for stream, numbers in segments.items() for segment in numbers]:
            held[key] = self.free.pop(key)

    def _release(self, reader: str, places: Mapping[Key, int]) -> None:
        self._check_no_checkpoint()
        held = self.readers[reader]
        for key, place in places.items():
            del held[key]
            self.free[key] = place

    def _check_no_checkpoint(self) -> None:
        if self.checkpoint is not None:
            raise ValueError(f"checkpoint {self.checkpoint!r} is under way")

    def _finish_segment(self, record: SegmentDone) -> None:
        key = record.stream, record.segment
        del self.readers[record.reader][key]
        if record.reader in self.missing:
            self.reached[key] = record.end
        self.done[key] = record.end
        if record.segment in self.ends[record.stream]:
            return
        successors = {(record.stream, segment) for segment in record.successors}
        before = {(record.stream, segment) for segment in record.before}
        if before <= self.done.keys():  # then what is done leaves the cut
            self.waiting -= successors
            self.free |= dict.fromkeys(sorted(successors), 0)
            self.done = {key: place for key, place in self.done.items() if key not in before}
        else:
            self.waiting |= successors

    def _lose(self, record: SegmentsLost) -> None:
        for key in [(record.stream, segment) for segment in record.segments]:
            for reader, held in self.readers.items():
                if key in held:
                    place = held.pop(key)
                    if reader in self.missing:
                        self.reached[key] = place
            self.free.pop(key, None)
            self.done.pop(key, None)
            self.waiting.discard(key)
        for segment in (*record.free, *record.done):
            self.waiting.discard((record.stream, segment))
        self.free |= flat({record.stream: record.free})
        self.done |= flat({record.stream: record.done})
        if record.missed:
            self.untold[record.stream] = record.missed | self.untold.get(record.stream, {})

    def _note_loss_reported(self, record: LossReported) -> None:
        known = self.untold.pop(record.stream, {})
        left = {segment: place for segment, place in known.items() if segment not in record.segments}
        if left or (record.segments and not known):  # it was deleted since, and that is not told yet
            self.untold[record.stream] = left

    def _begin_checkpoint(self, name: str) -> None:
        self._check_no_checkpoint()
        self.checkpoint, self.missing = name, set(self.readers)
        self.reached = self.free | self.done
        self._finish_checkpoint_if_complete()

    def _reach_checkpoint(self, reader: str, places: Mapping[Key, int]) -> None:
        self._move(reader, places)
        self._count_in(reader, self.readers[reader])

    def _count_in(self, reader: str, places: Mapping[Key, int]) -> None:
        self.reached.update(places)
        self.missing.remove(reader)
        self._finish_checkpoint_if_complete()

    def _finish_checkpoint_if_complete(self) -> None:
        if self.checkpoint is None or self.missing:
            return
        self.checkpoints[self.checkpoint] = nested(self.reached, self.streams)
        self.checkpoint, self.reached = None, {}
        while len(self.checkpoints) > 1 and self._has_too_many_checkpoints():
            del self.checkpoints[next(iter(self.checkpoints))]

    def _has_too_many_checkpoints(self) -> bool:
        size = sum(len(offsets) for places in self.checkpoints.values() for offsets in places.values())
        return len(self.checkpoints) > CHECKPOINTS_MAX or size > _CHECKPOINT_PLACES_MAX

    def _drop_checkpoint(self, name: str) -> None:
        if name == self.checkpoint:
            self.checkpoint, self.missing, self.reached = None, set(), {}
        else:
            del self.checkpoints[name]


def _without(table: Mapping[Key, T], stream: str) -> dict[Key, T]:
    return {key: value for key, value in table.items() if key[0] != stream}


def lost_segments(group: GroupState, streams: Iterable[StreamState]) -> list[SegmentsLost]:
    """Return which segments the group can no longer read, and where it goes on: one record for each such stream."""
    cuts = group.places()
    waiting: dict[str, set[int]] = {}
    for name, segment in group.waiting:
        waiting.setdefault(name, set()).add(segment)
    records = []
    for stream in streams:
        lost = (cuts[stream.name].keys() | waiting.get(stream.name, set())) - stream.segments.keys()
        if lost:
            records.append(_lost_in(group, stream, lost, kept=cuts[stream.name].keys() - lost))
    return records


def _lost_in(group: GroupState, stream: StreamState, lost: set[int], kept: set[int]) -> SegmentsLost:
    ends = group.ends[stream.name]
    new = sorted(stream.head.keys() - kept - stream.before(kept))
    places = {segment: min(stream.head[segment], ends.get(segment, stream.head[segment])) for segment in new}
    readable = (
        stream.before(ends) | {segment for segment in new if segment in ends and places[segment] < ends[segment]}
        if ends
        else new
    )
    free = {segment: place for segment, place in places.items() if segment in readable}
    done = {segment: place for segment, place in places.items() if segment not in readable}
    return SegmentsLost(group.name, stream.name, sorted(lost), free, done)
