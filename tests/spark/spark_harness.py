"""What tests of Spark share: events with a time of their own, and watermarks that are waited for."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store
    from penstock.stream import StreamWriter

__all__ = ["event_time", "load_stream", "note_all", "running", "write_at"]


def event_time() -> Column:
    """Return when an event happened, out of its JSON."""
    return F.timestamp_millis(F.get_json_object(F.col("event").cast("string"), "$.at").cast("long"))


def write_at(writer: StreamWriter, *seconds: float, name: str = "e") -> None:
    """Write events that happened at these seconds, and see them durable."""
    for second in seconds:
        event = {"at": int(second * 1000), "id": f"{name}{second:g}"}
        writer.write_event(json.dumps(event).encode(), key=f"{name}{second}")
    writer.flush()


def note_all(store: Store, stream: str, seconds: float, *writers: StreamWriter) -> None:
    """Let writers note a time, and wait until the stream's watermark says so."""
    for writer in writers:
        writer.note_time(int(seconds * 1000))
        writer.flush()
    while (mark := store.watermark(stream)) is None or mark.lower < seconds * 1000:
        store.maintain()


def load_stream(spark: SparkSession, folder: Path, stream: str, **options: object) -> DataFrame:
    """Return a source that goes on without end."""
    reader = spark.readStream.format("penstock").option("store", str(folder)).option("stream", stream)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


@contextmanager
def running(df: DataFrame, name: str, checkpoint: Path, mode: str = "append") -> Iterator[StreamingQuery]:
    """Run a query into a table in memory, as long as the block lasts."""
    writer = df.writeStream.format("memory").queryName(name).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()
