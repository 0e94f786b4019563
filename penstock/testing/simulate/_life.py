"""One run: owners append, read, truncate and repair while things go wrong; then everything must become well again."""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import (
    CorruptData,
    CpoUnavailable,
    DiskFull,
    GroupUnavailable,
    LeaseLost,
    LogFenced,
    NoSuchPlog,
    PenstockError,
    PlogCorrupt,
    ReplicaLost,
    StoreFenced,
)
from penstock.log import PlogSizes
from penstock.log import protocols as log
from penstock.model import PlogId
from penstock.plog.replicated import list_damaged, list_replicas, note_missing, repair_plog
from penstock.testing.simulate._faults import Faults
from penstock.testing.simulate._log import SimLog
from penstock.testing.simulate._owner import CLUSTER
from penstock.testing.simulate._truth import Violation
from penstock.testing.simulate._world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog.replicated import ReplicaSteps
    from penstock.testing.simulate._kernel import Waits
    from penstock.testing.simulate._owner import SimOwner

__all__ = ["LifeReport", "SetBackWorld", "SimulatedWorld", "run_life"]

_SIZES: Final = PlogSizes(first=120, largest=240)
_LOG: Final = "log"
_PARTITION: Final = "p"
_TRANSIENT: Final = (ReplicaLost, GroupUnavailable, CpoUnavailable, DiskFull)
_FAULTS_S: Final = 6.0
_RECOVERY_S: Final = 30.0
_APPENDS: Final = 40
_FINAL_ACKS: Final = 3
_PAUSE_S: Final = 0.5
_LOOK_S: Final = 0.05  # between two looks whether everything is well


@dataclass(frozen=True, slots=True)
class LifeReport:
    """What a run has seen: enough to know that it was a life worth checking."""

    seed: int
    owners: int
    opened: int
    acked: int
    plogs: int
    steps: int


class SimulatedWorld(World):
    """A world in which owners work."""

    sets_back = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed, groups=2)
        self.logs: dict[str, SimLog] = {}  # of owners that have opened the log, by the name of the process
        self.opened = 0
        self._appended = 0
        self._is_final = False

    def start_owner(self) -> SimOwner:
        """Start another owner, whatever the owners before are doing."""
        owner = self.new_owner()
        self.kernel.spawn(owner.process, self._live(owner))
        return owner

    def owner_ended(self) -> None:
        """Start another owner after a while, if none is left."""

        def start() -> None:
            if not any(owner.process.is_alive for owner in self.owners[-3:]):
                self.start_owner()

        self.kernel.at(_PAUSE_S * self.kernel.random.random(), self.kernel.world, start)

    def may_retry(self, owner: SimOwner, error: PenstockError) -> bool:
        """Return whether an owner goes on after an error; end it if not."""
        if isinstance(error, _TRANSIENT):
            return True
        is_present = owner.epoch == self.oracle.epoch and owner.process.is_alive
        expected = isinstance(error, StoreFenced | LogFenced | LeaseLost)
        self.truth.check(expected or not is_present or not isinstance(error, CorruptData), f"{error!r}")
        owner.end(repr(error))
        return False

    def _live(self, owner: SimOwner) -> Waits[None]:
        try:
            yield from self._open(owner)
            yield from self._work(owner)
        except PenstockError as error:
            self.may_retry(owner, error)
            owner.end(repr(error))  # what failed while it opened is tried again by its successor

    def _open(self, owner: SimOwner) -> Waits[None]:
        partition = yield from owner.run_log(log.open_partition(_PARTITION, _SIZES))
        if _LOG not in partition.metadata.logs:
            yield from owner.run_log(log.create_log(partition, _LOG))
        sim_log = SimLog(self, owner, partition, _LOG)
        yield from sim_log.open()
        start, content = yield from sim_log.read()
        self.truth.note_opened(owner.epoch, start, content)
        self.logs[owner.process.name] = sim_log
        self.opened += 1
        self.kernel.spawn(owner.process, self._repair_for_ever(owner))
        self.kernel.spawn(owner.process, self._delete_doomed(owner, partition))

    def _work(self, owner: SimOwner) -> Waits[None]:
        sim_log, random = self.logs[owner.process.name], self.kernel.random
        while True:
            yield self.kernel.sleep(random.choice((0.001, 0.01, 0.2)) * random.random(), owner.process)
            if sim_log.pending < 8:
                self._appended += 1
                data = b"%d.%d;" % (owner.epoch, self._appended)
                sim_log.append(data + b"." * random.choice((0, 0, 5, 60)))
            if random.random() < 0.1:
                yield from self._tried(owner, self._read(owner, sim_log))
            if random.random() < 0.03 and not self._is_final:
                yield from self._tried(owner, self._truncate(owner, sim_log))

    def _tried(self, owner: SimOwner, waits: Waits[None]) -> Waits[None]:
        try:
            yield from waits
        except PenstockError as error:
            self.may_retry(owner, error)

    def _read(self, owner: SimOwner, sim_log: SimLog) -> Waits[None]:
        start, content = yield from sim_log.read(skip=-2)
        self.truth.note_read(owner.epoch, start, content)

    def _truncate(self, owner: SimOwner, sim_log: SimLog) -> Waits[None]:
        partition, plogs = sim_log.partition, sim_log.plogs()
        if len(plogs) > 2:
            yield from owner.run_log(log.append_records(partition, [log.Truncate(_LOG, str(plogs[-2][0]))]))
            yield from self._delete_doomed(owner, partition)

    def _delete_doomed(self, owner: SimOwner, partition: log.Partition) -> Waits[None]:
        for plog_id in list(partition.metadata.doomed):
            yield from owner.delete(plog_id)
            partition.metadata.doomed.pop(plog_id, None)

    def _repair_for_ever(self, owner: SimOwner) -> Waits[None]:
        while True:
            yield self.kernel.sleep(self.kernel.random.random(), owner.process)
            yield from self._tried(owner, self._repair(owner))

    def _ask_damaged(self, owner: SimOwner) -> Waits[None]:
        """Note what the scrubs of the servers have found."""
        for group in self.groups:
            found = yield from owner.run(list_damaged(group))
            for uid, places in found.items():
                plog_id = PlogId(CLUSTER, group, uid.hex())
                yield from self._tried(owner, self._noted(owner, plog_id, frozenset(places)))

    def _noted(self, owner: SimOwner, plog_id: PlogId, places: frozenset[int]) -> Waits[None]:
        with suppress(NoSuchPlog, PlogCorrupt):  # of one that is being deleted, the last replica may be damaged
            yield from owner.note_damaged(plog_id, places)

    def _repair(self, owner: SimOwner) -> Waits[None]:
        yield from self._tried(owner, self._ask_damaged(owner))
        rows: list[PlogId] = yield self.oracle.call(owner.process, lambda: list(self.oracle.rows))
        for plog_id in rows:
            yield from self._tried(owner, self._repaired(owner, plog_id))
        if self.kernel.random.random() < 0.3:
            for group in self.groups:
                holders = yield from owner.run(list_replicas(group))
                for uid, places in (holders or {}).items():
                    plog_id = PlogId(CLUSTER, group, uid.hex())
                    is_stray = len(places) == 1 and not self.logs[owner.process.name].partition.known_among([plog_id])
                    if len(places) < 3 and not is_stray:
                        yield from owner.locked(plog_id, self._note_left(owner, plog_id))

    def _note_left(self, owner: SimOwner, plog_id: PlogId) -> ReplicaSteps[None]:
        if plog_id not in owner.plogs.windows:
            yield from note_missing(plog_id)

    def _repaired(self, owner: SimOwner, plog_id: PlogId) -> Waits[None]:
        yield from owner.locked(plog_id, repair_plog(plog_id))

    def check_recovery(self) -> None:
        """Check that an owner acknowledges again, and that three equal replicas of everything come back."""
        self._is_final = True
        self.start_owner()

        def acks() -> bool:
            sim_log = self.logs.get(self.owners[-1].process.name)
            return sim_log is not None and sim_log.acked >= _FINAL_ACKS

        has_acked = self._run(acks, _RECOVERY_S)
        reasons = [owner.end_reason for owner in self.owners[-2:]]
        self.truth.check(has_acked, f"no acknowledgement after all faults were over; owners ended: {reasons}")
        owner = self.owners[-1]
        self._await_well(owner)  # without reads: the servers find what is damaged
        verified = self.kernel.spawn(owner.process, self._verify(owner))
        done = self._run(lambda: verified.is_done or not owner.process.is_alive, _RECOVERY_S)
        self.truth.check(done and verified.error is None, f"a server cannot be read from: {verified.error!r}")
        self._await_well(owner)

    def _await_well(self, owner: SimOwner) -> None:
        """Run until everything is well; that is looked at from time to time, because it takes long."""
        look_at = 0.0

        def is_well() -> bool:
            nonlocal look_at
            if self.kernel.now < look_at:
                return False
            look_at = self.kernel.now + _LOOK_S
            return not self._unwell(owner)

        well = self._run(is_well, _RECOVERY_S)
        self.truth.check(well, f"repair has not ended: {self._unwell(owner)}")

    def _run(self, until: Callable[[], bool], seconds: float) -> bool:
        """Run, and check the replicas after every step."""
        truth = self.truth

        def checked() -> bool:
            truth.check_replicas()
            truth.check_findings()
            return until()

        return self.kernel.run(checked, seconds=seconds)

    def _verify(self, owner: SimOwner) -> Waits[None]:
        """Read everything from each server, so that damage is found."""
        sim_log = self.logs[owner.process.name]
        for first in range(3):
            start, content = yield from sim_log.read(first=first)
            self.truth.note_read(owner.epoch, start, content)
            info = yield from owner.info(sim_log.partition.plog_id)
            yield from owner.read(sim_log.partition.plog_id, 0, info.length, first)

    def _unwell(self, owner: SimOwner) -> str:
        """Return what is not as it should be once repair has ended."""
        if self.oracle.rows:
            return f"rows {self.oracle.rows}"
        sim_log = self.logs[owner.process.name]
        for plog_id, length in sim_log.partition.metadata.logs[_LOG].sealed:
            for server in self.groups[plog_id.group]:
                replica = server.storage.replicas_by_uid.get(plog_id.uid_bytes)
                if replica is None or not replica.is_sealed or replica.damage:
                    return f"no good replica of {plog_id} on {server.name}"
                if replica.content != self.truth.content_of(plog_id)[:length]:
                    return f"another content of {plog_id} on {server.name}"
        for server in self.servers:
            deleted = [
                uid
                for uid in server.storage.replicas_by_uid
                if self.truth.is_deleted(PlogId(CLUSTER, server.group, uid.hex()))
            ]
            back = {uid for uid in deleted if (server.name, uid) in self.truth.left_over}
            if server.storage.damaged - back:
                return f"the scrub of {server.name} has found {server.storage.damaged}"
            for uid in deleted:
                if uid not in back:
                    return f"the deleted plog {uid.hex()} is on {server.name}"
        return ""

    def live(self) -> None:
        """Run the whole life."""
        faults = Faults(self, sets_back=self.sets_back)
        self.start_owner()
        faults.begin()

        self._run(lambda: self.truth.acked >= _APPENDS, _FAULTS_S)
        faults.stop()
        self.check_recovery()


class SetBackWorld(SimulatedWorld):
    """A world in which the folders of some servers are set back, too; a kind of its own, so that seeds keep lives."""

    sets_back = True


def run_life(seed: int, world_class: type[SimulatedWorld] = SimulatedWorld) -> LifeReport:
    """Run one life; raise :class:`Violation` with the seed if it breaks a promise."""
    world, collects = world_class(seed), gc.isenabled()
    gc.disable()  # what dead processes have not finished would end whenever it is collected, and wake up others
    try:
        world.live()
    except Violation as violation:
        raise Violation(f"seed {seed}, after {world.kernel.now:.3f} s: {violation}") from None
    finally:
        if collects:
            gc.enable()
    plogs = len(world.truth.committed)
    return LifeReport(seed, len(world.owners), world.opened, world.truth.acked, plogs, world.kernel.steps)
