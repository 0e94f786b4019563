"""Plog servers as processes of their own, as ``penstock plog-server`` runs them: suspended, killed, started again."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.errors import GroupUnavailable, ReplicaLost
from penstock.log import MetadataManager, PlogSizes
from penstock.plog.replicated import open_cluster_plogs
from tests.plog_servers import GROUPS, PlogServerProcesses
from tests.server.apart import eventually, suspend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[PlogServerProcesses]:
    with PlogServerProcesses(tmp_path) as processes:
        yield processes


CLUSTER = """
import signal, sys, time
from pathlib import Path
from penstock.server import local_cluster
with local_cluster(Path(sys.argv[1]), f"sqlite:{sys.argv[1]}/cpo.db", name="dev", group="main") as addresses:
    print(*addresses, flush=True)
    signal.pause()
"""


def test_servers_of_a_trial_end_with_it_however_it_ends(tmp_path: Path) -> None:
    """Else each one that is killed would leave three processes behind, on a folder that is to be deleted."""
    command = [sys.executable, "-c", CLUSTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        ports = [int(address.rpartition(b":")[2]) for address in process.stdout.readline().split()]
        assert len(ports) == 3
        process.kill()
    eventually(lambda: all(_refuses(port) for port in ports))


def _refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.long
def test_servers_that_are_suspended_and_killed_lose_nothing_that_was_acknowledged(
    processes: PlogServerProcesses,
) -> None:
    """Each of these happens to a machine one day: the owner goes on in the other group, or says that it cannot."""
    with open_cpo("memory:") as cpo:
        processes.register(cpo)
        with open_cluster_plogs("plant", cpo) as plogs:
            first = plogs.create(size=1000)
            plogs.append(first, 0, b"acknowledged")
            suspend(processes.running[first.group, 1].pid)
            with pytest.raises(ReplicaLost, match="no acknowledgement"):
                plogs.append(first, 12, b"in doubt")
            assert plogs.seal(first, 1000) == 12, (
                "of its own plog, an owner keeps what it has acknowledged, and no more"
            )
            second = plogs.create(size=1000)
            assert second.group != first.group
            plogs.append(second, 0, b"also acknowledged")
            for place in range(3):
                processes.end(second.group, place, by=signal.SIGKILL)
            with pytest.raises(ReplicaLost):
                plogs.append(second, 17, b"lost")
            with pytest.raises(GroupUnavailable):
                plogs.seal(second, 1000)
            with pytest.raises(GroupUnavailable):
                plogs.create(size=1000)
            processes.running[first.group, 1].send_signal(signal.SIGCONT)
            eventually(lambda: len(plogs.replication_use.away) == 3 and not cpo.keys("seal/"))
            assert plogs.create(size=1000).group == first.group
            for place in range(3):
                processes.start_again(second.group, place)
            eventually(lambda: not plogs.replication_use.away)
            assert plogs.seal(second, 1000) == 17
            assert bytes(plogs.read(second, 0, 17)) == b"also acknowledged"
            assert bytes(plogs.read(first, 0, 12)) == b"acknowledged"
        assert processes.end("east", 0, by=signal.SIGTERM) == 0


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """The folders of one server of each group: file systems of their own with room for the journal and a little."""
    folders = {group: tmp_path / f"{group}-1" for group in GROUPS}
    with ExitStack() as stack:
        for folder in folders.values():
            folder.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)]
            if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
                pytest.skip("mounting a tmpfs needs root; test_full_disks.py lets calls of a server fail with ENOSPC")
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
        yield folders


@pytest.mark.long
def test_a_server_whose_file_system_is_full_costs_a_move_and_is_used_again(
    small_disks: dict[str, Path], processes: PlogServerProcesses
) -> None:
    """The operating system says so, with ENOSPC, at whatever call it likes: space that is allocated can be written."""
    with open_cpo("memory:") as cpo:
        processes.register(cpo)
        sizes = PlogSizes(first=64 << 10, largest=64 << 10)
        with (
            open_cluster_plogs("plant", cpo) as plogs,
            MetadataManager.open(plogs, cpo, "main", sizes=sizes) as manager,
        ):
            log, count = manager.log("log"), itertools.count()

            def append() -> str:
                log.append(b"%08d" % next(count) * 1000)
                return log.tail.plog_id.group

            group = append()
            stuffing = small_disks[group] / "stuffing"
            with suppress(OSError), stuffing.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            assert os.statvfs(small_disks[group]).f_bavail == 0
            away = {processes.addresses[group, 1]: "its disk is full"}
            eventually(lambda: append() != group and plogs.replication_use.away == away)
            for _ in range(40):  # in several plogs, none of which is in that group
                assert append() != group
            stuffing.unlink()
            eventually(lambda: not plogs.replication_use.away)
            eventually(lambda: append() == group)
            eventually(lambda: not cpo.keys("seal/") and not plogs.replication_use.under_replicated)
            content = b"".join(bytes(view) for _, view in log.blocks(0, log.length))
            assert content == b"".join(b"%08d" % number * 1000 for number in range(next(count)))


@pytest.mark.long
def test_a_server_that_cannot_write_costs_a_move_and_is_used_again(processes: PlogServerProcesses) -> None:
    """A disk that refuses every write is the failure of one server; later its replicas are made good.

    The limit of the size of files makes it EFBIG, which counts as a disk that fails.
    """
    with open_cpo("memory:") as cpo:
        processes.register(cpo)
        with open_cluster_plogs("plant", cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            log = manager.log("log")
            log.append(b"begin;")
            group = log.tail.plog_id.group
            pid = processes.running[group, 1].pid
            limits = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            for number in range(20):
                log.append(b"%d;" % number)
            assert log.tail.plog_id.group != group
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
            eventually(lambda: not cpo.keys("seal/") and not plogs.replication_use.under_replicated)
            content = b"".join(bytes(view) for _, view in log.blocks(0, log.length))
            assert content == b"begin;" + b"".join(b"%d;" % number for number in range(20))
