"""Aggregation without Spark: the events of several streams are copied into one, in which they get new ids.

A batch is planned first: from where to where each stream is copied. The plan is made durable, then its events are
committed as one transaction under the number of the batch, which a stream takes once. A job that is killed finds the
plan, and whether its number was committed. So every event is copied once.
"""

from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument
from penstock.events._job_folder import JobFolder, copy_batches
from penstock.model import EventPointer, StreamCut

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from penstock.events._job_folder import Copied
    from penstock.store import OpenTransaction, Store, TransactionalWriter

__all__ = ["aggregate"]

_BATCH_SIZE: Final = 16 << 20  # of each stream
_LEASE_S: Final = 3600.0
_COPY_SIZE: Final = 1 << 20
_POLL_S: Final = 0.2


class _Plan(msgspec.Struct, frozen=True):
    """A batch, and the cuts of the streams before and behind it."""

    batch: int
    start: dict[str, str]
    end: dict[str, str]


def aggregate(
    store: Store,
    streams: Sequence[str],
    into: str,
    *,
    checkpoint: str | os.PathLike[str],
    follow: bool = False,
    watch: Callable[[Copied], object] = lambda _: None,
) -> Copied:
    """Copy the events of several streams, with keys and headers, into one; an event without a key gets its stream's.

    ``checkpoint`` is a folder for the progress of the job: run again, it goes on where it was. It is a registered
    consumer of the streams. With ``follow`` it runs until it is interrupted.
    """
    if not streams or into in streams or len(set(streams)) < len(streams):
        raise BadArgument("name the streams to merge, each once, and another to merge them into")
    with JobFolder.held(Path(checkpoint), "aggregate-local", store, [*streams, into]) as job:
        for stream in streams:
            if job.consumer not in store.consumers(stream):
                store.register_consumer(stream, job.consumer)
        with store.transactional_writer(into, job.consumer) as writer:
            run = _Aggregation(store, streams, writer, job)
            return copy_batches(run.copy_batch, follow=follow, poll_s=_POLL_S, watch=watch)


class _Aggregation:
    """A run of the job."""

    def __init__(self, store: Store, streams: Sequence[str], writer: TransactionalWriter, job: JobFolder) -> None:
        self._store, self._streams, self._writer, self._job = store, streams, writer, job
        self._plan = job.load(_Plan)

    def copy_batch(self) -> int | None:
        """Copy the next events, or those of a batch that was begun; return how many, None if there were none."""
        plan = self._plan
        if plan is None or plan.batch <= (self._writer.last_number or 0):
            self._register(plan)
            plan = self._next(plan)
        if plan.start == plan.end:
            return None
        with self._writer.begin(_LEASE_S) as transaction:
            rows = sum(self._copy(transaction, stream, plan) for stream in self._streams)
            transaction.prepare()
        self._writer.commit_all([transaction.id], number=plan.batch)
        self._register(plan)
        return rows

    def _next(self, before: _Plan | None) -> _Plan:
        """Plan the next batch, and make the plan durable if it has events."""
        if before is None:
            start = {stream: self._store.head(stream) for stream in self._streams}
        else:
            start = {stream: StreamCut.parse(before.end[stream]) for stream in self._streams}
        end = {stream: self._store.next_cut(stream, cut, max_bytes=_BATCH_SIZE).cut for stream, cut in start.items()}
        plan = _Plan(0 if before is None else before.batch, _texts(start), _texts(end))
        if start != end:
            plan = msgspec.structs.replace(plan, batch=plan.batch + 1)
            self._job.store(plan)
            self._plan = plan
        return plan

    def _register(self, plan: _Plan | None) -> None:
        """Let retention by consumption go on behind a batch that was committed."""
        for stream, cut in ({} if plan is None else plan.end).items():
            self._store.register_consumer(stream, self._job.consumer, StreamCut.parse(cut))

    def _copy(self, transaction: OpenTransaction, stream: str, plan: _Plan) -> int:
        rows = 0
        for batch in self._store.read(stream, StreamCut.parse(plan.start[stream]), StreamCut.parse(plan.end[stream])):
            self._copy_events(transaction, stream, batch)
            rows += len(batch)
        return rows

    def _copy_events(self, transaction: OpenTransaction, stream: str, batch: pa.RecordBatch) -> None:
        """Copy events in their order: runs of small ones together, each large one as a file."""
        default = stream.encode()
        keys = [default if key is None else key for key in batch["key"].to_pylist()]
        headers = batch["headers"].to_pylist()
        for is_large, run in groupby(enumerate(batch["event"].is_null().to_pylist()), lambda row: row[1]):
            rows = [row for row, _ in run]
            first, behind = rows[0], rows[-1] + 1
            if not is_large:
                events = batch["event"].slice(first, behind - first)
                transaction.write_batch(events, keys[first:behind], headers[first:behind])
                continue
            for row in rows:
                pointer = EventPointer(stream, batch["segment_id"][row].as_py(), batch["offset"][row].as_py())
                with (
                    self._store.fetch_event_as_stream(pointer) as event,
                    transaction.begin_write_event(keys[row], headers=headers[row]) as copy,
                ):
                    shutil.copyfileobj(event, copy, _COPY_SIZE)


def _texts(cuts: dict[str, StreamCut]) -> dict[str, str]:
    return {stream: str(cut) for stream, cut in cuts.items()}
