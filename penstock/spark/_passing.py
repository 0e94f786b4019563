"""Time that goes on through a query: its watermark becomes the time of the stream that it writes to."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.errors import BadArgument, PenstockError
from penstock.spark._options import Address
from penstock.spark._progress import watermark_of
from penstock.spark._sink import writer_of
from penstock.spark._stores import open_at

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.client import Store

__all__ = ["note_watermark", "pass_watermark"]

_logger: Final = logging.getLogger("penstock.spark")


def pass_watermark(
    query: StreamingQuery,
    store: str | os.PathLike[str],
    stream: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_ca: str | None = None,
) -> None:
    """Note the watermark of a running query as the time of the stream that it writes to, as long as it runs.

    That is true of windows, and of queries that keep no state: what they write later is later. Joins may give rows that
    are older than their watermark. Who asks is said as to ``penstock.connect``.
    """
    spark = SparkSession.active()
    if query.isActive and query.id not in {one.id for one in spark.streams.active}:
        raise BadArgument("the query is of another session than the one that is active here, which hears nothing of it")
    opened = open_at(Address(os.fspath(store), user, password, token, tls_ca))
    try:
        opened.stream(stream)
        passing = _Passing(spark, query, opened, stream)
    except BaseException:
        opened.close()
        raise
    passing.begin()


def note_watermark(store: Store, stream: str, query: str, time: int | None) -> None:
    """Note a time that a query has come to, as its sink does."""
    if time is not None:
        store.transactional_writer(stream, writer_of(query)).commit_all([], timestamp=time)


class _Passing(StreamingQueryListener):
    """Hears of all queries, and notes the watermark of one; it does not wait for the others."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, store: Store, stream: str) -> None:
        self._spark, self._query, self._store, self._stream = spark, query, store, stream
        self._id, self._run = query.id, query.runId
        self._noted: int | None = None

    def begin(self) -> None:
        """Listen, and catch up with what the query did before."""
        self._spark.streams.addListener(self)
        last = self._query.lastProgress
        if last is not None:
            self._note(watermark_of(last))
        if not self._query.isActive:
            self._end()

    def _note(self, time: int | None) -> None:
        """Note a new time; if that fails, the next one has another try."""
        if time == self._noted:
            return
        try:
            note_watermark(self._store, self._stream, self._id, time)
        except PenstockError as error:
            _logger.warning("the watermark of query %s was not noted in %s: %s", self._id, self._stream, error)
        else:
            self._noted = time

    def _end(self) -> None:
        self._spark.streams.removeListener(self)
        self._store.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Note the time of each batch."""
        if str(event.progress.runId) == self._run:
            self._note(watermark_of(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Time stands still, too."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """End with the query."""
        if str(event.runId) == self._run:
            self._end()
