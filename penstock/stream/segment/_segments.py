"""The segments of a store that are at work, each opened when it is first needed, and the cuts of streams.

A cut is checked against the segments: its places must be where events begin or end, and still be there.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import BadArgument, DataTruncated, LogError, NoSuchEvent, NoSuchStream, WrongCut
from penstock.log import RUN_MIN
from penstock.model import EventPointer, StreamCut, check_kind
from penstock.stream.catalog import advance
from penstock.stream.segment._known_ends import KnownEnds
from penstock.stream.segment._logs import plog_sizes, segment_log
from penstock.stream.segment._segment import Segment
from penstock.stream.segment._writer_table import inherit, writer_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.log import MetadataManager
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, SegmentState, StreamState
    from penstock.stream.segment._logs import Logs
    from penstock.stream.segment._writer_table import WriterTable

__all__ = ["Cuts", "Segments"]


class Segments:
    """Opens segments and keeps them, by stream uid and segment.

    ``small_plogs`` are streams and segments whose plogs may be worth merging.
    """

    def __init__(self, manager: MetadataManager, catalog: Catalog, logs: Logs, clock: Clock) -> None:
        self._manager, self._catalog, self._logs, self._clock = manager, catalog, logs, clock
        self._open: dict[tuple[int, int], Segment] = {}
        self._lock = threading.Lock()
        self._known_ends = KnownEnds(manager, catalog)
        self.small_plogs: set[tuple[str, int]] = set()

    def get(self, name: str, segment_id: int) -> Segment:
        """Return a segment of a stream; ``KeyError`` if it was truncated away."""
        with self._catalog.lock:
            return self.of(self._catalog.open_stream(name), segment_id)

    def of(self, state: StreamState, segment_id: int) -> Segment:
        """Return a segment of a stream that may have been deleted meanwhile, even if another has its name now."""
        with self._catalog.lock:  # held until it is there: a segment that is dropped meanwhile is not opened again
            if self._catalog.streams.get(state.name) is not state:
                raise NoSuchStream(state.name)
            return self.opened(state, state.segments[segment_id])

    def open_current(self, name: str, *, unless_known: bool = False) -> None:
        """Open the segments that take events, one at a time, so that the catalog is not held for long.

        With ``unless_known``, do without those whose end is known.
        """
        with self._catalog.lock:
            state = self._catalog.open_stream(name)
            missing = [
                segment.segment_id
                for segment in state.current
                if (state.uid, segment.segment_id) not in self._open
                and not (unless_known and self.known_end(state, segment))
            ]
        for segment_id in missing:
            with suppress(KeyError, NoSuchStream):  # it is gone meanwhile
                self.of(state, segment_id)

    def opened(self, state: StreamState, segment: SegmentState) -> Segment:
        """Return a segment; the caller may hold the lock of another segment, so this does without the catalog's."""
        with self._lock:
            found = self._open.get((state.uid, segment.segment_id))
            if found is None:
                found = self._open[state.uid, segment.segment_id] = Segment(
                    self._manager,
                    segment_log(state.uid, segment.segment_id),
                    where=f"segment {segment.segment_id} of stream {state.name}",
                    end=segment.end,
                    inherit=lambda: self._inherited(state, segment),
                    owners=partial(_owners, state),
                    clock=self._clock,
                    sizes=plog_sizes(state, self._manager.partition.sizes),
                    keeps_keys=state.config.keep_keys,
                    known_end=self._known_ends.take(state.uid, segment.segment_id),
                    head=(state.head.get(segment.segment_id, 0), state.head_counts.get(segment.segment_id, 0)),
                )
            return found

    def known_end(self, state: StreamState, segment: SegmentState) -> tuple[int, int] | None:
        """Return where a segment ends that is not open, and how many events it has had; None if that is not known."""
        return self._known_ends.get(state.uid, segment.segment_id) if segment.end is None else None

    def note_ends(self) -> None:
        """Note where segments end, for the next process that opens the store, which is about to be closed."""
        self._known_ends.note(self.at_work())

    def create_logs(self, segments: Iterable[Segment]) -> None:
        """Create the logs that the first blocks of segments need, those of several segments together."""
        missing = dict(found for segment in segments if (found := segment.missing_log()) is not None)
        if len(missing) > 1:
            self._manager.create_logs(missing)

    def _inherited(self, state: StreamState, segment: SegmentState) -> WriterTable:
        """Return the table of writers that a segment begins with: those of its predecessors."""
        before = state.predecessors(segment)
        for older in self._without_table(state, before):  # oldest first: none has to go far back for its own
            older.writers()
        handed = [(old, *self.opened(state, old).hand_on()) for old in before]
        tables = ((old.low, old.high, found) for old, found, _, _ in handed)
        table = inherit(tables, low=segment.low, high=segment.high, owners=partial(_owners, state))
        table.blocks_behind = sum(blocks for _, _, blocks, _ in handed)
        table.bytes_behind = sum(size for _, _, _, size in handed)
        return table

    def _without_table(self, state: StreamState, segments: Iterable[SegmentState]) -> list[Segment]:
        """Return those of some segments, and of all before them, whose table of writers is to be inherited first."""
        found: dict[int, Segment] = {}
        todo = list(segments)
        while todo:
            segment_state = todo.pop()
            segment = self.opened(state, segment_state)
            if segment_state.segment_id not in found and not segment.has_table():
                found[segment_state.segment_id] = segment
                todo += state.predecessors(segment_state)
        return [found[segment_id] for segment_id in sorted(found)]

    def drop(self, state: StreamState, segments: Iterable[int]) -> None:
        """Forget segments that are part of the stream no more, and delete their logs."""
        for segment in segments:
            with self._lock:
                dropped = self._open.pop((state.uid, segment), None)
            if dropped is not None:
                dropped.notify()
            self._logs.drop([segment_log(state.uid, segment)])

    def configure(self, state: StreamState) -> None:
        """Let the segments that take events follow the stream's configuration: sizes of plogs, and keys."""
        sizes = plog_sizes(state, self._manager.partition.sizes)
        for segment in state.current:
            self.of(state, segment.segment_id).configure(sizes, keeps_keys=state.config.keep_keys)

    def find_small_plogs(self) -> None:
        """Note which segments have many plogs: the process that had the store before may not have merged them."""
        for state in self._catalog.streams.values():
            for segment in state.segments:
                if self._manager.plog_count(segment_log(state.uid, segment)) > RUN_MIN:
                    self.small_plogs.add((state.name, segment))

    def at_work(self) -> dict[tuple[int, int], Segment]:
        """Return the segments that were used since the store was opened, by stream uid and segment."""
        with self._lock:
            return dict(self._open)


def _owners(state: StreamState) -> dict[bytes, str]:
    """Return the users that writers belong to; the caller holds a segment, and so cannot take the catalog's lock."""
    return {writer_hash(writer_id): user for writer_id, user in state.owners.copy().items()}


class Cuts:
    """Finds and checks cuts of streams."""

    def __init__(self, catalog: Catalog, segments: Segments) -> None:
        self._catalog, self._segments = catalog, segments

    def head(self, name: str) -> StreamCut:
        """Return where the stream begins."""
        with self._catalog.lock:
            return StreamCut.of(name, self._catalog.open_stream(name).head)

    def tail(self, name: str) -> StreamCut:
        """Return where the stream ends now."""
        self._segments.open_current(name)
        with self._catalog.lock:
            current = self._catalog.open_stream(name).current
            return StreamCut.of(
                name, {segment.segment_id: self._segments.get(name, segment.segment_id).tail for segment in current}
            )

    def check(self, cut: StreamCut, *, stream: str | None = None) -> None:
        """Refuse a cut that is not one of its stream, or not any more; ``stream`` says which one it should be of.

        A block of each segment is read, so the catalog is held only while the segments are found.
        """
        check_kind("cut", cut, StreamCut)
        with self._catalog.lock:
            state = self._catalog.open_stream(cut.stream if stream is None else stream)
            self.check_places(state, cut)
            head, found = state.head, [(place, self._segments.get(state.name, place[0])) for place in cut.places]
        with self.unless_truncated(state, cut, head):
            for (segment, offset), handle in found:
                if not handle.is_border(offset):
                    raise WrongCut(state.name, cut, reason=f"no event of segment {segment} begins or ends at {offset}")

    def borders(self, offsets: Mapping[tuple[str, int], int]) -> set[tuple[str, int]]:
        """Return the segments, of those with an offset each, in which an event begins or ends there.

        A block of each is read, so the catalog is held only while the segments are found.
        """
        with self._catalog.lock:
            handles = {
                (stream, segment): self._segments.get(stream, segment)
                for stream, segment in offsets
                if stream in self._catalog.streams and segment in self._catalog.streams[stream].segments
            }
        found = set()
        for key, handle in handles.items():
            with suppress(LogError):  # it is truncated meanwhile
                if offsets[key] <= handle.tail and handle.is_border(offsets[key]):
                    found.add(key)
        return found

    def check_places(self, state: StreamState, cut: StreamCut) -> None:
        """Refuse a cut that the stream does not have, or not any more; its events are not read.

        The caller holds the catalog's lock.
        """
        state.check_cut(cut)
        before = state.before(state.head)
        for segment, offset in cut.places:
            if segment in before or offset < state.head.get(segment, 0):
                raise DataTruncated(cut, head=self.head(state.name))
            tail = self._segments.get(state.name, segment).tail
            if offset > tail:
                raise WrongCut(state.name, cut, reason=f"segment {segment} ends at {tail}")

    @contextmanager
    def found(
        self, streams: Iterable[str], find: Callable[[], Sequence[Mapping[str, StreamCut]]]
    ) -> Iterator[Sequence[Mapping[str, StreamCut]]]:
        """Find cuts of streams, by stream; then hold the catalog's lock, under which they are still there.

        To find them may read much, which is done without the lock. If a stream is deleted or truncated behind a cut
        meanwhile, they are found again.
        """
        names = list(streams)
        while True:
            with self._catalog.lock:
                states = list(map(self._catalog.open_stream, names))
                seen = {state.name: (state, state.head) for state in states}
            try:
                cuts = find()
            except (BadArgument, KeyError, LogError):
                if all(self.is_unchanged(*snapshot) for snapshot in seen.values()):
                    raise
                continue
            with self._catalog.lock:
                if all(
                    name in seen and self._is_there(*seen[name], cut)
                    for by_name in cuts
                    for name, cut in by_name.items()
                ):
                    yield cuts
                    return

    def _is_there(self, state: StreamState, head: Mapping[int, int], cut: StreamCut) -> bool:
        try:
            self.check_there(state, cut, head)
        except (DataTruncated, NoSuchStream):
            return False
        return True

    def segment_at(self, pointer: EventPointer) -> Segment:
        """Return the segment that a pointer points into; an error if nothing is there, or not any more."""
        check_kind("pointer", pointer, EventPointer)
        with self._catalog.lock:
            state = self._catalog.open_stream(pointer.stream)
            is_known = pointer.segment_id in state.segments
            if not is_known and not 0 <= pointer.segment_id < state.next_segment:
                raise NoSuchEvent(pointer)
            if not is_known or pointer.offset < state.head.get(pointer.segment_id, 0):
                raise DataTruncated(pointer, head=self.head(pointer.stream))
            return self._segments.get(pointer.stream, pointer.segment_id)

    def spans(self, state: StreamState, start: StreamCut, end: StreamCut) -> list[tuple[int, int, int]]:
        """Return the segments from one cut to another with the offsets from which and up to which they are read."""
        return [
            (segment, low, self._segments.get(state.name, segment).tail if high is None else high)
            for segment, low, high in state.between(start.offsets, end.offsets)
        ]

    def appended_before(self, name: str, time_ms: int) -> StreamCut:
        """Return the cut behind which everything was appended at a time or later.

        To find it reads a little of each segment, so the catalog is held only while the segments are copied.
        """
        while True:
            self._segments.open_current(name)
            with self._catalog.lock:
                state = self._catalog.open_stream(name)
                copied, tail = state.copy(), self.tail(name)
            try:
                return StreamCut.of(name, advance(copied, partial(self._reach, state, copied, tail.offsets, time_ms)))
            except (BadArgument, KeyError, LogError):
                if self.is_unchanged(state, copied.head):
                    raise

    def _reach(  # noqa: PLR0917 - the last two are what advance asks for
        self, state: StreamState, copied: StreamState, tail: Mapping[int, int], time_ms: int, segment: int, low: int
    ) -> int | None:
        """Return where the events of a time begin in a segment, from an offset on; None if it ends before."""
        offset, end = self._segments.of(state, segment).offset_at_time(time_ms, low=low), copied.segments[segment].end
        if end is None:
            return min(offset, tail[segment])  # the tail is that of one moment in all segments
        return None if offset == end else offset

    def is_unchanged(self, state: StreamState, head: Mapping[int, int]) -> bool:
        """Whether a stream is there and begins where it did, so that what was read of it has not been truncated."""
        with self._catalog.lock:
            return self._catalog.streams.get(state.name) is state and state.head is head

    @contextmanager
    def unless_truncated(self, state: StreamState, cut: StreamCut, head: Mapping[int, int]) -> Iterator[None]:
        """Say so if what is read from ``cut`` on is truncated away meanwhile, or its stream deleted."""
        try:
            yield
        except (BadArgument, KeyError, LogError):
            self.check_there(state, cut, head)
            raise

    def check_there(self, state: StreamState, cut: StreamCut, head: Mapping[int, int]) -> None:
        """Refuse to go on from a cut that is not there any more; it was when the stream began at ``head``."""
        with self._catalog.lock:
            if self._catalog.streams.get(state.name) is not state:
                raise NoSuchStream(state.name)
            if state.head is not head:  # as with every truncation
                self.check_places(state, cut)
