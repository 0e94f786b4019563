"""Plogs in an object store.

Appends of all plogs share the objects of a journal; see :mod:`penstock.plog.objects`. Locks are taken in this order: a
plog, the table, the journal. No lock is held while a request is under way.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock import forks
from penstock.errors import (
    BadArgument,
    NoSuchPlog,
    PlogCorrupt,
    PlogSealed,
    StorageUnavailable,
    StorageUnusable,
    StoreFenced,
)
from penstock.model import PlogId
from penstock.plog._block import LocatedBlocks, clip_extents, pack_block_header
from penstock.plog._head import BIRTH_SIZE
from penstock.plog._raw import RawBlocks, raw_of
from penstock.plog._replica import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX, PlogInfo, Replica
from penstock.plog.objects._closing import ClosingWatch
from penstock.plog.objects._identity import check_bucket, identify
from penstock.plog.objects._journal import ObjectJournal
from penstock.plog.objects._maintenance import StoreMaintenance
from penstock.plog.objects._read import read_slices
from penstock.plog.objects._records import TOKEN_SIZE, CreateRecord, DeleteRecord, SealRecord
from penstock.plog.objects._requests import Requests
from penstock.plog.objects._sender import Sender
from penstock.plog.objects._settings import ObjectSettings
from penstock.plog.objects._table import UsedPlog, UsedPlogs
from penstock.plog.objects._take_over import take_over
from penstock.ports import SystemClock, SystemRandom, owner_name, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.cpo import Lease
    from penstock.plog._bucket_use import BucketUse
    from penstock.plog._interface import PendingAppend
    from penstock.plog._journal import SyncTimes
    from penstock.plog._replica import BlockSlice
    from penstock.plog._replication_use import KnownPlogs
    from penstock.plog.objects._commit import PutTicket
    from penstock.plog.objects._journal import Cache
    from penstock.ports import Bytes, Clock, Objects, Random

__all__ = ["ObjectPlogs"]

_CLUSTER: Final = "local"
_GROUP: Final = "main"
_READERS: Final = 8


class _Uncached:
    """Reads every range from the bucket."""

    def __init__(self, objects: Objects) -> None:
        self.read = objects.get_range

    def add(self, name: str, data: bytes) -> None:
        """Ignore an object that was just put."""

    def prefetch(self, name: str, start: int, size: int) -> None:
        """Fetch nothing before it is read."""

    def drop(self, name: str) -> None:
        """Forget nothing."""

    def close(self) -> None:
        """Release nothing."""


class _EmptyAppend:
    """An append of nothing to a plog with nothing under way."""

    __slots__ = ("_offset",)

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def result(self) -> int:
        """Return the plog's offset."""
        return self._offset


class ObjectPlogs:
    """The plogs below a prefix of a bucket: the implementation of :class:`penstock.plog.Plogs` on any objects."""

    def __init__(
        self, objects: Objects, *, settings: ObjectSettings | None = None, cache: Cache | None = None,
        random: Random | None = None, clock: Clock | None = None, use: Callable[[float], BucketUse] | None = None,
        own: Callable[[], Lease] | None = None,
    ) -> None:  # fmt: skip
        self._use = use
        self._settings = settings or ObjectSettings()
        self._random = random or SystemRandom()
        self._objects = objects
        clock, token, owner = clock or SystemClock(), self._random.token(TOKEN_SIZE), owner_name()
        forks.guard(self)
        requests = Requests(
            objects, clock=clock, pause=threading.Event().wait, unavailable_max_s=self._settings.unavailable_max_s
        )
        identify(requests, self._random.token(TOKEN_SIZE))
        check_bucket(requests, token)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="penstock-recovery") as pool:
            ownership = take_over(requests, token=token, owner=owner, now=clock.now(), run=pool.map)
        self._lease = None if own is None else own()
        self._journal = ObjectJournal(
            requests, cache or _Uncached(objects), self._settings, ownership, token=token, clock=clock
        )
        self._table = UsedPlogs(self._journal)
        sender = Sender(self._journal, StoreMaintenance(self._journal, owner=owner), self._table.trim)
        self._sender = sender
        self._watch = ClosingWatch(self._journal, lambda: sender.is_closing or not self._journal.is_idle, clock)

    @property
    def syncs(self) -> SyncTimes:
        """The durations of the puts of journal objects."""
        return self._journal.syncs

    @property
    def bucket_use(self) -> BucketUse | None:
        """The requests to the bucket and what its cache has saved, where they are counted."""
        return None if self._use is None else self._use(self._journal.requests.silent_s)

    @property
    def replication_use(self) -> None:
        """Nothing: these plogs are in a bucket."""
        return

    @property
    def is_replicated(self) -> bool:
        """False: the object store keeps its own copies."""
        return False

    def check_running(self) -> None:
        """Raise the error that stopped the store, if one did: ``StoreFenced`` or ``StorageUnavailable``."""
        self._journal.check_running()

    def new_id(self) -> PlogId:
        """Return a new unique id; nothing is created."""
        return PlogId.new(cluster=_CLUSTER, group=_GROUP, random=self._random)

    @uninterrupted
    def create(self, *, size: int = PLOG_SIZE_DEFAULT, plog_id: PlogId | None = None) -> PlogId:
        """Create a plog that takes ``size`` bytes, under a new id if none is given."""
        plog_id = plog_id or self.new_id()
        self._submit_create(plog_id, size).result()
        return plog_id

    @uninterrupted
    def create_all(self, sizes: Mapping[PlogId, int]) -> None:
        """Create plogs, each with its size; they are in one object, if it holds so much."""
        for pending in [self._submit_create(plog_id, size) for plog_id, size in sizes.items()]:
            pending.result()

    def _submit_create(self, plog_id: PlogId, size: int) -> PendingAppend:
        if not 0 < size <= PLOG_SIZE_MAX or size != int(size):
            raise BadArgument(f"invalid plog size {size!r}: use a whole number from 1 to {PLOG_SIZE_MAX:,}")
        birth = self._random.token(BIRTH_SIZE)
        plog = UsedPlog(Replica(plog_id, size=size, birth=birth), birth=birth, stored=None)
        with plog.lock:
            self._table.add(plog)
            try:
                record = CreateRecord(plog_id.cluster, plog_id.group, plog_id.uid_bytes, size, birth)
                pending = plog.last = self._submit(plog, record)
            except BaseException:
                self._table.forget(plog)
                raise
        return pending

    @uninterrupted
    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Append ``data``, all parts as one, at the current ``offset``; return the new offset once it is durable."""
        return self.submit(plog_id, offset, *data).result()

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting, unless there are many bytes under way.

        The caller is within a step that no signal interrupts, also while it waits for the result. Callers reuse their
        buffers, and a group waits for others before it is put, so bytes that may change are copied.
        """
        body: list[Bytes] = [part if type(part) is bytes else bytes(memoryview(part).cast("B")) for part in data]
        size = sum(map(len, body))
        self._journal.wait_for_space()
        plog = self._table.find(plog_id)
        self._journal.check_running()
        with plog.lock:
            if plog.fence is not None:
                raise PlogSealed(plog_id, sealed_offset=plog.fence)
            replica = plog.replica
            replica.check_append(offset, size)
            if not size:
                return plog.last or _EmptyAppend(offset)
            header = pack_block_header(replica.key, offset=offset, body=body, body_size=size)
            end = replica.placed(size)  # first: it may be acknowledged before the next line
            plog.last = self._submit(plog, None, header, *body, offset=end)
            return plog.last

    def _submit(
        self, plog: UsedPlog, record: CreateRecord | SealRecord | DeleteRecord | None, *block: Bytes, offset: int = 0
    ) -> PutTicket:
        self._sender.begin()
        return self._journal.submit(plog, record, *block, offset=offset)

    def keeps_order(self, plog_id: PlogId, size: int) -> bool:
        """Return True: groups become durable in the order of their submission, with all that is in them."""
        self._table.find(plog_id)
        return True

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``offset``; no copy where they were appended in one piece."""
        views = self.views(plog_id, offset, size)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    @uninterrupted
    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return ``size`` bytes at ``offset`` as they were appended, piece by piece, without a copy."""
        plog = self._table.find(plog_id)
        with plog.lock:
            slices = list(plog.replica.slices(offset, size))
        return self._slices_read(plog, slices)

    @uninterrupted
    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of ``size`` bytes at ``offset``, complete, with its own offset."""
        plog = self._table.find(plog_id)
        with plog.lock:
            offset, size = plog.replica.widen(offset, size)
            slices = list(plog.replica.slices(offset, size))
        views = self._slices_read(plog, slices)
        starts = accumulate(map(len, views), initial=offset)
        return list(zip(starts, views, strict=False))

    def _slices_read(self, plog: UsedPlog, slices: list[BlockSlice]) -> list[memoryview]:
        if not slices:
            return []
        stored = self._table.stored(plog)
        plog.ahead.note(self._journal.cache, stored, slices)
        try:
            return read_slices(self._journal, stored, plog.replica, slices)
        except PlogCorrupt as error:
            if plog.is_deleted or plog.uid not in self._journal.state:
                raise NoSuchPlog(plog.plog_id) from error  # deleted meanwhile
            raise

    @uninterrupted
    def locate(self, plog_id: PlogId, offset: int, size: int) -> LocatedBlocks:
        """Return the places of those appends, so that another process can read them from the objects."""
        plog = self._table.find(plog_id)
        with plog.lock:
            replica = plog.replica
            offset, size = replica.widen(offset, size)
            slices = list(replica.slices(offset, size))
            offsets = np.array([*(replica.starts[part.index] for part in slices), offset + size], "<u4")
        if not slices:
            return LocatedBlocks(self._objects.where(), replica.key, 0, offsets.tobytes())
        located = LocatedBlocks(self._objects.where(), replica.key, slices[0].index, offsets.tobytes())
        extents = [(extent.name, *extent[1:]) for extent in self._table.stored(plog).extents]
        return replace(located, extents=clip_extents(extents, located.begin, located.end))

    @uninterrupted
    def cut(self, plog_ids: Sequence[PlogId]) -> dict[PlogId, PlogInfo]:
        """Return the state of plogs, all at one moment."""
        with self._journal.changed:  # held while groups are acknowledged
            states = ((plog_id, self._state_of(plog_id)) for plog_id in plog_ids)
            return {plog_id: state for plog_id, state in states if state is not None}

    def _state_of(self, plog_id: PlogId) -> PlogInfo | None:
        """Return the state of a plog; the caller holds the lock of the journal."""
        homes, plogs, uid = self._journal.state.homes, self._journal.state.plogs, plog_id.uid_bytes
        if uid in homes:
            return PlogInfo(homes[uid].length, sealed=True, size=homes[uid].size)
        if uid not in plogs:
            return None
        return PlogInfo(plogs[uid].length, plogs[uid].sealed, plogs[uid].size)

    def raw(self, plog_id: PlogId, offset: int, end: int, *, limit: int) -> RawBlocks:
        """Return complete blocks up to ``end``, or at least one if they have more than ``limit`` bytes."""
        plog = self._table.find(plog_id)
        with plog.lock:
            key, size = plog.replica.key, plog.replica.size
            _, _, last = plog.replica.raw_span(offset, end, limit=limit)
        return RawBlocks(key, size, offset, last, raw_of(key, self.blocks(plog_id, offset, last - offset)))

    def key(self, plog_id: PlogId) -> bytes:
        """Return the uid and the birth of a plog."""
        return self._table.find(plog_id).replica.key

    @uninterrupted
    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal the plog, so that it takes no more appends; return its length: ``offset``, or less if it holds less."""
        with self._quiet(plog_id, fence=offset) as plog:
            length = plog.replica.check_seal(offset)
            if not plog.replica.sealed:
                self._journal.check_running()
                plog.last = self._submit(plog, SealRecord(plog.uid, length))
                plog.replica.seal(length)
            last = plog.last
        if last is not None:  # the seal of another thread may not be durable yet
            last.result()
        return length

    @uninterrupted
    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the plog's length, whether it is sealed, and its size."""
        self._table.check_open()
        home = self._journal.state.homes.get(plog_id.uid_bytes)
        if home is not None and home.plog_id == plog_id:
            return PlogInfo(home.length, sealed=True, size=home.size)
        return self._table.find(plog_id).replica.info()

    @uninterrupted
    def delete(self, plog_id: PlogId) -> None:
        """Delete the plog; its objects go with the next checkpoint. Views of it stay valid."""
        with self._quiet(plog_id, fence=PLOG_SIZE_MAX) as plog:
            self._journal.check_running()
            self._table.begin_deletion(plog)
            ticket = self._submit(plog, DeleteRecord(plog.uid))
        ticket.result()
        self._table.forget(plog)

    def where(self, plog_id: PlogId) -> str:
        """Return the address of the plog, whether it exists or not."""
        return self._objects.where(f"plogs/{plog_id.uid}")

    @property
    def lease(self) -> Lease | None:
        """The lease of this owner in the oracle: the journal fences appends, but not what is published there."""
        return self._lease

    def set_known(self, known: KnownPlogs) -> None:
        """Do nothing: no plog comes back that was deleted."""

    def prepare_close(self) -> None:
        """Give a bucket up from now on that does not answer for some seconds; until then, all is as before."""
        self._watch.begin()

    @uninterrupted
    def close(self) -> None:
        """Make everything durable, replace the checkpoint, and release the bucket.

        ``StorageUnavailable`` if the bucket does not answer for some seconds; what was acknowledged is durable.
        """
        if not self._table.close():
            return
        self.prepare_close()
        self._sender.close()
        self._watch.end()
        self._journal.cache.close()
        self._objects.close()
        self._journal.check_running()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error raised in the block is not replaced by another."""
        with suppress(StoreFenced, StorageUnavailable, StorageUnusable) if error is not None else nullcontext():
            self.close()

    @contextmanager
    def _quiet(self, plog_id: PlogId, *, fence: int) -> Iterator[UsedPlog]:
        """Hold the lock of a plog with no append under way; new appends are refused while it waits for the others."""
        while True:
            plog = self._table.find(plog_id)
            with plog.lock:
                plog.fence = None
                if plog.is_deleted:
                    raise NoSuchPlog(plog_id)
                if plog.last is None or plog.replica.written == plog.replica.acked:
                    yield plog
                    return
                self._journal.check_running()
                plog.fence, last = min(max(fence, 0), plog.replica.written), plog.last
            try:
                last.result()
            except BaseException:
                plog.fence = None
                raise
