"""The store as its users see it, in this process or in another one.

:func:`penstock.connect` returns a :class:`Store`. Two classes implement it, and inherit its docstrings: the engine in
:mod:`penstock.stream`, where the store is open in this process, and the remote store in :mod:`penstock.client`.
Writers, readers and files of large events are the same classes for both; reader groups and
transactions are described here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from penstock.model import (
        Checkpoint,
        EventPointer,
        Lag,
        NextCut,
        Position,
        SegmentInfo,
        SegmentRange,
        StreamConfig,
        StreamCut,
        StreamInfo,
        StreamPosition,
        TimeWindow,
        Watermark,
    )
    from penstock.stream import EventOutputStream, Reader, StreamWriter
    from penstock.stream.format import GivenHeaders
    from penstock.stream.read import EventInputStream
    from penstock.stream.serializers import Serializer
    from penstock.stream.transaction import Status

__all__ = [
    "CHECKPOINT_TIMEOUT_S",
    "EVENT_SIZE_DEFAULT",
    "OpenTransaction",
    "ReaderGroup",
    "Store",
    "Transaction",
    "TransactionalWriter",
]

CHECKPOINT_TIMEOUT_S: Final = 30.0
EVENT_SIZE_DEFAULT: Final = 1 << 20


class Store(Protocol):
    """Streams, their writers and their reader groups. Threads may share a store; close it, or use it in ``with``."""

    # Streams

    def create_stream(
        self, name: str, segments: int | None = None, config: StreamConfig | None = None, *, exist_ok: bool = False
    ) -> StreamInfo:
        """Create a stream; with ``exist_ok``, an existing one stays as it is."""

    def streams(self, scope: str | None = None) -> list[StreamInfo]:
        """Return all streams, or those of a scope, by name."""

    def stream(self, name: str) -> StreamInfo:
        """Return the state, configuration, size, head and tail of a stream."""

    def stream_segments(self, name: str) -> list[SegmentInfo]:
        """Return all segments of a stream from its head to its tail, those that take no more events, too, by id.

        Of two that share a part of the key space, the one with the higher id follows the other.
        """

    def update_stream(self, name: str, config: StreamConfig) -> StreamInfo:
        """Replace the configuration of a stream."""

    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        """Seal segments and continue in new ones that cover the same key space: a split, a merge, or both."""

    def seal_stream(self, name: str) -> StreamInfo:
        """Seal a stream: it accepts no more events. Sealing it again does nothing."""

    def delete_stream(self, name: str) -> None:
        """Delete a sealed stream and its events."""

    def truncate_stream(self, name: str, cut: StreamPosition) -> StreamInfo:
        """Move the head of a stream to ``cut``; the events before it are deleted, and their plogs are freed."""

    def maintain(self) -> None:
        """Scale and truncate streams as configured, now; the store does this by itself every second."""

    # Consumers, for retention by consumption

    def register_consumer(
        self, name: str, consumer: str, cut: StreamPosition | None = None, *, lease_s: float | None = None
    ) -> None:
        """Record that a consumer needs no event before ``cut``, by default the head of the stream.

        With ``lease_s`` the consumer is removed when it was not registered again for that many seconds.
        """

    def unregister_consumer(self, name: str, consumer: str) -> None:
        """Remove a consumer; removing one that is not registered does nothing."""

    def consumers(self, name: str) -> dict[str, StreamCut]:
        """Return the registered consumers of a stream, and the cut of each."""

    def consumer_times(self, name: str) -> dict[str, int | None]:
        """Return when each consumer of a stream was last registered, in milliseconds since 1970.

        A consumer registers whenever it moves. None if an earlier version of Penstock has registered it.
        """

    # Positions and time

    def head(self, name: str) -> StreamCut:
        """Return where the stream begins."""

    def tail(self, name: str) -> StreamCut:
        """Return where the stream ends now."""

    def cut_at_time(
        self,
        name: str,
        time: int | datetime,
        *,
        bound: Literal["lower", "upper"] = "lower",
        by: Literal["watermark", "append"] | None = None,
    ) -> StreamCut:
        """Return the cut of the last watermark whose time is not after ``time``; the head if there is none.

        The events that writers had written when they noted the watermark's time lie before the cut. With the ``upper``
        bound, no event lies before it that a writer wrote after it had noted a later time.

        In a stream without watermarks, or with ``by="append"``, the cut is where the events begin that were appended at
        ``time`` or later; the bound does not matter then.
        """

    def watermarks(
        self, name: str, start: int | StreamCut | None = None, end: int | StreamCut | None = None
    ) -> list[Watermark]:
        """Return the watermarks of a stream from one time up to another, or from one cut to another."""

    def watermark(self, name: str) -> Watermark | None:
        """Return the last watermark of a stream; None if it has none."""

    def add_watermarks(self, name: str, watermarks: Sequence[Watermark]) -> None:
        """Write watermarks behind the last one of a stream, for a copy whose writers have noted their time elsewhere.

        They wait for no writer of this stream. Those that are not later than the last one are ignored.
        """

    def time_window(self, pointer: EventPointer) -> TimeWindow | None:
        """Return the times of the watermarks before and behind an event; None in a stream without watermarks."""

    # Reading

    def fetch_event(self, pointer: EventPointer) -> bytes:
        """Return the event at a pointer in one piece; see :meth:`fetch_event_as_stream` for large events."""

    def fetch_event_as_stream(self, pointer: EventPointer) -> EventInputStream:
        """Return the event at a pointer as a file."""

    def read(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        *,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> pa.RecordBatchReader:
        """Return the events from one position to another, by default from head to tail, as Arrow batches.

        The result is an iterator of batches, and what DuckDB, Polars and others take as a table that is read once.
        A position is a cut, or a time at which events were appended: a datetime, or milliseconds since 1970.
        Columns are event, key, timestamp, headers, segment_id, offset and mark_time. The events of a segment come in
        order, and behind those of its predecessors. The end is fixed when this is called. Events above
        ``max_event_size`` are null; read them with :meth:`fetch_event_as_stream`.
        """

    def read_range(self, part: SegmentRange, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> pa.RecordBatchReader:
        """Return the events of a part of one segment, as Arrow batches like those of :meth:`read`."""

    def segment_ranges(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        """Return ranges for parallel readers: whole segments, or parts of about ``approx_bytes``."""

    def next_cut(
        self,
        name: str,
        start: StreamCut,
        end: StreamCut | None = None,
        *,
        max_bytes: int | None = None,
        max_events: int | None = None,
        align: bool = False,
        skip_truncated: bool = False,
    ) -> NextCut:
        """Return how far to read next: from ``start`` up to ``end``, the tail by default, within the limits.

        At least one event lies between, if there is any. With ``align`` the cut is that of a watermark where possible;
        events behind the last watermark wait for the next one while there are writers that note time. With
        ``skip_truncated`` a start that was truncated moves on to the head, in the truncated segments only.
        """

    # Writers and reader groups

    def writer(
        self,
        name: str,
        writer_id: str | None = None,
        serializer: Serializer[Any] | None = None,
        *,
        automatically_note_time: bool = False,
    ) -> StreamWriter:
        """Open a writer, and fence an older one with the same ``writer_id``.

        With ``automatically_note_time`` the writer notes the time of the store's clock with every maintenance run.
        """

    def transactional_writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> TransactionalWriter:
        """Open a writer of transactions."""

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: StreamPosition | Sequence[StreamCut] | None = None,
        end: StreamPosition | Sequence[StreamCut] | None = None,
        *,
        exist_ok: bool = False,
    ) -> ReaderGroup:
        """Create a group of readers that share the segments of some streams.

        It reads each stream from a position, the head by default, up to ``end``, if there is one. With ``exist_ok``, an
        existing group stays as it is; ``GroupExists`` if it has other streams, or was created with another start or
        end. Times are not compared.
        """

    def reader_group(self, name: str) -> ReaderGroup:
        """Return a reader group."""

    def reader_groups(self) -> list[str]:
        """Return the names of all reader groups."""

    # Life

    def close(self) -> None:
        """Flush all writers, close writers and readers, and let go of the storage or the connection."""

    def __dir__(self) -> Iterable[str]:
        """Return what users can rely on, for tab completion: an engine has other parts, which the server uses."""
        return dir(Store)

    def __enter__(self) -> Self:
        """Close the store at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""


class ReaderGroup(Protocol):
    """Readers that share the segments of some streams; each segment belongs to one of them at a time."""

    @property
    def name(self) -> str:
        """The name of the group, unique in its store."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the group reads."""

    @property
    def position(self) -> tuple[StreamCut, ...]:
        """How far its readers have read: a cut of each stream."""

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The last checkpoints, oldest first, by name."""

    @property
    def finished(self) -> bool:
        """Whether all events are read, up to the end of the group or of its streams, which are sealed."""

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Reader:
        """Open a reader. It replaces one of the same name whose process has ended."""

    def readers(self) -> list[str]:
        """Return the names of its readers."""

    def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        """End a reader that does not answer: others continue with its segments, from ``position`` if given."""

    def checkpoint(self, name: str, timeout: float | None = CHECKPOINT_TIMEOUT_S) -> Checkpoint:
        """Make a checkpoint: wait until every reader has reached it, and return where they were.

        Each reader gets the checkpoint from ``read_next_event`` in place of an event, and has reached it when it asks
        for the next event. ``CheckpointFailed`` if that takes longer than ``timeout`` seconds.
        """

    def reset(
        self, to: Checkpoint | StreamCut | Iterable[StreamCut] | int | datetime | Literal["head", "tail"] | Position
    ) -> None:
        """Continue from a checkpoint, cuts, the head, a position, or a time; this ends all readers of the group.

        Streams without a cut, and segments that are not in the position, stay where they are.
        """

    def lag(self) -> Lag:
        """Return how far the group is behind the tail, or its end."""

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        """Return the times between which the group reads a stream, by default its only one; None without watermarks."""

    def delete(self) -> None:
        """Delete the group; this ends its readers."""


class Transaction(Protocol):
    """Events that become part of a stream together, or not at all."""

    @property
    def id(self) -> str:
        """Its id, with which another process finds it."""

    @property
    def status(self) -> Status:
        """``open``, ``prepared``, ``committed`` or ``aborted``."""

    def ping(self) -> None:
        """Renew the lease, as writing does."""

    def write_event(
        self, event: object, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> None:
        """Add an event; readers see it after the commit."""

    def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
        *,
        position: float | None = None,
    ) -> None:
        """Add many events: a list of bytes or an Arrow array, with a key for each, one for all, or none.

        Those without a key go together to a segment, which is any of them or, with ``position``, the one that has this
        position in the key space, from 0 up to 1.
        """

    def begin_write_event(
        self,
        key: str | bytes | None = None,
        *,
        headers: GivenHeaders | None = None,
        position: float | None = None,
    ) -> EventOutputStream:
        """Begin an event of any size, to be written as a file; closing the file adds it to the transaction.

        Without a key it goes to the segment that has ``position``, or to any.
        """

    def prepare(self) -> None:
        """Make it outlive this process and the owner of the store; it accepts no more events then."""

    def commit(self, timestamp: int | None = None) -> None:
        """Add all events to the stream at once; returns when they are durable and can be read.

        With a ``timestamp`` the writer notes that time behind them.
        """

    def abort(self) -> None:
        """Drop the transaction; aborting it again does nothing."""


class OpenTransaction(Transaction, Protocol):
    """A transaction that this process has begun."""

    def __enter__(self) -> Self:
        """Commit at the end of the block, or abort if it ends with an exception."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, unless it was prepared, committed or aborted in the block; abort after an exception."""


class TransactionalWriter(Protocol):
    """Begins transactions on a stream, and commits prepared ones together."""

    @property
    def stream(self) -> str:
        """The name of its stream."""

    @property
    def writer_id(self) -> str | None:
        """The id under which it notes time and numbers; None if it has none."""

    @property
    def last_number(self) -> int | None:
        """The highest number that :meth:`commit_all` has committed under this writer id; None if there is none.

        It survives restarts. It is not an event number like :attr:`StreamWriter.last_number`.
        """

    def begin(self, lease: float = 30.0) -> OpenTransaction:
        """Begin a transaction; it is aborted when no call pings it, or writes to it, for ``lease`` seconds."""

    def get(self, transaction: str) -> Transaction:
        """Return a transaction by its id; one that has ended tells how."""

    def commit_all(self, ids: Iterable[str], number: int | None = None, timestamp: int | None = None) -> bool:
        """Commit prepared transactions of this stream as one: readers see all their events at once, in this order.

        A ``number``, higher with every call, is stored with the events under the writer id. If a number as high was
        stored before, the call commits nothing, aborts these transactions and returns False. Otherwise it aborts all
        other transactions of this writer id, open or prepared: attempts that failed left them.
        """

    def close(self) -> None:
        """Begin no more transactions, and note no more time; open transactions end by their lease."""

    def __enter__(self) -> Self:
        """Close the writer at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the writer."""
