"""The sink: rows of Spark become events of streams, each exactly once, whatever is run again.

Each task writes a transaction to each stream and prepares it; few rows travel with the task's message instead. When all
tasks are done, the driver commits all transactions of a stream together, under the query's id and the batch's number: a
batch that was committed before is found and dropped. A transaction that is not prepared ends with the process that owns
the store, so a task keeps the rows that it has sent, and sends them again.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, TimestampType

from penstock.errors import BadArgument, NoSuchTransaction, PenstockError, StoreUnreachable, TransactionEnded
from penstock.model import EventPointer, check_stream_name
from penstock.spark._errors import plain
from penstock.spark._sent import InBackground, SentRows
from penstock.spark._stores import PATIENCE_S, open_at, shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from penstock import Store
    from penstock.spark._options import SinkOptions
    from penstock.stream.format import GivenHeaders

__all__ = ["PenstockStreamWriter", "PenstockWriter", "writer_of"]

_INLINE_MAX: Final = 64 << 10  # of rows that travel with a task's message
_ATTEMPTS_MAX: Final = 5  # each of which waits for the store
_LEASE_S: Final = 24 * 3600.0  # how long a batch may take; what is left over goes with the next commit
_COPY_SIZE: Final = 1 << 20
_ROWS: Final = pa.schema(
    [
        ("event", pa.binary()),
        ("key", pa.binary()),
        ("pointer", pa.string()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("stream", pa.string()),
    ]
)
_LOST: Final = (NoSuchTransaction, StoreUnreachable, TransactionEnded)  # a transaction, with the owner of the store


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """The result of a task: few rows, or a transaction per stream; its query, and the latest time of its rows."""

    query: str
    rows: bytes = b""
    transactions: Mapping[str, str] = field(default_factory=dict)
    time: int | None = None


class _Writing:
    """The common part of both sinks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.headers is None and "headers" in schema.fieldNames():
            options = replace(options, headers="headers")
        self._options = options
        text = (BinaryType, StringType)
        kinds = {"event": text, "key": text, "pointer": (StringType,), "time": (TimestampType, LongType)}
        for option, kind in kinds.items():
            column = getattr(options, option)
            if column is not None:
                _check_column(schema, option, column, kind)
        if options.headers is not None:
            _check_headers_column(schema, options.headers)
        if options.stream is None:
            _check_stream_column(schema)
        self._has_scope = "scope" in schema.fieldNames()
        self._query = writer_of(options.txn_app_id or str(uuid.uuid4()))

    def _of_query(self) -> str:
        """Return the id under which batches are counted, in a task."""
        return self._query

    @plain
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Write the rows of a task."""
        waiting: list[pa.RecordBatch] = []
        sending: _Sending | None = None
        thread: InBackground | None = None
        latest: int | None = None
        with ExitStack() as stack:
            for batch in iterator:
                latest = _later(latest, self._latest(batch))
                waiting.append(self._rows(batch))
                if sending is None and (waiting[-1]["event"].null_count or _size(waiting) > _INLINE_MAX):
                    store = shared(self._options.address)
                    sending = stack.enter_context(_Sending(store, self._options.stream, self._of_query()))
                    thread = stack.enter_context(InBackground(sending.add))
                if thread is not None:
                    for rows in waiting:
                        thread.add(rows)
                    waiting = []
            if sending is not None and thread is not None:
                thread.finish()
                return Message(self._of_query(), transactions=sending.prepare(), time=latest)
        return Message(self._of_query(), rows=_packed(waiting), time=latest)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events, keys and streams of a batch; where there is no event, its pointer."""
        columns = [self._column(batch, field) for field in _ROWS if field.name != "stream"]
        rows = pa.record_batch([*columns, self._streams(batch)], _ROWS)
        is_missing = pc.and_(pc.is_null(rows["event"]), pc.is_null(rows["pointer"]))
        self._refuse_nulls("event", is_missing)
        return rows

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        name = getattr(self._options, field.name)
        return pa.nulls(len(batch), field.type) if name is None else batch.column(name).cast(field.type)

    def _streams(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the stream of each row, if rows name it; a name without a scope is in the scope of its row."""
        if self._options.stream is not None:
            return pa.nulls(len(batch), pa.string())
        names = batch.column("stream").cast(pa.string())
        self._refuse_nulls("stream", pc.is_null(names))
        if self._has_scope:
            whole = pc.binary_join_element_wise(batch.column("scope").cast(pa.string()), names, "/")
            names = pc.if_else(pc.match_substring(names, "/"), names, whole)
            self._refuse_nulls("stream", pc.is_null(names))
        return names

    def _refuse_nulls(self, option: str, is_null: pa.Array) -> None:
        name, count = getattr(self._options, option) or option, is_null.true_count
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
        """Commit what the tasks have written, unless it is committed."""
        done = [message for message in messages if message is not None and (message.rows or message.transactions)]
        if not done:
            return
        query, latest = done[0].query, None
        for message in done:
            latest = _later(latest, message.time)
        with open_at(self._options.address, patience_s=PATIENCE_S) as store:
            prepared: dict[str, list[str]] = {}
            for is_inline, group in groupby(done, key=lambda message: not message.transactions):
                for part in (
                    [self._gathered(store, list(group))] if is_inline else [message.transactions for message in group]
                ):
                    for stream, transaction in part.items():
                        prepared.setdefault(stream, []).append(transaction)
            for stream, transactions in prepared.items():
                store.transactional_writer(stream, query).commit_all(transactions, number, latest)

    def _gathered(self, store: Store, messages: Sequence[Message]) -> Mapping[str, str]:
        """Write the rows that came with messages, in one transaction per stream, like those of tasks."""
        with _Sending(store, self._options.stream, messages[0].query) as sending:
            for message in messages:
                for rows in _unpacked(message.rows):
                    sending.add(rows)
            return sending.prepare()

    def _abort(self, messages: Iterable[Message | None]) -> None:
        """Abort what the tasks have written."""
        prepared = [pair for message in messages if message is not None for pair in message.transactions.items()]
        if prepared:
            with open_at(self._options.address) as store:
                for stream, transaction in prepared:
                    with suppress(PenstockError):  # the lease ends it
                        store.transactional_writer(stream).get(transaction).abort()


class PenstockWriter(_Writing, DataSourceArrowWriter):
    """Writes a batch query."""

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit all rows, unless this version is committed."""
        self._commit(messages, self._options.txn_version)  # type: ignore[arg-type]

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of all tasks."""
        self._abort(messages)  # type: ignore[arg-type]


class PenstockStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def _of_query(self) -> str:
        context = TaskContext.get()
        found = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        assert found is not None, "a micro-batch is of a query"
        return writer_of(found)

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit all rows, unless the batch is committed."""
        self._commit(messages, batchId)  # type: ignore[arg-type]

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the transactions of all tasks."""
        del batchId
        self._abort(messages)  # type: ignore[arg-type]


def writer_of(query: str) -> str:
    """Return the writer id under which a query writes and notes time."""
    return f"spark-{query}"


class _Sending:
    """Sends the rows of a task, in one transaction per stream; sends all of them again if the store was unreachable.

    ``stream`` is the target of all rows, or None if each row names its own.
    """

    def __init__(self, store: Store, stream: str | None, query: str) -> None:
        self._store, self._stream, self._query = store, stream, query
        self._parts: dict[str, _Part] = {}
        self._sent = SentRows(_ROWS)
        self._attempts = _ATTEMPTS_MAX

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows to the transaction of their stream, and remember them for another attempt."""
        self._sent.add(batch)
        try:
            self._send(batch)
        except _LOST as error:
            self._send_again(error)

    def prepare(self) -> dict[str, str]:
        """Make the rows durable, to be committed by the driver; return the transactions by stream."""
        try:
            return {stream: part.prepare() for stream, part in self._parts.items()}
        except _LOST as error:
            self._send_again(error)
            return self.prepare()

    def __enter__(self) -> Self:
        """Drop the rows at the end of the block; after an exception, also those that were sent."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Drop the rows."""
        self._sent.close()
        if error is not None:
            self._drop()

    def _drop(self) -> None:
        for part in self._parts.values():
            part.drop()
        self._parts = {}

    def _send(self, batch: pa.RecordBatch) -> None:
        if self._stream is not None:
            self._part_of(self._stream).add(batch)
            return
        for stream in pc.unique(batch["stream"]).to_pylist():
            self._part_of(stream).add(batch.filter(pc.equal(batch["stream"], stream)))

    def _part_of(self, stream: str) -> _Part:
        if stream not in self._parts:
            check_stream_name(stream)
            self._parts[stream] = _Part(self._store, stream, self._query)
        return self._parts[stream]

    def _send_again(self, error: PenstockError) -> None:
        """Start again with all rows so far."""
        self._attempts -= 1
        if not self._attempts:
            raise error
        self._drop()
        try:
            for batch in self._sent.batches():
                self._send(batch)
        except _LOST as another:
            self._send_again(another)


class _Part:
    """The transaction of one task in one stream."""

    def __init__(self, store: Store, stream: str, query: str) -> None:
        self._store = store
        self._transaction = store.transactional_writer(stream, query).begin(_LEASE_S)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch's events to the transaction; copy the large ones, which rows point to."""
        for rows in _runs(batch):
            keys, headers = rows["key"], rows["headers"]
            if rows["event"].null_count:
                self._copy(rows["pointer"][0].as_py(), keys[0].as_py(), headers[0].as_py())
            else:
                self._transaction.write_batch(
                    rows["event"],
                    None if keys.null_count == len(keys) else keys,
                    None if headers.null_count == len(headers) else headers,
                )

    def _copy(self, pointer: str, key: bytes | None, headers: GivenHeaders | None) -> None:
        """Copy an event that is too large for a row."""
        with (
            self._store.fetch_event_as_stream(EventPointer.parse(pointer)) as event,
            self._transaction.begin_write_event(key, headers=headers) as out,
        ):
            shutil.copyfileobj(event, out, _COPY_SIZE)

    def prepare(self) -> str:
        """Make the events durable, to be committed by the driver; return the transaction's id."""
        self._transaction.prepare()
        return self._transaction.id

    def drop(self) -> None:
        """Drop the rows."""
        with suppress(PenstockError):  # the lease ends it
            self._transaction.abort()


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch, in order, into runs of rows with an event and single rows without one."""
    if not batch["event"].null_count:
        yield batch
        return
    start = 0
    for at in np.flatnonzero(pc.is_null(batch["event"]).to_numpy(zero_copy_only=False)).tolist():
        if start < at:
            yield batch.slice(start, at - start)
        yield batch.slice(at, 1)
        start = at + 1
    if start < len(batch):
        yield batch.slice(start)


def _size(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.nbytes for batch in batches)


def _check_stream_column(schema: StructType) -> None:
    if "stream" not in schema.fieldNames() or not isinstance(schema["stream"].dataType, StringType):
        raise BadArgument(
            'the option \'stream\' is missing: .option("stream", "plant/readings"), or give the rows a column '
            "'stream', a string, that names the stream which each goes to"
        )


def _check_headers_column(schema: StructType, name: str) -> None:
    _check_column(schema, "headers", name, (MapType,))
    kind = schema[name].dataType
    assert isinstance(kind, MapType), "it was checked"
    if not isinstance(kind.keyType, StringType) or not isinstance(kind.valueType, BinaryType | StringType):
        raise BadArgument(
            f"the column {name!r} is of type {kind.simpleString()}, and the headers of each row are "
            "map<string,binary>: cast it, or leave it out"
        )


def _check_column(schema: StructType, option: str, name: str, kinds: tuple[type, ...]) -> None:
    if name not in schema.fieldNames():
        raise BadArgument(
            f"there is no column {name!r} for the {option} of each row, only {', '.join(schema.fieldNames())}: "
            f'name one with .option("{option}", "…")'
        )
    kind = schema[name].dataType
    if not isinstance(kind, kinds):
        wanted = " or ".join("map<string,binary>" if kind is MapType else kind().simpleString() for kind in kinds)
        raise BadArgument(
            f"the column {name!r} is of type {kind.simpleString()}, and the {option} of each row is {wanted}: "
            "cast it, or make JSON of it with to_json(struct(…))"
        )


def _later(latest: int | None, other: int | None) -> int | None:
    return max((time for time in (latest, other) if time is not None), default=None)


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
