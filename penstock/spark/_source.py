"""``format("penstock")``: a stream as a table of Spark, to read and to write, in batches and without end."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import BadArgument, DataTruncated, PenstockError
from penstock.model import SegmentRange, StreamCut
from penstock.spark._columns import Rows, check_schema, schema_of
from penstock.spark._errors import plain, plain_each
from penstock.spark._filters import is_wanted, kept, taken_over
from penstock.spark._options import sink_options, source_options
from penstock.spark._sink import PenstockStreamWriter, PenstockWriter
from penstock.spark._stores import open_at, shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from penstock.client import Store
    from penstock.model import Step
    from penstock.spark._options import SourceOptions

__all__ = ["PenstockSource"]

_PART_MIN: Final = 4 << 20
_PART_MAX: Final = 64 << 20
_PARTS: Final = 8  # that a task's worth of bytes is cut into, if nobody asks for more


class PenstockSource(DataSource):
    """A stream of a store."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format()``."""
        return "penstock"

    @plain
    def schema(self) -> StructType | str:
        """Return the columns, if nobody named others; this is where a stream that is not there is told of first."""
        options = source_options(self.options)
        with open_at(options.address) as store:
            store.stream(options.stream)
        return schema_of(options)

    @plain
    def reader(self, schema: StructType) -> PenstockReader:
        """Return what reads once."""
        options = source_options(self.options)
        for name in ("max_bytes_per_trigger", "max_events_per_trigger", "align", "mark_rows", "consumer"):
            if getattr(options, name):
                raise BadArgument(f"the option {name!r} is for spark.readStream only: spark.read reads all at once")
        check_schema(options, schema)
        return PenstockReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads without end."""
        try:
            return self._stream_reader(schema)
        except PenstockError as error:
            return RefusedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> PenstockStreamReader:
        options = source_options(self.options)
        if options.end is not None:
            raise BadArgument("the option 'end' is for spark.read only: a streaming query ends when it is stopped")
        check_schema(options, schema)
        return PenstockStreamReader(options, schema)

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> PenstockWriter:
        """Return what writes once."""
        options = sink_options(self.options)
        if options.time is not None:
            raise BadArgument("the option 'time' is for writeStream only: who writes once gives no time to wait for")
        return PenstockWriter(options, schema, overwrite=overwrite)

    @plain
    def streamWriter(self, schema: StructType, overwrite: bool) -> PenstockStreamWriter:  # noqa: N802
        """Return what writes a micro-batch at a time."""
        return PenstockStreamWriter(sink_options(self.options), schema, overwrite=overwrite)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads; ``time`` is that of the end of the micro-batch, if it has one.

    ``tells_time``: if there is no event in it, one row tells the time all the same.
    """

    range: SegmentRange | None = None
    time: int | None = None
    tells_time: bool = False


class _Reading:
    """What both readers do in tasks: parts in, Arrow batches out."""

    _in_batches = False

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._filters: list[Filter] = []

    @plain_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part."""
        if not isinstance(partition, Part):
            return  # an empty stream is one part, of nothing
        store = shared(self._options.address)
        rows = Rows(store, self._options, self._schema, time=partition.time, in_batch=self._in_batches)
        is_empty = True
        for batch in self._events(store, partition.range):
            is_empty = is_empty and not len(batch)
            yield kept(rows.of(batch), self._filters)
        if is_empty and partition.tells_time:
            yield rows.mark()

    def _events(self, store: Store, part: SegmentRange | None) -> Iterator[pa.RecordBatch]:
        """Return the events of a part; what is gone is an error, or is left out."""
        while part is not None and part.start < part.end:
            try:
                yield from store.read_range(part, max_event_size=self._options.max_event_size)
            except DataTruncated:
                if self._options.fail_on_data_loss:
                    raise
                head = min(store.head(part.stream).offsets.get(part.segment_id, part.end), part.end)
                if head <= part.start:
                    raise
                part = SegmentRange(part.stream, part.segment_id, head, part.end)
            else:
                return

    def _still_there(self, store: Store, cut: StreamCut) -> StreamCut:
        """Return a cut; if it was truncated away, that is an error, or the next that is there."""
        is_lenient = not self._options.fail_on_data_loss
        return store.step(self._options.stream, cut, cut, skip_truncated=is_lenient).cut

    def _parts(self, ranges: Iterable[SegmentRange], time: int | None = None) -> list[Part]:
        return [Part(range=one, time=time) for one in ranges]

    def _ranges(self, store: Store, start: StreamCut, end: StreamCut) -> list[SegmentRange]:
        """Return what tasks read: parts that are about equally large, and neither tiny nor huge."""
        name, wanted = self._options.stream, self._options.min_partitions
        whole = sum(one.size for one in store.segment_ranges(name, start, end))
        size = -(-whole // (wanted or _PARTS))
        if wanted is None:
            size = min(max(size, _PART_MIN), _PART_MAX)
        return store.segment_ranges(name, start, end, approx_bytes=max(size, 1))


class PenstockReader(_Reading, DataSourceReader):
    """Reads from one place of a stream to another."""

    @plain
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over those filters that spare reading; return the others."""
        names = [
            name
            for name in ("segment_id", "offset", *(["type"] if self._options.format == "futoin" else []))
            if name in self._schema.fieldNames()
        ]
        self._filters = taken_over(filters, names)
        return [one for one in filters if not any(one is other for other in self._filters)]

    @plain
    def partitions(self) -> Sequence[InputPartition]:
        """Return what the tasks read."""
        with open_at(self._options.address) as store:
            name, start = self._options.stream, self._options.start
            first = {"earliest": store.head, "latest": store.tail}[start](name) if isinstance(start, str) else start
            last = store.tail(name) if self._options.end is None else self._options.end
            ranges = self._ranges(store, *(self._still_there(store, cut) for cut in (first, last)))
        return self._parts(one for one in ranges if is_wanted(one, self._filters))


class PenstockStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from micro-batch to micro-batch.

    An offset of Spark's is a cut of the stream, the time that the writers have promised there, and under which name the
    query is registered as a consumer: made when the query starts for the first time, it stays in its checkpoint. Where
    a query began, Spark does not keep, and asks anew when it runs the first batch again; so the end of that batch has
    its ``begin``, too.
    """

    _in_batches = True
    _end: Step | None = None
    _registered = False

    @cached_property
    def _store(self) -> Store:
        return open_at(self._options.address)

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        name, start = self._options.stream, self._options.start
        info = self._store.stream(name)
        cut = {"earliest": info.head, "latest": info.tail}[start] if isinstance(start, str) else start
        begin = self._store.step(name, cut, cut, skip_truncated=not self._options.fail_on_data_loss)
        consumer = self._options.consumer or f"spark-{uuid.uuid4()}"
        known = {"uid": info.uid, "consumer": consumer} | dict.fromkeys(("begin", "cut"), str(begin.cut))
        return self._offset(known, begin.cut, begin.time)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a micro-batch may read; Spark knows one limit, we keep to both."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_events_per_trigger is not None:
            return ReadMaxRows(self._options.max_events_per_trigger)
        return ReadAllAvailable()

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than what is there now, in events and in time: idle writers may promise on for ever."""
        tail = self._store.tail(self._options.stream)
        self._end = self._store.step(self._options.stream, tail, tail)

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        step = self._store.step(
            self._options.stream,
            self._there(start),
            None if self._end is None else self._end.cut,
            max_bytes=self._options.max_bytes_per_trigger if is_limited else None,
            max_events=self._options.max_events_per_trigger if is_limited else None,
            align=self._options.align,
            skip_truncated=not self._options.fail_on_data_loss,
        )
        time = step.time
        if self._end is not None and time is not None:
            time = None if self._end.time is None else min(time, self._end.time)
        times = [one for one in (start.get("time"), time) if one is not None]
        found = self._offset(start, step.cut, max(times, default=None))
        is_further = found["cut"] != start["cut"]
        is_later = self._options.mark_rows and found.get("time") != start.get("time")
        return found if is_further or is_later else start

    def _offset(self, base: dict[str, Any], cut: StreamCut, time: int | None) -> dict[str, Any]:
        """Return the next offset of a query; without a time if no row can tell it."""
        kept = ("uid", "consumer", *(["begin"] if base.get("begin") == base["cut"] else []))
        is_told = time is not None and "mark_time" in self._schema.fieldNames()
        return {one: base[one] for one in kept} | {"cut": str(cut)} | ({"time": time} if is_told else {})

    def _there(self, offset: dict[str, Any]) -> StreamCut:
        """Return the cut of an offset of this very stream."""
        cut = self._cut(offset)
        if self._store.stream(cut.stream).uid != offset["uid"]:
            raise BadArgument(
                f"the checkpoint is of another stream {cut.stream!r}, which was deleted: start with a new checkpoint"
            )
        return self._still_there(self._store, cut)

    def _cut(self, offset: dict[str, Any]) -> StreamCut:
        cut = StreamCut.parse(offset["cut"])
        if cut.stream != self._options.stream:
            raise BadArgument(
                f"the checkpoint is of stream {cut.stream!r}, not of {self._options.stream!r}: "
                "each query needs a checkpoint of its own"
            )
        return cut

    @plain
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the stream ends now."""
        return {"cut": str(self._store.tail(self._options.stream))}

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what the tasks read."""
        begin = start | {"cut": end.get("begin", start["cut"])}
        first, last, time = self._there(begin), self._there(end), end.get("time")
        if not self._registered:
            self._store.register_consumer(self._options.stream, end["consumer"], first)
            self._registered = True
        parts = self._parts(self._ranges(self._store, first, last), time)
        if not self._options.mark_rows or ("begin" not in end and time == start.get("time")):
            return parts
        one = parts[0] if parts else Part(time=time)
        return [Part(range=one.range, time=time, tells_time=True), *parts[1:]]

    @plain
    def commit(self, end: dict[str, Any]) -> None:
        """Note how far the query has come, so that retention may go by it."""
        self._store.register_consumer(self._options.stream, end["consumer"], self._there(end))

    def stop(self) -> None:
        """Close the store."""
        if "_store" in self.__dict__:
            self._store.close()


class RefusedStreamReader(DataSourceStreamReader):
    """Tells what is wrong when it is first asked; an error before that, Spark covers with one of its own."""

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Tell what is wrong with a new query."""
        raise self._error

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Tell what is wrong with a query that goes on."""
        del start, limit
        raise self._error

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tell what is wrong with a query that goes on in the middle of a micro-batch."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing is ever read."""
        raise AssertionError(partition)
