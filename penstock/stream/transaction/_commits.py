"""Commits: they make the events of a transaction part of a stream, all at once.

A small transaction is copied: one block a segment. If that is more than one block, the catalog records the blocks
first, so that the next process that opens the store after a crash appends those that are missing. A large one has logs
of its own, which the segments take over: the catalog says which before they do, and they do it in one record. So
afterwards all of these logs are there or none is, and the commit is done again, or is done.

Once the catalog has the record, the transaction is committed, even if the disk then refuses the rest. Readers see none
of it until it is finished; finishing is retried before anything else changes the stream's segments.

A transaction that began before its stream was scaled may have logs for a key range that no single segment has any more.
Then the segments that have it now end, one with the old range takes the logs and ends, and others with the present
ranges go on: such a commit is a scale in passing. Prepared transactions that are committed together may have begun
before and after a scale, so that their ranges overlap: then there are several such layers, one behind another, and what
is to come first under a key lies in an earlier one.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import CommitUnfinished, PenstockError, StreamSealed, WrongPosition
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    NO_SEGMENT,
    Committed,
    Committing,
    CopiedPart,
    LoggedPart,
    SpliceLabel,
    StreamBlockHeader,
    Uncommitted,
    read_header,
)
from penstock.stream.segment import writer_hash
from penstock.stream.transaction._roll import Roll

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.log import PendingLogAppend
    from penstock.ports import Bytes, Clock
    from penstock.stream.catalog import Catalog, SegmentState, StreamState
    from penstock.stream.format import Record
    from penstock.stream.segment import Logs, PendingBlock, Segment, Segments
    from penstock.stream.transaction._buffer import Contents
    from penstock.stream.transaction._roll import TransactionPart

__all__ = ["LOGS_MAX", "Commits"]

_logger: Final = logging.getLogger("penstock.stream")
LOGS_MAX: Final = 1024  # of one commit: taking them over is one append of metadata, at most 1,200 bytes for each


class Commits:
    """Commits transactions, and finishes what a crash or a full disk has interrupted."""

    def __init__(self, catalog: Catalog, segments: Segments, logs: Logs, clock: Clock) -> None:
        self._catalog, self._segments, self._logs, self._clock = catalog, segments, logs, clock

    def copy(self, name: str, transaction: str, contents: Mapping[int, Contents]) -> dict[int, int]:
        """Append one block to each segment in ``contents``, all or none.

        Return where each block begins. The caller holds the catalog, and knows that these segments take events.
        """
        self.finish(name)
        self._catalog.catch_up()
        writer = writer_hash(transaction)
        blocks: dict[int, tuple[StreamBlockHeader, *tuple[Bytes, ...]]] = {
            segment: (
                StreamBlockHeader(count=content.count, columns=content.columns, flush_segments=0, writer=writer),
                *content.body,
            )
            for segment, content in contents.items()
        }
        if len(blocks) == 1:
            [(number, block)] = blocks.items()
            return {number: self._copy_one(name, transaction, number, *block)}
        segments = {segment: self._segments.get(name, segment) for segment in sorted(contents)}
        with ExitStack() as held:
            for handle in segments.values():
                held.enter_context(handle.held())
            copied = [
                CopiedPart(segment, segments[segment].tail, b"".join((header.pack(), *body)))
                for segment, (header, *body) in blocks.items()
            ]
            self._catalog.commit(Committing(name, transaction, copied, []))
            with _on_record(transaction):
                pending = _append_all(segments, blocks)
        for segment, appended in pending.items():
            segments[segment].show(appended.end)
        self._catalog.settle(Committed(name, transaction))
        return {segment: appended.start for segment, appended in pending.items()}

    def _copy_one(self, name: str, transaction: str, number: int, header: StreamBlockHeader, *parts: Bytes) -> int:
        """Append the only block of a commit; return where it begins."""
        segment = self._segments.get(name, number)
        with segment.held():
            record, noted, block = self._append_behind_record(segment, name, transaction, number, header, *parts)
        segment.show(block.end)
        self._catalog.settle(record, noted)
        return block.start

    def _append_behind_record(
        self, segment: Segment, name: str, transaction: str, number: int, header: StreamBlockHeader, *parts: Bytes
    ) -> tuple[Committed, PendingLogAppend, PendingBlock]:
        """Append the only block of a commit, with one sync for it and for the record that names its place.

        The record comes first in the journal, so after a crash the block is there only if the record is. Whether a
        record is there without its block is found out when the store is opened.
        """
        size = BLOCK_HEADER_SIZE + sum(map(len, parts))
        while True:
            place = segment.own_log().next_append(size)
            record = Committed(name, transaction, number, place.start + size)
            noted = self._catalog.submit(record)
            try:
                if not place.in_order:
                    noted.result()
                block = segment.submit_held(header, *parts, expected=place.position)
                block.wait()
            except BaseException as error:
                self._catalog.settle(Uncommitted(name, transaction))
                if not isinstance(error, WrongPosition):  # a block before this one was lost, on a full disk
                    raise
            else:
                return record, noted, block

    def _show(self, record: Committing, segments: Iterable[Segment]) -> None:
        """Show readers the commit in all segments; the catalog's lock keeps the tail from being read in between."""
        for segment in segments:
            segment.show()
        self._catalog.settle(Committed(record.stream, record.transaction, implicit=record.implicit))
        for segment in segments:
            if segment.ended:
                segment.release()

    def take_over(self, commit: Committing, parts: Sequence[TransactionPart], *before: Record) -> list[tuple[int, int]]:
        """Let segments take over the logs of transactions, all or none; return segment and offset of each part.

        ``commit`` says all but where the logs go, and ``before`` is recorded together with it. Under any key, what is
        in an earlier part comes first. The caller holds the catalog. Everything in the logs is durable.
        """
        self.finish(commit.stream)
        state = self._catalog.stream(commit.stream)
        if state.sealed:
            raise StreamSealed(commit.stream)
        holders = [_segment_with(state, part) for part in parts]
        ending = _overlapping(
            state.current, [part for part, holder in zip(parts, holders, strict=True) if holder is None]
        )
        rolled = {
            place: part
            for place, part in enumerate(parts)
            if any(segment.overlaps(part.low, part.high) for segment in ending)
        }
        roll = Roll(self._segments, state, ending, rolled, now_ms=int(self._clock.now() * 1000))
        try:
            targets = [roll.segments.get(place, holder) for place, holder in enumerate(holders)]
            by_segment: dict[int, list[TransactionPart]] = {}
            for part, target in zip(parts, targets, strict=True):
                assert target is not None, "a part that no segment has all of is rolled"
                by_segment.setdefault(target, []).append(part)
            logged = [
                LoggedPart(
                    target,
                    [log for part in of_target for log in part.logs],
                    [count for part in of_target for count in part.counts],
                )
                for target, of_target in by_segment.items()
            ]
            record = msgspec.structs.replace(commit, logged=logged)
            self._catalog.commit(*before, *roll.records, record)
        except BaseException:
            roll.undo()
            raise
        roll.notify()
        with _on_record(commit.transaction):
            starts = self._take_over(record, by_segment)
        return _places([target for target in targets if target is not None], parts, starts)

    def _take_over(self, record: Committing, parts: Mapping[int, Sequence[TransactionPart]] | None) -> dict[int, int]:
        """Let segments take over the logs of a record, unless they have already; return where each segment had ended.

        ``parts`` are None for who finds the record and knows nothing else.
        """
        segments = {logged.segment: self._segments.get(record.stream, logged.segment) for logged in record.logged}
        with ExitStack() as held:
            for segment in sorted(segments):
                held.enter_context(segments[segment].held())
            try:
                plan = {
                    segments[logged.segment].own_log(): self._logs.existing(logged.logs) for logged in record.logged
                }
                labels = {
                    log: label for logged in record.logged for log, label in _labels(segments[logged.segment], logged)
                }
                self._logs.splice(plan, labels)
            except BaseException:
                for handle in segments.values():
                    handle.hold_back()
                raise
            starts = {}
            for segment, handle in segments.items():
                of_segment = () if parts is None else parts[segment]
                size = sum(part.size for part in of_segment)
                starts[segment] = handle.own_log().length - size
                headers = None if parts is None else [header for part in of_segment for header in part.headers]
                handle.take_over(headers, events=sum(sum(part.counts) for part in of_segment), size=size)
                self._segments.small_plogs.add((record.stream, segment))
        self._show(record, segments.values())
        return starts

    def recover(self) -> None:
        """Finish what a crash interrupted; a stream whose files are damaged waits, and no other because of it."""
        self._doubt_newest()
        for stream in {commit.stream for commit in self._catalog.commits.values()}:
            try:
                self.finish(stream)
            except PenstockError as error:
                _logger.warning("a commit of stream %s is on record and could not be finished: %s", stream, error)
                self._withhold(stream)

    def _doubt_newest(self) -> None:
        """Take back the newest commit if only its record survived the crash; the blocks of older ones are durable."""
        newest = self._catalog.newest_commit
        if newest is None or newest.segment == NO_SEGMENT:
            return
        try:
            segment = self._segments.get(newest.stream, newest.segment)
            is_there = segment.has_block(writer_hash(newest.transaction), end=newest.end)
        except PenstockError as error:
            _logger.warning("the outcome of transaction %s is unknown: %s", newest.transaction, error)
        else:
            if not is_there:
                self._catalog.commit(Uncommitted(newest.stream, newest.transaction))

    def _withhold(self, stream: str) -> None:
        """Hide commits of which only a part is there."""
        for record in self._under_way(stream):
            for copied in record.copied:
                with suppress(PenstockError):
                    self._segments.get(stream, copied.segment).freeze(copied.start)
            for logged in record.logged:
                with suppress(PenstockError):
                    self._segments.get(stream, logged.segment).hold_back()

    def _under_way(self, stream: str) -> list[Committing]:
        return [record for record in self._catalog.commits.values() if record.stream == stream]

    def finish(self, stream: str) -> None:
        """Finish the commits of a stream that a crash or a full disk interrupted; the caller holds the catalog."""
        for record in self._under_way(stream):
            if not record.copied:
                self._take_over(record, None)
                continue
            segments = {part.segment: self._segments.get(stream, part.segment) for part in record.copied}
            _append_missing(segments, record.copied)
            for segment in segments.values():
                segment.thaw()
            self._show(record, segments.values())


@contextmanager
def _on_record(transaction: str) -> Iterator[None]:
    """Raise ``CommitUnfinished`` if the disk refuses the rest of a commit that is on record."""
    try:
        yield
    except PenstockError as error:
        raise CommitUnfinished(transaction, cause=error) from error


def _append_all(
    segments: Mapping[int, Segment], blocks: Mapping[int, tuple[StreamBlockHeader, *tuple[Bytes, ...]]]
) -> dict[int, PendingBlock]:
    """Append the blocks of a commit that is on record; if that fails, readers see none of them."""
    pending: dict[int, PendingBlock] = {}
    try:
        for segment, block in blocks.items():
            pending[segment] = segments[segment].submit_held(*block)
        for append in pending.values():
            append.wait()
    except BaseException:
        _leave_unfinished(segments.values(), pending.values())
        raise
    return pending


def _leave_unfinished(segments: Iterable[Segment], pending: Iterable[PendingBlock]) -> None:
    """Hide blocks of which only some are durable; wait for all, because finishing the commit looks for them."""
    for block in pending:
        _failure(block)
    for segment in segments:
        segment.freeze()


def _segment_with(state: StreamState, part: TransactionPart) -> int | None:
    """Return the segment that covers the key range of a part; None if it was split since."""
    holders = [segment.segment_id for segment in state.current if segment.low <= part.low and part.high <= segment.high]
    return holders[0] if holders else None


def _overlapping(segments: Iterable[SegmentState], parts: Sequence[TransactionPart]) -> list[SegmentState]:
    return [segment for segment in segments if any(segment.overlaps(part.low, part.high) for part in parts)]


def _places(found: Sequence[int], parts: Sequence[TransactionPart], starts: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return segment and offset of each part; parts of one segment follow each other."""
    ends = dict(starts)
    places = []
    for target, part in zip(found, parts, strict=True):
        places.append((target, ends[target]))
        ends[target] += part.size
    return places


def _labels(segment: Segment, part: LoggedPart) -> Iterator[tuple[str, bytes]]:
    """Yield the label of each log that a segment takes over: the number of events before it, and the commit time."""
    before, time_ms = segment.total, segment.next_ms()
    for log, count in zip(part.logs, part.counts, strict=True):
        yield log, SpliceLabel(before, time_ms).pack()
        before += count


def _append_missing(segments: Mapping[int, Segment], parts: Iterable[CopiedPart]) -> None:
    """Append the missing blocks of a commit, and wait for them.

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
    """Append a block of a transaction, unless it is one of the blocks behind its recorded offset."""
    header = read_header(memoryview(part.block), where=segment.where, start=part.start)
    if any(map(partial(_is_same, header), segment.headers(part.start))):
        return None
    return segment.submit(header, part.block[len(header.pack()) :])


def _is_same(header: StreamBlockHeader, there: StreamBlockHeader) -> bool:
    """Whether a stored block is the recorded one, with its keys or without."""
    return msgspec.structs.replace(there, before=0, time_ms=0, columns=header.columns) == header
