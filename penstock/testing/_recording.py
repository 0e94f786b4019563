"""The recording disk: a disk in memory that records every operation, to simulate a power loss at any of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.testing._crash import CrashState, Seen, crash_states
from penstock.testing._image import DiskImage, FileImage, step
from penstock.testing._memory import MemoryDisk, MemoryFile
from penstock.testing._operations import (
    CreateFile,
    Datasync,
    FolderSync,
    Inode,
    Note,
    Operation,
    RemoveFile,
    RenameFile,
    Reserve,
    TruncateFile,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.ports import Bytes


class _Recording:
    """The operations in their order; ``lock`` is held while an operation is done and recorded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.operations: list[Operation] = []

    def add(self, operation: Operation) -> None:
        assert self.lock.locked(), "done and recorded in one step, or the order may differ"
        self.operations.append(operation)


class RecordingFile:
    """An open file of a :class:`RecordingDisk`."""

    def __init__(self, record: _Recording, inode: Inode, file: MemoryFile) -> None:
        self._record, self._inode, self._file = record, inode, file

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts; the recording keeps a copy of them."""
        data = b"".join(parts)
        with self._record.lock:
            written = self._file.pwritev([data], offset)
            if written:
                self._record.add(Write(self._inode, offset, data))
        return written

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view, as of a file in memory."""
        return self._file.view(offset, size)

    def datasync(self) -> None:
        """Make all changes of this file certain, but not its name."""
        with self._record.lock:
            self._file.datasync()
            self._record.add(Datasync(self._inode))

    def datasync_failed(self) -> None:
        """Record a failed sync: the changes it should have flushed stay uncertain, also after later syncs."""
        with self._record.lock:
            self._record.add(Datasync(self._inode, failed=True))

    def reserve(self, size: int) -> None:
        """Make the file at least ``size`` long."""
        with self._record.lock:
            self._file.reserve(size)
            self._record.add(Reserve(self._inode, size))

    def truncate(self, size: int) -> None:
        """Cut the file."""
        with self._record.lock:
            self._file.truncate(size)
            self._record.add(TruncateFile(self._inode, size))

    def size(self) -> int:
        """Return the length in bytes."""
        return self._file.size()

    def close(self) -> None:
        """Close the handle, without a flush."""
        self._file.close()


class RecordingDisk:
    """A disk in memory that produces every state in which a power loss could have left it, at any point.

    The initial content of ``disk`` is certain. The rules of survival are those of ``penstock.testing._crash``.

    >>> from penstock.testing import RecordingDisk
    >>> disk = RecordingDisk()
    >>> file = disk.create("answer")
    >>> disk.sync()
    >>> written = file.pwritev([b"42"], 0)
    >>> file.datasync()
    >>> disk.note("acknowledged")
    >>> for state in disk.every_crash_state():
    ...     if "acknowledged" in state.notes:
    ...         assert state.disk.open("answer").view(0, 2) == b"42", state.describe
    """

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self._disk = disk if disk is not None else MemoryDisk()
        self._inodes = {name: Inode(number, name) for number, name in enumerate(self._disk.names())}
        self._inode_count = len(self._inodes)
        self._record = _Recording()
        files = {inode: self._certain(name) for name, inode in self._inodes.items()}
        self._start = DiskImage(names=dict(self._inodes), files=files)
        self._reached = self._start

    def _certain(self, name: str) -> FileImage:
        file = self._disk.open(name)
        size = file.size()
        return FileImage(bytes(file.view(0, size)).rstrip(b"\0"), size)

    def crash_points(self) -> range:
        """Return the points of a power loss: before the first operation, and after each operation or note."""
        return range(len(self._record.operations) + 1)

    def crash_states(self, point: int, *, power_set_max: int = 5) -> Iterator[CrashState]:
        """Return every state in which a power loss at ``point`` may leave the disk, each once.

        All subsets of up to ``power_set_max`` unsynced changes are tried, of more a systematic choice.
        """
        return crash_states(self._image(point), power_set_max=power_set_max, seen=set())

    def every_crash_state(self, *, power_set_max: int = 5) -> Iterator[CrashState]:
        """Return the states of all points; a state with the same files and notes as an earlier one is left out."""
        seen: Seen = set()
        for point in self.crash_points():
            yield from crash_states(self._image(point), power_set_max=power_set_max, seen=seen)

    def _image(self, point: int) -> DiskImage:
        assert point in self.crash_points(), "the power is lost before or after a recorded operation"
        # Points are mostly requested in order, so the last image is mostly one step away.
        image = self._reached if self._reached.point <= point else self._start
        for operation in self._record.operations[image.point : point]:
            image = step(image, operation)
        self._reached = image
        return image

    def note(self, payload: object) -> None:
        """Record an event outside of the disk that is certain: an acknowledgement, another system's commit."""
        with self._record.lock:
            self._record.add(Note(payload))

    def create(self, name: str) -> RecordingFile:
        """Create a file and open it."""
        with self._record.lock:
            file = self._disk.create(name)
            inode = self._inodes[name] = Inode(self._inode_count, name)
            self._inode_count += 1
            self._record.add(CreateFile(name, inode))
        return RecordingFile(self._record, inode, file)

    def open(self, name: str) -> RecordingFile:
        """Open a file."""
        with self._record.lock:
            file = self._disk.open(name)
            return RecordingFile(self._record, self._inodes[name], file)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._record.lock:
            self._disk.remove(name)
            self._record.add(RemoveFile(name, self._inodes.pop(name)))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``."""
        with self._record.lock:
            self._disk.rename(old, new)
            inode = self._inodes.pop(old)
            self._record.add(RenameFile(old, new, inode, self._inodes.get(new)))
            self._inodes[new] = inode

    def names(self) -> list[str]:
        """Return the names of all files."""
        return self._disk.names()

    def sync(self) -> None:
        """Make all names certain."""
        with self._record.lock:
            self._record.add(FolderSync())

    def sync_failed(self) -> None:
        """Record a failed sync of the folder: the names it should have flushed stay uncertain for good."""
        with self._record.lock:
            self._record.add(FolderSync(failed=True))

    def lock(self) -> None:
        """Own the disk until :meth:`close`."""
        self._disk.lock()

    def where(self, name: str = "") -> str:
        """Return the name of a file, or of the disk, for messages."""
        return self._disk.where(name)

    def close(self) -> None:
        """Release the lock; the recording stays."""
        self._disk.close()
