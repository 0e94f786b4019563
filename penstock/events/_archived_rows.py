"""The rows of an archive: the columns of a stream, where each event was, and files for those that are too large."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoints import sync
from penstock.model import EventPointer

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.store import Store

__all__ = ["BATCH_SIZE", "ArchivedRows"]

BATCH_SIZE: Final = 64 << 20
_COPY_SIZE: Final = 1 << 20
_LARGE: Final = "_large"


class ArchivedRows:
    """Makes rows of the events of a stream; ``table`` is the folder of the archive, ``job`` the name of its job."""

    def __init__(self, store: Store, stream: str, table: Path, job: str) -> None:
        self._store, self._stream, self._table, self._job = store, stream, table, job

    def of(self, events: pa.RecordBatch) -> pa.Table:
        """Return the columns of the table, which are those of the source of Spark; copy large events to files."""
        scope, name = self._stream.split("/")
        table = pa.table(events)
        offsets, segments = table["offset"].to_numpy(), table["segment_id"].to_numpy()
        sizes = pc.binary_length(table["event"]).cast(pa.int64()).to_pylist()
        files: list[str | None] = [None] * len(table)
        for row in np.flatnonzero(table["event"].is_null().to_numpy()):
            pointer = EventPointer(self._stream, int(segments[row]), int(offsets[row]))
            files[row], sizes[row] = self._copy(pointer)
        pointers = [f"{self._stream}:{s}@{o}" for s, o in zip(segments.tolist(), offsets.tolist(), strict=True)]
        return (
            table.append_column("scope", pa.array([scope] * len(table)))
            .append_column("stream", pa.array([name] * len(table)))
            .append_column("size", pa.array(sizes, pa.int64()))
            .append_column("pointer", pa.array(pointers, pa.string()))
            .append_column("file", pa.array(files, pa.string()))
        )

    def _copy(self, pointer: EventPointer) -> tuple[str, int]:
        """Copy an event to a file of its own; return its name in the table, and the size."""
        file = f"{_LARGE}/{self._job}-{pointer.segment_id}-{pointer.offset}"
        place = self._table / file
        with self._store.fetch_event_as_stream(pointer) as event:
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                part = place.with_name(f"{place.name}.part")
                with part.open("wb") as copy:
                    shutil.copyfileobj(event, copy, _COPY_SIZE)
                sync(part)
                part.replace(place)
                sync(place.parent)
            return file, event.size
