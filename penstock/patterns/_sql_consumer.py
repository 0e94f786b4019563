"""A consumer whose position is a row of the database that its results are written to.

A step reads the next events, begins a transaction, locks the position, calls the handler, moves the position and
commits. So the results of an event and the position behind it are in the database together or not at all. The position
moves only from where the step began: of several processes with one name, one handles a batch, and the others read on
from behind it. It moves last: a handler that ends the transaction, which is an error, leaves the position where it was.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from penstock.errors import BadArgument, DataTruncated
from penstock.model import StreamCut, check_kind, check_whole
from penstock.patterns._checks import check_function, check_returned, check_stop, check_store
from penstock.patterns._positions import POSITIONS, TEXT_SIZE_MAX, check_columns, positions_table

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    import pyarrow as pa

    from penstock.store import Store

    Handle = Callable[[sa.Connection, pa.RecordBatch], object]

__all__ = ["SqlConsumer"]

_BATCH_SIZE: Final = 8 << 20  # of events that are read before the transaction begins
_POLL_S: Final = 0.5


class SqlConsumer:
    """Handles every event of a stream once, with what the handler writes to a database.

    ``engine`` is the database, ``name`` the consumer's name in it and in the store, where it is registered, so that
    retention by consumption keeps what it has not handled. A new consumer begins at ``start``, or at the head.
    """

    def __init__(
        self,
        engine: sa.Engine,
        store: Store,
        stream: str,
        *,
        name: str,
        start: StreamCut | None = None,
        max_bytes: int = _BATCH_SIZE,
        table: str = POSITIONS,
    ) -> None:
        check_kind("engine", engine, sa.Engine)
        check_store(store)
        check_whole("max_bytes", max_bytes, least=1)
        if start is not None:
            check_kind("start", start, StreamCut)
        check_kind("name", name, str)
        if not 0 < len(name) <= TEXT_SIZE_MAX:
            raise BadArgument(f"invalid consumer name {name!r}: use 1 to {TEXT_SIZE_MAX} characters")
        self._engine, self._store, self._max_bytes = engine, store, max_bytes
        self._positions = positions_table(table)
        info = store.stream(stream)
        self.stream: Final = info.name
        self.name: Final = name
        self._row = (self._positions.c.consumer == name) & (self._positions.c.stream == info.name)
        self._open(start or info.head, info.uid)

    @property
    def position(self) -> StreamCut:
        """The cut up to which the events are handled."""
        with self._engine.connect() as connection:
            return StreamCut.parse(connection.execute(sa.select(self._positions.c.cut).where(self._row)).scalar_one())

    def step(self, handle: Handle) -> int:
        """Handle the next events in one transaction, and return how many there were; 0 if there are none.

        ``handle(connection, batch)`` is called with the batches one after the other. If it raises, the transaction is
        rolled back, and the next step begins with the same events. It is a plain function, and leaves it to the step to
        end the transaction: otherwise it gets ``BadArgument``, and the next step begins with the same events, too. The
        event of a row is null if it has more than 1 MiB: read it with ``fetch_event_as_stream``.
        """
        check_function(handle)
        while True:
            start = self.position
            try:
                end = self._store.next_cut(self.stream, start, max_bytes=self._max_bytes).cut
                batches = list(self._store.read(self.stream, start, end))
            finally:
                self._check_uid(self._store.stream(self.stream).uid)  # behind the read: so it was of this stream
            if end == start:
                return 0
            if self._handle(handle, batches, start, end):
                with suppress(DataTruncated):  # another process with this name has come further meanwhile
                    self._store.register_consumer(self.stream, self.name, end)
                return sum(map(len, batches))

    def run(self, handle: Handle, stop: threading.Event) -> None:
        """Handle events as they come, until ``stop`` is set; new ones are looked for twice a second."""
        check_function(handle)
        check_stop(stop)
        while not stop.is_set():
            if not self.step(handle):
                stop.wait(_POLL_S)

    def _handle(self, handle: Handle, batches: list[pa.RecordBatch], start: StreamCut, end: StreamCut) -> bool:
        """Return whether the events were handled; if not, another process has handled them."""
        from_start = sa.update(self._positions).where(self._row, self._positions.c.cut == str(start))
        with self._engine.begin() as connection:
            transaction = connection.get_transaction()
            if connection.execute(from_start.values(cut=str(start))).rowcount != 1:  # which locks the row
                return False
            for batch in batches:
                check_returned(handle(connection, batch))
                if connection.closed or connection.get_transaction() is not transaction:
                    raise _transaction_ended()
            if connection.execute(from_start.values(cut=str(end))).rowcount != 1:
                raise _transaction_ended()  # by SQL: the row is not locked any more
        return True

    def _open(self, start: StreamCut, uid: int) -> None:
        """Find the position, or begin at ``start``; register the consumer before the first event can be removed."""
        with self._engine.begin() as connection:
            driver = connection.connection.dbapi_connection
            if driver is not None and connection.dialect.detect_autocommit_setting(driver):
                raise BadArgument("the engine commits each statement by itself (AUTOCOMMIT): use one with transactions")
            self._positions.create(connection, checkfirst=True)
            check_columns(connection, self._positions)
            known = connection.execute(sa.select(self._positions.c.uid).where(self._row)).scalar_one_or_none()
        if known is None:
            self._insert(start, uid)
        self._uid = str(uid) if known is None else known
        self._check_uid(uid)
        if self.name not in self._store.consumers(self.stream):
            self._store.register_consumer(self.stream, self.name, self.position)

    def _check_uid(self, uid: int) -> None:
        """Refuse a stream that was deleted and created again: the position is one of the old stream."""
        if self._uid != str(uid):
            raise BadArgument(
                f"consumer {self.name!r} has read a stream {self.stream} that was deleted: use another name, "
                f"or delete its row in the table {self._positions.name}"
            )

    def _insert(self, start: StreamCut, uid: int) -> None:
        row = {"consumer": self.name, "stream": self.stream, "uid": str(uid), "cut": str(start)}
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.insert(self._positions).values(row))
        except sa.exc.IntegrityError:
            return  # another process has begun at the same moment, and its start counts


def _transaction_ended() -> BadArgument:
    return BadArgument(
        "invalid handle: it ended the transaction of its step, so these events do not count as handled; "
        "use connection.begin_nested() for what may fail, and leave commit() and rollback() to the step"
    )
