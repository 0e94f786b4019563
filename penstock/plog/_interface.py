"""The plog service, as its users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.model import PlogId
    from penstock.plog._located import LocatedBlocks
    from penstock.plog._replica import PlogInfo
    from penstock.plog._sync_times import SyncTimes

__all__ = ["PendingAppend", "Plogs"]


class PendingAppend(Protocol):
    """An append under way."""

    def result(self) -> int:
        """Wait until it is durable; return the plog's new offset."""


class Plogs(Protocol):
    """Append-only blocks of fixed size, each written by one writer at a time.

    An append says at which offset it expects the plog, so a lost, repeated or foreign append is refused, not
    stored. It is acknowledged when it is durable, and a reader sees only what was acknowledged.
    """

    @property
    def syncs(self) -> SyncTimes:
        """How long the syncs took that somebody waited for."""

    def check_running(self) -> None:
        """Raise the failure of the disk after which nothing is written any more, if there was one."""

    def new_id(self) -> PlogId:
        """Return an id that nobody has had before; nothing is created."""

    def create(self, *, size: int = ..., plog_id: PlogId | None = None) -> PlogId:
        """Make a plog with room for ``size`` bytes; without an id it gets a new one."""

    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Put ``data``, all parts as one, at the plog's current ``offset``; return the new one once it is durable."""

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting; ``data`` must not change before the result is there."""

    def keeps_order(self, plog_id: PlogId, size: int) -> bool:
        """Whether an append of this size, now, would be durable only if all that was submitted before it is."""

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``offset``; no copy where they were appended in one piece."""

    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return ``size`` bytes at ``offset`` as they were appended, piece by piece, without a copy."""

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of ``size`` bytes at ``offset``, whole, with the offset it begins at."""

    def locate(self, plog_id: PlogId, offset: int, size: int) -> LocatedBlocks:
        """Return where those appends are, so that another process can read them from the file."""

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Let the plog take no more appends; return its length: the smaller of ``offset`` and what it holds."""

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return length, whether sealed, and size."""

    def delete(self, plog_id: PlogId) -> None:
        """Remove the plog and free its room; views of it stay good."""

    def where(self, plog_id: PlogId) -> str:
        """Return how to call what keeps the plog in a message: the path of its file."""

    def close(self) -> None:
        """Make everything durable and let go of the storage."""

    def __enter__(self) -> Self:
        """Close at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
