"""The scrub of plog servers: damage that no read meets is found, and mended from a good replica."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, PlogCorrupt
from penstock.plog import open_plogs
from penstock.plog.replicated import _repairer
from penstock.plog.server import ScrubSettings, _scrub
from penstock.plog.server._scrub import Scrubber
from penstock.plog.server._verify import READ_SIZE, check_stored
from penstock.server._scrub_metrics import scrub_metrics
from penstock.server._scrub_report import ScrubReport, scrub_rows
from penstock.testing import ManualClock
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import PlogId
    from penstock.plog.replicated import ReplicatedPlogs
    from penstock.plog.server._replicas import PartitionReplicas

QUICK = ScrubSettings(period_s=0.01, rate=1 << 30)
DATA = [b"first", b"\x00" * 100, b"x" * (READ_SIZE + 50), b"y" * 700_000, b"z" * 700_000, b"last"]
LENGTH = sum(map(len, DATA))


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlogServers]:
    """Servers that begin to scrub at once, and an owner that asks for their findings at once."""
    monkeypatch.setattr(_scrub, "_LOOK_S", 0.02)
    monkeypatch.setattr(_repairer, "_ASK_DAMAGED_S", 0.1)
    monkeypatch.setattr(_repairer, "_AGAIN_S", 0.02)
    with closing(PlogServers(tmp_path, "main", scrub=QUICK)) as servers:
        yield servers


def replicas_of(servers: PlogServers, place: int) -> PartitionReplicas:
    return servers.running["main", place].folder.partitions()["main"].replicas


def sealed_plog(plogs: ReplicatedPlogs) -> PlogId:
    plog_id, offset = plogs.create(size=LENGTH), 0
    for part in DATA:
        offset = plogs.append(plog_id, offset, part)
    plogs.seal(plog_id, offset)
    return plog_id


def flip(path: Path, position: int) -> None:
    """Change one byte, as a disk does one day."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def path_of(servers: PlogServers, place: int, plog_id: PlogId) -> Path:
    return Path(replicas_of(servers, place).where(plog_id))


@pytest.mark.parametrize("position", [20, 515, 4096 + 30, 4096 + 600_000, -1])
def test_damage_that_no_read_has_met_is_found_and_mended(servers: PlogServers, position: int) -> None:
    """A replica may lie unread for years, until the two others are gone: it has to be good then."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = sealed_plog(plogs)
        paths = [path_of(servers, place, plog_id) for place in range(3)]
        replicas_of(servers, 0).write_buffered(plog_id)
        scrubber = servers.running["main", 0].scrubber
        before = scrubber.figures.runs
        eventually(lambda: scrubber.figures.runs > before + 1 and scrubber.figures.plogs > 0)
        assert (scrubber.figures.found, scrubber.damaged()) == (0, 0)
        flip(paths[0], position % paths[0].stat().st_size)
        birth = paths[0].stat().st_ino
        eventually(lambda: scrubber.figures.found == 1)
        eventually(lambda: paths[0].exists() and paths[0].stat().st_ino != birth)
        eventually(lambda: not scrubber.damaged() and not cpo.keys("seal/"))
        info = replicas_of(servers, 0).info(plog_id)
        assert (info.length, info.sealed) == (LENGTH, True)
        check_stored(str(paths[0]), plog_id, length=LENGTH, pace=lambda _: None)
        for place in (1, 2):
            servers.rob("main", place)
        assert b"".join(bytes(view) for _, view in plogs.blocks(plog_id, 0, LENGTH)) == b"".join(DATA)


def test_a_block_that_is_found_damaged_is_not_read_before_it_is_mended(servers: PlogServers) -> None:
    """The other blocks are good, and may be the last good ones."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plog_id = sealed_plog(plogs)
        replicas = replicas_of(servers, 1)
        assert bytes(replicas.blocks(plog_id, 0, 5)[0][1]) == b"first"
        flip(path_of(servers, 1, plog_id), 4096 + 22)
        eventually(lambda: replicas.damaged == {plog_id.uid_bytes})  # no owner is there to replace it
        with pytest.raises(PlogCorrupt, match="the block at offset 0 fails its checksum"):
            replicas.blocks(plog_id, 0, 5)
        assert bytes(replicas.blocks(plog_id, LENGTH - 4, 4)[0][1]) == b"last"
        servers.stop("main", 1)
        assert plog_id.uid in (servers.folder("main", 1) / "scrub-main").read_text()
        servers.start("main", 1)
        with servers.open(cpo):
            eventually(lambda: is_mended(servers, plog_id))


def is_mended(servers: PlogServers, plog_id: PlogId) -> bool:
    try:
        check_stored(str(path_of(servers, 1, plog_id)), plog_id, length=LENGTH, pace=lambda _: None)
    except (PlogCorrupt, OSError):
        return False
    return not replicas_of(servers, 1).damaged


def test_a_file_that_cannot_be_read_is_not_taken_for_damaged(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails as a whole must not make its server replace every replica: the others may be the last ones."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = sealed_plog(plogs)

        def fails(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("penstock.plog.server._verify.os.pread", fails)
        scrubbers = [servers.running["main", place].scrubber for place in range(3)]
        eventually(lambda: all(scrubber.figures.unreadable > 1 for scrubber in scrubbers))
        assert [scrubber.damaged() for scrubber in scrubbers] == [0, 0, 0]
        monkeypatch.undo()
        assert bytes(plogs.read(plog_id, 0, 5)) == b"first"
        assert cpo.keys("seal/") == []


def test_a_run_goes_on_where_it_was_and_the_next_one_waits_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is restarted every day would otherwise check the same replicas again and again."""
    with closing(PlogServers(tmp_path, "main")) as servers, servers.oracle() as cpo, servers.open(cpo) as plogs:
        plogs_sealed = sorted((sealed_plog(plogs) for _ in range(3)), key=lambda plog_id: plog_id.uid_bytes)
        folder = servers.running["main", 0].folder
        clock = ManualClock(start=1e9)
        scrubber = Scrubber(folder, ScrubSettings(period_s=100.0, rate=1 << 40), clock=clock)
        partition = folder.partitions()["main"]
        checked: list[str] = []

        def checks(_: object, plog_id: PlogId) -> bool:
            checked.append(plog_id.uid)
            return True

        monkeypatch.setattr(scrubber, "_check", checks)
        folder.store("scrub-main", b'{"begun":999999999.0,"after":"%s","is_done":false}' % plogs_sealed[0].uid.encode())
        scrubber._scrub_if_due("main", partition)
        assert checked == [plog_id.uid for plog_id in plogs_sealed[1:]]
        for advance, count in ((50.0, 2), (60.0, 5), (99.0, 5), (-1000.0, 8)):
            clock.advance(advance)
            scrubber._scrub_if_due("main", partition)
            assert len(checked) == count, advance
        folder.store("scrub-main", b"no JSON")
        again = Scrubber(folder, ScrubSettings(), clock=clock)
        again._scrub_if_due("main", partition)
        assert (again.figures.plogs, again.figures.runs, again.figures.progress) == (3, 1, 1.0)


def test_a_scrub_keeps_to_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is there for clients: at 8 MiB a second it takes little of it, and every byte that it reads counts."""
    idle = ScrubSettings(period_s=1e9, rate=1)  # those of the servers themselves
    with (
        closing(PlogServers(tmp_path, "main", scrub=idle)) as servers,
        servers.oracle() as cpo,
        servers.open(cpo) as plogs,
    ):
        sealed_plog(plogs)
        folder = servers.running["main", 0].folder
        scrubber = Scrubber(folder, ScrubSettings(rate=1000))
        waited: list[float] = []

        class Waits:
            def wait(self, seconds: float) -> bool:
                waited.append(seconds)
                return False

            def is_set(self) -> bool:
                return False

        scrubber._over = Waits()  # type: ignore[assignment]
        pread, read = os.pread, list[int]()

        def counts(fd: int, size: int, offset: int) -> bytes:
            data = pread(fd, size, offset)
            read.append(len(data))
            return data

        monkeypatch.setattr("penstock.plog.server._verify.os.pread", counts)
        scrubber._scrub_if_due("main", folder.partitions()["main"])
        assert sum(waited) == pytest.approx(scrubber.figures.size / 1000)
        assert scrubber.figures.size == sum(read) > LENGTH + READ_SIZE


def test_progress_and_findings_are_in_metrics_and_in_the_oracle(servers: PlogServers) -> None:
    """The operator has to see that a disk loses bits, and that the scrub runs at all."""
    server = servers.running["main", 0]
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plog_id = sealed_plog(plogs)
        address = servers.addresses("main")[0]
        report = ScrubReport(cpo, server, server.folder.identity, address)
        replicas_of(servers, 0).write_buffered(plog_id)
        flip(path_of(servers, 0, plog_id), 4096 + 22)
        eventually(lambda: server.scrubber.damaged() == 1)
        eventually(lambda: server.scrubber.figures.progress == 1.0)
        for _ in range(2):
            report.write()
        assert scrub_rows(cpo)["local", "main", address].damaged == 1
        figures = {metric.name: metric.samples[0].value for metric in scrub_metrics(server.scrubber)}
        assert figures["penstock_plog_server_scrub_damaged"] == figures["penstock_plog_server_scrub_found"] == 1
        assert figures["penstock_plog_server_scrub_bytes"] > 0
        with servers.open(cpo):
            eventually(lambda: server.scrubber.damaged() == 0)
        report.write()
        assert scrub_rows(cpo)["local", "main", address].damaged == 0


def test_a_scrub_that_never_ends_or_reads_nothing_is_refused() -> None:
    """A rate of 0 would wait for ever, and a period of 0 would read without a pause."""
    for period_s, rate in ((0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0), (1.0, -5)):
        with pytest.raises(BadArgument, match="invalid scrub"):
            ScrubSettings(period_s=period_s, rate=rate)


def test_what_lies_behind_a_seal_is_no_damage(tmp_path: Path) -> None:
    """A replica that was ahead when its plog was sealed is a good one: to copy it again would be work for nothing."""
    with open_plogs(f"file:{tmp_path}") as plogs:
        for length in (0, 1, 99, 100, 101, 250, 299, 300):
            plog_id = plogs.create(size=1000)
            for offset in (0, 100, 200):
                plogs.append(plog_id, offset, bytes([65 + offset // 100]) * 100)
            assert plogs.seal(plog_id, length) == length
            plogs.raw(plog_id, 0, 0, limit=0)
            read: list[int] = []
            check_stored(plogs.where(plog_id), plog_id, length=length, pace=read.append)
            assert len(read) == (2 if length else 1)
