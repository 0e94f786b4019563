"""A segment, as far as readers need it: of this process, or of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from penstock.stream.format import AnyBlock
    from penstock.stream.segment._wake_up import WakeUp

__all__ = ["READ_SIZE", "ReadableSegment", "Times"]

READ_SIZE: Final = 1 << 20


class ReadableSegment(Protocol):
    """Returns blocks from any place on, and wakes readers when there is a new one."""

    @property
    def where(self) -> str:
        """Which segment, for messages."""

    @property
    def tail(self) -> int:
        """How far it was acknowledged."""

    def blocks(self, offset: int, *, end: int | None = None, size: int = READ_SIZE) -> Iterator[AnyBlock]:
        """Return the blocks from the one that holds ``offset`` on, as far as they were acknowledged.

        They are about ``size`` bytes, at least one block if there is any. Some may hold no events.
        """

    def watch(self, wake_up: WakeUp) -> None:
        """Notify the wake-up whenever there is something new."""

    def unwatch(self, wake_up: WakeUp) -> None:
        """Notify it no more."""


class Times(Protocol):
    """The times of a segment's events."""

    def of(self, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """Return the time of each event at ascending offsets; null where there is none yet."""
