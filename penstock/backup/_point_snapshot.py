"""A point of a backup as a snapshot, so that what reads a store can read a backup of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.backup._verify import read_place
from penstock.errors import BackupCorrupt, BadArgument
from penstock.log import PlogCut
from penstock.model import PlogId
from penstock.plog import RawBlocks

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.backup._point import Point
    from penstock.backup._target import BackupTarget

__all__ = ["PointSnapshot"]


class PointSnapshot:
    """The plogs of a store at a point."""

    def __init__(self, target: BackupTarget, point: Point) -> None:
        self._target, self._point = target, point
        self._plogs = {PlogId.parse(plog.plog): plog for plog in point.plogs}
        self.metadata_plog: Final = PlogId.parse(point.metadata_plog)
        self.plogs: Final = tuple(
            PlogCut(plog_id, plog.length, plog.log, plog.key) for plog_id, plog in self._plogs.items()
        )

    def read(self, plog_id: PlogId, offset: int, end: int) -> RawBlocks:
        """Return the piece that begins at ``offset``."""
        plog = self._plogs[plog_id]
        if offset == end == plog.length:
            return RawBlocks(plog.key, plog.plog_size, offset, end, b"")
        place = next((place for place in plog.places if place.offset == offset), None)
        if place is None:
            raise BackupCorrupt(self._target.where(), offset=None, reason=f"pieces of plog {plog_id} are missing")
        if place.end > end:
            raise BadArgument(f"no piece of plog {plog_id} ends at {end}")
        data = read_place(self._target, self._point, place, plog=plog.plog)
        return RawBlocks(plog.key, plog.plog_size, offset, place.end, data)

    def where(self, plog_id: PlogId) -> str:
        """Return the name of a plog, for messages."""
        packs = {self._point.packs[place.pack] for place in self._plogs[plog_id].places}
        return f"plog {plog_id} in {', '.join(map(self._target.where_pack, sorted(packs))) or self._target.where()}"

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
