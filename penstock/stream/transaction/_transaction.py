"""Transactions: events that become part of a stream together, or not at all.

What a small transaction writes waits in memory. Once that is more than fits into a block, and for large events, it goes
into logs of the transaction, several for each key range that was a segment when it began. Committing is a matter of
``_commits``. A transaction has a lease: without a ping it is aborted when the lease ends. It also ends when its store
does, unless it is prepared: see ``_transactions``.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import numpy as np

from penstock import forks
from penstock.errors import BadArgument, PenstockError, TransactionEnded, TransactionPrepared
from penstock.model import EventPointer
from penstock.ports import uninterrupted
from penstock.stream.format import EXTENT, Attributes, StreamBlockHeader, key_position, keyless_position
from penstock.stream.transaction._buffer import SPILL_SIZE_MAX, TransactionBuffer
from penstock.stream.transaction._prepared import check_timestamp
from penstock.stream.transaction._transaction_logs import TransactionLogs
from penstock.stream.write import (
    CHUNK_SIZE,
    EventOutputStream,
    LargeWrite,
    around_large,
    as_rows,
    check_events,
    place_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import numpy.typing as npt

    from penstock.stream.format import GivenHeaders
    from penstock.stream.serializers import Serializer
    from penstock.stream.transaction._prepared import PreparedTransaction, Status
    from penstock.stream.transaction._transactions import Transactions
    from penstock.stream.write import EventRows

__all__ = ["LocalTransaction", "as_event"]

_COPY_SIZE_MAX: Final = 256 << 10  # larger ones are committed by taking over their logs
_MEMORY_MAX: Final = 1 << 20  # of one that is open; a server has many of them


class LocalTransaction:
    """Events that are written together; threads may share it. Users have it through a ``BegunTransaction``."""

    def __init__(
        self,
        transactions: Transactions,
        stream: str,
        uid: int,
        writer_id: str | None,
        serializer: Serializer[Any] | None,
        *,
        lease: float,
        owner: str | None = None,
    ) -> None:
        forks.guard(self)
        self.id: Final = transactions.new_id()
        self.stream: Final = stream
        self.writer_id: Final = writer_id
        self.owner: Final = owner
        self._transactions, self._lease = transactions, lease
        self._serialize = None if serializer is None else serializer.serialize
        self._lock = threading.RLock()
        self._logs = TransactionLogs(transactions, stream, uid, self.id)
        self._buffer = TransactionBuffer()
        self._writing = WeakSet[EventOutputStream]()  # events that are open; one that was garbage-collected is aborted
        self._status: Status = "open"
        self._prepared: PreparedTransaction | None = None  # from then on the catalog's lock protects it, not this one
        self._why = ""
        self._is_given_up = False  # aborted by its own user: leaving the block raises nothing
        self._deadline = transactions.clock.elapsed() + lease
        transactions.marks.note_activity(stream, uid, writer_id)

    @property
    def status(self) -> Status:
        """Whether it is open, prepared, committed or aborted."""
        with self._lock:
            return self._status_at(self._transactions.clock.elapsed())

    def _status_at(self, now: float) -> Status:
        """Return the status, which is aborted if the lease has expired; the caller holds the lock."""
        self._expire(now)
        if self._status == "prepared" and self._prepared is not None:
            return self._prepared.status
        return self._status

    @property
    def why(self) -> str:
        """The reason why the transaction has ended; empty while it is open."""
        return self._why

    @property
    def lease_left_s(self) -> float:
        """The seconds until it is aborted, unless it is pinged or written to."""
        return max(0.0, self._deadline - self._transactions.clock.elapsed())

    @property
    def _keeps_keys(self) -> bool:
        return self._transactions.catalog.keeps_keys(self.stream)

    def ping(self) -> None:
        """Renew the lease, as every write does."""
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        """Renew the lease; the caller holds the lock."""
        self._deadline = self._check_open() + self._lease
        self._transactions.marks.note_activity(self.stream, self._logs.uid, self.writer_id)

    def write_event(
        self, event: object, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> None:
        """Add an event; readers see it after the commit."""
        data = as_event(event if self._serialize is None else self._serialize(event))
        if len(data) > CHUNK_SIZE:
            with self.begin_write_event(key, headers=headers) as output:
                output.write(data)
            return
        attributes = Attributes.of(key, headers)
        with self._lock:
            self._renew()
            self._add_small(data, attributes, self._position_of(attributes.key, None), None)

    def _add_small(
        self, data: bytes, attributes: Attributes, position: float, output: EventOutputStream | None
    ) -> None:
        self._buffer.add(data, attributes, position, output)
        if self._buffer.size > _COPY_SIZE_MAX or self._buffer.memory > _MEMORY_MAX:
            self._spill()

    def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
        *,
        position: float | None = None,
    ) -> None:
        """Add many events: a list of bytes or an Arrow array, with a key for each, one for all, or none.

        What is no event, or no key, is refused before any of them is added. After any other error nothing of the
        transaction is left.
        """
        check_events(events)
        if self._serialize is not None:
            events = [self._serialize(event) for event in events]
        spare = keyless_position(position, self.id)
        rows, positions = as_rows(events, keys, headers, without=spare)
        self.add_rows(rows, np.full(len(rows), spare) if positions is None else positions)

    def add_rows(self, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
        """Add events, each with its position in the key space; a failure aborts the transaction."""
        with self._lock:
            self._renew()
            try:
                self._add_all(rows, positions)
            except BaseException as error:
                self._abort(f"a batch could not be added ({error})")
                raise

    def _add_all(self, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
        """Add events in order; each large one goes into a log of its own."""
        for small, large in around_large(rows, CHUNK_SIZE):
            self._add_some(rows.part(small.start, small.stop), positions[small])
            if large is not None:
                with self.begin_at(float(positions[large]), rows.attributes(large)) as output:
                    output.write(rows.event(large))

    def _add_some(self, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
        if not len(rows):
            return
        if rows.events.nbytes > _COPY_SIZE_MAX:
            self._spill()  # first: joining the arrays would copy these events
        self._buffer.add_rows(rows, positions)
        if self._buffer.size > _COPY_SIZE_MAX or self._buffer.memory > _MEMORY_MAX:
            self._spill()

    def _position_of(self, key: str | bytes | None, position: float | None) -> float:
        """Return the position of a key, or of an event without one."""
        return keyless_position(position, self.id) if key is None else key_position(key)

    def _spill(self) -> None:
        """Write the buffer into the transaction's logs; a failure aborts, because the logs' content is unknown then."""
        buffer, self._buffer = self._buffer, TransactionBuffer()
        try:
            for part, events in buffer.by_place(self._logs.lows, keeps_keys=self._keeps_keys).items():
                for block in events.blocks(SPILL_SIZE_MAX):
                    header = StreamBlockHeader(count=block.count, columns=block.columns, flush_segments=0)
                    start = self._logs.append(part, header, *block.body)
                    for output, offset in block.outputs:
                        self._logs.add_output(part, start + offset, output)
        except BaseException as error:
            self._abort(f"writing to it failed ({error})")
            raise

    def begin_write_event(
        self,
        key: str | bytes | None = None,
        *,
        headers: GivenHeaders | None = None,
        position: float | None = None,
    ) -> EventOutputStream:
        """Begin an event of any size, to be written as a file; closing it makes it part of the transaction."""
        attributes = Attributes.of(key, headers)
        return self.begin_at(self._position_of(attributes.key, position), attributes)

    def begin_at(self, position: float, attributes: Attributes) -> EventOutputStream:
        """Begin an event at a position in the key space."""
        with self._lock:
            self._renew()
            write = LargeWrite(self._logs.new_large_log, self._transactions.clock)
            output = EventOutputStream(
                write,
                lambda large_write, out: self._add_large(large_write, out, position, attributes),
                self._lose,
                self._logs.abandon,
                check=self.ping,
            )
            self._writing.add(output)
            return output

    def _add_large(self, write: LargeWrite, output: EventOutputStream, position: float, attributes: Attributes) -> None:
        event = write.finish()
        with self._lock:
            self._check_open()
            self._writing.discard(output)
            if event is not None:
                self._add_small(event, attributes, position, output)
                return
            self._spill()
            columns, body = attributes.packed(keeps_key=True)
            header = StreamBlockHeader(kind=EXTENT, columns=columns, count=0, flush_segments=0)
            part = self._logs.part_at(position)
            self._logs.add_output(part, self._logs.add_large(part, write, header, body), output)

    def _lose(self, output: EventOutputStream) -> None:
        """Forget an event that was aborted; its log is deleted with those of the transaction."""
        with self._lock:
            self._writing.discard(output)

    @uninterrupted
    def prepare(self) -> None:
        """Prepare the commit: the transaction outlives this process and the store's owner, and takes no more events.

        Every process that has its id may commit it, alone or with others (:meth:`TransactionalWriter.commit_all`).
        Its lease begins anew, for the last time. Preparing again does nothing.
        """
        with self._lock:
            if self._prepared is not None:
                self._prepared.prepare()
                return
            self._check_closed()
            self._spill()
            try:
                parts = self._logs.settle()
            except PenstockError as error:
                self._abort_if_lost(error)
                raise
            self._logs.release()
            try:
                with self._transactions.catalog.lock:
                    self._logs.stream_state()
                    self._prepared = self._transactions.prepare(
                        transaction=self.id,
                        stream=self.stream,
                        writer=self.writer_id,
                        owner=self.owner,
                        lease=self._lease,
                        parts=parts,
                    )
                    self._status = "prepared"
            except BaseException:
                if self._transactions.catalog.is_failed:  # the record may be durable: keep the logs for the next open
                    self._end("aborted", "its outcome is unknown: open the store again")
                raise
            self._logs.drop_unused()

    def note_end(self, status: Status, why: str) -> None:
        """Note the outcome of a prepared transaction; the caller holds the catalog."""
        self._status, self._why = status, why

    def _check_closed(self) -> None:
        """Refuse a transaction that has ended, or that has open events."""
        self._check_open()
        if self._writing:
            raise BadArgument(f"transaction {self.id} has {len(self._writing)} events that are not closed")

    @uninterrupted
    def commit(self, timestamp: int | None = None) -> None:
        """Make all events part of the stream at once; returns when they are durable and can be read.

        With a ``timestamp`` the writer notes that time, as :meth:`StreamWriter.note_time` does, behind them.
        """
        check_timestamp(timestamp, self.writer_id)
        with self._lock:
            if self._prepared is not None:
                self._logs.place(self._prepared.commit_placed(timestamp))
                return
            self._check_closed()
            try:
                if len(self._buffer) and not self._logs.is_used:
                    self._copy()
                else:
                    self._spill()
                    self._logs.commit()
            except BaseException as error:
                if self.id in self._transactions.catalog.commits:
                    self._end("committed", "its commit is on record, and is finished once the disk lets it")
                self._abort_if_lost(error)
                raise
            self._end("committed", "it was committed")
            self._logs.drop()  # those of events that were aborted
            self._transactions.marks.note_activity(self.stream, self._logs.uid, self.writer_id)
            self._transactions.note_time(self.stream, self._logs.uid, self.writer_id, timestamp)

    def _abort_if_lost(self, error: BaseException) -> None:
        """Abort if events that were added are lost: the transaction could never be committed as a whole."""
        if self._logs.is_lost:
            self._abort(f"writing to it failed ({error})")

    def _copy(self) -> None:
        with self._transactions.catalog.lock:
            current = self._logs.stream_state().current
            contents = self._buffer.contents([segment.low for segment in current], keeps_keys=self._keeps_keys)
            blocks = {current[place].segment_id: content for place, content in contents.items()}
            starts = self._transactions.commits.copy(self.stream, self.id, blocks)
        for segment, block in blocks.items():
            for output, offset in block.outputs:
                place_at(output, EventPointer(self.stream, segment, starts[segment] + offset))

    @uninterrupted
    def abort(self) -> None:
        """Discard all events; aborting again does nothing."""
        with self._lock:
            if self._status == "committed":
                raise TransactionEnded(self.id, reason=self._why)
            self._is_given_up = True
            if self._status == "prepared" and self._prepared is not None:
                self._prepared.abort()
            self._abort("it was aborted")

    def abort_if_expired(self, now: float) -> None:
        """Abort if the lease has expired."""
        with self._lock:
            self._expire(now)

    def _expire(self, now: float) -> None:
        if now > self._deadline:
            self._abort(f"its lease of {self._lease:g} s expired")

    def abort_if_open(self, why: str) -> None:
        """Abort, unless it has ended."""
        with self._lock, suppress(PenstockError):
            self._abort(why)

    def _abort(self, why: str) -> None:
        if self._status == "open":
            self._end("aborted", why)
            self._logs.drop()

    def _end(self, status: Status, why: str) -> None:
        self._status, self._why = status, why
        self._buffer = TransactionBuffer()
        self._transactions.forget(self.id, why if status == "aborted" else None)

    def _check_open(self) -> float:
        """Refuse a transaction that takes no more events; return the time by which that was decided."""
        now = self._transactions.clock.elapsed()
        status = self._status_at(now)
        if status == "prepared":
            raise TransactionPrepared(self.id)
        if status != "open":
            raise TransactionEnded(self.id, reason=self._why)
        return now

    def end_block(self, error: BaseException | None) -> None:
        """Commit at the end of a ``with`` block, abort after an error; a prepared transaction is left as it is."""
        if error is not None:
            with suppress(PenstockError):
                self.abort()
        elif self._prepared is None and self._status != "committed" and not self._is_given_up:
            self.commit()


def as_event(event: object) -> bytes:
    """Return an event as bytes, or refuse it."""
    try:
        return event if type(event) is bytes else bytes(memoryview(event))  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(f"invalid event of type {type(event).__name__}: use bytes, or a serializer") from None
