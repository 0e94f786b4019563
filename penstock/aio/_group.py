"""Asynchronous reader groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.aio._handle import AsyncHandle, Opening, in_thread
from penstock.aio._reader import AsyncReader
from penstock.store import EVENT_SIZE_DEFAULT, ReaderGroup

if TYPE_CHECKING:
    from penstock.model import Checkpoint, StreamCut
    from penstock.stream.serializers import Serializer

__all__ = ["AsyncReaderGroup"]


class AsyncReaderGroup(AsyncHandle[ReaderGroup]):
    """Readers that share the segments of some streams; each segment belongs to one of them at a time."""

    @property
    def name(self) -> str:
        """The name of the group, unique in its store."""
        return self._inner.name

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Opening[AsyncReader]:
        """Open a reader, in ``async with`` or with ``await``. It replaces one of the same name whose process has ended.

        The serializer runs in the event loop.
        """

        async def open_reader() -> AsyncReader:
            step = partial(self._inner.reader, reader_id, serializer, max_event_size)
            return AsyncReader(await self._call(step, lambda reader: reader.close()), self._threads)

        return Opening(open_reader)

    async def streams(self) -> tuple[str, ...]:
        """Return the streams that the group reads."""
        return await self._call(lambda: self._inner.streams)

    async def position(self) -> tuple[StreamCut, ...]:
        """Return how far its readers have read: a cut of each stream."""
        return await self._call(lambda: self._inner.position)

    async def checkpoints(self) -> dict[str, Checkpoint]:
        """Return the last checkpoints, oldest first, by name."""
        return await self._call(lambda: self._inner.checkpoints)

    async def finished(self) -> bool:
        """Return whether all events are read, up to the end of the group or of its streams, which are sealed."""
        return await self._call(lambda: self._inner.finished)

    readers = in_thread(ReaderGroup.readers)
    reader_offline = in_thread(ReaderGroup.reader_offline)
    checkpoint = in_thread(ReaderGroup.checkpoint)
    reset = in_thread(ReaderGroup.reset)
    lag = in_thread(ReaderGroup.lag)
    current_time_window = in_thread(ReaderGroup.current_time_window)
    delete = in_thread(ReaderGroup.delete)
