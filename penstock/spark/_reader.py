"""The batch reader of ``format("penstock")``, and the part of both readers that runs in tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.errors import DataTruncated
from penstock.model import SegmentRange
from penstock.spark._columns import Rows
from penstock.spark._errors import plain, plain_each
from penstock.spark._filters import is_wanted, kept, taken_over
from penstock.spark._places import check_order, cuts_of, streams_of
from penstock.spark._stores import PATIENCE_S, open_at, shared
from penstock.spark._zone import session_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from penstock import Store
    from penstock.model import StreamCut
    from penstock.spark._options import SourceOptions

__all__ = ["Part", "PenstockReader", "TaskReader"]

_PART_MIN: Final = 4 << 20
_PART_MAX: Final = 64 << 20
_PARTS: Final = 8  # parts per task's worth of bytes, unless more are requested


@dataclass(frozen=True)
class Part(InputPartition):
    """The part that one task reads; ``time`` is that of the end of the micro-batch, if it has one.

    ``tells_time``: without an event in it, the part has a watermark-only row.
    """

    range: SegmentRange | None = None
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
        stream = None if partition.range is None else partition.range.stream
        zone = session_zone() if self._options.format == "json" else "UTC"
        rows = Rows(
            store, self._options, self._schema, stream, time=partition.time, in_batch=self._in_batches, zone=zone
        )
        is_empty = True
        for batch in self._events(store, partition.range):
            is_empty = is_empty and not len(batch)
            yield kept(rows.of(batch), self._filters)
        if is_empty and partition.tells_time:
            yield rows.mark()

    def _events(self, store: Store, part: SegmentRange | None) -> Iterator[pa.RecordBatch]:
        """Return the events of a part; lost events are an error, or are skipped."""
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
        """Return a cut; if it was truncated, raise an error or return the next one that exists."""
        is_lenient = not self._options.fail_on_data_loss
        return store.next_cut(cut.stream, cut, cut, skip_truncated=is_lenient).cut

    def _parts(self, ranges: Iterable[SegmentRange], time: int | None = None) -> list[Part]:
        return [Part(range=one, time=time) for one in ranges]

    def _ranges(
        self, store: Store, starts: Mapping[str, StreamCut], ends: Mapping[str, StreamCut]
    ) -> list[SegmentRange]:
        """Divide a range into parts for tasks, of about equal size, neither tiny nor huge."""
        spans = [(name, starts[name], end) for name, end in ends.items()]
        wanted = self._options.min_partitions
        whole = sum(one.size for span in spans for one in store.segment_ranges(*span))
        size = -(-whole // (wanted or _PARTS))
        if wanted is None:
            size = min(max(size, _PART_MIN), _PART_MAX)
        return [one for span in spans for one in store.segment_ranges(*span, approx_bytes=max(size, 1))]


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
        return [one for one in filters if not any(one is other for other in self._filters)]

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
        return self._parts(one for one in ranges if is_wanted(one, self._filters))

    def _cuts_at(self, store: Store, names: Iterable[str], option: str) -> dict[str, StreamCut]:
        found = cuts_of(store, names, getattr(self._options, option), option=option)
        return {name: self._still_there(store, cut) for name, cut in found.items()}
