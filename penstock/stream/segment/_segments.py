"""The segments of a store that are at work, each opened when it is first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import NoSuchStream
from penstock.log import RUN_MIN
from penstock.stream.segment._logs import segment_log
from penstock.stream.segment._plog_sizes import plog_sizes
from penstock.stream.segment._segment import Segment
from penstock.stream.segment._writer_table import inherit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.log import MetadataManager
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, SegmentState, StreamState
    from penstock.stream.segment._logs import Logs
    from penstock.stream.segment._writer_table import WriterTable

__all__ = ["Segments"]


class Segments:
    """Opens segments and keeps them, by stream uid and segment.

    ``small_plogs`` are streams and segments whose plogs may be worth merging.
    """

    def __init__(self, manager: MetadataManager, catalog: Catalog, logs: Logs, clock: Clock) -> None:
        self._manager, self._catalog, self._logs, self._clock = manager, catalog, logs, clock
        self._open: dict[tuple[int, int], Segment] = {}
        self._lock = threading.Lock()
        self.small_plogs: set[tuple[str, int]] = set()

    def get(self, name: str, segment_id: int) -> Segment:
        """Return a segment of a stream; ``KeyError`` if it was truncated away."""
        with self._catalog.lock:
            return self.of(self._catalog.open_stream(name), segment_id)

    def of(self, state: StreamState, segment_id: int) -> Segment:
        """Return a segment of a stream that may have been deleted meanwhile, even if another has its name now."""
        with self._catalog.lock:  # held until it is there: a segment that is dropped meanwhile is not opened again
            if self._catalog.streams.get(state.name) is not state:
                raise NoSuchStream(state.name)
            return self.opened(state, state.segments[segment_id])

    def opened(self, state: StreamState, segment: SegmentState) -> Segment:
        """Return a segment; the caller may hold the lock of another segment, so this does without the catalog's."""
        with self._lock:
            found = self._open.get((state.uid, segment.segment_id))
            if found is None:
                found = self._open[state.uid, segment.segment_id] = Segment(
                    self._manager,
                    segment_log(state.uid, segment.segment_id),
                    where=f"segment {segment.segment_id} of stream {state.name}",
                    end=segment.end,
                    inherit=lambda: self._inherited(state, segment),
                    clock=self._clock,
                    sizes=plog_sizes(state, self._manager.partition.sizes),
                    keeps_keys=state.config.keep_keys,
                    head=(state.head.get(segment.segment_id, 0), state.head_counts.get(segment.segment_id, 0)),
                )
            return found

    def _inherited(self, state: StreamState, segment: SegmentState) -> WriterTable:
        """Return the table of writers that a segment begins with: those of its predecessors."""
        before = state.predecessors(segment)
        for older in self._without_table(state, before):  # oldest first: none has to go far back for its own
            older.writers()
        handed = [(old, *self.opened(state, old).hand_on()) for old in before]
        table = inherit(((old.low, old.high, found) for old, found, _, _ in handed), low=segment.low, high=segment.high)
        table.blocks_behind = sum(blocks for _, _, blocks, _ in handed)
        table.bytes_behind = sum(size for _, _, _, size in handed)
        return table

    def _without_table(self, state: StreamState, segments: Iterable[SegmentState]) -> list[Segment]:
        """Return those of some segments, and of all before them, whose table of writers is to be inherited first."""
        found: dict[int, Segment] = {}
        todo = list(segments)
        while todo:
            one = todo.pop()
            segment = self.opened(state, one)
            if one.segment_id not in found and not segment.has_table():
                found[one.segment_id] = segment
                todo += state.predecessors(one)
        return [found[segment_id] for segment_id in sorted(found)]

    def drop(self, state: StreamState, segments: Iterable[int]) -> None:
        """Forget segments that are part of the stream no more, and delete their logs."""
        for segment in segments:
            with self._lock:
                dropped = self._open.pop((state.uid, segment), None)
            if dropped is not None:
                dropped.notify()
            self._logs.drop([segment_log(state.uid, segment)])

    def configure(self, state: StreamState) -> None:
        """Let the segments that take events follow the stream's configuration: sizes of plogs, and keys."""
        sizes = plog_sizes(state, self._manager.partition.sizes)
        for one in state.current:
            self.of(state, one.segment_id).configure(sizes, keeps_keys=state.config.keep_keys)

    def find_small_plogs(self) -> None:
        """Note which segments have many plogs: the process that had the store before may not have merged them."""
        for state in self._catalog.streams.values():
            for segment in state.segments:
                if self._manager.plog_count(segment_log(state.uid, segment)) > RUN_MIN:
                    self.small_plogs.add((state.name, segment))

    def at_work(self) -> dict[tuple[int, int], Segment]:
        """Return the segments that were used since the store was opened, by stream uid and segment."""
        with self._lock:
            return dict(self._open)
