"""How large the plogs of a log are: small at first, so that ten thousand idle logs do not fill a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import BadArgument
from penstock.plog import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX

__all__ = ["PlogSizes"]

_GROWTH: Final = 4
_SNAPSHOT_SHARE: Final = 4  # a new metadata plog is at least so many times its first records


@dataclass(frozen=True, slots=True)
class PlogSizes:
    """The first plog of a log has ``first`` bytes, each after it four times as many, up to ``largest``.

    The next one is allocated ahead, in the background; ``ahead`` is False for logs that mostly need no next one.
    """

    first: int = 64 << 10
    largest: int = PLOG_SIZE_DEFAULT
    ahead: bool = True

    def __post_init__(self) -> None:
        whole = self.first == int(self.first) and self.largest == int(self.largest)
        if not whole or not 0 < self.first <= self.largest <= PLOG_SIZE_MAX:
            raise BadArgument(
                f"plog sizes from {self.first} to {self.largest} cannot be: 0 < first <= largest <= 1 GiB"
            )

    def after(self, size: int) -> int:
        """Return the size of the plog after one of ``size``."""
        return max(self.first, min(size * _GROWTH, self.largest))

    def for_metadata(self, snapshot_size: int) -> int:
        """Return the size of a metadata plog: switches stay rare however much there is to remember."""
        return max(self.first, min(snapshot_size * _SNAPSHOT_SHARE, PLOG_SIZE_MAX))
