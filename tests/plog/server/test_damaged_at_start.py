"""A replica's file that was cut or deleted before its server starts: it costs that replica alone, and is replaced."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import PlogCorrupt
from penstock.plog.replicated import _repairer
from penstock.plog.server import ScrubSettings, _scrub
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model import PlogId
    from penstock.plog.replicated import ReplicatedPlogs

LARGE: Final = b"0123456789" * 20_000  # written into the file at once
SMALL: Final = b"small"  # written into the journal
DATA: Final = LARGE + SMALL


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlogServers]:
    """Servers that scrub at once, and an owner that asks for their findings at once."""
    monkeypatch.setattr(_scrub, "_LOOK_S", 0.02)
    monkeypatch.setattr(_repairer, "_ASK_DAMAGED_S", 0.1)
    monkeypatch.setattr(_repairer, "_AGAIN_S", 0.02)
    with closing(PlogServers(tmp_path, scrub=ScrubSettings(rate=1 << 30))) as servers:
        yield servers


def written_plog(plogs: ReplicatedPlogs) -> PlogId:
    plog_id = plogs.create(size=1 << 20)
    plogs.append(plog_id, 0, LARGE)
    plogs.append(plog_id, len(LARGE), SMALL)
    return plog_id


def damage(servers: PlogServers, plog_id: PlogId, *, size: int | None) -> None:
    """Kill the first server, and cut a file of it to ``size``, or delete it; its scrub begins again."""
    servers.crash("main", 0)
    (servers.folder("main", 0) / "scrub-main").unlink(missing_ok=True)
    path = servers.folder("main", 0) / "partition-main" / f"{plog_id.uid}.plog"
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)


@pytest.mark.parametrize("seals", [True, False], ids=["sealed", "open"])
@pytest.mark.parametrize("size", [None, 0, 100, 4096, 100_000])
def test_a_damaged_replica_is_replaced_after_the_start(servers: PlogServers, size: int | None, *, seals: bool) -> None:
    """The server refused every session of the partition until somebody repaired its folder by hand."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            bad, good = written_plog(plogs), written_plog(plogs)
            if seals:
                plogs.seal(bad, len(DATA))
            damage(servers, bad, size=size)
        servers.start("main", 0)
        with servers.open(cpo) as plogs:
            assert not plogs.replication_use.away
            assert bytes(plogs.read(good, 0, plogs.info(good).length)) == DATA
            assert bytes(plogs.read(bad, 0, plogs.info(bad).length)) == DATA
            eventually(lambda: plogs.replication_use.copied_size >= len(DATA) and not cpo.keys("seal/"))
            replicas = servers.running["main", 0].folder.partitions()["main"].replicas
            eventually(lambda: not replicas.damaged)
        for _ in range(2):
            servers.crash("main", 0)
            servers.start("main", 0)
            replicas = servers.running["main", 0].folder.partition("main", count_max=1).replicas
            assert b"".join(bytes(view) for _, view in replicas.blocks(bad, 0, len(DATA))) == DATA


def test_a_replica_that_lacks_a_few_bytes_is_replaced_at_once(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head and its size look well, so it is not missing: the owner has to ask, and not only after 10 seconds."""
    monkeypatch.setattr(_repairer, "_ASK_DAMAGED_S", 600.0)
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plog_id = plogs.create(size=1 << 20)
            plogs.append(plog_id, 0, SMALL)
            plogs.append(plog_id, len(SMALL), LARGE)
            plogs.seal(plog_id, len(DATA))
            damage(servers, plog_id, size=4096 + 2 * 20 + len(DATA) - 10)
        servers.start("main", 0)
        with servers.open(cpo) as plogs:
            eventually(lambda: plogs.replication_use.copied_size == len(DATA) and not cpo.keys("seal/"))


def test_an_open_replica_that_is_damaged_stays_so_until_it_is_replaced(
    servers: PlogServers, caplog: pytest.LogCaptureFixture
) -> None:
    """The scrub checks what is sealed: it must not take back what the start has found. The log names the file."""
    with servers.open() as plogs:
        bad = written_plog(plogs)
        damage(servers, bad, size=4096)
    server = servers.start("main", 0)
    replicas = server.folder.partition("main", count_max=1).replicas
    assert f"a replica is damaged; its owner replaces it: {replicas.where(bad)}" in caplog.text
    assert replicas.replicas(b"", 10) == []
    eventually(lambda: server.scrubber.figures.runs == 1)
    assert replicas.damaged == {bad.uid_bytes}
    for read in (lambda: replicas.info(bad), lambda: replicas.blocks(bad, 0, 10)):
        with pytest.raises(PlogCorrupt):
            read()
    replicas.delete(bad)
    assert replicas.create(size=1000, plog_id=bad) == bad
    assert (replicas.damaged, replicas.info(bad).length) == (set(), 0)
