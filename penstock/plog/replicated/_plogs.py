"""Plogs on three servers, as :class:`penstock.plog.Plogs`: the shell around the protocols of this package."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from penstock import forks
from penstock.errors import (
    BadArgument,
    GroupUnavailable,
    LeaseLost,
    NoSuchPlog,
    PenstockError,
    PlogSealed,
    PlogServerRefused,
    ReadOutOfRange,
    StoreClosed,
    StoreFenced,
)
from penstock.model import PlogId
from penstock.plog._block import LocatedBlocks
from penstock.plog._head import BIRTH_SIZE
from penstock.plog._journal import SyncTimes
from penstock.plog._raw import RawBlocks, raw_of
from penstock.plog._replica import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX, PlogInfo
from penstock.plog.replicated._actions import Ask, AwaitQuiet, NoteCopied, NoteCut, ReadRow, RemoveRow, WriteRow
from penstock.plog.replicated._appends import OpenReplicatedPlog, committed_offsets
from penstock.plog.replicated._disks import RefusingDisks
from penstock.plog.replicated._groups import GroupChoice
from penstock.plog.replicated._link import LinkObserver, ServerAccess, ServerLink
from penstock.plog.replicated._links import GroupLinks
from penstock.plog.replicated._messages import PROTOCOL, READ_SIZE_MAX, Hello
from penstock.plog.replicated._owned import OwnedPlogs
from penstock.plog.replicated._reader import AnswerReader
from penstock.plog.replicated._reads import read_blocks
from penstock.plog.replicated._repairer import Repairer
from penstock.plog.replicated._use import replication_use_of
from penstock.plog.replicated._window import REPLICA_WAIT_S, REPLICAS
from penstock.ports import SystemRandom, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from penstock.cpo import Lease
    from penstock.plog._interface import PendingAppend
    from penstock.plog._replication_use import KnownPlogs, ReplicationUse
    from penstock.plog.replicated._actions import ReplicaSteps
    from penstock.plog.replicated._messages import Welcome
    from penstock.plog.replicated._rows import OracleRows
    from penstock.ports import Bytes

__all__ = ["ReplicatedPlogs"]

T = TypeVar("T")
_LOCKS: Final = 256  # plogs share them
_CUT: Final = "plog %s ends at %d, though a server has %d bytes: if two of its folders were set back, data is lost"
_logger: Final = logging.getLogger("penstock.plogs")


class ReplicatedPlogs(LinkObserver, forks.Handle):
    """The plogs of one partition on the groups of a cluster, for their owner."""

    def __init__(
        self,
        cluster: str,
        groups: Mapping[str, tuple[str, ...]],
        *,
        partition: str,
        epoch: int,
        rows: OracleRows | None,
        access: ServerAccess | None = None,
        wait_s: float = REPLICA_WAIT_S,
        deployment: bytes = b"",
    ) -> None:
        self._deployment = deployment
        self._cluster, self._partition, self._epoch = cluster, partition, epoch
        self._owner, self._access = secrets.token_bytes(16), access or ServerAccess()
        self._rows = rows
        self._random = SystemRandom()
        self._choice = GroupChoice(groups)
        self._owned = OwnedPlogs(groups, has_oracle=rows is not None, wait_s=wait_s)
        self._open: dict[PlogId, OpenReplicatedPlog] = {}
        self._locks = [threading.RLock() for _ in range(_LOCKS)]
        self._servers: dict[tuple[str, int], tuple[str, bytes]] = {}  # by place, the id and instance of the server
        self._turn, self._sessions = count(), count(1)
        self._failure: PenstockError | None = None
        self.syncs: Final = SyncTimes()
        self._repairer = None if rows is None else Repairer(self, rows, cluster=cluster)
        self._disks = RefusingDisks(groups, self.run)
        for group, servers in groups.items():
            if len(servers) != REPLICAS:
                raise BadArgument(f"invalid group {group!r} of {len(servers)} servers: a group has {REPLICAS}")
        self._reader = AnswerReader()
        links = {group: self._new_links(group, servers) for group, servers in groups.items()}
        self._links = GroupLinks(links, self._reader)
        forks.guard(self)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _new_links(self, group: str, servers: tuple[str, ...]) -> tuple[ServerLink, ...]:
        def hello() -> Hello:
            session = next(self._sessions)
            return Hello(
                PROTOCOL, self._cluster, group, self._partition, self._epoch, self._owner, session,
                self._access.user, self._access.password, self._deployment,
            )  # fmt: skip

        return tuple(
            ServerLink(server, hello, self._access, group=group, place=place, observer=self, reader=self._reader)
            for place, server in enumerate(servers)
        )

    def _start(self) -> None:
        self._links.start()
        self.check_running()
        self._links.check_refusals(needs_all=self._rows is None)
        self._disks.start()
        if self._repairer is not None:
            self._repairer.start()

    # What the links tell

    def link_up(self, link: ServerLink, welcome: Welcome) -> None:
        """Send again what the server has not acknowledged; look for what it has lost, if it has started anew."""
        place, server = (link.group, link.place), (welcome.server, welcome.instance)
        for (group, other), (name, _) in self._servers.items():
            if group == link.group and other != link.place and name == welcome.server:
                reason = f"server {name} is in group {group} twice"
                raise PlogServerRefused(link.address, reason=reason, is_setup_wrong=True)
        if self._servers.get(place) != server:
            self._servers[place] = server
            self._disks.restarted(*place)
            if self._repairer is not None:
                self._repairer.note_started(link.group, link.place, welcome.instance)
        for plog in self._open_in(link.group):
            plog.repeat(link.place)

    def link_down(self, link: ServerLink, reason: str) -> None:
        """Fail the plogs that wait for this server."""
        self._choice.failed(link.group, now=time.monotonic())
        for plog in self._open_in(link.group):
            plog.lose(link.place, reason)

    def link_fenced(self, error: PenstockError) -> None:
        """Fail everything: there is a newer owner."""
        self._failure = self._failure or error
        for plog in list(self._open.values()):
            plog.fail(error)

    def _open_in(self, group: str) -> list[OpenReplicatedPlog]:
        return [plog for plog in list(self._open.values()) if plog.window.plog_id.group == group]

    def _plog_failed(self, plog: OpenReplicatedPlog) -> None:
        if isinstance(plog.window.failure, StoreFenced):
            self._failure = self._failure or plog.window.failure
        else:
            self._choice.failed(plog.window.plog_id.group, now=time.monotonic())

    # Protocols

    def run(self, steps: ReplicaSteps[T]) -> T:
        """Run a protocol."""
        result: Any = None
        failure: PenstockError | None = None
        while True:
            try:
                action = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                value: T = end.value
                return value
            except StoreFenced as error:
                self.link_fenced(error)
                raise
            except GroupUnavailable as error:
                away = self._links.away(error.group)
                raise GroupUnavailable(error.group, reason=error.reason, away=away) from error
            try:
                result, failure = self._act(action), None
            except LeaseLost as error:
                failure = StoreFenced("these plog servers", owner="an owner with a newer epoch")
                failure.__cause__ = error
            except PenstockError as error:
                failure = error

    def _act(self, action: Any) -> Any:  # noqa: ANN401 - each action has its own result
        match action:
            case Ask():
                return self._disks.noted(action, self._links.ask(action))
            case AwaitQuiet():
                plog = self._open.get(action.plog_id)
                return None if plog is None else plog.quiesce()
            case NoteCut():
                return _logger.warning(_CUT, action.plog_id, action.length, action.longest)
        return self._act_on_rows(action)

    def _act_on_rows(self, action: Any) -> Any:  # noqa: ANN401 - each action has its own result
        assert self._rows is not None, "without an oracle there are no rows"
        assert self._repairer is not None
        match action:
            case NoteCopied():
                return self._repairer.copied(action.plog_id.group, action.size)
            case ReadRow():
                return self._rows.read(action)
            case WriteRow():
                version = self._rows.write(action)
                self._repairer.note_row()
                return version
            case RemoveRow():
                return self._rows.remove(action)
        raise AssertionError(action)

    def run_alone(self, plog_id: PlogId, steps: ReplicaSteps[T]) -> T:
        """Run a protocol of a plog while no other of the same plog runs."""
        self.check_running()
        if plog_id.cluster != self._cluster:
            raise GroupUnavailable(plog_id.group, reason=f"it is a group of cluster {plog_id.cluster}")
        with self._locks[hash(plog_id) % _LOCKS]:
            return self.run(steps)

    def is_up(self, group: str) -> bool:
        """Return whether all servers of a group have an open session."""
        return self._links.is_up(group)

    def is_open(self, plog_id: PlogId) -> bool:
        """Return whether this owner has the plog open."""
        return plog_id in self._open

    def lose_replicas(self, plog_id: PlogId, servers: Iterable[int], reason: str) -> bool:
        """Append no more to an open plog: its log continues in another one. Return whether it can be repaired now."""
        plog = self._open.get(plog_id)
        if plog is None:
            return True
        for place in servers:
            plog.lose(place, reason, is_needed=True)
        return self.run_alone(plog_id, self._owned.decide_failed(plog_id))

    # The interface of plogs

    @property
    def bucket_use(self) -> None:
        """Nothing: these plogs are not in an object store."""

    @property
    def is_replicated(self) -> bool:
        """True: a plog may lose a replica."""
        return True

    @property
    def lease(self) -> Lease | None:
        """The lease of this owner in the oracle; None without an oracle."""
        return None if self._rows is None else self._rows.lease

    @property
    def replication_use(self) -> ReplicationUse:
        """Return the state of the servers and of repair."""
        windows = [plog.window for plog in list(self._open.values())]
        return replication_use_of(list(self._links.all()), self._disks, self._repairer, windows)

    def check_running(self) -> None:
        """Raise the ``StoreFenced`` that ended this owner, if one did."""
        if self._failure is not None:
            raise self._failure

    def new_id(self) -> PlogId:
        """Return a new unique id, in a group that is well; nothing is created."""
        group = self._choice.choose(now=time.monotonic())
        if not self.is_up(group):  # one that failed a while ago may be complete again
            complete = [other for other in self._choice.groups if self.is_up(other)]
            group = complete[next(self._turn) % len(complete)] if complete else group
        return PlogId.new(cluster=self._cluster, group=group, random=self._random)

    @uninterrupted
    def create(self, *, size: int = PLOG_SIZE_DEFAULT, plog_id: PlogId | None = None) -> PlogId:
        """Create a plog on three servers; ``GroupUnavailable`` if one of them is away: use another id then."""
        if not 0 < size <= PLOG_SIZE_MAX or size != int(size):
            raise BadArgument(f"invalid plog size {size!r}: use a whole number from 1 to {PLOG_SIZE_MAX:,}")
        plog_id = plog_id or self.new_id()
        try:
            self.run_alone(plog_id, self._create(plog_id, size))
        except GroupUnavailable:
            self._choice.failed(plog_id.group, now=time.monotonic())
            raise
        return plog_id

    def create_all(self, sizes: Mapping[PlogId, int]) -> None:
        """Create plogs, each with its size, one after another."""
        for plog_id, size in sizes.items():
            self.create(plog_id=plog_id, size=size)

    def _create(self, plog_id: PlogId, size: int) -> ReplicaSteps[None]:
        links = self._links.of(plog_id.group)
        yield from self._owned.create(plog_id, size)
        window = self._owned.windows[plog_id]
        self._open[plog_id] = OpenReplicatedPlog(
            window, links, self._reader, self._disks, times=self.syncs, on_failure=self._plog_failed
        )

    @uninterrupted
    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Append ``data``, all parts as one, at the current ``offset``; return the new offset once it is durable."""
        return self.submit(plog_id, offset, *data).result()

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting; ``data`` must not change until the result is there."""
        plog = self._open.get(plog_id)
        if plog is None:
            raise PlogSealed(plog_id, sealed_offset=self.info(plog_id).length)
        self.check_running()
        parts: list[Bytes] = [part if type(part) is bytes else memoryview(part).cast("B") for part in data]
        return plog.submit(offset, tuple(filter(len, parts)))

    def keeps_order(self, plog_id: PlogId, size: int) -> bool:
        """Return False: plogs of several groups become durable independently."""
        return False

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``offset``; no copy where they were appended in one piece."""
        views = self.views(plog_id, offset, size)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return ``size`` bytes at ``offset`` as they were appended, piece by piece."""
        end = offset + size
        return [view[max(0, offset - start) : end - start] for start, view in self.blocks(plog_id, offset, size)]

    @uninterrupted
    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of ``size`` bytes at ``offset``, complete, with its own offset."""
        if offset < 0 or size < 0:
            raise BadArgument(f"invalid read of {size} bytes at {offset} of plog {plog_id}: use 0 or more for both")
        info, end = self.info(plog_id), offset + size
        if end > info.length:
            raise ReadOutOfRange(plog_id, offset=offset, size=size, length=info.length)
        blocks: list[tuple[int, memoryview]] = []
        while offset < end:
            first = next(self._turn) % REPLICAS
            servers = [(first + step) % REPLICAS for step in range(REPLICAS)]
            read = self.run(read_blocks(plog_id, offset, min(end - offset, READ_SIZE_MAX), servers=servers))
            if read.damaged and self._repairer is not None:
                self._repairer.note_damaged(plog_id, read.damaged)
            blocks += read.blocks
            offset = blocks[-1][0] + len(blocks[-1][1])
        return blocks

    def locate(self, plog_id: PlogId, offset: int, size: int) -> LocatedBlocks:
        """Return where those appends are: not in a file of this machine, so that readers ask the owner."""
        blocks = self.blocks(plog_id, offset, size)
        offsets = np.array([*(start for start, _ in blocks), offset + size], "<u4")
        return LocatedBlocks(self.where(plog_id), plog_id.uid_bytes, 0, offsets.tobytes())

    @uninterrupted
    def cut(self, plog_ids: Sequence[PlogId]) -> dict[PlogId, PlogInfo]:
        """Return the state of plogs, all at one moment: those that this owner does not append to do not change."""
        self.check_running()
        opened = {plog_id: plog for plog_id in plog_ids if (plog := self._open.get(plog_id)) is not None}
        infos = {}
        for plog_id in plog_ids:
            if plog_id not in opened:
                with suppress(NoSuchPlog):
                    infos[plog_id] = self.info(plog_id)
        offsets = committed_offsets(opened.values())
        for (plog_id, plog), offset in zip(opened.items(), offsets, strict=True):
            infos[plog_id] = PlogInfo(offset, sealed=False, size=plog.window.size)
        return infos

    def raw(self, plog_id: PlogId, offset: int, end: int, *, limit: int) -> RawBlocks:
        """Return complete blocks up to ``end``, or at least one if they have more than ``limit`` bytes."""
        blocks = self.blocks(plog_id, offset, max(0, min(end - offset, limit)))
        last = blocks[-1][0] + len(blocks[-1][1]) if blocks else offset
        if last > end or (blocks and blocks[0][0] != offset):
            raise BadArgument(f"no blocks of plog {plog_id} are from {offset} to {end}")
        key = self.key(plog_id)
        return RawBlocks(key, self.info(plog_id).size, offset, last, raw_of(key, blocks))

    def key(self, plog_id: PlogId) -> bytes:
        """Return the uid of a plog, and the same birth for all: no two plogs of a cluster have the same id."""
        return plog_id.uid_bytes + bytes(BIRTH_SIZE)

    @uninterrupted
    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal the plog, so that it takes no more appends; return its length: ``offset``, or less if it holds less."""
        if offset < 0:
            raise BadArgument(f"invalid offset {offset} to seal plog {plog_id}: use 0 or more")
        window = self._owned.windows.get(plog_id)
        try:
            length = self.run_alone(plog_id, self._owned.seal(plog_id, offset))
            if window is not None and window.failure is None:
                self._choice.succeeded(plog_id.group)
            return length
        finally:
            if plog_id not in self._owned.windows:  # its length is decided, at this offset or at another
                self._open.pop(plog_id, None)

    @uninterrupted
    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the plog's length, whether it is sealed, and its size; a plog that is another owner's is sealed."""
        if plog_id in self._open:
            self.check_running()
            return self.run(self._owned.info(plog_id))
        return self.run_alone(plog_id, self._owned.info(plog_id))

    @uninterrupted
    def delete(self, plog_id: PlogId) -> None:
        """Delete the plog; servers that are away delete it when they are back."""
        plog = self._open.pop(plog_id, None)
        if plog is not None:
            plog.quiesce()
        self.run_alone(plog_id, self._owned.delete(plog_id))

    def where(self, plog_id: PlogId) -> str:
        """Return the servers of the plog, for messages."""
        with suppress(GroupUnavailable):
            return f"plog {plog_id} on {', '.join(link.address for link in self._links.of(plog_id.group))}"
        return f"plog {plog_id}"

    def set_known(self, known: KnownPlogs) -> None:
        """Be given the function that knows the plogs of all logs: others that one server has are not copied."""
        if self._repairer is not None:
            self._repairer.set_known(known)

    def prepare_close(self) -> None:
        """Give up servers that do not answer within a second; an append whose servers are away fails by itself."""
        self._links.prepare_close()

    @uninterrupted
    def close(self) -> None:
        """Wait for appends under way, and end the sessions. Closing again does nothing."""
        self._disks.close()
        if self._repairer is not None:
            self._repairer.close()
        for plog in list(self._open.values()):
            plog.quiesce()
        self._links.close()
        self._failure = self._failure or StoreClosed("the plogs")
        for plog in list(self._open.values()):
            plog.fail(self._failure)
        self._reader.close()
