"""The batch reader of ``format("penstock")``, and the part of both readers that runs in tasks.

Filters are pushed down to the source: on the position of events, and on the type of FutoIn events. Tasks have the time
zone of their session.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from penstock.errors import BadArgument, DataTruncated
from penstock.model import SegmentRange
from penstock.spark._columns import Rows
from penstock.spark._errors import plain, plain_each
from penstock.spark._places import check_order, cuts_of, streams_of
from penstock.spark._stores import PATIENCE_S, open_at, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from penstock import Store
    from penstock.model import StreamCut
    from penstock.spark._options import SourceOptions

    _RowsIn = Callable[[SegmentRange], Iterable[pa.RecordBatch]]

__all__ = ["Part", "PenstockReader", "TaskReader", "is_wanted", "kept", "known_zone", "session_zone", "taken_over"]

_COMPARE: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    In: lambda column, values: pc.is_in(column, pa.array(_known(values), column.type)),
}
_SETTING: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:GMT|UTC|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_LOCAL: Final = "/etc/localtime"
_PART_MIN: Final = 4 << 20
_PART_MAX: Final = 64 << 20
_SHARED_MAX: Final = 1 << 20  # of small ranges that one task reads: a task costs more than it takes to read them
_JOINED_MAX: Final = 10_000  # rows of small ranges that become one batch
_THREADS: Final = 4  # that read small ranges: most of the time goes by waiting for the owner of the store
_PARTS: Final = 8  # parts per task's worth of bytes, unless more are requested


def _known(values: Iterable[Any]) -> list[Any]:
    """Return the values without NULL, which equals nothing in SQL."""
    return [value for value in values if value is not None]


def taken_over(filters: Iterable[Filter], columns: Sequence[str]) -> list[Filter]:
    """Return the filters that the source applies: comparisons of these columns with values."""
    return [
        condition
        for condition in filters
        if type(condition) in _COMPARE and list(condition.attribute) in [[name] for name in columns]  # type: ignore[attr-defined]
    ]


def is_wanted(part: SegmentRange, filters: Iterable[Filter]) -> bool:
    """Return whether a part may contain an event that passes all filters."""
    return all(_may_hold(part, condition) for condition in filters)


def _may_hold(part: SegmentRange, condition: Any) -> bool:  # noqa: ANN401 - filters share no type that has a value
    [column] = condition.attribute
    if column == "segment_id":
        return bool(pc.any(_COMPARE[type(condition)](pa.array([part.segment_id]), condition.value)).as_py())
    if column != "offset":
        return True
    match condition:
        case EqualTo() | In():
            values = condition.value if isinstance(condition, In) else [condition.value]
            return any(part.start <= value < part.end for value in _known(values))
        case GreaterThan() | GreaterThanOrEqual():
            return bool(_COMPARE[type(condition)](part.end - 1, condition.value).as_py())
        case _:
            return bool(_COMPARE[type(condition)](part.start, condition.value).as_py())


def kept(batch: pa.RecordBatch, filters: Iterable[Any]) -> pa.RecordBatch:
    """Return the rows that pass all filters."""
    for condition in filters:
        batch = batch.filter(_COMPARE[type(condition)](batch.column(condition.attribute[0]), condition.value))
    return batch


def session_zone() -> str:
    """Return the zone of a task's session; without one in its settings, that of the machine, as in Spark."""
    context = TaskContext.get()
    return known_zone((None if context is None else context.getLocalProperty(_SETTING)) or _local_zone())


def known_zone(name: str) -> str:
    """Return a zone by a name that Arrow knows; Java knows more names."""
    offset = _OFFSET.fullmatch(name)
    zone = name if offset is None else f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}"
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), zone)
    except pa.ArrowInvalid:
        raise BadArgument(f"{_SETTING} is {name!r}: to read JSON use a name like Europe/Berlin or +01:00") from None
    return zone


def _local_zone() -> str:
    """Return the zone of this machine; UTC by default."""
    _, found, name = os.path.realpath(_LOCAL).partition("/zoneinfo/")
    return os.environ.get("TZ") or (name if found else "UTC")


def shared_out(ranges: Iterable[SegmentRange], size: int) -> Iterator[list[SegmentRange]]:
    """Group ranges, in order, so that a group with several has at most ``size`` bytes."""
    group: list[SegmentRange] = []
    for part in ranges:
        if group and sum(other.size for other in group) + part.size > size:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def rows_of_each(rows_in: _RowsIn, ranges: Sequence[SegmentRange]) -> Iterator[pa.RecordBatch]:
    """Return the rows of ranges, in order; those of several small ranges in few batches."""
    return chain.from_iterable(map(rows_in, ranges)) if len(ranges) < 2 else _joined(_read_ahead(rows_in, ranges))


def _read_ahead(rows_in: _RowsIn, ranges: Iterable[SegmentRange]) -> Iterator[pa.RecordBatch]:
    """Return the batches of small ranges, in order; several ranges are read at a time."""
    with ThreadPoolExecutor(_THREADS, "penstock-ranges") as threads:
        for batches in threads.map(lambda part: list(rows_in(part)), ranges):
            yield from batches


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, in order: each has its price on the way to Java."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= _JOINED_MAX:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


@dataclass(frozen=True)
class Part(InputPartition):
    """The part that one task reads, in order; ``time`` is that of the end of the micro-batch, if it has one.

    ``tells_time``: without an event in it, the part has a watermark-only row.
    """

    ranges: tuple[SegmentRange, ...] = ()
    time: int | None = None
    tells_time: bool = False


class TaskReader:
    """The common part of both readers, which runs in tasks: from parts to Arrow batches."""

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
        zone = session_zone() if self._options.format == "json" else "UTC"

        @cache
        def rows_of(stream: str | None) -> Rows:
            in_batch = self._in_batches
            return Rows(store, self._options, self._schema, stream, time=partition.time, in_batch=in_batch, zone=zone)

        def rows_in(part: SegmentRange) -> Iterator[pa.RecordBatch]:
            return (kept(rows_of(part.stream).of(batch), self._filters) for batch in self._events(store, part))

        is_empty = True
        for batch in rows_of_each(rows_in, partition.ranges):
            is_empty = is_empty and not len(batch)
            yield batch
        if is_empty and partition.tells_time:
            yield rows_of(None).mark()

    def _events(self, store: Store, part: SegmentRange) -> Iterator[pa.RecordBatch]:
        """Return the events of a range; lost events are an error, or are skipped."""
        while part.start < part.end:
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
        """Return a cut; if it was truncated, raise an error or return the next one that exists."""
        is_lenient = not self._options.fail_on_data_loss
        return store.next_cut(cut.stream, cut, cut, skip_truncated=is_lenient).cut

    def _parts(self, ranges: Iterable[SegmentRange], time: int | None = None) -> list[Part]:
        """Return the parts of tasks: small ranges share one, unless the user wants as many parts as possible."""
        size = _SHARED_MAX if self._options.min_partitions is None else 0
        return [Part(ranges=tuple(group), time=time) for group in shared_out(ranges, size)]

    def _ranges(
        self, store: Store, starts: Mapping[str, StreamCut], ends: Mapping[str, StreamCut]
    ) -> list[SegmentRange]:
        """Divide a range into parts for tasks, of about equal size, neither tiny nor huge."""
        spans = [(name, starts[name], end) for name, end in ends.items()]
        wanted = self._options.min_partitions
        ranges = [part for span in spans for part in store.segment_ranges(*span)]
        size = -(-sum(part.size for part in ranges) // (wanted or _PARTS))
        if wanted is None:
            size = min(max(size, _PART_MIN), _PART_MAX)
        if all(part.size <= size for part in ranges):
            return ranges
        return [part for span in spans for part in store.segment_ranges(*span, approx_bytes=max(size, 1))]


class PenstockReader(TaskReader, DataSourceReader):
    """Reads streams from one position to another."""

    @plain
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept the filters that save reading; return the others."""
        names = [
            name
            for name in ("segment_id", "offset", *(["type"] if self._options.format == "futoin" else []))
            if name in self._schema.fieldNames()
        ]
        self._filters = taken_over(filters, names)
        return [condition for condition in filters if not any(condition is other for other in self._filters)]

    @plain
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts that tasks read."""
        with open_at(self._options.address, patience_s=PATIENCE_S) as store:
            names = streams_of(store, self._options)
            first = self._cuts_at(store, names, "start")
            last = self._cuts_at(store, names, "end")
            for name in names:
                check_order(store, first[name], last[name])
            ranges = self._ranges(store, first, last)
        return self._parts(part for part in ranges if is_wanted(part, self._filters))

    def _cuts_at(self, store: Store, names: Iterable[str], option: str) -> dict[str, StreamCut]:
        found = cuts_of(store, names, getattr(self._options, option), option=option)
        return {name: self._still_there(store, cut) for name, cut in found.items()}
