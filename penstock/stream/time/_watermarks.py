"""Watermarks at work: marks of writers in, watermarks out.

A mark is kept in memory when it is noted. The first one of a writer is put on record at once, so that no crash lets
time go on without it; the others by and by, a bounded number of bytes with every maintenance run: after a crash an
older mark counts, and time waits for that writer. A pass over a stream shuts down the writers that were silent for too
long, and writes a watermark if time has advanced; those of many streams share a sync. A writer is silent
while it neither notes a time nor writes; that is measured by a clock that nobody can set. The mark of a writer that was
shut down is kept until a watermark lies behind all that it wrote. Who owns the store owns all its streams, so nobody
else does the same; the logs of a former owner are fenced.

The catalog's lock is taken before the one here, which is never held while waiting.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from penstock.errors import BadArgument, NoSuchStream, PenstockError
from penstock.model import Step, StreamCut, Watermark, check_name, check_time, shown
from penstock.stream.format import WriterMarked, WritersForgotten
from penstock.stream.time._mark_log import MarkLog
from penstock.stream.time._mark_times import MarkTimes, event_window, last_passed, window_at
from penstock.stream.time._marks import (
    MarkStatus,
    WriterMark,
    bound_of,
    check_mark,
    compare,
    judge,
    least_upper_bound,
    times_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.log._stream import PendingLogAppend
    from penstock.model import TimeWindow
    from penstock.stream.catalog import StreamState
    from penstock.stream.engine import StreamStore

    Place = int | StreamCut  # a time, or a cut

__all__ = ["Watermarks"]

_COMMIT_SIZE: Final = 256 << 10  # of the marks that are put on record together
_RUN_SIZE: Final = 64 << 10  # of the marks that a maintenance run puts on record


class _Pass(NamedTuple):
    """A stream's watermark under way: what it was made of, and what is done once it is durable."""

    stream: str
    uid: int
    marks: dict[str, WriterMark]
    gone: Iterable[str]
    last: Watermark | None
    log: MarkLog | None
    pending: PendingLogAppend | None


class Watermarks:
    """The marks and watermarks of all streams of a store; dictionaries are by the streams' numbers."""

    def __init__(self, store: StreamStore, *, pass_s: float) -> None:
        self._store = store
        self._pass_s = pass_s
        self._lock = threading.Lock()
        self._marks = {state.uid: _marks_of(state) for state in store.catalog.streams.values() if state.writers}
        self._fresh: dict[
            tuple[int, str], str
        ] = {}  # writers whose marks are not on record, longest first; the streams
        self._logs: dict[int, MarkLog | None] = {  # None: not opened yet
            state.uid: None for state in store.catalog.streams.values() if store.has_mark_log(state)
        }
        self._opened = store.clock.elapsed()
        self._new_since = dict.fromkeys(self._marks, self._opened)  # since when there are marks of a stream
        self._heard: dict[int, dict[str, float]] = {}  # when each writer was heard last, since the store was opened

    # What writers say

    def note(self, stream: str, writer_id: str, time: int, position: Mapping[int, int]) -> MarkStatus:
        """Take a writer's mark: all that it wrote before it noted the time lies before the position.

        In a segment that the position does not name the writer stays where it was.
        """
        check_name("writer", writer_id)
        check_time("time", time)
        places = StreamCut.of(stream, position).offsets
        with self._store.catalog.lock:
            state = self._store.catalog.stream(stream)
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
        one = self._store.segment(state.name, segment)
        return offset <= one.tail and (offset < state.head.get(segment, 0) or one.is_border(offset))

    def note_behind(self, stream: str, uid: int, writer_id: str, time: int) -> MarkStatus:
        """Take the mark of a writer all of whose events are durable: behind all there is, shown or not."""
        with self._store.catalog.lock:
            state = self._store.catalog.stream(stream)
            if state.uid != uid:
                raise NoSuchStream(stream)
            position = self._end_of(state)
        return self.take(stream, uid, writer_id, self._mark(time, position))

    def _end_of(self, state: StreamState) -> dict[int, int]:
        """Return the position behind all there is in a stream."""
        return {one.segment_id: self._store.segment(state.name, one.segment_id).written for one in state.current}

    def _mark(self, time: int, position: Mapping[int, int]) -> WriterMark:
        return WriterMark(time, tuple(position), np.array(list(position.values()), np.int64))

    def take(self, stream: str, uid: int, writer_id: str, mark: WriterMark) -> MarkStatus:
        """Take a mark of somebody who knows what they say."""
        with self._lock:
            known = self._marks.get(uid, {}).get(writer_id)
            status = check_mark(known, mark)
            self._note_life(uid, writer_id)
            if status is MarkStatus.SUCCESS:
                self._put(stream, uid, writer_id, mark)
        if status is MarkStatus.SUCCESS and (known is None or not known.is_open):
            self._record([(uid, writer_id)])
            self._store.wake_upkeep()
        return status

    def note_activity(self, stream: str, uid: int, writer_id: str | None) -> None:
        """Note that a writer is there: it was opened, or has written. One that had been shut down is waited for again.

        That holds for writers that have given time; of the others nothing is known.
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
        self._heard.setdefault(uid, {})[writer_id] = self._store.clock.elapsed()

    def shut_down(self, stream: str, uid: int, writer_id: str) -> MarkStatus:
        """Note that a writer was closed: its mark counts once more and then no longer, unless it notes another.

        Behind the last time that it noted it may have written more; no later watermark lies before that.
        """
        with self._store.catalog.lock:
            state = self._store.catalog.streams.get(stream)
            if state is None or state.uid != uid:
                return MarkStatus.UNKNOWN_WRITER
            position = self._end_of(state)
            with self._lock:
                known = self._marks.get(uid, {}).get(writer_id)
                if known is None:
                    return MarkStatus.UNKNOWN_WRITER
                self._put(stream, uid, writer_id, known.closed_at(position))
                return MarkStatus.SUCCESS

    def _shut_down_silent(self, state: StreamState, last_time: int | None) -> None:
        """Shut down the writers that hold time up, and were not heard for the stream's time-out."""
        now, timeout = self._store.clock.elapsed(), state.config.timestamp_aggregation_timeout
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
        """Forget a writer at once, with what it noted, as if it had never given time."""
        with self._store.catalog.lock:
            state = self._store.catalog.stream(stream)
            with self._lock:
                known = self._marks.get(state.uid, {}).get(writer_id)
            if known is None:
                return MarkStatus.UNKNOWN_WRITER
            self._forget(state, {writer_id: known})
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
        with self._store.catalog.lock:
            with self._lock:
                fresh = {key: self._fresh.pop(key) for key in keys if key in self._fresh}
            streams = self._store.catalog.streams
            known = {key: name for key, name in fresh.items() if name in streams and streams[name].uid == key[0]}
            for uid in {uid for uid, _ in fresh.keys() - known.keys()}:
                self.lose_stream(uid)
            records = [_as_record(name, writer, self._marks[uid][writer]) for (uid, writer), name in known.items()]
            try:
                for some in _batches(records):
                    self._store.catalog.commit(*some)
            except BaseException:
                with self._lock:
                    self._fresh = {**known, **self._fresh}
                raise

    def _forget(self, state: StreamState, gone: Mapping[str, WriterMark]) -> None:
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
            self._store.catalog.commit(WritersForgotten(state.name, on_record))

    def lose_stream(self, uid: int) -> None:
        """Forget a stream, which was deleted."""
        with self._lock:
            for table in (self._marks, self._logs, self._new_since, self._heard):
                table.pop(uid, None)
            self._fresh = {key: stream for key, stream in self._fresh.items() if key[0] != uid}

    # What they promise

    def has_marks(self, uid: int) -> bool:
        """Whether there is anything for a pass to look at."""
        return bool(self._marks.get(uid))

    def run_pass(self, state: StreamState) -> None:
        """Write the next watermark of a stream, if it is time; the caller holds the catalog's lock."""
        begun = self.begin_pass(state)
        if begun is not None:
            self.end_pass(begun)

    def begin_pass(self, state: StreamState) -> _Pass | None:
        """Submit the next watermark of a stream, if it is time; the caller holds the catalog's lock.

        Many streams begin theirs, and then wait for one sync.
        """
        if not self.has_marks(state.uid):
            return None
        log = self.log_of(state)
        last = None if log is None else log.last
        last_time = None if last is None else last.lower
        self._shut_down_silent(state, last_time)
        with self._lock:
            marks = dict(self._marks.get(state.uid, {}))
        verdict = judge(marks, last_time=last_time)
        is_shown = all(commit.stream != state.name for commit in self._store.catalog.commits.values())
        pending = None
        if verdict.counted and is_shown and (last is not None or self._has_waited(state.uid)):
            lower, upper = times_of(verdict.counted)
            if last is not None:
                upper = max(upper, last.upper)  # of a writer that is gone, what it noted was noted
            cut = bound_of(state, marks.values(), None if last is None else last.cut.offsets)
            last = Watermark(lower, upper, StreamCut.of(state.name, cut))
            with self._watching(state.uid):
                log = self._open_log(state)
                pending = log.submit(last)
        return _Pass(state.name, state.uid, marks, verdict.gone, last, log, pending)

    def end_pass(self, begun: _Pass) -> None:
        """Wait until a watermark is durable, and let it count."""
        if begun.pending is not None:
            with self._watching(begun.uid):
                begun.pending.result()
        with self._store.catalog.lock:
            state = self._store.catalog.streams.get(begun.stream)
            if state is None or state.uid != begun.uid:
                return
            if begun.log is not None and begun.pending is not None and begun.last is not None:
                begun.log.take(begun.last, begun.pending)
            self._forget_gone(state, begun.marks, begun.gone, begun.last)

    def _forget_gone(
        self, state: StreamState, marks: Mapping[str, WriterMark], gone: Iterable[str], last: Watermark | None
    ) -> None:
        """Forget writers that are not waited for, once the last watermark lies behind all that they have written.

        Where no other writer is open, all that is noted from now on is noted behind that anyway.
        """
        is_over = not any(mark.is_open for mark in marks.values())
        passed = {
            writer: marks[writer]
            for writer in gone
            if is_over or (last and not compare(state.segments, marks[writer].position(), last.cut.offsets).ahead)
        }
        if passed:
            self._forget(state, passed)

    @contextmanager
    def _watching(self, uid: int) -> Iterator[None]:
        """Look at the log again after a failure: nobody knows whether the watermark is there."""
        try:
            yield
        except PenstockError:
            with self._store.catalog.lock:
                if uid in self._logs:
                    self._logs[uid] = None
            raise

    def _has_waited(self, uid: int) -> bool:
        """Whether the writers of a new stream had the time of a pass to come online."""
        now = self._store.clock.elapsed()
        return now - self._new_since.setdefault(uid, now) >= self._pass_s

    def truncate(self, state: StreamState) -> None:
        """Free the watermarks that lie before the head of a stream, but the last of them; the caller holds the lock."""
        log = self.log_of(state)
        if log is not None:
            log.truncate(lambda mark: not compare(state.segments, state.head, mark.cut.offsets).behind)

    # What readers ask

    def window(self, state: StreamState, position: Mapping[int, int]) -> TimeWindow | None:
        """Return between which times a reader is; None if nobody has given time yet."""
        log = self.log_of(state)
        return None if log is None else window_at(log, state, position)

    def window_of(self, state: StreamState, segment: int, offset: int) -> TimeWindow | None:
        """Return between which times an event is; None if nobody has given time yet."""
        log = self.log_of(state)
        return None if log is None else event_window(log, state, segment, offset)

    def step(self, state: StreamState, start: Mapping[int, int], end: Mapping[int, int], *, align: bool) -> Step:
        """Return a step from one cut to another with its time, or with ``align`` to the last watermark before that."""
        log = self.log_of(state)
        passed = None if log is None else last_passed(log, state, end)
        if align and log is not None:
            ahead = [] if passed is None else [passed.cut.offsets]
            aligned = bound_of(state, [], least_upper_bound(state.segments, [start, *ahead]))
            if aligned != start or (passed == log.last and self.has_marks(state.uid)):
                end = aligned
        return Step(StreamCut.of(state.name, end), None if passed is None else passed.lower)

    def cut_at(self, state: StreamState, time: int, bound: str) -> StreamCut:
        """Return the cut of the last watermark whose lower or upper bound is not after a time."""
        check_time("time", time)
        if bound not in ("lower", "upper"):
            raise BadArgument(f"bound cannot be {shown(bound)}: it is 'lower' or 'upper'")
        found = None
        log = self.log_of(state)
        if log is not None:
            found = log.border(lambda mark: (mark.lower if bound == "lower" else mark.upper) <= time).last
        return StreamCut.of(state.name, bound_of(state, [], None if found is None else found.cut.offsets))

    def between(self, state: StreamState, start: Place | None, end: Place | None) -> list[Watermark]:
        """Return the watermarks from one place or time on, up to another."""
        begins, ends = (self._order(state, what, one) for what, one in (("start", start), ("end", end)))
        log = self.log_of(state)
        if log is None:
            return []
        first = log.border(begins).offset if start is not None else log.start
        marks = (mark for _, mark in log.after(first))
        return list(marks if end is None else takewhile(ends, marks))

    def _order(self, state: StreamState, what: str, place: Place | None) -> Callable[[Watermark], bool]:
        """Return what tells whether a watermark is before a time, or a place."""
        if isinstance(place, StreamCut):
            self._store.check_cut(place, stream=state.name)
            offsets = place.offsets
            return lambda mark: compare(state.segments, mark.cut.offsets, offsets).behind
        if place is not None:
            check_time(what, place)
        time = place or 0
        return lambda mark: mark.lower < time

    def times(self, state: StreamState, segment: int) -> MarkTimes:
        """Return what tells the times of a segment's events."""
        return MarkTimes(lambda: self.log_of(state), state, segment)

    def log_of(self, state: StreamState) -> MarkLog | None:
        """Return where the stream's watermarks are, if it has any."""
        if state.uid not in self._logs:
            return None
        return self._logs[state.uid] or self._open_log(state)

    def _open_log(self, state: StreamState) -> MarkLog:
        """Return where the stream's watermarks are going to be."""
        with self._store.catalog.lock:
            log = self._logs.get(state.uid)
            if log is None:
                log = self._logs[state.uid] = MarkLog(self._store.mark_log(state), state.name)
            return log


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
