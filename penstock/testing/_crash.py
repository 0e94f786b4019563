"""Power loss: every legal state of a disk on which some changes were not synced.

A legal state has every certain change, in order, and of the others

- any subset of them, so that a later one may be there without an earlier one;
- of a write any subset of its sectors (512 bytes of the file, each completely or not at all) or pages (4096);
- where a lost change had made its file longer: the old length, or the new one with zeros or with stale bytes in it;
- any subset of the creations, removals and renamings that the folder's sync did not cover, even if the files
  themselves were synced.

Of these states, the following are enumerated:

- changes: the power set of at most ``power_set_max``. Of more, writes that continue each other in one file are taken
  together; if these are still more: none, all, each prefix, each suffix, each alone, all but each;
- torn writes: of each write over a boundary, the first block, all but the first, all but the last, every other one,
  for sectors and for pages, with all other changes kept and with all others lost;
- each of these with the old length, with zeros, with 0xA5, and with the bytes of the file that was removed last;
- names: subsets as of changes; with none and with all, every case above; with any other, all changes and no change.

A state with the same files and the same notes as an earlier one is skipped.
"""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from itertools import chain, combinations, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.testing._image import DiskImage, FileImage, FileTail, PendingOp, Standing, apply_naming
from penstock.testing._memory import MemoryDisk
from penstock.testing._operations import Change, CreateFile, Inode, RenameFile, TruncateFile, Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SECTOR_SIZE: Final = 512
_PAGE_SIZE: Final = 4096
_JUNK: Final = b"\xa5"

_Numbers: TypeAlias = frozenset[int]
_Unit: TypeAlias = list[PendingOp[Change]]
_NOTHING: Final[_Numbers] = frozenset()


class _Rest(Enum):
    """The bytes where a lost change had made its file longer."""

    SHORT = "short"
    ZEROS = "zero tail"
    JUNK = "stale tail"
    RELIC = "stale tail of a removed file"


class _Tear(NamedTuple):
    """Writes of which only some ranges survive."""

    numbers: _Numbers
    block_size: int
    part: str
    ranges: tuple[tuple[int, int], ...]


class _Outcome(NamedTuple):
    """Which of the uncertain operations survive."""

    names: _Numbers
    kept: _Numbers
    tear: _Tear | None
    rest: _Rest


class _Survivor(NamedTuple):
    """What is left of a file: its certain bytes below ``low``, then ``tail``, then zeros up to ``size``."""

    certain: bytes
    low: int
    tail: bytes
    size: int
    fingerprint: int  # different for files with other bytes or another size


class CrashState:
    """A disk in a state that a power loss may leave."""

    def __init__(self, image: DiskImage, outcome: _Outcome, survivors: dict[str, _Survivor]) -> None:
        self._image, self._outcome, self._survivors = image, outcome, survivors

    @property
    def notes(self) -> tuple[object, ...]:
        """The notes made before the power loss."""
        return self._image.notes

    @cached_property
    def describe(self) -> str:
        """A line that says what happened, for the message of a failed test; operations are numbered from 1."""
        image, (names, kept, tear, rest) = self._image, self._outcome
        torn = tear.numbers if tear else _NOTHING
        changes = frozenset(change.number for change in _open_changes(image))
        facts = [
            ("kept", kept),
            ("lost", changes - kept - torn),
            ("names kept", names),
            ("names lost", frozenset(_open_names(image)) - names),
        ]
        parts = [f"after op {image.point} {image.last}" if image.last else "before op 1"]
        parts += [f"{fact} {_listed(numbers)}" for fact, numbers in facts if numbers]
        if tear:
            parts.append(f"tore {_listed(torn)} at {tear.block_size}: {tear.part}")
        if rest is not _Rest.SHORT:
            parts.append(rest.value)
        return "; ".join(parts)

    @cached_property
    def disk(self) -> MemoryDisk:
        """The disk that survived, for the recovery under test."""
        disk = MemoryDisk()
        for name, (certain, low, tail, size, _) in self._survivors.items():
            file = disk.create(name)
            file.reserve(size)
            file.pwritev([memoryview(certain)[:low]], 0)
            file.pwritev([tail], low)
            file.close()
        return disk


Seen: TypeAlias = set[tuple[int, frozenset[tuple[str, int]]]]


def crash_states(image: DiskImage, *, power_set_max: int, seen: Seen) -> Iterator[CrashState]:
    """Return the states that a power loss now may leave, except those in ``seen``; add them to it."""
    survivors = _Survivors(image)
    for outcome in _outcomes(image, power_set_max):
        left = survivors.of(outcome)
        key = len(image.notes), frozenset((name, file.fingerprint) for name, file in left.items())
        if key not in seen:
            seen.add(key)
            yield CrashState(image, outcome, left)


class _Survivors:
    """The files left by each outcome; parts that outcomes share are computed once."""

    def __init__(self, image: DiskImage) -> None:
        self._image = image
        self._numbers = {
            inode: frozenset(entry.number for entry in file.entries if entry.standing is not Standing.SURE)
            for inode, file in image.files.items()
        }
        self._known: dict[tuple[object, ...], _Survivor] = {}

    def of(self, outcome: _Outcome) -> dict[str, _Survivor]:
        names = dict(self._image.names)
        for number, naming, standing in self._image.name_entries:
            if standing is Standing.SURE or number in outcome.names:
                apply_naming(names, naming)
        return {name: self._file(inode, outcome) for name, inode in names.items()}

    def _file(self, inode: Inode, outcome: _Outcome) -> _Survivor:
        numbers = self._numbers[inode]
        kept = outcome.kept & numbers
        tear = outcome.tear if outcome.tear and outcome.tear.numbers & numbers else None
        rest = _Rest.SHORT if kept == numbers else outcome.rest
        key = (inode, kept, tear, rest)
        if key not in self._known:
            file = self._image.files[inode]
            tail = _survive(file, kept, tear, rest, self._image.relic)
            fingerprint = hash((tail.size, tail.whole().rstrip(b"\0")))
            self._known[key] = _Survivor(file.data, tail.low, bytes(tail.data), tail.size, fingerprint)
        return self._known[key]


def _survive(file: FileImage, kept: _Numbers, tear: _Tear | None, rest: _Rest, relic: bytes) -> FileTail:
    tail = FileTail(file)
    for number, change, standing in file.entries:
        if standing is Standing.SURE or number in kept:
            tail.apply(change)
        else:
            _lose(tail, change, rest, relic)
            if tear and number in tear.numbers and isinstance(change, Write):
                _keep_ranges(tail, change, tear.ranges)
    return tail


def _lose(tail: FileTail, change: Change, rest: _Rest, relic: bytes) -> None:
    if rest is _Rest.SHORT or isinstance(change, TruncateFile):
        return
    offset, end = (change.offset, change.end) if isinstance(change, Write) else (0, change.size)
    start = max(offset, tail.size)
    if start >= end:
        return
    if rest is _Rest.ZEROS:
        tail.size = end
    else:
        stale = relic[start:end] if rest is _Rest.RELIC else b""
        tail.put(start, stale.ljust(end - start, _JUNK))


def _keep_ranges(tail: FileTail, write: Write, ranges: Iterable[tuple[int, int]]) -> None:
    for low, high in ranges:
        start, end = max(low, write.offset), min(high, write.end)
        if start < end:
            tail.put(start, write.data[start - write.offset : end - write.offset])


def _outcomes(image: DiskImage, power_set_max: int) -> Iterator[_Outcome]:
    names = _open_names(image)
    changes = _open_changes(image)
    units = [[change] for change in changes] if len(changes) <= power_set_max else _runs(changes)
    everything = frozenset(change.number for change in changes)
    rests = list(_Rest) if image.relic else [rest for rest in _Rest if rest is not _Rest.RELIC]
    for done in _subsets([frozenset([name]) for name in names], power_set_max):
        plain = len(done) in {0, len(names)}
        choices = _choices(units, power_set_max) if plain else [(everything, None), (_NOTHING, None)]
        for kept, tear in choices:
            for rest in rests if kept != everything else [_Rest.SHORT]:
                yield _Outcome(done, kept, tear, rest)


def _listed(numbers: _Numbers) -> str:
    return ",".join(map(str, sorted(numbers)))


def _open_names(image: DiskImage) -> list[int]:
    return [entry.number for entry in image.name_entries if entry.standing is not Standing.SURE]


def _open_changes(image: DiskImage) -> list[PendingOp[Change]]:
    """Return the uncertain changes, in order, of the files that may have a name."""
    inodes = set(image.names.values())
    inodes.update(
        entry.operation.file for entry in image.name_entries if isinstance(entry.operation, CreateFile | RenameFile)
    )
    entries = chain.from_iterable(image.files[inode].entries for inode in inodes)
    return sorted((entry for entry in entries if entry.standing is not Standing.SURE), key=lambda entry: entry.number)


def _runs(entries: Iterable[PendingOp[Change]]) -> list[_Unit]:
    units: list[_Unit] = []
    latest: dict[Inode, _Unit] = {}
    for entry in entries:
        change = entry.operation
        unit = latest.get(change.file)
        if unit and isinstance(change, Write) and _end(unit[-1].operation) == change.offset:
            unit.append(entry)
        else:
            latest[change.file] = unit = [entry]
            units.append(unit)
    return units


def _end(change: Change) -> int | None:
    return change.end if isinstance(change, Write) else None


def _choices(units: Sequence[_Unit], power_set_max: int) -> Iterator[tuple[_Numbers, _Tear | None]]:
    numbers = [frozenset(entry.number for entry in unit) for unit in units]
    for kept in _subsets(numbers, power_set_max):
        yield kept, None
    everything = _NOTHING.union(*numbers)
    for tear in chain.from_iterable(map(_tears, numbers, units)):
        yield everything - tear.numbers, tear
        yield _NOTHING, tear


def _subsets(units: Sequence[_Numbers], power_set_max: int) -> Iterator[_Numbers]:
    count = len(units)
    if count <= power_set_max:
        picks: Iterable[Sequence[_Numbers]] = chain.from_iterable(
            combinations(units, size) for size in range(count + 1)
        )
    else:
        prefixes = (units[:size] for size in range(count + 1))
        suffixes = (units[place:] for place in range(1, count))
        singles = ([unit] for unit in units[1:-1])
        others = ([*units[:place], *units[place + 1 :]] for place in range(1, count - 1))
        picks = chain(prefixes, suffixes, singles, others)
    return (_NOTHING.union(*pick) for pick in picks)


def _tears(numbers: _Numbers, unit: _Unit) -> Iterator[_Tear]:
    first, last = unit[0].operation, unit[-1].operation
    if not isinstance(first, Write) or not isinstance(last, Write):
        return
    for block_size in (_SECTOR_SIZE, _PAGE_SIZE):
        inner = range((first.offset // block_size + 1) * block_size, last.end, block_size)
        if inner:
            blocks = list(pairwise([first.offset, *inner, last.end]))
            yield _Tear(numbers, block_size, "the first block", (blocks[0],))
            yield _Tear(numbers, block_size, "all but the first", ((inner[0], last.end),))
            yield _Tear(numbers, block_size, "all but the last", ((first.offset, inner[-1]),))
            yield _Tear(numbers, block_size, "every other", tuple(blocks[::2]))
