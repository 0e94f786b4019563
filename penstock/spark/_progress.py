"""The progress of a running query: rows, lag and watermark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.model import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.model import StreamCut

__all__ = ["Looks", "Progress", "end_cuts", "watermark_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a query; ``watermark`` is in milliseconds, None while there is none."""

    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag_bytes: int = 0
    watermark: int | None = None


class Looks:
    """Polls a running query and adds up its batches: Spark remembers only the last ones."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._next_batch = self._batches = self._rows = 0

    def look(self) -> Progress:
        """Return the progress of the query."""
        for one in self._query.recentProgress:
            if one.batchId >= self._next_batch and (rows := _rows(one)):
                self._batches, self._rows = self._batches + 1, self._rows + rows
                self._next_batch = one.batchId + 1
        last = self._query.lastProgress
        if last is None:
            return Progress()
        return Progress(
            batches=self._batches,
            rows=self._rows,
            rows_per_second=last.processedRowsPerSecond or 0.0,
            lag_bytes=sum(map(_lag, last.sources)),
            watermark=watermark_of(last),
        )


def end_cuts(query: StreamingQuery) -> dict[str, tuple[str, StreamCut]]:
    """Return the consumer and the end cut of a query's last batch, by stream."""
    last = query.lastProgress
    offsets = [] if last is None else [_offset(source.endOffset) for source in last.sources]
    cuts = [(one["consumer"], Position.parse(one["cut"]).cuts) for one in offsets if "cut" in one]
    return {cut.stream: (consumer, cut) for consumer, some in cuts for cut in some}


def _offset(text: Any) -> Mapping[str, Any]:  # noqa: ANN401 - Spark gives the JSON as it is, or None
    found = json.loads(text) if isinstance(text, str) and text not in ("", "null") else text
    return found if isinstance(found, dict) else {}


def _rows(one: StreamingQueryProgress) -> int:
    """Return the number of events of a batch, without watermark-only rows."""
    told = [row["events"] for row in one.observedMetrics.values() if "events" in row]
    return sum(told) if told else one.numInputRows


def _lag(source: Any) -> int:  # noqa: ANN401 - of a class that Spark does not export
    """Return the lag in bytes that a source reports."""
    return int(_offset(source.latestOffset).get("lag_bytes", 0))


def watermark_of(last: StreamingQueryProgress) -> int | None:
    """Return the watermark of a batch, in milliseconds; None while there is none."""
    text = last.eventTime.get("watermark")
    time = None if text is None else int(datetime.fromisoformat(text).timestamp() * 1000)
    return time or None
