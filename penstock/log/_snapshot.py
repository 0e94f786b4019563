"""A snapshot of a partition: all of its plogs, as they were at one moment, for as long as it is open.

What a crash at that moment could have left is in it: all that was acknowledged, and nothing whose cause is not in it.
So a store that is made of these plogs recovers as after a crash. Sealed plogs do not change. Of an active plog, and of
the metadata plog, the snapshot has the length of that moment, and appends go on behind it.

Plogs of a snapshot are not deleted before it is closed. The metadata plog is read when the snapshot is taken, because
a switch to another one deletes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, NoSuchPlog, PlogCorrupt, StoreClosed
from penstock.plog import raw_from
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.log._manager import MetadataManager
    from penstock.model import PlogId
    from penstock.plog import RawBlocks

__all__ = ["READ_LIMIT", "PartitionSnapshot", "PlogCut"]

READ_LIMIT: Final = 4 << 20
"""Bytes of blocks that one read returns, unless a single block has more."""


@dataclass(frozen=True, slots=True)
class PlogCut:
    """A plog of a snapshot: its length, and the log that it belongs to; empty for the metadata plog.

    ``key`` is its uid and birth. It is empty if the plog is damaged or missing, and a read of the plog says how.
    """

    plog_id: PlogId
    length: int
    log: str
    key: bytes = b""


class PartitionSnapshot:
    """The plogs of a partition at the moment at which this is created; :meth:`close` lets go of them."""

    def __init__(self, manager: MetadataManager) -> None:
        self._manager = manager
        self._closed = False
        with manager.lock:  # no log is created, spliced, merged or switched meanwhile
            manager.check_open()
            manager.check_owned()
            manager.settle()
            self.metadata_plog: Final = manager.partition.plog_id
            cuts = _cuts(manager)
            self._metadata = self._read_metadata(cuts[0].length)
            self._held = frozenset(cut.plog_id for cut in cuts)
            manager.hold(self._held)
        try:
            self.plogs: Final = tuple(replace(cut, key=self._key(cut.plog_id)) for cut in cuts)
        except BaseException:
            self.close()
            raise

    def _key(self, plog_id: PlogId) -> bytes:
        if plog_id == self.metadata_plog:
            return self._metadata[0].key
        try:
            return self._manager.plogs.key(plog_id)
        except (NoSuchPlog, PlogCorrupt):
            return b""

    def _read_metadata(self, length: int) -> list[RawBlocks]:
        plogs, offset = self._manager.plogs, 0
        raws: list[RawBlocks] = []
        while not raws or offset < length:
            raw = plogs.raw(self.metadata_plog, offset, length, limit=READ_LIMIT)
            raws.append(raw)
            offset = raw.end
        return raws

    def read(self, plog_id: PlogId, offset: int, end: int) -> RawBlocks:
        """Return complete blocks from ``offset`` on, up to ``end`` or up to ``READ_LIMIT``, as they are stored."""
        if self._closed:
            raise StoreClosed("the snapshot")
        if plog_id not in self._held or not 0 <= offset <= end:
            raise BadArgument(f"bytes {offset} to {end} of plog {plog_id} are not in this snapshot")
        if plog_id == self.metadata_plog:
            found = next((raw for raw in self._metadata if offset <= raw.end), None)
            if found is None:
                raise BadArgument(f"the metadata plog {plog_id} ends before {offset}")
            return raw_from(found, offset, end)
        try:
            return self._manager.plogs.raw(plog_id, offset, end, limit=READ_LIMIT)
        except NoSuchPlog as error:
            reason = "it is missing, and a log needs it"
            raise PlogCorrupt(self.where(plog_id), offset=None, reason=reason) from error

    def where(self, plog_id: PlogId) -> str:
        """Return the path or the address of a plog, for messages."""
        return self._manager.plogs.where(plog_id)

    @uninterrupted
    def close(self) -> None:
        """Let plogs that no log needs be deleted again; closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._manager.let_go(self._held)

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _cuts(manager: MetadataManager) -> tuple[PlogCut, ...]:
    """Return the plogs of all logs, and the metadata plog; the caller holds the lock of the manager."""
    partition = manager.partition
    with manager.chains:
        logs = {name: (chain.sealed, chain.active) for name, chain in partition.metadata.logs.items()}
    infos = manager.plogs.cut([partition.plog_id, *(active for _, active in logs.values())])
    cuts = [PlogCut(partition.plog_id, infos[partition.plog_id].length, "")]
    for name, (sealed, active) in logs.items():
        cuts += (PlogCut(plog_id, length, name) for plog_id, length in sealed)
        cuts.append(PlogCut(active, infos[active].length if active in infos else 0, name))
    return tuple(cuts)
