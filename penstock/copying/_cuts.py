"""Cuts of a stream as cuts of its copy: before both lie the same events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.copying._check import target_ranges
from penstock.copying._records import Checked, PiecesCopied, records_of
from penstock.copying._state import CopyState
from penstock.errors import CopyFailed
from penstock.model import SegmentRange, StreamCut, check_kind

if TYPE_CHECKING:
    from penstock.copying._records import Piece
    from penstock.store import Store

__all__ = ["CutTranslator", "translate_cut"]


def translate_cut(source: Store, target: Store, cut: StreamCut) -> StreamCut:
    """Return the cut of a copy before which the same events lie as before a cut of its source.

    Some events of the source are counted, so it still has to be there. ``CopyFailed`` if the events before the cut are
    not all copied, or the stream is not a copy.
    """
    check_kind("cut", cut, StreamCut)
    return CutTranslator(source, target, cut.stream).translate(cut)


class CutTranslator:
    """Translates cuts of one stream."""

    def __init__(self, source: Store, target: Store, stream: str) -> None:
        self._source, self._target, self._stream = source, target, stream
        records = records_of(target, stream)
        if not records or not isinstance(records[-1], Checked):
            raise CopyFailed(stream, reason="its cuts have no place in a copy that is not complete: copy it first")
        self._state = CopyState.of(records)
        pieces = [piece for record in records if isinstance(record, PiecesCopied) for piece in record.pieces]
        ends = {part.segment_id: part.end for part in target.segment_ranges(stream)} | records[-1].target_tail
        self._pieces: dict[int, list[tuple[Piece, SegmentRange]]] = {}
        for piece, part in zip(pieces, target_ranges(stream, pieces, ends), strict=True):
            self._pieces.setdefault(piece.segment, []).append((piece, part))

    def translate(self, cut: StreamCut) -> StreamCut:
        """Return the cut of the copy; where the cut lies before the copy begins, the head of the copy."""
        places = [self._place(segment, offset) for segment, offset in cut.places]
        if None in places:
            return self._target.head(self._stream)
        return StreamCut(self._stream, tuple(sorted(place for place in places if place is not None)))

    def _place(self, segment: int, offset: int) -> tuple[int, int] | None:
        target = self._state.targets.get(segment)
        if target is None:
            if segment < min(self._state.targets):
                return None
            raise self._not_copied(segment, offset)
        if offset > self._state.done[segment]:
            raise self._not_copied(segment, offset)
        for piece, part in self._pieces.get(segment, []):
            if offset <= piece.start:
                return target, part.start
            if offset < piece.end:
                return target, self._inside(piece, part, offset)
        return target, self._pieces[segment][-1][1].end if segment in self._pieces else 0

    def _not_copied(self, segment: int, offset: int) -> CopyFailed:
        return CopyFailed(
            self._stream, reason=f"its copy does not have segment {segment} up to {offset}: copy it first"
        )

    def _inside(self, piece: Piece, part: SegmentRange, offset: int) -> int:
        """Return the place behind as many events as a piece has before an offset.

        Those behind it are counted, because those before it may have been truncated.
        """
        behind = SegmentRange(self._stream, piece.segment, offset, piece.end)
        wanted = piece.events - sum(map(len, self._source.read_range(behind)))
        for batch in self._target.read_range(part):
            if wanted < len(batch):
                place: int = batch["offset"][wanted].as_py()
                return place
            wanted -= len(batch)
        return part.end
