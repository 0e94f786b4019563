"""The marks of writers: what each of them said about time, and where it was when it did.

A mark is kept in memory when it is noted. The first one of a writer is put on record at once, so that no crash lets
watermarks advance without it; the others by and by, a bounded number of bytes with every maintenance run: after a crash
an older mark counts, and watermarks wait for that writer. A writer is silent while it neither notes a time nor writes;
that is measured by a clock that cannot be set.

The catalog's lock is taken before the one here, which is never held while waiting.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import NoSuchStream
from penstock.model import StreamCut, check_name, check_time
from penstock.stream.format import WriterMarked, WritersForgotten
from penstock.stream.time._marks import MarkStatus, WriterMark, check_mark, least_upper_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, StreamState
    from penstock.stream.segment import Segments

__all__ = ["WriterMarks"]

_COMMIT_SIZE: Final = 256 << 10  # of the marks that are put on record together
_RUN_SIZE: Final = 64 << 10  # of the marks that a maintenance run puts on record


class WriterMarks:
    """The marks of all writers of a store; dictionaries are by the streams' uids. ``wake`` starts maintenance."""

    def __init__(self, catalog: Catalog, segments: Segments, clock: Clock, *, wake: Callable[[], None]) -> None:
        self._catalog, self._segments, self._clock, self._wake = catalog, segments, clock, wake
        self._lock = threading.Lock()
        self._marks = {state.uid: _marks_of(state) for state in catalog.streams.values() if state.writers}
        self._fresh: dict[
            tuple[int, str], str
        ] = {}  # writers whose marks are not on record, longest first; the streams
        self._opened = clock.elapsed()
        self._heard: dict[int, dict[str, float]] = {}  # when each writer was heard last, since the store was opened

    def note(self, stream: str, writer_id: str, time: int, position: Mapping[int, int]) -> MarkStatus:
        """Take a writer's mark: all that it wrote before it noted the time lies before the position.

        In a segment that the position does not name the writer stays where it was.
        """
        check_name("writer", writer_id)
        check_time("time", time)
        places = StreamCut.of(stream, position).offsets
        with self._catalog.lock:
            state = self._catalog.stream(stream)
            if not all(self._is_place(state, segment, offset) for segment, offset in places.items()):
                return MarkStatus.INVALID_POSITION
            with self._lock:
                known = self._marks.get(state.uid, {}).get(writer_id)
            mark = self._mark(time, places)
            status = check_mark(known, mark)
            if status is MarkStatus.SUCCESS and known is not None:
                mark = self._mark(time, least_upper_bound(state.segments, [known.position(), places]))
        return self.take(stream, state.uid, writer_id, mark) if status is MarkStatus.SUCCESS else status

    def _is_place(self, state: StreamState, segment: int, offset: int) -> bool:
        """Whether a position may name it: an event begins or ends there, or it was truncated away."""
        if segment not in state.segments:
            return segment < state.next_segment
        handle = self._segments.get(state.name, segment)
        return offset <= handle.tail and (offset < state.head.get(segment, 0) or handle.is_border(offset))

    def note_behind(self, stream: str, uid: int, writer_id: str, time: int) -> MarkStatus:
        """Take the mark of a writer all of whose events are durable: behind all there is, shown or not."""
        with self._catalog.lock:
            state = self._catalog.stream(stream)
            if state.uid != uid:
                raise NoSuchStream(stream)
            position = self._end_of(state)
        return self.take(stream, uid, writer_id, self._mark(time, position))

    def _end_of(self, state: StreamState) -> dict[int, int]:
        """Return the position behind all there is in a stream."""
        return {
            segment.segment_id: self._segments.get(state.name, segment.segment_id).written for segment in state.current
        }

    def _mark(self, time: int, position: Mapping[int, int]) -> WriterMark:
        return WriterMark(time, tuple(position), np.array(list(position.values()), np.int64))

    def take(self, stream: str, uid: int, writer_id: str, mark: WriterMark) -> MarkStatus:
        """Take a mark whose position needs no check."""
        with self._lock:
            known = self._marks.get(uid, {}).get(writer_id)
            status = check_mark(known, mark)
            self._note_life(uid, writer_id)
            if status is MarkStatus.SUCCESS:
                self._put(stream, uid, writer_id, mark)
        if status is MarkStatus.SUCCESS and (known is None or not known.is_open):
            self._record([(uid, writer_id)])
            self._wake()
        return status

    def note_activity(self, stream: str, uid: int, writer_id: str | None) -> None:
        """Note that a writer is there: it was opened, or has written. One that had been shut down is waited for again.

        That holds for writers that have noted time; of the others nothing is known.
        """
        if writer_id is None or uid not in self._marks:
            return
        with self._lock:
            known = self._marks.get(uid, {}).get(writer_id)
            if known is None:
                return
            self._note_life(uid, writer_id)
            if not known.is_open:
                self._put(stream, uid, writer_id, replace(known, is_open=True))
        if not known.is_open:
            self._record([(uid, writer_id)])

    def _note_life(self, uid: int, writer_id: str) -> None:
        self._heard.setdefault(uid, {})[writer_id] = self._clock.elapsed()

    def shut_down(self, stream: str, uid: int, writer_id: str) -> MarkStatus:
        """Note that a writer was closed: its mark counts once more and then no longer, unless it notes another.

        Behind the last time that it noted it may have written more; no later watermark lies before that.
        """
        with self._catalog.lock:
            state = self._catalog.streams.get(stream)
            if state is None or state.uid != uid:
                return MarkStatus.UNKNOWN_WRITER
            position = self._end_of(state)
            with self._lock:
                known = self._marks.get(uid, {}).get(writer_id)
                if known is None:
                    return MarkStatus.UNKNOWN_WRITER
                self._put(stream, uid, writer_id, known.closed_at(position))
                return MarkStatus.SUCCESS

    def shut_down_silent(self, state: StreamState, last_time: int | None) -> None:
        """Shut down the writers that delay watermarks, and were silent for the stream's time-out."""
        now, timeout = self._clock.elapsed(), state.config.timestamp_aggregation_timeout
        with self._lock:
            heard = self._heard.get(state.uid, {})
            silent = [
                writer
                for writer, mark in self._marks.get(state.uid, {}).items()
                if mark.is_open
                and last_time is not None
                and mark.time <= last_time
                and now - heard.get(writer, self._opened) >= timeout
            ]
        for writer in silent:
            self.shut_down(state.name, state.uid, writer)

    def remove(self, stream: str, writer_id: str) -> MarkStatus:
        """Forget a writer at once, with what it noted, as if it had never noted time."""
        with self._catalog.lock:
            state = self._catalog.stream(stream)
            with self._lock:
                known = self._marks.get(state.uid, {}).get(writer_id)
            if known is None:
                return MarkStatus.UNKNOWN_WRITER
            self.forget(state, {writer_id: known})
            return MarkStatus.SUCCESS

    def _put(self, stream: str, uid: int, writer_id: str, mark: WriterMark) -> None:
        self._marks.setdefault(uid, {})[writer_id] = mark
        self._fresh[uid, writer_id] = stream

    def record_all(self) -> None:
        """Put on record what is not yet, of all streams, because the store is closed."""
        with self._lock:
            keys = list(self._fresh)
        self._record(keys)

    def record_some(self) -> None:
        """Put on record some marks of what is not yet: first of closed writers, then those that wait for longest.

        Marks that are not on record are lost in a crash; time then waits for the next of those writers, or until it is
        silent for long enough. So a run puts no more on record than a bounded number of bytes.
        """
        with self._lock:
            chosen, size = list[tuple[int, str]](), 0
            for key in sorted(self._fresh, key=lambda key: self._marks[key[0]][key[1]].is_open):
                size += 16 * len(self._marks[key[0]][key[1]].segments) + len(key[1])
                chosen.append(key)
                if size > _RUN_SIZE:
                    break
        self._record(chosen)

    def _record(self, keys: Iterable[tuple[int, str]]) -> None:
        """Put the marks of some writers on record that are not yet."""
        with self._catalog.lock:
            with self._lock:
                fresh = {key: self._fresh.pop(key) for key in keys if key in self._fresh}
            streams = self._catalog.streams
            known = {key: name for key, name in fresh.items() if name in streams and streams[name].uid == key[0]}
            for uid in {uid for uid, _ in fresh.keys() - known.keys()}:
                self.lose_stream(uid)
            records = [_as_record(name, writer, self._marks[uid][writer]) for (uid, writer), name in known.items()]
            try:
                for batch in _batches(records):
                    self._catalog.commit(*batch)
            except BaseException:
                with self._lock:
                    self._fresh = {**known, **self._fresh}
                raise

    def forget(self, state: StreamState, gone: Mapping[str, WriterMark]) -> None:
        """Forget writers, unless they have noted something since."""
        with self._lock:
            marks = self._marks[state.uid]
            unchanged = [writer for writer, mark in gone.items() if marks.get(writer) is mark]
            for writer in unchanged:
                del marks[writer]
                self._heard.get(state.uid, {}).pop(writer, None)
                self._fresh.pop((state.uid, writer), None)
        on_record = [writer for writer in unchanged if writer in state.writers]
        if on_record:
            self._catalog.commit(WritersForgotten(state.name, on_record))

    def lose_stream(self, uid: int) -> None:
        """Forget a stream, which was deleted."""
        with self._lock:
            for table in (self._marks, self._heard):
                table.pop(uid, None)
            self._fresh = {key: stream for key, stream in self._fresh.items() if key[0] != uid}

    def of(self, uid: int) -> dict[str, WriterMark]:
        """Return the marks of a stream's writers, as they are now."""
        with self._lock:
            return dict(self._marks.get(uid, {}))

    def silences(self, uid: int) -> dict[str, float]:
        """Return for how many seconds each writer of a stream that notes time has been silent."""
        now = self._clock.elapsed()
        with self._lock:
            heard = self._heard.get(uid, {})
            return {writer: now - heard.get(writer, self._opened) for writer in self._marks.get(uid, {})}

    def has_marks(self, uid: int) -> bool:
        """Whether a stream has writers that note time."""
        return bool(self._marks.get(uid))


def _batches(records: Iterable[WriterMarked]) -> Iterable[list[WriterMarked]]:
    """Return the records in groups that fit into a commit each."""
    batch: list[WriterMarked] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.segments) + len(record.offsets) + len(record.writer)
        if size > _COMMIT_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _as_record(stream: str, writer: str, mark: WriterMark) -> WriterMarked:
    segments, offsets = (np.asarray(part, "<i8").tobytes() for part in (mark.segments, mark.offsets))
    return WriterMarked(stream, writer, mark.time, segments, offsets, mark.is_open)


def _marks_of(state: StreamState) -> dict[str, WriterMark]:
    return {writer: _as_mark(record) for writer, record in state.writers.items()}


def _as_mark(record: WriterMarked) -> WriterMark:
    segments, offsets = (np.frombuffer(part, "<i8") for part in (record.segments, record.offsets))
    return WriterMark(record.time, tuple(segments.tolist()), offsets, record.is_open)
