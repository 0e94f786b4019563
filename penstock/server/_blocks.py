"""Blocks as they are sent to readers. Readers at the tail of a segment share the blocks, which are read once.

Small blocks that are new go out with the notification that a segment has grown, so that a reader at the tail need not
ask for them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.stream.segment import READ_SIZE
from penstock.wire import BLOCKS, Newest, column_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.stream.segment import Segment

__all__ = ["Blocks", "NewBlocks"]

NewBlocks = list[tuple[int, int, bytes]]
"""Blocks that are sent with a notification: where each begins, from when on it counts, and its bytes."""

_FOLLOWED_MAX: Final = 64  # segments whose newest blocks are kept


class Blocks:
    """The blocks of a store's segments, a message each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followed: OrderedDict[Segment, Newest[pa.RecordBatch]] = OrderedDict()  # least used first
        self._new: OrderedDict[Segment, tuple[int, int, NewBlocks]] = (
            OrderedDict()
        )  # the last answers, least used first

    def between(self, segment: Segment, offset: int, end: int) -> Iterable[pa.RecordBatch]:
        """Return the blocks that hold any byte from ``offset`` to ``end``, as far as they were acknowledged."""
        stop = min(end, segment.tail)
        if not segment.start <= offset < stop:
            return (message for _, _, message in _messages(segment, offset, end))  # empty, or it raises what is wrong
        if stop < segment.tail or stop - offset > READ_SIZE:
            return (message for _, _, message in _messages(segment, offset, stop))
        return self._newest(segment).between(offset, stop, partial(_messages, segment))

    def new(self, segment: Segment, first: int, tail: int) -> NewBlocks:
        """Return the blocks from ``first`` to ``tail``; none if they cannot be read: the reader finds out why."""
        with self._lock:
            begin, end, blocks = self._new.get(segment, (0, 0, []))
            if (begin, end) != (first, tail):
                try:
                    blocks = [(start, commit_ms, bytes(view)) for start, view, commit_ms in segment.views(first, tail)]
                except PenstockError:
                    blocks = []
                self._new[segment] = first, tail, blocks
            self._new.move_to_end(segment)
            if len(self._new) > _FOLLOWED_MAX:
                self._new.popitem(last=False)
            return blocks

    def _newest(self, segment: Segment) -> Newest[pa.RecordBatch]:
        with self._lock:
            found = self._followed.get(segment)
            if found is None:
                found = self._followed[segment] = Newest()
            self._followed.move_to_end(segment)
            if len(self._followed) > _FOLLOWED_MAX:
                self._followed.popitem(last=False)
            return found


def _messages(segment: Segment, offset: int, end: int) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    for start, view, commit_ms in segment.views(offset, end):
        place, time = pa.array([start], pa.int64()), pa.array([commit_ms], pa.int64())
        message = pa.record_batch([place, column_of(view), time], BLOCKS)
        yield start, start + len(view), message
