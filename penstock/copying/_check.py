"""Checking a copy: what it has in each piece must be what was read from the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.copying._digest import EventDigest
from penstock.copying._step import chunks_of, is_large
from penstock.errors import CopyDiffers
from penstock.model import SegmentRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.copying._records import Piece
    from penstock.copying._state import CopyState
    from penstock.store import Store

__all__ = ["check_pieces", "target_ranges"]


def check_pieces(target: Store, stream: str, state: CopyState, on_progress: Callable[[str, int, int], object]) -> None:
    """Read what was copied since the last check; ``CopyDiffers`` if it does not have the digests that it had."""
    ends = {part.segment_id: part.end for part in target.segment_ranges(stream)}
    pieces = _with_what_lies_before(state, target.head(stream).offsets)
    ranges = target_ranges(stream, pieces, ends)
    done, total = 0, sum(part.size for part in ranges)
    for piece, part in zip(pieces, ranges, strict=True):
        digest = _digest_of(target, part)
        if (digest.events, digest.hexdigest()) != (piece.events, piece.digest):
            raise CopyDiffers(
                stream,
                place=f"segment {part.segment_id} from {part.start} to {part.end}",
                expected=f"{piece.events} events with the digest {piece.digest}",
                actual=f"{digest.events} with {digest.hexdigest()}",
            )
        done += part.size
        on_progress("checking", done, total)


def _with_what_lies_before(state: CopyState, head: Mapping[int, int]) -> list[Piece]:
    """Return the pieces to be checked, each first one of a segment with all that was added since the last check."""
    starts = {target: max(state.checked_tail.get(target, 0), head.get(target, 0)) for target in state.targets.values()}
    pieces = []
    for piece in state.unchecked:
        start = starts.pop(piece.target_segment, piece.target_start)
        pieces.append(msgspec.structs.replace(piece, target_start=start))
    return pieces


def target_ranges(stream: str, pieces: Sequence[Piece], ends: Mapping[int, int]) -> list[SegmentRange]:
    """Return where the copies of pieces are: each ends where the next one begins; ``ends`` are those of the last."""
    following = dict(ends)
    ranges = []
    for piece in reversed(pieces):
        end = following.get(piece.target_segment, piece.target_start)
        ranges.append(SegmentRange(stream, piece.target_segment, piece.target_start, max(end, piece.target_start)))
        following[piece.target_segment] = piece.target_start
    return ranges[::-1]


def _digest_of(store: Store, part: SegmentRange) -> EventDigest:
    digest = EventDigest()
    for batch in store.read_range(part):
        if not is_large(batch):
            digest.add(batch)
            continue
        size = digest.size
        for chunk in chunks_of(store, part.stream, batch):
            digest.add_chunk(chunk)
        digest.add_large(batch, digest.size - size)
    return digest
