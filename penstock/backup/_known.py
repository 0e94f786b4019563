"""What a new point need not copy: the pieces in the target that hold what the store holds.

A plog has an id and a birth, but these do not tell what is in it: a folder that was rolled back (a snapshot of a disk
or a virtual machine), or copied, goes on in the same plogs with other events, maybe up to the same length. So:

- A plog that was sealed at the newest point, and has been since, is not read again. That holds if the point is in the
  past of the store: its metadata are the beginning of the store's, or the store's metadata plog continues the one that
  the point announces (:mod:`penstock.log._lineage`).
- Of every other plog, the store's blocks are read again, and compared with the checksums of the pieces. These are the
  plogs that take the appends; and after a rollback all of them, once. From the first difference on they are copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.backup._pack import PackedPiece, checksum
from penstock.backup._snapshots import blocks_of
from penstock.backup._verify import read_place, verify_pack
from penstock.errors import BackupCorrupt, BadArgument, FormatUnknown
from penstock.log import lineage_of
from penstock.plog import RawBlocks, check_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.backup._point import PlogAtPoint, Point
    from penstock.backup._snapshots import StoreSnapshot
    from penstock.backup._target import BackupTarget
    from penstock.log import PlogCut

__all__ = ["FoundPiece", "KnownPieces"]


@dataclass(frozen=True, slots=True)
class FoundPiece:
    """A piece, and its position in a pack."""

    pack: str
    position: int
    piece: PackedPiece


class KnownPieces:
    """The pieces that the target has: those of its newest point, and of packs that are not in it."""

    def __init__(self, target: BackupTarget) -> None:
        self._target = target
        self._newest: Point | None = None
        self._pieces: dict[tuple[str, bytes], dict[int, FoundPiece]] = {}
        self._loose: dict[tuple[str, bytes], dict[int, FoundPiece]] = {}  # of packs that are not in the newest point
        self._verified: dict[str, bool] = {}  # those packs, once they are used
        self.newest_ms = -1
        self._there = target.packs()
        for name in reversed(target.points()):
            try:
                self._add_point(target.point(name))
            except BackupCorrupt:
                continue  # an older one will do; verifying the backup reports it
            break
        self._add_loose_packs()

    def _add_point(self, point: Point) -> None:
        self._newest, self.newest_ms = point, point.time_ms
        lost = _lost_packs(point, self._there)
        for plog in point.plogs:
            pieces = self._pieces.setdefault((plog.plog, plog.key), {})
            for found in _found_pieces(point, plog):
                if found.pack not in lost:  # else it is copied again
                    pieces[found.piece.offset] = found

    def _add_loose_packs(self) -> None:
        for pack in self._there.keys() - set(self._newest.packs if self._newest else ()):
            try:
                index = self._target.index(pack)
            except (BackupCorrupt, FormatUnknown):
                continue
            for piece in index.pieces:
                pieces = self._loose.setdefault((piece.plog, piece.key), {})
                if piece.offset not in pieces or pieces[piece.offset].piece.end < piece.end:
                    pieces[piece.offset] = FoundPiece(pack, index.data_start + piece.position, piece)

    def has_unused(self, point: Point) -> bool:
        """Whether the target had packs that the new point does not need; an older one may need them."""
        return bool(self._there.keys() - set(point.packs))

    def in_snapshot(
        self, snapshot: StoreSnapshot, on_progress: Callable[[str, int, int], object]
    ) -> list[tuple[PlogCut, list[FoundPiece]]]:
        """Return each plog of a snapshot with the pieces that hold its beginning."""
        unchanged = self._unchanged(snapshot)
        plans, compared = [], []
        for cut in snapshot.plogs:
            key = str(cut.plog_id), cut.key
            if unchanged.get(key) == cut.length:
                plans.append((cut, list(_following(self._pieces[key], cut.length))))
            else:
                both = self._loose.get(key, {}) | self._pieces.get(key, {})
                plans.append((cut, list(_following(both, cut.length))))
                compared.append(len(plans) - 1)
        total, done = sum(found.piece.end - found.piece.offset for n in compared for found in plans[n][1]), 0
        for number in compared:
            cut, found = plans[number]
            same = []
            for each in found:
                on_progress("comparing", done, total)
                if not self._is_same(snapshot, cut, each):
                    break
                same.append(each)
                done += each.piece.end - each.piece.offset
            plans[number] = cut, same
        return plans

    def _unchanged(self, snapshot: StoreSnapshot) -> dict[tuple[str, bytes], int]:
        """Return the plogs, with their lengths, that cannot have changed since the newest point."""
        point = self._newest
        if point is None or not self._is_past(point, snapshot):
            return {}
        active = {plog.log: plog.plog for plog in point.plogs}  # the last one of each log
        return {(plog.plog, plog.key): plog.length for plog in point.plogs if active[plog.log] != plog.plog}

    def _is_past(self, point: Point, snapshot: StoreSnapshot) -> bool:
        """Whether the store's metadata were once those of the point."""
        cut = next(cut for cut in snapshot.plogs if cut.plog_id == snapshot.metadata_plog)
        at_point = next(plog for plog in point.plogs if plog.plog == point.metadata_plog)
        if at_point.plog == str(cut.plog_id):
            found = list(_found_pieces(point, at_point))
            is_prefix = at_point.key == cut.key and at_point.length <= cut.length
            return is_prefix and all(_has(snapshot, cut, each.piece) for each in found)
        metadata = list(blocks_of(snapshot, cut))
        for raw in metadata:
            check_raw(raw, where=snapshot.where(cut.plog_id))
        try:
            announced = lineage_of(_metadata_of(self._target, point, at_point)).next
        except BackupCorrupt:
            return False
        return announced is not None and announced in lineage_of(metadata).before | {str(cut.plog_id)}

    def _is_same(self, snapshot: StoreSnapshot, cut: PlogCut, found: FoundPiece) -> bool:
        is_of_point = self._newest is not None and found.pack in self._newest.packs  # verified when it was made
        return _has(snapshot, cut, found.piece) and (is_of_point or self._is_good(found.pack))

    def _is_good(self, pack: str) -> bool:
        if pack not in self._verified:
            try:
                verify_pack(self._target, pack)
                self._verified[pack] = True
            except (BackupCorrupt, FormatUnknown):
                self._verified[pack] = False
        return self._verified[pack]


def _lost_packs(point: Point, there: dict[str, int]) -> set[str]:
    """Return the packs of a point that were removed, or are too short for what it has in them."""
    ends = dict.fromkeys(point.packs, 0)
    for plog in point.plogs:
        for place in plog.places:
            pack = point.packs[place.pack]
            ends[pack] = max(ends[pack], place.position + place.size)
    return {pack for pack, end in ends.items() if there.get(pack, 0) < end}


def _found_pieces(point: Point, plog: PlogAtPoint) -> Iterator[FoundPiece]:
    for place in plog.places:
        piece = PackedPiece(plog.plog, plog.key, plog.plog_size, place.offset, place.end, 0, place.size, place.crc)
        yield FoundPiece(point.packs[place.pack], place.position, piece)


def _metadata_of(target: BackupTarget, point: Point, plog: PlogAtPoint) -> Iterator[RawBlocks]:
    for place in plog.places:
        data = read_place(target, point, place, plog=plog.plog)
        raw = RawBlocks(plog.key, plog.plog_size, place.offset, place.end, data)
        check_raw(raw, where=target.where_pack(point.packs[place.pack]))
        yield raw


def _following(pieces: dict[int, FoundPiece], length: int) -> Iterator[FoundPiece]:
    """Return pieces that follow each other from the start of a plog on."""
    offset = 0
    while (found := pieces.get(offset)) is not None and found.piece.end <= length:
        yield found
        offset = found.piece.end


def _has(snapshot: StoreSnapshot, cut: PlogCut, piece: PackedPiece) -> bool:
    """Whether a plog of the store has the blocks of a piece."""
    offset, size, crc = piece.offset, 0, 0
    while offset < piece.end:
        try:
            raw = snapshot.read(cut.plog_id, offset, piece.end)
        except BadArgument:
            return False  # no block ends where the piece does
        offset, size, crc = raw.end, size + len(raw.data), checksum(raw.data, start=crc)
    return (size, crc) == (piece.size, piece.crc)
