"""The group commit: which appends share a journal object, and when they are acknowledged; without threads.

Groups have the numbers of their journal objects. Several are under way at the same time, and may become durable in any
order; they are acknowledged strictly in the order of their numbers. So whatever is acknowledged is in an object with no
gap before it, which is what a new owner reads.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from penstock.plog.objects._records import AppendRecord, pack_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog.objects._records import Record
    from penstock.plog.objects._settings import ObjectSettings
    from penstock.ports import Bytes

__all__ = ["GroupCommit", "JournalPut", "PartPut", "PutGroup", "PutTicket", "TicketSubject", "pack_group"]


class TicketSubject(Protocol):
    """The plog that a change is about."""

    @property
    def uid(self) -> bytes:
        """The uid of the plog."""

    @property
    def folder(self) -> str:
        """The prefix of the names of its objects."""

    def acknowledge(self, offset: int) -> None:
        """Note that everything up to ``offset`` is durable."""


class PutTicket(msgspec.Struct, eq=False):
    """A change under way: an append with its block, or another record."""

    group: PutGroup
    subject: TicketSubject
    record: Record | None  # None: an append
    block: tuple[Bytes, ...]
    size: int
    offset: int  # the subject acknowledges up to here when this is done

    @property
    def done(self) -> bool:
        """Whether the change is durable, or has failed."""
        return self.group.done.is_set()

    def result(self) -> int:
        """Wait until the change is durable; return the offset it reached."""
        self.group.wait()
        return self.offset


class PutGroup:
    """Changes that become durable with one journal object."""

    __slots__ = ("done", "error", "is_durable", "number", "pending", "put", "size", "tickets")

    def __init__(self) -> None:
        self.tickets: list[PutTicket] = []
        self.size = 0
        self.number = -1
        self.pending = 0  # how many groups before it were not acknowledged when it got its number
        self.is_durable = False
        self.put: JournalPut | None = None  # what it puts, once that is known
        self.error: Exception | None = None
        self.done = threading.Event()

    def wait(self) -> None:
        """Return once the group is acknowledged; raise the error that ended the store before."""
        self.done.wait()
        if self.error is not None:
            raise copy(self.error)  # a shared one would collect the traceback of every place it is raised at

    def finish(self, error: Exception | None = None) -> None:
        """Wake all that wait for the group."""
        self.error = error
        if error is None:  # else another thread may still be putting it
            for ticket in self.tickets:
                ticket.block = ()
            self.put = None
        self.done.set()


class PartPut(msgspec.Struct, frozen=True):
    """An object for the blocks of one plog, put before the journal object that refers to it."""

    name: str
    parts: tuple[Bytes, ...]


class JournalPut(msgspec.Struct, frozen=True):
    """The objects of a group: first its parts, then its journal object, which is ``head`` and ``blocks``."""

    records: list[Record]
    parts: list[PartPut]
    head: bytes
    blocks: list[Bytes]
    size: int


class GroupCommit:
    """The groups of one owner, from the open one to those under way; the caller holds a lock."""

    def __init__(self, settings: ObjectSettings, *, number: int) -> None:
        self._settings = settings
        self._number = number  # of the next group
        self._earliest = -math.inf  # the time before which the next group is not put, unless it is full
        self._open = PutGroup()
        self._full: deque[PutGroup] = deque()
        self._under_way: deque[PutGroup] = deque()
        self.error: Exception | None = None  # after which nothing is taken any more
        self.pending_size = 0
        self.acknowledged = number  # the number behind the last group that was acknowledged

    def add(self, subject: TicketSubject, record: Record | None, *block: Bytes, offset: int) -> PutTicket:
        """Add a change to the open group; it is full if it has as many bytes as a group may have."""
        group = self._open
        size = sum(map(len, block))
        ticket = PutTicket(group, subject, record, block, size, offset)
        group.tickets.append(ticket)
        group.size += size
        self.pending_size += size
        if group.size >= self._settings.group_size_max:
            self._full.append(group)
            self._open = PutGroup()
        return ticket

    def next(self, now: float, *, at_once: bool = False) -> PutGroup | float | None:
        """Return the group to put now, the seconds until there is one, or None: another call changes that."""
        if self.error is not None or len(self._under_way) >= self._settings.puts_in_flight_max:
            return None
        if self._full:
            group = self._full.popleft()
        elif not self._open.tickets:
            return None
        elif not at_once and (wait_s := self._earliest - now) > 0:
            return wait_s
        else:
            group, self._open = self._open, PutGroup()
        group.number, group.pending = self._number, self._number - self.acknowledged
        self._number += 1
        self._earliest = now + self._settings.group_wait_s
        self._under_way.append(group)
        return group

    def durable(self, group: PutGroup) -> Iterator[PutGroup]:
        """Note that the object of a group is there; return the groups that are to be acknowledged now, in order."""
        group.is_durable = True
        while self.error is None and self._under_way and self._under_way[0].is_durable:
            first = self._under_way.popleft()
            self.pending_size -= first.size
            self.acknowledged = first.number + 1
            yield first

    def fail(self, error: Exception) -> list[PutGroup]:
        """Take no more changes; return the groups that will never be acknowledged."""
        self.error = self.error or error
        groups = [group for group in (*self._under_way, *self._full, self._open) if group.tickets]
        self._under_way.clear()
        self._full.clear()
        self._open = PutGroup()
        self.pending_size = 0
        return groups

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not (self._under_way or self._full or self._open.tickets)


def pack_group(group: PutGroup, *, epoch: int, token: bytes, part_size_min: int) -> JournalPut:
    """Return the objects of a group: blocks of one plog lie together, and many bytes in an object of their own."""
    blocks: dict[int, list[PutTicket]] = {}  # of each plog, at its first append: a plog created again is another one
    order: list[tuple[Record | None, list[PutTicket]]] = []
    for ticket in group.tickets:
        if ticket.record is not None:
            order.append((ticket.record, []))
        elif id(ticket.subject) in blocks:
            blocks[id(ticket.subject)].append(ticket)
        else:
            blocks[id(ticket.subject)] = [ticket]
            order.append((None, blocks[id(ticket.subject)]))
    records: list[Record] = []
    parts: list[PartPut] = []
    inline: list[Bytes] = []
    position = 0
    for record, tickets in order:
        if record is not None:
            records.append(record)
            continue
        run = tuple(piece for ticket in tickets for piece in ticket.block)
        size = sum(ticket.size for ticket in tickets)
        part = None
        if size >= part_size_min:
            part = PartPut(f"{tickets[0].subject.folder}{epoch}-{group.number}-{len(parts)}.part", run)
            parts.append(part)
        else:
            inline += run
        records.append(_append(tickets, position=0 if part else position, part=part.name if part else None))
        position += 0 if part else size
    head = pack_table(records, epoch=epoch, number=group.number, token=token, data_size=position, pending=group.pending)
    return JournalPut(records, parts, head, inline, len(head) + position)


def _append(tickets: list[PutTicket], *, position: int, part: str | None) -> AppendRecord:
    sizes = np.array([sum(map(len, ticket.block[1:])) for ticket in tickets], "<u4").tobytes()
    first = tickets[0]
    offset = first.offset - sum(map(len, first.block[1:]))
    return AppendRecord(first.subject.uid, offset, sizes, position, part)
