"""Watermarks at work: marks of writers in, watermarks out.

A maintenance run over a stream shuts down the writers that were silent for too long, and writes a watermark if time has
advanced; those of many streams share a sync. The mark of a writer that was shut down is kept until a watermark lies
behind all that it wrote. The process that owns the store owns all its streams, so no other does the same; the logs of a
former owner are fenced.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import BadArgument, LogError, PenstockError
from penstock.model import NextCut, StreamCut, Watermark, as_time, check_append_time, check_time, shown
from penstock.stream.segment import watermark_log
from penstock.stream.time._marks import WriterMark, bound_of, compare, judge, least_upper_bound, times_of
from penstock.stream.time._watermark_log import WATERMARK_LOG_SIZES, WatermarkLog
from penstock.stream.time._watermark_times import WatermarkTimes, event_window, last_passed, window_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.log import PendingLogAppend
    from penstock.model import StreamPosition, TimeWindow
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, StreamState
    from penstock.stream.segment import Cuts, Logs
    from penstock.stream.time._writer_marks import WriterMarks

__all__ = ["CutFinder", "Watermarks"]

_RETURNED_MAX: Final = 1_000_000  # of one call: all of them are in memory


class _Run(NamedTuple):
    """A stream's watermark under way: what it was made of, and what is done once it is durable."""

    stream: str
    uid: int
    marks: dict[str, WriterMark]
    gone: Iterable[str]
    last: Watermark | None
    log: WatermarkLog | None
    pending: PendingLogAppend | None


class Watermarks:
    """The watermarks of all streams of a store; dictionaries are by the streams' uids.

    The writers of a new stream have ``interval_s`` to come online before the first watermark.
    """

    def __init__(
        self, catalog: Catalog, cuts: Cuts, logs: Logs, marks: WriterMarks, clock: Clock, *, interval_s: float
    ) -> None:
        self._catalog, self._cuts, self._logs, self._clock = catalog, cuts, logs, clock
        self._interval_s = interval_s
        self.marks: Final = marks
        states = list(catalog.streams.values())
        self._open: dict[int, WatermarkLog | None] = {  # None: not opened yet
            state.uid: None for state in states if logs.has(watermark_log(state.uid))
        }
        opened = clock.elapsed()
        self._new_since = {state.uid: opened for state in states if marks.has_marks(state.uid)}

    def run(self, state: StreamState) -> None:
        """Write the next watermark of a stream, if it is time; the caller holds the catalog's lock."""
        begun = self.begin(state)
        if begun is not None:
            self.end(begun)

    def begin(self, state: StreamState) -> _Run | None:
        """Submit the next watermark of a stream, if it is time; the caller holds the catalog's lock.

        Many streams begin theirs, and then wait for one sync.
        """
        if not self.marks.has_marks(state.uid):
            return None
        log = self.log_of(state)
        last = None if log is None else log.last
        last_time = None if last is None else last.lower
        self.marks.shut_down_silent(state, last_time)
        marks = self.marks.of(state.uid)
        verdict = judge(marks, last_time=last_time)
        is_shown = all(commit.stream != state.name for commit in self._catalog.commits.values())
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
        return _Run(state.name, state.uid, marks, verdict.gone, last, log, pending)

    def end(self, begun: _Run) -> None:
        """Wait until a watermark is durable, and let it count."""
        if begun.pending is not None:
            with self._watching(begun.uid):
                begun.pending.result()
        with self._catalog.lock:
            state = self._catalog.streams.get(begun.stream)
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
            self.marks.forget(state, passed)

    def add(self, state: StreamState, watermarks: Iterable[Watermark]) -> None:
        """Write watermarks whatever the writers have noted, but those that are not later than the last one.

        The caller holds the catalog's lock, and knows that the cuts are those of the stream.
        """
        log = self._open_log(state)
        last, added = log.last, list[Watermark]()
        for mark in watermarks:
            if last is not None and mark.lower <= last.lower:
                continue
            if last is not None and compare(state.segments, mark.cut.offsets, last.cut.offsets).behind:
                raise BadArgument(f"invalid cut {mark.cut} of a watermark: the one before it is at {last.cut}")
            last = mark if last is None else Watermark(mark.lower, max(mark.upper, last.upper), mark.cut)
            added.append(last)
        with self._watching(state.uid):
            log.append_all(added)

    @contextmanager
    def _watching(self, uid: int) -> Iterator[None]:
        """Look at the log again after a failure: the watermark may be there or not."""
        try:
            yield
        except PenstockError:
            with self._catalog.lock:
                if uid in self._open:
                    self._open[uid] = None
            raise

    def _has_waited(self, uid: int) -> bool:
        """Whether the writers of a new stream had the time of a run to come online."""
        now = self._clock.elapsed()
        return now - self._new_since.setdefault(uid, now) >= self._interval_s

    def truncate(self, state: StreamState) -> None:
        """Free the watermarks that lie before the head of a stream, but the last of them; the caller holds the lock."""
        log = self.log_of(state)
        if log is not None:
            log.truncate(lambda watermark: not compare(state.segments, state.head, watermark.cut.offsets).behind)

    # What readers ask

    def window(self, state: StreamState, position: Mapping[int, int]) -> TimeWindow | None:
        """Return between which times a reader is; None if no writer has noted time yet."""
        log = self.log_of(state)
        return None if log is None else window_at(log, state, position)

    def window_of(self, state: StreamState, segment: int, offset: int) -> TimeWindow | None:
        """Return between which times an event is; None if no writer has noted time yet."""
        log = self.log_of(state)
        return None if log is None else event_window(log, state, segment, offset)

    def next_cut(self, state: StreamState, start: Mapping[int, int], end: Mapping[int, int], *, align: bool) -> NextCut:
        """Return a step from one cut to another with its time, or with ``align`` to the last watermark before that."""
        log = self.log_of(state)
        passed = None if log is None else last_passed(log, state, end)
        if align and log is not None:
            ahead = [] if passed is None else [passed.cut.offsets]
            aligned = bound_of(state, [], least_upper_bound(state.segments, [start, *ahead]))
            if aligned != start or (passed == log.last and self.marks.has_marks(state.uid)):
                end = aligned
        return NextCut(StreamCut.of(state.name, end), None if passed is None else passed.lower)

    def cut_at(self, state: StreamState, time: int, bound: str) -> StreamCut:
        """Return the cut of the last watermark whose lower or upper bound is not after a time."""
        check_time("time", time)
        if bound not in ("lower", "upper"):
            raise BadArgument(f"invalid bound {shown(bound)}: use 'lower' or 'upper'")
        last = None
        log = self.log_of(state)
        if log is not None:
            last = log.border(lambda watermark: (watermark.lower if bound == "lower" else watermark.upper) <= time).last
        return StreamCut.of(state.name, bound_of(state, [], None if last is None else last.cut.offsets))

    def between(
        self, state: StreamState, start: int | StreamCut | None, end: int | StreamCut | None
    ) -> list[Watermark]:
        """Return the watermarks from one place or time on, up to another.

        They are read without the catalog's lock, because there may be very many.
        """
        begins, ends = (self._order(state, argument, place) for argument, place in (("start", start), ("end", end)))
        while (log := self.log_of(state)) is not None:
            kept_from = log.start
            try:
                first = log.border(begins).offset if start is not None else kept_from
                watermarks = (watermark for _, watermark in log.after(first))
                found = list(islice(watermarks if end is None else takewhile(ends, watermarks), _RETURNED_MAX + 1))
            except (BadArgument, LogError):
                if log.start == kept_from:
                    raise
                continue  # some were truncated away at this very moment
            if len(found) > _RETURNED_MAX:
                raise BadArgument(f"more than {_RETURNED_MAX:,} watermarks: use a later start or an earlier end")
            return found
        return []

    def _order(self, state: StreamState, argument: str, place: int | StreamCut | None) -> Callable[[Watermark], bool]:
        """Return a predicate: whether a watermark is before a time, or a place."""
        if isinstance(place, StreamCut):
            self._cuts.check_places(state, place)
            offsets = place.offsets
            return lambda watermark: compare(state.segments, watermark.cut.offsets, offsets).behind
        if place is not None:
            check_time(argument, place)
        time = place or 0
        return lambda watermark: watermark.lower < time

    def times(self, state: StreamState, segment: int) -> WatermarkTimes:
        """Return the times of a segment's events."""
        return WatermarkTimes(lambda: self.log_of(state), state, segment)

    def log_of(self, state: StreamState) -> WatermarkLog | None:
        """Return where the stream's watermarks are, if it has any."""
        if state.uid not in self._open:
            return None
        return self._open[state.uid] or self._open_log(state)

    def _open_log(self, state: StreamState) -> WatermarkLog:
        """Return where the stream's watermarks are going to be."""
        with self._catalog.lock:
            log = self._open.get(state.uid)
            if log is None:
                log = self._open[state.uid] = WatermarkLog(
                    self._logs.open(watermark_log(state.uid), WATERMARK_LOG_SIZES), state.name
                )
            return log

    def lose_stream(self, uid: int) -> None:
        """Forget a stream, which was deleted."""
        self._open.pop(uid, None)
        self._new_since.pop(uid, None)
        self.marks.lose_stream(uid)
        self._logs.drop([watermark_log(uid)])


class CutFinder:
    """Finds cuts by time, in the order in which events were appended or by the writers' own watermarks."""

    def __init__(self, catalog: Catalog, cuts: Cuts, watermarks: Watermarks) -> None:
        self._catalog, self._cuts, self._watermarks = catalog, cuts, watermarks

    def find(self, argument: str, name: str, place: StreamPosition) -> StreamCut:
        """Return a place of a stream as a cut: a time is where what was appended then, or later, begins."""
        if isinstance(place, StreamCut):
            self._cuts.check(place, stream=name)
            return place
        if isinstance(place, str) and place in {"head", "tail"}:
            return self._cuts.head(name) if place == "head" else self._cuts.tail(name)
        if not isinstance(place, int | datetime) or isinstance(place, bool):
            places = "a StreamCut, 'head', 'tail', a datetime, or whole milliseconds since 1970"
            raise BadArgument(f"invalid {argument} {shown(place)}: use {places}")
        time_ms = as_time(argument, place)
        check_append_time(argument, time_ms)
        return self.at_time(name, time_ms, by="append")

    def at_time(self, name: str, time: object, *, bound: str = "lower", by: str | None = None) -> StreamCut:
        """Return the cut at a time, by watermarks if the stream has any; see :meth:`penstock.Store.cut_at_time`."""
        time_ms = as_time("time", time)
        if by not in ("watermark", "append", None):
            raise BadArgument(f"invalid by {shown(by)}: use 'watermark', 'append' or None")
        with self._catalog.lock:
            state = self._catalog.open_stream(name)
            by_watermark = self._watermarks.log_of(state) is not None if by is None else by == "watermark"
            if by_watermark:
                return self._watermarks.cut_at(state, time_ms, bound)
        check_append_time("time", time_ms)
        return self._cuts.appended_before(name, time_ms)
