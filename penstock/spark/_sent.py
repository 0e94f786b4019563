"""Rows that a task has sent and may have to send again, and the thread that sends them while Spark makes the next."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["InBackground", "SentRows"]

_KEPT_MAX: Final = 32 << 20  # of rows that are kept in memory to be sent again; more are in a file
_AHEAD_MAX: Final = 2  # batches that wait for the thread that sends


class SentRows:
    """Rows in order: the first ones in memory, as they came, and the others in a file."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._kept: list[pa.RecordBatch] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows to those that may be sent again."""
        if self._writer is None and self._size + batch.nbytes <= _KEPT_MAX:
            self._kept.append(batch)
            self._size += batch.nbytes
            return
        if self._writer is None:
            self._file = TemporaryFile()  # noqa: SIM115 - it goes with the task
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows so far, in order."""
        yield from self._kept
        if self._file is None:
            return
        end = self._file.tell()
        self._file.seek(0)
        try:
            yield from pa.ipc.open_stream(self._file)
        finally:
            self._file.seek(end)

    def close(self) -> None:
        """Drop the rows."""
        self._kept.clear()
        if self._file is not None:
            self._file.close()


class InBackground:
    """Calls a function with one batch after another, in a thread; a few batches may wait for it."""

    def __init__(self, call: Callable[[pa.RecordBatch], None]) -> None:
        self._call = call
        self._thread = ThreadPoolExecutor(1, "penstock-sink")
        self._pending: deque[Future[None]] = deque()

    def add(self, batch: pa.RecordBatch) -> None:
        """Hand a batch to the thread; raise the error of an earlier one."""
        self._pending.append(self._thread.submit(self._call, batch))
        while len(self._pending) > _AHEAD_MAX or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()

    def finish(self) -> None:
        """Wait for all batches; raise the first error."""
        while self._pending:
            self._pending.popleft().result()

    def __enter__(self) -> Self:
        """End the thread at the end of the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the thread; batches that it has not begun are dropped."""
        self._thread.shutdown(cancel_futures=True)
