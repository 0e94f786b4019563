"""Plog servers in processes of their own that are killed, suspended and robbed of their disks, at random."""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from penstock.cpo import open_cpo
from penstock.errors import GroupUnavailable
from penstock.plog.replicated import check_replaceable
from penstock.plog.server import ServerFolder
from tests.plog_servers import GROUPS, PlogServerProcesses
from tests.server.apart import suspend

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random
    from types import TracebackType
    from typing import Self

CLUSTER: Final = "plant"
PARTITION: Final = "main"
PAUSE_S: Final = 0.4  # the longest between two faults
BOTH: Final = 0.2  # the chance that the servers of both groups fail, and not those of one
REPAIR_S: Final = 60
ROBBED: Final = 0.3  # the chance that a server loses its disk between two lives of the owner


class HarmedServers:
    """The six servers of a cluster, registered in an oracle; what happens to them is told by ``dice``."""

    def __init__(self, folder: Path, dice: Random, *, cpo: str) -> None:
        folder.mkdir()
        self._dice, self._cpo = dice, cpo
        self._servers = PlogServerProcesses(folder)
        self._suspended = set[tuple[str, int]]()
        with open_cpo(cpo) as oracle:
            self._servers.register(oracle)

    def __enter__(self) -> Self:
        """Kill them at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill them."""
        self._servers.__exit__(kind, error, trace)

    def harm(self, seconds: float) -> None:
        """Let servers fail and come back for so many seconds."""
        end = time.monotonic() + seconds
        groups = GROUPS if self._dice.random() < BOTH else (self._dice.choice(GROUPS),)
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self._dice.uniform(0, PAUSE_S)))
            group, place = self._dice.choice(groups), self._dice.randrange(3)
            if (group, place) in self._suspended or (group, place) not in self._servers.running:
                self._bring_back(group, place)
            elif self._dice.random() < 0.8:
                self._servers.end(group, place, by=signal.SIGKILL)
            else:
                suspend(self._servers.running[group, place].pid)
                self._suspended.add((group, place))

    def _bring_back(self, group: str, place: int) -> None:
        if (group, place) in self._suspended:
            self._suspended.remove((group, place))
            self._servers.running[group, place].send_signal(signal.SIGCONT)
        elif (group, place) not in self._servers.running:
            self._servers.start_again(group, place)

    def leave_enough(self) -> None:
        """Bring servers back, all or all but one, so that one group at least is complete, and the other is readable."""
        left_out = (self._dice.choice(GROUPS), self._dice.randrange(3)) if self._dice.random() < 0.5 else None
        for server in self._servers.addresses:
            if server != left_out:
                self._bring_back(*server)
        self._servers.await_ready(but=self._suspended)

    def mend(self) -> None:
        """Bring all servers back; one of them may have lost its disk, if the two others have all that it had."""
        for server in self._servers.addresses:
            self._bring_back(*server)
        self._servers.await_ready()
        if self._dice.random() < ROBBED:
            group, place = self._dice.choice(GROUPS), self._dice.randrange(3)
            with suppress(GroupUnavailable):
                self._check_replaceable(group, place)
                self._servers.end(group, place, by=signal.SIGKILL)
                shutil.rmtree(self._servers.folder(group, place))
                self._servers.start_again(group, place)
                self._servers.await_ready()

    def _check_replaceable(self, group: str, place: int) -> None:
        with open_cpo(self._cpo) as oracle:
            check_replaceable(oracle, CLUSTER, group, self._servers.addresses[group, place])

    def await_repair(self) -> None:
        """Return when each server has a good replica of every plog of its group, and no row is left."""
        deadline = time.monotonic() + REPAIR_S
        while left := self._to_be_repaired():
            assert time.monotonic() < deadline, left

    def _to_be_repaired(self) -> str:
        """Return what is not yet repaired, for people; an empty text if there is nothing."""
        with open_cpo(self._cpo) as oracle:
            if rows := oracle.keys("seal/"):
                return f"rows that are left: {rows}"
            try:
                for group, place in self._servers.addresses:
                    self._check_replaceable(group, place)
            except GroupUnavailable as error:
                return str(error)
        return ""

    def check_equal(self) -> None:
        """Stop the servers, and see that the three of each group have the same on their disks.

        An owner that was killed may have left more in an open replica: what it appended last, and did not acknowledge.
        """
        for group, place in list(self._servers.running):
            self._servers.end(group, place, by=signal.SIGKILL)
        for group in GROUPS:
            replicas = [self._content(group, place) for place in range(3)]
            assert replicas[0].keys() == replicas[1].keys() == replicas[2].keys(), (
                f"replicas of group {group} are missing"
            )
            for uid in replicas[0]:
                sealed, contents = zip(*(found[uid] for found in replicas), strict=True)
                length = max(map(len, contents)) if any(sealed) else min(map(len, contents))
                assert len(set(sealed)) == 1, f"plog {uid} of group {group} is not sealed everywhere"
                assert len({content[:length] for content in contents}) == 1, (
                    f"replicas of {uid} of group {group} differ"
                )

    def _content(self, group: str, place: int) -> dict[str, tuple[bool, bytes]]:
        with closing(ServerFolder(self._servers.folder(group, place), cluster=CLUSTER, group=group)) as folder:
            replicas = folder.partition(PARTITION, count_max=1).replicas
            found = {}
            for uid in replicas.uids():
                plog_id = replicas.plog_id(uid)
                info = replicas.info(plog_id)
                blocks = replicas.blocks(plog_id, 0, info.length)
                found[uid] = (info.sealed, b"".join(bytes(view) for _, view in blocks))
                assert len(found[uid][1]) == info.length
            return found
