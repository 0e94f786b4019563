"""Writing a large event: its bytes go out in chunks as they come, into a log of its own.

Nothing of it is part of the stream until that log is spliced into a segment, at the end. Memory is one chunk, whatever
the size of the event. One that turns out to fit into a chunk never gets a log: it is written like any other.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, StoreClosed
from penstock.ports import uninterrupted
from penstock.stream._block import pack_chunk

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.log import LogStream
    from penstock.log._stream import PendingLogAppend
    from penstock.model import EventPointer
    from penstock.ports import Bytes, Clock

__all__ = ["CHUNK_SIZE", "EventOutputStream", "LargeWrite"]

CHUNK_SIZE: Final = 1 << 20


class LargeWrite:
    """The chunks of one event. ``size`` counts the event's bytes, ``span`` those of its blocks."""

    def __init__(self, new_log: Callable[[], LogStream], clock: Clock, *, chunk_size: int = CHUNK_SIZE) -> None:
        self._new_log, self._clock, self._chunk_size = new_log, clock, chunk_size
        self._buffer = bytearray()
        self._last: PendingLogAppend | None = None
        self._number = 0
        self.log: LogStream | None = None
        self.size = self.span = 0

    def write(self, data: Bytes) -> None:
        """Take bytes; whole chunks of them go out at once, without a copy where that is possible."""
        view = memoryview(data)
        self.size += len(view)
        while view:
            if len(self._buffer) == self._chunk_size:  # not before there is more, so that the last one is not empty
                self._send(bytes(self._buffer), partial=True)
                self._buffer.clear()
            if not self._buffer and len(view) > self._chunk_size:
                self._send(view[: self._chunk_size], partial=True)
                view = view[self._chunk_size :]
            else:
                room = self._chunk_size - len(self._buffer)
                self._buffer += view[:room]
                view = view[room:]

    def finish(self) -> bytes | None:
        """Write the last chunk and see all of them durable; return the event itself if it fits into one chunk."""
        if self.log is None:
            return bytes(self._buffer)
        self._send(bytes(self._buffer), partial=False)
        assert self._last is not None
        self._last.result()
        return None

    def _send(self, data: Bytes, *, partial: bool) -> None:
        if self.log is None:
            self.log = self._new_log()
        head = pack_chunk(
            len(data), number=self._number, back=self.span, partial=partial, time_ms=int(self._clock.now() * 1000)
        )
        self._last = self.log.submit(head, data)
        self.span += len(head) + len(data)
        self._number += 1


class EventOutputStream(io.RawIOBase):
    """An event being written, as a file. Nothing of it can be read before it is closed; an exception aborts it.

    Get one from ``begin_write_event``. ``pointer`` is where the event is, once it is closed and, in a transaction,
    committed.
    """

    def __init__(
        self,
        write: LargeWrite,
        commit: Callable[[LargeWrite, EventOutputStream], None],
        abort: Callable[[LargeWrite], None],
        abandon: Callable[[], None],
        *,
        check: Callable[[], None],
    ) -> None:
        super().__init__()
        self._write, self._commit, self._abort, self._abandon, self._check = write, commit, abort, abandon, check
        self._lock = threading.Lock()
        self._ended: str | None = None
        self._pointer: EventPointer | None = None

    @property
    def pointer(self) -> EventPointer:
        """Where the event is; an error before that is known."""
        if self._pointer is None:
            raise BadArgument(f"the event has no place yet: it is {self._ended or 'still being written'}")
        return self._pointer

    def place_at(self, pointer: EventPointer) -> None:
        """Note where the event is."""
        self._pointer = pointer

    def is_of(self, write: LargeWrite) -> bool:
        """Whether these are its chunks."""
        return self._write is write

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._write.size

    @uninterrupted
    def write(self, data: Buffer, /) -> int:
        """Take bytes; they may be changed afterwards."""
        view = memoryview(data).cast("B")
        with self._lock:
            self._check_open()
            try:
                self._check()
                self._write.write(view)
            except BaseException:
                self._give_up("aborted, because writing it failed")
                raise
        return len(view)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise StoreClosed(f"the event, which is {self._ended},")

    def close(self) -> None:
        """Make the event part of the stream, or of its transaction; closing again does nothing."""
        if self.closed:
            return
        try:
            with self._lock:
                if self._ended is None:
                    self._finish()
        finally:
            super().close()

    @uninterrupted
    def _finish(self) -> None:
        try:
            self._check()
            self._commit(self._write, self)
        except BaseException:
            self._give_up("aborted, because closing it failed")
            raise
        self._ended = "closed"

    def abort(self) -> None:
        """Drop the event; nothing of it was ever there."""
        with self._lock:
            if self._ended is None:
                self._give_up("aborted")
        super().close()

    def _give_up(self, how: str) -> None:
        self._ended = how
        self._abort(self._write)

    def __enter__(self) -> Self:
        """Close at the end of the block, or abort if it ends with an exception."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, or abort."""
        if error is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        """Drop what nobody closed, because an event that was lost sight of is not complete; its logs go later.

        This may run at any moment, in any thread, so it takes no lock.
        """
        if not self.closed:
            if self._ended is None:
                self._abandon()
            super().close()
