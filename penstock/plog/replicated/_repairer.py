"""Repair in the background: the rows in the oracle are worked off, and servers that come back are looked through.

A server that starts may have lost its folder, or be a new one at an old address. So the plogs of its group are listed
then, and those that it has lost get a row. Until that is done, nobody knows how much is to be repaired, and an operator
who relied on 0 would empty the next disk. So a repair pass ends early for a group that is to be listed. Rows of a group
with a server that is away stay for later. Servers are asked from time to time which replicas they have found damaged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from penstock.errors import LeaseLost, NoSuchPlog, PenstockError, PlogCorrupt, StoreFenced
from penstock.model import PlogId
from penstock.plog.replicated._damage import list_damaged, note_damaged
from penstock.plog.replicated._repair import find_missing, list_replicas, note_missing, repair_plog
from penstock.plog.replicated._rows import ListedGroup
from penstock.plog.replicated._strays import LostPlogs, Strays
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.plog._replication_use import KnownPlogs
    from penstock.plog.replicated._actions import ReplicaSteps
    from penstock.plog.replicated._rows import OracleRows

__all__ = ["Repairer"]

T = TypeVar("T")
_AGAIN_S: Final = 1.0  # until rows that could not be repaired are tried again
_ASK_DAMAGED_S: Final = 10.0  # between two questions to all servers for damage that they have found
_RATE: Final = 64 << 20  # bytes a second that are copied
_logger: Final = logging.getLogger("penstock.plogs")


class RepairContext(Protocol):
    """What repair needs of the plogs."""

    def run_alone(self, plog_id: PlogId, steps: ReplicaSteps[T]) -> T:
        """Run a protocol of a plog while no other of the same plog runs."""

    def run(self, steps: ReplicaSteps[T]) -> T:
        """Run a protocol."""

    def is_up(self, group: str) -> bool:
        """Return whether all servers of a group have an open session."""

    def is_open(self, plog_id: PlogId) -> bool:
        """Return whether this owner has the plog open."""

    def lose_replicas(self, plog_id: PlogId, servers: Iterable[int], reason: str) -> bool:
        """Append no more to an open plog: its log continues in another one. Return whether it can be repaired now."""


class Repairer:
    """The thread that repairs plogs; it begins when it is started."""

    def __init__(self, plogs: RepairContext, rows: OracleRows, *, cluster: str) -> None:
        self._plogs, self._rows, self._cluster = plogs, rows, cluster
        self._changed = threading.Condition()
        self._has_rows = True  # perhaps; it is not known yet
        self._to_list: set[str] = set()  # groups
        self._failed: set[str] = set()  # those that could not be listed in this round
        self._listed: set[str] = set()  # those of which is known what they lack
        self._instances: dict[str, dict[int, bytes]] = {}  # of the servers, by group and place
        self._held: dict[str, set[PlogId]] = {}  # what was found in a group when it was listed last
        self.lost: Final = LostPlogs()
        self._is_begun = False
        self._groups: set[str] = set()  # of which a server was ever there
        self._asked_at = time.monotonic()
        self._damaged: dict[PlogId, set[int]] = {}
        self._over = False
        self._left: Counter[str] = Counter()  # plogs to be repaired, by group
        self._copied: Counter[str] = Counter()  # bytes, by group
        self.strays: Final = Strays()
        self._thread = threading.Thread(target=self._work, name="penstock-repair", daemon=True)

    def start(self) -> None:
        """Begin to repair."""
        self._thread.start()

    def set_known(self, known: KnownPlogs) -> None:
        """Be given the function that knows the plogs of all logs; look again at what not all servers have."""
        self.lost.set_known(known)
        self.strays.set_known(known)
        for group in tuple(self._groups):
            self.note_started(group)

    def note_row(self) -> None:
        """Note that a row was written."""
        with self._changed:
            self._has_rows = True
            self._changed.notify()

    def note_started(self, group: str, place: int | None = None, instance: bytes = b"") -> None:
        """Note that a server of a group has started, or that the group is to be listed again."""
        with self._changed:
            if place is not None:
                self._instances.setdefault(group, {})[place] = instance
            self._listed.discard(group)
            self._to_list.add(group)
            self._groups.add(group)
            self._changed.notify()

    def note_damaged(self, plog_id: PlogId, servers: frozenset[int]) -> None:
        """Note that a read found damaged replicas."""
        with self._changed:
            self._damaged.setdefault(plog_id, set()).update(servers)
            self._changed.notify()

    def is_listed(self, group: str) -> bool:
        """Return whether it is known which plogs of a group are to be repaired: no server has started since."""
        return group in self._listed

    def left(self, group: str) -> int:
        """Return how many plogs of a group are known to lack a good replica."""
        return self._left[group]

    def copied_size(self, group: str) -> int:
        """Return how many bytes were copied in a group."""
        return self._copied[group]

    def copied(self, group: str, size: int) -> None:
        """Count bytes that were copied, and keep to the rate."""
        self._copied[group] += size
        time.sleep(size / _RATE)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._over or self._has_rows or self._damaged or self._listable(), _ASK_DAMAGED_S
                )
                if self._over:
                    return
            for task in (self._ask_damaged, self._note_all_damaged, self._list, self._repair):
                try:
                    task()
                except StoreFenced:
                    return
                except PenstockError as error:
                    _logger.warning("repair of plogs is interrupted: %s", error)
                except Exception:
                    _logger.exception("repair of plogs has failed")
            with self._changed:
                self._changed.wait_for(lambda: self._over, _AGAIN_S)
            self._failed.clear()

    def _listable(self) -> list[str]:
        return [group for group in self._to_list - self._failed if self._plogs.is_up(group)]

    def _list(self) -> None:
        """Look for the plogs that a server which has started has lost."""
        for group in self._listable():
            with self._changed:
                self._to_list.discard(group)  # a server that starts from now on has it looked through again
                places = sorted(self._instances.get(group, {}).items())
            try:
                is_listed = self._list_group(group)
                self._ask_group(group)  # a server finds damage when it opens its folder
                if is_listed:
                    self._note_listed(group, tuple(instance for _, instance in places))
            except StoreFenced:
                raise
            except PenstockError as error:
                _logger.warning("the plogs of group %s cannot be listed now: %s", group, error)
                is_listed = False
            if not is_listed:
                self._failed.add(group)
                self.note_started(group)

    def _note_listed(self, group: str, instances: tuple[bytes, ...]) -> None:
        if not self.strays.is_decided(group):
            return  # it is listed again when the logs are open
        self._left = Counter(plog_id.group for plog_id in self._rows.plogs())
        try:
            self._rows.note_listed(group, ListedGroup(instances, self.lost.count(group)))
        except LeaseLost as error:
            raise StoreFenced("these plog servers", owner="an owner with a newer epoch") from error
        with self._changed:
            if group not in self._to_list:
                self._listed.add(group)

    def _list_group(self, group: str) -> bool:
        """Note the plogs of a group that a server has lost; return whether that is known of all of them."""
        holders = self._plogs.run(list_replicas(group))
        if holders is None:
            return False
        is_known, corrupt = True, set[PlogId]()
        by_plog = {PlogId(self._cluster, group, uid.hex()): servers for uid, servers in holders.items()}
        single = {plog_id: min(servers) for plog_id, servers in by_plog.items() if len(servers) == 1}
        self.strays.find(group, self._not_open(single), self._plogs.run_alone)
        for plog_id, servers in by_plog.items():
            if len(servers) == REPLICAS or self._over or plog_id in self.strays:
                continue
            try:
                is_known = self._note_missing(plog_id) and is_known
            except StoreFenced:
                raise
            except NoSuchPlog:
                continue  # it is deleted, or is about to be where a server was away
            except PlogCorrupt as error:  # it stays so: to list the group again would not help
                corrupt.add(plog_id)
                _logger.error("plog %s cannot be repaired: %s", plog_id, error)  # noqa: TRY400 - no mistake of ours
            except PenstockError as error:
                _logger.warning("plog %s cannot be looked at now: %s", plog_id, error)
                is_known = False
        if is_known and not self._over:
            self.lost.note(group, corrupt, self._held.get(group, set()), set(by_plog))
            self._held[group] = set(by_plog)
        return is_known and not self._over

    def _not_open(self, plogs: Mapping[PlogId, int]) -> dict[PlogId, int]:
        """Leave out the plogs that this owner has open: they are its own."""
        return {plog_id: place for plog_id, place in plogs.items() if not self._plogs.is_open(plog_id)}

    def _note_missing(self, plog_id: PlogId) -> bool:
        """Have a plog repaired; return whether it has its row, if it needs one."""
        if not self._plogs.is_open(plog_id):
            self._plogs.run_alone(plog_id, self._note_left(plog_id, is_needed=self.strays.is_needed(plog_id)))
        elif missing := self._plogs.run_alone(plog_id, find_missing(plog_id)):
            return self._plogs.lose_replicas(plog_id, missing, "its replica is gone")
        return True

    def _note_left(self, plog_id: PlogId, *, is_needed: bool) -> ReplicaSteps[None]:
        if not self._plogs.is_open(plog_id):  # it may have been created until this could begin
            yield from note_missing(plog_id, is_needed=is_needed)

    def _ask_damaged(self) -> None:
        """Ask the servers of complete groups, which alone can be repaired."""
        if time.monotonic() < self._asked_at + _ASK_DAMAGED_S:
            return
        self._asked_at = time.monotonic()
        for group in sorted(self._groups):
            if self._plogs.is_up(group):
                self._ask_group(group)

    def _ask_group(self, group: str) -> None:
        for uid, servers in self._plogs.run(list_damaged(group)).items():
            self.note_damaged(PlogId(self._cluster, group, uid.hex()), frozenset(servers))

    def _note_all_damaged(self) -> None:
        with self._changed:
            damaged, self._damaged = self._damaged, {}
        for plog_id, servers in damaged.items():
            if plog_id in self.strays:
                continue
            try:
                if self._plogs.lose_replicas(plog_id, servers, "its replica is damaged"):
                    self._plogs.run_alone(plog_id, note_damaged(plog_id, frozenset(servers)))
                else:
                    self.note_damaged(plog_id, frozenset(servers))  # again, until its appends have ended
            except NoSuchPlog:
                continue
            except StoreFenced:
                raise
            except PlogCorrupt as error:  # no replica is left to copy: a read, or the server itself, finds it again
                _logger.error("plog %s cannot be repaired: %s", plog_id, error)  # noqa: TRY400 - no mistake of ours
            except PenstockError as error:
                _logger.warning("damage of plog %s cannot be noted now: %s", plog_id, error)
                self.note_damaged(plog_id, frozenset(servers))

    def _repair(self) -> None:
        """Repair the plogs that have rows, as far as their servers are there."""
        if not self._has_rows:
            return
        self._has_rows = False  # one that is written from now on sets it again
        try:
            plogs = self._rows.plogs()
        except PenstockError:
            self._has_rows = True
            raise
        if plogs and not self._is_begun:
            _logger.info("repair of %d plogs begins", len(plogs))
        self._is_begun = bool(plogs)
        self._left = Counter(plog_id.group for plog_id in plogs)
        for plog_id in plogs:
            if self._over or self._listable():
                self._has_rows = True
                return
            try:
                if self._plogs.is_up(plog_id.group) and self._plogs.run_alone(plog_id, repair_plog(plog_id)):
                    self._left[plog_id.group] -= 1
                    if not self._left.total():
                        self._is_begun = False
                        _logger.info("repair is done; %d bytes were copied since the start", self._copied.total())
                    continue
            except StoreFenced:
                raise
            except PenstockError as error:
                _logger.warning("plog %s cannot be repaired now: %s", plog_id, error)
            self._has_rows = True

    def close(self) -> None:
        """End after the plog that is being repaired."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
