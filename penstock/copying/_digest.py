"""A digest of events in their order, with keys and headers, however they are divided into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["EventDigest"]


class _Sum:
    """The checksum of an array of texts or bytes: one of the lengths, -1 for null, and one of all bytes."""

    def __init__(self) -> None:
        self.lengths = self.data = 0

    def add(self, array: pa.Array) -> None:
        if array.null_count == len(array):
            self.add_lengths(np.full(len(array), -1))
            return
        lengths = pc.fill_null(pc.binary_length(array), -1)
        self.add_lengths(lengths.to_numpy(zero_copy_only=False))
        if array.null_count:
            array = array.drop_null()
        bounds = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        data = array.buffers()[2]
        if data is not None:
            self.add_data(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]])

    def add_lengths(self, lengths: npt.NDArray[np.integer]) -> None:
        self.lengths = google_crc32c.extend(self.lengths, lengths.astype("<i8"))

    def add_data(self, data: npt.NDArray[np.uint8] | bytes) -> None:
        self.data = google_crc32c.extend(self.data, data)


class EventDigest:
    """The digest of a sequence of events; two that differ in an event, a key, a header or their order differ in it."""

    def __init__(self) -> None:
        self.events = self.size = 0
        self._event, self._key, self._name, self._value = _Sum(), _Sum(), _Sum(), _Sum()
        self._headers = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the events of a batch as a store returns it, none of which is null."""
        self.events += len(batch)
        self.size += pc.sum(pc.binary_length(batch["event"]), min_count=0).as_py() or 0
        self._event.add(batch["event"])
        self._add_attributes(batch)

    def add_chunk(self, data: bytes) -> None:
        """Add some bytes of a large event; :meth:`add_large` ends it."""
        self._event.add_data(data)
        self.size += len(data)

    def add_large(self, batch: pa.RecordBatch, size: int) -> None:
        """End a large event, whose bytes were added: ``batch`` has its key and its headers."""
        self.events += 1
        self._event.add_lengths(np.array([size]))
        self._add_attributes(batch)

    def _add_attributes(self, batch: pa.RecordBatch) -> None:
        self._key.add(batch["key"])
        headers = batch["headers"]
        counts = np.full(len(headers), -1)
        if headers.null_count < len(headers):
            kept = headers.drop_null()
            bounds = np.frombuffer(kept.buffers()[1], np.int32)[kept.offset : kept.offset + len(kept) + 1]
            counts[pc.is_valid(headers).to_numpy(zero_copy_only=False)] = np.diff(bounds)
            first, last = int(bounds[0]), int(bounds[-1])
            self._name.add(kept.keys[first:last])
            self._value.add(kept.items[first:last])
        self._headers = google_crc32c.extend(self._headers, counts.astype("<i8"))

    def hexdigest(self) -> str:
        """Return the digest so far."""
        sums = [self._event, self._key, self._name, self._value]
        parts = [part for each in sums for part in (each.lengths, each.data)]
        return "".join(f"{part:08x}" for part in [*parts, self._headers])
