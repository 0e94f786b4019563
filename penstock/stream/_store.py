"""The store: streams and reader groups over one partition of logs.

What there is stands in the catalog; a segment is opened when somebody needs it. ``catalog.lock`` is held by whoever
changes what there is; it is taken before the locks of segments, and after those of writers.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.errors import (
    BadArgument,
    DataTruncated,
    NoSuchEvent,
    PenstockError,
    StoreClosed,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    WrongCut,
)
from penstock.model import (
    EventPointer,
    Fixed,
    SegmentInfo,
    SegmentRange,
    StreamConfig,
    StreamCut,
    StreamInfo,
    check_name,
    check_segments,
    check_stream_name,
)
from penstock.ports import SystemClock, uninterrupted
from penstock.stream._arrow import READ_SCHEMA, read_columns
from penstock.stream._catalog import Catalog
from penstock.stream._group import LiveGroup, ReaderGroup
from penstock.stream._pump import Pump
from penstock.stream._records import (
    ConsumerMoved,
    StreamCreated,
    StreamDeleted,
    StreamScaled,
    StreamStopped,
    StreamTruncated,
    StreamUpdated,
)
from penstock.stream._segment import Segment
from penstock.stream._upkeep import Upkeep
from penstock.stream._writer import StreamWriter
from penstock.stream._writer_table import inherit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack
    from types import TracebackType
    from typing import Self

    from penstock.log import MetadataManager
    from penstock.ports import Clock
    from penstock.stream._arrow import Slice
    from penstock.stream._stream_state import SegmentState, StreamState
    from penstock.stream._writer_table import WriterTable
    from penstock.stream.serializers import Serializer

__all__ = ["StreamStore"]

_CATALOG_LOG: Final = "catalog"
_SEGMENT_LOG: Final = re.compile(r"s(\d+)\.(\d+)")


class StreamStore:
    """Streams and reader groups; get one from :func:`penstock.connect`."""

    def __init__(self, manager: MetadataManager, *, clock: Clock | None = None, resources: ExitStack) -> None:
        self.clock: Final = clock or SystemClock()
        self.pump: Final = Pump()
        self.live: Final[dict[str, LiveGroup]] = {}
        self._manager = manager
        self._segments: dict[tuple[int, int], Segment] = {}
        self._writers: dict[tuple[int, object], StreamWriter] = {}
        self._closed = False
        with resources:  # which are closed if we do not get to the end of this
            self.catalog: Final = Catalog(manager.log(_CATALOG_LOG))
            self._delete_leftovers()
            self._upkeep = Upkeep(self)
            self._resources = resources.pop_all()

    def _delete_leftovers(self) -> None:
        """Delete the logs of segments that are not any more: a crash may have come before it was done."""
        alive = {(state.uid, segment) for state in self.catalog.streams.values() for segment in state.segments}
        for name in self._manager.logs():
            match = _SEGMENT_LOG.fullmatch(name)
            if match and (int(match[1]), int(match[2])) not in alive:
                self._manager.delete_log(name)

    # Streams

    @uninterrupted
    def create_stream(
        self, name: str, segments: int | None = None, config: StreamConfig | None = None, *, exist_ok: bool = False
    ) -> StreamInfo:
        """Create a stream; with ``exist_ok``, one that is there stays as it is."""
        check_stream_name(name)
        config = config or StreamConfig()
        if not isinstance(config, StreamConfig):
            raise BadArgument(f"{config!r} is no StreamConfig")
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
                state="sealed" if state.sealed else "active",
                epoch=state.epoch,
                segments=() if state.sealed else tuple(segments),
                config=state.config,
                size_bytes=self._size(state, state.head, tail.offsets),
                head=self.head(name),
                tail=tail,
            )

    @uninterrupted
    def update_stream(self, name: str, config: StreamConfig) -> StreamInfo:
        """Give a stream another configuration."""
        if not isinstance(config, StreamConfig):
            raise BadArgument(f"{config!r} is no StreamConfig")
        with self.catalog.lock:
            if self._state(name).sealed:
                raise StreamSealed(name)
            self.catalog.commit(StreamUpdated(name, config))
        self._upkeep.wake()
        return self.stream(name)

    @uninterrupted
    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        """End some segments and go on in new ones that have the same key space: a split, a merge, or both."""
        with self.catalog.lock:
            state = self._state(name)
            if state.sealed:
                raise StreamSealed(name)
            ranges = _as_ranges(ranges)
            state.check_scale(seal, ranges)
            self._end_segments(state, seal, lambda ends: StreamScaled(name, ends, ranges, int(self.clock.now() * 1000)))
        return self.stream(name)

    @uninterrupted
    def seal_stream(self, name: str) -> StreamInfo:
        """Let the stream take no more events; sealing it again does nothing."""
        with self.catalog.lock:
            state = self._state(name)
            if not state.sealed:
                current = [one.segment_id for one in state.current]
                self._end_segments(state, current, lambda ends: StreamStopped(name, ends))
        return self.stream(name)

    def _end_segments(self, state: StreamState, segments: Sequence[int], record: Any) -> None:  # noqa: ANN401
        """End segments together with the record that says so; where that fails, they go on."""
        ending = {segment: self.segment(state.name, segment) for segment in segments}
        try:
            ends = {segment: one.end() for segment, one in ending.items()}
            self.catalog.commit(record(ends))
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
            self.catalog.commit(StreamDeleted(name))
            self._drop_segments(state, list(state.segments))

    def _drop_segments(self, state: StreamState, segments: Iterable[int]) -> None:
        for segment in segments:
            dropped = self._segments.pop((state.uid, segment), None)
            if dropped is not None:
                dropped.ring()
            if self._manager.has_log(_log_name(state, segment)):
                self._manager.delete_log(_log_name(state, segment))

    @uninterrupted
    def truncate_stream(self, name: str, cut: StreamCut) -> StreamInfo:
        """Let the stream begin at ``cut``; what lies before is gone, and its plogs are freed."""
        with self.catalog.lock:
            state = self._state(name)
            self.check_cut(cut, stream=name)
            self._truncate(state, cut.offsets)
        return self.stream(name)

    def _truncate(self, state: StreamState, head: Mapping[int, int]) -> None:
        gone = state.before(head)
        for one in state.current if not state.sealed else ():
            segment = self.segment(state.name, one.segment_id)
            segment.keep_table(int(self.clock.now() * 1000), before=head.get(one.segment_id, 0))
        self.catalog.commit(StreamTruncated(state.name, dict(head)))
        self._drop_segments(state, gone)
        for segment_id, offset in head.items():
            self.segment(state.name, segment_id).truncate(offset)

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
        if not isinstance(cut, StreamCut):
            raise BadArgument(f"{cut!r} is no StreamCut")
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

    # Reading

    def fetch_event(self, pointer: EventPointer) -> bytes:
        """Return the event that a pointer points to."""
        if not isinstance(pointer, EventPointer):
            raise BadArgument(f"{pointer!r} is no EventPointer")
        with self.catalog.lock:
            state = self._state(pointer.stream)
            if pointer.segment_id not in state.segments:
                if pointer.segment_id < state.next_segment:
                    raise DataTruncated(pointer, head=self.head(pointer.stream))
                raise NoSuchEvent(pointer)
            if pointer.offset < state.head.get(pointer.segment_id, 0):
                raise DataTruncated(pointer, head=self.head(pointer.stream))
            segment = self.segment(pointer.stream, pointer.segment_id)
        for block in segment.blocks(pointer.offset, size=1):
            index = block.index_at(pointer.offset)
            if index is not None and index < block.count and block.offset_of(index) == pointer.offset:
                return block.event(index)
        raise NoSuchEvent(pointer)

    def read(self, name: str, start: StreamCut | None = None, end: StreamCut | None = None) -> Iterator[pa.RecordBatch]:
        """Return the events from one cut to another, by default from head to tail, as Arrow batches.

        Columns are event, segment_id, offset and mark_time. A segment's events come in order, and those of its
        predecessors before them. The end is fixed when this is called.
        """
        return self._read_ranges(self.segment_ranges(name, start, end))

    def _read_ranges(self, ranges: list[SegmentRange]) -> Iterator[pa.RecordBatch]:
        for one in ranges:
            yield from self.read_range(one)

    def read_range(self, part: SegmentRange) -> Iterator[pa.RecordBatch]:
        """Return the events of a part of one segment, as Arrow batches like those of :meth:`read`."""
        segment, offset = self.segment(part.stream, part.segment_id), part.start
        while offset < part.end:
            slices: list[Slice] = []
            for block in segment.blocks(offset, end=part.end):
                first, last = block.index_at(max(offset, block.start)), block.count
                if part.end < block.end:
                    last = block.index_at(part.end) or 0
                if first is None:
                    raise NoSuchEvent(EventPointer(part.stream, part.segment_id, offset))
                if first < last:
                    slices.append((block, first, last))
                offset = min(block.end, part.end)
            if slices:
                events, segment_ids, offsets = read_columns(slices, part.segment_id)
                marks = pa.nulls(len(events), READ_SCHEMA.field("mark_time").type)
                yield pa.record_batch([events, segment_ids, offsets, marks], READ_SCHEMA)

    def segment_ranges(
        self,
        name: str,
        start: StreamCut | None = None,
        end: StreamCut | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        """Return what parallel readers may read: parts of segments of about ``approx_bytes``, or whole ones."""
        if approx_bytes is not None and approx_bytes <= 0:
            raise BadArgument(f"parts of {approx_bytes} bytes cannot be: give a figure above 0")
        with self.catalog.lock:
            state = self._state(name)
            start, end = start or self.head(name), end or self.tail(name)
            for cut in (start, end):
                self.check_cut(cut, stream=name)
            spans = [
                (segment, low, self.segment(name, segment).tail if high is None else high)
                for segment, low, high in state.between(start.offsets, end.offsets)
            ]
        parts = []
        for segment, low, high in spans:
            marks = [low, *self._marks(name, segment, low, high, approx_bytes), high]
            parts += [SegmentRange(name, segment, a, b) for a, b in pairwise(marks) if a < b]
        return parts

    def _marks(self, name: str, segment: int, low: int, high: int, size: int | None) -> Iterator[int]:
        """Return where to cut a span into parts of about ``size`` bytes: where blocks begin."""
        place = low
        while size is not None and place + size < high:
            block = next(self.segment(name, segment).blocks(place + size, size=1))
            place = block.start if block.start > place else block.end
            if place < high:
                yield place

    # Writers, groups, consumers

    def writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> StreamWriter:
        """Open a writer. Under the same ``writer_id`` an older one writes no more."""
        with self.catalog.lock:
            self._check_open()
            uid = self._state(name).uid
            older = self._writers.get((uid, writer_id)) if writer_id is not None else None
        if older is not None:
            older.fence()
        writer = StreamWriter(self, name, writer_id, serializer)
        with self.catalog.lock:
            self._writers[uid, writer_id if writer_id is not None else writer] = writer
        return writer

    def forget_writer(self, writer: StreamWriter) -> None:
        """Note that a writer is closed."""
        with self.catalog.lock:
            for key in [key for key, one in self._writers.items() if one is writer]:
                del self._writers[key]

    def writer_tables(self, name: str) -> list[WriterTable]:
        """Return the tables of writers that say what any writer has written: of the segments now and just before."""
        with self.catalog.lock:
            state = self._state(name)
            wanted = {one.segment_id for one in state.current}
            wanted |= {before for segment in wanted for before in state.segments[segment].predecessors}
            segments = [self.segment(name, segment) for segment in sorted(wanted & state.segments.keys())]
        return [segment.writers() for segment in segments]

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: StreamCut | Sequence[StreamCut] | None = None,
        end: StreamCut | Sequence[StreamCut] | None = None,
    ) -> ReaderGroup:
        """Create a group of readers that share the segments of some streams."""
        return ReaderGroup.create(self, name, streams, start, end)

    def reader_group(self, name: str) -> ReaderGroup:
        """Return a reader group."""
        self.catalog.group(name)
        return ReaderGroup(self, name)

    def reader_groups(self) -> list[str]:
        """Return the names of all reader groups."""
        with self.catalog.lock:
            return sorted(self.catalog.groups)

    @uninterrupted
    def register_consumer(self, name: str, consumer: str, cut: StreamCut | None = None) -> None:
        """Note that a consumer needs nothing before ``cut``, the head at first; retention by consumption goes by it."""
        check_name("consumer", consumer)
        with self.catalog.lock:
            cut = cut or self.head(name)
            self.check_cut(cut, stream=name)
            self.catalog.commit(ConsumerMoved(name, consumer, cut.offsets))

    @uninterrupted
    def unregister_consumer(self, name: str, consumer: str) -> None:
        """Forget a consumer; one that is not registered is forgotten already."""
        with self.catalog.lock:
            if consumer in self._state(name).consumers:
                self.catalog.commit(ConsumerMoved(name, consumer, None))

    def maintain(self) -> None:
        """Scale and truncate streams as their configuration says; done every second by itself."""
        self._upkeep.run_once()

    # Life

    def segment(self, name: str, segment_id: int) -> Segment:
        """Return a segment at work."""
        with self.catalog.lock:
            state = self._state(name)
            found = self._segments.get((state.uid, segment_id))
            if found is None:
                found = self._segments[state.uid, segment_id] = self._open_segment(state, state.segments[segment_id])
            return found

    def _open_segment(self, state: StreamState, one: SegmentState) -> Segment:
        def inherited() -> WriterTable:
            before = [state.segments[segment] for segment in one.predecessors if segment in state.segments]
            tables = [(old.low, old.high, self.segment(state.name, old.segment_id).writers()) for old in before]
            return inherit(tables, low=one.low, high=one.high)

        where = f"segment {one.segment_id} of stream {state.name}"
        return Segment(self._manager, _log_name(state, one.segment_id), where=where, end=one.end, inherit=inherited)

    def _state(self, name: str) -> StreamState:
        self._check_open()
        return self.catalog.stream(name)

    def _size(self, state: StreamState, head: Mapping[int, int], tail: Mapping[int, int]) -> int:
        spans = state.between(head, tail)
        return sum(
            (self.segment(state.name, segment).tail if high is None else high) - low for segment, low, high in spans
        )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store")

    def close(self) -> None:
        """See everything durable, end all writers and readers, and let go of the storage."""
        with self.catalog.lock:
            if self._closed:
                return
            writers, groups = list(self._writers.values()), list(self.live.values())
        self._upkeep.close()
        with self._resources:
            ending: list[StreamWriter | LiveGroup] = [
                writer for writer in writers if writer.is_sound
            ]  # others have told
            trouble = [error for error in map(_closed, [*ending, *groups]) if error is not None]
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


def _closed(one: StreamWriter | LiveGroup) -> PenstockError | None:
    """Close something; return what went wrong, so that the others are closed, too."""
    try:
        one.close()
    except PenstockError as error:
        return error
    return None


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
    except (TypeError, ValueError):
        raise BadArgument(f"{ranges!r} are no key ranges: give pairs like (0.0, 0.5)") from None
