"""An open plog: its state, its file, and what is on the way there.

Small blocks are durable in the journal first and go into the file later, many at once: when somebody reads
them, before a large block, at a checkpoint. Until then they wait here. What waits is bounded, because every turn
of the journal ends with a checkpoint.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

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
        "waiting_position",
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
        self.waiting: list[Bytes] = []
        self.waiting_position = 0
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
            self.flush()
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

    def put_later(self, position: int, parts: tuple[Bytes, ...]) -> None:
        """Write the parts with the next flush; they lie right behind what waits already."""
        if not self.waiting:
            self.waiting_position = position
        self.waiting += parts

    def flush(self) -> None:
        """Write what waits."""
        if self.waiting:
            write_all(self.open_file(), self.waiting, self.waiting_position)
            self.waiting = []

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
