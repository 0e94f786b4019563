"""The sink: rows of Spark become events of a stream, each of them once, whatever is run again.

Each task writes a transaction of its own and prepares it; few rows travel with its message instead. When all tasks are
done, the driver commits the lot as one, under the query's id and the batch's number: a batch that was committed
before is found to be there, and is dropped.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, LongType, StringType, TimestampType

from penstock.errors import BadArgument, NoSuchTransaction, PenstockError, StoreUnreachable, TransactionEnded
from penstock.model import EventPointer
from penstock.spark._errors import plain
from penstock.spark._stores import open_at, shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from penstock.client import Store
    from penstock.spark._options import SinkOptions

__all__ = ["PenstockStreamWriter", "PenstockWriter", "writer_of"]

_INLINE_MAX: Final = 64 << 10  # of rows that travel with a task's message
_LEASE_S: Final = 24 * 3600.0  # how long a batch may take; what is left over goes with the next commit
_COPY_SIZE: Final = 1 << 20
_ROWS: Final = pa.schema([("event", pa.binary()), ("key", pa.binary()), ("pointer", pa.string())])


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """What a task has written: few rows, or a transaction; of which query, and the latest time among them."""

    query: str
    rows: bytes = b""
    transaction: str | None = None
    time: int | None = None


class _Writing:
    """What both sinks do."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        if overwrite:
            raise BadArgument("a stream is only ever appended to: use mode('append'), or outputMode('append')")
        text = (BinaryType, StringType)
        kinds = {"event": text, "key": text, "pointer": (StringType,), "time": (TimestampType, LongType)}
        for option, kind in kinds.items():
            column = getattr(options, option)
            if column is not None:
                _check_column(schema, option, column, kind)
        self._query = writer_of(str(uuid.uuid4()))

    def _of_query(self) -> str:
        """Return the name under which the batches are counted, in a task."""
        return self._query

    @plain
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Write the rows of a task."""
        waiting: list[pa.RecordBatch] = []
        part: _Part | None = None
        latest: int | None = None
        try:
            for batch in iterator:
                latest = _later(latest, self._latest(batch))
                waiting.append(self._rows(batch))
                if part is None and (waiting[-1]["event"].null_count or _size(waiting) > _INLINE_MAX):
                    part = _Part(shared(self._options.address), self._options.stream, self._of_query())
                if part is not None:
                    part.add(waiting)
                    waiting = []
            if part is not None:
                return Message(self._of_query(), transaction=part.prepare(), time=latest)
        except BaseException:
            if part is not None:
                part.drop()
            raise
        return Message(self._of_query(), rows=_packed(waiting), time=latest)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return events and keys of a batch; where there is no event, a pointer to one."""
        rows = pa.record_batch([self._column(batch, field) for field in _ROWS], _ROWS)
        is_missing = pc.and_(pc.is_null(rows["event"]), pc.is_null(rows["pointer"]))
        self._refuse_nulls("event", is_missing)
        if self._options.key is not None:
            self._refuse_nulls("key", pc.is_null(rows["key"]))
        return rows

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        name = getattr(self._options, field.name)
        return pa.nulls(len(batch), field.type) if name is None else batch.column(name).cast(field.type)

    def _refuse_nulls(self, option: str, is_null: pa.Array) -> None:
        name, count = getattr(self._options, option), is_null.true_count
        if count:
            raise BadArgument(
                f"the column {name!r} has {count} nulls among {len(is_null)} rows, and is the {option} of "
                f"each: drop such rows first, as in df.where({name!r} + ' IS NOT NULL')"
            )

    def _latest(self, batch: pa.RecordBatch) -> int | None:
        """Return the latest time of a batch, in milliseconds."""
        if self._options.time is None or not len(batch):
            return None
        column = batch.column(self._options.time)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        found: int | None = pc.max(column).as_py()
        return found

    def _commit(self, messages: Iterable[Message | None], number: int | None = None) -> None:
        """Make all that the tasks have written part of the stream, unless it is."""
        done = [one for one in messages if one is not None and (one.rows or one.transaction)]
        if not done:
            return
        query, latest = done[0].query, None
        with open_at(self._options.address) as store:
            prepared: list[str] = []
            for is_inline, some in groupby(done, key=lambda one: one.transaction is None):
                found = list(some)
                prepared += [self._gathered(store, found)] if is_inline else [str(one.transaction) for one in found]
            for one in done:
                latest = _later(latest, one.time)
            store.transactional_writer(self._options.stream, query).commit_all(prepared, number, latest)

    def _gathered(self, store: Store, messages: Sequence[Message], attempts: int = 3) -> str:
        """Write the rows that came with messages, in a transaction as those of tasks are.

        It is begun again if the process ends meanwhile that owns the store: another one of the same Spark, maybe.
        """
        part: _Part | None = None
        try:
            part = _Part(store, self._options.stream, messages[0].query)
            for one in messages:
                part.add(_unpacked(one.rows))
            return part.prepare()
        except BaseException as error:
            if part is not None:
                part.drop()
            if attempts == 1 or not isinstance(error, (NoSuchTransaction, StoreUnreachable, TransactionEnded)):
                raise
        return self._gathered(store, messages, attempts - 1)

    def _abort(self, messages: Iterable[Message | None]) -> None:
        """Drop what the tasks have written."""
        prepared = [one.transaction for one in messages if one is not None and one.transaction is not None]
        if prepared:
            with open_at(self._options.address) as store:
                writer = store.transactional_writer(self._options.stream)
                for transaction in prepared:
                    with suppress(PenstockError):  # the lease ends it
                        writer.get(transaction).abort()


class PenstockWriter(_Writing, DataSourceArrowWriter):
    """Writes a table."""

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all rows part of the stream."""
        self._commit(messages)  # type: ignore[arg-type]

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop all rows."""
        self._abort(messages)  # type: ignore[arg-type]


class PenstockStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def _of_query(self) -> str:
        context = TaskContext.get()
        found = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        assert found is not None, "a micro-batch is of a query"
        return writer_of(found)

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make all rows part of the stream, unless the batch is."""
        self._commit(messages, batchId)  # type: ignore[arg-type]

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop all rows."""
        del batchId
        self._abort(messages)  # type: ignore[arg-type]


def writer_of(query: str) -> str:
    """Return the writer id under which a query writes, and notes time."""
    return f"spark-{query}"


class _Part:
    """A transaction of one task."""

    def __init__(self, store: Store, stream: str, query: str) -> None:
        self._store = store
        self._transaction = store.transactional_writer(stream, query).begin(_LEASE_S)

    def add(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Write events."""
        for batch in rows:
            for some in _runs(batch):
                if some["event"].null_count:
                    self._copy(some["pointer"][0].as_py(), some["key"][0].as_py())
                else:
                    self._transaction.write_batch(some["event"], None if some["key"].null_count else some["key"])

    def _copy(self, pointer: str, key: bytes | None) -> None:
        """Copy an event that is too large for a row."""
        with (
            self._store.fetch_event_as_stream(EventPointer.parse(pointer)) as event,
            self._transaction.begin_write_event(key) as out,
        ):
            shutil.copyfileobj(event, out, _COPY_SIZE)

    def prepare(self) -> str:
        """Make them durable, for whoever commits them; return the transaction's id."""
        self._transaction.prepare()
        return self._transaction.id

    def drop(self) -> None:
        """Forget them."""
        with suppress(PenstockError):  # the lease ends it
            self._transaction.abort()


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Return the rows of a batch in their order: those with an event together, each other one by itself."""
    start = 0
    for at in np.flatnonzero(pc.is_null(batch["event"]).to_numpy(zero_copy_only=False)).tolist():
        if start < at:
            yield batch.slice(start, at - start)
        yield batch.slice(at, 1)
        start = at + 1
    if start < len(batch):
        yield batch.slice(start)


def _size(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(one.nbytes for one in batches)


def _check_column(schema: StructType, option: str, name: str, kinds: tuple[type, ...]) -> None:
    if name not in schema.fieldNames():
        raise BadArgument(
            f"there is no column {name!r} for the {option} of each row, only {', '.join(schema.fieldNames())}: "
            f'name one with .option("{option}", "…")'
        )
    kind = schema[name].dataType
    if not isinstance(kind, kinds):
        wanted = " or ".join(one().simpleString() for one in kinds)
        raise BadArgument(
            f"the column {name!r} is of type {kind.simpleString()}, and the {option} of each row is {wanted}: "
            "cast it, or make JSON of it with to_json(struct(…))"
        )


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    if not any(map(len, batches)):
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _ROWS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(data: bytes) -> list[pa.RecordBatch]:
    return list(pa.ipc.open_stream(data))
