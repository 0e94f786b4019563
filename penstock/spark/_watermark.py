"""The writers' own watermark as Spark's: exact, where Spark alone must guess how late events may arrive.

The watermark also advances without events. The source is therefore loaded again with watermark-only rows; the watermark
sees them, and a filter after it drops them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import NumericType

from penstock.errors import BadArgument
from penstock.spark._columns import names_in
from penstock.spark._options import milliseconds_of, plain_name

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import Column, DataFrame

__all__ = ["with_writer_watermark"]


def with_writer_watermark(
    df: DataFrame, name: str, event_time: Column, delay: str | timedelta = "0 seconds"
) -> DataFrame:
    """Add the column ``name``, the time of each event, with the watermark that the stream's writers promise.

    ``df`` is a source of ``format("penstock")`` as it was loaded, without any transformation. With a ``delay``, such as
    "1 hour", the watermark stays that far behind the promise: state is kept for longer, and
    ``dropDuplicatesWithinWatermark`` finds duplicates within that time.
    """
    delay_ms = milliseconds_of("delay", delay)
    missing = [column for column in ("mark_time", "offset") if column not in df.columns]
    if missing:
        raise BadArgument(
            f"with_writer_watermark needs the column {missing[0]!r} of the source: give it the DataFrame just as "
            "it was loaded, and name mark_time and offset if you name columns with .schema()"
        )
    if name in df.columns:
        raise BadArgument(f"the source already has a column {name!r}: give the time another name")
    kind = df.select(event_time).schema[0].dataType
    if isinstance(kind, NumericType):
        raise BadArgument(
            f"the time of an event cannot be a {kind.simpleString()}: convert it with timestamp_millis(…)"
        )
    timed = df
    if df.isStreaming:
        timed = _with_mark_rows(df, _text_of(event_time)).withWatermark("mark_time", f"{delay_ms} milliseconds")
    # A barrier: without it the filter would be moved before the watermark, and watermark-only rows would be lost.
    observed = timed.observe(
        f"penstock-{uuid.uuid4()}", F.max("mark_time").alias("watermark"), F.count("offset").alias("events")
    )
    events = observed.where("offset IS NOT NULL")
    column = event_time.cast("timestamp").alias(name, metadata={"spark.watermarkDelayMs": delay_ms})
    return events.select("*", column).drop("mark_time")


def _text_of(column: Column) -> str:
    """Return an expression as text, for the checkpoint, whose watermark refers to this expression only."""
    return str(column).removeprefix("Column<'").removesuffix("'>")


def _with_mark_rows(df: DataFrame, event_time: str) -> DataFrame:
    """Return the source again, with watermark-only rows."""
    options = _options_of(df)
    if options is None:
        raise BadArgument(
            "with_writer_watermark comes first: give it the DataFrame just as it was loaded, and filter, choose or "
            "join behind it; or the watermark would not see what you drop"
        )
    texts = {plain_name(option): text for option, text in options.items()}
    taken = {"offset", "mark_time"} & set(names_in(texts.get("jsonschema", "")))
    if taken:
        raise BadArgument(
            f"with_writer_watermark needs the column {min(taken)!r} of the stream, and 'json_schema' names one of the "
            "JSON so: read the event as raw, and take that field with get_json_object"
        )
    reader = df.sparkSession.readStream.format("penstock").schema(df.schema)
    return reader.options(**texts | {"mark_rows": "true", "event_time": event_time}).load()


def _options_of(df: DataFrame) -> dict[str, str] | None:
    """Return the options of a source without transformations; None for any other DataFrame."""
    any_df: Any = df
    if hasattr(df, "_jdf"):
        plan = any_df._jdf.queryExecution().analyzed()
        is_source = plan.getClass().getSimpleName() == "StreamingRelationV2" and plan.sourceName() == "penstock"
        return dict(plan.extraOptions().asCaseSensitiveMap()) if is_source else None
    plan = any_df._plan  # of Spark Connect
    is_source = type(plan).__name__ == "DataSource" and plan._format == "penstock"
    return dict(plan._options or {}) if is_source else None
