"""The leases of servers that share a store, and what they say about the cluster.

Each server holds a lease on its own address for as long as it runs, so that the others are listed while they are there
and two servers with one address are noticed. The owner of the store holds another one, on the partition. The owner text
of both is ``ADDRESS ID SINCE``: the address that clients use, an id of the process, and when it acquired the lease, in
seconds since 1970 by its own clock, for people to read.

A lease only decides how soon a server that was killed is replaced. That a former owner cannot write rests on the plogs
alone: taking the partition over fences it.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.embedded import PARTITION
from penstock.errors import CpoError, LeaseHeld, LeaseLost, PenstockError
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cpo import Cpo, Lease
    from penstock.ports import Clock

__all__ = ["LEASE_S", "RENEW_S", "ClusterServer", "ServerLeases", "cluster_servers"]

LEASE_S: Final = 2.0  # a server that was killed is replaced this long after its last renewal, and a moment more
RENEW_S: Final = 0.5  # so that three renewals may be late, or fail
_SERVER: Final = "server/"
_PARTITION: Final = "partition/"
_logger: Final = logging.getLogger("penstock.server")


class ClusterServer(NamedTuple):
    """A server of a cluster, and what it owns: ``partition`` is None, and ``epoch`` 0, if it stands by."""

    address: str
    partition: str | None
    epoch: int
    since: float
    until: float


def cluster_servers(cpo: Cpo) -> list[ClusterServer]:
    """Return the servers of the store that an oracle is of: owners first, then those that stand by, by address."""
    owned = [_described(lease, lease.name.removeprefix(_PARTITION)) for lease in cpo.leases(_PARTITION)]
    owners = {server.address for server in owned}
    others = [_described(lease, None) for lease in cpo.leases(_SERVER)]
    return [*owned, *(server for server in others if server.address not in owners)]


def _described(lease: Lease, partition: str | None) -> ClusterServer:
    address, _, rest = lease.owner.partition(" ")
    since = 0.0
    with suppress(ValueError):  # a program other than this one may have acquired it
        since = float(rest.rpartition(" ")[2])
    return ClusterServer(address, partition, 0 if partition is None else lease.epoch, since, lease.expires)


class ServerLeases:
    """The leases of one server, renewed by a thread of their own: opening the store may take longer than they last.

    While the oracle cannot be reached, an owner goes on: no other server can acquire the lease through it either, and
    if only this server is cut off from it, the plogs refuse what it appends once another one has taken over. When the
    oracle is back, the epoch tells whether another server had the lease meanwhile; if none had, nothing has happened.
    """

    def __init__(self, cpo: Cpo, address: str, *, clock: Clock | None = None) -> None:
        self._cpo, self._address, self._id = cpo, address, secrets.token_hex(8)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # held during calls of the oracle: one at a time
        self._presence: Lease | None = None
        self._partition: Lease | None = None
        self._troubles: dict[str, str] = {}  # why a lease could not be acquired or renewed the last time, by its name
        self._patient_until = -math.inf  # until then the owner may renew its lease: the oracle was away
        self._seen: dict[str, tuple[Lease | None, float]] = {}  # leases of other servers, and since when they are so
        self.lost: str | None = None  # why the partition must be given up, if it must
        self.owner: str | None = None  # the address of the last owner of the partition that this server has seen
        self.renew()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-leases", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """Why this server cannot acquire or renew a lease, if it cannot."""
        return next(iter(self._troubles.values()), None)

    def acquire(self) -> bool:
        """Acquire the lease on the partition, if it is free; return whether this server has it now."""
        with self._lock, self._noted(_PARTITION):
            asked, was_away = self._clock.elapsed(), _PARTITION in self._troubles
            held = self._cpo.lease(_PARTITION + PARTITION)  # first, because asking for a lease is a write
            now = self._clock.elapsed()
            if was_away or now - asked > LEASE_S:
                self._patient_until = now + LEASE_S
            if held is not None:
                self.owner = _described(held, None).address
                self._end_if_dead(held)
            elif self._presence is not None and now >= self._patient_until:
                with suppress(LeaseHeld):  # another server was faster
                    self._partition, self.lost = self._acquired(_PARTITION + PARTITION), None
                    return True
        return False

    def _end_if_dead(self, held: Lease) -> None:
        """Release the lease of another server that has not renewed it for twice as long as it lasts.

        The clock of the oracle may have been set back since, by hours, so the seconds are counted by one that is never
        set. A server that is alive after all acquires its lease again, or is fenced.
        """
        now = self._clock.elapsed()
        seen, since = self._seen.get(held.name, (None, 0.0))
        if seen != held:
            self._seen[held.name] = held, now
        elif now - since > 2 * LEASE_S and now >= self._patient_until:
            _logger.warning("the lease %r of %s is not renewed and does not end: releasing it", held.name, held.owner)
            self._cpo.release(held)

    def renew(self) -> None:
        """Renew the leases; the thread does this all the time."""
        with self._lock:
            if self._partition is not None and self.lost is None:
                with self._noted(_PARTITION):
                    self._renew_partition(self._partition)
            with self._noted(_SERVER):
                self._renew_presence()

    def _renew_partition(self, lease: Lease) -> None:
        try:
            self._partition = self._cpo.renew(lease, seconds=LEASE_S)
        except LeaseLost as error:
            is_ours = False
            with suppress(LeaseHeld):
                self._partition = self._acquired(lease.name)
                is_ours = self._partition.epoch == lease.epoch + 1  # it had run out, and no other server has had it
            if not is_ours:  # set when it is certain: another thread looks at any moment
                self.lost = str(error)

    def _renew_presence(self) -> None:
        if self._presence is not None:
            with suppress(LeaseLost):
                self._presence = self._cpo.renew(self._presence, seconds=LEASE_S)
                return
        self._presence = None
        try:
            self._presence = self._acquired(_SERVER + self._address)
        except LeaseHeld as error:
            held = self._cpo.lease(_SERVER + self._address)
            if held is not None:
                self._end_if_dead(held)
            raise CpoError(
                f"another server advertises {self._address}, or did until a moment ago: "
                "give each server an address of its own with the setting advertise"
            ) from error

    def _acquired(self, name: str) -> Lease:
        return self._cpo.acquire(name, f"{self._address} {self._id} {self._clock.now():.3f}", seconds=LEASE_S)

    @contextmanager
    def _noted(self, lease: str) -> Iterator[None]:
        """Note what goes wrong with a lease, and log it once."""
        try:
            yield
        except PenstockError as error:
            if self._troubles.get(lease) != str(error):
                _logger.warning("a lease cannot be acquired or renewed: %s", error)
            self._troubles[lease] = str(error)
        else:
            if self._troubles.pop(lease, None) is not None:
                _logger.info("leases can be acquired and renewed again")

    def _work(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                self.renew()
            except Exception:  # the next time may be better
                _logger.exception("leases could not be renewed")

    def release(self) -> None:
        """Release the partition, so that another server need not wait until the lease ends."""
        with self._lock:
            lease, self._partition = self._partition, None
            if lease is not None and not self._troubles:  # an oracle that is away is not waited for: the lease ends
                with self._noted(_PARTITION):
                    self._cpo.release(lease)

    def close(self) -> None:
        """Release all leases."""
        self._over.set()
        self._thread.join()
        self.release()
        with self._noted(_SERVER):
            if self._presence is not None and not self._troubles:
                self._cpo.release(self._presence)
