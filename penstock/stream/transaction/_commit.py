"""Commits: what makes the events of a transaction part of a stream, all of them at once.

A small transaction is copied: one block a segment. If that is more than one block, the blocks stand in the catalog
first, so that whoever opens the store after a crash appends those that are missing. A large one has logs of its own,
which the segments take over: the catalog says which before they do, and they do it in one record. So afterwards all of
these logs are there or none is, and the commit is done again, or is done.

Once the catalog says so, a commit has come about, even if the disk then refuses the rest. Nothing of it is shown until
it is finished, which is tried again before anything else changes the stream's segments.

A transaction that began before its stream was scaled may have logs for a key range that no single segment has any more.
Then the segments that have it now end, one with the old range takes the logs and ends, and others with the present
ranges go on: such a commit is a scale in passing. Prepared transactions that are committed together may have begun
before and after a scale, so that their ranges overlap: then there are several such layers, one behind another, and what
is to come first under a key lies in an earlier one.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import CommitUnfinished, PenstockError, StreamSealed, WrongPosition
from penstock.stream.format import (
    NO_SEGMENT,
    BlockHeader,
    Committed,
    Committing,
    CopiedPart,
    LoggedPart,
    SpliceLabel,
    StreamScaled,
    Uncommitted,
    read_header,
)
from penstock.stream.segment import writer_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.log._stream import PendingLogAppend
    from penstock.ports import Bytes
    from penstock.stream.catalog import SegmentState, StreamState
    from penstock.stream.engine import StreamStore
    from penstock.stream.format import Record
    from penstock.stream.segment import PendingBlock, Segment
    from penstock.stream.transaction._buffer import Contents

_logger: Final = logging.getLogger("penstock.stream")

__all__ = ["LOGS_MAX", "TransactionPart", "commit_copies", "commit_logs", "finish_commits", "recover_commits"]

LOGS_MAX: Final = 1024  # of one commit: taking them over is one append of metadata, at most 1,200 bytes for each


@dataclass(slots=True)
class TransactionPart:
    """What a transaction has for one key range: logs, in order, with how many events each has, and what is in them.

    ``headers`` are those of blocks that carry a writer's numbers.
    """

    low: float
    high: float
    logs: list[str] = field(default_factory=list)
    size: int = 0
    counts: list[int] = field(default_factory=list)
    headers: list[BlockHeader] = field(default_factory=list)

    def add_log(self, name: str) -> None:
        """Add a log, in which there is nothing yet."""
        self.logs.append(name)
        self.counts.append(0)


def commit_copies(store: StreamStore, name: str, transaction: str, contents: Mapping[int, Contents]) -> dict[int, int]:
    """Append a block to each of some segments, all or none; ``contents`` are what is in them.

    Return where each block begins. The caller holds the catalog, and knows that these segments take events.
    """
    finish_commits(store, name)
    store.catalog.catch_up()
    mark = writer_hash(transaction)
    segments = {segment: store.segment(name, segment) for segment in sorted(contents)}
    with ExitStack() as held:
        for one in segments.values():
            held.enter_context(one.held())
        blocks: dict[int, tuple[BlockHeader, *tuple[Bytes, ...]]] = {
            segment: (
                BlockHeader(count=one.count, columns=one.columns, parts=0, writer=mark),
                *one.body,
            )
            for segment, one in contents.items()
        }
        record, noted = Committed(name, transaction), None
        if len(blocks) > 1:
            copied = [
                CopiedPart(segment, segments[segment].tail, b"".join((header.pack(), *body)))
                for segment, (header, *body) in blocks.items()
            ]
            store.catalog.commit(Committing(name, transaction, copied, []))
            with _on_record(transaction):
                pending = _append_all(segments, blocks)
        else:
            [(number, block)] = blocks.items()
            record, noted, only = _append_behind_record(store, segments[number], record, number, *block)
            pending = {number: only}
    for segment, appended in pending.items():
        segments[segment].show(appended.end)
    store.catalog.settle(record, noted)
    return {segment: appended.start for segment, appended in pending.items()}


def _append_behind_record(
    store: StreamStore, segment: Segment, record: Committed, number: int, header: BlockHeader, *parts: Bytes
) -> tuple[Committed, PendingLogAppend, PendingBlock]:
    """Append the only block of a commit, with one sync for it and for the record that names its place.

    The record comes first in the journal, so after a crash the block is there only if the record is. That a record is
    there without its block is found out when the store is opened.
    """
    size = len(header.pack()) + sum(map(len, parts))
    while True:
        place = segment.own_log().next_append(size)
        record = msgspec.structs.replace(record, segment=number, end=place.start + size)
        noted = store.catalog.submit(record)
        try:
            if not place.in_order:
                noted.result()
            block = segment.submit_held(header, *parts, expected=place.position)
            block.wait()
        except BaseException as error:
            store.catalog.settle(Uncommitted(record.stream, record.transaction))
            if not isinstance(error, WrongPosition):  # a block before this one was lost, on a full disk
                raise
        else:
            return record, noted, block


@contextmanager
def _on_record(transaction: str) -> Iterator[None]:
    """Tell who waits for a commit that is on record so, if the disk refuses the rest."""
    try:
        yield
    except PenstockError as error:
        raise CommitUnfinished(transaction, cause=error) from error


def _append_all(
    segments: Mapping[int, Segment], blocks: Mapping[int, tuple[BlockHeader, *tuple[Bytes, ...]]]
) -> dict[int, PendingBlock]:
    """Append the blocks of a commit that is on record; where that fails, nothing of it is shown."""
    pending: dict[int, PendingBlock] = {}
    try:
        for segment, block in blocks.items():
            pending[segment] = segments[segment].submit_held(*block)
        for one in pending.values():
            one.wait()
    except BaseException:
        _leave_unfinished(segments.values(), pending.values())
        raise
    return pending


def _leave_unfinished(segments: Iterable[Segment], pending: Iterable[PendingBlock]) -> None:
    """Show nothing of blocks some of which are there. Who finishes the commit has to find those, so they settle."""
    for block in pending:
        _failure(block)
    for segment in segments:
        segment.freeze()


def _finish(store: StreamStore, record: Committing, segments: Iterable[Segment]) -> None:
    """Show readers what was committed, in all segments before anybody can ask where the stream ends."""
    for one in segments:
        one.show()
    store.catalog.settle(Committed(record.stream, record.transaction, implicit=record.implicit))
    for one in segments:
        if one.ended:
            one.release()


def commit_logs(
    store: StreamStore, commit: Committing, parts: Sequence[TransactionPart], *before: Record
) -> list[tuple[int, int]]:
    """Let segments take over the logs of transactions, all or none; return segment and offset of each part.

    ``commit`` says all but where the logs go, and ``before`` comes about together with it. Under any key, what is in an
    earlier part comes first. The caller holds the catalog. Everything in the logs is durable.
    """
    finish_commits(store, commit.stream)
    state = store.catalog.stream(commit.stream)
    if state.sealed:
        raise StreamSealed(commit.stream)
    holders = [_segment_with(state, part) for part in parts]
    ending = _overlapping(state.current, [part for part, one in zip(parts, holders, strict=True) if one is None])
    rolled = {
        place: part for place, part in enumerate(parts) if any(one.overlaps(part.low, part.high) for one in ending)
    }
    roll = _Roll(store, state, ending, rolled)
    try:
        targets = [roll.segments.get(place, one) for place, one in enumerate(holders)]
        by_segment: dict[int, list[TransactionPart]] = {}
        for part, target in zip(parts, targets, strict=True):
            assert target is not None, "a part that no segment has all of is rolled"
            by_segment.setdefault(target, []).append(part)
        logged = [
            LoggedPart(
                target, [log for part in some for log in part.logs], [count for part in some for count in part.counts]
            )
            for target, some in by_segment.items()
        ]
        record = msgspec.structs.replace(commit, logged=logged)
        store.catalog.commit(*before, *roll.records, record)
    except BaseException:
        roll.undo()
        raise
    roll.ring()
    with _on_record(commit.transaction):
        starts = _take_over(store, record, by_segment)
    return _places([one for one in targets if one is not None], parts, starts)


def _segment_with(state: StreamState, part: TransactionPart) -> int | None:
    """Return the segment that has all of a part's key range; None if it was split."""
    holders = [one.segment_id for one in state.current if one.low <= part.low and part.high <= one.high]
    return holders[0] if holders else None


def _overlapping(segments: Iterable[SegmentState], parts: Sequence[TransactionPart]) -> list[SegmentState]:
    return [one for one in segments if any(one.overlaps(part.low, part.high) for part in parts)]


def _places(found: Sequence[int], parts: Sequence[TransactionPart], starts: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return segment and offset of each part: those of one segment follow each other."""
    ends = dict(starts)
    places = []
    for target, part in zip(found, parts, strict=True):
        places.append((target, ends[target]))
        ends[target] += part.size
    return places


def _take_over(
    store: StreamStore, record: Committing, parts: Mapping[int, Sequence[TransactionPart]] | None
) -> dict[int, int]:
    """Let segments take over what the record says, unless they have; return where each of them had ended.

    ``parts`` are None for who finds the record and knows nothing else.
    """
    segments = {one.segment: store.segment(record.stream, one.segment) for one in record.logged}
    with ExitStack() as held:
        for segment in sorted(segments):
            held.enter_context(segments[segment].held())
        try:
            plan = {segments[one.segment].own_log(): store.existing_logs(one.logs) for one in record.logged}
            labels = {log: label for one in record.logged for log, label in _labels(segments[one.segment], one)}
            store.splice(plan, labels)
        except BaseException:
            for one in segments.values():
                one.hold_back()
            raise
        starts = {}
        for segment, one in segments.items():
            some = () if parts is None else parts[segment]
            size = sum(part.size for part in some)
            starts[segment] = one.own_log().length - size
            headers = None if parts is None else [header for part in some for header in part.headers]
            one.take_over(headers, events=sum(sum(part.counts) for part in some), size=size)
            store.small_plogs.add((record.stream, segment))
    _finish(store, record, segments.values())
    return starts


def _labels(segment: Segment, part: LoggedPart) -> Iterator[tuple[str, bytes]]:
    """Return what a segment keeps of each log that it takes over: how many events come before it, and the time."""
    before, time_ms = segment.total, segment.next_ms()
    for log, count in zip(part.logs, part.counts, strict=True):
        yield log, SpliceLabel(before, time_ms).pack()
        before += count


class _Roll:
    """A scale in passing for parts that no segment can take: segments end, others take the parts, new ones go on.

    All parts in the key space of an ending segment go this way, those that it could have taken, too. ``parts`` are by
    their place in the commit, and ``segments`` are those that take them.
    """

    def __init__(
        self,
        store: StreamStore,
        state: StreamState,
        ending: Sequence[SegmentState],
        parts: Mapping[int, TransactionPart],
    ) -> None:
        self._ending = {one.segment_id: store.segment(state.name, one.segment_id) for one in ending}
        try:
            ends = {segment: one.end() for segment, one in self._ending.items()}
            counts = {segment: one.count_before(ends[segment]) for segment, one in self._ending.items()}
        except BaseException:
            self.undo()
            raise
        now_ms = int(store.clock.now() * 1000)
        self.records: list[StreamScaled] = []
        self.segments: dict[int, int] = {}
        whole, first = [(one.low, one.high) for one in ending], state.next_segment
        for layer in _layers(parts):
            between = _with_fillers(whole, [(parts[some[0]].low, parts[some[0]].high) for some in layer])
            numbers = {low: first + place for place, (low, _) in enumerate(between)}
            self.records.append(StreamScaled(state.name, ends, between, now_ms, counts))
            ends, counts = dict.fromkeys(numbers.values(), 0), dict.fromkeys(numbers.values(), 0)
            for some in layer:
                segment = numbers[parts[some[0]].low]
                self.segments |= dict.fromkeys(some, segment)
                ends[segment] = sum(parts[place].size for place in some)
                counts[segment] = sum(sum(parts[place].counts) for place in some)
            first += len(between)
        if parts:
            self.records.append(StreamScaled(state.name, ends, whole, now_ms, counts))

    def undo(self) -> None:
        """Let the segments go on, because the change did not come about."""
        for one in self._ending.values():
            one.reopen()

    def ring(self) -> None:
        """Let readers know that segments have ended."""
        for one in self._ending.values():
            one.ring()


def _layers(parts: Mapping[int, TransactionPart]) -> list[list[list[int]]]:
    """Return the places of parts in layers: in each, parts of one range together, and no others that overlap.

    A part is in a later layer than those before it that overlap with it, unless they are of the same range.
    """
    found: list[list[list[int]]] = []
    for place, part in parts.items():
        depth = 0
        for number, layer in enumerate(found):
            for some in layer:
                other = parts[some[0]]
                if (other.low, other.high) == (part.low, part.high):
                    depth = max(depth, number)
                elif other.low < part.high and part.low < other.high:
                    depth = max(depth, number + 1)
        if depth == len(found):
            found.append([])
        same = [some for some in found[depth] if parts[some[0]].low == part.low]
        if same:
            same[0].append(place)
        else:
            found[depth].append([place])
    return found


def _with_fillers(
    whole: Sequence[tuple[float, float]], wanted: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the wanted ranges and, between them, the rest of the whole, in order."""
    marks = sorted({mark for pair in (*whole, *wanted) for mark in pair})
    inside = [pair for pair in pairwise(marks) if any(a <= pair[0] < b for a, b in whole)]
    rest = [pair for pair in inside if not any(a <= pair[0] < b for a, b in wanted)]
    return sorted([*wanted, *rest])


def recover_commits(store: StreamStore) -> None:
    """See through what a crash interrupted; a stream whose files are damaged waits, and nobody else because of it."""
    _doubt_newest(store)
    for stream in {one.stream for one in store.catalog.commits.values()}:
        try:
            finish_commits(store, stream)
        except PenstockError as error:
            _logger.warning("a commit of stream %s is on record and could not be finished: %s", stream, error)
            _withhold(store, stream)


def _doubt_newest(store: StreamStore) -> None:
    """Take back the newest commit if its record was faster than its block; those before it were waited for."""
    newest = store.catalog.newest_commit
    if newest is None or newest.segment == NO_SEGMENT:
        return
    try:
        segment = store.segment(newest.stream, newest.segment)
        is_there = segment.has_block(writer_hash(newest.transaction), end=newest.end)
    except PenstockError as error:
        _logger.warning("nobody knows whether transaction %s was committed: %s", newest.transaction, error)
    else:
        if not is_there:
            store.catalog.commit(Uncommitted(newest.stream, newest.transaction))


def _withhold(store: StreamStore, stream: str) -> None:
    """Show nothing of commits that are half there."""
    for record in _commits_of(store, stream):
        for copied in record.copied:
            with suppress(PenstockError):
                store.segment(stream, copied.segment).freeze(copied.start)
        for logged in record.logged:
            with suppress(PenstockError):
                store.segment(stream, logged.segment).hold_back()


def _commits_of(store: StreamStore, stream: str) -> list[Committing]:
    return [record for record in store.catalog.commits.values() if record.stream == stream]


def finish_commits(store: StreamStore, stream: str) -> None:
    """See through what a crash interrupted in a stream, or the disk refused; the caller holds the catalog."""
    for record in _commits_of(store, stream):
        if not record.copied:
            _take_over(store, record, None)
            continue
        segments = {part.segment: store.segment(stream, part.segment) for part in record.copied}
        _append_missing(segments, record.copied)
        for segment in segments.values():
            segment.thaw()
        _finish(store, record, segments.values())


def _append_missing(segments: Mapping[int, Segment], parts: Iterable[CopiedPart]) -> None:
    """Append the blocks of a commit that are not there, and wait for them.

    Where one is refused, those before it are waited for, too: who tries again has to find them.
    """
    pending: list[PendingBlock] = []
    try:
        for part in parts:
            block = _append_again(segments[part.segment], part)
            pending += [] if block is None else [block]
    finally:
        failed = [error for error in map(_failure, pending) if error is not None]
    if failed:
        raise failed[0]


def _failure(block: PendingBlock) -> PenstockError | None:
    """Wait for a block; return why it is not durable, if it is not."""
    try:
        block.wait()
    except PenstockError as error:
        return error
    return None


def _append_again(segment: Segment, part: CopiedPart) -> PendingBlock | None:
    """Append a block of a transaction, unless it is there; then it is one of the next behind where it was to be."""
    header = read_header(memoryview(part.block), where=segment.where, start=part.start)
    if any(map(partial(_is_same, header), segment.headers(part.start))):
        return None
    return segment.submit(header, part.block[len(header.pack()) :])


def _is_same(header: BlockHeader, there: BlockHeader) -> bool:
    """Whether a block is the one that is there, with its keys or without."""
    return msgspec.structs.replace(there, before=0, time_ms=0, columns=header.columns) == header
