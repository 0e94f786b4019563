"""Reader groups: readers that share the segments of streams; each segment is held by one reader at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.deadlines import ANSWER_SLACK_S
from penstock.errors import (
    BadArgument,
    CheckpointFailed,
    LogError,
    NoSuchReader,
    NoSuchStream,
    WrongCut,
)
from penstock.forks import guard
from penstock.model import (
    Checkpoint,
    Lag,
    Position,
    StreamCut,
    check_kind,
    check_method,
    check_name,
    check_timeout,
    check_whole,
)
from penstock.ports import uninterrupted
from penstock.store import CHECKPOINT_TIMEOUT_S, EVENT_SIZE_DEFAULT, ReaderGroup
from penstock.stream.catalog import lost_segments
from penstock.stream.format import (
    GroupDeleted,
    GroupReset,
)
from penstock.stream.group._coordinator import let_go
from penstock.stream.read import Reader, ReaderMember, first_with_events
from penstock.stream.segment import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.model import TimeWindow
    from penstock.stream.catalog import GroupState, Key
    from penstock.stream.format import Places
    from penstock.stream.group._groups import GroupPlace, Groups
    from penstock.stream.segment import Segment
    from penstock.stream.serializers import Serializer


__all__ = ["LocalReaderGroup"]


class LocalReaderGroup(ReaderGroup):
    """A group of a store in this process. :class:`penstock.ReaderGroup` describes the methods.

    ``admit`` raises why a caller may not change it.
    """

    def __init__(self, groups: Groups, name: str, admit: Callable[[GroupState], object] = lambda _: None) -> None:
        self._groups: Final = groups
        self._admit: Final = admit
        self._catalog: Final = groups.catalog
        self._name: Final = name
        guard(self)

    @property
    def name(self) -> str:
        return self._name

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(self._catalog.group(self.name).streams)

    @property
    def position(self) -> tuple[StreamCut, ...]:
        with self._catalog.lock:
            return _as_cuts(self._groups.coordinator(self.name).places_now(returned=True))

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        with self._catalog.lock:
            kept = self._catalog.group(self.name).checkpoints
            return {name: Checkpoint(name, self.name, _as_cuts(places)) for name, places in kept.items()}

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Reader:
        check_name("reader", reader_id)
        if serializer is not None:
            check_method("serializer", serializer, "deserialize")
        check_whole("max_event_size", max_event_size, least=1)
        member = self._groups.join(self.name, lambda membership: ReaderMember(membership, reader_id), admit=self._admit)
        return Reader(member, serializer, max_event_size)

    @property
    def finished(self) -> bool:
        with self._catalog.lock:
            return self._groups.coordinator(self.name).finished

    def readers(self) -> list[str]:
        with self._catalog.lock:
            return sorted(self._catalog.group(self.name).readers)

    @uninterrupted
    def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        check_name("reader", reader_id)
        borders = set() if position is None else self._borders(position)
        with self._catalog.lock:
            coordinator = self._groups.admitted(self.name, self._admit)
            held = coordinator.state.readers.get(reader_id)
            if held is None:
                raise NoSuchReader(self.name, reader_id)
            reader = coordinator.readers.get(reader_id)
            places = {} if reader is None else reader.places(returned=False)
            if position is not None:
                places = self._check_position(position, held, borders)
            coordinator.take_offline(reader_id, places, "it was taken offline")
        let_go([] if reader is None else [reader])

    def _borders(self, position: Position) -> set[Key]:
        """Return the segments in which a position lies between two events; they are read, so without the lock."""
        check_kind("position", position, Position)
        self._check_streams(position)
        return self._groups.cuts.borders(position.offsets)

    def _check_position(self, position: Position, held: Mapping[Key, int], borders: set[Key]) -> dict[Key, int]:
        """Return a checked position, in the segments that the reader still holds; truncated ones are not checked."""
        places = {key: place for key, place in position.offsets.items() if key in held}
        for (stream, segment), place in places.items():
            state = self._catalog.stream(stream)
            if segment not in state.segments or place < state.head.get(segment, 0):
                continue
            if (stream, segment) not in borders:
                raise WrongCut(stream, position, reason=f"no event of segment {segment} begins or ends at {place}")
        return places

    def _check_streams(self, position: Position) -> None:
        foreign = [cut for cut in position.cuts if cut.stream not in self.streams]
        if foreign:
            raise WrongCut(", ".join(self.streams), foreign[0], reason=f"group {self.name!r} does not read that stream")

    def checkpoint(self, name: str, timeout: float | None = CHECKPOINT_TIMEOUT_S) -> Checkpoint:
        check_name("checkpoint", name)
        check_timeout("timeout", timeout)
        if timeout is None:
            return self._checkpoint(name, None)
        taken: Future[Checkpoint] = Future()  # by another thread: the disk may take longer than the timeout
        threading.Thread(target=self._take_checkpoint, args=(taken, name, timeout), daemon=True).start()
        try:
            return taken.result(min(max(timeout, 0) + ANSWER_SLACK_S, threading.TIMEOUT_MAX))
        except TimeoutError:
            raise CheckpointFailed(self.name, name, reason="the store did not answer in time") from None
        except BaseException:
            if not taken.done():
                self._groups.drop_checkpoint(self.name, name)
            raise

    def _take_checkpoint(self, taken: Future[Checkpoint], name: str, timeout: float) -> None:
        try:
            taken.set_result(self._checkpoint(name, timeout))
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            taken.set_exception(error)

    def _checkpoint(self, name: str, timeout: float | None) -> Checkpoint:
        wake_up = WakeUp()
        deadline = None if timeout is None else time.monotonic() + timeout
        missing: list[str] = []
        try:
            self._begin_checkpoint(name, wake_up)
            while self._groups.is_under_way(self.name, name):
                if not wake_up.wait(None if deadline is None else deadline - time.monotonic()):
                    break
        finally:
            missing = self._end_checkpoint(name, wake_up)
        self._catalog.make_durable()  # after a failed sync its readers reached it in memory only
        found = self.checkpoints.get(name)
        if found is None:
            reason = f"{', '.join(missing)} did not come to it in time" if missing else "the group was reset"
            raise CheckpointFailed(self.name, name, reason=reason)
        return found

    @uninterrupted
    def _begin_checkpoint(self, name: str, wake_up: WakeUp) -> None:
        with self._catalog.lock:
            coordinator = self._groups.coordinator(self.name)
            if coordinator.waiter is not None:
                raise CheckpointFailed(self.name, name, reason="another one is under way")
            if name in coordinator.state.checkpoints:
                raise CheckpointFailed(self.name, name, reason="there is one of this name")
            silent = coordinator.expire(self._groups.clock.elapsed())
            coordinator.begin_checkpoint(name, wake_up)
        let_go(silent)

    @uninterrupted
    def _end_checkpoint(self, name: str, wake_up: WakeUp) -> list[str]:
        """Stop waiting; return the readers that have not reached the checkpoint, which is dropped then."""
        with self._catalog.lock:
            coordinator = self._groups.at_work.get(self.name)
            if coordinator is None or coordinator.waiter is not wake_up:
                return []
            missing = sorted(coordinator.state.missing)
            coordinator.end_checkpoint(name)
            return missing

    @uninterrupted
    def reset(self, to: GroupPlace | Position) -> None:
        streams = list(self.streams)
        borders = self._borders(to) if isinstance(to, Position) else set()

        def find() -> list[dict[str, StreamCut]]:
            return [{} if isinstance(to, Position) else self._groups.checked_cuts(streams, "to", to)]

        with self._groups.cuts.found(streams, find) as [found]:
            coordinator = self._groups.admitted(self.name, self._admit)
            state = coordinator.state
            if isinstance(to, Position):
                coordinator.losses.skip(None)  # lost segments are in no position
            now = coordinator.places_now(returned=False)
            there = {stream: cut for stream, cut in found.items() if stream in state.streams}  # and not deleted since
            chosen = self._cuts_at(to, now, borders) if isinstance(to, Position) else there
            cuts = {cut.stream: cut for cut in _as_cuts(now)} | chosen
            self._groups.check_order(cuts, state.ends)
            told = [] if isinstance(to, Position) else list(chosen)
            self._catalog.commit(GroupReset(self.name, _offsets(cuts), self._groups.new_epoch(), told))
            ended = coordinator.end_all(coordinator.offline("its group was reset"))
        let_go(ended)

    def _cuts_at(self, position: Position, now: Places, borders: set[Key]) -> dict[str, StreamCut]:
        """Return the cuts at a position in some segments; the other segments stay where they are now."""
        cuts = {}
        for given in position.cuts:
            state = self._catalog.stream(given.stream)
            cut = StreamCut.of(given.stream, state.moved(now[given.stream], given.offsets))
            self._groups.cuts.check_places(state, cut)
            for segment, offset in given.places:
                if (given.stream, segment) not in borders:
                    raise WrongCut(
                        given.stream, given, reason=f"no event of segment {segment} begins or ends at {offset}"
                    )
            cuts[given.stream] = cut
        return cuts

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        with self._catalog.lock:
            coordinator = self._groups.coordinator(self.name)
        return coordinator.time_window(stream)

    def lag(self) -> Lag:
        unread = self._unread()
        oldest = min((time_ms for *_, time_ms in unread), default=None)
        seconds = 0.0 if oldest is None else max(self._groups.clock.now() - oldest / 1000, 0.0)
        return Lag(events=sum(span[0] for span in unread), bytes=sum(span[1] for span in unread), seconds=seconds)

    def _unread(self) -> list[tuple[int, int, int]]:
        """Return the unread events and bytes of each segment, and the append time of the oldest.

        They are read from each segment, so the catalog is held only while the segments are found.
        """
        while True:
            for name in self.streams:
                with suppress(NoSuchStream):
                    self._groups.segments.open_current(name)
            with self._catalog.lock:
                spans = list(self._unread_spans())
                heads = [(state, state.head) for state in map(self._catalog.stream, self.streams)]
            try:
                return [unread for span in spans if (unread := _unread_in(*span)) is not None]
            except (BadArgument, KeyError, LogError):
                if all(self._groups.cuts.is_unchanged(*head) for head in heads):
                    raise

    def _unread_spans(self) -> Iterator[tuple[Segment, int, int, int | None]]:
        """Yield segments with the offsets from which and up to which they are unread, and their events if known."""
        state, places = self._catalog.group(self.name), self._groups.coordinator(self.name).places_now(returned=True)
        streams = [self._catalog.streams[name] for name in state.streams if name in self._catalog.streams]
        for lost in lost_segments(state, streams):
            kept = {number: place for number, place in places[lost.stream].items() if number not in lost.segments}
            places[lost.stream] = kept | lost.free | lost.done
        for stream in streams:
            for segment, place, end in stream.between(places[stream.name], state.ends[stream.name]):
                low = max(place, stream.head.get(segment, 0))
                handle = self._groups.segments.get(stream.name, segment)
                high = handle.tail if end is None else end
                sealed = stream.segments[segment]
                yield handle, low, high, sealed.count if high == sealed.end else None

    @uninterrupted
    def delete(self) -> None:
        with self._catalog.lock:
            coordinator = self._groups.admitted(self.name, self._admit)
            self._catalog.commit(GroupDeleted(self.name))
            del self._groups.at_work[self.name]
            ended = coordinator.end_all(coordinator.offline("its group was deleted"))
        let_go(ended)


def _unread_in(segment: Segment, low: int, high: int, count: int | None) -> tuple[int, int, int] | None:
    """Return the events and bytes from one offset to another, and when the oldest was appended; None without any."""
    first = first_with_events(segment, low, high)
    if first is None:
        return None
    begin = max(low, first.start)
    before_high = segment.count_before(high) if count is None else count
    return before_high - segment.count_before(begin), high - begin, segment.time_at(begin)


def _as_cuts(places: Places) -> tuple[StreamCut, ...]:
    return tuple(StreamCut.of(stream, offsets) for stream, offsets in places.items())


def _offsets(cuts: Mapping[str, StreamCut]) -> Places:
    return {stream: cut.offsets for stream, cut in cuts.items()}
