"""What tests of the source share: tables of a stream, and what was written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock.client import Store

__all__ = ["STREAM", "load_table", "write_events"]

STREAM = "plant/readings"


def load_table(
    spark: SparkSession, folder: Path, stream: str = STREAM, schema: str | None = None, **options: object
) -> DataFrame:
    """Return a stream as a table."""
    reader = spark.read.format("penstock").option("store", str(folder)).option("stream", stream)
    if schema is not None:
        reader = reader.schema(schema)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def write_events(store: Store, events: Iterable[bytes], stream: str = STREAM) -> list[bytes]:
    """Write events, each under itself as its key, and see them durable; return them."""
    written = list(events)
    with store.writer(stream) as writer:
        writer.write_batch(written, keys=[event.decode("latin-1") for event in written])
    return written
