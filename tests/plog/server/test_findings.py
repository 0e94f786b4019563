"""What becomes of the findings of a scrub, and of damage that comes after a read: neither is forgotten, or kept."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from penstock.errors import GroupUnavailable, PlogCorrupt, ReadOutOfRange
from penstock.plog import _open_plogs, _replay
from penstock.plog.replicated import _repairer, repair_plog
from penstock.plog.server import ScrubSettings, _scrub
from penstock.plog.server._scrub import Scrubber
from penstock.testing import ManualClock
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model import PlogId
    from penstock.plog.replicated import ReplicatedPlogs
    from penstock.plog.server._folder import HostedPartition
    from penstock.plog.server._replicas import PartitionReplicas
    from penstock.ports import File

DATA = b"0123456789" * 1000


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlogServers]:
    """Servers that scrub once when they start, and an owner that asks for their findings at once."""
    monkeypatch.setattr(_scrub, "_LOOK_S", 0.02)
    monkeypatch.setattr(_repairer, "_ASK_DAMAGED_S", 0.1)
    monkeypatch.setattr(_repairer, "_AGAIN_S", 0.02)
    with closing(PlogServers(tmp_path, scrub=ScrubSettings(rate=1 << 30))) as servers:
        yield servers


def partition_of(servers: PlogServers, place: int) -> HostedPartition:
    return servers.running["main", place].folder.partitions()["main"]


def replicas_of(servers: PlogServers, place: int) -> PartitionReplicas:
    return partition_of(servers, place).replicas


def sealed_plog(plogs: ReplicatedPlogs) -> PlogId:
    plog_id = plogs.create(size=len(DATA))
    plogs.append(plog_id, 0, DATA)
    plogs.seal(plog_id, len(DATA))
    return plog_id


def file_of(servers: PlogServers, place: int, plog_id: PlogId) -> Path:
    return servers.folder("main", place) / "partition-main" / f"{plog_id.uid}.plog"


def findings_file(servers: PlogServers, place: int) -> Path:
    return servers.folder("main", place) / "scrub-main"


def overwrite(path: Path) -> None:
    """Change bytes in the middle of the only block."""
    with path.open("r+b") as file:
        file.seek(4096 + 5000)
        file.write(b"wrong")


def findings(servers: PlogServers, place: int) -> list[str]:
    stored: list[str] = json.loads(findings_file(servers, place).read_text())["damaged"]
    return stored


def test_damage_that_was_mended_is_not_reported_after_a_restart(servers: PlogServers) -> None:
    """The owner would delete a good replica, and copy it once more, after every restart of the server."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = sealed_plog(plogs)
        servers.stop("main", 0)
        overwrite(file_of(servers, 0, plog_id))
        findings_file(servers, 0).unlink(missing_ok=True)
        servers.start("main", 0)
        eventually(lambda: servers.running["main", 0].scrubber.figures.found == 1)
        eventually(lambda: plogs.replication_use.copied_size == len(DATA) and not cpo.keys("seal/"))
        eventually(lambda: findings(servers, 0) == [])
        servers.stop("main", 0)
        servers.start("main", 0)
        eventually(lambda: not plogs.replication_use.away)
        eventually(lambda: "main" in servers.running["main", 0].scrubber._runs)
        assert servers.running["main", 0].scrubber.figures.found == 0
        assert plogs.replication_use.copied_size == len(DATA)


def test_findings_that_are_stored_count_only_if_they_are_still_there(servers: PlogServers) -> None:
    """Plogs are deleted and replaced while a server stores nothing: the metric has to return to 0 by itself."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            good, bad = sealed_plog(plogs), sealed_plog(plogs)
        eventually(lambda: servers.running["main", 0].scrubber.figures.runs == 1)
        servers.stop("main", 0)
        overwrite(file_of(servers, 0, bad))
        stored = json.loads(findings_file(servers, 0).read_text())
        assert stored["is_done"]
        stored["damaged"] = [good.uid, bad.uid, "0" * 32, "no uid"]
        findings_file(servers, 0).write_text(json.dumps(stored))
        servers.start("main", 0)
        servers.running["main", 0].folder.partition("main", count_max=1)
        eventually(lambda: findings(servers, 0) == [bad.uid])
        assert replicas_of(servers, 0).damaged == {bad.uid_bytes}
        with servers.open(cpo) as plogs:
            eventually(lambda: servers.running["main", 0].scrubber.damaged() == 0 and findings(servers, 0) == [])
            assert plogs.replication_use.copied_size == len(DATA)


def test_a_replica_that_is_deleted_while_it_is_checked_is_not_damaged(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding is that of a file which is gone, and would count for the replica that replaces it."""
    with servers.open() as plogs:
        plog_id = sealed_plog(plogs)
        partition, tries = partition_of(servers, 0), list[int]()
        scrubber = Scrubber(servers.running["main", 0].folder, ScrubSettings(), clock=ManualClock(start=4e9))

        def is_deleted(path: str, *_: object, **__: object) -> None:
            tries.append(1)
            if len(tries) == 2:
                partition.replicas.delete(plog_id)
            raise PlogCorrupt(path, offset=None, reason="a finding")

        monkeypatch.setattr(_scrub, "check_stored", is_deleted)
        scrubber._check(partition, plog_id)
        assert (len(tries), scrubber.figures.found, partition.replicas.damaged) == (2, 0, set())


@pytest.mark.parametrize("position", [0, 4096], ids=["in the head", "in a block"])
def test_a_bad_sector_is_damage_of_its_replica_and_is_replaced(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    """It was only counted, for ever; and whoever reads it through a mapping is ended by SIGBUS."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            bad, _ = sealed_plog(plogs), sealed_plog(plogs)
        servers.stop("main", 0)
        path, pread, load_replica = str(file_of(servers, 0, bad)), os.pread, _replay.load_replica
        is_replaced, loaded = list[bool](), list[str]()

        def fails(fd: int, size: int, offset: int) -> bytes:
            if not is_replaced and offset <= position < offset + size and os.readlink(f"/proc/self/fd/{fd}") == path:
                raise OSError(5, "Input/output error")
            return pread(fd, size, offset)

        def loads(where: str, plog_id: PlogId, file: File) -> object:
            if not is_replaced:
                loaded.append(where)
            return load_replica(where, plog_id, file)

        monkeypatch.setattr(os, "pread", fails)
        monkeypatch.setattr(_open_plogs, "load_replica", loads)
        findings_file(servers, 0).unlink(missing_ok=True)
        servers.start("main", 0)
        replicas = servers.running["main", 0].folder.partition("main", count_max=1).replicas
        delete = replicas.delete

        def deletes(plog_id: PlogId) -> None:
            delete(plog_id)
            is_replaced.append(True)

        monkeypatch.setattr(replicas, "delete", deletes)
        eventually(lambda: replicas.damaged == {bad.uid_bytes})
        assert servers.running["main", 0].scrubber.figures.unreadable == 1
        with pytest.raises(PlogCorrupt, match="the disk cannot read it"):
            replicas.blocks(bad, 0, 1)
        with servers.open(cpo) as plogs:
            eventually(lambda: bool(is_replaced) and not cpo.keys("seal/") and not replicas.damaged)
            assert plogs.replication_use.copied_size == len(DATA)
        assert path not in loaded
        assert bytes(replicas.blocks(bad, 0, 1)[0][1]) == DATA


def test_bytes_that_change_after_they_were_read_are_not_returned(servers: PlogServers) -> None:
    """A replica stays in memory for months after its first read: the disk may lose bits in any of them."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = sealed_plog(plogs)
        for _ in range(3):
            assert bytes(plogs.read(plog_id, 0, len(DATA))) == DATA
        for place in (0, 1):
            overwrite(file_of(servers, place, plog_id))
        assert [bytes(plogs.read(plog_id, 0, len(DATA))) for _ in range(3)] == [DATA] * 3
        eventually(lambda: plogs.replication_use.copied_size == 2 * len(DATA) and not cpo.keys("seal/"))
        for place in range(3):
            overwrite(file_of(servers, place, plog_id))
        with pytest.raises((PlogCorrupt, GroupUnavailable), match="fails its checksum"):
            plogs.read(plog_id, 0, len(DATA))


def test_blocks_before_and_after_a_damaged_one_are_read(servers: PlogServers) -> None:
    """Also those of a plog that was sealed within a block: only what is damaged is refused."""
    with servers.open() as plogs:
        plog_id = plogs.create(size=1000)
        for offset in (0, 100, 200):
            plogs.append(plog_id, offset, bytes([65 + offset // 100]) * 100)
        replicas = replicas_of(servers, 0)
        replicas.seal(plog_id, 250)
        assert [bytes(view) for _, view in replicas.blocks(plog_id, 0, 250)] == [b"A" * 100, b"B" * 100, b"C" * 50]
        with file_of(servers, 0, plog_id).open("r+b") as file:
            file.seek(4096 + 20 + 100 + 20 + 50)
            file.write(b"x")
        assert [(at, bytes(view)) for at, view in replicas.blocks(plog_id, 30, 5)] == [(0, b"A" * 100)]
        assert [(at, bytes(view)) for at, view in replicas.blocks(plog_id, 249, 1)] == [(200, b"C" * 50)]
        assert replicas.blocks(plog_id, 249, 0) == []
        assert [(at, bytes(view)) for at, view in replicas.blocks(plog_id, 0, 250)] == [(0, b"A" * 100)]
        with pytest.raises(PlogCorrupt, match="the block at offset 100 fails its checksum"):
            replicas.blocks(plog_id, 100, 150)
        os.truncate(file_of(servers, 0, plog_id), 4096 + 2 * 120 + 30)
        with pytest.raises(PlogCorrupt, match="the block at offset 200 fails its checksum"):
            replicas.blocks(plog_id, 249, 1)


def has_session(servers: PlogServers, plogs: ReplicatedPlogs, place: int) -> bool:
    """Return whether the owner has a session with the present run of a server."""
    instance = servers.running["main", place].folder.identity.instance
    return plogs._servers["main", place][1] == instance and plogs._links.of("main")[place].state == "up"


PARTS = [b"A" * 300, b"PB\x01\x00" * 100, b"C" * 300, b"D" * 300]


@pytest.mark.parametrize("field", [0, 2, 5, 12, 17], ids=["magic", "kind", "size", "offset", "checksum"])
@pytest.mark.parametrize("restarts", [False, True], ids=["in use", "restarted"])
def test_every_block_is_read_that_is_good_in_one_of_three_damaged_replicas(
    servers: PlogServers, field: int, *, restarts: bool
) -> None:
    """Headers of different blocks are damaged: none of the replicas can be loaded, and nothing is lost."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id, offset = plogs.create(size=10_000), 0
        for part in PARTS:
            offset = plogs.append(plog_id, offset, part)
        plogs.seal(plog_id, offset - 100)
        for place, block in ((0, 1), (1, 0), (2, 3)):
            replicas_of(servers, place).write_buffered(plog_id)
            if restarts:
                servers.stop("main", place)
            path, position = file_of(servers, place, plog_id), 4096 + sum(20 + len(part) for part in PARTS[:block])
            content = bytearray(path.read_bytes())
            content[position + field] ^= 1
            path.write_bytes(content)
            if restarts:
                servers.start("main", place)
        eventually(lambda: all(has_session(servers, plogs, place) for place in range(3)))
        for _ in range(6):
            whole = b"".join(bytes(view) for _, view in plogs.blocks(plog_id, 0, offset - 100))
            assert whole == b"".join(PARTS)[:-100]
        replicas = replicas_of(servers, 0)
        assert [at for at, _ in replicas.blocks(plog_id, 0, 1200)] == [0]
        assert [(at, len(view)) for at, view in replicas.blocks(plog_id, 750, 450)] == [(700, 300), (1000, 200)]
        with pytest.raises(PlogCorrupt):
            replicas.blocks(plog_id, 300, 900)
        with pytest.raises(ReadOutOfRange):
            replicas.blocks(plog_id, 700, 501)


def test_repair_deletes_nothing_if_no_replica_is_good_everywhere(servers: PlogServers) -> None:
    """Each part is good in one of the two that are left: to copy the one over the other would lose a part for good."""
    parts = [letter * 700_000 for letter in (b"A", b"B", b"C", b"D")]
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id, offset = plogs.create(size=4 << 20), 0
        for part in parts:
            offset = plogs.append(plog_id, offset, part)
        plogs.seal(plog_id, offset)
        servers.rob("main", 2)
        for place, block in ((0, 3), (1, 0)):
            with file_of(servers, place, plog_id).open("r+b") as file:
                file.seek(4096 + block * 700_020 + 300_000)
                file.write(b"wrong")
        servers.start("main", 2)
        eventually(lambda: has_session(servers, plogs, 2) and bool(cpo.keys("seal/")))
        for _ in range(3):
            with pytest.raises(GroupUnavailable, match="good everywhere"):
                plogs.run_alone(plog_id, repair_plog(plog_id))
        whole = b"".join(bytes(view) for _, view in plogs.blocks(plog_id, 0, offset))
        assert whole == b"".join(parts)
