"""The store over the wire: what :class:`penstock.stream.StreamStore` does, of a store that another process has open."""

from __future__ import annotations

import threading
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from penstock.client._connection import Connection
from penstock.client._group import RemoteGroup
from penstock.client._segment import RemoteSegment, RemoteTimes
from penstock.client._transaction import RemoteTransactionalWriter
from penstock.client._writer import RemoteHost
from penstock.errors import BadArgument, DataTruncated, NoSuchEvent
from penstock.model import EventPointer, check_kind
from penstock.stream._bounded_read import read_part
from penstock.stream._large_read import EventInputStream, event_at
from penstock.stream._pump import Pump
from penstock.stream._reader import EVENT_SIZE_DEFAULT
from penstock.stream._writer import StreamWriter, check_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from penstock.client._connection import Finder, Session
    from penstock.client._seat import RemoteSeat
    from penstock.model import SegmentRange, StreamConfig, StreamCut, StreamInfo, TimeWindow, Watermark
    from penstock.stream._group_state import Key
    from penstock.stream.serializers import Serializer

__all__ = ["RemoteStore"]


class RemoteStore:
    """Streams and reader groups of a store that another process has open."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self.connection = Connection(finder, self._hear)
        self.pump = Pump()
        self.seats: dict[int, RemoteSeat] = {}
        self.hosts: dict[int, RemoteHost] = {}
        self._writers: WeakSet[StreamWriter] = WeakSet()
        self._watched: dict[Key, RemoteSegment] = {}
        self._watched_in: Session | None = None
        self._lock = threading.Lock()
        self.connection.session  # noqa: B018 - so that a store that is not there is told at once

    def _call(self, name: str, *args: object, again: bool = False) -> Any:  # noqa: ANN401 - as the operation says
        return self.connection.call(name, *args, again=again)

    # Streams

    def create_stream(
        self, name: str, segments: int | None = None, config: StreamConfig | None = None, *, exist_ok: bool = False
    ) -> StreamInfo:
        """Create a stream; with ``exist_ok``, one that is there stays as it is."""
        return self._call("create_stream", name, segments, config, exist_ok, again=exist_ok)  # type: ignore[no-any-return]

    def streams(self, scope: str | None = None) -> list[StreamInfo]:
        """Return all streams, or those of a scope, by name."""
        return list(self._call("streams", scope, again=True))

    def stream(self, name: str) -> StreamInfo:
        """Return what there is to know of a stream."""
        return self._call("stream", name, again=True)  # type: ignore[no-any-return]

    def update_stream(self, name: str, config: StreamConfig) -> StreamInfo:
        """Give a stream another configuration."""
        return self._call("update_stream", name, config, again=True)  # type: ignore[no-any-return]

    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        """End some segments and go on in new ones that have the same key space: a split, a merge, or both."""
        return self._call("scale_stream", name, seal, ranges)  # type: ignore[no-any-return]

    def seal_stream(self, name: str) -> StreamInfo:
        """Let the stream take no more events; sealing it again does nothing."""
        return self._call("seal_stream", name, again=True)  # type: ignore[no-any-return]

    def delete_stream(self, name: str) -> None:
        """Delete a sealed stream and all it holds."""
        self._call("delete_stream", name)

    def truncate_stream(self, name: str, cut: StreamCut) -> StreamInfo:
        """Let the stream begin at ``cut``; what lies before is gone, and its plogs are freed."""
        return self._call("truncate_stream", name, cut)  # type: ignore[no-any-return]

    def maintain(self) -> None:
        """Scale and truncate streams as their configuration says; done every second by itself."""
        self._call("maintain", again=True)

    # Places and time

    def head(self, name: str) -> StreamCut:
        """Return where the stream begins."""
        return self._call("head", name, again=True)  # type: ignore[no-any-return]

    def tail(self, name: str) -> StreamCut:
        """Return where the stream ends now."""
        return self._call("tail", name, again=True)  # type: ignore[no-any-return]

    def watermarks(
        self, name: str, start: int | StreamCut | None = None, end: int | StreamCut | None = None
    ) -> list[Watermark]:
        """Return what the writers have promised: from one time up to another, or from one cut to another."""
        return list(self._call("watermarks", name, start, end, again=True))

    def watermark(self, name: str) -> Watermark | None:
        """Return the last watermark of a stream, if it has any."""
        return self._call("watermark", name, again=True)  # type: ignore[no-any-return]

    def cut_at_time(self, name: str, time: int, *, bound: Literal["lower", "upper"] = "lower") -> StreamCut:
        """Return the cut of the last watermark whose time is not after ``time``; the head if there is none."""
        return self._call("cut_at_time", name, time, bound, again=True)  # type: ignore[no-any-return]

    def time_window(self, pointer: EventPointer) -> TimeWindow | None:
        """Return between which times an event is: those of the watermarks before and behind it; None without any."""
        return self._call("time_window", pointer, again=True)  # type: ignore[no-any-return]

    # Reading

    def fetch_event(self, pointer: EventPointer) -> bytes:
        """Return the event that a pointer points to, all of it; for large ones see :meth:`fetch_event_as_stream`."""
        event = event_at(self._segment_at(pointer), pointer)
        return event if isinstance(event, bytes) else event.read_all()

    def fetch_event_as_stream(self, pointer: EventPointer) -> EventInputStream:
        """Return the event that a pointer points to, as a file."""
        return EventInputStream(event_at(self._segment_at(pointer), pointer), pointer)

    def read(
        self,
        name: str,
        start: StreamCut | None = None,
        end: StreamCut | None = None,
        *,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Iterator[pa.RecordBatch]:
        """Return the events from one cut to another, by default from head to tail, as Arrow batches."""
        parts = self.segment_ranges(name, start, end)
        return chain.from_iterable(map(partial(self.read_range, max_event_size=max_event_size), parts))

    def read_range(self, part: SegmentRange, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> Iterator[pa.RecordBatch]:
        """Return the events of a part of one segment, as Arrow batches like those of :meth:`read`."""
        segment = self._segment_at(EventPointer(part.stream, part.segment_id, part.start))
        times = RemoteTimes(self.connection, segment)
        return read_part(segment, part, times, max_event_size=max_event_size)

    def segment_ranges(
        self,
        name: str,
        start: StreamCut | None = None,
        end: StreamCut | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        """Return what parallel readers may read: parts of segments of about ``approx_bytes``, or whole ones."""
        return list(self._call("segment_ranges", name, start, end, approx_bytes, again=True))

    def _segment_at(self, pointer: EventPointer) -> RemoteSegment:
        check_kind("pointer", pointer, EventPointer)
        segment = self.fresh_segment((pointer.stream, pointer.segment_id))
        if segment.news is None:
            raise NoSuchEvent(pointer)
        if pointer.offset < segment.news[0]:
            raise DataTruncated(pointer, head=self.head(pointer.stream))
        return segment

    def fresh_segment(self, key: Key) -> RemoteSegment:
        """Return a segment as it is now."""
        news = self._call("segment", *key, again=True)
        return RemoteSegment(self.connection, key, None if news is None else tuple(news))

    def watched_segment(self, key: Key) -> RemoteSegment:
        """Return a segment that is told of as it grows."""
        with self._lock:
            found = self._watched.get(key)
            if found is None or not found.is_watched:
                found = self._watched[key] = self.fresh_segment(key)
            self._watch(key)
            return found

    def _watch(self, key: Key) -> None:
        """Let the server tell of a segment, and in a new session also of those that it told of before."""
        session = self.connection.session
        keys = list(self._watched) if session is not self._watched_in else [key]
        for one in keys:
            session.send(["watch", *one])
        self._watched_in = session

    def _hear(self, messages: list[Any]) -> None:
        """Note what the server says."""
        if messages[0] == "lost":
            for segment in list(self._watched.values()):
                segment.ring()
            for seat in list(self.seats.values()):
                seat.hear("attend", None)
            return
        for what, *rest in messages:
            if what == "segment":
                stream, number, news = rest
                if (stream, number) in self._watched:
                    self._watched[stream, number].hear(None if news is None else tuple(news))
            elif what == "note" and rest[0] in self.hosts:
                self.hosts[rest[0]].note(rest[1])
            elif rest[0] in self.seats:
                self.seats[rest[0]].hear(what, rest[1] if len(rest) > 1 else None)

    # Writers

    def writer(
        self,
        name: str,
        writer_id: str | None = None,
        serializer: Serializer[Any] | None = None,
        *,
        automatically_note_time: bool = False,
    ) -> StreamWriter:
        """Open a writer. Under the same ``writer_id`` an older one writes no more."""
        check_writer(writer_id, serializer)
        check_kind("automatically_note_time", automatically_note_time, bool)
        if automatically_note_time and writer_id is None:
            raise BadArgument("automatically_note_time needs a writer_id: time is kept under it")
        host = RemoteHost(self, name, writer_id, notes_time=automatically_note_time)
        writer = StreamWriter(
            host, name, writer_id, serializer, notes_time=automatically_note_time, identity=host.identity
        )
        host.writer = writer
        self._writers.add(writer)
        return writer

    def transactional_writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> RemoteTransactionalWriter:
        """Open a writer of transactions."""
        check_writer(writer_id, serializer)
        return RemoteTransactionalWriter(self, name, writer_id, serializer)

    # Groups and consumers

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: StreamCut | Sequence[StreamCut] | None = None,
        end: StreamCut | Sequence[StreamCut] | None = None,
    ) -> RemoteGroup:
        """Create a group of readers that share the segments of some streams."""
        self._call("create_reader_group", name, streams, start, end)
        return RemoteGroup(self, name)

    def reader_group(self, name: str) -> RemoteGroup:
        """Return a reader group."""
        return RemoteGroup(self, self._call("group.check", name, again=True))

    def reader_groups(self) -> list[str]:
        """Return the names of all reader groups."""
        return list(self._call("reader_groups", again=True))

    def register_consumer(self, name: str, consumer: str, cut: StreamCut | None = None) -> None:
        """Note that a consumer needs nothing before ``cut``, the head at first; retention by consumption goes by it."""
        self._call("register_consumer", name, consumer, cut, again=True)

    def unregister_consumer(self, name: str, consumer: str) -> None:
        """Forget a consumer; one that is not registered is forgotten already."""
        self._call("unregister_consumer", name, consumer, again=True)

    def close(self) -> None:
        """See everything durable, end all writers and readers, and the connection."""
        for writer in list(self._writers):
            if writer.is_sound:
                writer.end(for_good=False)
        self.pump.close()
        self.connection.close()
        self._finder.close()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
