"""Compaction: blocks leave the journal, so that its objects can be deleted.

A sealed plog of some size gets an object of its own with the blocks that lay in the journal; those that lie in parts
stay there, so bulk bytes are put once. When the journal has become too large, the blocks of all plogs leave its oldest
objects: those of open plogs go into a part. What is moved lies in both places until the next checkpoint, and readers
may use either.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import CorruptData, NoSuchObject, PlogCorrupt
from penstock.plog._block import block_matches
from penstock.plog.objects._read import read_extent
from penstock.plog.objects._state import BlockRun, journal_needed
from penstock.plog.objects._stored import pack_plog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.plog.objects._journal import ObjectJournal
    from penstock.plog.objects._settings import ObjectSettings
    from penstock.plog.objects._state import PlogState

__all__ = ["CompactionTask", "carry_out", "crowded_before", "plan"]

_ALL: Final = 1 << 62
_log: Final = logging.getLogger("penstock.plog")


class CompactionTask(NamedTuple):
    """A plog to compact, or the blocks of an open one to move out of the journal objects before ``number``."""

    uid: bytes
    number: int
    size: int  # bytes that are put


def crowded_before(retained: Mapping[int, int], needed: Mapping[int, int], settings: ObjectSettings) -> int:
    """Return the journal number before which blocks must leave, so that half of what is allowed stays; 0 for none."""
    kept = sorted((number for number in needed if number in retained), reverse=True)
    if (
        len(kept) <= settings.journal_objects_max
        and sum(retained[number] for number in kept) <= settings.journal_size_max
    ):
        return 0
    size = 0
    for count, number in enumerate(kept, 1):
        size += retained[number]
        if 2 * size > settings.journal_size_max or 2 * count > settings.journal_objects_max:
            return number + 1
    return 0


def plan(
    plogs: Mapping[bytes, PlogState], retained: Mapping[int, int], settings: ObjectSettings, allowance: float
) -> list[CompactionTask]:
    """Return what to compact, the oldest plogs first, for at most ``allowance`` bytes; plogs may change meanwhile."""
    crowded = crowded_before(retained, journal_needed(plogs.values()), settings)
    tasks = []
    for uid, plog in plogs.items():
        is_crowded = any(_lies_before(extent, crowded) for extent in plog.extents)
        is_due = plog.sealed and plog.length >= settings.compact_size_min
        if is_crowded or is_due:
            limit = _ALL if plog.sealed else crowded  # an object of its own holds all of a plog
            size = sum(extent.size for extent in plog.extents if _lies_before(extent, limit))
            if size <= allowance:
                allowance -= size
                tasks.append(CompactionTask(uid, limit, size))
    return tasks


def _lies_before(extent: BlockRun, number: int) -> bool:
    return isinstance(extent.source, int) and extent.source < number


def carry_out(journal: ObjectJournal, task: CompactionTask) -> None:
    """Move the blocks of a plog; a plog that fails its checks stays where it is."""
    with journal.changed:
        plog = journal.state.plogs.get(task.uid)
        if plog is None:
            return
        is_sealed = plog.sealed
        if is_sealed:
            plog.drop_cut_off()
        extents = list(plog.extents)
    try:
        if is_sealed:
            _settle(journal, plog, extents)
        else:
            for run in _runs(extents, task.number):
                _move(journal, plog, run)
    except (NoSuchObject, CorruptData) as error:
        damage = journal.gone(error)
        if not isinstance(damage, CorruptData):
            raise damage from error
        _log.error("plog %s cannot be compacted: %s", plog.plog_id, damage)


def _settle(journal: ObjectJournal, plog: PlogState, extents: list[BlockRun]) -> None:
    """Put an object for a sealed plog."""
    own: list[tuple[int | str | None, int, int, int]] = []
    blocks: list[memoryview] = []
    position = 0
    for extent in extents:
        if isinstance(extent.source, int):
            blocks.append(_checked(journal, plog, extent))
            own.append((None, position, extent.start, extent.size))
            position += extent.size
        else:
            own.append(extent)
    name, head = f"{plog.folder}{journal.epoch}.plog", pack_plog(plog, own)
    journal.requests.put_own(name, b"".join((head, *blocks)))
    moved = [
        BlockRun(name, place + len(head), start, size) if source is None else BlockRun(source, place, start, size)
        for source, place, start, size in own
    ]
    with journal.changed:
        if not _is_gone(journal, plog, name):
            plog.extents, plog.home = moved, name
            journal.state.settle(plog.plog_id.uid_bytes, name)


def _runs(extents: list[BlockRun], number: int) -> Iterator[list[BlockRun]]:
    """Return the extents that lie in journal objects before ``number``, those that follow each other together."""
    run: list[BlockRun] = []
    for extent in extents:
        if _lies_before(extent, number):
            run.append(extent)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _move(journal: ObjectJournal, plog: PlogState, run: list[BlockRun]) -> None:
    """Put a part with the blocks of extents that follow each other."""
    name = f"{plog.folder}{journal.epoch}-at-{run[0].start}.part"
    data = b"".join(_checked(journal, plog, extent) for extent in run)
    journal.requests.put_own(name, data)
    journal.cache.add(name, data)
    with journal.changed:
        if not _is_gone(journal, plog, name):
            plog.move(BlockRun(name, 0, run[0].start, len(data)))


def _is_gone(journal: ObjectJournal, plog: PlogState, name: str) -> bool:
    """Return whether the plog was deleted meanwhile; then the object that was put for it must be deleted, too."""
    if journal.state.plogs.get(plog.plog_id.uid_bytes) is plog:
        return False
    journal.state.deleted[plog.folder] = (*journal.state.deleted.get(plog.folder, ()), name)
    return True


def _checked(journal: ObjectJournal, plog: PlogState, extent: BlockRun) -> memoryview:
    """Return the bytes of an extent, all of whose blocks pass their check: a copy must not hide damage."""
    end = extent.start + extent.size
    data = read_extent(journal, extent, extent.start, end)
    key = plog.plog_id.uid_bytes + plog.birth
    index = plog.index_at(extent.start)
    while index < len(plog.starts) and (position := plog.block(index)[0]) < end:
        if not block_matches(key, data, position - extent.start):
            where, offset = journal.requests.objects.where(extent.name), extent.position + position - extent.start
            raise PlogCorrupt(where, offset=offset, reason=f"block {index} fails its checksum")
        index += 1
    return data
