"""Writing micro-batches to a stream with ``foreachBatch``, for output modes that Spark does not offer Python sinks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument
from penstock.spark._register import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["to_stream"]

_QUERY: Final = "sql.streaming.queryId"


def to_stream(
    store: str | os.PathLike[str], stream: str | None = None, *, app_id: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes each micro-batch to a stream exactly once.

    ``options`` are those of the sink. Batches are counted under ``app_id``, by default the id of the query, so that a
    batch that Spark runs again is found. With ``outputMode("update")`` each batch has the results that changed: set a
    ``key``; the last event of a key counts.
    """
    text = os.fspath(store)
    given = {"store": text if "://" in text else os.path.abspath(text)} | options
    if stream is not None:
        given["stream"] = stream

    def write(df: DataFrame, batch: int) -> None:
        register(df.sparkSession)
        writer = df.write.format("penstock").mode("append").options(**given)
        writer.option("txn_app_id", app_id or _query_of(df)).option("txn_version", str(batch)).save()

    return write


def _query_of(df: DataFrame) -> str:
    context = getattr(df.sparkSession, "sparkContext", None)  # a session of Spark Connect has none
    found = None if context is None else context.getLocalProperty(_QUERY)
    if found is None:
        raise BadArgument("to_stream cannot determine the query here: pass app_id=, a different one for each query")
    return str(found)
