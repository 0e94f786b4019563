"""Snapshots of a store, as backups and checks read them: from its owner, wherever that is, or from a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from penstock.log import PlogCut
    from penstock.model import PlogId
    from penstock.plog import RawBlocks
    from penstock.store import Store

__all__ = ["StoreSnapshot", "blocks_of", "take_snapshot"]


class StoreSnapshot(Protocol):
    """The plogs of a store at one moment."""

    @property
    def metadata_plog(self) -> PlogId:
        """The plog at which recovery starts."""

    @property
    def plogs(self) -> tuple[PlogCut, ...]:
        """All plogs, each with its length at that moment."""

    def read(self, plog_id: PlogId, offset: int, end: int) -> RawBlocks:
        """Return complete blocks from ``offset`` on, up to ``end`` or up to a limit, as they are stored."""

    def where(self, plog_id: PlogId) -> str:
        """Return the path or the name of a plog, for messages."""

    def close(self) -> None:
        """Let go of the plogs."""

    def __enter__(self) -> Self:
        """Close at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""


def take_snapshot(store: Store) -> StoreSnapshot:
    """Take a snapshot of a store that is open here, or that another process has open."""
    take = getattr(store, "snapshot", None)
    if take is None:
        raise BadArgument(f"invalid store {store!r}: use one that penstock.connect returned")
    snapshot: StoreSnapshot = take()
    return snapshot


def blocks_of(snapshot: StoreSnapshot, cut: PlogCut, offset: int = 0) -> Iterator[RawBlocks]:
    """Return the blocks of a plog from ``offset`` to its end, in parts; at least one part, which may be empty."""
    while True:
        raw = snapshot.read(cut.plog_id, offset, cut.length)
        yield raw
        offset = raw.end
        if offset >= cut.length:
            return
