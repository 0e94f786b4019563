"""The client's side of a transaction: the transaction is in the process that has the store open; this sends its events.

Single events are buffered here and sent together, when there are enough of them, when the last message was a while
ago, or when the transaction is committed. So an event of a transaction that has ended may be refused later. A batch is
sent in columns: the lengths of the events, their bytes, keys and headers, and the positions of the keys in the key
space. A message holds as many events as a block would.

When the process that has the store open ends, its open transactions are aborted; prepared ones stay.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock import forks
from penstock.client._transaction_rows import send_rows
from penstock.errors import BadArgument, NotPrepared, PenstockError, StoreClosed, StoreUnreachable, TransactionEnded
from penstock.ports import SystemClock
from penstock.retry import Retry
from penstock.store import OpenTransaction, TransactionalWriter
from penstock.stream.format import Attributes, key_position, keyless_position
from penstock.stream.transaction import (
    SPILL_SIZE_MAX,
    EndedTransaction,
    TransactionById,
    as_event,
    check_ids,
    check_timestamp,
)
from penstock.stream.write import (
    CHUNK_SIZE,
    EventOutputStream,
    LargeWrite,
    around_large,
    as_rows,
    check_events,
    place_at,
)
from penstock.wire.operations import transactions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from penstock.client._store import RemoteStore
    from penstock.model import EventPointer
    from penstock.ports import Bytes
    from penstock.stream.format import GivenHeaders
    from penstock.stream.serializers import Serializer
    from penstock.stream.transaction import Status
    from penstock.stream.write import EventRows
    from penstock.wire.operations import Operation

__all__ = ["RemoteTransaction", "RemoteTransactionalWriter"]

_BUFFER_SIZE: Final = 256 << 10
_BUFFER_COUNT: Final = 10_000
_SEND_EVERY_S: Final = 0.1  # an event that comes later than this after the last message is sent: it renews the lease


class RemoteTransaction(OpenTransaction):
    """A transaction that another process has. :class:`penstock.OpenTransaction` describes the methods."""

    def __init__(
        self, store: RemoteStore, transaction: str, writer_id: str | None, serializer: Serializer[Any] | None
    ) -> None:
        forks.guard(self)
        self._id, self._store, self._writer_id = transaction, store, writer_id
        self._serialize = None if serializer is None else serializer.serialize
        self._lock = threading.RLock()
        self._events: list[bytes] = []
        self._attributes: list[Attributes] = []
        self._size = 0
        self._sent_at = -math.inf  # by the monotonic clock
        self._outputs: dict[int, EventOutputStream] = {}  # those that want to know where they will be
        self._writing = 0
        self._is_prepared = False
        self._is_broken = False  # not all that was written may have been sent
        self._lost: Final[deque[_OutgoingEvent]] = deque()  # events whose files were garbage collected
        self._is_given_up = False

    def _call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        return self._store.connection.call(call)

    @property
    def id(self) -> str:
        return self._id

    @property
    def status(self) -> Status:
        found: Status = self._call(transactions.Status(self.id))
        return found

    def ping(self) -> None:
        self._call(transactions.Ping(self.id))

    def write_event(
        self, event: object, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> None:
        data = as_event(event if self._serialize is None else self._serialize(event))
        attributes = Attributes.of(key, headers)
        if len(data) > CHUNK_SIZE:
            with self.begin_write_event(key, headers=headers) as output:
                output.write(data)
            return
        with self._lock:
            self._events.append(data)
            self._attributes.append(attributes)
            self._size += len(data) + attributes.size
            is_full = self._size > _BUFFER_SIZE or len(self._events) >= _BUFFER_COUNT
            if is_full or time.monotonic() - self._sent_at > _SEND_EVERY_S:
                self._send()  # the first finds out at once whether it is open at all

    def _send(self) -> None:
        events, attributes = self._events, self._attributes
        self._events, self._attributes, self._size = [], [], 0
        if not events:
            return
        try:
            headers = [None if event.headers is None else list(event.headers) for event in attributes]
            self._call(transactions.WriteEvents(self.id, events, [event.key for event in attributes], headers))
        except BaseException as error:
            if len(events) > 1 or isinstance(error, StoreUnreachable):  # else the caller knows which event is missing
                self._is_broken = True
            self._sent_at = -math.inf  # and the next one is refused at once, too, if it is
            raise
        self._sent_at = time.monotonic()

    def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
        *,
        position: float | None = None,
    ) -> None:
        check_events(events)
        if self._serialize is not None:
            events = [self._serialize(event) for event in events]
        spare = keyless_position(position, self.id)
        rows, positions = as_rows(events, keys, headers, without=spare)
        with self._lock:
            self._send()
            try:
                self._send_all(rows, np.full(len(rows), spare) if positions is None else positions)
            except TransactionEnded:
                raise
            except BaseException:
                with suppress(PenstockError):
                    self.abort()  # or half a batch might be committed
                self._is_given_up = False
                self._is_broken = True
                raise

    def _send_all(self, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
        """Send events in their order; large ones by themselves."""
        if not len(rows):
            self._call(transactions.WriteBatch(self.id, b"", b"", b"", 0, b""))  # an error if it is not open
            return
        for small, large in around_large(rows, CHUNK_SIZE):
            self._send_some(rows.part(small.start, small.stop), positions[small])
            if large is not None:
                with self._begin_at(float(positions[large]), rows.attributes(large)) as output:
                    output.write(rows.event(large))

    def _send_some(self, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
        """Send events none of which is large, as many in a message as would make a block."""
        if not len(rows):
            return
        for first, last in pairwise(rows.block_cuts(SPILL_SIZE_MAX)):
            send_rows(self._store.connection, self.id, rows.part(first, last), positions[first:last])

    def begin_write_event(
        self,
        key: str | bytes | None = None,
        *,
        headers: GivenHeaders | None = None,
        position: float | None = None,
    ) -> EventOutputStream:
        attributes = Attributes.of(key, headers)
        place = keyless_position(position, self.id) if key is None else key_position(key)
        return self._begin_at(place, attributes)

    def _begin_at(self, position: float, attributes: Attributes) -> EventOutputStream:
        self.ping()
        upload = _OutgoingEvent(self, position, attributes)
        write = LargeWrite(upload.open, SystemClock())
        with self._lock:
            self._writing += 1
        return EventOutputStream(write, upload.finish, upload.abort, upload.abandon, check=self.ping)

    def _add_output(self, number: int, output: EventOutputStream | None) -> None:
        """Note that an event was ended: it is part of the transaction, unless it was aborted."""
        with self._lock:
            self._writing -= 1
            if output is not None:
                self._outputs[number] = output

    def _upload(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation about an event that is being sent, behind the small ones before it."""
        with self._lock:
            self._send()
            return self._call(call)

    def prepare(self) -> None:
        with self._lock:
            self._send_rest()
            self._sent_at = -math.inf  # the next event is refused at once
            self._call(transactions.Prepare(self.id))
            self._is_prepared = True

    def _send_rest(self) -> None:
        if self._is_broken:
            raise TransactionEnded(self.id, reason="some events could not be sent")
        self._drop_lost()
        if self._writing:
            raise BadArgument(f"transaction {self.id} has {self._writing} events that are not closed")
        self._send()

    def commit(self, timestamp: int | None = None) -> None:
        check_timestamp(timestamp, self._writer_id)
        with self._lock:
            self._send_rest()
            self._sent_at = -math.inf  # the next event is refused at once
            numbers = list(self._outputs)
            for number, pointer in zip(numbers, self._commit(timestamp, numbers), strict=True):
                output = self._outputs.pop(number)
                if pointer is not None:
                    place_at(output, pointer)

    def _commit(self, timestamp: int | None, numbers: list[int]) -> list[EventPointer | None]:
        retry = Retry()
        while True:
            try:
                found: list[EventPointer | None] = self._call(transactions.Commit(self.id, timestamp, numbers))
            except StoreUnreachable as error:
                status = self._status_now()
                if status == "committed":  # where its events are, only the lost answer said
                    return [None] * len(numbers)
                if status != "prepared":  # then it has outlived the process that was to commit it
                    raise
                retry.after(error)
            else:
                return found

    def _status_now(self) -> Status | None:
        """Return its status after the connection was lost; None if it cannot be found out."""
        try:
            return self.status
        except PenstockError:
            return None

    def abort(self) -> None:
        self._is_given_up = True
        with self._lock:
            self._events, self._attributes, self._size = [], [], 0
            self._sent_at = -math.inf  # the next event is refused at once
            self._call(transactions.Abort(self.id, list(self._outputs)))
            self._outputs = {}
            self._drop_lost()

    def _drop_lost(self) -> None:
        """Drop events whose files were garbage collected."""
        while self._lost:
            self._lost.popleft().abort()

    def __enter__(self) -> Self:
        """Commit at the end of the block, or abort if it ends with an exception."""
        return self

    @forks.silent_in_child
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, unless it was prepared; or abort."""
        if error is not None:
            with suppress(PenstockError):
                self.abort()
        elif not self._is_given_up and not self._is_prepared:
            self._commit_unless_done()

    def _commit_unless_done(self) -> None:
        """Commit, unless the block did; asking for the status first would hide why it has ended."""
        try:
            self.commit()
        except TransactionEnded:
            if self.status != "committed":
                raise


class _OutgoingEvent:
    """A large event of a transaction that is being sent."""

    name: Final = "an event of a transaction"

    def __init__(self, transaction: RemoteTransaction, position: float, attributes: Attributes) -> None:
        self._transaction, self._position, self._attributes = transaction, position, attributes
        self._number: int | None = None

    def open(self) -> _OutgoingEvent:
        """Begin the event on the server."""
        headers = self._attributes.headers
        sent = None if headers is None else list(headers)
        self._number = self._transaction._upload(
            transactions.BeginEvent(self._transaction.id, self._position, self._attributes.key, sent)
        )
        return self

    @property
    def number(self) -> int:
        """The number of the event on the server, once it was opened there."""
        assert self._number is not None, "it was opened"
        return self._number

    def submit(self, *data: Bytes) -> _OutgoingEvent:
        """Send a chunk; its head is made on the server."""
        self._transaction._upload(transactions.WriteChunk(self._transaction.id, self.number, bytes(data[-1])))
        return self

    def result(self) -> int:
        """Return at once: the chunk was sent, and the commit makes it durable."""
        return 0

    def finish(self, write: LargeWrite, output: EventOutputStream) -> None:
        """Make the event part of the transaction."""
        event = write.finish()
        if event is not None:
            self.open().submit(event)
        self._transaction._upload(transactions.EndEvent(self._transaction.id, self.number))
        self._transaction._add_output(self.number, output)

    def abort(self, output: EventOutputStream | None = None) -> None:
        """Drop the event; the transaction can still be committed."""
        del output
        self._transaction._add_output(0, None)
        if self._number is not None:
            with suppress(PenstockError):
                self._transaction._upload(transactions.DropEvent(self._transaction.id, self._number))

    def abandon(self, write: LargeWrite) -> None:
        """Drop the event when the transaction is next called; this takes no lock."""
        del write
        self._transaction._lost.append(self)


class RemoteTransactionalWriter(forks.Handle, TransactionalWriter):
    """Begins transactions in another process. :class:`penstock.TransactionalWriter` describes the methods."""

    def __init__(
        self, store: RemoteStore, stream: str, writer_id: str | None, serializer: Serializer[Any] | None
    ) -> None:
        forks.guard(self)
        self._stream, self._writer_id = stream, writer_id
        self._store, self._serializer = store, serializer
        self._closed = False
        uid: int = store.connection.call(transactions.OpenTransactions(stream, writer_id))
        self._of_stream = (stream, uid, writer_id)

    @property
    def stream(self) -> str:
        return self._stream

    @property
    def writer_id(self) -> str | None:
        return self._writer_id

    def begin(self, lease: float = 30.0) -> RemoteTransaction:
        if self._closed:
            raise StoreClosed(f"the transactional writer of stream {self.stream!r}")
        return self._of(self._store.connection.call(transactions.BeginTransaction(*self._of_stream, lease)))

    def get(self, transaction: str) -> RemoteTransaction | TransactionById:
        status = self._store.connection.call(transactions.Status(transaction))
        if status in {"open", "prepared"}:
            return self._of(transaction)
        return TransactionById(EndedTransaction(transaction, status))

    @property
    def last_number(self) -> int | None:
        found: int | None = self._store.connection.call(transactions.LastNumber(*self._of_stream))
        return found

    def commit_all(self, ids: Iterable[str], number: int | None = None, timestamp: int | None = None) -> bool:
        ids = check_ids(ids, number, self.writer_id)
        check_timestamp(timestamp, self.writer_id)
        if self._closed:
            raise StoreClosed(f"the transactional writer of stream {self.stream!r}")
        call = self._store.connection.call
        is_repeated, retry = False, Retry()
        while True:
            try:
                done: bool = call(transactions.CommitAll(*self._of_stream, ids, number, timestamp))
            except (StoreUnreachable, NotPrepared) as error:
                if not ids or number is not None or (isinstance(error, NotPrepared) and not is_repeated):
                    raise
                status = call(transactions.Status(ids[0]))  # that of all: they are committed, or none is
                if status == "committed":
                    return True
                if status != "prepared":
                    raise
                retry.after(error)
                is_repeated = True
            else:
                return done

    def _of(self, transaction: str) -> RemoteTransaction:
        return RemoteTransaction(self._store, transaction, self.writer_id, self._serializer)

    def close(self) -> None:
        """Begin no more transactions, and note no more time; open transactions end by their lease."""
        if not self._closed and self.writer_id is not None:
            self._store.connection.call(transactions.CloseTransactions(*self._of_stream[:2], self.writer_id))
        self._closed = True
