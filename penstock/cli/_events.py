"""Printing events: how many, and in which form."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, BinaryIO, Final

from penstock.cli._output import moment, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock import Store
    from penstock.model import EventPointer

__all__ = ["EventPrinter", "first_events", "print_whole"]

_READ_SIZE: Final = 1 << 20


def first_events(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches up to a number of events; never ask for a further one, since it may never arrive."""
    for batch in batches:
        yield batch if limit is None else batch[:limit]
        if limit is not None:
            limit -= len(batch)
            if limit <= 0:
                return


class EventPrinter:
    """Prints each event as a line: its bytes, or JSON.

    Large events are null in what ``store.read`` returns. With ``whole`` they are printed, in the memory of a chunk;
    otherwise their size and pointer is.
    """

    def __init__(
        self, out: BinaryIO, store: Store, stream: str, *, as_json: bool, whole: bool, windows: bool = False
    ) -> None:
        self._out, self._store, self._stream = out, store, stream
        self._as_json, self._whole, self._windows = as_json, whole, windows

    def print(self, batch: pa.RecordBatch) -> None:
        """Print the events of a batch, and flush the output."""
        events: list[bytes | None] = batch.column("event").to_pylist()
        if self._as_json:
            self._print_json(batch, events)
        else:
            small = [event for event in events if event is not None]
            if len(small) == len(events) and not self._windows:
                self._out.write(b"\n".join([*small, b""]))
            else:
                self._print_each(batch, events)
        self._out.flush()

    def _print_json(self, batch: pa.RecordBatch, events: list[bytes | None]) -> None:
        import pyarrow as pa

        from penstock.cli._json_events import NO_WINDOW, json_line, streamed_json_line

        lines: list[bytes] = []
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        carried = zip(times, batch.column("key").to_pylist(), batch.column("headers").to_pylist(), strict=True)
        for pointer, event, (time, key, headers) in zip(self._pointers(batch), events, carried, strict=True):
            window = self._store.time_window(pointer) if self._windows else NO_WINDOW
            if event is None and self._whole:
                self._out.write(b"".join(lines))
                lines.clear()
                with self._store.fetch_event_as_stream(pointer) as large:
                    self._out.writelines(streamed_json_line(large, window=window))
                continue
            count = self._store.fetch_event_as_stream(pointer).size if event is None else None
            lines.append(
                json_line(str(pointer), event, size=count, timestamp=time, key=key, headers=headers, window=window)
            )
        self._out.write(b"".join(lines))

    def _pointers(self, batch: pa.RecordBatch) -> Iterator[EventPointer]:
        from penstock.model import EventPointer

        segments, offsets = batch.column("segment_id").to_pylist(), batch.column("offset").to_pylist()
        for segment, offset in zip(segments, offsets, strict=True):
            yield EventPointer(self._stream, segment, offset)

    def _print_each(self, batch: pa.RecordBatch, events: list[bytes | None]) -> None:
        from penstock.model import TimeWindow

        for pointer, event in zip(self._pointers(batch), events, strict=True):
            if self._windows:
                window = self._store.time_window(pointer) or TimeWindow(None, None)
                self._out.write(f"{moment(window.lower)}\t{moment(window.upper)}\t".encode())
            if event is not None:
                self._out.write(event)
            elif self._whole:
                print_whole(self._store, pointer, self._out)
            else:
                count = self._store.fetch_event_as_stream(pointer).size
                self._out.write(f"(large event, size {size(count)}: penstock cat {pointer})".encode())
            self._out.write(b"\n")


def print_whole(store: Store, pointer: EventPointer, out: BinaryIO) -> None:
    """Print an event of any size byte for byte, in the memory of a chunk."""
    with store.fetch_event_as_stream(pointer) as event:
        shutil.copyfileobj(event, out, _READ_SIZE)
