"""Changes of streams as a whole: create, configure, scale, seal, truncate, delete.

Every change holds ``catalog.lock``, which is taken before the locks of segments, and after those of writers.
"""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import (
    BadArgument,
    LogError,
    NoSuchStream,
    PenstockError,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
)
from penstock.model import (
    Fixed,
    SegmentInfo,
    StreamConfig,
    as_list,
    check_kind,
    check_name,
    check_segments,
    check_stream_name,
    check_whole,
    shown,
)
from penstock.ports import uninterrupted
from penstock.stream.engine._stream_view import StreamView
from penstock.stream.format import (
    StreamCreated,
    StreamDeleted,
    StreamScaled,
    StreamStopped,
    StreamTruncated,
    StreamUpdated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.model import StreamCut, StreamInfo, StreamPosition
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, StreamState
    from penstock.stream.group import Groups
    from penstock.stream.segment import Cuts, Segments
    from penstock.stream.time import CutFinder, Watermarks
    from penstock.stream.transaction import Transactions

__all__ = ["Streams"]

_logger: Final = logging.getLogger("penstock.stream")


class Streams:
    """The streams of a store. ``wake`` starts maintenance."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        segments: Segments,
        cuts: Cuts,
        finder: CutFinder,
        watermarks: Watermarks,
        transactions: Transactions,
        groups: Groups,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._catalog, self._segments, self._cuts, self._watermarks = catalog, segments, cuts, watermarks
        self._finder = finder
        self._transactions, self._groups, self._clock, self._wake = transactions, groups, clock, wake

    @uninterrupted
    def create(
        self,
        name: str,
        segments: int | None = None,
        config: StreamConfig | None = None,
        *,
        exist_ok: bool = False,
        owner: str | None = None,
    ) -> StreamInfo:
        """Create a stream; with ``exist_ok`` an existing one stays as it is. ``owner`` is a user of the server."""
        check_stream_name(name)
        config = StreamConfig() if config is None else config
        check_kind("config", config, StreamConfig)
        check_kind("exist_ok", exist_ok, bool)
        count = _first_segments(segments, config)
        with self._catalog.lock:
            self._catalog.check_open()
            if name not in self._catalog.streams:
                self._catalog.commit(StreamCreated(name, self._catalog.next_uid, count, config, owner))
            elif not exist_ok:
                raise StreamExists(name)
        self._wake()
        return self.info(name)

    def names(self, scope: str | None = None) -> list[str]:
        """Return the names of all streams, or of those of a scope, sorted."""
        if scope is not None:
            check_name("scope", scope)
        with self._catalog.lock:
            self._catalog.check_open()
            return sorted(name for name in self._catalog.streams if scope is None or name.startswith(f"{scope}/"))

    def infos(self, names: Iterable[str]) -> Iterator[StreamInfo]:
        """Yield what there is to know of streams, but of those that were deleted meanwhile."""
        for name in names:
            try:
                info = self.info(name)
            except NoSuchStream:
                continue
            yield info

    def info(self, name: str) -> StreamInfo:
        """Return the state, size and configuration of a stream."""
        while True:
            self._segments.open_current(name, unless_known=True)
            with self._catalog.lock:
                state = self._catalog.open_stream(name)
                view = StreamView(state, self._segments)
            try:
                return view.info()
            except (BadArgument, KeyError, LogError):
                if self._cuts.is_unchanged(state, view.head):
                    raise

    def segments(self, name: str) -> list[SegmentInfo]:
        """Return all segments of a stream from its head to its tail, by id."""
        with self._catalog.lock:
            segments = list(self._catalog.open_stream(name).segments.values())
        found = [SegmentInfo(segment.segment_id, segment.low, segment.high) for segment in segments]
        return sorted(found, key=attrgetter("segment_id"))

    @uninterrupted
    def update(self, name: str, config: StreamConfig) -> StreamInfo:
        """Replace the configuration of a stream."""
        check_kind("config", config, StreamConfig)
        with self._catalog.lock:
            if self._catalog.open_stream(name).sealed:
                raise StreamSealed(name)
            self._catalog.commit(StreamUpdated(name, config))
            self._segments.configure(self._catalog.open_stream(name))
        self._wake()
        return self.info(name)

    @uninterrupted
    def scale(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        """Replace segments by new ones that cover the same key space: a split, a merge, or both."""
        seal, ranges = as_list("seal", seal, "segments, ints"), _as_ranges(ranges)
        for segment in seal:
            check_whole("seal", segment)
        with self._catalog.lock:
            state = self._catalog.open_stream(name)
            if state.sealed:
                raise StreamSealed(name)
            state.check_scale(seal, ranges)
            now_ms = int(self._clock.now() * 1000)
            self._end_segments(state, seal, lambda ends, counts: StreamScaled(name, ends, ranges, now_ms, counts))
        return self.info(name)

    @uninterrupted
    def seal(self, name: str) -> StreamInfo:
        """Let the stream take no more events; sealing it again does nothing."""
        with self._catalog.lock:
            state = self._catalog.open_stream(name)
            if not state.sealed:
                current = [segment.segment_id for segment in state.current]
                self._end_segments(state, current, lambda ends, counts: StreamStopped(name, ends, counts))
        return self.info(name)

    def _end_segments(self, state: StreamState, segments: Sequence[int], record: Any) -> None:  # noqa: ANN401
        """End segments together with the record of it; if that fails, they take events again."""
        self._transactions.commits.finish(state.name)
        ending = {segment: self._segments.get(state.name, segment) for segment in segments}
        try:
            ends = {segment: handle.end() for segment, handle in ending.items()}
            counts = {segment: handle.count_before(ends[segment]) for segment, handle in ending.items()}
            self._catalog.commit(record(ends, counts))
        except BaseException:
            for handle in ending.values():
                handle.reopen()
            raise
        for handle in ending.values():
            handle.notify()

    @uninterrupted
    def delete(self, name: str) -> None:
        """Delete a sealed stream and all it holds."""
        with self._catalog.lock:
            state = self._catalog.open_stream(name)
            if not state.sealed:
                raise StreamNotSealed(name)
            prepared = [record for record in self._catalog.prepared.values() if record.stream == name]
            self._catalog.commit(StreamDeleted(name))
            self._transactions.drop_prepared(prepared, "its stream was deleted")
            self._segments.drop(state, list(state.segments))
            self._watermarks.lose_stream(state.uid)
            self._groups.lose_stream(name)

    @uninterrupted
    def truncate(self, name: str, cut: StreamPosition) -> StreamInfo:
        """Delete everything before ``cut``, and free the plogs there."""
        counts: dict[int, int] = {}

        def find() -> list[dict[str, StreamCut]]:
            found = self._finder.find("cut", name, cut)
            counts.clear()
            counts.update(
                (segment, self._segments.get(name, segment).count_before(offset)) for segment, offset in found.places
            )
            return [{name: found}]

        with self._cuts.found([name], find) as [found]:
            self._truncate(self._catalog.open_stream(name), found[name].offsets, counts)
        return self.info(name)

    def _truncate(self, state: StreamState, head: Mapping[int, int], counts: Mapping[int, int]) -> None:
        self._transactions.commits.finish(state.name)
        gone = state.before(head)
        for current in state.current if not state.sealed else ():
            segment = self._segments.get(state.name, current.segment_id)
            segment.keep_table(before=head.get(current.segment_id, 0))
        self._catalog.commit(StreamTruncated(state.name, dict(head), dict(counts)))
        self._segments.drop(state, gone)
        for segment_id in head:
            self._segments.get(state.name, segment_id).notify()
        try:
            self._free_space(state)
        except PenstockError as error:  # the truncation itself is durable
            _logger.warning("the space before the head of stream %s is freed later: %s", state.name, error)

    def _free_space(self, state: StreamState) -> None:
        """Free the plogs that lie before the head of a stream."""
        for segment_id, offset in state.head.items():
            self._segments.get(state.name, segment_id).truncate(offset, count=state.head_counts.get(segment_id, 0))
        self._watermarks.truncate(state)


def _first_segments(segments: int | None, config: StreamConfig) -> int:
    """Return how many segments a new stream starts with."""
    scaling = config.scaling
    wanted = scaling.segments if isinstance(scaling, Fixed) else scaling.min_segments
    if segments is None:
        return wanted or 1
    check_segments(segments)
    if isinstance(scaling, Fixed) and wanted not in (None, segments):
        raise BadArgument(f"segments={segments} contradicts {scaling}: pass one of them")
    return segments


def _as_ranges(ranges: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    try:
        return [(float(low), float(high)) for low, high in ranges]
    except (TypeError, ValueError, OverflowError):
        raise BadArgument(f"invalid ranges {shown(ranges)}: use pairs like (0.0, 0.5)") from None
