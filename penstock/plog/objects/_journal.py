"""The journal of one owner: changes are put in groups, and applied to the state when they are acknowledged.

It has no thread of its own: any thread takes the next group and puts it. One lock guards the groups and the state; no
request is made under it.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import (
    CorruptData,
    PenstockError,
    PlogCorrupt,
    StorageUnavailable,
    StorageUnusable,
    StoreClosed,
    StoreFenced,
)
from penstock.plog._journal import SyncTimes
from penstock.plog.objects._commit import GroupCommit, pack_group
from penstock.plog.objects._records import FenceRecord, SealRecord, journal_name
from penstock.plog.objects._take_over import owner_since, read_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.errors import NoSuchObject
    from penstock.plog.objects._commit import JournalPut, PutGroup, PutTicket, TicketSubject
    from penstock.plog.objects._records import Record
    from penstock.plog.objects._requests import Requests
    from penstock.plog.objects._settings import ObjectSettings
    from penstock.plog.objects._take_over import Ownership
    from penstock.ports import Bytes, Clock

__all__ = ["Cache", "ObjectJournal"]

_log: Final = logging.getLogger("penstock.plog")
_GONE: Final = "the object is gone"


class Cache(Protocol):
    """Bytes of objects that this process has read or put."""

    def read(self, name: str, start: int, size: int) -> memoryview:
        """Return bytes of an object, from wherever they are nearest."""

    def add(self, name: str, data: bytes) -> None:
        """Add an object that was just put."""

    def prefetch(self, name: str, start: int, size: int) -> None:
        """Fetch bytes in the background that a reader will want next."""

    def drop(self, name: str) -> None:
        """Forget an object: it is deleted, or what is known of it is wrong."""

    def close(self) -> None:
        """Release everything."""


class ObjectJournal:
    """The changes of one owner, from :meth:`submit` to the acknowledgement."""

    def __init__(
        self, requests: Requests, cache: Cache, settings: ObjectSettings, ownership: Ownership, *, token: bytes,
        clock: Clock,
    ) -> None:  # fmt: skip
        self.requests: Final = requests
        self.cache: Final = cache
        self.settings: Final = settings
        self.ownership: Final = ownership
        self.token: Final = token
        self.state: Final = ownership.state
        self.retained: Final = ownership.journal  # the journal objects that may exist, and their sizes
        self.epoch: Final = ownership.epoch
        self.changed: Final = threading.Condition()
        self.syncs: Final = SyncTimes()
        self.size_since = self.objects_since = 0  # the last checkpoint
        self.sealed_since = True  # whether there may be a plog to compact, also of an owner before
        self.appended_size = 0
        self._clock = clock
        self._commit = GroupCommit(settings, number=ownership.number)
        self._closed = False

    @property
    def number(self) -> int:
        """The number behind the last group that was acknowledged; the caller holds the lock."""
        return self._commit.acknowledged

    @property
    def error(self) -> Exception | None:
        """The error that has ended it, if one has."""
        return self._commit.error

    @property
    def is_stopped(self) -> bool:
        """Whether an error has ended it."""
        return self._commit.error is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return self._commit.is_idle

    def submit(self, subject: TicketSubject, record: Record | None, *block: Bytes, offset: int) -> PutTicket:
        """Queue a change: a record, or the block of an append, whose header comes first."""
        with self.changed:
            self._check_open()
            ticket = self._commit.add(subject, record, *block, offset=offset)
            if len(ticket.group.tickets) == 1 or ticket.group.size >= self.settings.group_size_max:
                self.changed.notify_all()  # the sender has something to wait for, or need not wait any more
        return ticket

    def wait_for_space(self) -> None:
        """Return when there are fewer bytes pending than the limit."""
        if self._commit.pending_size >= self.settings.pending_size_max:
            with self.changed:
                self.changed.wait_for(
                    lambda: self.is_stopped or self._commit.pending_size < self.settings.pending_size_max
                )

    def take(self) -> PutGroup | float | None:
        """Return the group to put now, the seconds until there is one, or None; the caller holds the lock."""
        return self._commit.next(self._clock.elapsed(), at_once=self._closed)

    def put(self, group: PutGroup) -> None:
        """Put the objects of a group; acknowledge it, if those before it are."""
        self.run(lambda: self._put(group))

    def run(self, step: Callable[[], None]) -> None:
        """Do something for the store, which takes no more changes if that fails."""
        try:
            step()
        except (StoreFenced, StorageUnavailable, StorageUnusable) as error:
            self.stop(error)
        except Exception as error:  # noqa: BLE001 - no later group may be acknowledged, whatever it was
            _log.exception("the store at %s stops", self.requests.objects.where())
            self.stop(StorageUnavailable(self.requests.objects.where(), reason=f"{type(error).__name__}: {error}"))

    def _put(self, group: PutGroup) -> None:
        if self.is_stopped:
            return
        put = group.put = pack_group(
            group, epoch=self.epoch, token=self.token, part_size_min=self.settings.part_size_min
        )
        for part in put.parts:
            data = b"".join(part.parts)
            self.requests.put_own(part.name, data)
            self.cache.add(part.name, data)
        name, data = journal_name(group.number), b"".join((put.head, *put.blocks))
        began = self._clock.elapsed()
        if not self.requests.put_if_first(name, data, head_size=len(put.head)):
            raise self._fenced(group.number)
        self.syncs.note(self._clock.elapsed() - began)
        self.cache.add(name, data)
        with self.changed:
            for acknowledged in self._commit.durable(group):
                self._acknowledge(acknowledged)
            self.changed.notify_all()

    def _acknowledge(self, group: PutGroup) -> None:
        """Apply a group to the state, then let readers see it; the caller holds the lock."""
        put: JournalPut | None = group.put
        assert put is not None
        where = self.requests.objects.where(journal_name(group.number))
        for record in put.records:
            self.state.apply(record, number=group.number, epoch=self.epoch, data_start=len(put.head), where=where)
            if isinstance(record, SealRecord):
                self.sealed_since = True
        for ticket in group.tickets:
            ticket.subject.acknowledge(ticket.offset)
        self.retained[group.number] = put.size
        self.objects_since += 1
        self.size_since += put.size
        self.appended_size += group.size
        group.finish()

    def _fenced(self, number: int) -> StoreFenced:
        """Return the error of an owner that finds the object of another one at its next number."""
        owner = "another process"
        with suppress(PenstockError):
            stored = read_object(self.requests, number)
            match stored.records if stored is not None else []:
                case [FenceRecord(owner=name)]:
                    owner = name
        return StoreFenced(self.requests.objects.where(), owner=owner)

    def gone(self, error: NoSuchObject | CorruptData) -> PenstockError:
        """Return the error of a call that misses an object: a new owner has deleted it, or it was lost or damaged."""
        fenced = owner_since(self.requests, self.token)
        if fenced is not None:
            self.stop(fenced)
            return fenced
        return error if isinstance(error, CorruptData) else PlogCorrupt(error.where, offset=None, reason=_GONE)

    def stop(self, error: Exception) -> None:
        """Take no more changes; all that were not acknowledged fail with this error."""
        with self.changed:
            for group in self._commit.fail(error):
                group.finish(error)
            self.changed.notify_all()

    def check_running(self) -> None:
        """Raise the error that ended it, if one did."""
        if self._commit.error is not None:
            raise copy(self._commit.error)

    def _check_open(self) -> None:
        self.check_running()
        if self._closed:
            raise StoreClosed(f"the plog store {self.requests.objects.where()}")

    def drain(self) -> None:
        """Take no more changes, put what waits at once, and return when nothing is under way."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.is_stopped or self._commit.is_idle)
