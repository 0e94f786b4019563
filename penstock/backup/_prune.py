"""Removing older points, and what only they need.

A pack goes when no point refers to it. A slowly growing plog has a small piece in each of many packs, and would keep
them all. So a pack of which less than half is needed is emptied first: its pieces are copied into a new pack, then the
points are replaced, one by one, by points that refer to the new pack. Every step leaves all points complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.backup._pack import PACK_SIZE, PackedPiece, pack_start
from penstock.backup._verify import read_place, verify_pack
from penstock.errors import BackupCorrupt, FormatUnknown

if TYPE_CHECKING:
    from penstock.backup._point import Place, PlogAtPoint, Point
    from penstock.backup._target import BackupTarget
    from penstock.ports import Bytes

__all__ = ["delete_points_before", "delete_unused_packs"]

_SHARE_MIN: Final = 0.5  # of a pack that is needed, below which it is emptied


def delete_points_before(target: BackupTarget, *, count: int) -> tuple[str, ...]:
    """Delete all points but the newest ``count``; the caller is changing the target."""
    surplus = target.points()[:-count]
    if surplus:
        target.delete_points(surplus)
    return tuple(surplus)


def delete_unused_packs(target: BackupTarget) -> None:
    """Delete the packs that no point refers to; none while a point is damaged, because its packs are unknown."""
    try:
        points = {name: target.point(name) for name in target.points()}
    except BackupCorrupt:
        return  # verifying the backup reports it, and it goes when it is older than the points to keep
    points = _without_sparse_packs(target, points)
    used = {pack for point in points.values() for pack in point.packs}
    unused = [pack for pack in target.packs() if pack not in used]
    if unused:
        target.delete_packs(unused)


def _without_sparse_packs(target: BackupTarget, points: dict[str, Point]) -> dict[str, Point]:
    """Return the points after packs of which little is needed were emptied."""
    needed: dict[str, dict[int, int]] = {}
    for point in points.values():
        for plog in point.plogs:
            for place in plog.places:
                needed.setdefault(point.packs[place.pack], {})[place.position] = place.size
    sparse = {pack for pack, pieces in needed.items() if _is_sparse(target, pack, sum(pieces.values()))}
    if not sparse:
        return points
    move = _Move(target, sparse)
    for point in points.values():
        move.add(point)
    move.flush()
    return {name: move.moved(name, point) for name, point in points.items()}


def _is_sparse(target: BackupTarget, pack: str, needed: int) -> bool:
    """Whether little of a pack is needed, and it can be read: a damaged one stays, with what is good in it."""
    try:
        if needed >= _SHARE_MIN * sum(piece.size for piece in target.index(pack).pieces):
            return False
        verify_pack(target, pack)
    except (BackupCorrupt, FormatUnknown):
        return False
    return True


@dataclass(slots=True)
class _Move:
    """Copies the pieces of some packs that points need into new packs."""

    target: BackupTarget
    sparse: set[str]
    places: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    _pieces: dict[tuple[str, int], PackedPiece] = field(default_factory=dict)
    _parts: list[Bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, point: Point) -> None:
        """Copy the pieces that a point needs."""
        for plog in point.plogs:
            for place in plog.places:
                old = point.packs[place.pack], place.position
                if old[0] in self.sparse and old not in self.places and old not in self._pieces:
                    self._add(old, plog, place, read_place(self.target, point, place, plog=plog.plog))

    def _add(self, old: tuple[str, int], plog: PlogAtPoint, place: Place, data: Bytes) -> None:
        self._pieces[old] = PackedPiece(
            plog.plog, plog.key, plog.plog_size, place.offset, place.end, self._size, place.size, place.crc
        )
        self._parts.append(data)
        self._size += place.size
        if self._size >= PACK_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write the open pack, and verify it."""
        if self._pieces:
            start = pack_start(list(self._pieces.values()))
            pack = self.target.put_pack([start, *self._parts])
            verify_pack(self.target, pack)
            for old, piece in self._pieces.items():
                self.places[old] = pack, len(start) + piece.position
            self._pieces, self._parts, self._size = {}, [], 0

    def moved(self, name: str, point: Point) -> Point:
        """Replace a point by one that refers to the new packs; return it."""
        if not self.sparse & set(point.packs):
            return point
        packs: dict[str, int] = {}
        plogs = [
            msgspec.structs.replace(plog, places=[self._new(point, place, packs) for place in plog.places])
            for plog in point.plogs
        ]
        new = msgspec.structs.replace(point, packs=list(packs), plogs=plogs)
        self.target.replace_point(name, new)
        return new

    def _new(self, point: Point, place: Place, packs: dict[str, int]) -> Place:
        old = point.packs[place.pack], place.position
        pack, position = self.places.get(old, old)
        return msgspec.structs.replace(place, pack=packs.setdefault(pack, len(packs)), position=position)
