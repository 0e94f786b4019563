"""What tests of the source share: tables of a stream, what was written to it, and what its user is told."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from penstock.spark._errors import told_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Store
    from penstock.errors import PenstockError

__all__ = ["STREAM", "load_table", "refused", "write_events"]

STREAM = "plant/readings"
OURS_MAX = 2  # lines of our code that an error is shown with: where it is raised, and who asked


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


@contextmanager
def refused(kind: type[PenstockError], *words: str) -> Iterator[None]:
    """Expect an error of Spark's that tells ours, and nothing that only we understand."""
    with pytest.raises(PySparkException) as caught:
        yield
    text, told = str(caught.value), told_by(caught.value)
    assert told is not None, text
    assert type(told) is kind
    for word in words:
        assert word in str(told)
    assert "\n" not in str(told)
    assert "SQLSTATE" not in str(told)
    assert "\tat org.apache" not in text
    assert "During handling" not in text, "an error of Spark's own covers ours"
    assert text.count("penstock/spark/") <= OURS_MAX
    assert not text[text.index(str(told)) + len(str(told)) :].lstrip().startswith("File"), "our sentence is the last"
