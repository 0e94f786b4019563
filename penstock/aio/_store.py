"""The asynchronous store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.aio._batches import AsyncBatches
from penstock.aio._event_files import AsyncEventInputStream
from penstock.aio._group import AsyncReaderGroup
from penstock.aio._handle import AsyncHandle, ClosedAtEnd, Opening, in_thread
from penstock.aio._threads import Threads
from penstock.aio._transaction import AsyncTransactionalWriter
from penstock.aio._writer import AsyncStreamWriter
from penstock.store import EVENT_SIZE_DEFAULT, Store

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from penstock.model import EventPointer, SegmentRange, StreamCut, StreamPosition
    from penstock.stream.serializers import Serializer

__all__ = ["AsyncStore", "connect"]


class AsyncStore(AsyncHandle[Store], ClosedAtEnd):
    """Streams, their writers and their reader groups. Tasks of one event loop may share a store; close it.

    Methods have the parameters, the results and the errors of :class:`penstock.Store`. They are awaited, except those
    that open something, which are used in ``async with`` or awaited, and reads, which are iterated over.
    """

    # Streams

    create_stream = in_thread(Store.create_stream)
    streams = in_thread(Store.streams)
    stream = in_thread(Store.stream)
    stream_segments = in_thread(Store.stream_segments)
    update_stream = in_thread(Store.update_stream)
    scale_stream = in_thread(Store.scale_stream)
    seal_stream = in_thread(Store.seal_stream)
    delete_stream = in_thread(Store.delete_stream)
    truncate_stream = in_thread(Store.truncate_stream)
    maintain = in_thread(Store.maintain)

    # Consumers, for retention by consumption

    register_consumer = in_thread(Store.register_consumer)
    unregister_consumer = in_thread(Store.unregister_consumer)
    consumers = in_thread(Store.consumers)
    consumer_times = in_thread(Store.consumer_times)

    # Positions and time

    head = in_thread(Store.head)
    tail = in_thread(Store.tail)
    cut_at_time = in_thread(Store.cut_at_time)
    watermarks = in_thread(Store.watermarks)
    watermark = in_thread(Store.watermark)
    add_watermarks = in_thread(Store.add_watermarks)
    time_window = in_thread(Store.time_window)
    segment_ranges = in_thread(Store.segment_ranges)
    next_cut = in_thread(Store.next_cut)

    # Reading

    fetch_event = in_thread(Store.fetch_event)

    async def fetch_event_as_stream(self, pointer: EventPointer) -> AsyncEventInputStream:
        """Return the event at a pointer as a file."""
        step = partial(self._inner.fetch_event_as_stream, pointer)
        return AsyncEventInputStream(await self._call(step), self._threads)

    def read(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        *,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> AsyncBatches:
        """Return the events from one position to another, by default from head to tail, as Arrow batches.

        Iterate over them with ``async for``; the end is fixed when that begins. See :meth:`Store.read`.
        """
        return AsyncBatches(partial(self._inner.read, name, start, end, max_event_size=max_event_size), self._threads)

    def read_range(self, part: SegmentRange, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> AsyncBatches:
        """Return the events of a part of one segment, as Arrow batches like those of :meth:`read`."""
        return AsyncBatches(partial(self._inner.read_range, part, max_event_size=max_event_size), self._threads)

    # Writers and reader groups

    def writer(
        self,
        name: str,
        writer_id: str | None = None,
        serializer: Serializer[Any] | None = None,
        *,
        automatically_note_time: bool = False,
    ) -> Opening[AsyncStreamWriter]:
        """Open a writer, and fence an older one with the same ``writer_id``; in ``async with`` or with ``await``.

        See :meth:`Store.writer`. The serializer of single events runs in the event loop, that of batches in a thread.
        """

        async def open_writer() -> AsyncStreamWriter:
            options = {"automatically_note_time": automatically_note_time}
            step = partial(self._inner.writer, name, writer_id, serializer, **options)
            return AsyncStreamWriter(await self._call(step, lambda writer: writer.close()), self._threads)

        return Opening(open_writer)

    def transactional_writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> Opening[AsyncTransactionalWriter]:
        """Open a writer of transactions, in ``async with`` or with ``await``."""

        async def open_writer() -> AsyncTransactionalWriter:
            step = partial(self._inner.transactional_writer, name, writer_id, serializer)
            opened = await self._call(step, lambda writer: writer.close())
            return AsyncTransactionalWriter(opened, self._threads, is_buffered=serializer is None)

        return Opening(open_writer)

    async def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: StreamPosition | Sequence[StreamCut] | None = None,
        end: StreamPosition | Sequence[StreamCut] | None = None,
        *,
        exist_ok: bool = False,
    ) -> AsyncReaderGroup:
        """Create a group of readers that share the segments of some streams; see :meth:`Store.create_reader_group`."""
        step = partial(self._inner.create_reader_group, name, streams, start, end, exist_ok=exist_ok)
        return AsyncReaderGroup(await self._call(step), self._threads)

    async def reader_group(self, name: str) -> AsyncReaderGroup:
        """Return a reader group."""
        return AsyncReaderGroup(await self._call(partial(self._inner.reader_group, name)), self._threads)

    reader_groups = in_thread(Store.reader_groups)

    # Life

    async def close(self) -> None:
        """Flush all writers, close writers and readers, and let go of the storage or the connection."""
        self._threads.check(self)
        await self._threads.close(self._inner.close)


def connect(
    address: str | os.PathLike[str],
    *,
    exclusive: bool = False,
    own: bool = True,
    maintenance_interval_s: float = 1.0,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls: bool | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    plogs: str | None = None,
    plogs_options: Mapping[str, str] | None = None,
) -> Opening[AsyncStore]:
    """Open a store in the event loop that is running: use it in ``async with``, which closes it, or with ``await``.

    Addresses and arguments are those of :func:`penstock.connect`. If the task is cancelled meanwhile, what was opened
    is closed again.
    """

    async def open_store() -> AsyncStore:
        from penstock import connect as connect_blocking  # noqa: PLC0415 - the top of the package imports no part of it

        threads = Threads()
        step = partial(
            connect_blocking,
            address,
            exclusive=exclusive,
            own=own,
            maintenance_interval_s=maintenance_interval_s,
            user=user,
            password=password,
            token=token,
            tls=tls,
            tls_ca=tls_ca,
            plogs=plogs,
            plogs_options=plogs_options,
        )
        return AsyncStore(await threads.call(step, undo=lambda store: store.close()), threads)

    return Opening(open_store)
