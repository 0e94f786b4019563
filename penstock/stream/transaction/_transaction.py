"""Transactions: events that become part of a stream together, or not at all.

What a small transaction writes waits in memory. Once that is more than fits into a block, and for large events, it goes
into logs of the transaction, several for each key range that was a segment when it began. Committing is a matter of
``_commit``. A transaction has a lease: if nobody pings it, it is aborted. It also ends when its
store does, unless it is prepared: see ``_prepared``.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NoReturn
from weakref import WeakSet

import msgspec
import numpy as np

from penstock import forks
from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    NoSuchStream,
    PenstockError,
    StoreClosed,
    StreamSealed,
    TransactionEnded,
    TransactionPrepared,
)
from penstock.log import PlogSizes
from penstock.model import EventPointer, as_list, check_kind, check_many, check_whole
from penstock.ports import uninterrupted
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    EXTENT,
    KEYS,
    Attributes,
    BlockHeader,
    Committed,
    Committing,
    key_position,
    keys_size,
    pack_extent,
)
from penstock.stream.transaction._buffer import Waiting
from penstock.stream.transaction._commit import LOGS_MAX, TransactionPart, commit_copies, commit_logs
from penstock.stream.transaction._prepared import (
    LEASE_MAX_S,
    PreparedTransaction,
    abort_prepared,
    check_timestamp,
    commit_prepared,
    note_time,
    record_prepared,
)
from penstock.stream.write import CHUNK_SIZE, EventOutputStream, LargeWrite, array_lengths, as_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Any, Self

    import numpy.typing as npt

    from penstock.log import LogStream
    from penstock.log._stream import PendingLogAppend
    from penstock.ports import Bytes
    from penstock.stream.catalog import StreamState
    from penstock.stream.engine import StreamStore
    from penstock.stream.format import GivenHeaders, Prepared
    from penstock.stream.serializers import Serializer
    from penstock.stream.write import Rows

__all__ = [
    "LEASE_MAX_S",
    "EndedTransaction",
    "Status",
    "Transaction",
    "TransactionLogs",
    "TransactionalWriter",
    "as_event",
    "check_ids",
]

_COPY_SIZE_MAX: Final = 256 << 10  # what is committed by copying it
_LARGE_PLOGS: Final = PlogSizes(first=(2 << 20) + 4096, largest=256 << 20)  # two chunks at first
Status = Literal["open", "prepared", "committed", "aborted"]


class TransactionLogs:
    """The logs of one transaction, by key range: blocks of small events, and large events.

    Without the id of a ``transaction`` they are those of a large event by itself.
    """

    def __init__(self, store: StreamStore, stream: str, uid: int, transaction: str | None = None) -> None:
        self._store, self._stream, self._implicit = store, stream, transaction is None
        self._transaction = transaction or store.new_transaction_id()
        self.uid: Final = uid
        self._lock = threading.Lock()  # held while a log is made, which any thread that writes a large event may do
        self._is_dropped = False
        self._find_parts()
        self._open: dict[int, LogStream] = {}  # which take small events, by part
        self._last: dict[str, PendingLogAppend] = {}
        self._extents: list[tuple[LogStream, BlockHeader, bytes]] = []  # to be written with the time of the commit
        self._names: list[str] = []
        self._outputs: list[tuple[int, int, EventOutputStream]] = []  # of which part, where in it

    def _find_parts(self) -> None:
        with self._store.catalog.lock:
            self.parts = [TransactionPart(one.low, one.high) for one in self.stream_state().current]
        self._lows = [part.low for part in self.parts]

    def stream_state(self) -> StreamState:
        """Return the stream that the transaction is of, which may have gone since; the caller holds the catalog."""
        state = self._store.catalog.stream(self._stream)
        if state.uid != self.uid:
            raise NoSuchStream(self._stream)  # another one of the same name
        if state.sealed:
            raise StreamSealed(self._stream)
        return state

    @property
    def is_used(self) -> bool:
        """Whether there is any log."""
        return bool(self._names)

    def new_log(self, sizes: PlogSizes | None = None) -> LogStream:
        """Make a log that belongs to the transaction."""
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
            return self._store.new_log(name, sizes)

    def new_large_log(self) -> LogStream:
        """Make a log for a large event: with few plogs, because each costs several syncs."""
        return self.new_log(_LARGE_PLOGS)

    @property
    def lows(self) -> Sequence[float]:
        """Where each part begins in the key space."""
        return self._lows

    def part_at(self, position: float) -> int:
        """Return which part has a place in the key space."""
        return bisect_right(self._lows, position) - 1

    def append(self, part: int, header: BlockHeader, *data: Bytes) -> int:
        """Append a block to a part; return where in the part it begins."""
        log, one = self._open_log(part), self.parts[part]
        self._last[log.name] = log.submit(header.pack_at(self._now_ms(), one.counts[-1]), *data)
        start = one.size
        one.size += BLOCK_HEADER_SIZE + sum(map(len, data))
        one.counts[-1] += header.events
        return start

    def _now_ms(self) -> int:
        return int(self._store.clock.now() * 1000)

    def _open_log(self, part: int) -> LogStream:
        if part not in self._open:
            log = self._open[part] = self.new_log()
            self.parts[part].add_log(log.name)
        return self._open[part]

    def add_output(self, part: int, offset: int, output: EventOutputStream) -> None:
        """Note where in a part the event of an output is."""
        self._outputs.append((part, offset, output))

    def add_large(self, part: int, write: LargeWrite, header: BlockHeader, columns: bytes) -> int:
        """Add a large event, all of which is durable: an extent, then its own log; return where in the part it is.

        ``columns`` are its key and headers, as the header says; the key is dropped if the stream does not store any.
        """
        assert write.log is not None
        if header.columns & KEYS and not self._store.keeps_keys(self._stream):
            header = msgspec.structs.replace(header, columns=header.columns & ~KEYS)
            columns = columns[keys_size(columns, 1) :]
        one, log = self.parts[part], self._open_log(part)
        del self._open[part]
        extent = pack_extent(write.size, write.span) + columns
        self._extents.append((log, msgspec.structs.replace(header, before=one.counts[-1]), extent))
        one.counts[-1] += header.events
        one.size += BLOCK_HEADER_SIZE + len(extent)
        offset = one.size + BLOCK_HEADER_SIZE
        if header.last:
            one.headers.append(header)
        one.add_log(write.log.name)
        one.size += write.span
        return offset

    def settle(self) -> list[TransactionPart]:
        """See everything durable; return the parts that have anything."""
        while self._extents:
            log, header, extent = self._extents[0]
            self._last[log.name] = log.submit(header.pack_at(self._now_ms(), header.before), extent)
            del self._extents[0]
        for pending in self._last.values():
            pending.result()
        return [part for part in self.parts if part.logs]

    def release(self) -> None:
        """Give back the allocated size that was not used, because a commit may be long in coming."""
        used = [log for part in self.parts for log in part.logs]
        for log in self._store.existing_logs(used):
            log.release()

    def commit(self) -> list[tuple[int, int]]:
        """Make all of it part of the stream; return segment and offset of each part, and tell the outputs."""
        used = self.settle()
        if not used:
            self._store.catalog.commit(Committed(self._stream, self._transaction))
            return []
        with self._store.catalog.lock:
            self.stream_state()
            commit = Committing(self._stream, self._transaction, [], [], self._implicit)
            places = commit_logs(self._store, commit, used)
        self.place(places)
        return places

    def place(self, places: Sequence[tuple[int, int]]) -> None:
        """Tell the outputs where their events are; ``places`` are segment and offset of each part that has anything."""
        used = [number for number, part in enumerate(self.parts) if part.logs]
        by_part = dict(zip(used, places, strict=True))
        for part, offset, output in self._outputs:
            segment, start = by_part[part]
            output.place_at(EventPointer(self._stream, segment, start + offset))

    def commit_large(self, write: LargeWrite, header: BlockHeader, columns: bytes, position: float) -> EventPointer:
        """Make one large event, all that there is, part of the stream; return where it is."""
        try:
            with self._store.catalog.lock:
                self._find_parts()  # the stream may have been scaled since
                part = self.part_at(position)
                offset = self.add_large(part, write, header, columns)
                [(segment, start)] = self.commit()
        except CommitUnfinished:
            self._store.wake_upkeep()  # which is going to finish it
            raise
        return EventPointer(self._stream, segment, start + offset)

    def abandon(self, write: LargeWrite) -> None:
        """Let the log of an event be deleted some time later; takes no lock."""
        if write.log is not None:
            self._store.abandoned.append(write.log.name)

    def drop(self) -> None:
        """Delete the logs that are there, and make no more; those of a commit that is on record stay."""
        with self._lock:
            self._is_dropped = True
            if self._transaction not in self._store.catalog.commits:
                self._store.drop_logs(self._names)

    def drop_unused(self) -> None:
        """Delete the logs of events that were aborted, and make no more."""
        used = {log for part in self.parts for log in part.logs}
        with self._lock:
            self._is_dropped = True
            self._store.drop_logs([name for name in self._names if name not in used])


class Transaction:
    """Events that are written together. Get one from :meth:`TransactionalWriter.begin`; threads may share it."""

    def __init__(
        self,
        store: StreamStore,
        stream: str,
        uid: int,
        writer_id: str | None,
        serializer: Serializer[Any] | None,
        *,
        lease: float,
    ) -> None:
        forks.guard(self)
        self.id: Final = store.new_transaction_id()
        self.stream: Final = stream
        self.writer_id: Final = writer_id
        self._store, self._lease = store, lease
        self._serialize = None if serializer is None else serializer.serialize
        self._lock = threading.RLock()
        self._logs = TransactionLogs(store, stream, uid, self.id)
        self._waiting = Waiting()
        self._writing = WeakSet[EventOutputStream]()  # of those that nobody has any more, nothing becomes
        self._status: Status = "open"
        self._prepared: PreparedTransaction | None = None  # then who ends it holds the catalog, not the lock
        self._why = ""
        self._is_given_up = False  # by whoever has it, so that nobody need be told
        self._deadline = store.clock.elapsed() + lease
        store.marks.note_activity(stream, uid, writer_id)

    @property
    def status(self) -> Status:
        """Whether it is open, prepared, committed or aborted."""
        with self._lock:
            self.abort_if_expired(self._store.clock.elapsed())
            if self._status == "prepared" and self._prepared is not None:
                return self._prepared.status
            return self._status

    @property
    def why(self) -> str:
        """Why it has ended, if it has."""
        return self._why

    @property
    def _keeps_keys(self) -> bool:
        return self._store.keeps_keys(self.stream)

    def ping(self) -> None:
        """Let the lease begin anew, as writing does."""
        with self._lock:
            self._check_open()
            self._deadline = self._store.clock.elapsed() + self._lease
        self._store.marks.note_activity(self.stream, self._logs.uid, self.writer_id)

    def write_event(
        self, event: object, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> None:
        """Add an event; nobody sees it before the commit."""
        data = as_event(event if self._serialize is None else self._serialize(event))
        if len(data) > CHUNK_SIZE:
            with self.begin_write_event(key, headers=headers) as output:
                output.write(data)
            return
        attributes = Attributes.of(key, headers)
        with self._lock:
            self.ping()
            self._add_small(data, attributes, self._position_of(attributes.key), None)

    def _add_small(
        self, data: bytes, attributes: Attributes, position: float, output: EventOutputStream | None
    ) -> None:
        self._waiting.add(data, attributes, position, output)
        if self._waiting.size > _COPY_SIZE_MAX:
            self._spill()

    def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
    ) -> None:
        """Add many events: a list of bytes or an Arrow array, with a key for each, one for all, or none.

        What is no event, or no key, is refused before any of them is added. After any other error nothing of the
        transaction is left.
        """
        check_many("events", events, "bytes, or an Arrow array")
        if self._serialize is not None:
            events = [self._serialize(event) for event in events]
        spare = self._position_of(None)
        rows, positions = as_rows(events, keys, headers, without=spare)
        self.add_rows(rows, np.full(len(rows), spare) if positions is None else positions)

    def add_rows(self, rows: Rows, positions: npt.NDArray[np.float64]) -> None:
        """Add events, each with its place in the key space; if that fails the transaction is aborted, not half full."""
        with self._lock:
            self.ping()
            try:
                self._add_all(rows, positions)
            except BaseException as error:
                self._abort(f"a batch could not be added ({error})")
                raise

    def _add_all(self, rows: Rows, positions: npt.NDArray[np.float64]) -> None:
        """Add events in their order; large ones go into logs of their own."""
        done = 0
        large = np.flatnonzero(array_lengths(rows.events) > CHUNK_SIZE).tolist() if len(rows) else []
        for place in (*large, len(rows)):
            self._add_some(rows.part(done, place), positions[done:place])
            if place < len(rows):
                with self.begin_at(float(positions[place]), rows.attributes(place)) as output:
                    output.write(memoryview(rows.events[place].as_buffer()))
            done = place + 1

    def _add_some(self, rows: Rows, positions: npt.NDArray[np.float64]) -> None:
        if not len(rows):
            return
        if rows.events.nbytes > _COPY_SIZE_MAX:
            self._spill()  # first, so that nothing is copied only to be in one array with these
        self._waiting.add_rows(rows, positions)
        if self._waiting.size > _COPY_SIZE_MAX:
            self._spill()

    def _position_of(self, key: str | bytes | None) -> float:
        """Return where a key belongs; events without one stay together."""
        return key_position(self.id if key is None else key)

    def _spill(self) -> None:
        """Put what waits in memory into the transaction's logs; where that fails, nobody knows what is in them."""
        waiting, self._waiting = self._waiting, Waiting()
        try:
            for part, events in waiting.by_place(self._logs.lows, keeps_keys=self._keeps_keys).items():
                for block in events.blocks(CHUNK_SIZE):
                    header = BlockHeader(count=block.count, columns=block.columns, parts=0)
                    start = self._logs.append(part, header, *block.body)
                    for output, offset in block.outputs:
                        self._logs.add_output(part, start + offset, output)
        except BaseException as error:
            self._abort(f"writing to it failed ({error})")
            raise

    def begin_write_event(
        self, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> EventOutputStream:
        """Begin an event of any size, to be written as a file; closing it makes it part of the transaction."""
        attributes = Attributes.of(key, headers)
        return self.begin_at(self._position_of(attributes.key), attributes)

    def begin_at(self, position: float, attributes: Attributes) -> EventOutputStream:
        """Begin an event whose key belongs there."""
        with self._lock:
            self.ping()
            write = LargeWrite(self._logs.new_large_log, self._store.clock)
            output = EventOutputStream(
                write,
                lambda one, out: self._add_large(one, out, position, attributes),
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
            header = BlockHeader(kind=EXTENT, columns=columns, count=0, parts=0)
            part = self._logs.part_at(position)
            self._logs.add_output(part, self._logs.add_large(part, write, header, body), output)

    def _lose(self, output: EventOutputStream) -> None:
        """Forget an event that was aborted; its log goes with the transaction."""
        with self._lock:
            self._writing.discard(output)

    @uninterrupted
    def prepare(self) -> None:
        """Let it outlive this process and the store's owner: it takes no more events, and is committed or aborted.

        Anybody may do that who has its id, alone or with others (:meth:`TransactionalWriter.commit_all`). Its lease
        begins anew, for the last time. Preparing again does nothing.
        """
        with self._lock:
            if self._prepared is not None:
                self._prepared.prepare()
                return
            self._check_closed()
            self._spill()
            parts = self._logs.settle()
            self._logs.release()
            try:
                with self._store.catalog.lock:
                    self._logs.stream_state()
                    self._prepared = record_prepared(
                        self._store,
                        transaction=self.id,
                        stream=self.stream,
                        writer=self.writer_id,
                        lease=self._lease,
                        parts=parts,
                    )
                    self._status = "prepared"
            except BaseException:
                if self._store.catalog.is_failed:  # then its logs may be wanted once the store is opened again
                    self._end("aborted", "nobody knows whether it is prepared: open the store again")
                raise
            self._logs.drop_unused()

    def note_end(self, status: Status, why: str) -> None:
        """Note how it ended after it was prepared, whoever did it; the caller holds the catalog."""
        self._status, self._why = status, why

    def _check_closed(self) -> None:
        """Refuse what has ended, or has events that are still being written."""
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
                if len(self._waiting) and not self._logs.is_used:
                    self._copy()
                else:
                    self._spill()
                    self._logs.commit()
            except BaseException:
                if self.id in self._store.catalog.commits:
                    self._end("committed", "its commit is on record, and is finished once the disk lets it")
                raise
            self._end("committed", "it was committed")
            self._logs.drop()  # those of events that were aborted
            self._store.marks.note_activity(self.stream, self._logs.uid, self.writer_id)
            note_time(self._store, self.stream, self._logs.uid, self.writer_id, timestamp)

    def _copy(self) -> None:
        store = self._store
        with store.catalog.lock:
            current = self._logs.stream_state().current
            by_place = self._waiting.by_place([one.low for one in current], keeps_keys=self._keeps_keys)
            blocks = {current[place].segment_id: events.in_one() for place, events in by_place.items()}
            starts = commit_copies(store, self.stream, self.id, blocks)
        for segment, block in blocks.items():
            for output, offset in block.outputs:
                output.place_at(EventPointer(self.stream, segment, starts[segment] + offset))

    @uninterrupted
    def abort(self) -> None:
        """Drop all of it; aborting again does nothing."""
        with self._lock:
            if self._status == "committed":
                raise TransactionEnded(self.id, reason=self._why)
            self._is_given_up = True
            if self._status == "prepared" and self._prepared is not None:
                self._prepared.abort()
            self._abort("it was aborted")

    def abort_if_expired(self, now: float) -> None:
        """Drop all of it if nobody has pinged for as long as the lease."""
        with self._lock:
            if now > self._deadline:
                self._abort(f"nobody pinged it for {self._lease:g} s")

    def abort_if_open(self, why: str) -> None:
        """Drop all of it, because nobody needs it any more."""
        with self._lock, suppress(PenstockError):
            self._abort(why)

    def _abort(self, why: str) -> None:
        if self._status == "open":
            self._end("aborted", why)
            self._logs.drop()

    def _end(self, status: Status, why: str) -> None:
        self._status, self._why = status, why
        self._waiting = Waiting()
        self._store.forget_transaction(self)

    def _check_open(self) -> None:
        status = self.status
        if status == "prepared":
            raise TransactionPrepared(self.id)
        if status != "open":
            raise TransactionEnded(self.id, reason=self._why)

    def __enter__(self) -> Self:
        """Commit at the end of the block, or abort if it ends with an exception."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or abort; who prepared it leaves that to others."""
        if error is not None:
            with suppress(PenstockError):
                self.abort()
        elif self._prepared is None and self._status != "committed" and not self._is_given_up:
            self.commit()


class EndedTransaction:
    """A transaction of which only its end is known: whatever it is asked for is too late."""

    def __init__(self, transaction: str, status: Status, why: str | None = None) -> None:
        self.id: Final = transaction
        self.status: Final = status
        self._why = why or f"it was {status}"

    def _refuse(self) -> NoReturn:
        raise TransactionEnded(self.id, reason=self._why)

    def ping(self) -> None:
        """Refuse."""
        self._refuse()

    def write_event(self, event: object, key: str | bytes | None = None, *, headers: object = None) -> None:
        """Refuse."""
        del event, key, headers
        self._refuse()

    def write_batch(self, events: object, keys: object = None, headers: object = None) -> None:
        """Refuse."""
        del events, keys, headers
        self._refuse()

    def prepare(self) -> None:
        """Refuse."""
        self._refuse()

    def begin_write_event(self, key: str | bytes | None = None, *, headers: object = None) -> NoReturn:
        """Refuse."""
        del key, headers
        self._refuse()

    def commit(self, timestamp: int | None = None) -> None:
        """Refuse."""
        del timestamp
        self._refuse()

    def abort(self) -> None:
        """Refuse, unless it was aborted."""
        if self.status != "aborted":
            self._refuse()


class TransactionalWriter:
    """Begins transactions; get one from :meth:`Store.transactional_writer`.

    It is of the stream with this ``uid``: when that is deleted, another of the same name is none of its business.
    """

    def __init__(
        self, store: StreamStore, stream: str, uid: int, writer_id: str | None, serializer: Serializer[Any] | None
    ) -> None:
        forks.guard(self)
        self.stream, self.writer_id = stream, writer_id
        self._uid: Final = uid
        self._store, self._serializer = store, serializer
        self._closed = False

    @property
    def stream_uid(self) -> int:
        """The number of its stream: another may get the name later."""
        return self._uid

    def begin(self, lease: float = 30.0) -> Transaction:
        """Begin a transaction, which is aborted when nobody pings it, or writes, for ``lease`` seconds."""
        _check_lease(lease)
        if self._closed:
            raise StoreClosed(f"the transactional writer of stream {self.stream!r}")
        transaction = Transaction(
            self._store, self.stream, self._uid, self.writer_id, self._serializer, lease=float(lease)
        )
        self._store.add_transaction(transaction)
        return transaction

    def get(self, transaction: str) -> Transaction | PreparedTransaction | EndedTransaction:
        """Return a transaction by its id; of one that has ended, how."""
        return self._store.transaction(transaction)

    @property
    def last_number(self) -> int | None:
        """The highest number under which :meth:`commit_all` has committed with this writer id; None if none was.

        It survives restarts. It is no event number: those of :attr:`StreamWriter.last_number` are others, also under
        the same id.
        """
        if self.writer_id is None:
            return None
        with self._store.catalog.lock:
            last = self._state().last_batches.get(self.writer_id)
            return None if last is None else last.number

    def _state(self) -> StreamState:
        state = self._store.catalog.stream(self.stream)
        if state.uid != self._uid:
            raise NoSuchStream(self.stream)  # another one of the same name
        return state

    @uninterrupted
    def commit_all(self, ids: Iterable[str], number: int | None = None, timestamp: int | None = None) -> bool:
        """Commit prepared transactions of this stream as one: all their events can be read at once, in this order.

        A ``number``, higher with every call, is kept under the writer's id together with the events. If one as high was
        there before, nothing is committed, these transactions are aborted, and False is returned; the time that was
        given with that one is noted, if a crash came before. Otherwise all other transactions of this writer id are
        aborted, open or prepared: they were left by attempts that failed.
        """
        ids = check_ids(ids, number, self.writer_id)
        check_timestamp(timestamp, self.writer_id)
        if self._closed:
            raise StoreClosed(f"the transactional writer of stream {self.stream!r}")
        with self._store.catalog.lock:
            last = self._state().last_batches.get(self.writer_id or "")
            is_new = number is None or last is None or number > last.number
            left = self._still_open(ids) if is_new and number is not None else []
            if is_new:
                commit_prepared(self._store, self.stream, ids, writer=self.writer_id, number=number, time=timestamp)
        for one in left:
            one.abort_if_open(f"others of {self.writer_id} were committed as number {number}")
        if not is_new:
            self._abort_all(ids, f"number {number} of {self.writer_id} was committed before")
        self._store.marks.note_activity(self.stream, self._uid, self.writer_id)
        time = timestamp if is_new or last is None else last.time
        note_time(self._store, self.stream, self._uid, self.writer_id, time)
        return is_new

    def _still_open(self, ids: Sequence[str]) -> list[Transaction]:
        """Return what other transactions of this writer id are open; the caller holds the catalog."""
        mine = (self.stream, self.writer_id)
        known = self._store.transactions.values()
        return [one for one in known if (one.stream, one.writer_id) == mine and one.id not in ids]

    def _abort_all(self, ids: Iterable[str], why: str) -> None:
        """Abort those transactions of this stream that have not ended: what they hold is there already."""
        store = self._store
        with store.catalog.lock:
            mine = [one for one in ids if self._is_mine(store.catalog.prepared.get(one) or store.transactions.get(one))]
            still_open = [store.transactions[one] for one in mine if one not in store.catalog.prepared]
            abort_prepared(store, mine, why)
        for transaction in still_open:  # each has a lock of its own, which is taken before the catalog's
            with suppress(TransactionEnded):
                transaction.abort()

    def _is_mine(self, found: Prepared | Transaction | None) -> bool:
        return found is not None and found.stream == self.stream

    def close(self) -> None:
        """Begin no more transactions, and give no more time under this id; those that are open end by themselves."""
        self._closed = True
        if self.writer_id is not None:
            self._store.marks.shut_down(self.stream, self._uid, self.writer_id)

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _check_lease(lease: object) -> None:
    if not isinstance(lease, int | float) or not 0 < lease <= LEASE_MAX_S:
        raise BadArgument(f"a lease of {lease!r} s cannot be: from above 0 to {LEASE_MAX_S:g}")


def check_ids(ids: Iterable[str], number: object, writer_id: str | None) -> list[str]:
    """Return the ids of transactions as a list; what cannot be committed together, under this number, is refused."""
    found = as_list("ids", ids, "transaction ids, texts")
    for one in found:
        check_kind("ids", one, str)
    if len(set(found)) != len(found):
        raise BadArgument("ids cannot be these: a transaction is there twice")
    if number is not None:
        check_whole("number", number)
        if writer_id is None:
            raise BadArgument("a number is kept under the writer's id: open the transactional writer with one")
    return found


def as_event(event: object) -> bytes:
    """Return an event as bytes; what is none is refused."""
    try:
        return event if type(event) is bytes else bytes(memoryview(event))  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(f"{type(event).__name__} is no event: give bytes, or use a serializer") from None
