"""Copying one stream: from one watermark of the source to the next, each step in a transaction with a number.

The copy has the segments of the source. Events of a segment go to its counterpart in their order, by their key, or by
its part of the key space where they have none; where segments follow others in the source, those of the copy are scaled
in the same way, once all events of the segments that end are there. So the order of each key is kept, and the events
before any cut of the source are those before some cut of the copy.

A watermark is added at the cut before which the same events lie as in the source, so it promises what it does there.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from penstock.copying._check import check_pieces
from penstock.copying._records import (
    LOG_TAG,
    WRITER_ID,
    Begun,
    Checked,
    CopyLog,
    Piece,
    PiecesCopied,
    Scaled,
    Span,
    log_name,
    records_of,
)
from penstock.copying._state import CopyState
from penstock.copying._step import Step
from penstock.copying._succession import SegmentSuccession, ends_at
from penstock.errors import (
    CopyFailed,
    DataTruncated,
    EventAborted,
    NoSuchStream,
    NoSuchTransaction,
    PenstockError,
)
from penstock.model import Fixed, SegmentRange, StreamCut, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.model import StreamConfig, StreamInfo
    from penstock.store import Store

__all__ = ["CopiedStream", "StreamCopy"]

_ATTEMPTS_MAX: Final = 10  # to begin a copy of a stream whose head moves, or to go on where the owner changes


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedStream:
    """What a copy has added to a stream; ``end`` is up to where the source is copied, ``target_end`` where that is."""

    name: str
    events: int
    size_bytes: int
    watermarks: int
    end: StreamCut
    target_end: StreamCut


class StreamCopy:
    """The copy of one stream, as it is now and up to the tail of the source."""

    def __init__(self, source: Store, target: Store, name: str, on_progress: Callable[[str, int, int], object]) -> None:
        self._source, self._target, self._name, self._on_progress = source, target, name, on_progress
        self._info = source.stream(name)
        if LOG_TAG in self._info.config.tags:
            raise CopyFailed(name, reason="it is the log of a copy into this store")
        if not records_of(target, name) and _find(target, name) is not None:
            raise CopyFailed(
                name, reason="the target has a stream of this name that is not a copy of it: copy to another store"
            )
        self._bytes_done = self._bytes_total = self._events = self._size = self._watermarks = 0

    def run(self) -> CopiedStream:
        """Copy what the copy lacks, and check it.

        Retention may move the head of the source before anything is copied: then the copy begins again at the new head.
        The target may get another owner, which ends open transactions: then the copy goes on as another process would.
        """
        for attempt in count(1):
            try:
                with closing(CopyLog(self._target, self._name)) as self._log:
                    return self._run()
            except (NoSuchTransaction, EventAborted):
                if attempt >= _ATTEMPTS_MAX:
                    raise
            except DataTruncated as error:
                if len(self._log.records) > 1 or attempt >= _ATTEMPTS_MAX:
                    raise self._conflict("events were truncated away before they were copied and checked") from error
                self._discard()
        raise AssertionError("the last attempt returns or raises")

    def _discard(self) -> None:
        """Delete a copy that has no events, and its log."""
        for name in (self._name, log_name(self._name)):
            if _find(self._target, name) is not None:
                self._target.seal_stream(name)
                self._target.delete_stream(name)

    def _run(self) -> CopiedStream:
        self._begin()
        if self._target.stream(self._name).state == "sealed":
            return self._result()
        with self._target.transactional_writer(self._name, WRITER_ID) as self._writer:
            self._resume()
            if self._target.stream(self._name).config != _while_copied(self._info.config):
                self._target.update_stream(self._name, _while_copied(self._info.config))
            self._copy_all()
        self._check()
        return self._result()

    def finish(self) -> None:
        """Let the copy be configured as its source, and seal it if that is sealed."""
        info = self._target.stream(self._name)
        if info.state != "sealed":
            if info.config != self._info.config:
                self._target.update_stream(self._name, self._info.config)
            if self._info.state == "sealed":
                self._target.seal_stream(self._name)

    def _result(self) -> CopiedStream:
        end, target_end = self._info.tail, self._target.tail(self._name)
        return CopiedStream(
            name=self._name,
            events=self._events,
            size_bytes=self._size,
            watermarks=self._watermarks,
            end=end,
            target_end=target_end,
        )

    # The beginning

    def _begin(self) -> None:
        """Note where the copy begins, and create it; or find out whether it is still the one that was begun."""
        if not self._log.records:
            self._log.add(self._first_record())
        begun = self._log.records[0]
        assert isinstance(begun, Begun), "a copy log begins like this"
        if begun.uid != self._info.uid:
            raise self._conflict("the target has a copy of another stream of this name")
        info = _find(self._target, self._name)
        if info is None:
            if len(self._log.records) > 1:
                raise self._conflict("its copy was deleted")
            info = self._target.create_stream(self._name, len(begun.segments), _while_copied(self._info.config))
        if info.state == "sealed":
            if self._info.state != "sealed" or not isinstance(self._log.records[-1], Checked):
                raise self._conflict("its copy was sealed")
            return
        if len(self._log.records) == 1:
            self._begin_segments(info, begun)

    def _first_record(self) -> Begun:
        while True:
            head = self._source.head(self._name).offsets
            spans = [span for span in self._spans() if span.segment in head]
            if len(spans) == len(head):  # or it was truncated meanwhile
                break
        spans.sort(key=lambda span: span.low)
        parts = len(spans)
        is_even = all((span.low, span.high) == (part / parts, (part + 1) / parts) for part, span in enumerate(spans))
        first = 0 if is_even else parts  # others are made by scaling a new stream
        return Begun(self._info.uid, spans, list(range(first, first + parts)), head)

    def _begin_segments(self, info: StreamInfo, begun: Begun) -> None:
        if info.events:
            raise self._conflict("the target has a stream of this name with other events")
        there = sorted(segment.segment_id for segment in info.segments)
        if there != begun.target_segments:
            self._target.scale_stream(self._name, there, [(span.low, span.high) for span in begun.segments])

    def _resume(self) -> None:
        """Do what is on record and was not done, and find out whether the copy is as it was left."""
        records, last = self._log.records[:-1], self._log.records[-1]
        number = len(records)
        if isinstance(last, PiecesCopied) and (self._writer.last_number or 0) < number:
            self._state = CopyState.of(records)
            self._copy_again(last, number)
            self._add_watermarks(last)
        elif isinstance(last, Scaled) and self._target.stream(self._name).epoch == last.target_epoch:
            self._state = CopyState.of(records)
            self._scale(last)
        else:
            self._state = CopyState.of(self._log.records)
            if isinstance(last, PiecesCopied):
                self._add_watermarks(last)
        if {segment.segment_id for segment in self._target.stream(self._name).segments} != {
            self._state.targets[segment] for segment in self._state.open
        }:
            raise self._conflict("its copy was scaled by others")
        if isinstance(last, Checked) and self._has_more(last):
            raise self._conflict("its copy has other events behind those that were copied")

    def _has_more(self, checked: Checked) -> bool:
        try:
            start = StreamCut.of(self._name, checked.target_tail)
            return next(self._target.read(self._name, start), None) is not None
        except DataTruncated:
            return next(self._target.read(self._name), None) is not None

    def _copy_again(self, record: PiecesCopied, number: int) -> None:
        """Copy what a process that ended may have copied, under the same number."""
        step = self._new_step()
        try:
            for piece in record.pieces:
                step.take(self._state.open[piece.segment], piece.start, piece.end, whole=True)
            self._check_same(record, step)
            self._commit(step, number)
        except BaseException:
            _drop(step)
            raise
        self._state.apply(record)

    def _check_same(self, record: PiecesCopied, step: Step) -> None:
        for piece, read in zip(record.pieces, step.pieces, strict=True):
            if (piece.events, piece.digest) != (read.digest.events, read.digest.hexdigest()):
                raise self._conflict("its source has other events than when the copy was begun")

    # Copying

    def _copy_all(self) -> None:
        """Copy up to the tail, from one watermark to the next."""
        last = self._target.watermark(self._name)
        watermarks = self._source.watermarks(self._name, None if last is None else last.lower + 1)
        self._info = self._source.stream(self._name)
        spans = self._spans()
        parts = self._source.segment_ranges(self._name, end=self._info.tail)
        self._ends = {span.segment: self._info.head.offsets.get(span.segment, 0) for span in spans}
        self._ends |= {part.segment_id: part.end for part in parts}
        limits = ends_at(self._info.tail.offsets, spans, self._ends)
        spans = [span for span in spans if span.segment in limits]
        self._coming = SegmentSuccession(
            self._state.open.values(), [span for span in spans if span.segment not in self._state.targets]
        )
        self._check_head(spans)
        self._bytes_done = 0
        self._bytes_total = sum(end - self._state.done.get(segment, 0) for segment, end in limits.items())
        self._step = self._new_step()
        try:
            for watermark in watermarks:
                self._copy_to(spans, watermark.cut.offsets)
                self._step.note(watermark)
                if self._step.is_full:
                    self._flush()
            self._copy_to(spans, self._info.tail.offsets)
            self._flush()
        finally:
            _drop(self._step)

    def _check_head(self, spans: Sequence[Span]) -> None:
        """Find out whether events were truncated that are not copied yet."""
        there, head = {span.segment for span in spans}, self._info.head.offsets
        if not self._state.open.keys() <= there or any(
            offset > self._state.done.get(segment, 0) for segment, offset in head.items()
        ):
            raise DataTruncated(StreamCut.of(self._name, self._state.done), head=self._info.head)

    def _copy_to(self, spans: Sequence[Span], cut: Mapping[int, int]) -> None:
        """Copy what lies before a cut."""
        before = ends_at(cut, spans, self._ends)
        for span in spans:
            if span.segment in before:
                self._begin_segment(span.segment)
                self._copy_segment(span, before[span.segment])

    def _begin_segment(self, segment: int) -> None:
        """Scale the copy where the source was scaled when a segment began, unless that was done."""
        if segment in self._state.targets:
            return
        ended, begun = self._coming.change(segment)
        for old in ended:
            self._begin_segment(old)
            self._copy_segment(self._state.open[old], self._ends[old])
        self._flush()
        info = self._target.stream(self._name)
        first = max(new.segment_id for new in info.segments) + 1
        begun.sort(key=lambda span: span.low)
        record = Scaled(ended, begun, list(range(first, first + len(begun))), info.epoch)
        self._log.add(record)
        self._scale(record)

    def _scale(self, record: Scaled) -> None:
        seal = [self._state.targets[segment] for segment in record.ended]
        info = self._target.scale_stream(self._name, seal, [(span.low, span.high) for span in record.segments])
        if not set(record.target_segments) <= {segment.segment_id for segment in info.segments}:
            raise self._conflict("its copy was scaled by others")
        self._state.apply(record)

    def _copy_segment(self, span: Span, end: int) -> None:
        start = self._step.ends.get(span.segment, self._state.done[span.segment])
        while start < end:
            if self._step.is_full:
                self._flush()
            start = self._step.take(span, start, end)

    def _new_step(self) -> Step:
        return Step(self._source, self._name, self._writer, self._note_bytes)

    def _note_bytes(self, size: int) -> None:
        self._bytes_done += size
        self._on_progress("copying", min(self._bytes_done, self._bytes_total), self._bytes_total)

    def _flush(self) -> None:
        """Make the step part of the copy: on record first, so that it is done again if this process ends now."""
        step = self._step
        if not step.pieces and not step.marks:
            return
        step.prepare()
        tail = self._target.tail(self._name).offsets
        record = PiecesCopied(
            [
                Piece(
                    piece.segment,
                    piece.start,
                    piece.end,
                    self._state.targets[piece.segment],
                    tail[self._state.targets[piece.segment]],
                    piece.digest.events,
                    piece.digest.hexdigest(),
                )
                for piece in step.pieces
            ],
            step.marks,
        )
        self._commit(step, self._log.add(record))
        self._state.apply(record)
        self._add_watermarks(record)
        self._step = self._new_step()

    def _commit(self, step: Step, number: int) -> None:
        transaction = step.prepare()
        if transaction is not None:
            self._writer.commit_all([transaction], number)
        self._events += sum(piece.digest.events for piece in step.pieces)
        self._size += sum(piece.digest.size for piece in step.pieces)

    def _add_watermarks(self, record: PiecesCopied) -> None:
        """Add the watermarks of a step to the copy; those that it has are ignored."""
        if not record.marks:
            return
        tail = self._target.tail(self._name).offsets
        places = [
            self._places(piece, tail[piece.target_segment], [mark.events[index] for mark in record.marks])
            for index, piece in enumerate(record.pieces)
        ]
        self._target.add_watermarks(
            self._name,
            [
                Watermark(
                    mark.lower,
                    mark.upper,
                    StreamCut.of(self._name, tail | {target: found[number] for target, found in places}),
                )
                for number, mark in enumerate(record.marks)
            ],
        )
        self._watermarks += len(record.marks)

    def _places(self, piece: Piece, end: int, counts: Sequence[int]) -> tuple[int, list[int]]:
        """Return the segment of the copy, and the places in it that lie behind so many events of a piece."""
        part = SegmentRange(self._name, piece.target_segment, piece.target_start, end)
        offsets = [batch["offset"].to_numpy() for batch in self._target.read_range(part)]
        places = np.concatenate([*offsets, [end]])
        places[0] = piece.target_start
        return piece.target_segment, places[np.asarray(counts)].tolist()

    # The end

    def _check(self) -> None:
        """Compare what was copied since the last check with the digests of what was read."""
        if self._state.unchecked or not isinstance(self._log.records[-1], Checked):
            check_pieces(self._target, self._name, self._state, self._on_progress)
            checked = Checked(self._target.tail(self._name).offsets)
            self._log.add(checked)
            self._state.apply(checked)

    def _spans(self) -> list[Span]:
        segments = self._source.stream_segments(self._name)
        return [Span(segment.segment_id, segment.low, segment.high) for segment in segments]

    def _conflict(self, reason: str) -> CopyFailed:
        return CopyFailed(
            self._name,
            reason=f"{reason}; copy to another store, or, if the target is not the source itself, "
            "delete the copy and its copy log there to begin again",
        )


def _while_copied(config: StreamConfig) -> StreamConfig:
    """Return the configuration of a copy that is not complete: no scaling, no retention, and no key is dropped."""
    return msgspec.structs.replace(config, scaling=Fixed(), retention=None, keep_keys=True)


def _find(store: Store, name: str) -> StreamInfo | None:
    try:
        return store.stream(name)
    except NoSuchStream:
        return None


def _drop(step: Step) -> None:
    with suppress(PenstockError):  # the error that led here is raised, and a commit of the next process drops it, too
        step.abort()
