"""Appends under way, and the switch to a new plog that some of them wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.errors import LogFenced, NoSuchPlog, PenstockError, PlogSealed, WrongOffset
from penstock.log._protocols import LogPosition, record_switch
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from penstock.log._manager import MetadataManager
    from penstock.log._protocols import LogTail
    from penstock.log._stream import LogStream
    from penstock.plog import PendingAppend

__all__ = ["FENCED", "NextAppend", "PendingLogAppend", "PlogSwitch"]

FENCED: Final = (PlogSealed, WrongOffset, NoSuchPlog)  # another process changed a plog that belongs to this log


class PlogSwitch:
    """A switch under way: recorded once, by the first thread that needs it."""

    def __init__(
        self, manager: MetadataManager, name: str, *, old: LogTail, new: LogTail, last: PendingAppend | None
    ) -> None:
        self._manager, self._name, self._old, self._new, self._last = manager, name, old, new, last
        self._lock = threading.Lock()
        self._error: PenstockError | None = None
        self.is_done = False

    def complete(self) -> bool:
        """Return when the switch is recorded, True if this call recorded it; raise if that failed, now or before."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self.is_done:
                return False
            try:
                steps = record_switch(self._manager.partition, self._name, old=self._old, new=self._new)
                self._manager.run(steps, drain=self._last)
            except FENCED as error:
                self._error = LogFenced(f"log {self._name!r}")
                raise self._error from error
            except PenstockError as error:
                self._error = error
                raise
            self.is_done = True
            return True


class PendingLogAppend(msgspec.Struct, eq=False):
    """An append under way, from ``start`` to ``end``, counted from the log's first byte."""

    log: LogStream
    tail: LogTail
    start: int
    end: int
    pending: PendingAppend
    switch: PlogSwitch | None

    @property
    def position(self) -> LogPosition:
        """The position at which it ends."""
        return LogPosition(self.tail.plog_id, self.end - self.tail.start)

    @property
    def is_certain(self) -> bool:
        """Whether it becomes part of the log unless the store stops: no switch is left to be recorded."""
        return self.switch is None or self.switch.is_done

    @uninterrupted
    def result(self) -> int:
        """Wait until it is durable; return the log's offset at which it ends."""
        try:
            self.pending.result()
            if self.switch is not None and not self.switch.is_done:
                self.log.complete(self.switch)
        except PenstockError as error:
            self.log.give_up(self.tail, error)
            raise
        return self.end


class NextAppend(NamedTuple):
    """The place of the next append, as a position and as an offset counted from the log's first byte.

    ``in_order`` says that it becomes durable only after everything submitted before it, to any log.
    """

    position: LogPosition
    start: int
    in_order: bool
