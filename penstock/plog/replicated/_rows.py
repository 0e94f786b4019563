"""The rows of an owner's plogs in the oracle, and the epoch of the owner, which the oracle counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.model import UNDECODABLE, PlogId
from penstock.plog.replicated._actions import VersionedRow, decode_row, encode_row, row_key

if TYPE_CHECKING:
    from penstock.cpo import Cpo, Lease
    from penstock.plog.replicated._actions import ReadRow, RemoveRow, WriteRow

__all__ = ["ListedGroup", "OracleRows", "listed_groups"]

_LISTED: Final = "listed/"


class ListedGroup(msgspec.Struct, frozen=True, array_like=True):
    """The servers of a group, by the instances of their processes, that an owner has looked through for what they lack.

    Whatever one of them had lost has a row, or is repaired. A server that is started again has another instance.
    """

    instances: tuple[bytes, ...]
    lost: int = 0  # plogs of which no server has a good replica


def listed_groups(cpo: Cpo) -> dict[tuple[str, str], list[ListedGroup]]:
    """Return by cluster and group what each owner has looked through last; nothing of a group where none has."""
    groups: dict[tuple[str, str], list[ListedGroup]] = {}
    for key in cpo.keys(_LISTED):
        _, _, cluster, group = key.split("/", 3)
        entry = cpo.get(key)
        try:
            row = msgspec.msgpack.decode(b"" if entry is None else entry.value, type=ListedGroup)
        except UNDECODABLE:
            row = ListedGroup(())  # of no server that runs: it is not known
        groups.setdefault((cluster, group), []).append(row)
    return groups


class OracleRows:
    """The rows that the owner of a partition reads and writes; a newer owner's lease keeps it from writing."""

    def __init__(self, cpo: Cpo, *, cluster: str, partition: str) -> None:
        self._cpo, self._partition, self._cluster = cpo, partition, cluster
        self._lease = cpo.next_epoch(f"plogs/{cluster}/{partition}")

    @property
    def lease(self) -> Lease:
        """The lease of this owner; its epoch fences, its time is of no use."""
        return self._lease

    def read(self, action: ReadRow) -> VersionedRow | None:
        """Return the row of a plog, None if it has none."""
        row = self._cpo.get(row_key(self._partition, action.plog_id))
        return None if row is None else VersionedRow(decode_row(row.value, where=self._cpo.where()), row.version)

    def write(self, action: WriteRow) -> int:
        """Write a row; ``CasConflict`` if it has changed, ``LeaseLost`` if there is a newer owner."""
        key = row_key(self._partition, action.plog_id)
        return self._cpo.cas(key, encode_row(action.row), expected=action.expected, lease=self._lease)

    def remove(self, action: RemoveRow) -> None:
        """Remove a row; the same errors as for writing it."""
        self._cpo.delete(row_key(self._partition, action.plog_id), expected=action.expected, lease=self._lease)

    def note_listed(self, group: str, listed: ListedGroup) -> None:
        """Note that the servers of a group were looked through; the same errors as for other rows."""
        key = f"{_LISTED}{self._partition}/{self._cluster}/{group}"
        value, before = msgspec.msgpack.encode(listed), self._cpo.get(key)
        if before is None or before.value != value:
            self._cpo.cas(key, value, expected=0 if before is None else before.version, lease=self._lease)

    def plogs(self) -> list[PlogId]:
        """Return the plogs of this partition that have rows: those whose replicas are not all well."""
        prefix = row_key(self._partition)
        plogs = [PlogId.parse(key.removeprefix(prefix)) for key in self._cpo.keys(prefix)]
        return [plog_id for plog_id in plogs if plog_id.cluster == self._cluster]
