"""Saving events to a file, as columns or lines. The file appears when it is complete."""

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
    """Write events to a file, in the format of its suffix."""
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
    """Yield a temporary path, which is renamed to ``path`` on success; a pipe or device is written to directly."""
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
