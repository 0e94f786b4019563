"""Writing a large event: its bytes go out in chunks as they come, into a log of its own.

Nothing of it is part of the stream until that log is spliced into a segment, at the end. Memory is one chunk for an
event of any size. One that turns out to fit into a chunk never gets a log: it is written like any other.

Committing a large event flushes what waits in the lanes first. So the order of events is the order in which large ones
are closed, and a large event has its place among the numbers of the writer.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Final

from penstock import forks
from penstock.errors import BadArgument, CommitUnfinished, EventAborted, EventClosed
from penstock.ports import uninterrupted
from penstock.stream.format import EXTENT, StreamBlockHeader, key_position, pack_chunk
from penstock.stream.write._acks import DoneAck

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import NoReturn, Self

    from typing_extensions import Buffer

    from penstock.model import EventPointer
    from penstock.ports import Bytes, Clock
    from penstock.stream.format import Attributes
    from penstock.stream.write._flush import Flusher
    from penstock.stream.write._host import LargeLog, LargeLogs, PendingChunk, WriterHost
    from penstock.stream.write._lanes import Lanes, Numbers

__all__ = ["CHUNK_SIZE", "EventOutputStream", "LargeEvents", "LargeWrite"]

CHUNK_SIZE: Final = 1 << 20


class LargeWrite:
    """The chunks of one event. ``size`` counts the event's bytes, ``span`` those of its blocks."""

    def __init__(self, new_log: Callable[[], LargeLog], clock: Clock, *, chunk_size: int = CHUNK_SIZE) -> None:
        self._new_log, self._clock, self._chunk_size = new_log, clock, chunk_size
        self._buffer = bytearray()
        self._last: PendingChunk | None = None
        self._number = 0
        self.log: LargeLog | None = None
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
                free_size = self._chunk_size - len(self._buffer)
                self._buffer += view[:free_size]
                view = view[free_size:]

    def finish(self) -> bytes | None:
        """Write the last chunk and wait until all are durable; return the event itself if it fits into one chunk."""
        data, self._buffer = bytes(self._buffer), bytearray()  # who has written it may keep it for long
        if self.log is None:
            return data
        self._send(data, partial=False)
        last, self._last = self._last, None
        assert last is not None
        last.result()
        return None

    def let_go(self) -> None:
        """Forget the bytes that were not sent: the event is given up."""
        self._buffer, self._last = bytearray(), None

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

    Inside its own ``with`` block, closing only ends the writing: the end of the block decides, because a wrapper
    around the file closes it after an exception, too. ``pointer`` is where the event is, once it is closed and, in a
    transaction, committed.
    """

    _ended: str | None = "not begun"  # which an interrupt of the first line below leaves

    def __init__(
        self,
        write: LargeWrite,
        commit: Callable[[LargeWrite, EventOutputStream], None],
        abort: Callable[[EventOutputStream], None],
        abandon: Callable[[LargeWrite], None],
        *,
        check: Callable[[], None],
    ) -> None:
        super().__init__()
        forks.guard(self)
        self._write, self._commit, self._abort, self._abandon, self._check = write, commit, abort, abandon, check
        self._lock = threading.Lock()
        self._is_inside = False  # of its block
        self._ended = None
        self._failure: BaseException | None = None  # which close() raises again
        self._pointer: EventPointer | None = None

    @property
    def pointer(self) -> EventPointer:
        """Where the event is; an error before that is known."""
        if self._pointer is None:
            raise BadArgument(f"the event has no pointer yet: it is {self._how()}")
        return self._pointer

    def _how(self) -> str:
        return self._ended or ("closed, and written at the end of its block" if self.closed else "still being written")

    def writable(self) -> bool:
        """Return True; an error once the event is closed."""
        self._check_open()
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        self._check_open()
        return self._write.size

    def readinto(self, buffer: Buffer, /) -> NoReturn:
        """Raise ``UnsupportedOperation``."""
        raise io.UnsupportedOperation("an event that is being written cannot be read")

    @uninterrupted
    def write(self, data: Buffer, /) -> int:
        """Take bytes; they may be changed afterwards."""
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        with self._lock:
            if self._failure is not None:
                raise EventAborted(cause=self._failure)
            self._check_open()
            try:
                self._check()
                self._write.write(view)
            except BaseException as error:
                self._failure = error
                self._give_up("aborted, because writing it failed")
                self._check()  # the cause may be that the transaction has ended meanwhile
                raise
        return len(view)

    def _check_open(self) -> None:
        if self.closed or self._ended is not None:
            raise EventClosed(self._how())

    def close(self) -> None:
        """Make the event part of the stream, or of its transaction; closing again does nothing.

        If writing has failed, the first call raises that again: the code that got the error may have dropped it.
        """
        if not self.closed and not self._is_inside:
            self._end()
        super().close()

    def _end(self) -> None:
        try:
            with self._lock:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise EventAborted(cause=failure)
                if self._ended is None:
                    self._finish()
        finally:
            super().close()

    @uninterrupted
    def _finish(self) -> None:
        try:
            self._check()
            self._commit(self._write, self)
        except CommitUnfinished:
            self._ended = "committed, and shown once the disk lets it"
            raise
        except BaseException:
            self._give_up("aborted, because closing it failed")
            raise
        self._ended = "closed"

    def abort(self) -> None:
        """Drop the event; nothing of it is ever part of the stream."""
        with self._lock:
            self._failure = None
            if self._ended is None:
                self._give_up("aborted")
        super().close()

    def _give_up(self, how: str) -> None:
        self._ended = how
        self._write.let_go()
        self._abort(self)

    def __enter__(self) -> Self:
        """Close at the end of the block, or abort if it ends with an exception."""
        self._check_open()
        self._is_inside = True
        return self

    @forks.silent_in_child
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, or abort."""
        self._is_inside = False
        if error is None:
            self._end()
        else:
            self.abort()

    def __del__(self) -> None:
        """Drop an event that was never closed, because it may not be complete; its logs are deleted later.

        This may run at any moment, in any thread, so it takes no lock.
        """
        if self._ended is None:
            self._abandon(self._write)
        super().close()


def place_at(output: EventOutputStream, pointer: EventPointer) -> None:
    """Note where the event of a closed file is."""
    output._pointer = pointer


class LargeEvents:
    """Writes the large events of one writer."""

    def __init__(self, host: WriterHost, stream: str, lanes: Lanes, numbers: Numbers, flusher: Flusher) -> None:
        self._host, self._stream, self._lanes, self._numbers, self._flusher = host, stream, lanes, numbers, flusher

    def begin(
        self, attributes: Attributes, write_small: Callable[[bytes, Attributes], EventPointer]
    ) -> EventOutputStream:
        """Begin an event of any size, as a file; ``write_small`` writes one that turns out to fit into a block."""
        self._flusher.check()
        logs = self._logs()

        def commit(write: LargeWrite, output: EventOutputStream) -> None:
            event = write.finish()
            pointer = self._commit(logs, write, attributes) if event is None else write_small(event, attributes)
            place_at(output, pointer)

        write = LargeWrite(logs.new_large_log, self._host.clock)
        return EventOutputStream(write, commit, lambda _: logs.drop(), logs.abandon, check=self._flusher.check)

    def write(self, event: Bytes, attributes: Attributes) -> EventPointer:
        """Write an event that the writer numbers; return when it is durable."""
        logs = self._logs()
        try:
            return self._commit(logs, self._write_chunks(logs, event), attributes)
        except BaseException:
            logs.drop()
            raise

    def write_numbered(self, event: bytes, attributes: Attributes, number: int | None) -> DoneAck:
        """Write an event whose number the caller gives, unless it is there already; return when it is durable.

        Nothing that is written later is sent before it.
        """
        return self._flusher.holding(lambda: self._send_numbered(event, attributes, number))

    @uninterrupted
    def _send_numbered(self, event: bytes, attributes: Attributes, number: int | None) -> DoneAck:
        wanted, position, lane = self._flusher.with_empty_lanes(
            lambda: self._numbers.place(self._lanes, attributes.key, number)
        )
        if lane is None:
            return DoneAck(None)
        logs = self._logs()
        try:
            write = self._write_chunks(logs, event)
            return DoneAck(self._splice(logs, write, position, wanted, attributes))
        except BaseException as error:
            logs.drop()
            self._flusher.fail(error)
            raise

    def _logs(self) -> LargeLogs:
        return self._host.large_logs(self._stream, self._lanes.uid)

    def _write_chunks(self, logs: LargeLogs, event: Bytes) -> LargeWrite:
        write = LargeWrite(logs.new_large_log, self._host.clock)
        write.write(event)
        write.finish()
        return write

    def _commit(self, logs: LargeLogs, write: LargeWrite, attributes: Attributes) -> EventPointer:
        """Make an event whose chunks are durable part of the stream."""
        return self._flusher.holding(lambda: self._send(logs, write, attributes))

    @uninterrupted
    def _send(self, logs: LargeLogs, write: LargeWrite, attributes: Attributes) -> EventPointer:
        number = self._flusher.with_empty_lanes(self._numbers.next)
        key = attributes.key
        position = self._host.random_position() if key is None else key_position(key)
        return self._splice(logs, write, position, number, attributes)

    def _splice(
        self, logs: LargeLogs, write: LargeWrite, position: float, number: int, attributes: Attributes
    ) -> EventPointer:
        """Let a segment take over the log of an event; the caller holds the flush lock."""
        floor = max(self._numbers.floor, number)
        columns, body = attributes.packed(keeps_key=self._lanes.keeps_keys)
        header = StreamBlockHeader(
            kind=EXTENT,
            columns=columns,
            count=0,
            writer=self._numbers.writer,
            last_number=number,
            flush_last=floor,
            durable_floor=floor,
        )
        pointer = logs.commit_large(write, header, body, position)
        self._flusher.note_floor(floor)
        return pointer
