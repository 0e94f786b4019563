"""A segment of a remote store: its blocks are fetched, and the server notifies of its growth."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from penstock.client._connection import ConnectionLost, busy_retry
from penstock.client._objects import PlogObjects
from penstock.deadlines import DeadlineExceeded, time_left
from penstock.errors import (
    BadArgument,
    NoSuchObject,
    PlogCorrupt,
    ServerBusy,
    ServerError,
    StorageUnavailable,
    StorageUnusable,
)
from penstock.plog import LocatedBlocks
from penstock.retry import Retry
from penstock.stream.format import check_arrow, read_block
from penstock.stream.segment import READ_SIZE, is_border
from penstock.stream.time import NO_TIMES, Steps, times_column
from penstock.wire import BLOCKS, LOCATE_MAX, Newest, cell
from penstock.wire.operations import streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from penstock.client._connection import Connection
    from penstock.client._files import PlogFiles
    from penstock.stream.catalog import Key
    from penstock.stream.format import AnyBlock
    from penstock.stream.segment import WakeUp

__all__ = ["RemoteSegment", "RemoteTimes", "SegmentUpdate"]

_FETCH_AHEAD: Final = 16 << 20  # of objects, in the background
_Known = tuple["PlogObjects | PlogFiles | None", int, int, list[tuple[int, int, LocatedBlocks]]]
"""Where blocks are read, from which offset up to which, and of each plog where it begins, counts from, and is."""

_Stored = tuple[int, memoryview, int]
"""Where a block begins, its bytes, and from when on it counts if that was in a transaction; 0 otherwise."""

SegmentUpdate = tuple[int, int, int | None]
"""Where a segment begins, how far it can be read and, if it is sealed, where it ends."""


class RemoteSegment:
    """A segment, as readers need it."""

    def __init__(self, connection: Connection, key: Key, update: SegmentUpdate | None) -> None:
        self._connection, self.key = connection, key
        self.where: Final = f"segment {key[1]} of stream {key[0]}"
        self.update = update  # None: it is gone
        self.claims = 0  # of readers that watch it; the store counts them
        self.let_go: Callable[[], None] = _nothing  # when a reader does not any more
        self._lock = threading.Lock()
        self._watchers: list[WakeUp] = []
        self._stream: _BlockStream | None = None
        self._known: _Known = (None, 0, 0, [])
        self._newest = Newest[_Stored]()

    @property
    def tail(self) -> int:
        """How far it can be read, as far as is known here."""
        return 0 if self.update is None else self.update[1]

    def blocks(self, offset: int, *, end: int | None = None, size: int = READ_SIZE) -> Iterator[AnyBlock]:
        """Return the blocks from the one that holds ``offset`` on; see :meth:`Segment.blocks`."""
        stop = min(self.tail, offset + size, *(() if end is None else (end,)))
        if offset >= stop:
            return
        is_followed = stop == self.tail and (self.claims > 1 or self._newest.holds(offset))
        views = self._newest.between(offset, stop, self._fetched) if is_followed else self._views(offset, stop)
        for start, view, commit_ms in views:
            yield read_block(view, where=self.where, start=start, commit_ms=commit_ms)

    def _fetched(self, offset: int, stop: int) -> Iterator[tuple[int, int, _Stored]]:
        """Return the blocks of a range, and where each begins and ends."""
        for stored in self._views(offset, stop):
            yield stored[0], stored[0] + len(stored[1]), stored

    def _views(self, offset: int, stop: int) -> Iterator[_Stored]:
        """Return the blocks of a range as they are stored, from files or objects where this process has access."""
        found: list[_Stored] = []
        access: PlogObjects | PlogFiles | None = None
        try:
            access = self._connection.direct_access(*self.key, offset)
            if access is not None:
                found = self._located(access, offset, stop)
        except (PlogCorrupt, StorageUnusable) as error:  # the server finds out whether the store is damaged
            self._connection.give_up(access, str(error))
        except (ConnectionLost, StorageUnavailable):
            pass
        except OSError:  # the file was removed, or merged with others: where the blocks are now is asked anew
            self._known = (None, 0, 0, [])
        return iter(found) if found else self._sent(offset, stop)

    def _located(self, access: PlogObjects | PlogFiles, offset: int, stop: int) -> list[_Stored]:
        """Return the blocks of a range; where they are is asked once more if an object was deleted meanwhile."""
        try:
            return self._read(access, offset, stop)
        except NoSuchObject:
            self._known = (None, 0, 0, [])
        try:
            return self._read(access, offset, stop)
        except NoSuchObject as error:
            self._connection.give_up(access, f"{error}; is it the bucket of this server?")
            return []

    def _read(self, access: PlogObjects | PlogFiles, offset: int, stop: int) -> list[_Stored]:
        """Return the blocks of a range, from files or objects; where they are is asked for a good deal ahead."""
        known_to, begin, end, _ = self._known
        if known_to is not access or not begin <= offset < stop <= end:
            until = max(stop, min(self.tail, offset + LOCATE_MAX))
            answer = self._connection.call(streams.Locate(*self.key, offset, until))
            self._known = (
                access,
                offset,
                until,
                [(start, time_ms, LocatedBlocks.received(*rest)) for start, time_ms, *rest in answer],
            )
        if isinstance(access, PlogObjects):
            for start, _, located in self._known[3]:
                if start < stop + _FETCH_AHEAD:
                    access.prefetch(located.between(max(offset - start, 0), stop + _FETCH_AHEAD - start))
        blocks: list[_Stored] = []
        for start, commit_ms, located in self._known[3]:
            if start < stop:
                part = located.between(max(offset - start, 0), stop - start)
                blocks += [(start + place, view, commit_ms) for place, view in access.read(part)]
        return blocks

    def _sent(self, offset: int, stop: int) -> Iterator[_Stored]:
        """Return the blocks of a range as they are sent; where the connection is lost, the rest from another."""
        retry, busy = Retry(), busy_retry(time.monotonic())
        while offset < stop:
            try:
                for stored in self._stream_at(offset, stop).until(stop):
                    yield stored
                    retry.progress()
                    offset = stored[0] + len(stored[1])
            except ConnectionLost as error:
                self._stream = None  # nothing more comes of it
                retry.after(error, self._connection.lost_again_and_again)
            except ServerBusy as error:  # others read as much as the server can send
                self._stream = None
                busy.after(error)
            except DeadlineExceeded:  # of the call that began it, which may have been an earlier one
                self._stream = None
                if time_left() == 0:
                    raise
            else:
                return  # all there is

    def _stream_at(self, offset: int, stop: int) -> _BlockStream:
        """Return the stream of blocks from there on; a reader that is alone is sent more than it asks."""
        stream = self._stream
        if stream is None or stream.place != offset or stream.end < stop:
            is_alone = not self.claims and stop - offset == READ_SIZE
            end = max(stop, min(self.tail, offset + LOCATE_MAX)) if is_alone else stop
            call = streams.GetBlocks(*self.key, offset, end)
            stream = _BlockStream(self._connection.blocks(self._connection.channel, call), offset, end)
            self._stream = stream if is_alone else None
        return stream

    def is_border(self, offset: int) -> bool:
        """Whether an event begins or ends there, or the segment does."""
        return is_border(self, offset)

    def note_update(self, update: SegmentUpdate | None, blocks: Sequence[tuple[int, int, bytes]]) -> None:
        """Note how the segment is now, with blocks that are new, if the server sent them, and wake up its readers."""
        for start, commit_ms, block in blocks:
            self._newest.add(start, start + len(block), (start, memoryview(block), commit_ms))
        self.update = update
        self.notify()

    def notify(self) -> None:
        """Wake up all readers that watch the segment."""
        for wake_up in self._watchers:
            wake_up.notify()

    def watch(self, wake_up: WakeUp) -> None:
        """Notify the wake-up whenever there is something new."""
        with self._lock:
            self._watchers = [*self._watchers, wake_up]

    def unwatch(self, wake_up: WakeUp) -> None:
        """Stop notifying the wake-up; the last one ends the notifications of the server."""
        with self._lock:
            known, self._watchers = self._watchers, [watcher for watcher in self._watchers if watcher is not wake_up]
        if len(self._watchers) < len(known):
            self.let_go()


class _BlockStream:
    """Blocks that the server is sending, from ``place`` up to ``end``."""

    def __init__(self, blocks: Iterator[_Stored | pa.RecordBatch], place: int, end: int) -> None:
        self._blocks = map(_block_of, blocks)
        self._next: _Stored | None = None
        self.place, self.end = place, end

    def until(self, stop: int) -> Iterator[_Stored]:
        """Return the next ones, as far as they begin before an offset."""
        while True:
            self._next = self._next or next(self._blocks, None)
            if self._next is None or self._next[0] >= stop:
                return
            stored, self._next = self._next, None
            self.place = stored[0] + len(stored[1])
            yield stored


def _block_of(batch: _Stored | pa.RecordBatch | None) -> _Stored:
    """Return the block in a message of the server, which may be a hostile one."""
    if isinstance(batch, tuple):
        return batch
    if batch is None or batch.schema != BLOCKS:
        raise ServerError("the server sent something else in place of a block")
    try:
        check_arrow(batch)
    except BadArgument as error:
        raise ServerError(f"the server sent a block that is damaged ({error})") from error
    if len(batch) != 1 or any(column.null_count for column in batch.columns):
        raise ServerError(f"the server sent {len(batch)} blocks in a message, or one without its values")
    start, block, commit_ms = batch.columns
    return start[0].as_py(), cell(block), commit_ms[0].as_py()


def _nothing() -> None:
    """Do nothing: the segment is not watched."""


class RemoteTimes:
    """The times of a segment's events: of each, that of the last watermark that lies before it.

    They are asked for a good deal ahead, so a watermark that is made meanwhile may be seen a little later.
    """

    def __init__(self, connection: Connection, segment: RemoteSegment) -> None:
        self._connection, self._segment = connection, segment
        self._begin = self._end = 0
        self._steps = NO_TIMES

    def of(self, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """Return the time of each event at ascending offsets; null where there is none yet."""
        if len(offsets) and not self._begin <= offsets[0] <= offsets[-1] < self._end:
            begin = int(offsets[0])
            end = max(int(offsets[-1]) + 1, min(begin + LOCATE_MAX, self._segment.tail))
            found = self._connection.call(streams.GetTimes(*self._segment.key, begin, end - 1))
            self._begin, self._end, self._steps = begin, end, Steps(*found)
        return times_column(offsets, self._steps)
