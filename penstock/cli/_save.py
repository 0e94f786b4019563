"""Saving events in a file: as columns or as lines. The file appears when it is whole."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.cli._events import EventPrinter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from penstock import Store

__all__ = ["COLUMN_FORMATS", "save"]

COLUMN_FORMATS: Final = (".parquet", ".arrow")


def save(batches: Iterator[pa.RecordBatch], path: Path, store: Store, stream: str, *, as_json: bool) -> None:
    """Write events to a file, in the form that its name asks for."""
    with _whole_or_nothing(path) as unfinished:
        if path.suffix in COLUMN_FORMATS:
            _save_columns(batches, unfinished, path.suffix)
        else:
            with unfinished.open("wb") as file:
                printer = EventPrinter(file, store, stream, as_json=as_json, whole=True)
                for batch in batches:
                    printer.print(batch)


def _save_columns(batches: Iterator[pa.RecordBatch], path: Path, suffix: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from penstock.stream import READ_SCHEMA

    writer = parquet.ParquetWriter if suffix == ".parquet" else pa.ipc.new_file
    with path.open("wb") as file, writer(file, READ_SCHEMA) as columns:
        for batch in batches:
            columns.write_batch(batch)


@contextmanager
def _whole_or_nothing(path: Path) -> Iterator[Path]:
    """Give a path to write to; it takes the name ``path`` if all goes well. A pipe or a device is written to as is."""
    if path.exists() and not path.is_file():
        yield path
        return
    unfinished = path.with_name(f"{path.name}.part")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
