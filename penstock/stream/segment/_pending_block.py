"""A block on its way into a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.log import PendingLogAppend
    from penstock.stream.segment._segment import Segment

__all__ = ["PendingBlock", "SegmentEnded"]


class SegmentEnded(Exception):
    """The segment takes no more blocks; its successors do."""


class PendingBlock(msgspec.Struct, eq=False):
    """A block under way; ``start`` is its offset."""

    segment: Segment
    pending: PendingLogAppend
    start: int

    def result(self) -> None:
        """Return when it is durable, and readers see it."""
        self.segment.finish(self.pending)

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.pending.end

    def wait(self) -> int:
        """Return where it ends, when it is durable; readers do not see it yet. The caller holds the segment."""
        try:
            return self.pending.result()
        except PenstockError:
            self.segment.give_up(self.pending)
            raise
