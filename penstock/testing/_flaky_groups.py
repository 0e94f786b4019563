"""Plogs in several groups that fail: any plogs, as if the replicas of each were on the servers of its group.

A group fails where a test plans it, or by chance. If it fails at an append, the plog has lost a replica: no append
under way is acknowledged any more, and a seal decides how many of them are kept, by chance. If it fails at another
call, the call may have been carried out. A group that is stopped answers nothing.

As on real replicas, an open plog that another owner wrote is sealed before its length is known.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec

from penstock.errors import GroupUnavailable, PlogExists, ReadOutOfRange, ReplicaLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.model import PlogId
    from penstock.plog import LocatedBlocks, PendingAppend, PlogInfo, Plogs, RawBlocks

__all__ = ["FlakyGroups", "GroupCall"]

GroupCall: TypeAlias = Literal["create", "append", "result", "seal", "info", "delete"]
T = TypeVar("T")
_AVOIDED = 4  # as many new ids are not in a group after it failed


@dataclass(slots=True)
class _GroupFault:
    """A planned failure of the ``calls_left``-th call, or of all with None."""

    on: GroupCall
    group: str | None
    after: bool
    calls_left: int | None

    def takes(self, call: GroupCall, group: str) -> bool:
        if call != self.on or self.group not in {None, group}:
            return False
        if self.calls_left is None:
            return True
        self.calls_left -= 1
        return self.calls_left == 0


@dataclass(slots=True)
class _OwnedPlog:
    """A plog of this owner: where its appends end, the last one, and its length when it lost a replica."""

    ends: deque[int] = field(default_factory=deque)
    last: PendingAppend | None = None
    committed: int | None = None  # None: it has all replicas


class _FlakyAppend:
    """An append under way, of which a replica may be lost before it is acknowledged."""

    def __init__(self, groups: FlakyGroups, plog_id: PlogId, end: int, pending: PendingAppend) -> None:
        self._groups, self._plog_id, self._end, self._pending = groups, plog_id, end, pending

    def result(self) -> int:
        """Wait until it is durable."""
        return self._groups.acknowledged(self._plog_id, self._end, self._pending)


class FlakyGroups:
    """Plogs in ``groups`` groups, of which every call fails with ``chance``, by this seed: see the module."""

    is_replicated = True
    lease = None

    def __init__(
        self,
        plogs: Plogs,
        *,
        groups: int = 3,
        chance: float = 0.0,
        seed: int = 0,
        on: frozenset[GroupCall] = frozenset({"create", "append", "result"}),
    ) -> None:
        self._plogs, self._chance, self._on = plogs, chance, on
        self._random = Random(seed)
        self._lock = threading.RLock()
        self._rules: list[_GroupFault] = []
        self._owned: dict[PlogId, _OwnedPlog] = {}
        self._avoided = {f"g{number}": 0 for number in range(groups)}
        self._stopped: set[str] = set()
        self.losses = 0
        """The number of plogs that have lost a replica."""
        self.syncs, self.bucket_use, self.where = plogs.syncs, plogs.bucket_use, plogs.where
        self.replication_use = plogs.replication_use
        self.check_running, self.prepare_close = plogs.check_running, plogs.prepare_close
        self.set_known = plogs.set_known

    def fail(self, on: GroupCall, *, group: str | None = None, call: int | None = 1, after: bool = False) -> None:
        """Let the ``call``-th call of a kind from now on fail, or every one with None; ``after`` it was carried out."""
        with self._lock:
            self._rules.append(_GroupFault(on, group, after, call))

    def stop(self, *groups: str) -> None:
        """Let these groups, or all, answer nothing any more."""
        with self._lock:
            self._stopped.update(groups or self._avoided)

    def heal(self) -> None:
        """Start all groups again, and let none fail from now on; plogs that have lost a replica stay as they are."""
        with self._lock:
            self._rules.clear()
            self._stopped.clear()
            self._chance = 0.0

    def _fate(self, call: GroupCall, plog_id: PlogId) -> Literal["before", "after"] | None:
        """Return whether a call fails, before or after it is carried out."""
        with self._lock:
            self._check_running(plog_id)
            rules = [rule for rule in self._rules if rule.takes(call, plog_id.group)]
            if not rules and not (call in self._on and self._random.random() < self._chance):
                return None
            self._avoided[plog_id.group] = _AVOIDED
            return "after" if (rules[0].after if rules else self._random.random() < 0.5) else "before"

    def _check_running(self, plog_id: PlogId) -> None:
        if plog_id.group in self._stopped:
            raise GroupUnavailable(plog_id.group, reason="no server answers")

    def _call(self, call: GroupCall, plog_id: PlogId, do: Callable[[], T]) -> T:
        fate = self._fate(call, plog_id)
        if fate == "before":
            raise GroupUnavailable(plog_id.group, reason=f"planned before {call}")
        result = do()
        if fate == "after":
            raise GroupUnavailable(plog_id.group, reason=f"planned after {call}")
        return result

    def new_id(self) -> PlogId:
        """Return a new id, in a group that has not failed lately, if there is one."""
        with self._lock:
            least = min(self._avoided.values())
            group = self._random.choice([name for name, avoided in self._avoided.items() if avoided == least])
            self._avoided = {name: max(avoided - 1, 0) for name, avoided in self._avoided.items()}
        return msgspec.structs.replace(self._plogs.new_id(), cluster="flaky", group=group)

    def create(self, *, size: int = 16 << 20, plog_id: PlogId | None = None) -> PlogId:
        """Create a plog; again, if this owner has created it and not written to it."""
        plog_id = plog_id or self.new_id()

        def create() -> PlogId:
            try:
                self._plogs.create(size=size, plog_id=plog_id)
            except PlogExists:
                if plog_id not in self._owned or self._plogs.info(plog_id).size != size:
                    raise
            self._owned.setdefault(plog_id, _OwnedPlog())
            return plog_id

        return self._call("create", plog_id, create)

    def create_all(self, sizes: Mapping[PlogId, int]) -> None:
        """Create plogs, one after another."""
        for plog_id, size in sizes.items():
            self.create(plog_id=plog_id, size=size)

    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Append, and wait until all replicas have it."""
        return self.submit(plog_id, offset, *data).result()

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting."""
        with self._lock:
            plog = self._plog(plog_id)
            if plog.committed is not None and not self._plogs.info(plog_id).sealed:
                raise ReplicaLost(plog_id, server="s1", reason="an append before was lost")
            fate = self._fate("append", plog_id)
            if fate == "before":
                raise self._lose(plog_id, plog)
            pending = plog.last = self._plogs.submit(plog_id, offset, *data)
            end = offset + sum(memoryview(part).nbytes for part in data)
            plog.ends.append(end)
            if fate == "after":
                raise self._lose(plog_id, plog)
        return _FlakyAppend(self, plog_id, end, pending)

    def acknowledged(self, plog_id: PlogId, end: int, pending: PendingAppend) -> int:
        """Wait until an append is durable; ``ReplicaLost`` if a replica was lost before it was acknowledged."""
        with self._lock:
            plog = self._owned.get(plog_id)
            if plog is not None and plog.committed is None and self._fate("result", plog_id) is not None:
                self._lose(plog_id, plog)
        pending.result()
        with self._lock:
            if plog is not None and plog.committed is not None and end > plog.committed:
                raise ReplicaLost(plog_id, server="s2", reason="planned before the acknowledgement")
        return end

    def _plog(self, plog_id: PlogId) -> _OwnedPlog:
        return self._owned.setdefault(plog_id, _OwnedPlog())

    def _lose(self, plog_id: PlogId, plog: _OwnedPlog) -> ReplicaLost:
        plog.committed = self._plogs.info(plog_id).length
        self.losses += 1
        return ReplicaLost(plog_id, server="s0", reason="planned")

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal a plog, at any of the appends that were not acknowledged if it has lost a replica."""
        return self._call("seal", plog_id, lambda: self._seal(plog_id, offset))

    def _seal(self, plog_id: PlogId, offset: int) -> int:
        with self._lock:
            plog = self._plog(plog_id)
            if plog.committed is not None and plog.last is not None and not self._plogs.info(plog_id).sealed:
                plog.last.result()
                length = self._plogs.info(plog_id).length
                ends = [end for end in plog.ends if plog.committed <= end <= length]
                offset = min(offset, self._random.choice([plog.committed, *ends]))
        return self._plogs.seal(plog_id, offset)

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the length up to which all replicas are known to agree; decide it first for another owner's plog."""

        def inspect() -> PlogInfo:
            info = self._plogs.info(plog_id)
            if info.sealed:
                return info
            if plog_id not in self._owned:
                with self._lock:
                    return replace(info, length=self._plogs.seal(plog_id, info.size), sealed=True)
            committed = self._owned[plog_id].committed
            return info if committed is None else replace(info, length=committed)

        return self._call("info", plog_id, inspect)

    def delete(self, plog_id: PlogId) -> None:
        """Delete a plog."""

        def delete() -> None:
            self._plogs.delete(plog_id)
            self._owned.pop(plog_id, None)

        self._call("delete", plog_id, delete)

    def keeps_order(self, plog_id: PlogId, size: int) -> bool:
        """Return False: groups do not wait for each other."""
        return False

    @contextmanager
    def _readable(self, plog_id: PlogId, offset: int, size: int) -> Iterator[None]:
        self._check_running(plog_id)
        plog = self._owned.get(plog_id)
        if plog is not None and plog.committed is not None and offset + size > plog.committed:
            length = self.info(plog_id).length
            if offset + size > length:
                raise ReadOutOfRange(plog_id, offset=offset, size=size, length=length)
        yield

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return acknowledged bytes."""
        with self._readable(plog_id, offset, size):
            return self._plogs.read(plog_id, offset, size)

    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return acknowledged bytes, piece by piece."""
        with self._readable(plog_id, offset, size):
            return self._plogs.views(plog_id, offset, size)

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return acknowledged appends."""
        with self._readable(plog_id, offset, size):
            return self._plogs.blocks(plog_id, offset, size)

    def locate(self, plog_id: PlogId, offset: int, size: int) -> LocatedBlocks:
        """Return the places of acknowledged appends."""
        with self._readable(plog_id, offset, size):
            return self._plogs.locate(plog_id, offset, size)

    def cut(self, plog_ids: Sequence[PlogId]) -> dict[PlogId, PlogInfo]:
        """Return how far all replicas are known to agree, at one moment."""
        with self._lock:
            found = self._plogs.cut(plog_ids)
            lost = {plog_id: self._owned[plog_id].committed for plog_id in found if plog_id in self._owned}
        return {
            plog_id: info if info.sealed or (length := lost.get(plog_id)) is None else replace(info, length=length)
            for plog_id, info in found.items()
        }

    def raw(self, plog_id: PlogId, offset: int, end: int, *, limit: int) -> RawBlocks:
        """Return acknowledged appends, as they are stored."""
        with self._readable(plog_id, offset, end - offset):
            return self._plogs.raw(plog_id, offset, end, limit=limit)

    def key(self, plog_id: PlogId) -> bytes:
        """Return the uid and the birth of a plog."""
        return self._plogs.key(plog_id)

    def close(self) -> None:
        """Close the plogs."""
        self._plogs.close()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self._plogs.__exit__(kind, error, trace)
