"""Maintenance: the background work of a store, once every interval of its clock.

One thread finishes commits, aborts expired transactions, writes watermarks, scales and truncates streams, and merges
small plogs. A task that fails is logged and tried again with the next run; the others still run.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import PenstockError
from penstock.model import ByConsumption, BySize, ByTime, Fixed, StreamCut
from penstock.ports import uninterrupted
from penstock.stream.maintenance._retention import by_consumption, by_size, by_time
from penstock.stream.maintenance._scaling import Meter, decide
from penstock.stream.segment import PLOGS_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog, StreamState
    from penstock.stream.segment import Logs, Segment, Segments
    from penstock.stream.time import Watermarks
    from penstock.stream.transaction import Transactions
    from penstock.stream.write import Writers

__all__ = ["MAINTENANCE_INTERVAL_S", "Maintenance"]

MAINTENANCE_INTERVAL_S: Final = 1.0
_STUCK_S: Final = 60.0  # a run that takes longer hangs, most likely at the disk
_logger: Final = logging.getLogger("penstock.stream")


class ChangesStreams(Protocol):
    """The changes that maintenance makes to streams."""

    def scale(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> object:
        """End some segments and go on in new ones that have the same key space."""

    def truncate(self, name: str, cut: StreamCut) -> object:
        """Let the stream begin at ``cut``."""


class ChangesConsumers(Protocol):
    """The changes that maintenance makes to consumers."""

    def unregister(self, stream: str, consumer: str) -> None:
        """Forget a consumer."""


class Maintenance:
    """The maintenance of one store; its thread runs only while there is something to maintain."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        segments: Segments,
        logs: Logs,
        writers: Writers,
        watermarks: Watermarks,
        transactions: Transactions,
        streams: ChangesStreams,
        consumers: ChangesConsumers,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._catalog, self._segments, self._logs, self._writers = catalog, segments, logs, writers
        self._watermarks, self._transactions = watermarks, transactions
        self._streams, self._consumers = streams, consumers
        self._clock, self._interval_s = clock, interval_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        self._meters: dict[int, dict[int, Meter]] = {}  # by stream and segment
        self._begun_at: float | None = None  # of the run under way
        self._is_broken = False  # the last run did not come to its end
        self._failed: dict[str | None, str] = {}  # tasks of this run, by stream; None for those of no stream
        self.failures: dict[str | None, str] = {}  # those of the last run

    def wake(self, *, is_due: bool = False) -> None:
        """Start the thread if there is work for it; with ``is_due`` the first run begins at once."""
        if not self._is_running and self._is_wanted():  # before the lock: the caller may hold the catalog
            self._start(is_due)

    @uninterrupted
    def _start(self, is_due: bool) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                name = "penstock-maintenance"
                thread = threading.Thread(target=self._work, args=(is_due,), name=name, daemon=True)
                thread.start()
                self._thread = thread

    @property
    def _is_running(self) -> bool:
        return self._thread is not None

    def _is_wanted(self) -> bool:
        with self._catalog.lock:
            catalog = self._catalog
            if (
                self._transactions.open
                or self._segments.small_plogs
                or catalog.commits
                or catalog.prepared
                or self._writers.noting_time()
            ):
                return True
            return any(map(self._wants_maintenance, self._catalog.streams.values()))

    def _wants_maintenance(self, state: StreamState) -> bool:
        is_configured = state.config.retention is not None or _is_scaled(state)
        has_leases = any(consumer.expires_ms is not None for consumer in state.consumers.values())
        return is_configured or has_leases or self._watermarks.marks.has_marks(state.uid)

    def _work(self, is_due: bool) -> None:
        if is_due:
            self._attempt("a run", self.run_once)
        while not self._stop.wait(self._interval_s):
            self._attempt("a run", self.run_once)

    def run_once(self) -> None:
        """Do one maintenance run; a second caller waits for the first."""
        with self._running:
            self._begun_at, self._failed = self._clock.elapsed(), {}
            self._is_broken = True
            try:
                self._run()
                self._is_broken = False
            finally:
                self._begun_at, self.failures = None, self._failed

    def trouble(self) -> str | None:
        """Return why maintenance does not run, if it should."""
        begun_at, thread = self._begun_at, self._thread
        if begun_at is None and self._is_broken:
            return f"maintenance fails ({self.failures.get(None, 'see the log')})"
        if thread is not None and not thread.is_alive() and not self._stop.is_set():
            return "the thread of maintenance has ended"
        if begun_at is not None and self._clock.elapsed() - begun_at > _STUCK_S:
            return f"a maintenance run has not ended for {_STUCK_S:g} s"
        return None

    def _run(self) -> None:
        catalog, clock = self._catalog, self._clock
        with catalog.lock:
            transactions, prepared = list(self._transactions.open.values()), list(catalog.prepared)
            unfinished = {record.stream for record in catalog.commits.values()}
            names = [name for name, state in catalog.streams.items() if self._wants_maintenance(state)]
            scaled = {state.uid for state in catalog.streams.values() if _is_scaled(state)}
            self._meters = {uid: meters for uid, meters in self._meters.items() if uid in scaled}
        for name in unfinished:
            self._attempt("commits", partial(self._finish_commits, name), name)
        self._attempt("deleting logs that were given up", self._logs.delete_abandoned)
        for transaction in transactions:
            self._attempt(f"transaction {transaction.id}", partial(transaction.abort_if_expired, clock.elapsed()))
        self._attempt("prepared transactions", partial(self._transactions.expire_prepared, prepared))
        for writer in self._writers.noting_time():
            self._attempt(f"time of writer {writer.writer_id}", partial(writer.note_by_itself, int(clock.now() * 1000)))
        self._write_watermarks(names)
        for name in names:
            self._scale_and_retain(name)
        for name, segment in self._segments.small_plogs.copy():
            self._attempt("merging plogs", partial(self._merge, name, segment), name)

    def _attempt(self, name: str, task: Callable[[], object], stream: str | None = None) -> None:
        """Run a task; note and log its failure, so that the other tasks run, and the next run tries it again.

        In its own thread also ``SystemExit``, which would end the thread, and with it all maintenance.
        """
        try:
            task()
        except PenstockError as error:
            self._failed[stream] = f"{name}: {error}"
            _logger.warning("maintenance was put off, %s: %s", _of_stream(name, stream), error)
        except BaseException as error:
            if not isinstance(error, Exception) and threading.current_thread() is not self._thread:
                raise
            self._failed[stream] = f"{name}: {str(error) or type(error).__name__}"
            _logger.exception("maintenance failed and is tried again, %s", _of_stream(name, stream))

    def _finish_commits(self, name: str) -> None:
        with self._catalog.lock:
            self._transactions.commits.finish(name)

    def _write_watermarks(self, names: Iterable[str]) -> None:
        """Write the next watermarks; all streams submit theirs first, so that they share a sync."""
        watermarks = self._watermarks
        begun: list[tuple[str, Callable[[], None]]] = []

        def begin(state: StreamState) -> None:
            found = watermarks.begin(state)
            if found is not None:
                begun.append((state.name, partial(watermarks.end, found)))

        self._attempt("marks of writers", watermarks.marks.record_some)
        for name in names:
            self._attempt("watermarks", partial(self._do, begin, name), name)
        for name, end in begun:
            self._attempt("watermarks", end, name)

    def _scale_and_retain(self, name: str) -> None:
        for task_name, task in (("scaling", self._scale), ("retention", self._retain)):
            self._attempt(task_name, partial(self._do, task, name), name)

    def _merge(self, name: str, segment_id: int) -> None:
        """Merge small plogs of a segment; the catalog is held only while the merged plog replaces them."""
        catalog = self._catalog
        self._segments.small_plogs.discard(
            (name, segment_id)
        )  # first, so that a commit that comes meanwhile is noted again
        with catalog.lock:
            state = catalog.streams.get(name)
            if state is None or segment_id not in state.segments:
                return
            retention, segment = state.config.retention, self._segments.get(name, segment_id)
        span_ms = max(int(retention.seconds * 1000 / PLOGS_KEPT), 1) if isinstance(retention, ByTime) else None
        try:
            segment.merge_plogs(guard=catalog.lock, span_ms=span_ms)
        except PenstockError:
            self._segments.small_plogs.add((name, segment_id))
            raise

    def _do(self, task: Callable[[StreamState], None], name: str) -> None:
        catalog = self._catalog
        with catalog.lock:
            if name in catalog.streams:
                task(catalog.streams[name])

    def _scale(self, state: StreamState) -> None:
        if not _is_scaled(state):
            return
        now = self._clock.elapsed()
        current = [segment.segment_id for segment in state.current]
        meters = self._meters[state.uid] = {
            segment: self._meters.get(state.uid, {}).get(segment) or Meter() for segment in current
        }
        for segment, meter in meters.items():
            taken = self._segments.get(state.name, segment)
            meter.sample(now, events=taken.events, size=taken.bytes)
        decision = decide(state, meters, now, clock_time=self._clock.now())
        if decision is not None:
            self._streams.scale(state.name, decision.seal, decision.ranges)

    def _retain(self, state: StreamState) -> None:
        for consumer in state.expired_consumers(int(self._clock.now() * 1000)):
            _logger.info("consumer %s of stream %s was silent for its lease, and is forgotten", consumer, state.name)
            self._consumers.unregister(state.name, consumer)
        cut = self._retention_cut(state)
        if cut is None:
            return
        cut = {segment: self._event_border(state, segment, offset) for segment, offset in cut.items()}
        if cut != state.head:
            self._streams.truncate(state.name, StreamCut.of(state.name, cut))

    def _event_border(self, state: StreamState, segment: int, offset: int) -> int:
        """Return the last offset up to ``offset`` where a segment can be cut: not inside a large event."""
        border = self._segments.get(state.name, segment).event_border(offset)
        return max(border, state.head.get(segment, 0))

    def _retention_cut(self, state: StreamState) -> dict[int, int] | None:
        def view(segment: int) -> Segment:
            return self._segments.get(state.name, segment)

        now = self._clock.now()
        now_ms = int(now * 1000)
        match state.config.retention:
            case ByTime(seconds):
                for segment in state.current:
                    view(segment.segment_id).roll(older_than_ms=int((now - seconds / PLOGS_KEPT) * 1000), now_ms=now_ms)
                return by_time(state, view, older_than_ms=int((now - seconds) * 1000), now_ms=now_ms)
            case BySize(size_bytes):
                return by_size(state, view, size_bytes=size_bytes, now_ms=now_ms)
            case ByConsumption():
                groups = [group for group in self._catalog.groups.values() if state.name in group.streams]
                passed = [group.places()[state.name] for group in groups if not group.finished]
                return by_consumption(state, view, [*passed, *state.consumer_cuts().values()])
            case _:
                return None

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()


def _is_scaled(state: StreamState) -> bool:
    return not isinstance(state.config.scaling, Fixed) and not state.sealed


def _of_stream(task: str, stream: str | None) -> str:
    return task if stream is None else f"{task} of stream {stream}"
