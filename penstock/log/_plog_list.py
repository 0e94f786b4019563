"""The ids of many plogs, in little memory: 16 bytes each, and a table of the few groups that they are in.

A store may have hundreds of thousands of plogs, and reads the ids of all of them when it is opened. So an id becomes an
object only when it is asked for.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, overload

import numpy as np

from penstock.model import PlogId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = ["PlogList"]

_UID_SIZE: Final = 16


class PlogList:
    """A list of plog ids, which finds each of them by a table that is made when it is first needed."""

    __slots__ = ("_groups", "_names", "_places", "_removed", "_uids")

    def __init__(self) -> None:
        self._uids = bytearray()
        self._groups = array("I")  # of each plog: its place among the names
        self._names: list[tuple[str, str]] = []  # cluster and group
        self._places: dict[bytes, int] | None = None  # counted from the very first plog, so a removal changes none
        self._removed = 0

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, place: int) -> PlogId: ...
    @overload
    def __getitem__(self, place: slice) -> list[PlogId]: ...
    def __getitem__(self, place: int | slice) -> PlogId | list[PlogId]:
        """Return an id, or several."""
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        index = place if place >= 0 else len(self) + place
        return PlogId(*self._names[self._groups[index]], self._uids[_UID_SIZE * index : _UID_SIZE * (index + 1)].hex())

    def __iter__(self) -> Iterator[PlogId]:
        return (self[index] for index in range(len(self)))

    def append(self, plog_id: PlogId) -> None:
        """Add an id."""
        uid = plog_id.uid_bytes
        if self._places is not None:
            self._places[uid] = self._removed + len(self)
        self._uids += uid
        self._groups.append(self._group(plog_id.cluster, plog_id.group))

    def extend(self, groups: Sequence[tuple[str, str]], group_of: bytes, uids: bytes) -> None:
        """Add many ids, each with the number of its group; ``ValueError`` if the bytes do not fit together."""
        numbers = np.frombuffer(group_of, "<u4")
        if len(uids) != _UID_SIZE * len(numbers) or (len(numbers) and int(numbers.max()) >= len(groups)):
            raise ValueError(f"{len(uids)} bytes of plog uids in {len(numbers)} places of {len(groups)} groups")
        for cluster, group in groups:
            PlogId(cluster, group, bytes(_UID_SIZE).hex())  # which refuses names that are none
        own = np.array([self._group(*names) for names in groups], "=u4")
        self._places = None
        self._uids += uids
        self._groups.frombytes(own[numbers].tobytes())

    def _group(self, cluster: str, group: str) -> int:
        if not self._names or self._names[-1] != (cluster, group):
            if (cluster, group) in self._names:
                return self._names.index((cluster, group))
            self._names.append((cluster, group))
        return len(self._names) - 1

    def parts(self, *, most: int) -> Iterator[tuple[int, list[tuple[str, str]], bytes, bytes]]:
        """Yield at most so many ids at a time: the place of the first, and what :meth:`extend` takes."""
        numbers = np.array(self._groups, "<u4")
        for start in range(0, len(self), most):
            stop = min(start + most, len(self))
            yield (
                start,
                self._names,
                numbers[start:stop].tobytes(),
                bytes(self._uids[_UID_SIZE * start : _UID_SIZE * stop]),
            )

    def find(self, plog_id: PlogId) -> int | None:
        """Return the place of a plog, None if it is not in the list."""
        if self._places is None:
            uids = bytes(self._uids)
            starts = range(0, len(uids), _UID_SIZE)
            self._places = {uids[start : start + _UID_SIZE]: self._removed + i for i, start in enumerate(starts)}
        place = self._places.get(plog_id.uid_bytes)
        return None if place is None or self[place - self._removed] != plog_id else place - self._removed

    def among(self, plogs: Collection[PlogId]) -> set[PlogId]:
        """Return those of some plogs that are in the list, without the table."""
        wanted = {plog_id.uid_bytes: plog_id for plog_id in plogs}
        found = {
            wanted.get(bytes(self._uids[start : start + _UID_SIZE])) for start in range(0, len(self._uids), _UID_SIZE)
        }
        return {plog_id for plog_id in found if plog_id is not None}

    def remove_first(self, count: int) -> list[PlogId]:
        """Remove the first ids, and return them."""
        removed = self[:count]
        if self._places is not None:
            for plog_id in removed:
                del self._places[plog_id.uid_bytes]
        del self._uids[: _UID_SIZE * count], self._groups[:count]
        self._removed += count
        return removed

    def replace(self, place: int, count: int, new: PlogId) -> list[PlogId]:
        """Replace neighbours by one id, and return those replaced."""
        replaced = self[place : place + count]
        self._uids[_UID_SIZE * place : _UID_SIZE * (place + count)] = new.uid_bytes
        self._groups[place : place + count] = array("I", [self._group(new.cluster, new.group)])
        self._places = None
        return replaced

    def copy(self) -> PlogList:
        """Return another list of the same ids."""
        other = PlogList()
        other._uids, other._groups, other._names = self._uids[:], self._groups[:], self._names[:]
        return other
