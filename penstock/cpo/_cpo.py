"""The oracle: keys, leases, clusters and metadata plogs, stored as rows of bytes."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from penstock import forks
from penstock.cpo import _cluster, _lease, _metadata_plog
from penstock.cpo._limits import (
    KEY_SIZE_MAX,
    OWNER_SIZE_MAX,
    check_plog_id,
    check_seconds,
    check_text,
    check_value,
    check_version,
)
from penstock.errors import CasConflict, ClusterExists, CpoCorrupt, CpoError, NoSuchCluster
from penstock.model import UNDECODABLE, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cpo._cluster import PersistenceCluster
    from penstock.cpo._lease import Lease
    from penstock.cpo._metadata_plog import MetadataPlog
    from penstock.model import PlogId

_T = TypeVar("_T")

# Four name spaces in one table: a user's key is never taken for a lease.
_KEY: Final = "kv/"
_LEASE: Final = "lease/"
_CLUSTER: Final = "cluster/"
_METADATA: Final = "metadata/"


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value, and the version to expect when changing it."""

    value: bytes
    version: int


class CpoRows(Protocol):
    """The rows inside one transaction."""

    now: float
    """The oracle's time, in seconds since 1970; taken when no other transaction could write any more."""

    def get(self, key: str) -> Versioned | None:
        """Return the row, checked; None only if there is certainly none."""

    def keys(self, prefix: str) -> list[str]:
        """Return every key that starts with ``prefix``, sorted."""

    def put(self, key: str, value: bytes) -> int:
        """Create or replace a row that this transaction has read; return its version, higher than all before it."""

    def remove(self, key: str) -> None:
        """Remove a row that this transaction has read."""


class Cpo(forks.Handle, ABC):
    """The control plane oracle: a small table that all processes agree on. Opened by :func:`open_cpo`.

    **Keys.** A key holds up to 64 KiB and a version. :meth:`cas` changes it only if the version is the one that the
    caller read, so of two callers that change it at once one succeeds and the other gets ``CasConflict``. Versions are
    taken from one counter of the whole oracle: a key's version grows with every change, also across deletion and
    re-creation, so a version is never used for two values. It need not grow by one.

    **Leases.** :meth:`acquire` returns a lease on a name for some seconds, with an epoch. The epoch fences: it grows
    with every acquisition and is sent with every action, so the holder of a newer epoch can refuse an older one. Safety
    rests on epochs alone; the clock only decides how soon a dead owner is replaced. An owner that acquires a lease that
    it holds gets a *new* epoch: after a restart it need not wait for its earlier process, and that process is fenced if
    it still runs. To keep a lease, :meth:`renew` it. Leases expire by the oracle's clock: on PostgreSQL that of the
    server, on SQLite that of the machine. So an owner does not compare ``expires`` with a clock of its own: it asks
    :meth:`lease`, or counts the seconds since before it called :meth:`acquire` or :meth:`renew`.

    **Clusters and metadata plogs** are named values: the servers of each persistence cluster, and the plog at which
    the recovery of each partition starts.

    Every change is one transaction, on the disk when the call returns. Every call may raise ``StoreClosed``;
    ``CpoUnavailable`` when the database cannot be used (if its ``outcome_unknown`` is set, the change may have been
    made: read before trying again); ``DiskFull``, when nothing was changed; and ``CpoCorrupt`` when stored data fails
    its check. Invalid arguments raise ``BadArgument`` and change nothing. Threads may share an oracle, and processes
    its database; after a fork, open it again.
    """

    def __init__(self, path: str) -> None:
        forks.guard(self)
        self._path = path

    @abstractmethod
    def _read(self, step: Callable[[CpoRows], _T]) -> _T:
        """Run a step that reads one state of the rows; it may run several times."""

    @abstractmethod
    def _change(self, step: Callable[[CpoRows], _T]) -> _T:
        """Run a step in a transaction, and commit it; an error of the step rolls it back.

        Transactions that change rows run one after another, in all processes. The step runs again if its transaction
        was certainly not committed.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the database; leases stay. Closing again does nothing."""

    def where(self) -> str:
        """Return the path of the oracle's file, or its address, for messages."""
        return self._path

    def get(self, key: str) -> Versioned | None:
        """Return the value and the version of ``key``; None if there is no such key."""
        check_text("key", key, size_max=KEY_SIZE_MAX)
        return self._read(lambda rows: rows.get(_KEY + key))

    def cas(self, key: str, value: bytes, *, expected: int, lease: Lease | None = None) -> int:
        """Set ``key`` if it is at version ``expected`` (0: if it does not exist); return its new version.

        Raises ``CasConflict`` if it is not; its ``actual`` is 0 if the key does not exist. With a ``lease``, also
        ``LeaseLost`` if that has a newer epoch; whether it has run out does not matter, since safety rests on epochs.
        """
        check_text("key", key, size_max=KEY_SIZE_MAX)
        check_value(value)
        check_version(expected, least=0)

        def change(rows: CpoRows) -> int:
            self._check_newest(rows, lease)
            _expect(key, rows.get(_KEY + key), expected)
            return rows.put(_KEY + key, value)

        return self._change(change)

    def delete(self, key: str, *, expected: int, lease: Lease | None = None) -> None:
        """Remove ``key`` if it is at version ``expected``; the errors of :meth:`cas` if it is not."""
        check_text("key", key, size_max=KEY_SIZE_MAX)
        check_version(expected, least=1)

        def change(rows: CpoRows) -> None:
            self._check_newest(rows, lease)
            _expect(key, rows.get(_KEY + key), expected)
            rows.remove(_KEY + key)

        self._change(change)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that start with ``prefix``, sorted."""
        return self._names(_KEY, prefix)

    def acquire(self, name: str, owner: str, *, seconds: float) -> Lease:
        """Take the lease ``name`` for ``seconds``, with a new epoch; ``LeaseHeld`` while another owner has it."""
        _check_lease_name(name)
        check_text("owner", owner, size_max=OWNER_SIZE_MAX)
        check_seconds(seconds)

        def change(rows: CpoRows) -> Lease:
            last = self._last_lease(rows, name)
            lease = _lease.granted(last, name=name, owner=owner, now=rows.now, seconds=seconds)
            rows.put(_LEASE + name, _lease.encode(lease))
            return lease

        return self._change(change)

    def next_epoch(self, name: str) -> Lease:
        """Return a lease with the next epoch of ``name``: changes that name the lease of an epoch before are refused.

        It is for owners that only have to be told apart from those after them. It is over at once, and is granted
        whatever the clock says.
        """
        _check_lease_name(name)

        def change(rows: CpoRows) -> Lease:
            lease = _lease.superseding(self._last_lease(rows, name), name=name, owner=secrets.token_hex(8))
            rows.put(_LEASE + name, _lease.encode(lease))
            return lease

        return self._change(change)

    def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """Hold ``lease`` for ``seconds`` from now on; ``LeaseLost`` if it ran out or has a newer epoch."""
        _check_lease_name(lease.name)
        check_seconds(seconds)

        def change(rows: CpoRows) -> Lease:
            last = self._last_lease(rows, lease.name)
            new = _lease.renewed(last, lease, now=rows.now, seconds=seconds)
            rows.put(_LEASE + lease.name, _lease.encode(new))
            return new

        return self._change(change)

    def release(self, lease: Lease) -> None:
        """Release ``lease`` before it expires; a lease that is lost is left to its new owner."""
        _check_lease_name(lease.name)

        def change(rows: CpoRows) -> None:
            new = _lease.released(self._last_lease(rows, lease.name), lease)
            if new is not None:
                rows.put(_LEASE + lease.name, _lease.encode(new))

        self._change(change)

    def lease(self, name: str) -> Lease | None:
        """Return the lease on ``name`` that is held now; None if it is free."""
        _check_lease_name(name)

        def read(rows: CpoRows) -> Lease | None:
            last = self._last_lease(rows, name)
            return last if last is not None and last.holds(now=rows.now) else None

        return self._read(read)

    def leases(self, prefix: str = "") -> list[Lease]:
        """Return the leases that are held now and whose names start with ``prefix``, sorted by name."""

        def read(rows: CpoRows) -> list[Lease]:
            names = [key.removeprefix(_LEASE) for key in rows.keys(_LEASE + prefix)]
            last = [self._last_lease(rows, name) for name in names]
            return [lease for lease in last if lease is not None and lease.holds(now=rows.now)]

        return self._read(read)

    def register_cluster(self, name: str, groups: Mapping[str, Sequence[str]]) -> None:
        """Register the groups of a cluster and the addresses of their servers.

        Registering the same again does nothing; another cluster under a taken name raises ``ClusterExists``.
        """
        cluster = _cluster.PersistenceCluster.of(name, groups)
        value = _cluster.encode(cluster)
        check_value(value)

        def change(rows: CpoRows) -> None:
            present = rows.get(_CLUSTER + name)
            if present is None:
                rows.put(_CLUSTER + name, value)
            elif present.value != value:
                raise ClusterExists(name)

        self._change(change)

    def change_cluster(self, present: PersistenceCluster, new: PersistenceCluster) -> None:
        """Register other groups or servers for a cluster; ``CpoError`` if it is not as the caller has read it."""
        value = _cluster.encode(new)
        check_value(value)

        def change(rows: CpoRows) -> None:
            row = rows.get(_CLUSTER + new.name)
            if row is None or row.value != _cluster.encode(present):
                raise CpoError(f"cluster {new.name!r} was changed by another process: look at it, and try again")
            rows.put(_CLUSTER + new.name, value)

        self._change(change)

    def cluster(self, name: str) -> PersistenceCluster:
        """Return the cluster registered as ``name``, ``NoSuchCluster`` if none is."""
        check_name("cluster", name)
        row = self._read(lambda rows: rows.get(_CLUSTER + name))
        if row is None:
            raise NoSuchCluster(name)
        return self._decoded(_CLUSTER + name, lambda: _cluster.decode(name, row.value))

    def clusters(self) -> list[str]:
        """Return the names of all clusters, sorted."""
        return self._names(_CLUSTER)

    def metadata_plog(self, partition: str) -> MetadataPlog | None:
        """Return the newest metadata plog of ``partition``, None if it has none yet."""
        check_name("partition", partition)
        row = self._read(lambda rows: rows.get(_METADATA + partition))
        if row is None:
            return None
        plog_id = self._decoded(_METADATA + partition, lambda: _metadata_plog.decode(row.value))
        return _metadata_plog.MetadataPlog(plog_id, row.version)

    def set_metadata_plog(self, partition: str, plog_id: PlogId, *, expected: int, lease: Lease | None = None) -> int:
        """Make ``plog_id`` the newest metadata plog of ``partition``; versions and errors are those of :meth:`cas`."""
        check_name("partition", partition)
        check_plog_id(plog_id)
        check_version(expected, least=0)

        def change(rows: CpoRows) -> int:
            self._check_newest(rows, lease)
            _expect(_METADATA + partition, rows.get(_METADATA + partition), expected)
            return rows.put(_METADATA + partition, _metadata_plog.encode(plog_id))

        return self._change(change)

    def _names(self, space: str, prefix: str = "") -> list[str]:
        return [key.removeprefix(space) for key in self._read(lambda rows: rows.keys(space + prefix))]

    def _check_newest(self, rows: CpoRows, lease: Lease | None) -> None:
        if lease is not None:
            _lease.check_newest(self._last_lease(rows, lease.name), lease)

    def _last_lease(self, rows: CpoRows, name: str) -> Lease | None:
        row = rows.get(_LEASE + name)
        if row is None:
            return None
        return self._decoded(_LEASE + name, lambda: _lease.decode(name, row.value))

    def _decoded(self, key: str, decode: Callable[[], _T]) -> _T:
        try:
            return decode()
        except UNDECODABLE as error:
            reason = f"{key!r} holds a value that no version of Penstock writes ({error})"
            raise CpoCorrupt(self._path, offset=None, reason=reason) from error


def _expect(key: str, row: Versioned | None, expected: int) -> None:
    actual = 0 if row is None else row.version
    if actual != expected:
        raise CasConflict(key, expected=expected, actual=actual)


def _check_lease_name(name: object) -> None:
    check_text("lease", name, size_max=KEY_SIZE_MAX)
