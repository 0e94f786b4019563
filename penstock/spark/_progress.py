"""The progress of a running query (rows, lag, watermark), and its watermark as the time of the stream it writes to."""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.errors import BadArgument, PenstockError
from penstock.model import Position
from penstock.spark._options import Address, milliseconds_of
from penstock.spark._sink import writer_of
from penstock.spark._stores import open_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store
    from penstock.model import StreamCut

__all__ = ["Progress", "ProgressCounter", "end_cuts", "forward_watermark", "note_watermark", "watermark_of"]

_logger: Final = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a query; ``watermark`` is in milliseconds, None while there is none."""

    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag_bytes: int = 0
    watermark: int | None = None


class ProgressCounter:
    """Polls a running query and adds up its batches: Spark remembers only the last ones."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._next_batch = self._batches = self._rows = 0

    def poll(self) -> Progress:
        """Return the progress of the query."""
        for batch in self._query.recentProgress:
            if batch.batchId >= self._next_batch and (rows := _rows(batch)):
                self._batches, self._rows = self._batches + 1, self._rows + rows
                self._next_batch = batch.batchId + 1
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
    cuts = [(offset["consumer"], Position.parse(offset["cut"]).cuts) for offset in offsets if "cut" in offset]
    return {cut.stream: (consumer, cut) for consumer, of_consumer in cuts for cut in of_consumer}


def _offset(text: Any) -> Mapping[str, Any]:  # noqa: ANN401 - Spark gives the JSON as it is, or None
    found = json.loads(text) if isinstance(text, str) and text not in ("", "null") else text
    return found if isinstance(found, dict) else {}


def _rows(progress: StreamingQueryProgress) -> int:
    """Return the number of events of a batch, without watermark-only rows."""
    told = [row["events"] for row in progress.observedMetrics.values() if "events" in row]
    return sum(told) if told else progress.numInputRows


def _lag(source: Any) -> int:  # noqa: ANN401 - of a class that Spark does not export
    """Return the lag in bytes that a source reports."""
    return int(_offset(source.latestOffset).get("lag_bytes", 0))


def watermark_of(last: StreamingQueryProgress) -> int | None:
    """Return the watermark of a batch, in milliseconds; None while there is none."""
    text = last.eventTime.get("watermark")
    time = None if text is None else int(datetime.fromisoformat(text).timestamp() * 1000)
    return time or None


def forward_watermark(
    query: StreamingQuery,
    store: str | os.PathLike[str],
    stream: str,
    *,
    delay: str | timedelta = "0 seconds",
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_ca: str | None = None,
) -> None:
    """Note the watermark of a running query as the time of the stream that it writes to, as long as it runs.

    That is a promise about what the query writes later. It holds for the *ends* of windows, and for the events' own
    time if the query keeps no state. The starts of windows are earlier: if readers use them as the time of the output,
    pass the window length as ``delay``. A join may output rows that are older than its watermark by the time that its
    sides wait for each other; that is its delay. The credentials are those of ``penstock.connect``.
    """
    delay_ms = milliseconds_of("delay", delay)
    spark = SparkSession.active()
    if query.isActive and query.id not in {active.id for active in spark.streams.active}:
        raise BadArgument(
            "the query belongs to another Spark session: call this where the session of the query is active"
        )
    opened = open_at(Address(os.fspath(store), user, password, token, tls_ca))
    try:
        opened.stream(stream)
        passing = _Passing(spark, query, opened, stream, delay_ms)
    except BaseException:
        opened.close()
        raise
    passing.begin()


def note_watermark(store: Store, stream: str, query: str, time: int | None, delay_ms: int = 0) -> None:
    """Note the watermark of a query, less a delay, under the writer id of its sink."""
    if time is not None and time > delay_ms:
        store.transactional_writer(stream, writer_of(query)).commit_all([], timestamp=time - delay_ms)


class _Passing(StreamingQueryListener):
    """A listener that is called for all queries, and notes the watermark of one."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, store: Store, stream: str, delay_ms: int) -> None:
        self._spark, self._query, self._store, self._stream = spark, query, store, stream
        self._delay_ms = delay_ms
        self._id, self._run = query.id, query.runId
        self._noted: int | None = None

    def begin(self) -> None:
        """Start listening, and note the watermark that the query already has."""
        self._spark.streams.addListener(self)
        last = self._query.lastProgress
        if last is not None:
            self._note(watermark_of(last))
        if not self._query.isActive:
            self._end()

    def _note(self, time: int | None) -> None:
        """Note a new time; after a failure, the next batch tries again."""
        if time == self._noted:
            return
        try:
            note_watermark(self._store, self._stream, self._id, time, self._delay_ms)
        except PenstockError as error:
            _logger.warning("the watermark of query %s was not noted in %s: %s", self._id, self._stream, error)
        else:
            self._noted = time

    def _end(self) -> None:
        """Stop listening; in a thread, because a Spark Connect listener cannot be removed while it is called."""
        threading.Thread(target=self._leave, name="penstock-passing", daemon=True).start()

    def _leave(self) -> None:
        with suppress(Exception):  # the session has ended, and the listener with it
            self._spark.streams.removeListener(self)
        self._store.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no watermark yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Note the time of each batch."""
        if str(event.progress.runId) == self._run:
            self._note(watermark_of(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: the watermark does not change."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """End with the query."""
        if str(event.runId) == self._run:
            self._end()
