"""The sizes of a log's plogs: small at first, so that ten thousand idle logs do not fill a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import BadArgument
from penstock.plog import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX

__all__ = ["PlogSizes"]

_GROWTH: Final = 4
_SNAPSHOT_SHARE: Final = 4  # the size of a new metadata plog, as a multiple of its first records


@dataclass(frozen=True, slots=True)
class PlogSizes:
    """The first plog of a log has ``first`` bytes, each later one four times as many, up to ``largest``.

    The next plog is allocated ahead, in the background; ``ahead`` is False for logs that mostly need no next plog.
    """

    first: int = 64 << 10
    largest: int = PLOG_SIZE_DEFAULT
    ahead: bool = True

    def __post_init__(self) -> None:
        whole = self.first == int(self.first) and self.largest == int(self.largest)
        if not whole or not 0 < self.first <= self.largest <= PLOG_SIZE_MAX:
            raise BadArgument(
                f"invalid plog sizes from {self.first} to {self.largest}: use 0 < first <= largest <= {PLOG_SIZE_MAX:,}"
            )

    def after(self, size: int) -> int:
        """Return the size of the plog that follows one of ``size``."""
        return max(self.first, min(size * _GROWTH, self.largest))

    def for_metadata(self, snapshot_size: int) -> int:
        """Return the size of a metadata plog: large enough that switches stay rare for any amount of metadata."""
        return max(self.first, min(snapshot_size * _SNAPSHOT_SHARE, PLOG_SIZE_MAX))
