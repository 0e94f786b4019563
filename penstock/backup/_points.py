"""Listing the points of a backup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.backup._point import point_time_ms
from penstock.backup._target import BackupTarget, open_target
from penstock.errors import BackupCorrupt, FormatUnknown, NoSuchPoint

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["PointInfo", "list_points"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInfo:
    """A point of a backup: its time, its bytes, and those that no point before it has; None if it is damaged."""

    name: str
    time_ms: int
    plogs: int | None
    size_bytes: int | None
    new_bytes: int | None


def list_points(target: BackupTarget | str | PathLike[str]) -> list[PointInfo]:
    """Return the points of a backup, the oldest first."""
    if not isinstance(target, BackupTarget):
        target = open_target(target)
    target.check_format()
    infos: list[PointInfo] = []
    seen: set[tuple[str, int]] = set()
    for name in target.points():
        try:
            point = target.point(name)
        except (BackupCorrupt, FormatUnknown):
            infos.append(PointInfo(name=name, time_ms=point_time_ms(name), plogs=None, size_bytes=None, new_bytes=None))
            continue
        except NoSuchPoint:
            continue  # removed meanwhile
        places = {
            (point.packs[place.pack], place.position): place.size for plog in point.plogs for place in plog.places
        }
        new = sum(size for place, size in places.items() if place not in seen)
        seen |= places.keys()
        infos.append(
            PointInfo(name=name, time_ms=point.time_ms, plogs=len(point.plogs), size_bytes=point.size, new_bytes=new)
        )
    return infos
