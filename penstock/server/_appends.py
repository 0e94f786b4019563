"""Blocks as they come on a put stream: of one writer, or small ones of all writers of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.server._session import SessionOver
from penstock.server._writers import ClientWriter
from penstock.wire import SMALL_SIZE_MAX, pack_error, pack_plain, unpack_shared
from penstock.wire.operations import writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyarrow import flight

    from penstock.ports import Bytes
    from penstock.server._session import Session
    from penstock.wire import Acknowledgement, ByteBudget

    Check = Callable[[writers.AppendBlocks], None]
    """Raises why the client may not append blocks of a writer."""

__all__ = ["WriterAppends", "acknowledged_together", "append_blocks", "append_shared", "message_size"]


def message_size(chunk: flight.FlightStreamChunk) -> int:
    """Return the size of a message: of its buffers, because nbytes reads offsets where an array has none."""
    batch, metadata = chunk.data, chunk.app_metadata
    return (0 if batch is None else batch.get_total_buffer_size()) + (0 if metadata is None else metadata.size)


def _metadata(chunk: flight.FlightStreamChunk) -> bytes:
    data: bytes = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
    return data


def append_blocks(
    session: Session,
    number: Any,  # noqa: ANN401 - whatever was sent
    chunks: Iterator[flight.FlightStreamChunk],
    check: Check,
    answer: flight.FlightMetadataWriter,
) -> None:
    """Append the blocks of one writer: each message is one, and says how many follow that are acknowledged with it."""
    appends = WriterAppends(session, writers.AppendBlocks.of([number]), check)
    try:
        for chunk in chunks:
            session.note_seen()
            acknowledged = appends.put(chunk.data, _metadata(chunk), size=message_size(chunk))
            if acknowledged is not None:
                _answer(session, acknowledged, answer)
    finally:
        appends.end()


def append_shared(
    session: Session,
    chunks: Iterator[flight.FlightStreamChunk],
    check: Check,
    answer: flight.FlightMetadataWriter,
) -> None:
    """Append blocks of several writers: each message has some, which are acknowledged together, writer by writer."""
    for chunk in chunks:
        session.note_seen()
        _answer(session, acknowledged_together(session, _metadata(chunk), check, size=message_size(chunk)), answer)


def acknowledged_together(session: Session, message: bytes, check: Check, *, size: int) -> list[Acknowledgement]:
    """Append the blocks in a message; return the acknowledgement of each writer once they are durable."""
    with session.budget.held(size):
        return [
            writer.acknowledge() if isinstance(writer, ClientWriter) else ([], pack_error(writer))
            for writer in _submitted(session, unpack_shared(message), check)
        ]


class WriterAppends:
    """The blocks of one writer, which come one by one, and are acknowledged some together."""

    def __init__(self, session: Session, call: writers.AppendBlocks, check: Check) -> None:
        self._call, self._check = call, check
        self._writer: ClientWriter = session.get(call.writer, ClientWriter)
        self._under_way = _UnderWay(session.budget, self._writer)

    @property
    def number(self) -> int:
        """The number of the writer."""
        return self._call.writer

    def put(
        self, batch: pa.RecordBatch | None, metadata: Bytes, *, size: int, size_max: int = SMALL_SIZE_MAX
    ) -> Acknowledgement | None:
        """Append a block; return the acknowledgement, once they are durable, if it is the last of some."""
        self._check(self._call)
        self._under_way.take(size)
        if self._writer.submit(batch, metadata, size_max=size_max):
            return None
        acknowledged = self._writer.acknowledge()
        self._under_way.end()
        return acknowledged

    def end(self) -> None:
        """Return the budget of blocks that are not acknowledged."""
        self._under_way.end()


def _submitted(session: Session, blocks: list[tuple[int, bytes]], check: Check) -> list[ClientWriter | PenstockError]:
    """Append blocks without waiting; return the writers in their order, or why the blocks of one were refused."""
    found: dict[int, ClientWriter | PenstockError] = {}
    for number, block in blocks:
        writer = found.get(number)
        if writer is None:
            try:
                check(writers.AppendBlocks(number))
                writer = session.get(number, ClientWriter)
            except PenstockError as error:
                writer = error
            found[number] = writer
        if isinstance(writer, ClientWriter):
            writer.submit(None, block)
    return list(found.values())


def _answer(session: Session, acknowledged: object, answer: flight.FlightMetadataWriter) -> None:
    if session.is_over:
        raise SessionOver("the session is over")
    answer.write(pa.py_buffer(pack_plain(acknowledged)))


class _UnderWay:
    """The blocks of a writer that are not durable yet: they take budget of their client.

    A writer that finds no budget makes its blocks durable first: so no thread that waits for budget holds any.
    """

    def __init__(self, budget: ByteBudget, writer: ClientWriter) -> None:
        self._budget, self._writer = budget, writer
        self._size = 0

    def take(self, size: int) -> None:
        """Take budget for another block."""
        if not self._budget.take(size, wait=False):
            self._writer.settle()
            self.end()
            self._budget.take(size)
        self._size += size

    def end(self) -> None:
        """Return the budget: the blocks are durable, or given up."""
        size, self._size = self._size, 0
        self._budget.give(size)
