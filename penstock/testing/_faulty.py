"""The faulty disk: any disk, with faults injected by a test."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.testing._recording import RecordingDisk, RecordingFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.ports import Bytes, Disk, File

Call: TypeAlias = Literal["create", "open", "remove", "rename", "sync", "pwritev", "datasync", "reserve", "truncate"]


class Fault(Enum):
    """The error of the operating system with which a call fails."""

    EIO = errno.EIO
    ENOSPC = errno.ENOSPC


@dataclass(slots=True)
class _Rule:
    """A planned fault: an error, or the size to which a write is cut."""

    effect: Fault | int
    on: Call
    calls_left: int | None
    name: str | None

    def takes(self, call: Call, name: str | None) -> bool:
        if call != self.on or self.name not in {None, name}:
            return False
        if self.calls_left is None:
            return True
        self.calls_left -= 1
        return self.calls_left == 0


class _Rules:
    """The planned faults, and the calls so far."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self.moves = threading.Event()  # cleared while the disk is stalled
        self.moves.set()

    def add(self, rule: _Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def meet(self, call: Call, name: str | None = None) -> int | None:
        """Count a call; raise its fault if it has one, or return the size to which it is cut."""
        if call in {"datasync", "sync"}:
            self.moves.wait()
        with self._lock:
            self.calls[call] += 1
            effects = [rule.effect for rule in self._rules if rule.takes(call, name)]
        for effect in effects:
            if isinstance(effect, Fault):
                raise OSError(effect.value, os.strerror(effect.value), name)
        return next((effect for effect in effects if isinstance(effect, int)), None)


class FaultyFile:
    """An open file of a :class:`FaultyDisk`, known to the rules by the name it was opened with."""

    def __init__(self, rules: _Rules, name: str, file: File) -> None:
        self._rules, self._name, self._file = rules, name, file

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts, or their first bytes; a failed write writes nothing."""
        size = self._rules.meet("pwritev", self._name)
        return self._file.pwritev(parts if size is None else [b"".join(parts)[:size]], offset)

    def view(self, offset: int, size: int) -> memoryview:
        """Return a view; reads never fail here."""
        return self._file.view(offset, size)

    def datasync(self) -> None:
        """Flush the file, or fail and give up its unflushed changes."""
        try:
            self._rules.meet("datasync", self._name)
        except OSError:
            if isinstance(self._file, RecordingFile):
                self._file.datasync_failed()
            raise
        self._file.datasync()

    def reserve(self, size: int) -> None:
        """Make the file at least ``size`` long, or fail and leave it as it is."""
        self._rules.meet("reserve", self._name)
        self._file.reserve(size)

    def truncate(self, size: int) -> None:
        """Cut the file, or fail and leave it as it is."""
        self._rules.meet("truncate", self._name)
        self._file.truncate(size)

    def size(self) -> int:
        """Return the length in bytes."""
        return self._file.size()

    def close(self) -> None:
        """Close the handle."""
        self._file.close()


class FaultyDisk:
    """A disk that fails where a test plans it, on top of any other disk.

    A failed call changes nothing, with one exception. A failed ``datasync`` or ``sync`` gives up the changes it should
    have flushed, as on Linux, where the kernel marks the pages clean: they can still be read, the next sync succeeds,
    and they are not on the disk. A :class:`RecordingDisk` simulates this (such changes may be lost in any later crash);
    on any other disk, a test sees only the error.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._rules = _Rules()

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each kind, including failed ones: ``disk.calls["datasync"]``."""
        return self._rules.calls

    def fail(self, fault: Fault, *, on: Call, call: int | None = 1, name: str | None = None) -> None:
        """Fail the ``call``-th call from now on, or every one with None, on any file or on the file ``name``."""
        self._rules.add(_Rule(fault, on, call, name))

    def shorten(self, size: int, *, call: int | None = 1, name: str | None = None) -> None:
        """Let the ``call``-th write from now on, or every one with None, write only its first ``size`` bytes."""
        self._rules.add(_Rule(size, "pwritev", call, name))

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let no sync return before the end of the block."""
        self._rules.moves.clear()
        try:
            yield
        finally:
            self._rules.moves.set()

    def heal(self) -> None:
        """Cancel the planned faults."""
        self._rules.clear()

    def create(self, name: str) -> FaultyFile:
        """Create a file and open it."""
        self._rules.meet("create", name)
        return FaultyFile(self._rules, name, self._disk.create(name))

    def open(self, name: str) -> FaultyFile:
        """Open a file."""
        self._rules.meet("open", name)
        return FaultyFile(self._rules, name, self._disk.open(name))

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._rules.meet("remove", name)
        self._disk.remove(name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``; for faults this is a call on ``old``."""
        self._rules.meet("rename", old)
        self._disk.rename(old, new)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return self._disk.names()

    def sync(self) -> None:
        """Flush the folder, or fail and give up its unflushed names."""
        try:
            self._rules.meet("sync")
        except OSError:
            if isinstance(self._disk, RecordingDisk):
                self._disk.sync_failed()
            raise
        self._disk.sync()

    def lock(self) -> None:
        """Own the disk until :meth:`close`."""
        self._disk.lock()

    def where(self, name: str = "") -> str:
        """Return the path of a file, or of the folder, for messages."""
        return self._disk.where(name)

    def close(self) -> None:
        """Release the lock."""
        self._disk.close()
