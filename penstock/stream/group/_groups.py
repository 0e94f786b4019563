"""The reader groups of a store: creating one, and the coordinator of each that is at work.

A thread makes the positions of readers durable, independent of what readers and the store do. A reader that works on
one event for a while does not call its group, and in a store where nothing else happens no other record takes its
position to the disk. So this does not wait for either.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from penstock.errors import BadArgument, GroupExists, WrongCut
from penstock.model import (
    GROUP_PLACES,
    Checkpoint,
    StreamCut,
    as_list,
    check_kind,
    check_name,
    check_stream_name,
    is_time,
    shown,
)
from penstock.ports import uninterrupted
from penstock.stream.format import GroupClaimed, GroupCreated
from penstock.stream.group._coordinator import Coordinator, let_go
from penstock.stream.group._group import LocalReaderGroup
from penstock.stream.group._membership import LocalMembership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from penstock.ports import Clock, Random
    from penstock.stream.catalog import Catalog, GroupState, Key
    from penstock.stream.format import Places
    from penstock.stream.group._coordinator import Claim
    from penstock.stream.read import Member
    from penstock.stream.segment import Cuts, Segments
    from penstock.stream.time import CutFinder, Watermarks

    Time = int | datetime | Literal["head", "tail"]
    GroupPlace = Checkpoint | StreamCut | Iterable[StreamCut] | Time

__all__ = ["POSITIONS_EVERY_S", "Groups", "Positions"]

AnyMember = TypeVar("AnyMember", bound="Member")
_STUCK_S: Final = 60.0  # a run that takes longer hangs, most likely at the disk
POSITIONS_EVERY_S: Final = 0.4
"""With the time that a client takes to report, and a slow sync, a position is durable within a second."""
_logger: Final = logging.getLogger("penstock.stream")


class Positions:
    """Records the positions of all readers of a store; the thread runs only while there are any."""

    def __init__(self, catalog: Catalog, coordinators: Mapping[str, Coordinator], clock: Clock) -> None:
        self._catalog, self._coordinators, self._clock = catalog, coordinators, clock
        self._begun_at: float | None = None  # of the run under way
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Start the thread if it does not run; the caller holds the catalog's lock."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._work, name="penstock-positions", daemon=True)
            self._thread.start()

    @property
    def is_at_work(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def _work(self) -> None:
        while not self._stop.wait(POSITIONS_EVERY_S):
            self._begun_at = self._clock.elapsed()
            try:
                if not self.run_once():
                    return
            except BaseException as error:  # noqa: BLE001 - the next run tries again, also after SystemExit
                _logger.warning(
                    "the positions of readers could not be recorded: %s", str(error) or type(error).__name__
                )
            finally:
                self._begun_at = None

    def trouble(self) -> str | None:
        """Return why positions are not recorded, if there are any."""
        begun_at, thread = self._begun_at, self._thread
        if thread is not None and not thread.is_alive() and not self._stop.is_set() and self._thread is thread:
            return "the thread that records the positions of readers has ended"
        if begun_at is not None and self._clock.elapsed() - begun_at > _STUCK_S:
            return f"the positions of readers could not be recorded for {_STUCK_S:g} s"
        return None

    def run_once(self) -> bool:
        """Make all positions durable; return whether to go on: there are readers, and the disk has not failed."""
        catalog = self._catalog
        with catalog.lock:
            groups = [group for group in self._coordinators.values() if group.readers and not catalog.is_failed]
            for group in groups:
                group.record_all()
            if not catalog.is_failed:
                catalog.make_durable()
            if not groups:
                self._thread = None
            return bool(groups)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._catalog.lock:
            thread = self._thread
        if thread is not None:
            thread.join()


class Groups:
    """The reader groups of a store, with what they need of it. ``at_work`` are the coordinators, by group."""

    def __init__(
        self,
        catalog: Catalog,
        segments: Segments,
        cuts: Cuts,
        finder: CutFinder,
        watermarks: Watermarks,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self.catalog, self.segments, self.cuts, self.clock = catalog, segments, cuts, clock
        self._finder, self._watermarks, self._random = finder, watermarks, random
        self.at_work: Final[dict[str, Coordinator]] = {}
        self.positions: Final = Positions(catalog, self.at_work, clock)

    def reader_lags(self, group: str, stream: str) -> dict[str, dict[int, int]]:
        """Return the segments of a stream that each reader of a group holds, with the bytes that it has not read."""
        with self.catalog.lock:
            state, known = self.catalog.group(group), self.catalog.open_stream(stream).segments
            places = self.coordinator(group).places_now(returned=True)[stream]
            return {
                reader: {
                    segment: self._unread_bytes(state, (stream, segment), places[segment])
                    for name, segment in sorted(held)
                    if name == stream and segment in places and segment in known
                }
                for reader, held in sorted(state.readers.items())
            }

    def _unread_bytes(self, group: GroupState, key: Key, place: int) -> int:
        end, tail = group.end_of(key), self.segments.get(*key).tail
        return max(0, (tail if end is None else min(tail, end)) - place)

    def create(
        self,
        name: str,
        streams: Iterable[str],
        start: GroupPlace | None,
        end: GroupPlace | None,
        *,
        exist_ok: bool,
        owner: str | None = None,
    ) -> LocalReaderGroup:
        """Create a group that reads from a place, or the head, of each stream; up to another one, if there is one.

        ``owner`` is the user of the server that it belongs to.
        """
        check_name("reader group", name)
        check_kind("exist_ok", exist_ok, bool)
        names = _stream_names(streams)

        def find() -> list[dict[str, StreamCut]]:
            starts = {stream: self.cuts.head(stream) for stream in names}
            starts |= {} if start is None else self.checked_cuts(names, "start", start)
            return [starts, {} if end is None else self.checked_cuts(names, "end", end)]

        with self.catalog.lock:
            for stream in names:
                self.catalog.open_stream(stream)
            if self._is_there(name, names, start, end, exist_ok=exist_ok):
                return LocalReaderGroup(self, name)
        with self.cuts.found(names, find) as (starts, ends):
            if not self._is_there(name, names, start, end, exist_ok=exist_ok):
                begin, stop = ({stream: cut.offsets for stream, cut in cuts.items()} for cuts in (starts, ends))
                self.check_order(starts, stop)
                self.catalog.commit(GroupCreated(name, begin, stop, self.new_epoch(), owner))
        return LocalReaderGroup(self, name)

    def _is_there(
        self, name: str, streams: Sequence[str], start: GroupPlace | None, end: GroupPlace | None, *, exist_ok: bool
    ) -> bool:
        """Whether there is a group as it was asked for; one that may not be there, or is another, is an error.

        The caller holds the catalog's lock.
        """
        known = self.catalog.groups.get(name)
        if known is None:
            return False
        differs = _difference(known, streams, start, end) if exist_ok else None
        if differs is not None or not exist_ok:
            raise GroupExists(name, differs=differs)
        return True

    def get(self, name: str, admit: Callable[[GroupState], object] = lambda _: None) -> LocalReaderGroup:
        """Return a reader group; ``admit`` raises why a caller may not change it, and is called before it changes."""
        check_name("reader group", name)
        self.catalog.check_open()
        self.catalog.group(name)
        return LocalReaderGroup(self, name, admit)

    @uninterrupted
    def join(
        self,
        name: str,
        make: Callable[[LocalMembership], AnyMember],
        claim: Claim | None = None,
        *,
        admit: Callable[[GroupState], object],
        joined: Callable[[AnyMember], object] = lambda _: None,
    ) -> AnyMember:
        """Let a new reader join a group, or one that was a member rejoin it; ``admit`` as in :meth:`get`.

        ``joined`` is called with the reader while the catalog's lock is still held.
        """
        with self.catalog.lock:
            coordinator = self.admitted(name, admit)
            silent = coordinator.expire(self.clock.elapsed())
            membership = LocalMembership(coordinator)
            reader = make(membership)
            membership.take(reader, claim)
            joined(reader)
        let_go(silent)
        return reader

    def admitted(self, name: str, admit: Callable[[GroupState], object]) -> Coordinator:
        """Return the coordinator, for a change by a caller that is admitted and holds the catalog's lock."""
        admit(self.catalog.group(name))
        return self.coordinator(name)

    @uninterrupted
    def drop_checkpoint(self, name: str, checkpoint: str) -> None:
        """Drop a checkpoint of a group that is under way; its caller stops waiting."""
        with self.catalog.lock:
            coordinator = self.at_work.get(name)
            if coordinator is not None and coordinator.waiter is not None and self.is_under_way(name, checkpoint):
                waiter = coordinator.waiter
                coordinator.end_checkpoint(checkpoint)
                waiter.notify()

    def is_under_way(self, name: str, checkpoint: str) -> bool:
        """Whether the readers of a group are still on their way to a checkpoint."""
        state = self.catalog.groups.get(name)
        return state is not None and state.checkpoint == checkpoint

    def claim(self, name: str, user: str) -> None:
        """Let a group belong to a user of the server from now on, if it belonged to none."""
        with self.catalog.lock:
            if self.catalog.group(name).owner is None:
                self.catalog.commit(GroupClaimed(name, user))

    def names(self) -> list[str]:
        """Return the names of all reader groups."""
        with self.catalog.lock:
            self.catalog.check_open()
            return sorted(self.catalog.groups)

    def coordinator(self, name: str) -> Coordinator:
        """Return the coordinator of a group; the caller holds the catalog's lock."""
        if name not in self.at_work:
            self.at_work[name] = Coordinator(
                name,
                self.catalog,
                self.segments,
                self._watermarks,
                self.clock,
                wake_positions=self.positions.wake,
            )
        return self.at_work[name]

    def new_epoch(self) -> int:
        """Return a number that no other group, and no other time of a group, has."""
        return int.from_bytes(self._random.token(6), "big")

    def lose_stream(self, name: str) -> None:
        """Tell all readers that a stream was deleted; the caller holds the catalog's lock."""
        for coordinator in self.at_work.values():
            coordinator.losses.lose_stream(name)

    def checked_cuts(self, streams: Sequence[str], argument: str, given: GroupPlace) -> dict[str, StreamCut]:
        """Return cuts by stream; refuse what is none of these streams' cuts."""
        if is_time(given):
            return {stream: self._finder.find(argument, stream, given) for stream in streams}
        cuts = _cut_list(argument, given)
        for cut in cuts:
            if cut.stream not in streams:
                raise WrongCut(", ".join(streams), cut, reason=f"it is a cut of stream {cut.stream!r}")
            self.cuts.check(cut)
        found = {cut.stream: cut for cut in cuts}
        if len(found) != len(cuts):
            raise BadArgument(f"invalid {argument} {shown(given)}: use one cut of each stream")
        return found

    def check_order(self, starts: Mapping[str, StreamCut], ends: Mapping[str, Mapping[int, int]]) -> None:
        """Refuse to begin behind the end."""
        for stream, end in ends.items():
            if end and self.catalog.stream(stream).is_behind(starts[stream].offsets, end):
                reason = f"the group ends before, at {StreamCut.of(stream, end)}"
                raise WrongCut(stream, starts[stream], reason=reason)


def _stream_names(streams: Iterable[str]) -> list[str]:
    names = [streams] if isinstance(streams, str) else as_list("streams", streams, "names of streams")
    for name in names:
        check_stream_name(name)
    if not names or len(set(names)) != len(names):
        raise BadArgument(f"invalid streams {shown(names)}: name at least one stream, and each of them once")
    return names


def _difference(
    group: GroupState, names: Sequence[str], start: GroupPlace | None, end: GroupPlace | None
) -> str | None:
    """Return what a group has other than it was asked for."""
    if sorted(group.streams) != sorted(names):
        return f"other streams than {shown(names)}"  # which ones, only users who may read them are told
    if start is not None and not is_time(start) and not _has_cuts(group.starts, _cut_list("start", start)):
        return f"another start, {_cuts_shown(group.starts)}"
    if end is None and any(group.ends.values()):
        return f"an end, {_cuts_shown(group.ends)}"
    if end is not None and not is_time(end) and not _has_cuts(group.ends, _cut_list("end", end)):
        return f"another end, {_cuts_shown(group.ends)}"
    return None


def _cuts_shown(places: Places) -> str:
    """Return cuts as messages show them."""
    cuts = [str(StreamCut.of(stream, offsets)) for stream, offsets in places.items() if offsets]
    return shown(cuts) if cuts else "none"


def _has_cuts(known: Places, cuts: Iterable[StreamCut]) -> bool:
    return all(known.get(cut.stream) == cut.offsets for cut in cuts)


def _cut_list(argument: str, given: object) -> list[StreamCut]:
    place: Any = given.cuts if isinstance(given, Checkpoint) else given
    cuts = [place] if isinstance(place, StreamCut) else as_list(argument, place, GROUP_PLACES)
    for cut in cuts:
        check_kind(argument, cut, StreamCut)
    return cuts
