"""Saving events to a file, as columns or lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.cli._events import EventPrinter
from penstock.cli._output_file import output_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa

    from penstock import Store

__all__ = ["COLUMN_FORMATS", "save"]

COLUMN_FORMATS: Final = (".parquet", ".arrow")


def save(batches: Iterator[pa.RecordBatch], path: Path, store: Store, stream: str, *, as_json: bool) -> None:
    """Write events to a file, in the format of its suffix."""
    with output_file(path) as file:
        if path.suffix in COLUMN_FORMATS:
            _save_columns(batches, file, path.suffix)
        else:
            printer = EventPrinter(file, store, stream, as_json=as_json, whole=True)
            for batch in batches:
                printer.print(batch)


def _save_columns(batches: Iterator[pa.RecordBatch], file: BinaryIO, suffix: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from penstock.stream import READ_SCHEMA

    writer = parquet.ParquetWriter if suffix == ".parquet" else pa.ipc.new_file
    with writer(file, READ_SCHEMA) as columns:
        for batch in batches:
            columns.write_batch(batch)
