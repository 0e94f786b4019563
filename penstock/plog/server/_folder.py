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

import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from penstock.checksums import crc32c
from penstock.errors import BadArgument, FolderUnusable, FormatUnknown, PenstockError, PlogCorrupt
from penstock.model import UNDECODABLE, check_name
from penstock.plog._folder import refusal
from penstock.plog.replicated import ReplicaHost, ServerIdentity
from penstock.plog.server._replicas import PartitionReplicas
from penstock.ports import OsDisk, write_all

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HostedPartition", "ServerFolder"]

_FORMAT: Final = 1
_IDENTITY: Final = "SERVER"
_KNOWN: Final = f"a plog server's folder, format {_FORMAT}"
_IDENTITY_SIZE_MAX: Final = 64 << 10
_CHECKSUM_SIZE: Final = 4


class _StoredIdentity(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    cluster: str
    group: str
    server: str


class _StoredEpoch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    owner: bytes


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

    def is_of(self, name: str, deployment: bytes) -> bool:
        """Return whether a partition belongs to this deployment: it is bound to that of its first owner, durably."""
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
        return known in (None, deployment)

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

        def save(epoch: int, owner: bytes) -> None:
            try:
                self._replace(epoch_file, _packed(msgspec.msgpack.encode(_StoredEpoch(epoch, owner))))
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


def _packed(content: bytes) -> bytes:
    return crc32c(0, content).to_bytes(_CHECKSUM_SIZE, "big") + content
