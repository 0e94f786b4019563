"""An open plog: its state, its file, and what is on the way there.

Small blocks are durable in the journal first and go into the file later, many at once: when somebody reads
them, before a large block, at a checkpoint. Until then they wait here. What waits is bounded, because every turn
of the journal ends with a checkpoint. What the journal does not have yet is not in the file either, unless a large
block follows: so after a crash, what was submitted to the journal is there up to some point, and nothing behind it.
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


class _Block(NamedTuple):
    """A small block that the plog's own file does not have yet."""

    position: int
    parts: tuple[Bytes, ...]
    change: int
    offset: int


class OpenPlog:
    """A plog in use. Whoever calls a method or changes a field holds ``lock``, but for the first two methods."""

    __slots__ = (
        "ack_lock",
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
        "room",
        "sync_lock",
        "uid",
        "unsynced_end",
        "waiting",
    )

    def __init__(self, plog_id: PlogId, disk: Disk) -> None:
        self.plog_id, self.uid, self.disk = plog_id, plog_id.uid_bytes, disk
        self.name = plog_name(self.uid)
        self.lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self.ack_lock = threading.Lock()
        self.replica: Replica | None = None  # None: not read yet
        self.file: File | None = None
        self.room = 0  # how long the file is, once it is known
        self.waiting: deque[_Block] = deque()  # in the journal, or on their way there
        self.last: PendingAppend | None = None
        self.unsynced_end = 0  # where the last large append ends
        self.linked = False  # the file's name is known to be durable
        self.fence: int | None = None  # where the plog is about to be sealed; until then no append may come between
        self.deletion: Ticket | None = None  # under way; the file may go once this is durable, not before
        self.removed = self.forgotten = False
        self.dirty = False  # the journal has records that the file may not have
        self.changes = self.pins = 0

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``; the journal and the file's own sync may both say so at once."""
        with self.ack_lock:
            if self.replica is not None:
                self.replica.acknowledge(offset)

    def checkpoint(self, change: int) -> None:
        """Make the plog's own file durable, together with how long it is; records up to ``change`` may go then."""
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
                self.dirty = self.changes > change  # those records are in a later generation, which needs us
                if not was_open and self.is_idle:
                    self.close_file()

    def open_file(self) -> File:
        """Return the file, open."""
        if self.file is None:
            self.file = self.disk.open(self.name)
        return self.file

    def make_room(self, end: int) -> None:
        """Let the file reach at least up to ``end``, so that what is written there finds its room on the disk."""
        if end > self.room:
            self.open_file().reserve(end)
            self.room = end

    def put_later(self, position: int, parts: tuple[Bytes, ...], *, offset: int) -> None:
        """Write the parts with a flush, right behind what waits already; ``offset`` is where the plog ends with them.

        They are those of the next change.
        """
        self.waiting.append(_Block(position, parts, self.changes + 1, offset))

    def flush(self, change: int = 0) -> None:
        """Write what waits, as far as the journal has it: what is acknowledged, and the changes up to ``change``.

        Otherwise it could survive a crash, though something that was submitted before it does not.
        """
        assert self.replica is not None or not self.waiting
        acked = 0 if self.replica is None else self.replica.acked
        self._write(sum(1 for _ in takewhile(lambda one: one.offset <= acked or one.change <= change, self.waiting)))

    def flush_all(self) -> None:
        """Write what waits, because more is to be written behind it."""
        self._write(len(self.waiting))

    def _write(self, count: int) -> None:
        if count:
            blocks = list(islice(self.waiting, count))
            write_all(self.open_file(), [part for one in blocks for part in one.parts], blocks[0].position)
            for _ in blocks:
                self.waiting.popleft()

    def write_state(self, state: State) -> None:
        """Let the head say how long the plog is."""
        assert self.replica is not None
        write_all(self.open_file(), [state.pack(self.replica.key)], STATE_POSITION)
        self.replica.known = state.length

    def remove_file(self) -> None:
        """Remove the file, once: another plog may have the name by now."""
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
        """Whether the head of the file does not know how long the plog is."""
        return self.replica is not None and not self.replica.sealed and self.replica.known != self.replica.acked

    @property
    def is_idle(self) -> bool:
        """Whether no append is under way, so that the file may be closed."""
        replica = self.replica
        return self.pins == 0 and replica is not None and replica.written == replica.acked
