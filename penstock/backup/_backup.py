"""Making a backup: what of a snapshot the target lacks is copied into packs, and a point is written at the end.

Blocks are checked while they are copied, packs are read again before the point is written. A plog that has pieces in
the target is continued behind them (:mod:`penstock.backup._known`). Before the point is there, nothing of the backup
before is changed; if this is interrupted, the next backup finds the packs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._version import __version__
from penstock.backup._known import KnownPieces
from penstock.backup._pack import PACK_SIZE, PackedPiece, checksum, pack_start
from penstock.backup._point import Place, PlogAtPoint, Point
from penstock.backup._prune import delete_points_before, delete_unused_packs
from penstock.backup._snapshots import blocks_of, take_snapshot
from penstock.backup._target import BackupTarget, open_target
from penstock.backup._verify import verify_pack
from penstock.errors import SnapshotLost
from penstock.model import check_whole
from penstock.plog import check_raw
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from penstock.backup._known import FoundPiece
    from penstock.backup._snapshots import StoreSnapshot
    from penstock.log import PlogCut
    from penstock.ports import Bytes, Clock
    from penstock.store import Store

__all__ = ["BackupReport", "backup_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A backup that was made: the name of its point, all of its bytes, and those that had to be copied."""

    point: str
    plogs: int
    size_bytes: int
    copied_bytes: int
    removed_points: tuple[str, ...]


def backup_store(
    store: Store,
    target: BackupTarget | str | PathLike[str],
    *,
    keep_points: int | None = None,
    on_progress: Callable[[str, int, int], object] = lambda act, done, total: None,
    clock: Clock | None = None,
) -> BackupReport:
    """Back a store up as it is at one moment of this call, into a folder or a bucket; others use it meanwhile.

    Only what the target lacks is copied. With ``keep_points``, only so many of the newest points stay. ``on_progress``
    gets what is done, the bytes that are done, and all of them. A store on a server needs the permission ``admin``.
    """
    if keep_points is not None:
        check_whole("keep_points", keep_points, least=1)
    if not isinstance(target, BackupTarget):
        target = open_target(target, create=True)
    with target.changing():
        known = KnownPieces(target)
        with take_snapshot(store) as snapshot:
            now_ms = int((clock or SystemClock()).now() * 1000)
            copy = _Copy(target, snapshot, known.in_snapshot(snapshot, on_progress), on_progress)
            point = copy.run(time_ms=max(now_ms, known.newest_ms + 1))
        for done, pack in enumerate(copy.written):
            on_progress("verifying", done, len(copy.written))
            verify_pack(target, pack)
        name = target.put_point(point)
        removed = delete_points_before(target, count=keep_points) if keep_points is not None else ()
        if removed or known.has_unused(point):
            delete_unused_packs(target)
    return BackupReport(
        point=name,
        plogs=len(point.plogs),
        size_bytes=point.size,
        copied_bytes=copy.copied,
        removed_points=removed,
    )


class _Copy:
    """Copies a snapshot, pack by pack."""

    def __init__(
        self,
        target: BackupTarget,
        snapshot: StoreSnapshot,
        plans: list[tuple[PlogCut, list[FoundPiece]]],
        on_progress: Callable[[str, int, int], object],
    ) -> None:
        self._target, self._snapshot, self._on_progress = target, snapshot, on_progress
        self._plans = plans
        self._total = sum(cut.length - (found[-1].piece.end if found else 0) for cut, found in plans)
        self._done = 0
        self._parts: list[Bytes] = []
        self._pieces: list[PackedPiece] = []
        self._waiting: list[tuple[list[Place], PackedPiece]] = []  # pieces of the open pack, and their plogs
        self._size = 0
        self._packs: dict[str, int] = {}
        self.copied = 0
        self.written: list[str] = []

    def run(self, *, time_ms: int) -> Point:
        """Copy what is missing, and return the point."""
        plogs = []
        for cut, found in self._plans:
            places = [
                Place(self._number(each.pack), piece.offset, piece.end, each.position, piece.size, piece.crc)
                for each in found
                for piece in (each.piece,)
            ]
            key, size = (found[-1].piece.key, found[-1].piece.plog_size) if found else (cut.key, 0)
            end = places[-1].end if places else 0
            if end < cut.length or not places:
                key, size = self._copy(cut, end, places)
            plogs.append(PlogAtPoint(str(cut.plog_id), key, size, cut.length, cut.log, places))
        self._flush()
        return Point(time_ms, __version__, str(self._snapshot.metadata_plog), list(self._packs), plogs)

    def _number(self, pack: str) -> int:
        return self._packs.setdefault(pack, len(self._packs))

    def _copy(self, cut: PlogCut, offset: int, places: list[Place]) -> tuple[bytes, int]:
        """Copy a plog from ``offset`` on; return its key and its size."""
        key, size = cut.key, 0
        for raw in blocks_of(self._snapshot, cut, offset):
            check_raw(raw, where=self._snapshot.where(cut.plog_id))
            if cut.key not in (b"", raw.key):
                raise SnapshotLost(f"plog {cut.plog_id} was replaced by another")
            key, size = raw.key, raw.size
            if raw.end > raw.offset:
                self._add(cut, raw.offset, raw.end, raw.data, key=key, plog_size=size, places=places)
            self._done += raw.end - raw.offset
            self._on_progress("copying", self._done, self._total)
        return key, size

    def _add(
        self, cut: PlogCut, offset: int, end: int, data: Bytes, *, key: bytes, plog_size: int, places: list[Place]
    ) -> None:
        piece = PackedPiece(str(cut.plog_id), key, plog_size, offset, end, self._size, len(data), checksum(data))
        self._parts.append(data)
        self._pieces.append(piece)
        self._waiting.append((places, piece))
        self._size += len(data)
        self.copied += len(data)
        if self._size >= PACK_SIZE:
            self._flush()

    def _flush(self) -> None:
        """Write the open pack; only then it is known where its pieces are."""
        if not self._pieces:
            return
        start = pack_start(self._pieces)
        pack = self._target.put_pack([start, *self._parts])
        self.written.append(pack)
        number = self._number(pack)
        for places, piece in self._waiting:
            position = len(start) + piece.position
            places.append(Place(number, piece.offset, piece.end, position, piece.size, piece.crc))
        self._parts, self._pieces, self._waiting, self._size = [], [], [], 0
