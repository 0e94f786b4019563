"""Verifying a backup: every point is read, and every piece is compared with its checksums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.backup._pack import checksum
from penstock.backup._target import BackupTarget, open_target
from penstock.errors import BackupCorrupt, CorruptData, FormatUnknown, NoSuchPoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from penstock.backup._point import Place, Point

__all__ = ["VerifyReport", "read_place", "verify_backup", "verify_pack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was read of a backup, and what is wrong with it; points in ``damaged`` cannot be restored completely."""

    points: tuple[str, ...]
    packs: int
    size_bytes: int
    damaged: tuple[str, ...]
    faults: tuple[CorruptData | FormatUnknown, ...]

    @property
    def good(self) -> tuple[str, ...]:
        """The points that can be restored completely, the oldest first."""
        return tuple(name for name in self.points if name not in set(self.damaged))

    @property
    def advice(self) -> str:
        """What to do if a point is damaged: which other one can be restored, and how the next backup is a good one."""
        repair = "delete the damaged files, then the next backup copies again what was in them"
        if not self.good:
            return f"no point of this backup can be restored completely: {repair}"
        more = f", and {len(self.good) - 1} before it" if len(self.good) > 1 else ""
        return f"restore another point: {self.good[-1]} can be restored completely{more} (--at); {repair}"


def verify_pack(target: BackupTarget, name: str) -> int:
    """Compare every piece of a pack with its checksum; return the bytes that were read."""
    index = target.index(name)
    for piece in index.pieces:
        data = target.read_pack(name, index.data_start + piece.position, piece.size)
        if checksum(data) != piece.crc:
            reason = f"a piece of plog {piece.plog} fails its checksum"
            raise BackupCorrupt(target.where_pack(name), offset=index.data_start + piece.position, reason=reason)
    return index.data_end


def read_place(target: BackupTarget, point: Point, place: Place, *, plog: str) -> memoryview:
    """Return a piece of a plog, compared with the checksum that the point has of it."""
    pack = point.packs[place.pack]
    data = target.read_pack(pack, place.position, place.size)
    if checksum(data) != place.crc:
        reason = f"a piece of plog {plog} fails its checksum"
        raise BackupCorrupt(target.where_pack(pack), offset=place.position, reason=reason)
    return data


def verify_backup(
    target: BackupTarget | str | PathLike[str],
    *,
    on_progress: Callable[[str, int, int], object] = lambda act, done, total: None,
) -> VerifyReport:
    """Read all points and packs of a backup, and compare them with their checksums. Nothing is changed."""
    if not isinstance(target, BackupTarget):
        target = open_target(target)
    target.check_format()
    names = target.points()
    faults: list[CorruptData | FormatUnknown] = []
    points: dict[str, Point] = {}
    for name in names:
        try:
            points[name] = target.point(name)
        except (BackupCorrupt, FormatUnknown) as error:
            faults.append(error)
        except NoSuchPoint:
            continue  # removed meanwhile
    packs = sorted({pack for point in points.values() for pack in point.packs})
    bad, size = set(), 0
    for done, pack in enumerate(packs):
        on_progress("verifying", done, len(packs))
        try:
            size += verify_pack(target, pack)
        except (BackupCorrupt, FormatUnknown) as error:
            faults.append(error)
            bad.add(pack)
    damaged = [name for name in names if name not in points or bad & set(points[name].packs)]
    return VerifyReport(
        points=tuple(names), packs=len(packs), size_bytes=size, damaged=tuple(damaged), faults=tuple(faults)
    )
