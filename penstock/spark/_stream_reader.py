"""The streaming reader of ``format("penstock")``: the offsets of micro-batches, and their parts.

A query is a consumer of its streams: retention by consumption keeps what it has not read yet. A query with a name stays
registered until it is unregistered. A query without a name is forgotten after a week of absence, because its user may
have forgotten it, too. It goes on without being registered if its user may only read.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import BadArgument, NoSuchStream, NotPermitted, PenstockError
from penstock.model import Position
from penstock.ports import SystemClock
from penstock.spark._errors import plain
from penstock.spark._pace import Pace, WatermarkPace
from penstock.spark._places import cuts_of, streams_of
from penstock.spark._reader import Part, TaskReader
from penstock.spark._stores import PATIENCE_S, open_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from penstock import Store
    from penstock.model import NextCut, StreamCut

__all__ = ["ConsumerLease", "PenstockStreamReader", "RefusedStreamReader"]

_LEASE_S: Final = 7 * 24 * 3600.0
_RENEW_S: Final = 3600.0
_WATERMARK_INTERVAL_S: Final = 5.0
_REPORT_AGE_MAX_S: Final = 1.0  # of what an idle query reports; Spark shows it every 10 seconds
_logger: Final = logging.getLogger("penstock.spark")


class ConsumerLease:
    """Registers a query with its streams, and renews the registration before its lease expires."""

    def __init__(self, store: Store, *, is_named: bool) -> None:
        self._store, self._lease_s = store, None if is_named else _LEASE_S
        self._cuts: dict[str, StreamCut] = {}  # as they were registered
        self._renew_at = 0.0
        self._may_register = True

    def begin(self, consumer: str, cuts: Mapping[str, StreamCut]) -> None:
        """Register the query with streams that it starts to read."""
        self.move(consumer, {name: cut for name, cut in cuts.items() if name not in self._cuts})

    def move(self, consumer: str, cuts: Mapping[str, StreamCut]) -> None:
        """Record the position of the query."""
        for name, cut in cuts.items() if self._may_register else ():
            try:
                self._store.register_consumer(name, consumer, cut, lease_s=self._lease_s)
            except NotPermitted as error:
                if self._lease_s is None:
                    raise
                self._may_register = False
                _logger.warning("retention by consumption does not wait for this query: %s", error)
                return
            self._cuts[name] = cut

    def renew(self, consumer: str) -> None:
        """Renew the lease while the query waits for events."""
        if self._lease_s is not None and time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + _RENEW_S
            self.move(consumer, self._cuts)


@dataclass(frozen=True, slots=True)
class _IdlePoll:
    """A poll that found no event behind an offset: where its streams were, and whether a new watermark is held back."""

    start: dict[str, Any]
    steps: dict[str, NextCut]
    is_held: bool


class PenstockStreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams from micro-batch to micro-batch.

    Spark's offset contains the ``cut`` of every stream, their ``uids``, the ``time`` that the writers have promised
    there, and the ``consumer`` name of the query, which is chosen when the query starts for the first time and stays in
    its checkpoint. Spark does not store where a query started, and asks again when it repeats the first batch; so the
    end offset of that batch also has its ``begin``, and so has that of the first batch with a stream that was added
    later. ``event_time`` is the expression that the watermark of the checkpoint refers to, if there is one.
    """

    _in_batches = True
    _ends: dict[str, NextCut] | None = None
    _reached: Mapping[str, StreamCut] | None = None
    _idle: _IdlePoll | None = None
    _report: tuple[float, dict[str, Any]] | None = None  # and when it was made
    _repeats_report = False

    @cached_property
    def _pace(self) -> Pace:
        return Pace(SystemClock())

    @cached_property
    def _watermark_pace(self) -> WatermarkPace:
        given_ms = self._options.watermark_interval_ms
        return WatermarkPace(SystemClock(), _WATERMARK_INTERVAL_S if given_ms is None else given_ms / 1000)

    @cached_property
    def _store(self) -> Store:
        return open_at(self._options.address, patience_s=PATIENCE_S)

    @cached_property
    def _lease(self) -> ConsumerLease:
        return ConsumerLease(self._store, is_named=self._options.consumer is not None)

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query starts."""
        names = streams_of(self._store, self._options)
        cuts = cuts_of(self._store, names, self._options.start, option="start")
        is_lenient = not self._options.fail_on_data_loss
        begins = {name: self._store.next_cut(name, cut, cut, skip_truncated=is_lenient) for name, cut in cuts.items()}
        base = {"consumer": self._options.consumer or f"spark-{uuid.uuid4()}"}
        if self._options.event_time is not None:
            base["event_time"] = self._options.event_time
        found = {name: step.cut for name, step in begins.items()}
        return self._offset(base, found, _least(step.time for step in begins.values()), begin=found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a micro-batch may read; Spark knows one limit, we apply both."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_events_per_trigger is not None:
            return ReadMaxRows(self._options.max_events_per_trigger)
        return ReadAllAvailable()

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than what is there now, in events and in time: idle writers may note time for ever."""
        tails = {name: self._store.tail(name) for name in streams_of(self._store, self._options)}
        self._ends = {name: self._store.next_cut(name, tail, tail) for name, tail in tails.items()}

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends; a query that is idle asks its store one thing per stream."""
        self._pace.begin()
        is_idle = self._is_idle_still(start)
        found = start if is_idle else self._latest(start, is_limited=not isinstance(limit, ReadAllAvailable))
        self._repeats_report = is_idle
        self._lease.renew(start["consumer"])
        self._pace.end(is_idle=found is start)
        return found

    def _is_idle_still(self, start: dict[str, Any]) -> bool:
        """Return whether the last poll found nothing here, and the streams are as they were; an error is no answer."""
        idle = self._idle
        if idle is None or idle.start != start or (idle.is_held and self._watermark_pace.is_due):
            return False
        try:
            names = streams_of(self._store, self._options) if self._options.pattern is not None else idle.steps
            is_same = {*names} == {*idle.steps} and self._steps(_cuts_of(idle.steps), is_limited=False) == idle.steps
        except PenstockError:
            is_same = False
        if not is_same:
            self._idle = None
        return is_same

    def _latest(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        """Return where the next micro-batch ends, or ``start`` itself if there is nothing to read."""
        known, new = self._there(start), self._new_streams(start)
        steps = self._steps(known | new, is_limited=is_limited)
        times = [start.get("time"), _least(self._time_of(name, step) for name, step in steps.items())]
        cuts = self._reached = _cuts_of(steps)
        begin = {name: cut for name, cut in _cuts(start.get("begin", "")).items() if known.get(name) == cut} | new
        found = self._offset(start, cuts, max((time for time in times if time is not None), default=None), begin=begin)
        is_further = found["cut"] != start["cut"]
        is_later = self._options.mark_rows and found.get("time") != start.get("time")
        if is_further:
            self._watermark_pace.note_event()
        if is_further or (is_later and (self._ends is not None or self._watermark_pace.take())):
            return found
        self._idle = _IdlePoll(start, steps, is_held=is_later)
        return start

    def _new_streams(self, start: dict[str, Any]) -> dict[str, StreamCut]:
        """Return the start of streams that are new to the query, each of which is read completely."""
        names = streams_of(self._store, self._options) if self._ends is None else self._ends
        return {name: self._store.head(name) for name in names if name not in start["uids"]}

    def _steps(self, starts: Mapping[str, StreamCut], *, is_limited: bool) -> dict[str, NextCut]:
        """Return the next cut of each stream; the streams with unread events share the limits evenly."""
        shares = 1
        if is_limited and len(starts) > 1:
            shares = sum(self._store.tail(name) != start for name, start in starts.items()) or 1
        size, events = (
            max(limit // shares, 1) if is_limited and limit is not None else None
            for limit in (self._options.max_bytes_per_trigger, self._options.max_events_per_trigger)
        )
        return {
            name: self._store.next_cut(
                name,
                start,
                None if self._ends is None else self._ends[name].cut,
                max_bytes=size,
                max_events=events,
                align=self._options.align,
                skip_truncated=not self._options.fail_on_data_loss,
            )
            for name, start in starts.items()
        }

    def _time_of(self, name: str, step: NextCut) -> int | None:
        """Return the time that the writers of a stream have promised at its next cut."""
        if self._ends is None:
            return step.time
        return _least((step.time, self._ends[name].time))

    def _offset(
        self,
        base: Mapping[str, Any],
        cuts: Mapping[str, StreamCut],
        time: int | None,
        *,
        begin: Mapping[str, StreamCut],
    ) -> dict[str, Any]:
        """Return the next offset of a query; without a time if no row can carry it."""
        known = base.get("uids", {})
        found = {name: base[name] for name in ("consumer", "event_time") if name in base}
        found["uids"] = {name: known.get(name) or self._store.stream(name).uid for name in sorted(cuts)}
        found["cut"] = _text(cuts)
        if begin:
            found["begin"] = _text(begin)
        if time is not None and "mark_time" in self._schema.fieldNames():
            found["time"] = time
        return found

    def _there(self, offset: Mapping[str, Any]) -> dict[str, StreamCut]:
        """Return the cuts of an offset for streams that still exist, by uid."""
        self._check_event_time(offset)
        found = _cuts(offset["cut"])
        self._check_names(found)
        return {
            name: self._still_there(self._store, cut) for name, cut in found.items() if self._is_there(name, offset)
        }

    def _check_names(self, known: Iterable[str]) -> None:
        pattern, names = self._options.pattern, self._options.streams
        for name in known:
            if name not in names and not (pattern is not None and pattern.fullmatch(name)):
                wanted = ", ".join(map(repr, names)) if pattern is None else repr(pattern.pattern)
                raise BadArgument(
                    f"the checkpoint is of stream {name!r}, not of {wanted}: each query needs a checkpoint of its own"
                )

    def _is_there(self, name: str, offset: Mapping[str, Any]) -> bool:
        """Return whether a stream of an offset exists; one that a pattern found may be gone, if data may be lost."""
        try:
            uid = self._store.stream(name).uid
        except NoSuchStream:
            if self._options.pattern is None or self._options.fail_on_data_loss:
                raise
            return False
        if uid != offset["uids"][name]:
            raise BadArgument(
                f"the checkpoint is of another stream {name!r}, which was deleted: start with a new checkpoint"
            )
        return True

    def _check_event_time(self, offset: Mapping[str, Any]) -> None:
        """Refuse a checkpoint whose watermark refers to another expression: all events might be late and be dropped."""
        before, now = offset.get("event_time"), self._options.event_time
        if None not in (before, now) and before != now and self._options.fail_on_data_loss:
            raise BadArgument(
                f"the checkpoint is of a query whose event time is {before}, and not {now}: by its watermark, events "
                "may be late and be dropped. Start with a new checkpoint, or set fail_on_data_loss to false to go on"
            )

    @plain
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the current end of the streams and the lag, which Spark shows in its progress."""
        now = time.monotonic()
        if self._report is None or not self._repeats_report or now - self._report[0] > _REPORT_AGE_MAX_S:
            self._report = now, self._new_report()
        self._repeats_report = False
        return self._report[1]

    def _new_report(self) -> dict[str, Any]:
        tails = {name: self._store.tail(name) for name in streams_of(self._store, self._options)}
        found: dict[str, Any] = {"cut": _text(tails)}
        if self._reached is not None:
            spans = [(name, self._reached.get(name), tail) for name, tail in tails.items()]
            found["lag_bytes"] = sum(part.size for span in spans for part in self._store.segment_ranges(*span))
        return found

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the parts that tasks read."""
        last, time = self._there(end), end.get("time")
        begin = _cuts(start["cut"]) | _cuts(end.get("begin", ""))
        first = {name: self._still_there(self._store, begin[name]) for name in last}
        self._lease.begin(end["consumer"], first)
        parts = self._parts(self._ranges(self._store, first, last), time)
        if not self._options.mark_rows or ("begin" not in end and time == start.get("time")):
            return parts
        first_part = parts[0] if parts else Part(time=time)
        return [Part(ranges=first_part.ranges, time=time, tells_time=True), *parts[1:]]

    @plain
    def commit(self, end: dict[str, Any]) -> None:
        """Record the position of the query for retention by consumption."""
        self._lease.move(end["consumer"], self._there(end))

    def stop(self) -> None:
        """Close the store."""
        if "_store" in self.__dict__:
            self._store.close()


def _cuts(text: str) -> dict[str, StreamCut]:
    return {cut.stream: cut for cut in Position.parse(text).cuts}


def _cuts_of(steps: Mapping[str, NextCut]) -> dict[str, StreamCut]:
    return {name: step.cut for name, step in steps.items()}


def _text(cuts: Mapping[str, StreamCut]) -> str:
    return str(Position(tuple(cuts[name] for name in sorted(cuts))))


def _least(times: Iterable[int | None]) -> int | None:
    """Return the earliest of some times; None if one of them is unknown, or there are none."""
    found = list(times)
    known = [time for time in found if time is not None]
    return min(known) if known and len(known) == len(found) else None


class RefusedStreamReader(DataSourceStreamReader):
    """A reader that raises an error at its first call; Spark would hide an error that is raised earlier."""

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error for a new query."""
        raise self._error

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raise the error for a restarted query."""
        del start, limit
        raise self._error

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error for a query that is restarted within a micro-batch."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fail: a refused query has no parts."""
        raise AssertionError(partition)
