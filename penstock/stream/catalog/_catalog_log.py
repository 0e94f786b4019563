"""The log of a catalog: how a snapshot is cut into appends, and how the log is read again when a store is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import StreamCorrupt
from penstock.stream.catalog._catalog_state import CatalogState
from penstock.stream.format import (
    SnapshotBegin,
    SnapshotEnd,
    SnapshotRecord,
    decode_records,
    encode_checked,
    encode_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log import LogStream
    from penstock.stream.format import Record

__all__ = ["replay", "snapshot_appends"]

_APPEND_SIZE: Final = 256 << 10


def snapshot_appends(state: CatalogState) -> Iterator[bytes]:
    """Return the appends of a snapshot, none too large."""
    batch: list[Record] = []
    size = 0
    for record in state.snapshot():
        more = len(encode_records([record]))
        if batch and size + more > _APPEND_SIZE:
            yield encode_checked(batch)
            batch, size = [], 0
        batch.append(record)
        size += more
    yield encode_checked(batch)


def replay(log: LogStream) -> tuple[CatalogState, int]:
    """Return what the log says, and how large its last snapshot is."""
    state, fresh, fresh_size, snapshot_size = CatalogState(), CatalogState(), 0, 0
    is_complete = log.start == 0  # otherwise the first records are the end of something that is not there any more
    is_inside = False
    for offset, data in log.blocks(log.start, log.length):
        try:
            for record in decode_records(data):
                if isinstance(record, SnapshotBegin):
                    fresh, fresh_size, is_inside = CatalogState(), 0, True
                elif not isinstance(record, SnapshotRecord):
                    is_inside = False  # it was never finished, because of a crash or a full disk
                if is_inside:
                    fresh.apply(record)
                elif is_complete:
                    state.apply(record)
                if is_inside and isinstance(record, SnapshotEnd):
                    state, snapshot_size, is_complete, is_inside = fresh, fresh_size + len(data), True, False
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            reason = f"no record that follows from those before ({error})"
            raise StreamCorrupt("the catalog of streams", offset=offset, reason=reason) from error
        fresh_size += len(data)
    if not is_complete:
        raise StreamCorrupt("the catalog of streams", offset=log.start, reason="it has no complete snapshot")
    return state, snapshot_size
