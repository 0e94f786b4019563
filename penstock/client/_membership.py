"""A reader's membership in a group of a remote store."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.client._connection import ConnectionLost
from penstock.client._segment import RemoteTimes
from penstock.client._task import Task
from penstock.deadlines import run_locked
from penstock.errors import NoSuchGroup, ReaderOffline, StoreClosed
from penstock.retry import Retry
from penstock.stream.read import READER_LEASE_S, Assignment
from penstock.wire import MissEvents, StopReader, unpack_error
from penstock.wire.operations import groups, readers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.client._connection import Channel
    from penstock.client._segment import RemoteSegment
    from penstock.client._store import RemoteStore
    from penstock.errors import PenstockError
    from penstock.model import TimeWindow
    from penstock.stream.catalog import Key
    from penstock.stream.read import ReaderMember
    from penstock.wire import AttendGroup
    from penstock.wire.operations import Operation

__all__ = ["RemoteMembership"]

_REPORT_EVERY_S: Final = READER_LEASE_S / 6  # also when the reader has not moved


class RemoteMembership:
    """A membership; taken again, under the same name and from where the reader is, when the connection was lost."""

    has_company: Final = True  # as far as is known here; so the reader reports while it waits

    def __init__(self, store: RemoteStore, group: str, reader_id: str) -> None:
        self._store, self._connection = store, store.connection
        self._group, self._reader_id = group, reader_id
        self._token = secrets.token_hex(16)
        self.clock: Final = store.clock
        self._lock = threading.RLock()  # held while the membership is taken
        self._ends: dict[Key, int | None] = {}
        self._held: set[Key] = set()  # as far as is known here
        self._segments: dict[Key, RemoteSegment] = {}
        self._channel: Channel | None = None
        self._number = self._looked = 0  # on this channel, and at the last sync
        self._epoch: int | None = None
        self.streams: tuple[str, ...] = ()
        self._reader: ReaderMember | None = None
        self._reported: dict[Key, int] | None = None
        self._reported_at = time.monotonic()
        self._joined()

    def take(self, reader: ReaderMember) -> None:
        """Note which reader has the membership."""
        self._reader = reader
        self._store.add_membership(self._number, self)

    def _joined(self) -> Channel:
        """Take the membership, unless it is taken; return the channel on which it is."""
        retry = Retry()
        while True:
            channel = self._connection.channel
            try:
                run_locked(self._lock, partial(self._join_group, channel))
            except ConnectionLost as error:
                retry.after(error, self._connection.lost_again_and_again)
            else:
                return channel

    def _join_group(self, channel: Channel) -> None:
        if channel is self._channel:
            return
        try:
            number, streams, self._epoch = channel.call(self._opening())
        except ReaderOffline as error:  # the group was reset meanwhile
            self._stop(error)
            raise
        self._store.memberships.pop(self._number, None)
        self._number, self.streams, self._channel = number, tuple(streams), channel
        if self._reader is not None:
            self._store.memberships[number] = self
            self._store.watch_again(channel)
            self._reader.attend()  # notifications of the meantime are lost

    def _opening(self) -> readers.OpenReader:
        """Return the call that joins; a reader that was a member before claims what it had.

        What it returned last does not count yet.
        """
        if self._reader is None:
            return readers.OpenReader(self._group, self._reader_id, token=self._token)
        places = _as_sent(self._reader.places(returned=False))
        return readers.OpenReader(self._group, self._reader_id, self._epoch, places, self._token)

    def _call(self, make: Callable[[int], Operation]) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation of the membership, which is taken again if need be."""
        return self._call_as(make)[1]

    def _call_as(self, make: Callable[[int], Operation]) -> tuple[int, Any]:
        """Call the operation that ``make`` makes of the membership's number; return also that number."""
        retry = Retry()
        while True:
            channel, number = self._joined(), self._number
            call = make(number)
            try:
                return number, channel.call(call)
            except ConnectionLost as error:
                self._connection.after_lost(call, error, retry)

    def notify(self, message: AttendGroup | StopReader | MissEvents) -> None:
        """Take a notification of the group."""
        if self._reader is None:
            return
        if isinstance(message, StopReader):
            self._stop(unpack_error(message.error))
        elif isinstance(message, MissEvents):
            self._reader.miss(unpack_error(message.error))
        else:
            self._reader.attend()

    def attend(self) -> None:
        """Wake up the reader, because its channel is lost."""
        if self._reader is not None:
            self._reader.attend()

    def _stop(self, error: PenstockError) -> None:
        """Let the reader read no more."""
        reader = self._reader
        assert reader is not None, "only one that was there is stopped"
        self._store.memberships.pop(self._number, None)
        reader.stop(error)
        self._store.pump.add(Task(reader.let_go))  # the reader may never be called again

    def report(self) -> None:
        """Report where the reader is."""
        reader = self._reader
        if reader is not None and reader.error is None:
            places, returned = reader.places(returned=False), reader.places(returned=True)
            self._reported, self._reported_at = places, time.monotonic()
            with suppress(ReaderOffline, StoreClosed):
                self._call(lambda number: readers.Report(number, _as_sent(places), _as_sent(returned)))

    def report_if_due(self) -> None:
        """Report where the reader is if it has moved, and from time to time that it is alive."""
        reader = self._reader
        if reader is None or reader.is_silent(self.clock.elapsed()):
            return
        is_lost = self._channel is None or self._channel.is_lost
        is_due = time.monotonic() - self._reported_at >= _REPORT_EVERY_S
        if is_lost or is_due or reader.places(returned=False) != self._reported:
            self.report()

    @property
    def group(self) -> str:
        """The name of its group."""
        return self._group

    def sync(self, places: Mapping[Key, int], *, told: str | None, passing: bool) -> Assignment | None:
        """Reach a checkpoint that was returned to the reader, or that it passes by; exchange segments."""
        number, found = self._call_as(lambda number: readers.Sync(number, _as_sent(places), told, passing))
        if found is None:
            return None
        is_anew, self._looked = number != self._looked, number
        checkpoint, given = found
        self._held = {(stream, segment) for stream, segment, _, _ in given}
        self._segments = {key: segment for key, segment in self._segments.items() if key in self._held}
        self._ends = {(stream, segment): end for stream, segment, _, end in given}
        found = {(stream, segment): place for stream, segment, place, _ in given}
        passed = {key for key, place in found.items() if place > places.get(key, place)} if is_anew else ()
        return Assignment(checkpoint, found, frozenset(passed))

    def record(self, places: Mapping[Key, int] | None, *, durable: bool = False) -> None:
        """Make durable how far the reader has come, or look for silent readers if it has not moved.

        Otherwise do nothing: where the reader is, is reported periodically.
        """
        if durable or places is None:
            sent = None if places is None else _as_sent(places)
            self._call(lambda number: readers.RecordPlaces(number, sent, durable))

    def finish_segment(self, key: Key, place: int) -> None:
        """Note that a segment is read to its end."""
        self._call(lambda number: readers.FinishSegment(number, *key, place))
        self._held.discard(key)

    def note_loss_reported(self, stream: str, segments: Sequence[int]) -> None:
        """Note that the reader has said that these segments, or the stream, were lost before they were read."""
        self._call(lambda number: readers.NoteTold(number, stream, list(segments)))

    def leave(self, places: Mapping[Key, int]) -> None:
        """Leave the group, from these places."""
        reader = self._reader
        assert reader is not None, "a membership is taken before it is left"
        try:
            with suppress(ReaderOffline):  # it was ended at this very moment
                self._call(lambda number: readers.Leave(number, _as_sent(places)))
        finally:
            self._store.memberships.pop(self._number, None)
            reader.stop(StoreClosed(f"reader {self._reader_id!r}"))

    def end(self) -> None:
        """Leave the group, because the store is closed."""
        reader = self._reader
        if reader is not None and reader.error is None:
            try:
                if self._channel is not None and not self._channel.is_lost:  # or the membership is free already
                    with suppress(ConnectionLost, ReaderOffline):
                        places = _as_sent(reader.places(returned=False))
                        self._channel.call(readers.Leave(self._number, places))
            finally:
                self._store.memberships.pop(self._number, None)
                reader.stop(StoreClosed("the store"))
                reader.let_go()

    def segment(self, key: Key) -> RemoteSegment:
        """Return a segment; ``KeyError`` if it was truncated away."""
        retry = Retry()
        while True:
            try:
                segment = self._segments[key] = self._store.watched_segment(key)
            except ConnectionLost as error:
                retry.after(error, self._connection.lost_again_and_again)
            else:
                return segment

    def bounds_of(self, key: Key) -> tuple[int, int | None] | None:
        """Return where a segment begins now and, if it is sealed, where it ends; None if it is gone."""
        update = self._segments[key].update
        return None if update is None else (update[0], update[2])

    def end_of(self, key: Key) -> int | None:
        """Return where the group ends in a segment, if it does not read on to the segment's own end."""
        return self._ends.get(key)

    def times_of(self, key: Key) -> RemoteTimes:
        """Return the times of a segment's events."""
        return RemoteTimes(self._connection, self._segments[key])

    def time_window(self, stream: str | None) -> TimeWindow | None:
        """Return between which times the group is."""
        self._store.report_group(self._group)
        window: TimeWindow | None = self._connection.call(groups.CurrentTimeWindow(self._group, stream))
        return window

    @property
    def finished(self) -> bool:
        """Whether the group has read everything; never while this reader has a segment: its loss would be an error."""
        reader = self._reader
        if self._held and reader is not None and reader.error is None:
            return False
        try:
            return bool(self._connection.call(readers.IsGroupFinished(self._group)))
        except NoSuchGroup:
            return False  # its readers are stopped with an error


def _as_sent(places: Mapping[Key, int]) -> list[tuple[str, int, int]]:
    return [(*key, place) for key, place in places.items()]
