"""The logs of one transaction, or of one large event by itself."""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    LogError,
    NoSuchStream,
    PenstockError,
    StreamSealed,
    TransactionEnded,
)
from penstock.log import PlogSizes
from penstock.model import EventPointer
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    KEYS,
    Committed,
    Committing,
    StreamBlockHeader,
    keys_size,
    pack_extent,
)
from penstock.stream.transaction._commits import LOGS_MAX
from penstock.stream.transaction._roll import TransactionPart
from penstock.stream.write import place_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log import LogStream, PendingLogAppend
    from penstock.ports import Bytes
    from penstock.stream.catalog import StreamState
    from penstock.stream.transaction._transactions import Transactions
    from penstock.stream.write import EventOutputStream, LargeWrite

__all__ = ["TransactionLogs"]

_LARGE_PLOGS: Final = PlogSizes(first=(2 << 20) + 4096, largest=256 << 20)  # two chunks at first


class TransactionLogs:
    """The logs of one transaction, by key range: blocks of small events, and large events.

    Without the id of a ``transaction`` they are those of a large event by itself.
    """

    def __init__(self, transactions: Transactions, stream: str, uid: int, transaction: str | None = None) -> None:
        self._transactions, self._stream, self._implicit = transactions, stream, transaction is None
        self._transaction = transaction or transactions.new_id()
        self.uid: Final = uid
        self._lock = threading.Lock()  # held while a log is created, by any thread that writes a large event
        self._is_dropped = self._is_committed = False
        self._find_parts()
        self._open: dict[int, LogStream] = {}  # logs that take small events, by part
        self._last: dict[str, PendingLogAppend] = {}
        self.is_lost = False  # whether an append has failed, with the events in it
        self._extents: list[tuple[LogStream, StreamBlockHeader, bytes]] = []  # written at the commit, with its time
        self._names: list[str] = []
        self._made: list[LogStream] = []
        self._outputs: list[tuple[int, int, EventOutputStream]] = []  # part, offset in it, output

    def _find_parts(self) -> None:
        with self._transactions.catalog.lock:
            self.parts = [TransactionPart(segment.low, segment.high) for segment in self.stream_state().current]
        self._lows = [part.low for part in self.parts]

    def stream_state(self) -> StreamState:
        """Return the stream of the transaction, if it still takes events; the caller holds the catalog."""
        state = self._transactions.catalog.stream(self._stream)
        if state.uid != self.uid:
            raise NoSuchStream(self._stream)  # the name belongs to another stream now
        if state.sealed:
            raise StreamSealed(self._stream)
        return state

    @property
    def is_used(self) -> bool:
        """Whether the transaction has any log."""
        return bool(self._names)

    def size_under_way(self) -> int:
        """Return how many bytes the logs have, durable or not yet; 0 once they are part of the stream, or dropped."""
        with self._lock:
            logs = [] if self._is_dropped or self._is_committed else list(self._made)
        with suppress(LogError):  # they are gone meanwhile
            return sum(log.next_append(0).start for log in logs)
        return 0

    def new_log(self, sizes: PlogSizes | None = None) -> LogStream:
        """Create a log of the transaction."""
        with self._lock:
            if self._is_dropped:
                raise TransactionEnded(self._transaction, reason="its logs are gone")
            if len(self._names) >= LOGS_MAX:
                raise BadArgument(
                    f"transaction {self._transaction} has {LOGS_MAX} logs, and may have no more: each large event "
                    "takes two, each segment that small ones go to another; commit this one, and begin the next"
                )
            name = f"t{self._transaction}.{len(self._names)}"
            self._names.append(name)
            log = self._transactions.logs.new(name, sizes)
            self._made.append(log)
            return log

    def new_large_log(self) -> LogStream:
        """Create a log for a large event: with few plogs, because each costs several syncs."""
        return self.new_log(_LARGE_PLOGS)

    @property
    def lows(self) -> Sequence[float]:
        """Where each part begins in the key space."""
        return self._lows

    def part_at(self, position: float) -> int:
        """Return the part that covers a position in the key space."""
        return bisect_right(self._lows, position) - 1

    def append(self, part: int, header: StreamBlockHeader, *data: Bytes) -> int:
        """Append a block to a part; return where in the part it begins."""
        log, target = self._open_log(part), self.parts[part]
        self._last[log.name] = log.submit(header.pack_at(self._now_ms(), target.counts[-1]), *data)
        start = target.size
        target.size += BLOCK_HEADER_SIZE + sum(map(len, data))
        target.counts[-1] += header.events
        return start

    def _now_ms(self) -> int:
        return int(self._transactions.clock.now() * 1000)

    def _open_log(self, part: int) -> LogStream:
        if part not in self._open:
            log = self._open[part] = self.new_log()
            self.parts[part].add_log(log.name)
        return self._open[part]

    def add_output(self, part: int, offset: int, output: EventOutputStream) -> None:
        """Note the offset of an output's event in a part."""
        self._outputs.append((part, offset, output))

    def add_large(self, part: int, write: LargeWrite, header: StreamBlockHeader, columns: bytes) -> int:
        """Add a large event, all of which is durable: an extent, then its own log; return where in the part it is.

        ``columns`` are its key and headers, as the header says; the key is dropped if the stream does not store any.
        """
        assert write.log is not None
        if header.columns & KEYS and not self._transactions.catalog.keeps_keys(self._stream):
            header = msgspec.structs.replace(header, columns=header.columns & ~KEYS)
            columns = columns[keys_size(columns, 1) :]
        target, log = self.parts[part], self._open_log(part)
        del self._open[part]
        extent = pack_extent(write.size, write.span) + columns
        self._extents.append((log, msgspec.structs.replace(header, before=target.counts[-1]), extent))
        target.counts[-1] += header.events
        target.size += BLOCK_HEADER_SIZE + len(extent)
        offset = target.size + BLOCK_HEADER_SIZE
        if header.last_number:
            target.headers.append(header)
        target.add_log(write.log.name)
        target.size += write.span
        return offset

    def settle(self) -> list[TransactionPart]:
        """Make everything durable; return the parts that have events."""
        while self._extents:
            log, header, extent = self._extents[0]
            self._last[log.name] = log.submit(header.pack_at(self._now_ms(), header.before), extent)
            del self._extents[0]
        try:
            for pending in self._last.values():
                pending.result()
        except PenstockError:
            self.is_lost = True
            raise
        return [part for part in self.parts if part.logs]

    def release(self) -> None:
        """Free the allocated size that is not used: the commit may be far away."""
        used = [log for part in self.parts for log in part.logs]
        for log in self._transactions.logs.existing(used):
            log.release()

    def commit(self) -> list[tuple[int, int]]:
        """Commit all parts; return segment and offset of each, and set the pointers of the outputs."""
        used = self.settle()
        if not used:
            self._transactions.catalog.commit(Committed(self._stream, self._transaction))
            return []
        with self._transactions.catalog.lock:
            self.stream_state()
            commit = Committing(self._stream, self._transaction, [], [], self._implicit)
            places = self._transactions.commits.take_over(commit, used)
        self.place(places)
        return places

    def place(self, places: Sequence[tuple[int, int]]) -> None:
        """Set the pointers of the outputs; ``places`` are segment and offset of each part that has events."""
        used = [number for number, part in enumerate(self.parts) if part.logs]
        by_part = dict(zip(used, places, strict=True))
        for part, offset, output in self._outputs:
            segment, start = by_part[part]
            place_at(output, EventPointer(self._stream, segment, start + offset))

    def commit_large(
        self, write: LargeWrite, header: StreamBlockHeader, columns: bytes, position: float
    ) -> EventPointer:
        """Commit a single large event; return its pointer."""
        try:
            with self._transactions.catalog.lock:
                self._find_parts()  # the stream may have been scaled since
                part = self.part_at(position)
                offset = self.add_large(part, write, header, columns)
                [(segment, start)] = self.commit()
        except CommitUnfinished:
            self._transactions.wake()  # maintenance finishes the commit
            raise
        self._is_committed = True
        return EventPointer(self._stream, segment, start + offset)

    def abandon(self, write: LargeWrite) -> None:
        """Let the log of an event be deleted later; takes no lock."""
        if write.log is not None:
            self._transactions.logs.abandon(write.log.name)

    def drop(self) -> None:
        """Delete the logs, and create no more; those of a commit that is on record stay."""
        with self._lock:
            self._is_dropped = True
            if self._transaction not in self._transactions.catalog.commits:
                self._transactions.logs.drop(self._names)

    def drop_unused(self) -> None:
        """Delete the logs of aborted events, and create no more."""
        used = {log for part in self.parts for log in part.logs}
        with self._lock:
            self._is_dropped = True
            self._transactions.logs.drop([name for name in self._names if name not in used])
