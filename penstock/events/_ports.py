"""What the server side of FutoIn needs of a store: adding, reading and registering have little in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from penstock.model import NextCut, StreamConfig, StreamCut, Watermark
    from penstock.ports import Clock
    from penstock.stream import StreamWriter
    from penstock.stream.segment import Segment

__all__ = ["EventStore", "ReadsEvents", "RegistersConsumers", "WritesEvents"]


class KnownStream(Protocol):
    """A stream as it is now; another stream of its name has another uid."""

    @property
    def uid(self) -> int: ...
    @property
    def config(self) -> StreamConfig: ...


class KnowsStreams(Protocol):
    """The streams that there are."""

    @property
    def streams(self) -> Mapping[str, KnownStream]:
        """All of them, by name."""

    def open_stream(self, name: str, /) -> KnownStream:
        """Return a stream; ``NoSuchStream`` if there is none of the name."""


class _HasStreams(Protocol):
    @property
    def catalog(self) -> KnowsStreams: ...


class _NotedTime(Protocol):
    @property
    def time(self) -> int: ...


class KnowsMarks(Protocol):
    """The times that writers have noted."""

    def of(self, uid: int, /) -> Mapping[str, _NotedTime]:
        """Return the last mark of each writer of a stream."""


class WritesEvents(_HasStreams, Protocol):
    """What adding events needs."""

    @property
    def marks(self) -> KnowsMarks: ...

    def writer(self, name: str, writer_id: str | None = None) -> StreamWriter:
        """Open a writer."""

    def watermark(self, name: str) -> Watermark | None:
        """Return the last watermark of a stream."""


class OpensSegments(Protocol):
    """The segments of streams."""

    def get(self, name: str, segment_id: int, /) -> Segment:
        """Return a segment, opened."""


class ReadsEvents(_HasStreams, Protocol):
    """What reading events by their ids needs."""

    @property
    def segments(self) -> OpensSegments: ...

    def head(self, name: str) -> StreamCut:
        """Return where a stream begins."""

    def tail(self, name: str) -> StreamCut:
        """Return where a stream ends."""

    def next_cut(
        self, name: str, start: StreamCut, *, max_bytes: int | None = None, max_events: int | None = None
    ) -> NextCut:
        """Return a cut further on, up to which there are not more bytes and events than that."""

    def read(self, name: str, start: StreamCut, end: StreamCut) -> Iterator[pa.RecordBatch]:
        """Return the events between two cuts."""


class MovesConsumers(Protocol):
    """Where registered consumers are, and the changes that are made to them."""

    def cut(self, stream: str, consumer: str) -> StreamCut | None:
        """Return where a consumer is; None if it is not registered."""

    def register(self, stream: str, consumer: str, cut: StreamCut, *, user: str | None) -> None:
        """Register a consumer at a cut, or move it there."""

    def register_archived(self, consumer: str, cut: StreamCut, *, user: str | None) -> None:
        """Register or move a consumer to a cut that may lie before the head."""


class RegistersConsumers(Protocol):
    """What registrations need."""

    @property
    def registered(self) -> MovesConsumers: ...


class EventStore(ReadsEvents, WritesEvents, RegistersConsumers, Protocol):
    """What the service needs: all of that, and to create its own stream."""

    @property
    def clock(self) -> Clock: ...

    def create_stream(self, name: str, *, config: StreamConfig | None = None, exist_ok: bool = False) -> object:
        """Create a stream."""
