"""Appends under way, and the switch to a new plog that some of them wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from penstock.errors import LogFenced, NoSuchPlog, PenstockError, PlogSealed, WrongOffset
from penstock.log._actions import LOST, log_unavailable
from penstock.log._protocols import LogPosition, record_switch
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.log._end import LogEnd
    from penstock.log._manager import MetadataManager
    from penstock.log._protocols import LogTail
    from penstock.plog import PendingAppend

__all__ = ["FENCED", "NextAppend", "PendingLogAppend", "PlogSwitch"]

FENCED: Final = (PlogSealed, WrongOffset, NoSuchPlog)  # another process changed a plog that belongs to this log


class PlogSwitch:
    """A switch under way: recorded once, by the first thread that needs it.

    ``last`` is the last append to the old plog, ``unsynced`` has the creation of the new one if it is not durable yet.
    """

    def __init__(
        self, manager: MetadataManager, name: str, *, old: LogTail, new: LogTail, last: PendingAppend | None,
        unsynced: list[PendingAppend],
    ) -> None:  # fmt: skip
        self._manager, self._name, self.old, self._new, self._last = manager, name, old, new, last
        self._unsynced = unsynced
        self._lock = threading.Lock()
        self._error: PenstockError | None = None
        self.is_done = False

    def complete(self) -> bool:
        """Return when the switch is recorded, True if this call recorded it; raise if that failed, now or before.

        ``ReplicaLost`` and ``GroupUnavailable`` mean that the old plog has failed, or that the switch was abandoned.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if self.is_done:
                return False
            self._drain()
            try:
                steps = record_switch(self._manager.partition, self._name, old=self.old, new=self._new)
                self._manager.run(steps, drain=self._last, unsynced=self._unsynced)
            except FENCED as error:
                self._error = LogFenced(f"log {self._name!r}")
                raise self._error from error
            except LOST as error:
                self._error = log_unavailable(self._name, error)
                raise self._error from error
            except PenstockError as error:
                self._error = error
                raise
            self.is_done = True
            return True

    def _drain(self) -> None:
        """Wait for the last append to the old plog before the manager's lock is taken: servers may take long."""
        try:
            if self._last is not None:
                self._last.result()
        except FENCED as error:
            raise LogFenced(f"log {self._name!r}") from error

    def abandon(self, error: PenstockError) -> bool:
        """Give up the switch, unless it is recorded, and return whether it is given up; raise if recording failed."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self.is_done:
                self._error = error
            return not self.is_done


Place: TypeAlias = "tuple[LogTail, PendingAppend | None, PlogSwitch | None]"


class PendingLogAppend(msgspec.Struct, eq=False):
    """An append under way, from ``start`` to ``end``, counted from the log's first byte.

    ``place`` is the plog that it is appended to, the append there, and the switch that it waits for. It is replaced as
    a whole when the append moves to another plog, and has no append once a move has settled it: then the append is in
    the log unless there is an ``error``. ``data`` is kept on replicated plogs, until it is durable.
    """

    log: LogEnd
    place: Place
    start: int
    end: int
    data: tuple[Buffer, ...] = ()
    error: PenstockError | None = None

    @property
    def position(self) -> LogPosition:
        """The position at which it ends."""
        tail = self.place[0]
        return LogPosition(tail.plog_id, self.end - tail.start)

    @property
    def is_certain(self) -> bool:
        """Whether it becomes part of the log unless the store stops: no switch is left to be recorded."""
        switch = self.place[2]
        return switch is None or switch.is_done

    @uninterrupted
    def result(self) -> int:
        """Wait until it is durable; return the log's offset at which it ends."""
        while True:
            place = self.place
            tail, pending, switch = place
            try:
                if pending is not None:
                    pending.result()
                elif self.error is not None:
                    raise self.error
                if switch is not None and not switch.is_done:
                    self.log.complete(switch)
                break
            except PenstockError as error:
                if pending is not None and isinstance(error, LOST):
                    self.log.move_on(self, place, error)
                    continue
                self.log.give_up(tail, error)
                raise
        if self.log.is_replicated:
            self.log.acknowledge(self)
        return self.end

    def settle(self, tail: LogTail, error: PenstockError | None = None) -> None:
        """Note how a move has ended for it; the caller holds the log's lock."""
        self.error = error
        self.place = (tail, None, None)
        self.data = ()


class NextAppend(msgspec.Struct, frozen=True):
    """The place of the next append, as a position and as an offset counted from the log's first byte.

    ``in_order`` says that it becomes durable only after everything submitted before it, to any log.
    """

    position: LogPosition
    start: int
    in_order: bool
