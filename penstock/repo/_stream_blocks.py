"""The blocks of a repository as events of its stream; one above a megabyte is a large event."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from penstock.errors import RepositoryCorrupt
from penstock.model import EventPointer
from penstock.repo._block import BlockDamaged, table_size
from penstock.repo._events import INSERT_MAGIC, INSERT_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.store import Store, Transaction

__all__ = ["EVENT_SIZE", "SEGMENT", "StreamBlocks", "write_block"]

EVENT_SIZE: Final = 1 << 20  # a larger block is written as a large event
SEGMENT: Final = 0


class StreamBlocks:
    """Blocks that are events of a stream."""

    def __init__(self, store: Store, stream: str) -> None:
        self._store, self._stream = store, stream

    def read_block(self, address: int, *, table_only: bool) -> bytes:
        """Return a block, or the beginning of a large one that has its table."""
        with self._store.fetch_event_as_stream(EventPointer(self._stream, SEGMENT, address)) as file:
            if not table_only:
                return file.readall()
            start = file.read(EVENT_SIZE)
            if start[:4] == INSERT_MAGIC:
                return start + file.read(INSERT_SIZE_MAX)
            with contextlib.suppress(BlockDamaged):  # which shows when the start is decoded
                return start + file.read(max(0, table_size(start) - len(start)))
            return start

    def pieces(self, address: int) -> Iterator[bytes]:
        """Return a block piece by piece."""
        with self._store.fetch_event_as_stream(EventPointer(self._stream, SEGMENT, address)) as file:
            while piece := file.read(EVENT_SIZE):
                yield piece

    def damaged(self, address: int, reason: str) -> RepositoryCorrupt:
        """Return the error that says which block is damaged."""
        return RepositoryCorrupt(f"stream {self._stream}", offset=address, reason=reason)


def write_block(transaction: Transaction, block: bytes) -> None:
    """Write a block as an event of a transaction."""
    if len(block) <= EVENT_SIZE:
        transaction.write_event(block)
        return
    with transaction.begin_write_event() as file:
        file.write(block)
