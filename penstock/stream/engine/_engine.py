"""The store: streams and reader groups over one partition of logs.

What there is stands in the catalog; a segment is opened when somebody needs it. ``catalog.lock`` is held by whoever
changes what there is; it is taken before the locks of segments, and after those of writers.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from penstock import forks
from penstock.errors import (
    BadArgument,
    DataTruncated,
    LogError,
    NoSuchEvent,
    NoSuchLog,
    NoSuchStream,
    NoSuchTransaction,
    PenstockError,
    StoreClosed,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    WrongCut,
)
from penstock.log import RUN_MIN
from penstock.model import (
    EventPointer,
    Fixed,
    SegmentInfo,
    SegmentRange,
    Step,
    StreamConfig,
    StreamCut,
    StreamInfo,
    as_list,
    as_time,
    check_kind,
    check_name,
    check_positive,
    check_segments,
    check_stream_name,
    check_whole,
    shown,
)
from penstock.ports import SystemClock, SystemRandom, uninterrupted
from penstock.stream.catalog import Catalog, advance
from penstock.stream.format import (
    ConsumerMoved,
    StreamCreated,
    StreamDeleted,
    StreamScaled,
    StreamStopped,
    StreamTruncated,
    StreamUpdated,
)
from penstock.stream.group import LiveGroup, Positions, ReaderGroup
from penstock.stream.maintenance import PASS_S, Upkeep
from penstock.stream.read import EVENT_SIZE_DEFAULT, Room, event_at, file_at, part_marks, read_part, step_through
from penstock.stream.segment import Segment, durable_number, highest_number, inherit, plog_sizes
from penstock.stream.time import MARK_LOG_SIZES, Watermarks, bound_of
from penstock.stream.transaction import (
    EndedTransaction,
    PreparedTransaction,
    TransactionalWriter,
    TransactionLogs,
    drop_prepared,
    finish_commits,
    leases_left,
    recover_commits,
)
from penstock.stream.write import OpenLane, Pump, StreamWriter, check_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager, ExitStack
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from penstock.log import LogStream, MetadataManager, PlogSizes
    from penstock.model import Place, TimeWindow, Watermark
    from penstock.plog import SyncTimes
    from penstock.ports import Clock, Random
    from penstock.stream.catalog import SegmentState, StreamState
    from penstock.stream.read import EventInputStream
    from penstock.stream.segment import WriterTable
    from penstock.stream.serializers import Serializer
    from penstock.stream.time import MarkTimes
    from penstock.stream.transaction import Status, Transaction
    from penstock.stream.write import KnownWriter

__all__ = ["StreamStore"]

W = TypeVar("W", bound="KnownWriter")
_logger: Final = logging.getLogger("penstock.stream")
_CATALOG_LOG: Final = "catalog"
_SEGMENT_LOG: Final = re.compile(r"s(\d+)\.(\d+)")
_MARK_LOG: Final = re.compile(r"m(\d+)")
_TRANSACTION_LOG: Final = re.compile(r"t[0-9a-f]+\.\d+")
_ABORTED_MAX: Final = 10_000  # transactions whose end is remembered


class StreamStore:
    """Streams and reader groups; get one from :func:`penstock.connect`."""

    is_remote: Final = False

    def __init__(
        self,
        manager: MetadataManager,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        pass_s: float = PASS_S,
        resources: ExitStack,
    ) -> None:
        forks.guard(self)
        self.clock: Final = clock or SystemClock()
        self.pump: Final = Pump()
        self.live: Final[dict[str, LiveGroup]] = {}
        self._manager = manager
        self._segments: dict[tuple[int, int], Segment] = {}
        self._segments_lock = threading.Lock()
        self._opening = threading.Lock()  # held while a writer with an id is opened
        self._writers: dict[tuple[int, object], KnownWriter] = {}
        self.transactions: Final[dict[str, Transaction]] = {}
        self._aborted: dict[str, str] = {}
        self.abandoned: Final[deque[str]] = deque()  # logs of events that were lost sight of
        self._random = random or SystemRandom()
        self.small_plogs: Final[set[tuple[str, int]]] = set()  # streams and segments whose plogs may be worth merging
        self._closed = False
        self._before_close: list[Callable[[], object]] = []
        with resources:  # which are closed if we do not get to the end of this
            self.catalog: Final = Catalog(manager.log(_CATALOG_LOG))
            recover_commits(self)
            self.leases: Final = leases_left(self)  # of prepared transactions
            self._delete_leftovers()
            self._find_small_plogs()
            self.marks: Final = Watermarks(self, pass_s=pass_s)
            self.positions: Final = Positions(self)
            self._upkeep = Upkeep(self, pass_s=pass_s)
            self._resources = resources.pop_all()
        self._upkeep.wake(is_due=True)  # what was not done while no process had the store open

    def _delete_leftovers(self) -> None:
        """Delete the logs of segments and transactions that are not any more: a crash may have come before it."""
        alive = {(state.uid, segment) for state in self.catalog.streams.values() for segment in state.segments}
        streams = {state.uid for state in self.catalog.streams.values()}
        promised = {log for record in self.catalog.commits.values() for part in record.logged for log in part.logs}
        promised |= {log for record in self.catalog.prepared.values() for part in record.parts for log in part.logs}
        for name in self._manager.logs():
            segment, marks = _SEGMENT_LOG.fullmatch(name), _MARK_LOG.fullmatch(name)
            gone = segment and (int(segment[1]), int(segment[2])) not in alive
            gone = gone or (marks and int(marks[1]) not in streams)
            gone = gone or (_TRANSACTION_LOG.fullmatch(name) and name not in promised)
            if gone:
                self._manager.delete_log(name)

    def _find_small_plogs(self) -> None:
        """Note which segments have many plogs: whoever had the store before may not have come to merging them."""
        for state in self.catalog.streams.values():
            for segment in state.segments:
                if self._manager.plog_count(_log_name(state, segment)) > RUN_MIN:
                    self.small_plogs.add((state.name, segment))

    # Streams

    @uninterrupted
    def create_stream(
        self, name: str, segments: int | None = None, config: StreamConfig | None = None, *, exist_ok: bool = False
    ) -> StreamInfo:
        """Create a stream; with ``exist_ok``, one that is there stays as it is."""
        check_stream_name(name)
        config = StreamConfig() if config is None else config
        check_kind("config", config, StreamConfig)
        check_kind("exist_ok", exist_ok, bool)
        count = _first_segments(segments, config)
        with self.catalog.lock:
            self._check_open()
            if name not in self.catalog.streams:
                self.catalog.commit(StreamCreated(name, self.catalog.next_uid, count, config))
            elif not exist_ok:
                raise StreamExists(name)
        self._upkeep.wake()
        return self.stream(name)

    def streams(self, scope: str | None = None) -> list[StreamInfo]:
        """Return all streams, or those of a scope, by name."""
        if scope is not None:
            check_name("scope", scope)
        with self.catalog.lock:
            self._check_open()
            names = [name for name in self.catalog.streams if scope is None or name.startswith(f"{scope}/")]
            return [self.stream(name) for name in sorted(names)]

    def stream(self, name: str) -> StreamInfo:
        """Return what there is to know of a stream."""
        with self.catalog.lock:
            state = self._state(name)
            tail = self.tail(name)
            segments = [SegmentInfo(one.segment_id, one.low, one.high) for one in state.current]
            return StreamInfo(
                name=name,
                uid=state.uid,
                state="sealed" if state.sealed else "active",
                epoch=state.epoch,
                segments=() if state.sealed else tuple(segments),
                config=state.config,
                events=self._events(state, tail.offsets),
                size_bytes=self._size(state, tail.offsets),
                head=self.head(name),
                tail=tail,
            )

    @uninterrupted
    def update_stream(self, name: str, config: StreamConfig) -> StreamInfo:
        """Give a stream another configuration."""
        check_kind("config", config, StreamConfig)
        with self.catalog.lock:
            if self._state(name).sealed:
                raise StreamSealed(name)
            self.catalog.commit(StreamUpdated(name, config))
            self._configure_segments(name)
        self._upkeep.wake()
        return self.stream(name)

    def _configure_segments(self, name: str) -> None:
        state = self._state(name)
        sizes = plog_sizes(state, self._manager.partition.sizes)
        for one in state.current:
            self.segment(name, one.segment_id).configure(sizes, keeps_keys=state.config.keep_keys)

    @uninterrupted
    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        """End some segments and go on in new ones that have the same key space: a split, a merge, or both."""
        seal, ranges = as_list("seal", seal, "segments, ints"), _as_ranges(ranges)
        for segment in seal:
            check_whole("seal", segment)
        with self.catalog.lock:
            state = self._state(name)
            if state.sealed:
                raise StreamSealed(name)
            state.check_scale(seal, ranges)
            now_ms = int(self.clock.now() * 1000)
            self._end_segments(state, seal, lambda ends, counts: StreamScaled(name, ends, ranges, now_ms, counts))
        return self.stream(name)

    @uninterrupted
    def seal_stream(self, name: str) -> StreamInfo:
        """Let the stream take no more events; sealing it again does nothing."""
        with self.catalog.lock:
            state = self._state(name)
            if not state.sealed:
                current = [one.segment_id for one in state.current]
                self._end_segments(state, current, lambda ends, counts: StreamStopped(name, ends, counts))
        return self.stream(name)

    def _end_segments(self, state: StreamState, segments: Sequence[int], record: Any) -> None:  # noqa: ANN401
        """End segments together with the record that says so; where that fails, they go on."""
        finish_commits(self, state.name)
        ending = {segment: self.segment(state.name, segment) for segment in segments}
        try:
            ends = {segment: one.end() for segment, one in ending.items()}
            counts = {segment: one.count_before(ends[segment]) for segment, one in ending.items()}
            self.catalog.commit(record(ends, counts))
        except BaseException:
            for one in ending.values():
                one.reopen()
            raise
        for one in ending.values():
            one.ring()

    @uninterrupted
    def delete_stream(self, name: str) -> None:
        """Delete a sealed stream and all it holds."""
        with self.catalog.lock:
            state = self._state(name)
            if not state.sealed:
                raise StreamNotSealed(name)
            prepared = [record for record in self.catalog.prepared.values() if record.stream == name]
            self.catalog.commit(StreamDeleted(name))
            drop_prepared(self, prepared, "its stream was deleted")
            self._drop_segments(state, list(state.segments))
            self.marks.lose_stream(state.uid)
            self.drop_logs([_mark_log_name(state)])
            for live in self.live.values():
                live.lose_stream(name)

    def _drop_segments(self, state: StreamState, segments: Iterable[int]) -> None:
        for segment in segments:
            with self._segments_lock:
                dropped = self._segments.pop((state.uid, segment), None)
            if dropped is not None:
                dropped.ring()
            self.drop_logs([_log_name(state, segment)])

    @uninterrupted
    def truncate_stream(self, name: str, cut: StreamCut) -> StreamInfo:
        """Let the stream begin at ``cut``; what lies before is gone, and its plogs are freed."""
        with self.catalog.lock:
            state = self._state(name)
            self.check_cut(cut, stream=name)
            self._truncate(state, cut.offsets)
        return self.stream(name)

    def _truncate(self, state: StreamState, head: Mapping[int, int]) -> None:
        finish_commits(self, state.name)
        gone = state.before(head)
        for one in state.current if not state.sealed else ():
            segment = self.segment(state.name, one.segment_id)
            segment.keep_table(before=head.get(one.segment_id, 0))
        counts = {segment: self.segment(state.name, segment).count_before(offset) for segment, offset in head.items()}
        self.catalog.commit(StreamTruncated(state.name, dict(head), counts))
        self._drop_segments(state, gone)
        for segment_id in head:
            self.segment(state.name, segment_id).ring()
        try:
            self._free_space(state)
        except PenstockError as error:  # the stream begins at its new head all the same
            _logger.warning("the space before the head of stream %s is freed later: %s", state.name, error)

    def _free_space(self, state: StreamState) -> None:
        """Let go of the plogs that lie before the head of a stream."""
        for segment_id, offset in state.head.items():
            self.segment(state.name, segment_id).truncate(offset, count=state.head_counts.get(segment_id, 0))
        self.marks.truncate(state)

    # Places

    def head(self, name: str) -> StreamCut:
        """Return where the stream begins."""
        with self.catalog.lock:
            return StreamCut.of(name, self._state(name).head)

    def tail(self, name: str) -> StreamCut:
        """Return where the stream ends now."""
        with self.catalog.lock:
            current = self._state(name).current
            return StreamCut.of(name, {one.segment_id: self.segment(name, one.segment_id).tail for one in current})

    def check_cut(self, cut: StreamCut, *, stream: str | None = None) -> None:
        """Refuse a cut that is not one of its stream, or not any more; ``stream`` says which one it should be of."""
        check_kind("cut", cut, StreamCut)
        with self.catalog.lock:
            state = self._state(cut.stream if stream is None else stream)
            state.check_cut(cut)
            before = state.before(state.head)
            for segment, offset in cut.places:
                if segment in before or offset < state.head.get(segment, 0):
                    raise DataTruncated(cut, head=self.head(state.name))
                one = self.segment(state.name, segment)
                if offset > one.tail:
                    raise WrongCut(state.name, cut, reason=f"segment {segment} ends at {one.tail}")
                if not one.is_border(offset):
                    raise WrongCut(state.name, cut, reason=f"no event of segment {segment} begins or ends at {offset}")

    # Time

    def watermarks(
        self, name: str, start: int | StreamCut | None = None, end: int | StreamCut | None = None
    ) -> list[Watermark]:
        """Return what the writers have promised: from one time up to another, or from one cut to another."""
        with self.catalog.lock:
            return self.marks.between(self._state(name), start, end)

    def watermark(self, name: str) -> Watermark | None:
        """Return the last watermark of a stream, if it has any."""
        with self.catalog.lock:
            log = self.marks.log_of(self._state(name))
            return None if log is None else log.last

    def cut_at_time(
        self,
        name: str,
        time: int | datetime,
        *,
        bound: Literal["lower", "upper"] = "lower",
        by: Literal["watermark", "append"] | None = None,
    ) -> StreamCut:
        """Return the cut of the last watermark whose time is not after ``time``; the head if there is none.

        All that writers had written when they noted the watermark's time lies before it. With the ``upper`` bound,
        nothing does that a writer wrote after it had noted a later time; what it wrote ahead of its notes may.

        Of a stream without watermarks, or ``by="append"``, it is where the events begin that were appended at the time
        or later; there is only one such cut, so the bound does not matter.
        """
        time_ms = as_time("time", time)
        if by not in ("watermark", "append", None):
            raise BadArgument(f"by cannot be {shown(by)}: it is watermark, append or None")
        with self.catalog.lock:
            state = self._state(name)
            by_watermark = self.marks.log_of(state) is not None if by is None else by == "watermark"
            if by_watermark:
                return self.marks.cut_at(state, time_ms, bound)
            return StreamCut.of(name, self._appended_before(state, time_ms))

    def _appended_before(self, state: StreamState, time_ms: int) -> dict[int, int]:
        """Return the cut behind which everything was appended at a time or later."""

        def reach(segment_id: int, offset: int) -> int | None:
            segment, end = self.segment(state.name, segment_id), state.segments[segment_id].end
            found = segment.offset_at_time(time_ms, low=offset)
            return None if found == end else found

        return advance(state, reach)

    def as_cut(self, what: str, name: str, place: Place) -> StreamCut:
        """Return a place of a stream as a cut: a time is where what was appended then, or later, begins."""
        if isinstance(place, StreamCut):
            self.check_cut(place, stream=name)
            return place
        if isinstance(place, str) and place in {"head", "tail"}:
            return self.head(name) if place == "head" else self.tail(name)
        if not isinstance(place, int | datetime) or isinstance(place, bool):
            raise BadArgument(
                f"{what} cannot be {shown(place)}: give a StreamCut, 'head', 'tail', a datetime, or milliseconds"
            )
        return self.cut_at_time(name, as_time(what, place), by="append")

    def time_window(self, pointer: EventPointer) -> TimeWindow | None:
        """Return between which times an event is: those of the watermarks before and behind it; None without any."""
        self.segment_at(pointer)
        with self.catalog.lock:
            return self.marks.window_of(self._state(pointer.stream), pointer.segment_id, pointer.offset)

    def mark_times(self, name: str, segment_id: int) -> MarkTimes:
        """Return what tells the times of a segment's events."""
        return self.marks.times(self._state(name), segment_id)

    def has_mark_log(self, state: StreamState) -> bool:
        """Whether a stream has watermarks."""
        return self._manager.has_log(_mark_log_name(state))

    def mark_log(self, state: StreamState) -> LogStream:
        """Return the log of a stream's watermarks, which is made if it is not there."""
        return self._manager.log(_mark_log_name(state), sizes=MARK_LOG_SIZES)

    def wake_upkeep(self) -> None:
        """Note that there may be something to do from time to time now."""
        self._upkeep.wake()

    def time_writers(self) -> list[KnownWriter]:
        """Return the writers that note the time by themselves."""
        with self.catalog.lock:
            return [writer for writer in self._writers.values() if writer.notes_time]

    # Reading

    def fetch_event(self, pointer: EventPointer) -> bytes:
        """Return the event that a pointer points to, all of it; for large ones see :meth:`fetch_event_as_stream`."""
        event = event_at(self.segment_at(pointer), pointer)
        return event if isinstance(event, bytes) else event.read_all()

    def fetch_event_as_stream(self, pointer: EventPointer) -> EventInputStream:
        """Return the event that a pointer points to, as a file."""
        return file_at(self.segment_at(pointer), pointer)

    def segment_at(self, pointer: EventPointer) -> Segment:
        """Return the segment that a pointer points into; an error if nothing is there, or not any more."""
        check_kind("pointer", pointer, EventPointer)
        with self.catalog.lock:
            state = self._state(pointer.stream)
            known = pointer.segment_id in state.segments
            if not known and not 0 <= pointer.segment_id < state.next_segment:
                raise NoSuchEvent(pointer)
            if not known or pointer.offset < state.head.get(pointer.segment_id, 0):
                raise DataTruncated(pointer, head=self.head(pointer.stream))
            return self.segment(pointer.stream, pointer.segment_id)

    def read(
        self,
        name: str,
        start: Place | None = None,
        end: Place | None = None,
        *,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Iterator[pa.RecordBatch]:
        """Return the events from one place to another, by default from head to tail, as Arrow batches.

        A place is a cut, or a time at which events were appended: a datetime, or milliseconds since 1970.
        Columns are event, key, timestamp, headers, segment_id, offset and mark_time. A segment's events come in order,
        and those of its predecessors before them. The end is fixed when this is called. Events above
        ``max_event_size`` are null: to be read with :meth:`fetch_event_as_stream`.
        """
        check_whole("max_event_size", max_event_size, least=1)
        parts = self.segment_ranges(name, start, end)
        return chain.from_iterable(map(partial(self.read_range, max_event_size=max_event_size), parts))

    def read_range(self, part: SegmentRange, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> Iterator[pa.RecordBatch]:
        """Return the events of a part of one segment, as Arrow batches like those of :meth:`read`."""
        check_kind("part", part, SegmentRange)
        check_whole("max_event_size", max_event_size, least=1)
        segment = self.segment_at(EventPointer(part.stream, part.segment_id, part.start))
        times = self.mark_times(part.stream, part.segment_id)
        return read_part(segment, part, times, max_event_size=max_event_size)

    def segment_ranges(
        self,
        name: str,
        start: Place | None = None,
        end: Place | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        """Return what parallel readers may read: parts of segments of about ``approx_bytes``, or whole ones."""
        if approx_bytes is not None:
            check_whole("approx_bytes", approx_bytes, least=1)
        while True:
            try:
                return self._segment_ranges(name, start, end, approx_bytes)
            except DataTruncated:
                if start is not None:
                    raise  # otherwise it is read from where the stream begins now
                if end is not None:
                    self.as_cut("end", name, end)  # which raises if that is gone, too

    def _segment_ranges(
        self,
        name: str,
        start: Place | None,
        end: Place | None,
        approx_bytes: int | None,
    ) -> list[SegmentRange]:
        with self.catalog.lock:
            state = self._state(name)
            head = state.head
            first = self.head(name) if start is None else self.as_cut("start", name, start)
            last = self.tail(name) if end is None else self.as_cut("end", name, end)
            if any(low < high for _, low, high in self._spans(state, last, first)):
                raise BadArgument(f"the start {first} is behind the end {last}: give a start before the end")
            spans = self._spans(state, first, last)
        parts = []
        with self._unless_truncated(state, first, head):
            for segment, low, high in spans:
                cuts = (
                    ()
                    if approx_bytes is None
                    else part_marks(self._segment_in(state, segment), low, high, size=approx_bytes)
                )
                parts += [SegmentRange(name, segment, a, b) for a, b in pairwise([low, *cuts, high]) if a < b]
        return parts

    def _spans(self, state: StreamState, start: StreamCut, end: StreamCut) -> list[tuple[int, int, int]]:
        """Return the segments from one cut to another with the offsets from which and up to which they are read."""
        return [
            (segment, low, self.segment(state.name, segment).tail if high is None else high)
            for segment, low, high in state.between(start.offsets, end.offsets)
        ]

    @contextmanager
    def _unless_truncated(self, state: StreamState, cut: StreamCut, head: Mapping[int, int]) -> Iterator[None]:
        """Say so if what is read from ``cut`` on is truncated away meanwhile, or its stream deleted."""
        try:
            yield
        except (BadArgument, KeyError, LogError):
            self._check_there(state, cut, head)
            raise

    def _check_there(self, state: StreamState, cut: StreamCut, head: Mapping[int, int]) -> None:
        """Refuse to go on from a cut that is not there any more; it was when the stream began at ``head``."""
        with self.catalog.lock:
            if self.catalog.streams.get(state.name) is not state:
                raise NoSuchStream(state.name)
            if state.head is not head:  # as with every truncation
                self.check_cut(cut, stream=state.name)

    def step(
        self,
        name: str,
        start: StreamCut,
        end: StreamCut | None = None,
        *,
        max_bytes: int | None = None,
        max_events: int | None = None,
        align: bool = False,
        skip_truncated: bool = False,
    ) -> Step:
        """Return how far to read next: from ``start`` up to ``end``, the tail by default, but not more than told.

        At least one event is, if there is any. With ``align`` a step ends at the cut of a watermark where it can; what
        is behind the last one waits for the next, as long as there are writers that give time. With ``skip_truncated``
        a cut may have been truncated away: it is moved on to the head, in those segments only that are not there.
        """
        for what, limit in (("max_bytes", max_bytes), ("max_events", max_events)):
            if limit is not None:
                check_whole(what, limit, least=1)
        for what, flag in (("align", align), ("skip_truncated", skip_truncated)):
            check_kind(what, flag, bool)
        for what, cut in (("start", start), ("end", end)):
            if cut is not None or what == "start":
                check_kind(what, cut, StreamCut)
        while True:
            try:
                return self._step(name, start, end, Room(max_bytes, max_events), align=align, moves=skip_truncated)
            except DataTruncated:
                if not skip_truncated:
                    raise

    def _step(
        self, name: str, start: StreamCut, end: StreamCut | None, room: Room, *, align: bool, moves: bool
    ) -> Step:
        with self.catalog.lock:
            state = self._state(name)
            head = state.head
            end = self.tail(name) if end is None else end
            check = self._moved_on if moves else self._checked
            start, end = check(state, start), check(state, end)
            ends = {
                segment: self.segment(name, segment).tail if high is None else high
                for segment, _, high in state.between(start.offsets, end.offsets)
            }
            families = [state.family(segment) for segment in ends if state.segments[segment].successors]
        with self._unless_truncated(state, start, head):
            reached = step_through(start.offsets, ends, families, partial(self._segment_in, state), room)
        with self.catalog.lock:
            self._check_there(state, start, head)
            return self.marks.step(state, start.offsets, reached, align=align)

    def _checked(self, state: StreamState, cut: StreamCut) -> StreamCut:
        self.check_cut(cut, stream=state.name)
        return cut

    def _moved_on(self, state: StreamState, cut: StreamCut) -> StreamCut:
        """Return a cut, but not before the head."""
        try:
            return self._checked(state, cut)
        except DataTruncated:
            return StreamCut.of(state.name, bound_of(state, [], cut.offsets))

    # Writers, groups, consumers

    def writer(
        self,
        name: str,
        writer_id: str | None = None,
        serializer: Serializer[Any] | None = None,
        *,
        automatically_note_time: bool = False,
    ) -> StreamWriter:
        """Open a writer. Under the same ``writer_id`` an older one writes no more.

        With ``automatically_note_time`` it notes the time of the store's clock with every pass.
        """
        check_writer(writer_id, serializer)
        check_kind("automatically_note_time", automatically_note_time, bool)
        self._state(name)
        if automatically_note_time and writer_id is None:
            raise BadArgument("automatically_note_time needs a writer_id: time is kept under it")
        return self.admit(
            name, writer_id, lambda: StreamWriter(self, name, writer_id, serializer, notes_time=automatically_note_time)
        )

    def admit(self, name: str, writer_id: str | None, make: Callable[[], W]) -> W:
        """Let a new writer in; one of the same id writes no more."""
        if writer_id is None:
            return self._let_in(make())
        with self._opening:  # one after another, so that each finds the one before it
            with self.catalog.lock:
                older = self._writers.get((self._state(name).uid, writer_id))
            if older is not None:
                older.fence()
            return self._let_in(make())

    def known_writer(self, name: str, writer_id: str | None) -> KnownWriter | None:
        """Return the writer that has an id now, if one has."""
        with self.catalog.lock:
            return self._writers.get((self._state(name).uid, writer_id))

    def _let_in(self, writer: W) -> W:
        with self.catalog.lock:
            key = writer if writer.writer_id is None else writer.writer_id
            self._writers[writer.stream_uid, key] = writer
        self.note_activity(writer)
        if writer.notes_time:
            self.wake_upkeep()
        return writer

    def forget_writer(self, writer: KnownWriter, *, for_good: bool) -> None:
        """Note that a writer writes no more; who goes for good is not waited for when time goes on."""
        with self.catalog.lock:
            for key in [key for key, one in self._writers.items() if one is writer]:
                del self._writers[key]
        if for_good and writer.writer_id is not None:
            self.marks.shut_down(writer.stream, writer.stream_uid, writer.writer_id)

    def note_activity(self, writer: KnownWriter) -> None:
        """Note that a writer has written: it is not silent."""
        self.marks.note_activity(writer.stream, writer.stream_uid, writer.writer_id)

    def lanes(self, stream: str) -> tuple[int, list[OpenLane], bool]:
        """Return the number of a stream, the segments that take events now, by key range, and whether it keeps keys."""
        with self.catalog.lock:
            state = self._state(stream)
            if state.sealed:
                raise StreamSealed(stream)
            found = [OpenLane(one.segment_id, one.low, self._segment_of(state, one)) for one in state.current]
            return state.uid, found, state.config.keep_keys

    @property
    def steady(self) -> AbstractContextManager[object]:
        """A lock under which no segment ends."""
        return self.catalog.lock

    def keeps_keys(self, stream: str) -> bool:
        """Return whether a stream stores keys."""
        state = self.catalog.streams.get(stream)
        return state is None or state.config.keep_keys

    def numbers_of(self, stream: str, writer: bytes) -> tuple[int, int]:
        """Return the number up to which all events of a writer are durable, and the highest it has used."""
        tables = self.writer_tables(stream)
        return durable_number(writer, tables), highest_number(writer, tables)

    def mark_behind(self, writer: StreamWriter, time: int) -> None:
        """Mark a time behind all that a writer has written."""
        assert writer.writer_id is not None, "only writers with an id give time"
        self.marks.note_behind(writer.stream, writer.stream_uid, writer.writer_id, time)

    def large_logs(self, stream: str, uid: int) -> TransactionLogs:
        """Return where a large event goes."""
        return TransactionLogs(self, stream, uid)

    def transactional_writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> TransactionalWriter:
        """Open a writer of transactions."""
        check_writer(writer_id, serializer)
        return TransactionalWriter(self, name, self._state(name).uid, writer_id, serializer)

    def new_transaction_id(self) -> str:
        """Return an id that no transaction has had."""
        return self._random.token(16).hex()

    def new_epoch(self) -> int:
        """Return a number that no other group, and no other time of a group, has."""
        return int.from_bytes(self._random.token(6), "big")

    def random_position(self) -> float:
        """Return any place in the key space, for what has no key."""
        return int.from_bytes(self._random.token(4), "big") / (1 << 32)

    def add_transaction(self, transaction: Transaction) -> None:
        """Note that a transaction was begun."""
        with self.catalog.lock:
            self._check_open()
            self.transactions[transaction.id] = transaction
        self._upkeep.wake()

    def forget_transaction(self, transaction: Transaction) -> None:
        """Note that a transaction has ended."""
        with self.catalog.lock:
            self.transactions.pop(transaction.id, None)
            if transaction.status == "aborted":
                self._note_aborted(transaction.id, transaction.why)

    def end_prepared(self, transaction: str, status: Status, why: str) -> None:
        """Note how a prepared transaction has ended; the caller holds the catalog."""
        known = self.transactions.pop(transaction, None)
        self.leases.pop(transaction, None)
        if known is not None:
            known.note_end(status, why)
        if status == "aborted":
            self._note_aborted(transaction, why)

    def _note_aborted(self, transaction: str, why: str) -> None:
        self._aborted[transaction] = why
        if len(self._aborted) > _ABORTED_MAX:
            del self._aborted[next(iter(self._aborted))]

    def transaction(self, transaction: str) -> Transaction | PreparedTransaction | EndedTransaction:
        """Return a transaction; of one that has ended, how."""
        check_kind("transaction", transaction, str)
        with self.catalog.lock:
            if transaction in self.transactions:
                return self.transactions[transaction]
            if transaction in self.catalog.committed or transaction in self.catalog.commits:
                return EndedTransaction(transaction, "committed")
            if transaction in self.catalog.prepared:
                return PreparedTransaction(self, self.catalog.prepared[transaction])
            if transaction in self._aborted:
                return EndedTransaction(transaction, "aborted", self._aborted[transaction])
            raise NoSuchTransaction(transaction)

    # What transactions need of the logs below

    def new_log(self, name: str, sizes: PlogSizes | None = None) -> LogStream:
        """Make a log that is no segment's yet; most need no second plog, so none is allocated ahead."""
        self._check_open()
        self.delete_abandoned()
        return self._manager.log(name, sizes=sizes or replace(self._manager.partition.sizes, ahead=False))

    def existing_logs(self, names: Iterable[str]) -> list[LogStream]:
        """Return those of some logs that are there."""
        return [self._manager.log(name) for name in names if self._manager.has_log(name)]

    def delete_abandoned(self) -> None:
        """Delete the logs of events that were lost sight of."""
        while self.abandoned:
            name = self.abandoned.popleft()
            try:
                self.delete_logs([name])
            except PenstockError:
                self.abandoned.append(name)
                raise

    def drop_logs(self, names: Sequence[str]) -> None:
        """Delete those of some logs that are there, now or, if the disk does not let us, later."""
        try:
            self.delete_logs(names)
        except PenstockError:  # it is tried again; at the latest when the store is opened
            self.abandoned.extend(names)

    def delete_logs(self, names: Iterable[str]) -> None:
        """Delete those of some logs that are there."""
        for name in names:
            with suppress(NoSuchLog):
                self._manager.delete_log(name)

    def splice(self, plan: Mapping[LogStream, Sequence[LogStream]], labels: Mapping[str, bytes]) -> None:
        """Let logs take over others, all in one step; ``labels`` are by the name of the log that is taken over."""
        self._manager.splice(plan, {log: labels[log.name] for logs in plan.values() for log in logs})

    def writer_tables(self, name: str) -> list[WriterTable]:
        """Return the tables of writers that say what any writer has written: of the segments now and just before."""
        with self.catalog.lock:
            finish_commits(self, name)  # or a large event that is on record would be written again
            state = self._state(name)
            wanted = {one.segment_id for one in state.current}
            wanted |= {before for segment in wanted for before in state.segments[segment].predecessors}
            segments = [self.segment(name, segment) for segment in sorted(wanted & state.segments.keys())]
        return [segment.writers() for segment in segments]

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: Place | Sequence[StreamCut] | None = None,
        end: Place | Sequence[StreamCut] | None = None,
        *,
        exist_ok: bool = False,
    ) -> ReaderGroup:
        """Create a group of readers that share the segments of some streams; see :meth:`ReaderGroup.create`."""
        return ReaderGroup.create(self, name, streams, start, end, exist_ok=exist_ok)

    def reader_group(self, name: str) -> ReaderGroup:
        """Return a reader group."""
        check_name("reader group", name)
        self._check_open()
        self.catalog.group(name)
        return ReaderGroup(self, name)

    def reader_groups(self) -> list[str]:
        """Return the names of all reader groups."""
        with self.catalog.lock:
            self._check_open()
            return sorted(self.catalog.groups)

    @uninterrupted
    def register_consumer(
        self, name: str, consumer: str, cut: StreamCut | None = None, *, lease_s: float | None = None
    ) -> None:
        """Note that a consumer needs nothing before ``cut``, the head at first; retention by consumption goes by it.

        With ``lease_s`` it is forgotten when it is not registered again for so many seconds.
        """
        check_name("consumer", consumer)
        if lease_s is not None:
            check_positive("lease_s", lease_s)
        with self.catalog.lock:
            cut = self.head(name) if cut is None else cut
            self.check_cut(cut, stream=name)
            expires_ms = None if lease_s is None else int((self.clock.now() + lease_s) * 1000)
            self.catalog.commit(ConsumerMoved(name, consumer, cut.offsets, expires_ms))
        if lease_s is not None:
            self._upkeep.wake()

    @uninterrupted
    def unregister_consumer(self, name: str, consumer: str) -> None:
        """Forget a consumer; one that is not registered is forgotten already."""
        check_name("consumer", consumer)
        with self.catalog.lock:
            if consumer in self._state(name).consumers:
                self.catalog.commit(ConsumerMoved(name, consumer, None))

    def consumers(self, name: str) -> dict[str, StreamCut]:
        """Return who is registered as a consumer, and how far each has come."""
        with self.catalog.lock:
            known = self._state(name).consumer_cuts()
            return {consumer: StreamCut.of(name, cut) for consumer, cut in known.items()}

    def maintain(self) -> None:
        """Scale and truncate streams as their configuration says; done every second by itself."""
        self._upkeep.run_once()

    # Figures

    @property
    def syncs(self) -> SyncTimes:
        """How long the syncs of the store's disk took."""
        return self._manager.plogs.syncs

    def check_running(self) -> None:
        """Raise why the store takes no more writes, if it does not."""
        self._check_open()
        self._manager.plogs.check_running()

    def segments_at_work(self) -> dict[tuple[int, int], Segment]:
        """Return the segments that were used since the store was opened, by stream uid and segment."""
        with self._segments_lock:
            return dict(self._segments)

    # Life

    def segment(self, name: str, segment_id: int) -> Segment:
        """Return a segment at work."""
        with self.catalog.lock:
            return self._segment_in(self._state(name), segment_id)

    def _segment_in(self, state: StreamState, segment_id: int) -> Segment:
        """Return a segment of a stream that may have been deleted meanwhile, even if there is another of its name."""
        with self.catalog.lock:  # held until it is there: nobody opens a segment again that is dropped meanwhile
            if self.catalog.streams.get(state.name) is not state:
                raise NoSuchStream(state.name)
            return self._segment_of(state, state.segments[segment_id])

    def _segment_of(self, state: StreamState, one: SegmentState) -> Segment:
        """Return a segment at work. Who has a segment's lock may call this, so it does without the catalog's."""

        def inherited() -> WriterTable:
            before = state.predecessors(one)
            for segment in self._without_table(state, before):  # oldest first: none has to go far back for its own
                segment.writers()
            handed = [(old, *self._segment_of(state, old).hand_on()) for old in before]
            table = inherit(((old.low, old.high, found) for old, found, _, _ in handed), low=one.low, high=one.high)
            table.blocks_behind = sum(blocks for _, _, blocks, _ in handed)
            table.bytes_behind = sum(size for _, _, _, size in handed)
            return table

        with self._segments_lock:
            found = self._segments.get((state.uid, one.segment_id))
            if found is None:
                where, log_name = f"segment {one.segment_id} of stream {state.name}", _log_name(state, one.segment_id)
                sizes = plog_sizes(state, self._manager.partition.sizes)
                found = Segment(
                    self._manager,
                    log_name,
                    where=where,
                    end=one.end,
                    inherit=inherited,
                    clock=self.clock,
                    sizes=sizes,
                    keeps_keys=state.config.keep_keys,
                    head=(state.head.get(one.segment_id, 0), state.head_counts.get(one.segment_id, 0)),
                )
                self._segments[state.uid, one.segment_id] = found
            return found

    def _without_table(self, state: StreamState, segments: Iterable[SegmentState]) -> list[Segment]:
        """Return those of some segments, and of all before them, whose table of writers is to be inherited first."""
        found: dict[int, Segment] = {}
        todo = list(segments)
        while todo:
            one = todo.pop()
            segment = self._segment_of(state, one)
            if one.segment_id not in found and not segment.has_table():
                found[one.segment_id] = segment
                todo += state.predecessors(one)
        return [found[segment_id] for segment_id in sorted(found)]

    def _state(self, name: str) -> StreamState:
        self._check_open()
        check_kind("name", name, str)
        return self.catalog.stream(name)

    def _size(self, state: StreamState, tail: Mapping[int, int]) -> int:
        """Return how many bytes there are from the head of a stream to its tail; all segments there are lie between."""
        growing = sum(tail[one.segment_id] for one in state.current if one.end is None)
        return state.ended_bytes + growing - sum(state.head.values())

    def _events(self, state: StreamState, tail: Mapping[int, int]) -> int:
        """Return how many events there are from head to tail: only segments that take events are looked at."""
        growing = 0
        for segment, offset in tail.items():
            if state.segments[segment].end is None:
                growing += self.segment(state.name, segment).count_before(offset)
        return state.ended_events + growing - sum(state.head_counts.values())

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store")

    def before_close(self, task: Callable[[], object]) -> None:
        """Do something first when the store is closed."""
        self._before_close.append(task)

    @uninterrupted
    def close(self) -> None:
        """See everything durable, end all writers and readers, and let go of the storage."""
        with self.catalog.lock:
            if self._closed:
                return
        for task in self._before_close:
            task()
        with self.catalog.lock:
            writers, groups = list(self._writers.values()), list(self.live.values())
            transactions = list(self.transactions.values())
        self._upkeep.close()
        self.positions.close()
        with self._resources:
            sound = (writer for writer in writers if writer.is_sound)  # others have told
            tasks: list[Callable[[], object]] = [partial(writer.end, for_good=False) for writer in sound]
            tasks += [group.close for group in groups]
            trouble = [error for error in map(_done, tasks) if error is not None]
            for transaction in transactions:
                transaction.abort_if_open("its store was closed")
            with suppress(PenstockError):  # what is left is deleted when the store is opened again
                self.delete_abandoned()
            with suppress(PenstockError):  # time waits for the writers, then
                self.marks.record_all()
            self.pump.close()
            with self.catalog.lock:
                self._closed = True
                self.catalog.close()
        if trouble:
            raise trouble[0]

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _done(task: Callable[[], object]) -> PenstockError | None:
    """Do something; return what went wrong, so that the others are done, too."""
    try:
        task()
    except PenstockError as error:
        return error
    return None


def _mark_log_name(state: StreamState) -> str:
    return f"m{state.uid}"


def _log_name(state: StreamState, segment: int) -> str:
    return f"s{state.uid}.{segment}"


def _first_segments(segments: int | None, config: StreamConfig) -> int:
    """Return how many segments a new stream starts with."""
    scaling = config.scaling
    wanted = scaling.segments if isinstance(scaling, Fixed) else scaling.min_segments
    if segments is None:
        return wanted or 1
    check_segments(segments)
    if isinstance(scaling, Fixed) and wanted not in (None, segments):
        raise BadArgument(f"segments={segments} and {scaling}: say it once")
    return segments


def _as_ranges(ranges: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    try:
        return [(float(low), float(high)) for low, high in ranges]
    except (TypeError, ValueError, OverflowError):
        raise BadArgument(f"ranges cannot be {shown(ranges)}: give pairs like (0.0, 0.5)") from None
