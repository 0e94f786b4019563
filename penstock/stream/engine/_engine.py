"""The engine: a store in this process, over one partition of logs.

It puts the other packages together, and gives each call to the one that answers it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock import forks
from penstock.errors import LogError, PenstockError
from penstock.log import PartitionSnapshot
from penstock.model import StreamCut, as_watermarks
from penstock.ports import SystemClock, SystemRandom, uninterrupted
from penstock.store import EVENT_SIZE_DEFAULT, Store
from penstock.stream.catalog import Catalog
from penstock.stream.engine._consumers import Consumers
from penstock.stream.engine._streams import Streams
from penstock.stream.engine._writer_host import LocalWriterHost
from penstock.stream.engine._writer_ids import WriterIds
from penstock.stream.group import Groups
from penstock.stream.maintenance import MAINTENANCE_INTERVAL_S, Maintenance
from penstock.stream.read import StreamReads
from penstock.stream.segment import CATALOG_LOG, Cuts, Logs, Segments
from penstock.stream.time import CutFinder, Watermarks, WriterMarks
from penstock.stream.transaction import Commits, LocalTransactionalWriter, Transactions
from penstock.stream.write import ManagedWriter, StreamWriter, Writers, check_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from datetime import datetime

    import pyarrow as pa

    from penstock.log import MetadataManager
    from penstock.model import (
        EventPointer,
        NextCut,
        SegmentInfo,
        SegmentRange,
        StreamConfig,
        StreamInfo,
        StreamPosition,
        TimeWindow,
        Watermark,
    )
    from penstock.plog import BucketUse, ReplicationUse, SyncTimes
    from penstock.ports import Clock, Random
    from penstock.stream.group import LocalReaderGroup
    from penstock.stream.read import EventInputStream
    from penstock.stream.serializers import Serializer

__all__ = ["Engine"]


class Engine(forks.Handle, Store):
    """A store in this process; get one from :func:`penstock.connect`. :class:`penstock.Store` describes the methods."""

    def __init__(
        self,
        manager: MetadataManager,
        *,
        address: str = "memory:",
        clock: Clock | None = None,
        random: Random | None = None,
        maintenance_interval_s: float = MAINTENANCE_INTERVAL_S,
        maintains: bool = True,
        resources: ExitStack,
    ) -> None:
        forks.guard(self)
        clock, random = clock or SystemClock(), random or SystemRandom()
        self.clock: Final = clock
        self._manager, self._address = manager, address
        self._closed = False
        self._before_close: list[Callable[[], object]] = []
        with resources:  # which are closed if we do not get to the end of this
            catalog = self.catalog = Catalog(manager.log(CATALOG_LOG))
            logs = self._logs = Logs(manager, catalog)
            segments = self.segments = Segments(manager, catalog, logs, clock)
            cuts = self.cuts = Cuts(catalog, segments)
            commits = Commits(catalog, segments, logs, clock)
            commits.recover()
            logs.delete_leftovers()
            segments.find_small_plogs()
            marks = self.marks = WriterMarks(catalog, segments, clock, wake=self._wake)
            self.time: Final = Watermarks(catalog, cuts, logs, marks, clock, interval_s=maintenance_interval_s)
            self.writers: Final = Writers(catalog, marks, wake=self._wake)
            self.writer_ids: Final = WriterIds(catalog, segments, self.writers)
            self.finder: Final = CutFinder(catalog, cuts, self.time)
            self.reads: Final = StreamReads(catalog, segments, cuts, self.finder, self.time)
            self.transactions: Final = Transactions(
                catalog, commits, logs, marks, clock=clock, random=random, wake=self._wake
            )
            self.groups: Final = Groups(catalog, segments, cuts, self.finder, self.time, clock=clock, random=random)
            self.stream_changes: Final = Streams(
                catalog=catalog,
                segments=segments,
                cuts=cuts,
                finder=self.finder,
                watermarks=self.time,
                transactions=self.transactions,
                groups=self.groups,
                clock=clock,
                wake=self._wake,
            )
            self.registered: Final = Consumers(catalog, cuts, self.finder, clock=clock, wake=self._wake)
            self.host: Final = LocalWriterHost(
                catalog=catalog,
                segments=segments,
                marks=marks,
                writers=self.writers,
                transactions=self.transactions,
                clock=clock,
                random=random,
            )
            self.maintenance: Final = Maintenance(
                catalog=catalog,
                segments=segments,
                logs=logs,
                writers=self.writers,
                watermarks=self.time,
                transactions=self.transactions,
                streams=self.stream_changes,
                consumers=self.registered,
                clock=clock,
                interval_s=maintenance_interval_s,
            )
            self._resources = resources.pop_all()
        if maintains:
            self.maintenance.wake(is_due=True)  # what was not done while no process had the store open
        else:
            self.maintenance.close()  # a store that is only looked at stays as it is

    def __repr__(self) -> str:
        return f"<penstock.Store {self._address!r}>"

    def _wake(self) -> None:
        self.maintenance.wake()

    # Streams

    def create_stream(
        self, name: str, segments: int | None = None, config: StreamConfig | None = None, *, exist_ok: bool = False
    ) -> StreamInfo:
        return self.stream_changes.create(name, segments, config, exist_ok=exist_ok)

    def streams(self, scope: str | None = None) -> list[StreamInfo]:
        return list(self.stream_changes.infos(self.stream_changes.names(scope)))

    def selected_streams(self, wanted: Callable[[str], bool], scope: str | None = None) -> Iterator[StreamInfo]:
        """Yield the streams whose names are wanted, one at a time; of others nothing is computed."""
        return self.stream_changes.infos(filter(wanted, self.stream_changes.names(scope)))

    def stream(self, name: str) -> StreamInfo:
        return self.stream_changes.info(name)

    def stream_segments(self, name: str) -> list[SegmentInfo]:
        return self.stream_changes.segments(name)

    def update_stream(self, name: str, config: StreamConfig) -> StreamInfo:
        return self.stream_changes.update(name, config)

    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        return self.stream_changes.scale(name, seal, ranges)

    def seal_stream(self, name: str) -> StreamInfo:
        return self.stream_changes.seal(name)

    def delete_stream(self, name: str) -> None:
        self.stream_changes.delete(name)

    def truncate_stream(self, name: str, cut: StreamPosition) -> StreamInfo:
        return self.stream_changes.truncate(name, cut)

    def register_consumer(
        self, name: str, consumer: str, cut: StreamPosition | None = None, *, lease_s: float | None = None
    ) -> None:
        self.registered.register(name, consumer, cut, lease_s=lease_s)

    def unregister_consumer(self, name: str, consumer: str) -> None:
        self.registered.unregister(name, consumer)

    def consumers(self, name: str) -> dict[str, StreamCut]:
        return self.registered.cuts(name)

    def consumer_times(self, name: str) -> dict[str, int | None]:
        return self.registered.times(name)

    # Places and times

    def head(self, name: str) -> StreamCut:
        return self.cuts.head(name)

    def tail(self, name: str) -> StreamCut:
        return self.cuts.tail(name)

    def cut_at_time(
        self,
        name: str,
        time: int | datetime,
        *,
        bound: Literal["lower", "upper"] = "lower",
        by: Literal["watermark", "append"] | None = None,
    ) -> StreamCut:
        return self.finder.at_time(name, time, bound=bound, by=by)

    def watermarks(
        self, name: str, start: int | StreamCut | None = None, end: int | StreamCut | None = None
    ) -> list[Watermark]:
        cuts = [cut for cut in (start, end) if isinstance(cut, StreamCut)]
        with self.cuts.found([name], lambda: [{name: self.finder.find("cut", name, cut)} for cut in cuts]):
            state = self.catalog.open_stream(name)
        try:
            return self.time.between(state, start, end)
        except LogError:
            self.catalog.open_stream(name)  # which may have been deleted meanwhile
            raise

    def watermark(self, name: str) -> Watermark | None:
        with self.catalog.lock:
            log = self.time.log_of(self.catalog.open_stream(name))
            return None if log is None else log.last

    def add_watermarks(self, name: str, watermarks: Sequence[Watermark]) -> None:
        given = as_watermarks(watermarks)
        self.segments.open_current(name)
        with self.catalog.lock:
            state = self.catalog.open_stream(name)
            for mark in given:
                self.cuts.check_places(state, mark.cut)
            self.time.add(state, given)

    def time_window(self, pointer: EventPointer) -> TimeWindow | None:
        self.cuts.segment_at(pointer)
        with self.catalog.lock:
            return self.time.window_of(self.catalog.open_stream(pointer.stream), pointer.segment_id, pointer.offset)

    # Reading

    def fetch_event(self, pointer: EventPointer) -> bytes:
        return self.reads.fetch(pointer)

    def fetch_event_as_stream(self, pointer: EventPointer) -> EventInputStream:
        return self.reads.fetch_as_stream(pointer)

    def read(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        *,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> pa.RecordBatchReader:
        return self.reads.read(name, start, end, max_event_size=max_event_size)

    def read_range(self, part: SegmentRange, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> pa.RecordBatchReader:
        return self.reads.read_range(part, max_event_size=max_event_size)

    def segment_ranges(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        return self.reads.ranges(name, start, end, approx_bytes)

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
        return self.reads.next_cut(
            name,
            start,
            end,
            max_bytes=max_bytes,
            max_events=max_events,
            align=align,
            skip_truncated=skip_truncated,
        )

    # Writers and reader groups

    def writer(
        self,
        name: str,
        writer_id: str | None = None,
        serializer: Serializer[Any] | None = None,
        *,
        automatically_note_time: bool = False,
    ) -> StreamWriter:
        check_writer(writer_id, serializer, automatically_note_time=automatically_note_time)
        self.catalog.open_stream(name)
        make = partial(ManagedWriter, self.host, name, writer_id, notes_time=automatically_note_time)
        return StreamWriter(self.writers.admit(name, writer_id, make), serializer)

    def transactional_writer(
        self, name: str, writer_id: str | None = None, serializer: Serializer[Any] | None = None
    ) -> LocalTransactionalWriter:
        check_writer(writer_id, serializer)
        return LocalTransactionalWriter(
            self.transactions, name, self.catalog.open_stream(name).uid, writer_id, serializer
        )

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        start: StreamPosition | Sequence[StreamCut] | None = None,
        end: StreamPosition | Sequence[StreamCut] | None = None,
        *,
        exist_ok: bool = False,
    ) -> LocalReaderGroup:
        return self.groups.create(name, streams, start, end, exist_ok=exist_ok)

    def reader_group(self, name: str) -> LocalReaderGroup:
        return self.groups.get(name)

    def reader_groups(self) -> list[str]:
        return self.groups.names()

    # Life

    def maintain(self) -> None:
        self.maintenance.run_once()

    def snapshot(self) -> PartitionSnapshot:
        """Take a snapshot of all that is acknowledged, for a backup; close it, or use it in ``with``."""
        self.catalog.check_open()
        return PartitionSnapshot(self._manager)

    @property
    def manager(self) -> MetadataManager:
        """The logs of the store, for checks of what is in them."""
        return self._manager

    @property
    def syncs(self) -> SyncTimes:
        """How long the syncs of the store's disk took."""
        return self._manager.plogs.syncs

    @property
    def bucket_use(self) -> BucketUse | None:
        """The requests to the store's bucket and what its cache has saved; None for a store that is not in one."""
        return self._manager.plogs.bucket_use

    @property
    def replication_use(self) -> ReplicationUse | None:
        """The plog servers that are away and the plogs to be repaired; None for a store that is not on any."""
        return self._manager.plogs.replication_use

    def check_running(self) -> None:
        """Raise why the store takes no more writes, if it does not."""
        self.catalog.check_open()
        self._manager.plogs.check_running()

    def check_owned(self) -> None:
        """Raise why this process must stop using the store and open it again: another process may own it by now."""
        self._manager.check_owned()
        self._manager.plogs.check_running()

    def fence(self) -> None:
        """Write no more, not even when the store is closed: another process may own it by now."""
        self._manager.fence()

    def trouble(self) -> str | None:
        """Return why the store does not do its background work, if it does not."""
        return self.maintenance.trouble() or self.groups.positions.trouble()

    def stream_troubles(self) -> dict[str, str]:
        """Return what maintenance could not do in its last run, by stream."""
        return {stream: trouble for stream, trouble in self.maintenance.failures.items() if stream is not None}

    def before_close(self, task: Callable[[], object]) -> None:
        """Do something first when the store is closed."""
        self._before_close.append(task)

    def prepare_close(self) -> None:
        """Give up an object store that does not answer for some seconds: the store will be closed soon."""
        self._manager.plogs.prepare_close()

    @uninterrupted
    def close(self) -> None:
        """Flush all writers, close writers and readers, and let go of the storage or the connection."""
        with self.catalog.lock:
            if self._closed:
                return
        self.prepare_close()
        for task in self._before_close:
            task()
        with self.catalog.lock:
            writers, groups = self.writers.all(), list(self.groups.at_work.values())
            transactions = list(self.transactions.open.values())
        self.maintenance.close()
        self.groups.positions.close()
        with self._resources:
            sound = (writer for writer in writers if writer.is_sound)  # others have told
            tasks: list[Callable[[], object]] = [partial(writer.end, for_good=False) for writer in sound]
            tasks += [group.close for group in groups]
            trouble = [error for error in map(_done, tasks) if error is not None]
            for transaction in transactions:
                transaction.abort_if_open("its store was closed")
            with suppress(PenstockError):  # what is left is deleted when the store is opened again
                self._logs.delete_abandoned()
            with suppress(PenstockError):  # time waits for the writers, then
                self.marks.record_all()
            self.host.pump.close()
            with self.catalog.lock:
                with suppress(PenstockError):  # then the next process reads more, and looks
                    self._manager.compact()
                    self.segments.note_ends()
                self._closed = True
                self.catalog.close()
        if trouble:
            raise trouble[0]


def _done(task: Callable[[], object]) -> PenstockError | None:
    """Do something; return what went wrong, so that the others are done, too."""
    try:
        task()
    except PenstockError as error:
        return error
    return None
