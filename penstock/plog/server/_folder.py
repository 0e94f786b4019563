"""The folder of a plog server: its identity, and for each partition the replicas and the epoch of the present owner.

::

    LOCK              held by the process that has the folder
    deployment-NAME   the id of the deployment whose owners a partition takes, with a checksum in front of it; from its
                      first owner with an oracle on
    SERVER            the identity, as JSON, written at the first start
    epoch-NAME        the epoch of a partition: MessagePack, with a checksum in front of it
    partition-NAME/   the replicas of a partition: a folder of plogs
    scrub-NAME        how far the scrub of a partition is, as JSON; it may be deleted
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from penstock.errors import BadArgument, FolderUnusable, FormatUnknown, NoSuchPlog, PenstockError, PlogCorrupt
from penstock.model import UNDECODABLE, PlogId, check_name
from penstock.plog._checksum import crc32c
from penstock.plog._files import FilePlogs
from penstock.plog._folder import refusal
from penstock.plog._replica import PlogInfo
from penstock.plog.replicated import ReplicaHost, ServerIdentity
from penstock.plog.server._heads import clear_head, stored_info
from penstock.plog.server._salvage import salvaged_blocks
from penstock.plog.server._verify import verified_blocks
from penstock.ports import OsDisk, write_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Disk

__all__ = ["HostedPartition", "ServerFolder"]

_FORMAT: Final = 1
_IDENTITY: Final = "SERVER"
_KNOWN: Final = f"a plog server's folder, format {_FORMAT}"
_IDENTITY_SIZE_MAX: Final = 64 << 10
_CHECKSUM_SIZE: Final = 4
_LIST_S_MAX: Final = 0.2  # for the heads of one answer: a disk that seeks for each of them reads a few dozen
_UNREADABLE: Final = PlogInfo(0, sealed=False, size=1)
_logger: Final = logging.getLogger("penstock.plog_server")
_REPLICA: Final = re.compile(r"([0-9a-f]{32})\.plog")


class _StoredIdentity(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    cluster: str
    group: str
    server: str


class _StoredEpoch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    owner: bytes


class PartitionReplicas(FilePlogs):
    """The replicas of a partition in a folder, and its epoch in a file beside it."""

    def __init__(
        self, disk: Disk, identity: ServerIdentity, save: Callable[[bytes], None], *, saved_epoch: int
    ) -> None:
        self._damage_lock = threading.Lock()
        self._damaged: dict[bytes, bool] = {}  # by uid, replicas that were found damaged: whether unreadable
        super().__init__(disk)
        self._replica_disk, self._identity, self._save = disk, identity, save
        self._saved_epoch = saved_epoch
        self._epoch_lock = threading.Lock()
        self._checked: bytes | None = None  # the uid that the scrub is checking; None if it was deleted meanwhile

    def _note_damage(self, uid: bytes, error: PlogCorrupt) -> None:
        """Go on without a replica that was found damaged when the folder was opened: others have a copy of it."""
        self._damaged[uid] = False
        _logger.error("a replica is damaged; its owner replaces it: %s: %s", error.path, error.reason)

    def uids(self) -> list[str]:
        """Return the uids of all replicas, damaged or not, sorted."""
        return sorted(filter(None, map(_uid_in, self._replica_disk.names())))

    def plog_id(self, uid: str) -> PlogId:
        """Return the id of the plog with this uid."""
        return PlogId(self._identity.cluster, self._identity.group, uid)

    def stored_size(self, uid: str) -> int:
        """Return the bytes that a replica takes on the disk; 0 if it is gone."""
        try:
            return Path(self.where(self.plog_id(uid))).stat().st_size
        except OSError:
            return 0

    def write_buffered(self, plog_id: PlogId) -> None:
        """Write the acknowledged appends of a plog that only the journal has into its file."""
        with self._table.entered(plog_id) as plog:
            if plog.replica is not None:
                self._flushed(plog)

    @property
    def damaged(self) -> set[bytes]:
        """The uids of replicas that the start or the scrub has found damaged, and that are not replaced yet."""
        with self._damage_lock:
            return set(self._damaged)

    def begin_check(self, plog_id: PlogId) -> None:
        """Note that a replica is being checked: a finding does not count for the one that replaces it meanwhile."""
        with self._damage_lock:
            self._checked = plog_id.uid_bytes

    def note_checked(self, plog_id: PlogId, *, is_damaged: bool, is_unreadable: bool = False) -> bool:
        """Note the result of the check that has begun; return whether it is damage that was not known."""
        uid = plog_id.uid_bytes
        with self._damage_lock:
            if self._checked != uid or not is_damaged:
                self._damaged.pop(uid, None)
                return False
            is_new = uid not in self._damaged
            self._damaged[uid] = is_unreadable
            return is_new

    def delete(self, plog_id: PlogId) -> None:
        """Delete a replica; the next one of the same plog is a good one."""
        uid = plog_id.uid_bytes
        if self._is_unreadable(uid):
            clear_head(self.where(plog_id))  # or the deletion would read it through a mapping
        super().delete(plog_id)
        with self._damage_lock:
            self._damaged.pop(uid, None)
            self._checked = None if self._checked == uid else self._checked

    def _is_unreadable(self, uid: bytes) -> bool:
        return self._damaged.get(uid, False)

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return the appends that hold these bytes, up to the first that is damaged; an error if that is the first.

        They are verified each time, because a disk may lose bits at any time. Those behind the damage may be the last
        good ones, so a client that asks for them gets them.
        """
        where = self.where(plog_id)
        if self._is_unreadable(plog_id.uid_bytes):
            raise PlogCorrupt(where, offset=None, reason="the disk cannot read it")
        with self._table.entered(plog_id) as plog:
            try:
                replica = self._table.need(plog)
            except PlogCorrupt:
                return salvaged_blocks(where, plog_id, offset, size)
            start, size = replica.widen(offset, size)
            replica.slices(start, size)  # which checks the range
            file = self._flushed(plog)
            image = file.view(0, file.size())
        return verified_blocks(replica, image, start, size, where=where)

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the length of a replica, whether it is sealed, and the size; the head tells that of a sealed one."""
        try:
            known = self.known_info(plog_id)
        except OSError as error:
            if self._is_unreadable(plog_id.uid_bytes):  # so that it is replaced
                raise PlogCorrupt(self.where(plog_id), offset=0, reason="the disk cannot read its head") from error
            raise refusal(self.where(plog_id), error) from error
        return known if known.sealed else super().info(plog_id)

    def known_info(self, plog_id: PlogId) -> PlogInfo:
        """Return the same without reading blocks: the length of one that is not in use, nor sealed, is at least that.

        ``OSError`` if the head cannot be read.
        """
        with self._table.entered(plog_id) as plog:
            if plog.deletion is not None:
                raise NoSuchPlog(plog_id)
            return stored_info(self.where(plog_id), plog_id) if plog.replica is None else plog.replica.info()

    def replicas(self, after: bytes, limit: int) -> list[tuple[bytes, PlogInfo | None]]:
        """Return up to ``limit`` replicas in the order of their uids, behind ``after``; without damaged ones.

        When the time is up, the next one ends the list, with None. One that cannot be read is there, and no more is
        known about it.
        """
        replicas: list[tuple[bytes, PlogInfo | None]] = []
        deadline = time.monotonic() + _LIST_S_MAX
        uids, damaged = self.uids(), self.damaged
        for uid in map(bytes.fromhex, uids[bisect_right(uids, after.hex()) :]):
            if len(replicas) == limit:
                break
            if replicas and time.monotonic() > deadline:
                replicas.append((uid, None))
                break
            if uid not in damaged:
                with suppress(NoSuchPlog, PlogCorrupt):
                    replicas.append((uid, self._listed_info(uid)))
        return replicas

    def _listed_info(self, uid: bytes) -> PlogInfo:
        try:
            return self.known_info(self.plog_id(uid.hex()))
        except OSError:
            return _UNREADABLE

    def save_epoch(self, epoch: int, owner: bytes) -> None:
        """Make the epoch of the present owner durable; one that is lower than that saved before has no effect."""
        with self._epoch_lock:  # of two sessions that open at the same time, the one with the lower epoch may come last
            if epoch >= self._saved_epoch:
                self._save(_packed(msgspec.msgpack.encode(_StoredEpoch(epoch, owner))))
                self._saved_epoch = epoch


class HostedPartition:
    """A partition on this server: its host, the lock of the host, and its replicas."""

    def __init__(self, host: ReplicaHost, replicas: PartitionReplicas) -> None:
        self.host, self.replicas = host, replicas
        self.lock = threading.Lock()

    def is_stopped(self) -> bool:
        """Return whether a failed disk has ended it; it works again once it is opened anew, as after a restart."""
        try:
            self.replicas.check_running()
        except PenstockError:
            return True
        return False


class ServerFolder:
    """The folder, locked, with the identity of the server that it belongs to."""

    def __init__(self, folder: Path, *, cluster: str, group: str) -> None:
        check_name("cluster", cluster)
        check_name("group", group)
        self._folder = folder
        self._disk = OsDisk(folder)
        self._lock = threading.Lock()
        self._partitions: dict[str, HostedPartition] = {}
        self._deployments: dict[str, bytes] = {}
        try:
            self._disk.lock()
            try:
                stored = self._stored_identity(cluster, group)
            except OSError as error:
                raise FolderUnusable(self._disk.where(), reason=error.strerror or str(error)) from error
        except BaseException:
            self._disk.close()
            raise
        self.identity: Final = ServerIdentity(cluster, group, stored.server, secrets.token_bytes(16))

    def _stored_identity(self, cluster: str, group: str) -> _StoredIdentity:
        names = set(self._disk.names()) - {f"{_IDENTITY}.new"}
        if not names:
            stored = _StoredIdentity(_FORMAT, cluster, group, secrets.token_hex(8))
            self._replace(_IDENTITY, msgspec.json.encode(stored) + b"\n")
            return stored
        if _IDENTITY not in names:
            raise FormatUnknown(self._disk.where(), actual="a folder with other files", known=_KNOWN)
        text = self._content(_IDENTITY)
        try:
            number = msgspec.json.decode(text, type=dict[str, object])["format"]
            if number != _FORMAT:
                raise FormatUnknown(self._disk.where(_IDENTITY), actual=f"format {number}", known=_KNOWN)
            stored = msgspec.json.decode(text, type=_StoredIdentity)
        except (*UNDECODABLE, KeyError) as error:
            actual = text[:100].decode(errors="replace").strip()
            raise FormatUnknown(self._disk.where(_IDENTITY), actual=actual, known=_KNOWN) from error
        if (stored.cluster, stored.group) != (cluster, group):
            raise BadArgument(
                f"the folder {self._disk.where()} belongs to a server of group {stored.group} in cluster "
                f"{stored.cluster}, not of group {group} in cluster {cluster}: use another folder"
            )
        return stored

    def has_partition(self, name: str) -> bool:
        """Return whether a partition was ever opened here."""
        check_name("partition", name)
        with self._lock:
            return name in self._partitions or f"epoch-{name}" in self._disk.names()

    def check_deployment(self, name: str, deployment: bytes) -> None:
        """Bind a partition to the deployment of its first owner, durably; ``BadArgument`` for an owner of another."""
        check_name("partition", name)
        file = f"deployment-{name}"
        with self._lock:
            known = self._deployments.get(name)
            try:
                if known is None:
                    known = self._stored_deployment(file)
                if known is None and deployment:
                    known = deployment
                    self._replace(file, _packed(deployment))
            except OSError as error:
                raise refusal(self._disk.where(file), error) from error
            if known is not None:
                self._deployments[name] = known
        if known is not None and known != deployment:
            raise BadArgument(
                f"partition {name} of this server belongs to another deployment, which has another oracle: check the "
                "address of the oracle, or give this deployment plog servers of its own"
            )

    def _stored_deployment(self, name: str) -> bytes | None:
        try:
            content = self._content(name)
        except FileNotFoundError:
            return None
        known = content[_CHECKSUM_SIZE:]
        if _packed(known) != content:
            reason = "the id of its deployment fails its checksum: delete the file if its owners have the right oracle"
            raise PlogCorrupt(self._disk.where(name), offset=0, reason=reason)
        return known

    def partition(self, name: str, *, count_max: int) -> HostedPartition:
        """Return a partition, opened at its first use; ``BadArgument`` if there are too many."""
        check_name("partition", name)
        with self._lock:
            partition = self._partitions.get(name)
            if partition is not None and partition.is_stopped():
                del self._partitions[name]
                with suppress(PenstockError, OSError):  # that of the disk
                    partition.replicas.close()
                partition = None
            if partition is None:
                if len(self._partitions) >= count_max:
                    raise BadArgument(f"this server has {count_max} partitions, and takes no more")
                try:
                    partition = self._partitions[name] = self._opened(name)
                except OSError as error:
                    raise refusal(self._disk.where(), error) from error
            return partition

    def _opened(self, name: str) -> HostedPartition:
        epoch_file = f"epoch-{name}"
        stored = self._stored_epoch(epoch_file)
        disk = OsDisk(self._folder / f"partition-{name}")

        def save(content: bytes) -> None:
            try:
                self._replace(epoch_file, content)
            except OSError as error:
                raise refusal(self._disk.where(epoch_file), error) from error

        try:
            replicas = PartitionReplicas(disk, self.identity, save, saved_epoch=stored.epoch)
        except BaseException:
            disk.close()  # which unlocks the folder for the next attempt
            raise
        return HostedPartition(ReplicaHost(self.identity, replicas, epoch=stored.epoch, owner=stored.owner), replicas)

    def _stored_epoch(self, name: str) -> _StoredEpoch:
        try:
            content = self._content(name)
        except FileNotFoundError:
            return _StoredEpoch(0, b"")
        packed = content[_CHECKSUM_SIZE:]
        try:
            if _packed(packed) == content:
                return msgspec.msgpack.decode(packed, type=_StoredEpoch)
        except UNDECODABLE:
            pass
        raise PlogCorrupt(self._disk.where(name), offset=0, reason="the epoch of the partition fails its checksum")

    def _content(self, name: str) -> bytes:
        file = self._disk.open(name)
        try:
            return bytes(file.view(0, min(file.size(), _IDENTITY_SIZE_MAX)))
        finally:
            file.close()

    def _replace(self, name: str, content: bytes) -> None:
        """Write a small file durably, in one step."""
        draft = f"{name}.new"
        with suppress(FileNotFoundError):
            self._disk.remove(draft)
        file = self._disk.create(draft)
        try:
            write_all(file, [content], 0)
            file.datasync()
        finally:
            file.close()
        self._disk.rename(draft, name)
        self._disk.sync()

    def store(self, name: str, content: bytes) -> None:
        """Write a small file durably; ``OSError`` if the disk refuses."""
        self._replace(name, content)

    def stored(self, name: str) -> bytes:
        """Return a small file; ``FileNotFoundError`` if there is none."""
        return self._content(name)

    def partitions(self) -> dict[str, HostedPartition]:
        """Return the partitions that are open, by name."""
        with self._lock:
            return dict(self._partitions)

    def close(self) -> None:
        """Close all partitions, and release the folder."""
        with self._lock:
            try:
                for partition in self._partitions.values():
                    partition.replicas.close()
            finally:
                self._disk.close()


def _uid_in(name: str) -> str | None:
    """Return the uid in the name of a replica's file; None for the name of another file."""
    found = _REPLICA.fullmatch(name)
    return None if found is None else found[1]


def _packed(content: bytes) -> bytes:
    return crc32c(0, content).to_bytes(_CHECKSUM_SIZE, "big") + content
