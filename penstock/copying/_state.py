"""How far a copy has come, as its log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.copying._records import Begun, Checked, PiecesCopied, Scaled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.copying._records import Piece, Record, Span

__all__ = ["CopyState"]


class CopyState:
    """The segments that a copy has reached: their counterparts in the copy, and up to where they are copied."""

    def __init__(self, begun: Begun) -> None:
        self.done = dict(begun.head)
        self.targets: dict[int, int] = {}
        self.open: dict[int, Span] = {}  # those that no other follows in the copy
        self.unchecked: list[Piece] = []
        self.checked_tail: dict[int, int] = {}  # where the segments of the copy ended when it was checked last
        self._begin(begun.segments, begun.target_segments)

    @classmethod
    def of(cls, records: Iterable[Record]) -> CopyState:
        """Return the state after all records."""
        begun, *rest = records
        assert isinstance(begun, Begun), "a copy log begins like this"
        state = cls(begun)
        for record in rest:
            state.apply(record)
        return state

    def apply(self, record: Record) -> None:
        """Take in what was done."""
        match record:
            case Scaled():
                for segment in record.ended:
                    del self.open[segment]
                self._begin(record.segments, record.target_segments)
            case PiecesCopied():
                self.done |= {piece.segment: piece.end for piece in record.pieces}
                self.unchecked += record.pieces
            case Checked():
                self.unchecked, self.checked_tail = [], record.target_tail

    def _begin(self, segments: Iterable[Span], targets: Iterable[int]) -> None:
        for span, target in zip(segments, targets, strict=True):
            self.open[span.segment], self.targets[span.segment] = span, target
            self.done.setdefault(span.segment, 0)
