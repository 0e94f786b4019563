"""The writers' own watermark as Spark's: exact, where Spark alone has to guess how late events may come."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["with_writer_watermark"]


def with_writer_watermark(df: DataFrame, name: str, event_time: Column) -> DataFrame:
    """Add the column ``name``, when each event happened, with the watermark that the stream's writers promise.

    ``df`` is a source of ``format("penstock")`` just as it was loaded: before anything else is done to it.
    """
    missing = [one for one in ("mark_time", "offset") if one not in df.columns]
    if missing:
        raise BadArgument(
            f"with_writer_watermark needs the column {missing[0]!r} of the source: give it the DataFrame just as "
            "it was loaded, and name mark_time and offset if you name columns with .schema()"
        )
    if name in df.columns:
        raise BadArgument(f"the source has a column {name!r} already: give the time another name")
    timed = df.withWatermark("mark_time", "0 seconds")
    # A barrier: without it the filter would be moved before the watermark, and rows that only tell the time be lost.
    observed = timed.observe(
        f"penstock-{uuid.uuid4()}", F.max("mark_time").alias("watermark"), F.count("offset").alias("events")
    )
    events = observed.where("offset IS NOT NULL")
    column = event_time.cast("timestamp").alias(name, metadata={"spark.watermarkDelayMs": 0})
    return events.select("*", column).drop("mark_time")
