"""Events on their way in and out: lines of a file, and what is printed of an event."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, BinaryIO, Final

from penstock.errors import EventTooLarge

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["EventPrinter", "as_json_line", "first_events", "lines_of"]

_READ_SIZE: Final = 256 << 10


def lines_of(file: io.BufferedIOBase, *, limit: int) -> Iterator[list[bytes]]:
    """Return the lines of a file without their ends, as many at once as one read brought.

    No more is read before those are taken, so a pipe is as slow as who reads it. Of a line above ``limit`` no more is
    read than tells.
    """
    begun: list[bytes] = []  # of a line whose end has not come yet
    size = 0
    while data := file.read1(_READ_SIZE):
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*begun, lines[0]])
            _check_size(len(lines[0]), limit)
            begun, size = [], 0
            yield lines
        begun.append(rest)
        size += len(rest)
        _check_size(size, limit)
    if size:
        yield [b"".join(begun)]


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise EventTooLarge(size=size, limit=limit)


def first_events(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Return the batches up to so many events; none is asked for that is not needed, since it may never come."""
    for batch in batches:
        yield batch if limit is None else batch[:limit]
        if limit is not None:
            limit -= len(batch)
            if limit <= 0:
                return


def as_json_line(pointer: object, event: bytes) -> bytes:
    """Return an event as a line of JSON: as text where it is UTF-8, otherwise in base64 under another name."""
    import msgspec

    try:
        value = {"pointer": str(pointer), "event": event.decode()}
    except UnicodeDecodeError:
        value = {"pointer": str(pointer), "event_base64": base64.b64encode(event).decode()}
    return msgspec.json.encode(value) + b"\n"


class EventPrinter:
    """Prints events, each as a line of its own: as it is, or as JSON."""

    def __init__(self, out: BinaryIO, stream: str, *, as_json: bool) -> None:
        self._out, self._stream, self._as_json = out, stream, as_json

    def print(self, batch: pa.RecordBatch) -> None:
        """Print the events of a batch, and let them be seen at once."""
        events: list[bytes] = batch.column("event").to_pylist()
        if self._as_json:
            self._out.write(b"".join(self._json_lines(batch, events)))
        elif events:
            self._out.write(b"\n".join([*events, b""]))
        self._out.flush()

    def _json_lines(self, batch: pa.RecordBatch, events: list[bytes]) -> Iterator[bytes]:
        from penstock.model import EventPointer

        segments, offsets = batch.column("segment_id").to_pylist(), batch.column("offset").to_pylist()
        for segment, offset, event in zip(segments, offsets, events, strict=True):
            yield as_json_line(EventPointer(self._stream, segment, offset), event)
