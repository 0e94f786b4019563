"""The remote store: a :class:`penstock.Store` that another process, or a server, has open."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakSet

from penstock import forks
from penstock.client._connection import Connection, ConnectionLost
from penstock.client._group import RemoteGroup, as_cuts
from penstock.client._repository_blocks import repository_blocks
from penstock.client._segment import RemoteSegment, RemoteTimes
from penstock.client._snapshot import RemoteSnapshot
from penstock.client._task import Task
from penstock.client._transaction import RemoteTransactionalWriter
from penstock.client._writer import RemoteHost
from penstock.deadlines import DeadlineExceeded, run_locked
from penstock.errors import DataTruncated, PenstockError
from penstock.model import EventPointer, SegmentRange, as_list, as_time, as_watermarks, check_kind, check_whole
from penstock.ports import SystemClock, uninterrupted
from penstock.store import EVENT_SIZE_DEFAULT, Store
from penstock.stream.read import as_reader, event_at, file_at, read_part
from penstock.stream.segment import WakeUp
from penstock.stream.write import ManagedWriter, Pump, StreamWriter, check_writer
from penstock.wire import AskIfHere, AttendGroup, FenceWriter, MissEvents, NoteTime, SegmentChanged, StopReader
from penstock.wire.operations import WATERMARKS_MAX, groups, repositories, sessions, streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from penstock.client._connection import Channel, Finder
    from penstock.client._membership import RemoteMembership
    from penstock.client._objects import PlogObjects
    from penstock.client._segment import SegmentUpdate
    from penstock.model import (
        NextCut,
        SegmentInfo,
        StreamConfig,
        StreamCut,
        StreamInfo,
        StreamPosition,
        TimeWindow,
        Watermark,
    )
    from penstock.ports import Clock
    from penstock.stream.catalog import Key
    from penstock.stream.read import EventInputStream
    from penstock.stream.serializers import Serializer
    from penstock.wire import Notification
    from penstock.wire.operations import Operation

__all__ = ["RemoteStore"]


_REPORT_EVERY_S: Final = 0.5  # the server records positions within 0.4 s of that: together they take less than a second
_logger: Final = logging.getLogger("penstock.client")


class RemoteStore(forks.Handle, Store):
    """A store that another process has open. :class:`penstock.Store` describes the methods."""

    def __init__(self, finder: Finder, *, objects: PlogObjects | None = None, clock: Clock | None = None) -> None:
        forks.guard(self)
        self._finder, self._objects = finder, objects
        self.clock: Final = clock or SystemClock()
        self.connection = Connection(finder, self._notify, self._lose, objects)
        self.pump = Pump()
        self.memberships: dict[int, RemoteMembership] = {}
        self.hosts: dict[str, RemoteHost] = {}
        self._writers: WeakSet[ManagedWriter] = WeakSet()
        self._watched: dict[Key, RemoteSegment] = {}
        self._watched_in: Channel | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._reporter: threading.Thread | None = None
        self._report_wake_up = WakeUp()
        try:
            self.connection.channel  # noqa: B018 - a store that cannot be reached is an error at once
        except BaseException:
            if objects is not None:
                objects.close()
            raise

    def __repr__(self) -> str:
        return f"<penstock.Store {self._finder.address!r}>"

    def _call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        return self.connection.call(call)

    # Streams

    def create_stream(
        self, name: str, segments: int | None = None, config: StreamConfig | None = None, *, exist_ok: bool = False
    ) -> StreamInfo:
        return self._call(streams.CreateStream(name, segments, config, exist_ok))  # type: ignore[no-any-return]

    def streams(self, scope: str | None = None) -> list[StreamInfo]:
        return list(self._call(streams.ListStreams(scope)))

    def stream(self, name: str) -> StreamInfo:
        return self._call(streams.Info(name))  # type: ignore[no-any-return]

    def stream_segments(self, name: str) -> list[SegmentInfo]:
        return list(self._call(streams.ListSegments(name)))

    def update_stream(self, name: str, config: StreamConfig) -> StreamInfo:
        return self._call(streams.Update(name, config))  # type: ignore[no-any-return]

    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        seal = as_list("seal", seal, "segments, ints")
        given: list[Any] = as_list("ranges", ranges, "pairs")
        pairs: list[Any] = [list(pair) if isinstance(pair, Iterable) else pair for pair in given]
        return self._call(streams.Scale(name, seal, pairs))  # type: ignore[no-any-return]

    def seal_stream(self, name: str) -> StreamInfo:
        return self._call(streams.SealStream(name))  # type: ignore[no-any-return]

    def delete_stream(self, name: str) -> None:
        self._call(streams.DeleteStream(name))

    def truncate_stream(self, name: str, cut: StreamPosition) -> StreamInfo:
        return self._call(streams.TruncateStream(name, _sendable("cut", cut)))  # type: ignore[no-any-return]

    def maintain(self) -> None:
        self._call(streams.Maintain())

    # Places and time

    def head(self, name: str) -> StreamCut:
        return self._call(streams.Head(name))  # type: ignore[no-any-return]

    def tail(self, name: str) -> StreamCut:
        return self._call(streams.Tail(name))  # type: ignore[no-any-return]

    def watermarks(
        self, name: str, start: int | StreamCut | None = None, end: int | StreamCut | None = None
    ) -> list[Watermark]:
        return list(self._call(streams.GetWatermarks(name, start, end)))

    def watermark(self, name: str) -> Watermark | None:
        return self._call(streams.LastWatermark(name))  # type: ignore[no-any-return]

    def add_watermarks(self, name: str, watermarks: Sequence[Watermark]) -> None:
        given = as_watermarks(watermarks)
        for first in range(0, len(given), WATERMARKS_MAX):
            part = given[first : first + WATERMARKS_MAX]
            lower, upper, cuts = ([getattr(mark, name) for mark in part] for name in ("lower", "upper", "cut"))
            self._call(streams.AddWatermarks(name, lower, upper, cuts))

    def cut_at_time(
        self,
        name: str,
        time: int | datetime,
        *,
        bound: Literal["lower", "upper"] = "lower",
        by: Literal["watermark", "append"] | None = None,
    ) -> StreamCut:
        return self._call(streams.CutAtTime(name, as_time("time", time), bound, by))  # type: ignore[no-any-return]

    def time_window(self, pointer: EventPointer) -> TimeWindow | None:
        return self._call(streams.GetTimeWindow(pointer))  # type: ignore[no-any-return]

    # Reading

    def fetch_event(self, pointer: EventPointer) -> bytes:
        event = event_at(self._segment_at(pointer), pointer)
        return event if isinstance(event, bytes) else event.read_all()

    def fetch_event_as_stream(self, pointer: EventPointer) -> EventInputStream:
        return file_at(self._segment_at(pointer), pointer)

    def read(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        *,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> pa.RecordBatchReader:
        check_whole("max_event_size", max_event_size, least=1)
        parts = self.segment_ranges(name, start, end)
        return as_reader(chain.from_iterable(map(partial(self.read_range, max_event_size=max_event_size), parts)))

    def read_range(self, part: SegmentRange, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> pa.RecordBatchReader:
        check_kind("part", part, SegmentRange)
        check_whole("max_event_size", max_event_size, least=1)
        segment = self._segment_at(EventPointer(part.stream, part.segment_id, part.start))
        times = RemoteTimes(self.connection, segment)
        return as_reader(read_part(segment, part, times, max_event_size=max_event_size))

    def segment_ranges(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        first, last = _sendable("start", start), _sendable("end", end)
        return list(self._call(streams.SegmentRanges(name, first, last, approx_bytes)))

    def next_cut(
        self,
        name: str,
        start: StreamCut,
        end: StreamCut | None = None,
        *,
        max_bytes: int | None = None,
        max_events: int | None = None,
        align: bool = False,
        skip_truncated: bool = False,
    ) -> NextCut:
        limits = (max_bytes, max_events, align, skip_truncated)
        return self._call(streams.FindNextCut(name, start, end, *limits))  # type: ignore[no-any-return]

    def _segment_at(self, pointer: EventPointer) -> RemoteSegment:
        """Return a segment as it is now."""
        check_kind("pointer", pointer, EventPointer)
        update = self._call(streams.SegmentAt(pointer))
        if update is None:  # it was there a moment ago
            raise DataTruncated(pointer, head="a later position")
        return RemoteSegment(self.connection, (pointer.stream, pointer.segment_id), _as_update(update))

    # Readers

    @uninterrupted
    def add_membership(self, number: int, membership: RemoteMembership) -> None:
        """Note that a reader took a membership."""
        with self._lock:
            self.memberships[number] = membership
            if self._reporter is None:
                self._reporter = threading.Thread(target=self._report, name="penstock-reporter", daemon=True)
                self._reporter.start()

    def _report(self) -> None:
        """Report periodically that readers are alive: one with many events at hand does not call the server."""
        while not self._closed:
            self._report_wake_up.wait(_REPORT_EVERY_S)
            try:
                self.report()
            except PenstockError:
                pass  # reading raises it
            except Exception:  # and the next time may be better
                _logger.exception("the positions of readers could not be reported")

    def report(self) -> None:
        """Report which readers are alive, and where they are, if the server does not know."""
        for membership in list(self.memberships.values()):
            membership.report_if_due()

    def report_group(self, group: str) -> None:
        """Report where the readers of a group in this process are: the next answer of the group depends on it."""
        for membership in list(self.memberships.values()):
            if membership.group == group:
                membership.report()

    # Notifications of the server

    def watched_segment(self, key: Key) -> RemoteSegment:
        """Return a segment whose growth the server notifies, until it is unwatched; ``KeyError`` if it is gone."""
        return run_locked(self._lock, lambda: self._watch(key))

    def _watch(self, key: Key) -> RemoteSegment:
        channel = self.connection.channel
        self._watch_again(channel)
        found = self._watched.get(key)
        if found is None or found.update is None:
            found = self._watched[key] = RemoteSegment(self.connection, key, None)
            found.let_go = partial(self._let_go, found)
            channel.call(streams.Watch(*key))  # its state has arrived when the call returns
            if found.update is None:
                del self._watched[key]
                raise KeyError(key)
        found.claims += 1
        return found

    def watch_again(self, channel: Channel) -> None:
        """On a new channel, watch the segments again that were watched before."""
        run_locked(self._lock, lambda: self._watch_again(channel))

    def _watch_again(self, channel: Channel) -> None:
        if channel is not self._watched_in:
            for key in self._watched:
                channel.call(streams.Watch(*key))
            self._watched_in = channel

    def _let_go(self, segment: RemoteSegment) -> None:
        """Note that a reader does not watch a segment any more."""
        with self._lock:
            segment.claims -= 1
            if segment.claims or self._watched.get(segment.key) is not segment:
                return
            del self._watched[segment.key]
            channel = self._watched_in
            if channel is not None and not channel.is_lost and not self._closed:
                with suppress(ConnectionLost, DeadlineExceeded, PenstockError):  # then its notifications are ignored
                    channel.call(streams.Unwatch(*segment.key))

    def _notify(self, messages: list[Notification]) -> None:
        """Take notifications of the server. This neither waits nor calls the server: calls wait for this."""
        for message in messages:
            if isinstance(message, SegmentChanged):
                segment = self._watched.get((message.stream, message.segment))
                if segment is not None:
                    segment.note_update(message.update, message.blocks)
            elif isinstance(message, AskIfHere):
                self.pump.add(Task(self._say_here))
            elif isinstance(message, FenceWriter | NoteTime):
                host = self.hosts.get(message.token)
                if host is not None:
                    host.notify(message)
            elif isinstance(message, AttendGroup | StopReader | MissEvents):
                membership = self.memberships.get(message.reader)
                if membership is not None:
                    membership.notify(message)

    def _say_here(self) -> None:
        with suppress(PenstockError):  # the next call raises it
            self._call(sessions.Here())

    def _lose(self, channel: Channel) -> None:
        """Wake up all that wait when a channel is lost: they open themselves again on another."""
        for host in list(self.hosts.values()):
            host.lose(channel)
        for membership in list(self.memberships.values()):
            membership.attend()
        self._report_wake_up.notify()  # a reader that is busy with its last event may lose its membership

    # Writers

    def writer(
        self,
        name: str,
        writer_id: str | None = None,
        serializer: Serializer[Any] | None = None,
        *,
        automatically_note_time: bool = False,
    ) -> StreamWriter:
        check_writer(writer_id, serializer, automatically_note_time=automatically_note_time)
        check_kind("name", name, str)
        host = RemoteHost(self, name, writer_id, notes_time=automatically_note_time)
        writer = ManagedWriter(host, name, writer_id, notes_time=automatically_note_time, identity=host.identity)
        host.take(writer)
        self._writers.add(writer)
        for other in list(self.hosts.values()):
            other.fence_if_notified()
        return StreamWriter(writer, serializer)

    def transactional_writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> RemoteTransactionalWriter:
        check_writer(writer_id, serializer)
        return RemoteTransactionalWriter(self, name, writer_id, serializer)

    def repository_blocks(
        self, stream: str, search: str, *, ids: list[bytes], known: list[bytes], ordering: str, complete_inventory: bool
    ) -> Iterator[bytes]:
        """Return what a search of a repository finds, as blocks: the server searches, in one round trip."""
        call = repositories.GetRepositoryStream(stream, search, ids, known, ordering, complete_inventory)  # type: ignore[arg-type]
        return repository_blocks(self.connection, call)

    def snapshot(self) -> RemoteSnapshot:
        """Take a snapshot of all that is acknowledged, for a backup; close it, or use it in ``with``."""
        return RemoteSnapshot(self.connection)

    # Groups and consumers

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: StreamPosition | Sequence[StreamCut] | None = None,
        end: StreamPosition | Sequence[StreamCut] | None = None,
        *,
        exist_ok: bool = False,
    ) -> RemoteGroup:
        names = [streams] if isinstance(streams, str) else as_list("streams", streams, "names of streams")
        places = as_cuts("start", start), as_cuts("end", end)
        self._call(groups.CreateGroup(name, names, *places, exist_ok))
        return RemoteGroup(self, name)

    def reader_group(self, name: str) -> RemoteGroup:
        return RemoteGroup(self, self._call(groups.FindGroup(name)))

    def reader_groups(self) -> list[str]:
        return list(self._call(groups.ListGroups()))

    def register_consumer(
        self, name: str, consumer: str, cut: StreamPosition | None = None, *, lease_s: float | None = None
    ) -> None:
        self._call(streams.RegisterConsumer(name, consumer, _sendable("cut", cut), lease_s))

    def unregister_consumer(self, name: str, consumer: str) -> None:
        self._call(streams.UnregisterConsumer(name, consumer))

    def consumers(self, name: str) -> dict[str, StreamCut]:
        return dict(self._call(streams.ListConsumers(name)))

    def consumer_times(self, name: str) -> dict[str, int | None]:
        return dict(self._call(streams.ListConsumerTimes(name)))

    def close(self) -> None:
        """Flush all writers, close writers and readers, and let go of the storage or the connection."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        tasks: list[Callable[[], object]] = [
            partial(writer.end, for_good=False) for writer in list(self._writers) if writer.is_sound
        ]
        tasks += [membership.end for membership in list(self.memberships.values())]
        trouble = [error for error in map(_done, tasks) if error is not None]
        self._report_wake_up.notify()
        self.pump.close()
        self.connection.close()
        self._finder.close()
        if self._objects is not None:
            self._objects.close()
        if trouble:
            raise trouble[0]


def _as_update(sent: list[Any] | None) -> SegmentUpdate | None:
    return None if sent is None else (sent[0], sent[1], sent[2])


def _done(task: Callable[[], object]) -> PenstockError | None:
    """Do something; return what went wrong, so that the others are done, too."""
    try:
        task()
    except PenstockError as error:
        return error
    return None


def _sendable(argument: str, place: Any) -> Any:  # noqa: ANN401 - the server checks it
    """Return a place as it is sent: a datetime as milliseconds, because its zone may be the local one."""
    return as_time(argument, place) if isinstance(place, datetime) else place
