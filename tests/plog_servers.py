"""Groups of three plog servers, in this process or in their own; each can be stopped, started again, and robbed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from penstock.cpo import open_cpo
from penstock.plog.replicated import open_cluster_plogs, open_group_plogs
from penstock.plog.server import PlogServer, PlogServerLimits, ServerFolder
from penstock.server._addresses import listen
from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from penstock.cpo import Cpo
    from penstock.plog.replicated import ReplicatedPlogs
    from penstock.plog.server import ScrubSettings

__all__ = ["PlogServerProcesses", "PlogServers"]

GROUPS = ("east", "west")


class PlogServers:
    """The servers of some groups of a cluster, by group and place."""

    def __init__(
        self,
        folder: Path,
        *groups: str,
        cluster: str = "local",
        hello_s: float = 5.0,
        scrub: ScrubSettings | None = None,
    ) -> None:
        self._folder, self._cluster, self._hello_s, self._scrub = folder, cluster, hello_s, scrub
        self._ports: dict[tuple[str, int], int] = {}
        self.running: dict[tuple[str, int], PlogServer] = {}
        for group in groups or ("main",):
            for place in range(3):
                self.start(group, place)

    def start(self, group: str, place: int) -> PlogServer:
        """Start a server, at the port that it had before."""
        listener = listen("127.0.0.1", self._ports.get((group, place), 0))
        folder = ServerFolder(self.folder(group, place), cluster=self._cluster, group=group)
        server = PlogServer(folder, listener, limits=PlogServerLimits(hello_s_max=self._hello_s), scrub=self._scrub)
        self._ports[group, place] = server.port
        self.running[group, place] = server
        return server

    def folder(self, group: str, place: int) -> Path:
        """Return the folder of a server."""
        return self._folder / f"{group}-{place}"

    def stop(self, group: str, place: int) -> None:
        """Stop a server."""
        self.running.pop((group, place)).close()

    def crash(self, group: str, place: int) -> None:
        """Stop a server as if it were killed: its folder is as it was while the server ran."""
        folder = self.folder(group, place)
        left = folder.with_name(f"{folder.name}-left")
        shutil.copytree(folder, left)
        self.rob(group, place)
        left.rename(folder)

    def rob(self, group: str, place: int) -> None:
        """Stop a server, and delete its folder."""
        self.stop(group, place)
        shutil.rmtree(self.folder(group, place))

    def save(self, group: str, place: int) -> None:
        """Copy the folder of a server, while it is stopped."""
        self.stop(group, place)
        folder = self.folder(group, place)
        shutil.copytree(folder, folder.with_name(f"{folder.name}-saved"))
        self.start(group, place)

    def set_back(self, group: str, place: int) -> None:
        """Replace the folder of a server by the copy that was made of it."""
        self.rob(group, place)
        folder = self.folder(group, place)
        folder.with_name(f"{folder.name}-saved").rename(folder)
        self.start(group, place)

    def addresses(self, group: str) -> list[str]:
        """Return the addresses of the servers of a group."""
        return [f"127.0.0.1:{self._ports[group, place]}" for place in range(3)]

    def oracle(self) -> Cpo:
        """Return an oracle in memory in which the cluster is registered."""
        cpo = open_cpo("memory:")
        groups = dict.fromkeys(group for group, _ in self._ports)
        cpo.register_cluster(self._cluster, {group: self.addresses(group) for group in groups})
        return cpo

    def open(self, cpo: Cpo | None = None) -> ReplicatedPlogs:
        """Open the plogs as a new owner."""
        if cpo is None:
            return open_group_plogs(",".join(self.addresses("main")))
        return open_cluster_plogs(self._cluster, cpo)

    def close(self) -> None:
        """Stop all servers."""
        for group, place in list(self.running):
            self.stop(group, place)


class PlogServerProcesses:
    """The plog servers of two groups of the cluster ``plant``, each in its own process, as users start them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._starting = folder, set[tuple[str, int]]()
        self.addresses = {(group, place): f"127.0.0.1:{free_port()}" for group in GROUPS for place in range(3)}
        self.running = {place: self._started(place) for place in self.addresses}
        self.await_ready()

    def _started(self, place: tuple[str, int]) -> subprocess.Popen[bytes]:
        self._starting.add(place)
        options = ["--listen", self.addresses[place], "--cluster", "plant", "--group", place[0]]
        command = [sys.executable, "-m", "penstock", "plog-server", "--dir", str(self.folder(*place)), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def folder(self, group: str, place: int) -> Path:
        """Return the folder of a server."""
        return self._folder / f"{group}-{place}"

    def await_ready(self, *, but: AbstractSet[tuple[str, int]] = frozenset()) -> None:
        """Return when all servers that were started serve, ``but`` some, as those that are suspended."""
        for place in (self._starting - but) & self.running.keys():
            stdout = self.running[place].stdout
            assert stdout is not None
            assert stdout.readline(), f"the server {place} did not start"
        self._starting &= but

    def register(self, cpo: Cpo) -> None:
        """Register the cluster in an oracle."""
        groups = {group: [self.addresses[group, place] for place in range(3)] for group in GROUPS}
        cpo.register_cluster("plant", groups)

    def start_again(self, group: str, place: int) -> None:
        """Start a server that was ended."""
        self.running[group, place] = self._started((group, place))

    def end(self, group: str, place: int, *, by: signal.Signals) -> int:
        """End a server, and return its exit code."""
        process = self.running.pop((group, place))
        process.send_signal(by)
        assert process.stdout is not None
        process.stdout.close()
        return process.wait(30)

    def __enter__(self) -> Self:
        """Kill all that run at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill all that run."""
        for group, place in list(self.running):
            self.end(group, place, by=signal.SIGKILL)
