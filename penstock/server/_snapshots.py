"""Snapshots that clients have open, for backups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.model import PlogId

if TYPE_CHECKING:
    from penstock.log import PartitionSnapshot
    from penstock.server._session import Session

__all__ = ["ClientSnapshot", "close_snapshot", "list_plogs", "read_snapshot", "take_snapshot"]

_PLOGS_MAX: Final = 10_000  # that are listed in one answer: about a megabyte


class ClientSnapshot:
    """A snapshot of a client, which ends with its session."""

    def __init__(self, snapshot: PartitionSnapshot) -> None:
        self.snapshot = snapshot

    def abandon(self) -> None:
        """Let go of it: the client is gone."""
        self.snapshot.close()


def take_snapshot(session: Session) -> list[Any]:
    """Take a snapshot; return its number, its metadata plog, and how many plogs it has."""
    snapshot = session.store.snapshot()
    try:
        number = session.add(ClientSnapshot(snapshot))
    except BaseException:
        snapshot.close()
        raise
    return [number, str(snapshot.metadata_plog), len(snapshot.plogs)]


def list_plogs(session: Session, number: int, first: int) -> list[Any]:
    """Return id, length, log and key of some plogs."""
    plogs = _open(session, number).plogs[first : first + _PLOGS_MAX]
    return [[str(cut.plog_id), cut.length, cut.log, cut.key] for cut in plogs]


def read_snapshot(session: Session, number: int, plog: str, offset: int, end: int) -> list[Any]:
    """Return blocks, with the key and the size of the plog, and the offset behind them."""
    raw = _open(session, number).read(PlogId.parse(plog), offset, end)
    return [raw.key, raw.size, raw.end, bytes(raw.data)]


def close_snapshot(session: Session, number: int) -> None:
    """Let go of a snapshot; nothing happens if that is done."""
    if session.has(number):
        session.get(number, ClientSnapshot).abandon()
        session.drop(number)


def _open(session: Session, number: int) -> PartitionSnapshot:
    found: ClientSnapshot = session.get(number, ClientSnapshot)
    return found.snapshot
