"""Reading blocks: from their extents, through the cache, each checked once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchObject, PlogCorrupt
from penstock.plog._block import block_matches
from penstock.plog.objects._stored import plog_header_size, unpack_plog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.plog._replica import BlockSlice, Replica
    from penstock.plog.objects._journal import ObjectJournal
    from penstock.plog.objects._requests import Requests
    from penstock.plog.objects._state import BlockRun, PlogState

__all__ = ["load_home", "read_extent", "read_slices"]

_HOME_READ_SIZE: Final = 64 << 10
_ATTEMPTS_MAX: Final = 3


def load_home(requests: Requests, name: str, read: Callable[[str, int, int], memoryview] | None = None) -> PlogState:
    """Return the state of a plog that has an object of its own, which ``read`` reads, perhaps from a copy."""
    read, where = read or requests.objects.get_range, requests.objects.where(name)
    data = requests.again(lambda: read(name, 0, _HOME_READ_SIZE))
    size = plog_header_size(data, where=where)
    if size > len(data):
        data = requests.again(lambda: read(name, 0, size))
    return unpack_plog(data, name, where=where)


def read_extent(journal: ObjectJournal, extent: BlockRun, begin: int, end: int) -> memoryview:
    """Return the bytes from ``begin`` to ``end`` of the image, which lie in this extent."""
    cache, requests = journal.cache, journal.requests
    data = requests.again(lambda: cache.read(extent.name, extent.position + begin - extent.start, end - begin))
    if len(data) != end - begin:
        raise PlogCorrupt(requests.objects.where(extent.name), offset=extent.position, reason="the object is too short")
    return data


def read_slices(
    journal: ObjectJournal, plog: PlogState, replica: Replica, slices: Sequence[BlockSlice]
) -> list[memoryview]:
    """Return the parts of blocks; those that lie next to each other in an object are read at once."""
    views: list[memoryview] = []
    attempts = 0
    while len(views) < len(slices):
        extent = plog.place_of(slices[len(views)].position)
        try:
            views += _read_run(journal, plog, extent, replica, _run_of(extent, slices, len(views)))
        except (NoSuchObject, PlogCorrupt) as error:
            # Once more from the bucket: the blocks were compacted meanwhile and lie elsewhere, or the copy is of
            # another store that was at this address.
            attempts += 1
            if attempts == _ATTEMPTS_MAX:
                raise journal.gone(error) from error
            journal.cache.drop(extent.name)
    return views


def _read_run(
    journal: ObjectJournal, plog: PlogState, extent: BlockRun, replica: Replica, run: Sequence[BlockSlice]
) -> list[memoryview]:
    """Return parts of blocks that follow each other in one object; blocks are checked when they are read first."""
    begin, end = run[0].start, run[-1].end
    if not replica.verified[run[0].index]:
        begin = run[0].position
    if not replica.verified[run[-1].index]:
        end = plog.block(run[-1].index)[1]
    data = read_extent(journal, extent, begin, end)
    for part in run:
        if not replica.verified[part.index]:
            if not block_matches(replica.key, data, part.position - begin):
                where, offset = journal.requests.objects.where(extent.name), part.position - extent.start
                raise PlogCorrupt(
                    where, offset=extent.position + offset, reason=f"block {part.index} fails its checksum"
                )
            replica.verified[part.index] = True
    return [data[part.start - begin : part.end - begin].toreadonly() for part in run]


def _run_of(extent: BlockRun, slices: Sequence[BlockSlice], first: int) -> Sequence[BlockSlice]:
    """Return the slices from number ``first`` on that lie in this extent."""
    end, count = extent.start + extent.size, 1
    while first + count < len(slices) and slices[first + count].position < end:
        count += 1
    return slices[first : first + count]
