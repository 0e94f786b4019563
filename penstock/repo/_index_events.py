"""The index of a repository, as it is read from its stream.

Those who may write to the stream can forge index events, and name others in them: so no more is read, decompressed or
held than an index of that stream can have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model import EventPointer
from penstock.repo._events import IndexHead, IndexPart, decode_index_event
from penstock.repo._index import ROW_SIZE, Index, merge
from penstock.repo._stream_blocks import SEGMENT

if TYPE_CHECKING:
    from penstock.store import Store

__all__ = ["load_index"]

_FRAME_SIZE: Final = 1 << 10  # of what zstd adds to rows that it cannot compress
_HEAD_SIZE_MAX: Final = 64 << 20  # the parents that are nowhere, as in the records of inserts


def load_index(store: Store, stream: str, address: int, *, rows_max: int) -> tuple[IndexHead, list[IndexPart], Index]:
    """Return the head of an index event, the events that make up the index, and the index.

    ``ValueError`` if one of them is damaged, or has more than it can have.
    """
    head, rows = _index_event(store, stream, address, rows_max)
    if head.end > address:
        raise ValueError("it lists items behind itself")
    earlier: list[Index] = []
    for part in head.earlier:
        left = rows_max - len(rows) - sum(map(len, earlier))
        earlier.append(_index_event(store, stream, part.address, left)[1])
    return head, [*head.earlier, IndexPart(address, head.start, len(rows))], merge([*earlier, rows])


def _index_event(store: Store, stream: str, address: int, rows_max: int) -> tuple[IndexHead, Index]:
    rows_max = min(rows_max, address)  # an item takes more than a byte of the stream
    with store.fetch_event_as_stream(EventPointer(stream, SEGMENT, address)) as file:
        prefix = file.read(8)
        head = file.read(min(int.from_bytes(prefix[4:], "big"), _HEAD_SIZE_MAX))
        start = file.read(8)
        rows = min(int.from_bytes(start[4:], "big"), rows_max)
        event = b"".join([prefix, head, start, file.read(2 * ROW_SIZE * rows + _FRAME_SIZE)])
    return decode_index_event(event, rows_max=rows_max)
