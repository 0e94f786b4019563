"""A writer in another process, as the store sees it on the server.

The client makes the blocks, as a writer in this process does; here they are checked and appended. So a remote writer
keeps the same promises: order, numbers, and acknowledgements that mean durable.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from penstock.errors import (
    BadArgument,
    NoSuchStream,
    PenstockError,
    StoreClosed,
    StreamCorrupt,
    WriterFenced,
)
from penstock.model import NUMBER_MAX, SEGMENTS_MAX
from penstock.server._session import FENCED
from penstock.stream.format import (
    EVENTS,
    EXTENT,
    LENGTH_SIZE,
    check_columns,
    read_header,
    split_parts,
)
from penstock.stream.segment import NumbersTaken, SegmentEnded, SentBlock
from penstock.stream.write import EventOutputStream, LargeWrite, place_at
from penstock.wire import APPENDS, BLOCKS_MAX, ENDED, LEFT_SIZE, SMALL_SIZE_MAX, SmallBlock, cell, pack_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from penstock.model import EventPointer
    from penstock.ports import Bytes
    from penstock.server._session import Session
    from penstock.stream.format import StreamBlockHeader
    from penstock.stream.segment import PendingBlock, Segment

__all__ = ["ClientWriter", "LargeUpload"]


class ClientWriter:
    """A remote writer: its identity, and its blocks that are not acknowledged yet."""

    def __init__(
        self,
        session: Session,
        stream: str,
        writer_id: str | None,
        identity: bytes,
        token: str,
        *,
        notes_time: bool,
        durable_before: int,
        highest_before: int,
    ) -> None:
        self.stream, self.writer_id, self.identity, self.token = stream, writer_id, identity, token
        self.notes_time: Final = notes_time
        self.durable_before: Final = durable_before  # all numbers of its id up to here were durable when it was opened
        self.highest_before: Final = highest_before  # the highest number of its id then
        self.stream_uid: Final = session.store.catalog.stream(stream).uid
        self._session, self._store = session, session.store
        self._lock = threading.Lock()  # held while blocks are appended
        self._under_way: list[PendingBlock | None] = []  # blocks that are not acknowledged
        self._refusal: PenstockError | None = None  # of a block among them
        self._ended: set[int] = set()  # segments that took no more; if they did again, it would be out of order
        self._segments: dict[int, Segment] = {}  # those that it writes to
        self._trouble: PenstockError | None = None
        self.number: Final = session.add(self)

    @property
    def streams(self) -> tuple[str, ...]:
        """The stream that it writes to."""
        return (self.stream,)

    @property
    def is_sound(self) -> bool:
        """Whether no error has ended the writer."""
        return self._trouble is None

    # What the client calls

    def submit(self, batch: pa.RecordBatch | None, metadata: Bytes, *, size_max: int = SMALL_SIZE_MAX) -> int:
        """Append a block without waiting; return how many follow that are acknowledged together with it.

        Behind one that was refused, nothing is appended.
        """
        with self._lock:
            if self._refusal is None:
                try:
                    self.check()
                    if len(self._under_way) >= BLOCKS_MAX:
                        raise BadArgument(f"at most {BLOCKS_MAX} blocks are acknowledged together")
                    self._under_way.append(self._submit(*_block_in(batch, metadata, size_max)))
                    self.note_activity()
                except PenstockError as error:
                    self._refusal = error
        return int.from_bytes(metadata[:LEFT_SIZE], "big")

    def settle(self) -> None:
        """Make the blocks since the last acknowledgement durable; they are acknowledged with those that follow."""
        with self._lock:
            blocks = list(self._under_way)
        _durable(blocks)

    def acknowledge(self) -> tuple[list[int], bytes | None]:
        """Return where the blocks since the last acknowledgement begin, once they are durable, or why they are not."""
        with self._lock:
            blocks, error = self._under_way, self._refusal
        error = _durable(blocks) or error
        with self._lock:
            self._under_way, self._refusal, self._ended = [], None, set()
        if isinstance(error, FENCED):
            raise error  # which ends the session: the client sends the blocks to the new owner
        starts = [] if error is not None else [ENDED if block is None else block.start for block in blocks]
        return starts, None if error is None else pack_error(error)

    def _submit(self, segment_id: int, head: memoryview, *body: memoryview) -> PendingBlock | None:
        """Append a block; None if its segment has ended."""
        pending = None
        if segment_id not in self._ended:
            pending = self._append(segment_id, head, body)
        if pending is None:
            self._ended.add(segment_id)
        return pending

    def _append(self, segment_id: int, head: memoryview, body: Sequence[memoryview]) -> PendingBlock | None:
        segment = self._segments.get(segment_id)
        if segment is None:
            try:
                segment = self._segments[segment_id] = self._store.segments.get(self.stream, segment_id)
            except KeyError:
                return None  # it has ended, and was truncated away
        header = _header_of(head, self.identity, EVENTS, highest_before=self.highest_before)
        _check_body(header, body)
        try:
            return segment.submit(msgspec.structs.replace(header, time_ms=0), *body)  # our clock counts
        except SegmentEnded:
            del self._segments[segment_id]
            return None

    def check(self) -> None:
        """Raise why it writes no more, if it does not."""
        if self._trouble is not None:
            raise self._trouble.with_traceback(None)
        state = self._store.catalog.streams.get(self.stream)
        if state is None or state.uid != self.stream_uid:
            raise NoSuchStream(self.stream)

    def find(self, blocks: Iterable[Sequence[Any]]) -> list[int | None]:
        """Return where blocks begin that were sent before; None for those that did not get here."""
        sent = [(segment_id, SentBlock(*block)) for segment_id, *block in blocks]
        found, by_segment = dict[int, dict[SentBlock, int]](), defaultdict[int, list[SentBlock]](list)
        for segment_id, block in sent:
            by_segment[segment_id].append(block)
        for segment_id, of_segment in by_segment.items():
            try:
                segment = self._store.segments.get(self.stream, segment_id)
                found[segment_id] = segment.find_blocks(self.identity, of_segment)
            except KeyError:
                found[segment_id] = {}
            except NumbersTaken:  # by another writer that had the id meanwhile
                raise WriterFenced(self.stream, str(self.writer_id)) from None
        return [found[segment_id].get(block) for segment_id, block in sent]

    def mark(self, time: int) -> None:
        """Mark a time behind all that the writer has written."""
        if self.writer_id is None:
            raise BadArgument("only writers with an id note time")
        self._store.marks.note_behind(self.stream, self.stream_uid, self.writer_id, time)

    def note_activity(self) -> None:
        """Note that the client has sent something."""
        self._store.writers.note_activity(self)

    def abandon(self) -> None:
        """End the writer: the client is gone without closing it."""
        self.end(for_good=False)

    # What the store calls

    def fence(self) -> None:
        """Write no more, because another writer has this one's id now; what is under way comes to its end."""
        fenced = WriterFenced(self.stream, str(self.writer_id))
        self._stop(fenced)
        self._session.notify((self.number, "fence"), ["fence", self.token])

    def end(self, *, for_good: bool) -> None:
        """Write no more; what the client has sent is durable."""
        closed = StoreClosed(f"the writer of stream {self.stream!r}")
        was_sound = self._stop(closed)
        self._store.writers.forget(self, for_good=for_good and was_sound)
        if for_good and was_sound and self.writer_id is None:  # its identity is never used again
            for segment in self._segments.values():
                segment.forget_writer(self.identity)
        self._session.drop(self.number, closed)

    def _stop(self, why: PenstockError) -> bool:
        """Accept no more blocks, and make those durable that came; return whether it accepted blocks before."""
        with self._lock:
            was_sound, blocks = self.is_sound, self._under_way
            self._trouble = self._trouble or why
        _durable(blocks)
        return was_sound

    def note_by_itself(self, time: int) -> None:
        """Let the client note a time: what it has written before goes first."""
        self._session.notify((self.number, "note"), ["note", self.token, time])


def _durable(blocks: Sequence[PendingBlock | None]) -> PenstockError | None:
    """Wait until blocks are durable; return why one of them is not."""
    error = None
    for block in blocks:
        try:
            if block is not None:
                block.result()
        except PenstockError as failure:
            error = error or failure
    return error


def _block_in(
    batch: pa.RecordBatch | None, metadata: Bytes, size_max: int = SMALL_SIZE_MAX
) -> tuple[int, memoryview, *tuple[memoryview, ...]]:
    """Return the block in a message: its segment, its header, and its body in one part or three."""
    if batch is None:
        small = SmallBlock.unpack(metadata, size_max=size_max)
        return small.segment_id, small.header, small.body
    if batch.schema != APPENDS or len(batch) != 1 or any(column.null_count for column in batch.columns):
        raise BadArgument("this is not a block")
    segment, *parts = batch.columns
    return (segment[0].as_py(), *map(cell, parts))


def _check_body(header: StreamBlockHeader, body: Sequence[memoryview]) -> None:
    """Refuse a block whose size is not that of its events, keys and headers."""
    count = header.count
    first, words, size = body[0], LENGTH_SIZE * count, sum(map(len, body))
    end = words + _total(first[:words], count) if len(first) >= words else size + 1
    if size < end or (size > end) != bool(header.columns):
        raise BadArgument("invalid block: the lengths of the events do not add up to its size")
    if header.columns:
        _check_columns(header.columns, split_parts(body, end)[1], count)


def _header_of(head: memoryview, writer: bytes, kind: int, *, highest_before: int) -> StreamBlockHeader:
    """Return the header of a block that a client has made."""
    try:
        header = read_header(head, where="a message", start=0)
    except StreamCorrupt as error:
        raise BadArgument("this is not a block") from error
    if header.kind != kind or header.writer != writer:
        raise BadArgument("a client appends blocks of events, under its own identity")
    if not _are_possible(header, highest_before):
        raise BadArgument("a block with event numbers that no writer gives")
    return header


def _are_possible(header: StreamBlockHeader, highest_before: int) -> bool:
    """Whether a writer can give such numbers: all later writers with its id go on behind them.

    Numbers may be lower than those before: events are sent again, or go to another segment if theirs has ended. Then
    the floor is above them, and it is one that the writer was opened with.
    """
    last, flush_last, segments = header.last_number, header.flush_last, header.flush_segments
    return (
        header.events <= last <= NUMBER_MAX
        and segments <= SEGMENTS_MAX
        and (last <= flush_last <= NUMBER_MAX if segments else flush_last == 0)
        and header.durable_floor <= max(last, flush_last, highest_before)
    )


def _check_columns(flags: int, view: memoryview, count: int) -> None:
    try:
        check_columns(flags, view, count)
    except ValueError as error:
        raise BadArgument(f"invalid keys or headers ({error})") from error


def _total(words: memoryview, count: int) -> int:
    """Return how long the events are together: most often there is one."""
    return int.from_bytes(words, "big") if count == 1 else int(np.frombuffer(words, ">u4").sum(dtype=np.int64))


class LargeUpload:
    """A large event that a client is sending; one that could not be written, or committed, is over."""

    def __init__(self, session: Session, writer: ClientWriter) -> None:
        self.writer = writer
        self._logs = logs = session.store.host.large_logs(writer.stream, writer.stream_uid)
        self._write = LargeWrite(logs.new_large_log, session.store.clock)
        self._output = EventOutputStream(
            self._write, self._place, lambda _: logs.drop(), logs.abandon, check=writer.check
        )
        self._lock = threading.Lock()  # held while it is committed
        self._end: tuple[StreamBlockHeader, bytes, float] | None = None  # what came with the commit

    def write(self, data: bytes) -> None:
        """Append bytes to the event."""
        self._output.write(data)
        self.writer.note_activity()

    def commit(self, size: int, head: bytes, columns: bytes, position: float) -> EventPointer:
        """Make the event part of the stream; return where it is, also when it was done before."""
        writer = self.writer
        header = _header_of(memoryview(head), writer.identity, EXTENT, highest_before=writer.highest_before)
        if size != self._write.size or self._write.log is None or header.count:
            raise BadArgument("invalid large event: its size or header does not match the bytes received")
        _check_columns(header.columns, memoryview(columns), 1)
        with self._lock:
            self._end = header, columns, position
            self._output.close()
            return self._output.pointer

    def _place(self, write: LargeWrite, output: EventOutputStream) -> None:
        assert self._end is not None, "it is closed by a commit only"
        write.finish()
        place_at(output, self._logs.commit_large(write, *self._end))

    def abandon(self) -> None:
        """Forget it: the client has dropped it, or is gone."""
        self._output.abort()
