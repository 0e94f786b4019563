"""What several tests of log streams share: looking into a partition, and plogs that wait or fail on demand."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.plog import OrderedPlogs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.cpo import Cpo
    from penstock.errors import PenstockError
    from penstock.log import LogStream, MetadataManager
    from penstock.model import PlogId
    from penstock.plog import PendingAppend, PlogInfo, Plogs
    from penstock.ports import Disk
    from penstock.testing import RecordingDisk

T = TypeVar("T")
SECONDS_MAX: Final = 20.0
"""How long to wait for another thread before the test is taken to have failed."""


def content(log: LogStream) -> bytes:
    """Return all bytes that are left of a log."""
    plogs = log.plogs()  # once: the log may grow or be truncated meanwhile
    return b"".join(log.read(plogs[0][0], 0, sum(length for _, length, _ in plogs)))


def contents(manager: MetadataManager) -> dict[str, bytes]:
    """Return all bytes that are left, of every log."""
    return {name: content(manager.log(name)) for name in manager.logs()}


def needed(manager: MetadataManager) -> set[PlogId]:
    """Return the plogs that are part of anything, those announced included."""
    plogs = {manager.partition.plog_id, manager.partition.marker}
    for chain in manager.partition.metadata.logs.values():
        plogs |= {chain.active, chain.next, *(plog_id for plog_id, _ in chain.sealed)}
    return plogs


def plog_files(disk: Disk) -> set[str]:
    """Return the names of the plogs' files."""
    return {name for name in disk.names() if name.endswith(".plog")}


def leftovers(manager: MetadataManager, disk: Disk) -> set[str]:
    """Return the plogs' files that are not needed."""
    return plog_files(disk) - {f"{plog_id.uid}.plog" for plog_id in needed(manager)}


@dataclass(frozen=True)
class Published:
    """The oracle has this metadata plog now."""

    plog_id: PlogId


class RecordedOracle:
    """A real oracle whose changes are put into the disk's record: they are atomic and durable by themselves."""

    def __init__(self, cpo: Cpo, disk: RecordingDisk) -> None:
        self._cpo, self._disk = cpo, disk
        self.metadata_plog = cpo.metadata_plog

    def set_metadata_plog(self, partition: str, plog_id: PlogId, *, expected: int) -> int:
        """Change it for real, then note it."""
        version = self._cpo.set_metadata_plog(partition, plog_id, expected=expected)
        self._disk.note(Published(plog_id))
        return version


class Gate:
    """Where a call to plogs stops until it is let through, then goes on, or fails before or after it was done."""

    def __init__(self, error: PenstockError | None, *, after: bool, is_open: bool) -> None:
        self._error, self._after = error, after
        self._reached, self._open = threading.Event(), threading.Event()
        if is_open:
            self._open.set()

    def wait_until_reached(self) -> None:
        """Return once a call stands at the gate."""
        assert self._reached.wait(SECONDS_MAX), "no thread came"

    @property
    def is_reached(self) -> bool:
        """Whether a call has come so far."""
        return self._reached.is_set()

    def open(self) -> None:
        """Let the call through."""
        self._open.set()

    def before(self) -> None:
        """Hold up a call that is about to be made."""
        self._reached.set()
        assert self._open.wait(SECONDS_MAX), "the gate was never opened"
        if self._error is not None and not self._after:
            raise self._error

    def after(self) -> None:
        """Fail a call that was made."""
        if self._error is not None and self._after:
            raise self._error


class _GatedAppend:
    """An append under way whose result has a gate, too."""

    def __init__(self, plogs: GatedPlogs, plog_id: PlogId, pending: PendingAppend) -> None:
        self._plogs, self._plog_id, self._pending = plogs, plog_id, pending

    def result(self) -> int:
        """Wait for the gate, then for the disk."""
        return self._plogs.call("result", self._plog_id, self._pending.result)


class GatedPlogs:
    """Real plogs, with gates where a test wants them.

    Data are appended by ``submit`` and waited for by ``result``; metadata records go through ``append``.
    """

    def __init__(self, plogs: Plogs) -> None:
        self._plogs = plogs
        self._changed = threading.Condition()
        self._gates: list[tuple[str, PlogId | None, Gate, bool]] = []
        self._counts: Counter[str] = Counter()
        self.new_id, self.where = plogs.new_id, plogs.where
        self.read, self.views, self.blocks = plogs.read, plogs.views, plogs.blocks
        self.syncs, self.check_running, self.locate = plogs.syncs, plogs.check_running, plogs.locate
        self.keeps_order, self.bucket_use = plogs.keeps_order, plogs.bucket_use
        self.replication_use = plogs.replication_use
        self.is_replicated, self.lease = plogs.is_replicated, plogs.lease
        self.prepare_close, self.set_known = plogs.prepare_close, plogs.set_known
        self.cut, self.raw, self.key = plogs.cut, plogs.raw, plogs.key
        if isinstance(plogs, OrderedPlogs):
            self.submit_seal = partial(self._submit_seal, plogs)
            self.submit_create = partial(self._submit_create, plogs)

    def gate(
        self, name: str, plog_id: PlogId | None = None, *, error: PenstockError | None = None, after: bool = False,
        is_open: bool = False, always: bool = False,
    ) -> Gate:  # fmt: skip
        """Put a gate before the next call of this name, or before all of them; with an ``error`` it fails there."""
        gate = Gate(error, after=after, is_open=is_open)
        with self._changed:
            self._gates.append((name, plog_id, gate, always))
        return gate

    def fail(
        self, name: str, error: PenstockError, *, plog_id: PlogId | None = None, after: bool = False,
        always: bool = False,
    ) -> Gate:  # fmt: skip
        """Let the next call of this name fail at once."""
        return self.gate(name, plog_id, error=error, after=after, is_open=True, always=always)

    def heal(self) -> None:
        """Remove all gates that no thread has reached."""
        with self._changed:
            self._gates.clear()

    def wait_for(self, name: str, count: int) -> None:
        """Return once so many calls of this name were made and came back."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._counts[name] >= count, SECONDS_MAX), f"too few of {name}"

    def call(self, name: str, plog_id: PlogId, do: Callable[[], T]) -> T:
        """Do something through its gate."""
        gate = self._take(name, plog_id)
        try:
            if gate is not None:
                gate.before()
            result = do()
            if gate is not None:
                gate.after()
            return result
        finally:
            with self._changed:
                self._counts[name] += 1
                self._changed.notify_all()

    def _take(self, name: str, plog_id: PlogId) -> Gate | None:
        with self._changed:
            for entry in self._gates:
                wanted, wanted_id, gate, always = entry
                if wanted == name and wanted_id in {None, plog_id}:
                    if not always:
                        self._gates.remove(entry)
                    return gate
        return None

    def create(self, *, size: int = 64, plog_id: PlogId | None = None) -> PlogId:
        """Make a plog."""
        plog_id = plog_id or self.new_id()
        return self.call("create", plog_id, lambda: self._plogs.create(size=size, plog_id=plog_id))

    def create_all(self, sizes: Mapping[PlogId, int]) -> None:
        """Make plogs."""
        for plog_id, size in sizes.items():
            self.create(size=size, plog_id=plog_id)

    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Append a metadata record."""
        return self.call("append", plog_id, lambda: self._plogs.append(plog_id, offset, *data))

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append data without waiting."""
        pending = self.call("submit", plog_id, lambda: self._plogs.submit(plog_id, offset, *data))
        return _GatedAppend(self, plog_id, pending)

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal a plog."""
        return self.call("seal", plog_id, lambda: self._plogs.seal(plog_id, offset))

    def _submit_create(self, plogs: OrderedPlogs, plog_id: PlogId, size: int) -> PendingAppend:
        """Make a plog without waiting."""
        return self.call("create", plog_id, lambda: plogs.submit_create(plog_id, size))

    def _submit_seal(self, plogs: OrderedPlogs, plog_id: PlogId, offset: int) -> tuple[int, PendingAppend | None]:
        """Seal a plog without waiting."""
        return self.call("seal", plog_id, lambda: plogs.submit_seal(plog_id, offset))

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Assignment at a plog."""
        return self._plogs.info(plog_id)

    def delete(self, plog_id: PlogId) -> None:
        """Delete a plog."""
        self.call("delete", plog_id, lambda: self._plogs.delete(plog_id))

    def close(self) -> None:
        """Close the plogs."""
        self._plogs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
