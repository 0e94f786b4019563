"""The plogs that are in use: the rules for changing each, and the calls under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchObject, NoSuchPlog, PlogCorrupt, PlogExists, StoreClosed, StoreFenced
from penstock.plog.objects._read import load_home
from penstock.plog.objects._read_ahead import ReadAhead
from penstock.plog.objects._state import folder_of

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog._replica import Replica
    from penstock.plog.objects._commit import PutTicket
    from penstock.plog.objects._journal import ObjectJournal
    from penstock.plog.objects._state import Home, PlogState

__all__ = ["UsedPlog", "UsedPlogs"]

_SETTLED_MAX: Final = 1024


class UsedPlog:
    """A plog in use."""

    __slots__ = ("ahead", "birth", "fence", "is_deleted", "last", "lock", "plog_id", "replica", "stored")

    def __init__(self, replica: Replica, *, birth: bytes, stored: PlogState | None) -> None:
        self.plog_id: Final = replica.plog_id
        self.birth: Final = birth
        self.replica: Final = replica
        self.stored = stored  # None until its creation is acknowledged
        self.lock: Final = threading.Lock()
        self.last: PutTicket | None = None
        self.fence: int | None = None  # the offset of a seal that waits for the appends under way
        self.is_deleted = False
        self.ahead: Final = ReadAhead()

    @property
    def uid(self) -> bytes:
        """The uid of the plog."""
        return self.plog_id.uid_bytes

    @property
    def folder(self) -> str:
        """The prefix of the names of its objects."""
        return folder_of(self.plog_id, self.birth)

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``."""
        self.replica.acknowledge(offset)


class UsedPlogs:
    """The plogs of a store by their uid; those with an object of their own are forgotten when others are used."""

    def __init__(self, journal: ObjectJournal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._open: dict[bytes, UsedPlog] = {}
        self._settled: OrderedDict[bytes, UsedPlog] = OrderedDict()
        self._closed = False

    def find(self, plog_id: PlogId) -> UsedPlog:
        """Return a plog; ``NoSuchPlog`` if there is none."""
        uid = plog_id.uid_bytes
        plog = self._open.get(uid)
        if plog is None or self._closed or self._journal.is_stopped:
            self.check_open()
            plog = self._find(uid, plog_id)
        if plog.plog_id != plog_id or plog.is_deleted:
            raise NoSuchPlog(plog_id)
        return plog

    def _find(self, uid: bytes, plog_id: PlogId) -> UsedPlog:
        with self._lock:
            self._check_open()
            plog = self._known(uid)
            if plog is not None:
                return plog
            home = self._journal.state.homes.get(uid)
        if home is None or home.plog_id != plog_id:
            raise NoSuchPlog(plog_id)
        stored = self._load(home)
        with self._lock:
            plog = self._known(uid)
            if plog is None:
                if self._journal.state.homes.get(uid) is not home:
                    raise NoSuchPlog(plog_id)  # deleted meanwhile
                plog = self._settled[uid] = UsedPlog(stored.replica(), birth=stored.birth, stored=stored)
            return plog

    def _load(self, home: Home) -> PlogState:
        journal = self._journal
        try:
            try:
                return load_home(journal.requests, home.name, journal.cache.read)
            except PlogCorrupt:  # the copy, perhaps
                journal.cache.drop(home.name)
                return load_home(journal.requests, home.name)
        except NoSuchObject as error:
            if journal.state.homes.get(home.plog_id.uid_bytes) is not home:
                raise NoSuchPlog(home.plog_id) from error  # deleted meanwhile
            raise journal.gone(error) from error

    def _known(self, uid: bytes) -> UsedPlog | None:
        """Return the plog if no request is needed for it; the caller holds the lock."""
        plog = self._open.get(uid)
        if plog is None and (plog := self._settled.get(uid)) is not None:
            self._settled.move_to_end(uid)
        stored = self._journal.state.plogs.get(uid) if plog is None else None
        if stored is not None:
            plog = self._open[uid] = UsedPlog(stored.replica(), birth=stored.birth, stored=stored)
        return plog

    def stored(self, plog: UsedPlog) -> PlogState:
        """Return where the blocks of a plog lie."""
        if plog.stored is None:
            with self._journal.changed:
                plog.stored = self._journal.state.plogs.get(plog.uid)
                home = self._journal.state.homes.get(plog.uid)
            if plog.stored is None:
                if home is None:
                    raise NoSuchPlog(plog.plog_id)
                plog.stored = self._load(home)
        return plog.stored

    def add(self, plog: UsedPlog) -> None:
        """Add a plog that is being created; ``PlogExists`` if there is one with its uid."""
        with self._lock:
            self._check_open()
            if plog.uid in self._open or plog.uid in self._settled or plog.uid in self._journal.state:
                raise PlogExists(plog.plog_id)
            self._open[plog.uid] = plog

    def begin_deletion(self, plog: UsedPlog) -> None:
        """Let no other call use a plog; ``NoSuchPlog`` if another call deletes it."""
        with self._lock:
            current = self._open.get(plog.uid) or self._settled.get(plog.uid)
            if current is None and plog.uid in self._journal.state:
                current = plog  # it was trimmed
            if current is None or current.is_deleted or current.birth != plog.birth:
                raise NoSuchPlog(plog.plog_id)
            plog.is_deleted = True
            self._open[plog.uid] = plog  # until it is deleted, there is none with its uid
            self._settled.pop(plog.uid, None)

    def forget(self, plog: UsedPlog) -> None:
        """Remove a plog that is deleted, or was not created."""
        with self._lock:
            if self._open.get(plog.uid) is plog:
                del self._open[plog.uid]

    def trim(self) -> None:
        """Forget plogs that have an object of their own, so that only some of them are in memory."""
        with self._lock:
            for uid in [uid for uid in self._open if uid in self._journal.state.homes]:
                if not self._open[uid].is_deleted:
                    self._settled[uid] = self._open.pop(uid)
            while len(self._settled) > _SETTLED_MAX:
                self._settled.popitem(last=False)

    def check_open(self) -> None:
        """Raise ``StoreClosed`` after :meth:`close`, and ``StoreFenced`` if there is a new owner, which knows more."""
        self._check_open()
        if isinstance(self._journal.error, StoreFenced):
            self._journal.check_running()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the plog store {self._journal.requests.objects.where()}")

    def close(self) -> bool:
        """Let no call begin; return whether it was open."""
        with self._lock:
            was_open, self._closed = not self._closed, True
            return was_open
