"""Reader groups: readers that share the segments of some streams, each segment to one of them at a time."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard, TypeVar

from penstock.errors import (
    BadArgument,
    CheckpointFailed,
    GroupExists,
    NoSuchReader,
    WrongCut,
)
from penstock.forks import guard
from penstock.model import (
    Checkpoint,
    Lag,
    Position,
    StreamCut,
    as_list,
    check_kind,
    check_method,
    check_name,
    check_stream_name,
    check_timeout,
    check_whole,
    shown,
)
from penstock.ports import uninterrupted
from penstock.stream.catalog import lost_segments
from penstock.stream.format import (
    GroupCreated,
    GroupDeleted,
    GroupReset,
)
from penstock.stream.group._coordinator import LiveGroup, let_go
from penstock.stream.group._membership import LocalSeat
from penstock.stream.read import EVENT_SIZE_DEFAULT, Reader, first_with_events
from penstock.stream.segment import Bell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.model import TimeWindow
    from penstock.stream.catalog import GroupState, Key, StreamState
    from penstock.stream.engine import StreamStore
    from penstock.stream.format import Places
    from penstock.stream.group._coordinator import Claim
    from penstock.stream.read import Seated
    from penstock.stream.serializers import Serializer

    Cuts = Checkpoint | StreamCut | Iterable[StreamCut]
    Time = int | datetime | Literal["head", "tail"]

__all__ = ["CHECKPOINT_TIMEOUT_S", "LiveGroup", "ReaderGroup", "is_time"]

CHECKPOINT_TIMEOUT_S: Final = 30.0
Sitter = TypeVar("Sitter", bound="Seated")


class ReaderGroup:
    """A reader group; get one from :meth:`StreamStore.create_reader_group` or :meth:`StreamStore.reader_group`."""

    def __init__(self, store: StreamStore, name: str) -> None:
        self._store: Final = store
        self._catalog: Final = store.catalog
        self.name: Final = name
        guard(self)

    @classmethod
    def create(
        cls,
        store: StreamStore,
        name: str,
        streams: Iterable[str],
        start: Cuts | Time | None = None,
        end: Cuts | Time | None = None,
        *,
        exist_ok: bool = False,
    ) -> ReaderGroup:
        """Create a group that reads from a cut, or the head, of each stream; up to another one, if there is one.

        With ``exist_ok``, one that is there stays as it is; ``GroupExists`` if it has other streams, or was created
        with another start or end. A time is not compared.
        """
        check_name("reader group", name)
        check_kind("exist_ok", exist_ok, bool)
        names = _stream_names(streams)
        with store.catalog.lock:
            heads = {stream: store.head(stream) for stream in names}
            if name in store.catalog.groups:
                differs = _difference(store.catalog.groups[name], names, start, end) if exist_ok else None
                if differs is not None or not exist_ok:
                    raise GroupExists(name, differs=differs)
                return cls(store, name)
            starts = heads | ({} if start is None else _checked_cuts(store, names, "start", start))
            ends = {} if end is None else _checked_cuts(store, names, "end", end)
            _check_order(store, starts, {stream: cut.offsets for stream, cut in ends.items()})
            store.catalog.commit(GroupCreated(name, _offsets(starts), _offsets(ends), store.new_epoch()))
        return cls(store, name)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(self._catalog.group(self.name).streams)

    @property
    def position(self) -> tuple[StreamCut, ...]:
        """How far its readers have come: a cut of each stream."""
        with self._catalog.lock:
            return _as_cuts(self._live().places_now(returned=True))

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The last checkpoints, oldest first, by name."""
        with self._catalog.lock:
            kept = self._catalog.group(self.name).checkpoints
            return {name: Checkpoint(name, self.name, _as_cuts(places)) for name, places in kept.items()}

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Reader:
        """Open a reader. One of this name that a process left behind when it ended is replaced."""
        check_name("reader", reader_id)
        if serializer is not None:
            check_method("serializer", serializer, "deserialize")
        check_whole("max_event_size", max_event_size, least=1)
        return self.seat(lambda seat: Reader(seat, reader_id, serializer, max_event_size))

    @uninterrupted
    def seat(self, make: Callable[[LocalSeat], Sitter], claim: Claim | None = None) -> Sitter:
        """Give a new reader a seat in the group, or one that had it its own again."""
        with self._catalog.lock:
            live = self._live()
            silent = live.expire(self._store.clock.elapsed())
            seat = LocalSeat(live)
            reader = make(seat)
            seat.take(reader, claim)
        let_go(silent)
        return reader

    @property
    def finished(self) -> bool:
        """Whether it has read everything, up to its end or that of its streams, which are sealed."""
        with self._catalog.lock:
            return self._live().finished

    def readers(self) -> list[str]:
        """Return the names of its readers."""
        with self._catalog.lock:
            return sorted(self._catalog.group(self.name).readers)

    @uninterrupted
    def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        """End a reader that does not answer: others go on with its segments, from ``position`` if it is given.

        Otherwise they go on from where it was last known to be. It is told at its next call.
        """
        check_name("reader", reader_id)
        with self._catalog.lock:
            held = self._catalog.group(self.name).readers.get(reader_id)
            if held is None:
                raise NoSuchReader(self.name, reader_id)
            live = self._live()
            reader = live.readers.get(reader_id)
            places = {} if reader is None else reader.places(returned=False)
            if position is not None:
                places = self._check_position(position, held)
            live.take_offline(reader_id, places, "it was taken offline")
        let_go([] if reader is None else [reader])

    def _check_position(self, position: Position, held: Mapping[Key, int]) -> dict[Key, int]:
        """Return a position in those segments that the reader still has; what was truncated away is not checked."""
        check_kind("position", position, Position)
        self._check_streams(position)
        places = {key: place for key, place in position.offsets.items() if key in held}
        for (stream, segment), place in places.items():
            state = self._catalog.stream(stream)
            if segment not in state.segments or place < state.head.get(segment, 0):
                continue
            one = self._store.segment(stream, segment)
            if place > one.tail or not one.is_border(place):
                raise WrongCut(stream, position, reason=f"no event of segment {segment} begins or ends at {place}")
        return places

    def _check_streams(self, position: Position) -> None:
        foreign = [cut for cut in position.cuts if cut.stream not in self.streams]
        if foreign:
            raise WrongCut(", ".join(self.streams), foreign[0], reason=f"group {self.name!r} does not read that stream")

    def checkpoint(self, name: str, timeout: float | None = CHECKPOINT_TIMEOUT_S) -> Checkpoint:
        """Have every reader come to a checkpoint; return where they were, once all have.

        Each gets it from ``read_next_event`` in place of an event, and has come to it when it asks for the next.
        ``CheckpointFailed`` if that takes longer than ``timeout`` seconds.
        """
        check_name("checkpoint", name)
        check_timeout("timeout", timeout)
        bell = Bell()
        deadline = None if timeout is None else time.monotonic() + timeout
        missing: list[str] = []
        try:
            self._begin_checkpoint(name, bell)
            while self._is_under_way(name):
                if not bell.wait(None if deadline is None else deadline - time.monotonic()):
                    break
        finally:
            missing = self._end_checkpoint(name, bell)
        self._catalog.make_durable()  # after a failed sync its readers came to it in memory only
        found = self.checkpoints.get(name)
        if found is None:
            reason = f"{', '.join(missing)} did not come to it in time" if missing else "the group was reset"
            raise CheckpointFailed(self.name, name, reason=reason)
        return found

    @uninterrupted
    def _begin_checkpoint(self, name: str, bell: Bell) -> None:
        with self._catalog.lock:
            live = self._live()
            if live.waiter is not None:
                raise CheckpointFailed(self.name, name, reason="another one is under way")
            if name in live.state.checkpoints:
                raise CheckpointFailed(self.name, name, reason="there is one of this name")
            silent = live.expire(self._store.clock.elapsed())
            live.begin_checkpoint(name, bell)
        let_go(silent)

    @uninterrupted
    def _end_checkpoint(self, name: str, bell: Bell) -> list[str]:
        """Wait no more; return which readers have not come to the checkpoint, which is dropped then."""
        with self._catalog.lock:
            live = self._store.live.get(self.name)
            if live is None or live.waiter is not bell:
                return []
            missing = sorted(live.state.missing)
            live.end_checkpoint(name)
            return missing

    @uninterrupted
    def drop_checkpoint(self, name: str) -> None:
        """Let who waits for a checkpoint wait no more."""
        with self._catalog.lock:
            live = self._store.live.get(self.name)
            if live is not None and live.waiter is not None and self._is_under_way(name):
                waiter = live.waiter
                live.end_checkpoint(name)
                waiter.ring()

    def _is_under_way(self, name: str) -> bool:
        state = self._catalog.groups.get(self.name)
        return state is not None and state.checkpoint == name

    @uninterrupted
    def reset(self, to: Cuts | Position | Time | Literal["head"]) -> None:
        """Read on from a checkpoint, cuts, the head, a reader's position, or a time in milliseconds.

        A stream without a cut stays where it is, and so does a segment that is not in the position. All readers are
        ended, and are told so at their next call.
        """
        with self._catalog.lock:
            state, live = self._catalog.group(self.name), self._live()
            if isinstance(to, Position):
                live.leave_lost(None)  # what it has lost is neither in its place nor in the position
            now = live.places_now(returned=False)
            if isinstance(to, str) and to == "head":
                chosen = {stream: self._store.head(stream) for stream in state.streams}
            elif isinstance(to, Position):
                chosen = self._cuts_at(to, now)
            else:
                chosen = _checked_cuts(self._store, state.streams, "to", to)
            cuts = {cut.stream: cut for cut in _as_cuts(now)} | chosen
            _check_order(self._store, cuts, state.ends)
            told = [] if isinstance(to, Position) else list(chosen)
            self._catalog.commit(GroupReset(self.name, _offsets(cuts), self._store.new_epoch(), told))
            ended = live.end_all(live.offline("its group was reset"))
        let_go(ended)

    def _cuts_at(self, position: Position, now: Places) -> dict[str, StreamCut]:
        """Return the cuts at a position in some segments, with the others where they are now."""
        self._check_streams(position)
        cuts = {}
        for given in position.cuts:
            state = self._catalog.stream(given.stream)
            cut = StreamCut.of(given.stream, state.moved(now[given.stream], given.offsets))
            self._store.check_cut(cut)
            cuts[given.stream] = cut
        return cuts

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        """Return between which times the group is in a stream, the only one by default; None if nobody gave time."""
        with self._catalog.lock:
            live = self._live()
        return live.time_window(stream)

    def lag(self) -> Lag:
        """Return how far the group is behind the tail, or its end."""
        with self._catalog.lock:
            unread = list(self._unread())
        oldest = min((time_ms for *_, time_ms in unread), default=None)
        seconds = 0.0 if oldest is None else max(self._store.clock.now() - oldest / 1000, 0.0)
        return Lag(events=sum(one[0] for one in unread), bytes=sum(one[1] for one in unread), seconds=seconds)

    def _unread(self) -> Iterator[tuple[int, int, int]]:
        """Return of each segment how many events and bytes there are to read, and since when."""
        state, places = self._catalog.group(self.name), self._live().places_now(returned=True)
        streams = [self._catalog.streams[name] for name in state.streams if name in self._catalog.streams]
        for lost in lost_segments(state, streams):
            kept = {one: place for one, place in places[lost.stream].items() if one not in lost.segments}
            places[lost.stream] = kept | lost.free | lost.done
        for stream in streams:
            for segment, place, end in stream.between(places[stream.name], state.ends[stream.name]):
                low = max(place, stream.head.get(segment, 0))
                one = self._store.segment(stream.name, segment)
                high = one.tail if end is None else end
                first = first_with_events(one, low, high)
                if first is not None:
                    begin = max(low, first.start)
                    sealed = stream.segments[segment]
                    count = sealed.count if high == sealed.end else one.count_before(high)
                    yield count - one.count_before(begin), high - begin, one.time_at(begin)

    @uninterrupted
    def delete(self) -> None:
        """Delete the group; its readers are ended."""
        with self._catalog.lock:
            live = self._live()
            self._catalog.commit(GroupDeleted(self.name))
            del self._store.live[self.name]
            ended = live.end_all(live.offline("its group was deleted"))
        let_go(ended)

    def _live(self) -> LiveGroup:
        """Return the group in this process; the caller holds the lock."""
        if self.name not in self._store.live:
            self._store.live[self.name] = LiveGroup(self._store, self.name)
        return self._store.live[self.name]


def _as_cuts(places: Places) -> tuple[StreamCut, ...]:
    return tuple(StreamCut.of(stream, offsets) for stream, offsets in places.items())


def _offsets(cuts: Mapping[str, StreamCut]) -> Places:
    return {stream: cut.offsets for stream, cut in cuts.items()}


def _stream_names(streams: Iterable[str]) -> list[str]:
    names = [streams] if isinstance(streams, str) else as_list("streams", streams, "names of streams")
    for name in names:
        check_stream_name(name)
    if not names or len(set(names)) != len(names):
        raise BadArgument(f"streams cannot be {shown(names)}: a reader group reads one or more, each named once")
    return names


def _difference(
    group: GroupState, names: Sequence[str], start: Cuts | Time | None, end: Cuts | Time | None
) -> str | None:
    """Return what a group has other than it was asked for."""
    if sorted(group.streams) != sorted(names):
        return "other streams"
    if start is not None and not is_time(start) and not _has_cuts(group.starts, _cut_list("start", start)):
        return "another start"
    if end is None and any(group.ends.values()):
        return "an end"
    if end is not None and not is_time(end) and not _has_cuts(group.ends, _cut_list("end", end)):
        return "another end"
    return None


def _has_cuts(known: Places, cuts: Iterable[StreamCut]) -> bool:
    return all(known.get(cut.stream) == cut.offsets for cut in cuts)


def is_time(given: object) -> TypeGuard[Time]:
    """Whether a place is given as a time, or as head or tail."""
    return type(given) is int or isinstance(given, datetime) or (isinstance(given, str) and given in {"head", "tail"})


def _cut_list(what: str, given: object) -> list[StreamCut]:
    some: Any = given.cuts if isinstance(given, Checkpoint) else given
    cuts = [some] if isinstance(some, StreamCut) else as_list(what, some, "StreamCuts, or one, a checkpoint, or a time")
    for cut in cuts:
        check_kind(what, cut, StreamCut)
    return cuts


def _checked_cuts(store: StreamStore, streams: Sequence[str], what: str, given: Cuts | Time) -> dict[str, StreamCut]:
    """Return cuts by stream; refuse what is none of these streams' cuts."""
    if is_time(given):
        return {stream: store.as_cut(what, stream, given) for stream in streams}
    cuts = _cut_list(what, given)
    for cut in cuts:
        if cut.stream not in streams:
            raise WrongCut(", ".join(streams), cut, reason=f"it is one of {cut.stream!r}")
        store.check_cut(cut)
    found = {cut.stream: cut for cut in cuts}
    if len(found) != len(cuts):
        raise BadArgument(f"{what} cannot be {shown(given)}: there is more than one cut of the same stream")
    return found


def _check_order(store: StreamStore, starts: Mapping[str, StreamCut], ends: Mapping[str, Mapping[int, int]]) -> None:
    """Refuse to begin behind the end."""
    for stream, end in ends.items():
        if not end:
            continue
        start = starts[stream]
        state: StreamState = store.catalog.stream(stream)
        if state.is_behind(start.offsets, end):
            raise WrongCut(stream, start, reason=f"the group ends before, at {StreamCut.of(stream, end)}")
