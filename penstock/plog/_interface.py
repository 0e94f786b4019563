"""The interface of the plog storage, and how it is opened by address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.errors import BadArgument
from penstock.plog._files import FilePlogs
from penstock.ports import OsDisk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.cpo import Cpo, Lease
    from penstock.model import PlogId
    from penstock.plog._block import LocatedBlocks
    from penstock.plog._bucket_use import BucketUse
    from penstock.plog._journal import SyncTimes
    from penstock.plog._raw import RawBlocks
    from penstock.plog._replica import PlogInfo
    from penstock.plog._replication_use import KnownPlogs, ReplicationUse

__all__ = ["OrderedPlogs", "PendingAppend", "Plogs", "open_plogs"]


class PendingAppend(Protocol):
    """An append under way."""

    def result(self) -> int:
        """Wait until it is durable; return the plog's new offset."""


class Plogs(Protocol):
    """Plogs, each written by one writer at a time.

    An append names the offset at which it expects the plog, so an append that is repeated, out of order or another
    writer's is refused. It is acknowledged when it is durable, and readers see only acknowledged bytes.
    """

    @property
    def syncs(self) -> SyncTimes:
        """The durations of the syncs that appends waited for."""

    @property
    def bucket_use(self) -> BucketUse | None:
        """The requests to the bucket and what its cache has saved; None for plogs that are not in one."""

    @property
    def replication_use(self) -> ReplicationUse | None:
        """The servers that are away and the plogs to be repaired; None for plogs that are not on plog servers."""

    @property
    def is_replicated(self) -> bool:
        """Whether a plog may lose a replica: then an append may end with ``ReplicaLost`` or ``GroupUnavailable``.

        Both leave its outcome unknown, and the plog takes no more appends. A seal then decides which of the appends
        that were under way are kept: the first of them, without a gap, and all that were acknowledged.
        """

    def check_running(self) -> None:
        """Raise the ``DiskFailed`` that stopped the store, if one did."""

    def new_id(self) -> PlogId:
        """Return a new unique id; nothing is created."""

    def create(self, *, size: int = ..., plog_id: PlogId | None = None) -> PlogId:
        """Create a plog that takes ``size`` bytes, under a new id if none is given."""

    def create_all(self, sizes: Mapping[PlogId, int]) -> None:
        """Create plogs, each with its size, together; if one cannot be created, some of the others may be."""

    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Append ``data``, all parts as one, at the current ``offset``; return the new offset once it is durable."""

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting; ``data`` must not change until the result is there.

        The caller is within a step that no signal interrupts, also while it waits for the result.
        """

    def keeps_order(self, plog_id: PlogId, size: int) -> bool:
        """Return whether an append of this size, now, becomes durable only after all that was submitted before it."""

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``offset``; no copy where they were appended in one piece."""

    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return ``size`` bytes at ``offset`` as they were appended, piece by piece, without a copy."""

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of ``size`` bytes at ``offset``, complete, with its own offset."""

    def locate(self, plog_id: PlogId, offset: int, size: int) -> LocatedBlocks:
        """Return the places of those appends, so that another process can read them from the file."""

    def cut(self, plog_ids: Sequence[PlogId]) -> dict[PlogId, PlogInfo]:
        """Return the state of plogs, all at one moment: nothing is in it whose cause is not; callers take turns.

        Plogs that are damaged or missing are left out.
        """

    def raw(self, plog_id: PlogId, offset: int, end: int, *, limit: int) -> RawBlocks:
        """Return complete blocks up to ``end``, or at least one if they have more than ``limit`` bytes, unchecked."""

    def key(self, plog_id: PlogId) -> bytes:
        """Return the uid and the birth of a plog, which distinguish it from a deleted one of the same id."""

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal the plog, so that it takes no more appends; return its length: ``offset``, or less if it holds less."""

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the plog's length, whether it is sealed, and its size."""

    def delete(self, plog_id: PlogId) -> None:
        """Delete the plog and free its space; views of it stay valid."""

    def where(self, plog_id: PlogId) -> str:
        """Return the path of the plog's file, for messages."""

    @property
    def lease(self) -> Lease | None:
        """The lease of this owner in the oracle, whose epoch fences owners before; None if plogs have no such lease."""

    def set_known(self, known: KnownPlogs) -> None:
        """Be given the function that knows which plogs belong to the partition.

        One that it does not know was deleted: if a server has it again, because its folder is older, it stays there.
        """

    def prepare_close(self) -> None:
        """Say that the plogs will be closed soon, so that a storage that does not answer is not waited for."""

    def close(self) -> None:
        """Make everything durable and release the storage."""

    def __enter__(self) -> Self:
        """Close at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""


@runtime_checkable
class OrderedPlogs(Protocol):
    """Plogs whose creation and seal need not be waited for, because they share a journal with the appends behind them.

    An append that was submitted later, and that :meth:`Plogs.keeps_order`, is durable only if they are.
    """

    def submit_create(self, plog_id: PlogId, size: int) -> PendingAppend:
        """Create a plog without waiting; a large append to it makes it durable, too."""

    def submit_seal(self, plog_id: PlogId, offset: int) -> tuple[int, PendingAppend | None]:
        """Seal the plog without waiting; return its length, and what to wait for, None if that is durable already."""


def open_plogs(url: str, *, cpo: Cpo | None = None) -> Plogs:
    """Open the plogs at an address, created if there are none.

    ``file:FOLDER``, ``s3://bucket/prefix``, ``az://container/prefix``, ``group:HOST:PORT,HOST:PORT,HOST:PORT`` with
    three plog servers, ``cluster:NAME`` with a cluster that is registered in ``cpo``, or ``memory:``, gone when closed.
    """
    scheme, _, path = url.partition(":")
    if url.startswith(("s3://", "az://")):
        from penstock.plog.objects import open_object_plogs  # noqa: PLC0415 - most processes never need it

        return open_object_plogs(url, cpo=cpo)
    if scheme in ("group", "cluster") and path:
        from penstock.plog.replicated import open_cluster_plogs, open_group_plogs  # noqa: PLC0415 - as above

        if scheme == "group":
            return open_group_plogs(path)
        if cpo is None:
            raise BadArgument(f"cannot open plogs at {url!r} without the oracle in which the cluster is registered")
        return open_cluster_plogs(path, cpo)
    if scheme == "file" and path:
        return FilePlogs(OsDisk(path))
    if url == "memory:":
        from penstock.testing import MemoryDisk  # noqa: PLC0415 - most processes never need it

        return FilePlogs(MemoryDisk())
    raise BadArgument(
        f"cannot open plogs at {url!r}: use file:FOLDER, s3://bucket/prefix, az://container/prefix, "
        "group:HOST:PORT,HOST:PORT,HOST:PORT, cluster:NAME or memory:"
    )
