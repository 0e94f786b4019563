"""What parts of the server need of a store. The Flight service and its sessions call all of it; the others, little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.model import StreamCut, StreamInfo, StreamPosition, Watermark
    from penstock.plog import BucketUse, ReplicationUse, SyncTimes
    from penstock.ports import Clock
    from penstock.store import ReaderGroup
    from penstock.stream import StreamWriter
    from penstock.stream.catalog import Catalog
    from penstock.stream.segment import Segments
    from penstock.stream.transaction import Transactions

__all__ = ["CountedStore", "ListedStore", "MeasuredStore", "PlainStore", "WatchedStore"]


class _HasCatalog(Protocol):
    @property
    def catalog(self) -> Catalog: ...


class WatchedStore(_HasCatalog, Protocol):
    """What says whether a store can do its work."""

    @property
    def clock(self) -> Clock: ...

    @property
    def bucket_use(self) -> BucketUse | None: ...

    @property
    def replication_use(self) -> ReplicationUse | None: ...

    def check_running(self) -> None:
        """Raise why the store takes no more calls."""

    def trouble(self) -> str | None:
        """Return which work in the background does not run."""

    def stream_troubles(self) -> dict[str, str]:
        """Return which streams are in trouble, and why."""


class PlainStore(Protocol):
    """What a Flight client of another kind can do: list, read and append."""

    def selected_streams(self, wanted: Callable[[str], bool], scope: str | None = None) -> Iterator[StreamInfo]:
        """Return the streams whose names are wanted."""

    def stream(self, name: str) -> StreamInfo:
        """Describe a stream."""

    def read(
        self, name: str, start: StreamPosition | None = None, end: StreamPosition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the events between two positions."""

    def writer(self, name: str) -> StreamWriter:
        """Open a writer."""


class CountedStore(_HasCatalog, Protocol):
    """What is counted for quotas: all that the catalog records, and the transactions that are open."""

    @property
    def transactions(self) -> Transactions: ...


class ListedStore(_HasCatalog, Protocol):
    """The consumers of streams, and how far they are."""

    def consumers(self, name: str) -> dict[str, StreamCut]:
        """Return the consumers of a stream."""

    def tail(self, name: str) -> StreamCut:
        """Return where a stream ends."""


class MeasuredStore(CountedStore, Protocol):
    """What the metrics of a store are made of."""

    @property
    def clock(self) -> Clock: ...
    @property
    def segments(self) -> Segments: ...
    @property
    def syncs(self) -> SyncTimes: ...
    @property
    def bucket_use(self) -> BucketUse | None: ...
    @property
    def replication_use(self) -> ReplicationUse | None: ...

    def stream(self, name: str) -> StreamInfo:
        """Describe a stream."""

    def watermark(self, name: str) -> Watermark | None:
        """Return the last watermark of a stream."""

    def reader_groups(self) -> list[str]:
        """Return the names of all reader groups."""

    def reader_group(self, name: str) -> ReaderGroup:
        """Return a reader group."""
