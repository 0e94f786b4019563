"""The metadata manager: creates, finds, splices, merges and deletes the logs of one partition.

It runs the protocols against real plogs and a real oracle, one at a time. Work that no caller has to wait for is done
in the background: pre-allocating plogs, and deleting those that no log needs.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from penstock import forks
from penstock.errors import BadArgument, LogFenced, NoSuchLog, PenstockError, StoreClosed
from penstock.log._actions import LOST, Delete, Host, ProtocolRun, ReadAll
from penstock.log._appends import FENCED
from penstock.log._chain import PlogSizes
from penstock.log._partition import append_records, compact, open_partition, seal, settle
from penstock.log._protocols import LogTail, Splicing, create_log, create_logs, replace_plogs, splice_logs
from penstock.log._records import Drop, decode_records
from penstock.log._stream import LogStream
from penstock.model import check_name
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from penstock.cpo import Cpo
    from penstock.log._actions import Steps
    from penstock.log._records import Record
    from penstock.model import PlogId
    from penstock.plog import PendingAppend, Plogs
    from penstock.ports import Bytes

__all__ = ["MetadataManager"]

T = TypeVar("T")
_logger: Final = logging.getLogger("penstock.log")
LOGS_TOGETHER_MAX: Final = 256  # that are created with one append of records
_DRAFT: Final = "~merge"  # the log in which plogs are merged; not a valid name for a user's log


class MetadataManager(forks.Handle):
    """The logs of one partition. Created by :meth:`open`; the caller closes the plogs and the oracle."""

    def __init__(self, plogs: Plogs, cpo: Cpo, partition: str, sizes: PlogSizes) -> None:
        forks.guard(self)
        self.plogs: Final = plogs
        self.cpo: Final = cpo
        self.lock: Final = threading.RLock()  # held while a protocol runs: one at a time
        self.chains: Final = threading.Lock()  # held while the chains of the logs are read or changed, never for long
        self._host = Host(plogs, cpo, partition)
        self._streams: dict[str, LogStream] = {}
        self._background: ThreadPoolExecutor | None = None
        self._spawning = threading.Lock()  # guards it; an append that spawns a task waits for no protocol
        self._closing = self._fenced = False
        self.is_closed = False
        self._merging = threading.Lock()  # held while plogs are merged: one log at a time
        self._held: list[frozenset[PlogId]] = []  # plogs of open snapshots, which are not deleted
        self.partition: Final = self.run(open_partition(partition, sizes))
        self._drop_draft()  # of a merge that a crash ended
        self.sweep()
        plogs.set_known(self.known_among)

    @classmethod
    def open(cls, plogs: Plogs, cpo: Cpo, partition: str, *, sizes: PlogSizes | None = None) -> Self:
        """Recover the partition from its metadata log; create it if the oracle does not know it."""
        return cls(plogs, cpo, partition, sizes or PlogSizes())

    def log(self, name: str, *, sizes: PlogSizes | None = None) -> LogStream:
        """Return the log of this name, created at first use; ``sizes``, if given, apply to its plogs from now on."""
        check_name("log", name)
        with self.lock:
            self.check_open()
            if sizes is not None:
                self.partition.own_sizes[name] = sizes
            if name not in self.partition.metadata.logs:
                self.run(create_log(self.partition, name))
                self._streams.pop(name, None)
            if name not in self._streams:
                self._streams[name] = LogStream(self, name)
            return self._streams[name]

    @uninterrupted
    def create_logs(self, sizes: Mapping[str, PlogSizes | None]) -> None:
        """Create those of several logs that are not there, with few syncs for all of them; see :meth:`log`."""
        with self.lock:
            self.check_open()
            missing = [name for name in sizes if name not in self.partition.metadata.logs]
            if self.plogs.is_replicated or len(missing) < 2:
                return  # each is created when it is opened, and moves to another group if one does not answer
            for name in missing:
                check_name("log", name)
                self.partition.own_sizes[name] = sizes[name] or self.partition.sizes
            for start in range(0, len(missing), LOGS_TOGETHER_MAX):
                names = missing[start : start + LOGS_TOGETHER_MAX]
                self.run(create_logs(self.partition, names))
                for name in names:
                    self._streams[name] = LogStream(self, name)
                    chain = self.partition.metadata.logs[name]
                    self._streams[name].move_to(LogTail(chain.active, self.partition.sizes_of(name).first, 0, 0, None))

    def has_log(self, name: str) -> bool:
        """Return whether there is a log of this name."""
        with self.chains:
            return name in self.partition.metadata.logs

    def plog_count(self, name: str) -> int:
        """Return the number of plogs of a log; 0 if there is no log of this name."""
        with self.chains:
            chain = self.partition.metadata.logs.get(name)
            return 0 if chain is None else len(chain.numbers)

    def logs(self) -> list[str]:
        """Return the names of all logs."""
        with self.lock:
            return sorted(self.partition.metadata.logs.keys() - {_DRAFT})

    def delete_log(self, name: str) -> None:
        """Delete a log and, in the background, its plogs."""
        with self.lock:
            if name not in self.partition.metadata.logs:
                raise NoSuchLog(name, partition=self.partition.name)
            self.record(Drop(name))
            self.partition.own_sizes.pop(name, None)
            stream = self._streams.pop(name, None)
            if stream is not None:
                stream.mark_deleted()
        self.sweep()

    @uninterrupted
    def splice(
        self, plan: Mapping[LogStream, Sequence[LogStream]], labels: Mapping[LogStream, bytes] | None = None
    ) -> None:
        """Append all bytes of the source logs to their target log, for all targets of the plan in one step.

        The plan maps each target to its sources, which are deleted. The cost does not depend on the number of bytes.
        The labels of sources stay with their bytes: see :meth:`LogStream.labelled_blocks`.
        """
        targets, sources = list(plan), [source for group in plan.values() for source in group]
        logs = sorted({*targets, *sources}, key=lambda log: log.name)
        if len(logs) != len(targets) + len(sources) or not all(log.is_of(self) for log in logs):
            names = ", ".join(repr(log.name) for log in [*targets, *sources])
            raise BadArgument(f"cannot splice {names}: use different logs of this partition")
        with ExitStack() as held:
            for log in logs:
                held.enter_context(log.lock)
            tails = {log: log.quiet_tail() for log in logs}
            try:
                self._splice(plan, tails, labels or {}, held)
            except PenstockError as error:
                for log, tail in tails.items():
                    log.fail(tail)
                if isinstance(error, FENCED):
                    raise LogFenced(f"log {targets[0].name!r}") from error
                raise
        self.sweep()
        for log in targets:
            self.spawn(log.prepare_next)

    def _splice(
        self,
        plan: Mapping[LogStream, Sequence[LogStream]],
        tails: Mapping[LogStream, LogTail],
        labels: Mapping[LogStream, bytes],
        held: ExitStack,
    ) -> None:
        splicings = [
            Splicing(log.name, tails[log], [(source.name, tails[source], labels.get(source, b"")) for source in group])
            for log, group in plan.items()
        ]
        for log in sorted(plan, key=lambda log: log.name):
            held.enter_context(log.next_lock)
        with self.lock:
            for log, tail in zip(plan, self.run(splice_logs(self.partition, splicings)), strict=True):
                log.move_to(tail)
            for source in (source for group in plan.values() for source in group):
                self._streams.pop(source.name, None)
                self.partition.own_sizes.pop(source.name, None)
                source.mark_deleted()
                source.move_to(None)

    @uninterrupted
    def merge(
        self,
        log: LogStream,
        first: PlogId,
        count: int,
        *,
        guard: AbstractContextManager[object],
        rewrite: Callable[[memoryview, bytes], Sequence[Bytes]] | None,
    ) -> bool:
        """Replace plogs of a log by one; see :meth:`LogStream.merge`.

        Until then the new plog belongs to a draft log, which is dropped if the merge fails.
        """
        with self._merging:
            start, end = log.span(first, count)
            merged = self._draft(end - start)
            try:
                blocks = log.labelled_blocks(start, end)
                parts = ((view,) if rewrite is None else rewrite(view, label) for _, view, label in blocks)
                for pending in [merged.submit(*data) for data in parts]:
                    pending.result()
                with guard, merged.lock:
                    return self._replace(log, first, count, merged)
            finally:
                with suppress(PenstockError):
                    self._drop_draft()
                self.sweep()

    def _draft(self, size: int) -> LogStream:
        """Create the log in which plogs are merged."""
        with self.lock:
            self.check_open()
            self._drop_draft()  # of a merge that failed
            self.partition.own_sizes[_DRAFT] = PlogSizes(first=max(size, 1), largest=max(size, 1), ahead=False)
            self.run(create_log(self.partition, _DRAFT))
            self._streams[_DRAFT] = LogStream(self, _DRAFT)
            return self._streams[_DRAFT]

    def _drop_draft(self) -> None:
        if self.has_log(_DRAFT):
            self.delete_log(_DRAFT)

    def _replace(self, log: LogStream, first: PlogId, count: int, merged: LogStream) -> bool:
        with self.lock:
            steps = replace_plogs(self.partition, log.name, first, count, source=_DRAFT, tail=merged.quiet_tail())
            is_done = self.run(steps)
            if is_done:
                self._streams.pop(_DRAFT, None)
                self.partition.own_sizes.pop(_DRAFT, None)
                merged.mark_deleted()
                merged.move_to(None)
            return is_done

    def read_all(self) -> Iterator[Record]:
        """Return every record of the newest metadata plog, as a recovery would read them."""
        for data in self.run(_read_all(self.partition.plog_id)):
            yield from decode_records(data)

    def compact(self) -> None:
        """Let the next process that opens the partition read little; the partition is about to be closed."""
        self.run(compact(self.partition))

    def close(self) -> None:
        """Finish the background work; the logs take no more appends."""
        with self._spawning:
            self._closing = True
        if self._background is not None:
            self._background.shutdown()
            _attempt(self._delete_doomed)  # those that the last tasks left
        self.is_closed = True

    def fence(self) -> None:
        """Write no more, from now on: another process may own the partition. Appends under way come to their end."""
        self._fenced = self.is_closed = True

    def check_owned(self) -> None:
        """Raise ``LogFenced`` if the partition has to be opened again, perhaps because it has a new owner."""
        if self._fenced or self.partition.failed:
            raise LogFenced(f"partition {self.partition.name!r}")

    def record(self, record: Record) -> None:
        """Make a record durable, then apply it."""
        self.run(append_records(self.partition, [record]))

    def sweep(self) -> None:
        """Delete, in the background, the plogs that no log needs."""
        if self.partition.metadata.doomed:
            self.spawn(self._delete_doomed)

    def _delete_doomed(self) -> None:
        for plog_id in list(self.partition.metadata.doomed):
            if self._fenced:
                return  # the new owner deletes them
            if any(plog_id in held for held in list(self._held)):
                continue  # until the snapshot is closed
            with suppress(*LOST):  # a later task deletes it
                self._host.perform(Delete(plog_id), None)
                self.partition.metadata.doomed.pop(plog_id, None)

    def known_among(self, plogs: Collection[PlogId]) -> set[PlogId]:
        """Return those of some plogs that the partition needs, has announced, or will delete."""
        with self.chains:
            return self.partition.known_among(plogs)

    def hold(self, plogs: frozenset[PlogId]) -> None:
        """Delete none of these plogs before :meth:`let_go`, though no log may need them any more."""
        self._held.append(plogs)

    def let_go(self, plogs: frozenset[PlogId]) -> None:
        """Delete plogs again that are held no more."""
        self._held.remove(plogs)
        self.sweep()

    def spawn(self, task: Callable[[], None]) -> None:
        """Run a task in the background; it may be dropped on close, and is repeated after a restart."""
        with self._spawning:
            if self._closing:
                return
            if self._background is None:
                self._background = ThreadPoolExecutor(1, thread_name_prefix="penstock-log")
            with suppress(RuntimeError):  # the program ends without closing its store, and other threads still append
                self._background.submit(_attempt, task)

    @uninterrupted
    def run(
        self, steps: Steps[T], *, drain: PendingAppend | None = None, unsynced: list[PendingAppend] | None = None
    ) -> T:
        """Run a protocol; ``drain`` is the append that its Drain action waits for.

        If ``unsynced`` is given, the plogs created and sealed in the end need not be durable yet; they are added to it.
        """
        with self.lock:
            return self._perform(steps, drain, unsynced)

    def seal(self, plog_id: PlogId, *, size: int) -> int:
        """Seal a plog at its end, and return its length; without the lock, as it may take as long as servers take."""
        return self._perform(seal(plog_id, size=size))

    def settle(self) -> None:
        """Decide the outcome of records in doubt."""
        self.run(settle(self.partition))

    def _perform(
        self, steps: Steps[T], drain: PendingAppend | None = None, unsynced: list[PendingAppend] | None = None
    ) -> T:
        self.check_open()
        run = ProtocolRun(self._host, self.plogs, drain=drain, unsynced=[] if unsynced is None else unsynced)
        try:
            with self.chains:
                action = next(steps)
            while True:
                try:
                    result = run.perform(action)
                except PenstockError as error:
                    with self.chains:
                        action = steps.throw(error)
                else:
                    with self.chains:
                        action = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            if unsynced is None:
                run.finish()

    def check_open(self) -> None:
        """Raise ``StoreClosed`` once the manager is closed, and ``LogFenced`` once it is fenced."""
        if self._fenced:
            raise LogFenced(f"partition {self.partition.name!r}")
        if self.is_closed:
            raise StoreClosed("the metadata manager")


def _read_all(plog_id: PlogId) -> Steps[list[memoryview]]:
    appends: list[memoryview] = yield ReadAll(plog_id)
    return appends


def _attempt(task: Callable[[], None]) -> None:
    """Run a background task; the work of one that fails is done when it is needed, or after the next start."""
    try:
        task()
    except PenstockError as error:
        _logger.warning("background task postponed: %s", error)
    except BaseException:
        _logger.exception("a background task failed")
        raise
