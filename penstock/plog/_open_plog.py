"""An open plog: its state, its file, and the blocks that are not in the file yet.

Small blocks are durable in the journal first and are written into the file later, many at once: when they are read,
before a large block, and at a checkpoint. Until then they are buffered here. The buffer is bounded, because a
checkpoint follows every time the journal changes to its other file. A block that the journal does not have yet is not
in the file either, unless a large block follows it. So after a crash, the changes submitted to the journal are there
up to some point, and none after it.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from penstock.plog._folder import plog_name
from penstock.plog._head import STATE_POSITION
from penstock.plog._replay import remove_if_there
from penstock.ports import write_all

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog._head import State
    from penstock.plog._interface import PendingAppend
    from penstock.plog._journal import Ticket
    from penstock.plog._replica import Replica
    from penstock.ports import Bytes, Disk, File

__all__ = ["OpenPlog"]


class _BufferedBlock(NamedTuple):
    """A small block that is not in the plog's own file yet."""

    position: int
    parts: tuple[Bytes, ...]
    change: int
    offset: int


class OpenPlog:
    """A plog in use. Callers hold ``lock``, except for :meth:`acknowledge` and :meth:`checkpoint`."""

    __slots__ = (
        "ack_lock",
        "allocated",
        "buffered",
        "changes",
        "deletion",
        "dirty",
        "disk",
        "fence",
        "file",
        "forgotten",
        "last",
        "linked",
        "lock",
        "name",
        "pins",
        "plog_id",
        "removed",
        "replica",
        "sync_lock",
        "uid",
        "unsynced_end",
    )

    def __init__(self, plog_id: PlogId, disk: Disk) -> None:
        self.plog_id, self.uid, self.disk = plog_id, plog_id.uid_bytes, disk
        self.name = plog_name(self.uid)
        self.lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self.ack_lock = threading.Lock()
        self.replica: Replica | None = None  # None: not read yet
        self.file: File | None = None
        self.allocated = 0  # the length of the file, once it is known
        self.buffered: deque[_BufferedBlock] = deque()  # in the journal, or submitted to it
        self.last: PendingAppend | None = None
        self.unsynced_end = 0  # the end of the last large append
        self.linked = False  # the file's name is durable
        self.fence: int | None = None  # where the plog is about to be sealed; no append may come before that
        self.deletion: Ticket | None = None  # under way; the file may be removed once this is durable, not before
        self.removed = self.forgotten = False
        self.dirty = False  # the journal has records that may not be in the file
        self.changes = self.pins = 0

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``; the journal and the file's sync may both call this."""
        with self.ack_lock:
            if self.replica is not None:
                self.replica.acknowledge(offset)

    def checkpoint(self, change: int) -> None:
        """Make the plog's file durable, with its length; the journal needs no records up to ``change`` after that."""
        with self.lock:
            if self.removed or (self.deletion is not None and self.deletion.durable):
                self.remove_file()
                return
            assert self.replica is not None
            was_open, file, state = self.file is not None, self.open_file(), self.replica.state()
            self.flush(change)
            self.write_state(state)
            self.pins += 1
        try:
            file.datasync()
        finally:
            with self.lock:
                self.pins -= 1
                self.dirty = self.changes > change  # later records are in the next generation of the journal
                if not was_open and self.is_idle:
                    self.close_file()

    def open_file(self) -> File:
        """Return the file, opened if need be."""
        if self.file is None:
            self.file = self.disk.open(self.name)
        return self.file

    def allocate(self, end: int) -> None:
        """Allocate space for the file up to ``end``, so that later writes do not run out of it."""
        if end > self.allocated:
            self.open_file().reserve(end)
            self.allocated = end

    def put_later(self, position: int, parts: tuple[Bytes, ...], *, offset: int) -> None:
        """Buffer the parts of the next change, which follow the buffered ones; ``offset`` is the plog's new end.

        A flush writes them into the file.
        """
        self.buffered.append(_BufferedBlock(position, parts, self.changes + 1, offset))

    def flush(self, change: int = 0) -> None:
        """Write the buffered blocks that the journal has: those acknowledged, and the changes up to ``change``.

        Another block could survive a crash although a change submitted before it does not.
        """
        assert self.replica is not None or not self.buffered
        acked = 0 if self.replica is None else self.replica.acked
        in_journal = takewhile(lambda block: block.offset <= acked or block.change <= change, self.buffered)
        self._write(sum(1 for _ in in_journal))

    def flush_all(self) -> None:
        """Write all buffered blocks, because a large block follows them."""
        self._write(len(self.buffered))

    def _write(self, count: int) -> None:
        if count:
            blocks = list(islice(self.buffered, count))
            write_all(self.open_file(), [part for block in blocks for part in block.parts], blocks[0].position)
            for _ in blocks:
                self.buffered.popleft()

    def write_state(self, state: State) -> None:
        """Write the plog's length into the head."""
        assert self.replica is not None
        write_all(self.open_file(), [state.pack(self.replica.key)], STATE_POSITION)
        self.replica.known = state.length

    def remove_file(self) -> None:
        """Remove the file, once: another plog may have its name by now."""
        if not self.removed:
            remove_if_there(self.disk, self.name)
            self.removed = True

    def close_file(self) -> None:
        """Close the file, if it is open."""
        if self.file is not None:
            self.file.close()
            self.file = None

    @property
    def is_behind(self) -> bool:
        """Whether the length in the file's head is out of date."""
        return self.replica is not None and not self.replica.sealed and self.replica.known != self.replica.acked

    @property
    def is_idle(self) -> bool:
        """Whether no append is under way, so that the file may be closed."""
        replica = self.replica
        return self.pins == 0 and replica is not None and replica.written == replica.acked
