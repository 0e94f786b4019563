"""The server's side of a partition: sessions, the fence, and what a request does to the replicas.

A request is a generator. It yields calls that may take long, such as a sync; the shell makes each without the host's
lock, and sends back the result or throws the error. Between them the generator runs with the lock held, and it touches
no disk, clock or socket except through :class:`ReplicaStorage`. So a simulator can stop it at any call, as a crash
would. It returns the answer, or None if there is nothing to answer.

Invariants:

- One session may change replicas: that of the highest epoch, and of its owner the latest. An epoch is durable before
  its session is welcomed, and counts in memory before that. An answer of a change leaves only if its session is still
  that one; so when a new owner is welcomed, no answer to an owner before it leaves any more.
- What a replica tells about its length includes every append that was acknowledged, and no append is under way then.
- Creations, seals and deletions of a session take effect in the order of their numbers, each once. One that arrives
  twice, or after a later one, is dropped. An append that was sent before its plog was created is dropped, too.
- A plog has one such change under way at a time; meanwhile others are refused. So a change that a slow disk holds up,
  perhaps that of an owner before, does not take effect after a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from penstock.errors import PenstockError, PlogExists, PlogSealed, WrongOffset
from penstock.model import PlogId
from penstock.plog.replicated._messages import (
    PROTOCOL,
    READ_COUNT_MAX,
    AppendKept,
    AppendReplica,
    CreateReplica,
    DeleteReplica,
    Hello,
    InspectReplica,
    ListReplicas,
    ReadReplica,
    Refusal,
    ReplicaAppended,
    ReplicaBlocks,
    ReplicaDone,
    ReplicaList,
    ReplicaState,
    SealReplica,
    Welcome,
)
from penstock.plog.replicated._reassembly import EarlyAppends
from penstock.plog.replicated._refusals import refusal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plog._interface import PendingAppend
    from penstock.plog._replica import PlogInfo
    from penstock.plog.replicated._messages import Answer, ReplicaRequest
    from penstock.ports import Bytes

__all__ = ["HostSession", "HostSteps", "ReplicaHost", "ReplicaStorage", "ServerIdentity"]

T = TypeVar("T")
HostSteps = Generator[Callable[[], Any], Any, T]
Reply = tuple["Answer", "Sequence[memoryview | bytes]"]
_IDS_MAX: Final = 1024


class ReplicaStorage(Protocol):
    """The replicas of one partition on the disk of a server, as :class:`penstock.plog.FilePlogs` keeps them."""

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the durable length, whether it is sealed, and the size."""

    def submit(self, plog_id: PlogId, offset: int, *data: Bytes) -> PendingAppend:
        """Append without waiting."""

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of these bytes, complete, with its own offset."""

    def create(self, *, size: int, plog_id: PlogId) -> PlogId:
        """Create a plog durably."""

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal a plog durably, at ``offset`` or its length if that is smaller."""

    def delete(self, plog_id: PlogId) -> None:
        """Delete a plog durably."""

    def replicas(self, after: bytes, limit: int) -> Sequence[tuple[bytes, PlogInfo | None]]:
        """Return up to ``limit`` replicas in the order of their uids, behind ``after``; without damaged ones.

        So that it does not take long, there may be fewer: then the last one is the next to be listed, with None.
        """

    def save_epoch(self, epoch: int, owner: bytes) -> None:
        """Make the epoch of the present owner durable; one that is lower than that saved before has no effect."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The place of a server: its cluster, its group, its id, and what tells its present run from earlier ones."""

    cluster: str
    group: str
    server: str
    instance: bytes


@dataclass(slots=True, eq=False)
class HostSession:
    """A session of a client; ``epoch`` is None for a reader."""

    epoch: int | None
    number: int
    last_change: int = 0  # the number of its last creation, seal or deletion


class ReplicaHost:
    """The replicas of one partition on one server, and the owner that may change them."""

    def __init__(
        self, identity: ServerIdentity, storage: ReplicaStorage, *, epoch: int = 0, owner: bytes = b""
    ) -> None:
        self._identity, self._storage = identity, storage
        self._epoch, self._owner = epoch, owner
        self._saved = (epoch, owner)
        self._session: HostSession | None = None
        self._early = EarlyAppends()
        self._last: dict[bytes, PendingAppend] = {}  # the last append under way, by uid
        self._created: dict[bytes, int] = {}  # by uid, the number of the present owner's request
        self._certain: set[bytes] = set()  # uids of open plogs that were created in this run of the server
        self._changing: set[bytes] = set()  # uids with a creation, seal or deletion under way
        self._ids: dict[bytes, PlogId] = {}  # those used last, because to make one takes longer than to look it up

    @property
    def epoch(self) -> int:
        """The highest epoch so far."""
        return self._epoch

    def open_session(self, hello: Hello) -> HostSteps[tuple[HostSession | None, Answer]]:
        """Open a session, and fence the sessions before it; return it with the answer, None if it is refused."""
        place = self._identity
        if hello.protocol != PROTOCOL:
            return None, Refusal("bad-request", PROTOCOL, f"this server speaks version {PROTOCOL} of the protocol")
        if (hello.cluster, hello.group) != (place.cluster, place.group):
            text = f"this is server {place.server} of group {place.group} in cluster {place.cluster}"
            return None, Refusal("bad-request", 0, text)
        session = HostSession(hello.epoch, hello.session)
        if hello.epoch is not None:
            refusal = yield from self._fence(session, hello.epoch, hello.owner)
            if refusal is not None:
                return None, refusal
        return session, Welcome(place.server, place.instance, self._epoch)

    def _fence(self, session: HostSession, epoch: int, owner: bytes) -> HostSteps[Refusal | None]:
        if epoch < self._epoch or (epoch == self._epoch and owner != self._owner):
            return Refusal("fenced", self._epoch)
        if epoch > self._epoch:
            self._created.clear()
        elif self._session is not None and session.number <= self._session.number:
            return Refusal("superseded")
        self._epoch, self._owner, self._session = epoch, owner, session
        self._early.clear()
        if self._saved != (epoch, owner):
            try:
                yield partial(self._storage.save_epoch, epoch, owner)
            except PenstockError as error:
                return refusal_of(error)
            if self._epoch == epoch:
                self._saved = (epoch, owner)
        return self._not_current(session)

    def is_current(self, session: HostSession) -> bool:
        """Return whether this session may change replicas."""
        return session is self._session

    def _not_current(self, session: HostSession) -> Refusal | None:
        """Return the refusal of a session that may not change anything, None if it may."""
        if session is self._session:
            return None
        if session.epoch is None or session.epoch < self._epoch:
            return Refusal("fenced", self._epoch)
        return Refusal("superseded")

    def handle(
        self, session: HostSession, number: int, request: ReplicaRequest, payload: Bytes, *, now: float
    ) -> HostSteps[Reply | None]:
        """Carry out a request."""
        self._early.expire(now)
        try:
            match request:
                case AppendReplica():
                    answer: Answer | None = yield from self._append(session, number, request, payload, now=now)
                case ReadReplica():
                    return (yield from self._read(request))
                case ListReplicas():
                    return (yield from self._list(request)), ()
                case InspectReplica():
                    answer = yield from self._inspect(session, request)
                case CreateReplica() | SealReplica() | DeleteReplica():
                    answer = yield from self._change(session, number, request)
                case _:
                    answer = Refusal("bad-request", 0, "a session begins once")
        except PenstockError as error:
            answer = refusal_of(error)
        return None if answer is None else (answer, ())

    def expire(self, now: float) -> None:
        """Free the memory of early appends that are too old."""
        self._early.expire(now)

    def _plog_id(self, uid: bytes) -> PlogId:
        plog_id = self._ids.get(uid)
        if plog_id is None:
            if len(self._ids) >= _IDS_MAX:
                self._ids.clear()
            plog_id = self._ids[uid] = PlogId(self._identity.cluster, self._identity.group, uid.hex())
        return plog_id

    def _append(
        self, session: HostSession, number: int, request: AppendReplica, payload: Bytes, *, now: float
    ) -> HostSteps[Answer | None]:
        uid, offset, end = request.uid, request.offset, request.offset + len(payload)
        refusal = self._not_current(session)
        if refusal is not None or number < self._created.get(uid, 0):
            return refusal
        plog_id = self._plog_id(uid)
        try:
            last = self._storage.submit(plog_id, offset, payload)
        except WrongOffset as error:
            if offset > error.expected:
                kept = self._early.add(uid, offset, payload, now=now)
                return AppendKept(error.expected) if kept else Refusal("wrong-offset", error.expected)
            repeated = end <= error.expected and (yield from self._is_there(plog_id, offset, payload))
            if not repeated:
                return Refusal("wrong-offset", error.expected)
            return self._not_current(session) or ReplicaAppended(end)
        self._last[uid] = last
        for data in self._early.take(uid, end):
            last = self._last[uid] = self._storage.submit(plog_id, end, data)
            end += len(data)
        try:
            yield last.result
        finally:
            self._done(uid, last)
        return self._not_current(session) or ReplicaAppended(end)

    def _is_there(self, plog_id: PlogId, offset: int, payload: Bytes) -> HostSteps[bool]:
        """Return whether these very bytes are in the replica, durably."""
        yield from self._drain(plog_id.uid_bytes)
        present = b"".join(self._part(plog_id, offset, len(payload)))
        return present == payload

    def _part(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        end = offset + size
        return [
            view[max(offset - start, 0) : end - start] for start, view in self._storage.blocks(plog_id, offset, size)
        ]

    def _drain(self, uid: bytes) -> HostSteps[None]:
        """Wait until no append to a plog is under way."""
        while (last := self._last.get(uid)) is not None:
            try:
                yield last.result
            finally:  # its own request may have to wait until this one is answered
                self._done(uid, last)

    def _done(self, uid: bytes, append: PendingAppend) -> None:
        """Note that an append is not under way any more."""
        if self._last.get(uid) is append:
            del self._last[uid]

    def _inspect(self, session: HostSession, request: InspectReplica) -> HostSteps[Answer]:
        if session.epoch is not None:
            refusal = self._not_current(session)
            if refusal is not None:
                return refusal
            yield from self._drain(request.uid)
        if request.uid in self._changing:
            return Refusal("busy")
        info = self._storage.info(self._plog_id(request.uid))
        return ReplicaState(info.length, info.sealed, info.size, request.uid in self._certain)

    def _change(
        self, session: HostSession, number: int, request: CreateReplica | SealReplica | DeleteReplica
    ) -> HostSteps[Answer | None]:
        refusal = self._not_current(session)
        if refusal is not None:
            return refusal
        if number <= session.last_change:
            return None
        session.last_change = number
        if request.uid in self._changing:
            return Refusal("busy")
        self._changing.add(request.uid)
        try:
            match request:
                case CreateReplica():
                    yield from self._create(number, request)
                case SealReplica():
                    refusal = yield from self._seal(request)
                case DeleteReplica():
                    self._forget(request.uid)
                    yield partial(self._storage.delete, self._plog_id(request.uid))
        finally:
            self._changing.discard(request.uid)
        return self._not_current(session) or refusal or ReplicaDone()

    def _create(self, number: int, request: CreateReplica) -> HostSteps[None]:
        """Create a replica; one that this owner has created, and that is empty, is the same creation, repeated."""
        plog_id = self._plog_id(request.uid)
        repeated = request.uid in self._created
        self._forget(request.uid)
        self._created[request.uid] = number
        try:
            yield partial(self._storage.create, size=request.size, plog_id=plog_id)
            self._certain.add(request.uid)
        except PlogExists:
            yield from self._drain(request.uid)
            info = self._storage.info(plog_id)
            if not repeated or info.sealed or info.length or info.size != request.size:
                del self._created[request.uid]  # it is another creation, also when this one is repeated
                raise

    def _seal(self, request: SealReplica) -> HostSteps[Refusal | None]:
        plog_id = self._plog_id(request.uid)
        yield from self._drain(request.uid)
        info = self._storage.info(plog_id)
        if info.length < request.length and not info.sealed:
            return Refusal("short", info.length)
        self._forget(request.uid)
        length = yield partial(self._storage.seal, plog_id, request.length)
        if length != request.length:
            raise PlogSealed(plog_id, sealed_offset=length)
        return None

    def _forget(self, uid: bytes) -> None:
        self._early.forget(uid)
        self._certain.discard(uid)
        self._created.pop(uid, None)

    def _read(self, request: ReadReplica) -> HostSteps[Reply]:
        read = partial(self._storage.blocks, self._plog_id(request.uid), request.offset, request.size)
        blocks = (yield read)[:READ_COUNT_MAX]
        start = blocks[0][0] if blocks else request.offset
        return ReplicaBlocks(start, [len(view) for _, view in blocks]), [view for _, view in blocks]

    def _list(self, request: ListReplicas) -> HostSteps[ReplicaList]:
        replicas = yield partial(self._storage.replicas, request.after, request.limit + 1)
        listed = [
            (uid, info.length, info.sealed, info.size) for uid, info in replicas[: request.limit] if info is not None
        ]
        return ReplicaList(listed, len(replicas) > len(listed))
