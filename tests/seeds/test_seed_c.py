"""Seed C, promise by promise and in its own order: plogs, log streams, the metadata manager.

Each promise has one small test here, on plogs and an oracle in files and in memory; docs/seeds.md says which. How
they hold under crashes, faults and races is tested in depth in tests/plog, tests/log and tests/cpo.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import (
    AppendTooLarge,
    DiskFull,
    LogError,
    LogFenced,
    NoSuchPlog,
    PlogExists,
    PlogFull,
    PlogSealed,
    ReadOutOfRange,
    WrongOffset,
    WrongPosition,
)
from penstock.log import LogPosition, MetadataManager, PlogSizes
from penstock.log._records import Chain, Full, Incremental, Init
from penstock.plog import APPEND_SIZE_MAX, PLOG_SIZE_DEFAULT, PlogId, PlogInfo, open_plogs
from tests.log.harness import SECONDS_MAX, GatedPlogs, content

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.log import LogStream
    from penstock.log._records import Record
    from penstock.plog import Plogs

TINY: Final = PlogSizes(first=64, largest=64)
"""Plogs so small that two appends of 40 bytes are in two plogs."""
ROOMY: Final = PlogSizes(first=4096, largest=4096)
"""Plogs large enough that the metadata log does not switch during a test."""
SERVERS: Final = {"left": ["a:1", "b:1", "c:1"], "right": ["d:1", "e:1", "f:1"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plogs"


@pytest.fixture(params=["file", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plogs(kind: str, folder: Path) -> Iterator[Plogs]:
    with open_plogs(f"file:{folder}" if kind == "file" else "memory:") as plogs:
        yield plogs


@pytest.fixture
def cpo(kind: str, tmp_path: Path) -> Iterator[Cpo]:
    with open_cpo(f"sqlite:{tmp_path / 'cpo.db'}" if kind == "file" else "memory:") as cpo:
        yield cpo


@pytest.fixture
def manager(plogs: Plogs, cpo: Cpo) -> Iterator[MetadataManager]:
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager:
        yield manager


@pytest.fixture
def log(manager: MetadataManager) -> LogStream:
    return manager.log("wal")


@pytest.fixture
def roomy(plogs: Plogs, cpo: Cpo) -> Iterator[MetadataManager]:
    with MetadataManager.open(plogs, cpo, "p0", sizes=ROOMY) as manager:
        yield manager


def records(manager: MetadataManager, log: str) -> list[Record]:
    """Return what the metadata log says about one log."""
    return [record for record in manager.read_all() if getattr(record, "log", None) == log]


def ids(log: LogStream) -> list[PlogId]:
    return [plog_id for plog_id, _, _ in log.plogs()]


# Plog


def test_bytes_once_appended_cannot_be_changed(plogs: Plogs) -> None:
    """A plog is append-only: nothing writes at an offset of the caller's choice."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"first")
    with pytest.raises(WrongOffset):
        plogs.append(plog_id, 0, b"other")
    with pytest.raises(TypeError):
        plogs.read(plog_id, 0, 5)[0] = 0
    assert bytes(plogs.read(plog_id, 0, 5)) == b"first"


# Terms and plog id


def test_a_persistence_cluster_is_registered_and_found_by_its_name(cpo: Cpo) -> None:
    """A client starts with the name of a cluster and learns its groups, among which it may choose."""
    cpo.register_cluster("cellar", SERVERS)
    assert cpo.cluster("cellar").groups == {group: tuple(servers) for group, servers in SERVERS.items()}


def test_a_plog_id_names_cluster_and_group_and_is_unique(plogs: Plogs) -> None:
    """It is a small tuple whose last part is random."""
    some = [plogs.create(size=1) for _ in range(20)]
    assert {(plog_id.cluster, plog_id.group) for plog_id in some} == {("local", "main")}
    assert len({plog_id.uid for plog_id in some}) == 20


def test_the_servers_of_a_plog_are_found_from_its_id_alone(cpo: Cpo) -> None:
    """A process that has read an id somewhere knows which servers to ask."""
    cpo.register_cluster("cellar", SERVERS)
    plog_id = PlogId.parse(f"cellar/right/{'0' * 32}")
    assert cpo.cluster(plog_id.cluster).groups[plog_id.group] == ("d:1", "e:1", "f:1")


# Create


def test_create_thinks_of_an_id_and_returns_it(plogs: Plogs) -> None:
    """The id is good as soon as the caller has it."""
    plog_id = plogs.create(size=100)
    assert plogs.append(plog_id, 0, b"x") == 1


def test_create_under_a_taken_id_is_refused(plogs: Plogs) -> None:
    """The key conflict is found before anything is changed."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"kept")
    with pytest.raises(PlogExists):
        plogs.create(plog_id=plog_id, size=100)
    assert bytes(plogs.read(plog_id, 0, 4)) == b"kept"


def test_create_sets_the_whole_block_aside(folder: Path) -> None:
    """Room on the disk is taken when the plog is made, so that appends find it."""
    with open_plogs(f"file:{folder}") as plogs:
        plog_id = plogs.create(size=1 << 20)
        assert (folder / f"{plog_id.uid}.plog").stat().st_blocks * 512 >= 1 << 20


def test_a_new_plog_stands_at_offset_zero(plogs: Plogs) -> None:
    """It is empty, open, and of the fixed size that was asked for."""
    assert plogs.info(plogs.create(size=100)) == PlogInfo(length=0, sealed=False, size=100)


def test_a_plog_takes_16_mib_unless_told_otherwise(plogs: Plogs) -> None:
    """That is the seed's fixed size; any other can be chosen."""
    assert plogs.info(plogs.create()).size == PLOG_SIZE_DEFAULT == 16 << 20


# Append


def test_append_at_the_current_offset_is_kept_and_moves_it(plogs: Plogs) -> None:
    """Success is the new offset, where the next append goes."""
    plog_id = plogs.create(size=100)
    assert plogs.append(plog_id, 0, b"one") == 3
    assert plogs.append(plog_id, 3, b"two") == 6
    assert bytes(plogs.read(plog_id, 0, 6)) == b"onetwo"


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_append_at_another_offset_is_refused(plogs: Plogs, offset: int) -> None:
    """The plog compares the caller's offset with its own, and says what its own is."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"one")
    with pytest.raises(WrongOffset) as caught:
        plogs.append(plog_id, offset, b"two")
    assert caught.value.expected == plogs.info(plog_id).length == 3


def test_append_beyond_the_block_is_refused(plogs: Plogs) -> None:
    """The size is fixed: exactly full is the most there can be."""
    plog_id = plogs.create(size=10)
    plogs.append(plog_id, 0, b"12345")
    with pytest.raises(PlogFull):
        plogs.append(plog_id, 5, b"678901")
    assert plogs.append(plog_id, 5, b"67890") == 10


def test_append_takes_2_mib_and_no_more(plogs: Plogs) -> None:
    """One append has an upper limit, whatever room there is."""
    plog_id = plogs.create()
    with pytest.raises(AppendTooLarge):
        plogs.append(plog_id, 0, bytes((2 << 20) + 1))
    assert plogs.append(plog_id, 0, bytes(2 << 20)) == APPEND_SIZE_MAX == 2 << 20


def test_a_plog_that_is_not_there_takes_no_request(plogs: Plogs) -> None:
    """Every invalid request is an error, and this is the first thing that can be wrong with one."""
    plog_id = plogs.new_id()
    with pytest.raises(NoSuchPlog):
        plogs.append(plog_id, 0, b"x")
    with pytest.raises(NoSuchPlog):
        plogs.read(plog_id, 0, 0)
    with pytest.raises(NoSuchPlog):
        plogs.seal(plog_id, 0)


# Read


def test_read_returns_any_part_of_what_was_appended(plogs: Plogs) -> None:
    """A reader need not know where one append ended and the next began."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"one")
    plogs.append(plog_id, 3, b"two")
    assert bytes(plogs.read(plog_id, 2, 2)) == b"et"


def test_read_that_goes_past_the_end_is_refused(plogs: Plogs) -> None:
    """The plog checks the request, and never answers with less than was asked for."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"one")
    with pytest.raises(ReadOutOfRange) as caught:
        plogs.read(plog_id, 1, 3)
    assert caught.value.length == 3


def test_one_read_takes_a_whole_plog_of_16_mib(plogs: Plogs) -> None:
    """The largest read is one plog."""
    plog_id = plogs.create()
    for offset in range(0, 16 << 20, 2 << 20):
        plogs.append(plog_id, offset, bytes([offset >> 21]) * (2 << 20))
    whole = plogs.read(plog_id, 0, 16 << 20)
    assert bytes(whole[:: 2 << 20]) == bytes(range(8))


# Seal


@pytest.mark.parametrize(("asked", "sealed_at"), [(4, 4), (6, 6), (9, 6)])
def test_seal_is_at_the_smaller_of_both_offsets(plogs: Plogs, asked: int, sealed_at: int) -> None:
    """The caller's and the plog's own may differ; only what both know of is kept."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"onetwo")
    assert plogs.seal(plog_id, asked) == sealed_at
    assert plogs.info(plog_id) == PlogInfo(length=sealed_at, sealed=True, size=100)


@pytest.mark.buckets
def test_a_sealed_plog_cannot_be_modified(plogs: Plogs) -> None:
    """Neither by an append nor by another seal; it can be read for ever."""
    plog_id = plogs.create(size=100)
    plogs.append(plog_id, 0, b"one")
    plogs.seal(plog_id, 3)
    with pytest.raises(PlogSealed):
        plogs.append(plog_id, 3, b"two")
    with pytest.raises(PlogSealed):
        plogs.seal(plog_id, 2)
    assert bytes(plogs.read(plog_id, 0, 3)) == b"one"


# Append request reassembly: on one machine nothing is overtaken; a plog server will keep what comes too early


def test_an_append_that_comes_too_early_is_told_so_and_taken_when_its_turn_comes(plogs: Plogs) -> None:
    """Until plog servers cache such appends, the client sends it again at the offset it was told to wait for."""
    plog_id = plogs.create(size=100)
    with pytest.raises(WrongOffset) as caught:
        plogs.append(plog_id, 3, b"two")
    assert caught.value.expected == 0
    plogs.append(plog_id, 0, b"one")
    plogs.append(plog_id, 3, b"two")
    assert bytes(plogs.read(plog_id, 0, 6)) == b"onetwo"


# Log stream


def test_a_log_is_read_and_appended_to_as_if_there_were_no_plogs(log: LogStream) -> None:
    """Twenty appends need twenty plogs, and callers need not handle them."""
    for number in range(20):
        log.append(b"%040d" % number)
    assert content(log) == b"".join(b"%040d" % number for number in range(20))


def test_only_the_last_plog_of_a_log_is_unsealed(plogs: Plogs, log: LogStream) -> None:
    """A log is a list of plogs of which one takes appends."""
    for _ in range(3):
        log.append(bytes(40))
    assert [sealed for _, _, sealed in log.plogs()] == [True, True, False]
    assert [plogs.info(plog_id).sealed for plog_id in ids(log)] == [True, True, False]


def test_any_number_of_data_services_have_a_log_each(manager: MetadataManager) -> None:
    """A write-ahead log and an indexer's snapshot are two logs of one partition."""
    for name in ("wal", "indexer-snapshot"):
        for _ in range(2):
            manager.log(name).append(name.encode().ljust(40))
    assert content(manager.log("wal")) == b"wal".ljust(40) * 2
    assert content(manager.log("indexer-snapshot")) == b"indexer-snapshot".ljust(40) * 2


def test_a_log_lists_its_plogs_and_their_lengths(log: LogStream) -> None:
    """Which plogs it used and up to where is part of what a log knows."""
    ends = [log.append(bytes(size)) for size in (40, 50)]
    assert log.plogs() == [(ends[0].plog_id, 40, True), (ends[1].plog_id, 50, False)]


def test_plogs_that_are_not_needed_any_more_are_removed_from_the_log(
    plogs: Plogs, manager: MetadataManager, log: LogStream
) -> None:
    """This is how garbage is collected; the plogs are deleted, too."""
    for number in range(3):
        log.append(b"%040d" % number)
    first, second, third = ids(log)
    log.truncate(second)
    assert ids(log) == [second, third]
    manager.close()  # when all that runs in the background is done
    with pytest.raises(NoSuchPlog):
        plogs.info(first)


CRASH: Final = """
import os, signal, sys
from penstock.cpo import open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import open_plogs

sizes = PlogSizes(first=64, largest=64)
log = MetadataManager.open(open_plogs(sys.argv[1]), open_cpo(sys.argv[2]), "p0", sizes=sizes).log("wal")
for number in range(20):
    log.append(b"%040d" % number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_log_goes_on_after_its_process_was_killed(tmp_path: Path) -> None:
    """Its metadata are recorded, so everything acknowledged is found again."""
    urls = [f"file:{tmp_path / 'plogs'}", f"sqlite:{tmp_path / 'cpo.db'}"]
    killed = subprocess.run([sys.executable, "-c", CRASH, *urls], check=False, timeout=SECONDS_MAX)
    assert killed.returncode == -signal.SIGKILL
    with (
        open_plogs(urls[0]) as plogs,
        open_cpo(urls[1]) as cpo,
        MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager,
    ):
        log = manager.log("wal")
        log.append(b"%040d" % 20)
        assert content(log) == b"".join(b"%040d" % number for number in range(21))


# Log stream: create


def test_a_new_log_has_one_active_plog_that_is_recorded(manager: MetadataManager) -> None:
    """Then it is ready to be appended to and read."""
    log = manager.log("wal")
    (active,) = ids(log)
    (init,) = records(manager, "wal")
    assert isinstance(init, Init)
    assert init.plog == str(active)
    assert log.append(b"ready") == LogPosition(active, 5)
    assert content(log) == b"ready"


# Log stream: append with and without offset


def test_an_append_with_an_offset_is_taken_only_there(log: LogStream) -> None:
    """A writer that is not alone finds out before anything is written."""
    end = log.append(b"one")
    log.append(b"two", expected=end)
    with pytest.raises(WrongPosition):
        log.append(b"too late", expected=end)
    assert content(log) == b"onetwo"


def test_an_append_returns_the_plog_and_its_offset(log: LogStream) -> None:
    """The payload lies right before the position returned."""
    log.append(b"one")
    end = log.append(b"two")
    assert b"".join(log.read(end.plog_id, end.offset - 3, 3)) == b"two"
    assert end == LogPosition(ids(log)[-1], 6)


def test_an_append_that_fits_stays_in_the_active_plog(log: LogStream) -> None:
    """Exactly full is not too full."""
    log.append(bytes(40))
    log.append(bytes(24))
    assert len(ids(log)) == 1


def test_an_append_that_does_not_fit_switches_plogs(plogs: Plogs, roomy: MetadataManager) -> None:
    """The old plog is sealed, its end and the new plog are recorded, and the payload is in the new one, whole."""
    log = roomy.log("wal")
    old = log.append(bytes(4000))
    new = log.append(b"x" * 200)
    assert plogs.info(old.plog_id) == PlogInfo(length=4000, sealed=True, size=4096)
    assert bytes(plogs.read(new.plog_id, 0, 200)) == b"x" * 200
    _, record = records(roomy, "wal")
    assert isinstance(record, Incremental)
    assert (record.sealed, record.sealed_offset, record.plog) == (str(old.plog_id), 4000, str(new.plog_id))


# Log stream: read


def test_a_read_from_a_plog_and_an_offset_goes_on_into_the_next_plogs(log: LogStream) -> None:
    """A size larger than the plog is no concern of the reader's."""
    for letter in b"abc":
        log.append(bytes([letter]) * 40)
    assert b"".join(log.read(ids(log)[0], 30, 60)) == b"a" * 10 + b"b" * 40 + b"c" * 10


def test_a_read_returns_the_payloads_one_by_one(log: LogStream) -> None:
    """A vector of payloads, and none of them copied into one."""
    for payload in (b"one", b"two", b"3" * 60):
        log.append(payload)
    assert [bytes(view) for view in log.read(ids(log)[0], 0, 66)] == [b"one", b"two", b"3" * 60]


# Optimisation


def test_the_next_plog_is_there_before_it_is_needed(plogs: Plogs, manager: MetadataManager, log: LogStream) -> None:
    """Its id is recorded with the log's creation, the plog itself is made when half of the one before it is used."""
    (init,) = records(manager, "wal")
    assert isinstance(init, Init)
    log.append(bytes(33))
    manager.close()  # when all that runs in the background is done
    assert plogs.info(PlogId.parse(init.next)) == PlogInfo(length=0, sealed=False, size=64)


def test_a_switch_waits_for_no_plog_to_be_created(plogs: Plogs, cpo: Cpo) -> None:
    """It takes the pre-allocated one, and the one after that is made in the background."""
    gated = GatedPlogs(plogs)
    with MetadataManager.open(gated, cpo, "p0", sizes=ROOMY) as manager:
        log = manager.log("wal")
        log.append(bytes(4000))
        gated.wait_for("create", 4)  # the metadata plog, the mark, the active plog, the next plog
        gate = gated.gate("create")
        log.append(bytes(4000))
        assert len(ids(log)) == 2
        gate.wait_until_reached()
        gate.open()


def test_writes_go_on_during_a_switch_and_are_acknowledged_behind_it(plogs: Plogs, cpo: Cpo) -> None:
    """Every thread may write into the new plog, but nothing in it counts before the switch is recorded."""
    gated = GatedPlogs(plogs)
    with (
        MetadataManager.open(gated, cpo, "p0", sizes=ROOMY) as manager,
        ThreadPoolExecutor(4) as pool,
    ):
        log = manager.log("wal")
        log.append(bytes(4096))
        gated.wait_for("create", 4)
        record = gated.gate("append")
        appends = [pool.submit(log.append, b"%040d" % number) for number in range(3)]
        record.wait_until_reached()
        gated.wait_for("submit", 4)  # all three are in the new plog
        assert not any(append.done() for append in appends)
        record.open()
        ends = [append.result(SECONDS_MAX) for append in appends]
        assert {end.plog_id for end in ends} == {ids(log)[1]}
        assert log.length == 4096 + 3 * 40


# Metadata manager: init


def test_a_new_metadata_manager_makes_its_log_known_to_the_oracle(plogs: Plogs, cpo: Cpo) -> None:
    """It needs the partition's name only, under which the oracle has the active plog of the metadata log."""
    assert cpo.metadata_plog("p0") is None
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY):
        found = cpo.metadata_plog("p0")
        assert found is not None
        assert not plogs.info(found.plog_id).sealed


def test_partitions_have_a_metadata_log_each(plogs: Plogs, cpo: Cpo, manager: MetadataManager) -> None:
    """The name of a partition is what keeps them apart."""
    manager.log("wal").append(b"one")
    with MetadataManager.open(plogs, cpo, "p1", sizes=TINY) as other:
        other.log("wal").append(b"two")
        assert cpo.metadata_plog("p0") != cpo.metadata_plog("p1")
        assert content(other.log("wal")) == b"two"
    assert content(manager.log("wal")) == b"one"


def test_a_partition_has_one_metadata_manager(plogs: Plogs, cpo: Cpo, manager: MetadataManager) -> None:
    """From the first record of a second one on, the first can record nothing any more."""
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as second:
        second.log("wal")
        with pytest.raises(LogFenced):
            manager.log("indexer-snapshot")
        assert second.logs() == ["wal"]


# Metadata manager: records


def test_a_log_is_an_init_record_and_an_incremental_record_for_each_switch(roomy: MetadataManager) -> None:
    """The first names the first plog; each other one the plog just sealed, its end, and the new plog."""
    log = roomy.log("wal")
    for size in (4000, 3000, 2000):
        log.append(bytes(size))
    first, second, third = map(str, ids(log))
    init, *switches = records(roomy, "wal")
    assert isinstance(init, Init)
    assert init.plog == first
    assert [(r.sealed, r.sealed_offset, r.plog) for r in switches if isinstance(r, Incremental)] == [
        (first, 4000, second),
        (second, 3000, third),
    ]


def test_a_full_record_names_all_plogs_of_a_log_and_their_ends(manager: MetadataManager, log: LogStream) -> None:
    """Once the metadata log has switched, it stands for all records about that log before it."""
    for _ in range(10):
        log.append(bytes(40))
    full, *later = records(manager, "wal")
    assert isinstance(full, Full)
    sealed = [(str(plog_id), length) for plog_id, length, is_sealed in log.plogs() if is_sealed]
    assert full.sealed
    assert full.sealed == sealed[: len(sealed) - len(later)]


def test_records_of_all_data_services_are_in_one_metadata_log(roomy: MetadataManager, plogs: Plogs, cpo: Cpo) -> None:
    """Each record names its log; all of them are appends to one plog."""
    for name in ("wal", "indexer-snapshot"):
        roomy.log(name)
    assert [r.log for r in roomy.read_all() if isinstance(r, Init)] == ["wal", "indexer-snapshot"]
    found = cpo.metadata_plog("p0")
    assert found is not None
    assert b"indexer-snapshot" in bytes(plogs.read(found.plog_id, 0, plogs.info(found.plog_id).length))


# Metadata manager: read all, recovery


def test_a_new_metadata_manager_finds_everything_from_the_id_in_the_oracle(plogs: Plogs, cpo: Cpo) -> None:
    """It reads the newest metadata plog, and every data service goes on from its own records."""
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as first:
        for name in ("wal", "indexer-snapshot"):
            for number in range(5):
                first.log(name).append(b"%-40d" % number)
        known = {name: first.log(name).plogs() for name in first.logs()}
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as second:
        assert {name: second.log(name).plogs() for name in second.logs()} == known
        end = second.log("wal").append(b"5".ljust(40), expected=LogPosition(known["wal"][-1][0], 40))
        assert end.offset == 40
        assert content(second.log("wal")) == b"".join(b"%-40d" % number for number in range(6))


def test_a_recovered_manager_reads_the_records_that_were_written(plogs: Plogs, cpo: Cpo) -> None:
    """What is said about a log does not change by being read."""
    with MetadataManager.open(plogs, cpo, "p0", sizes=ROOMY) as first:
        for _ in range(2):
            first.log("wal").append(bytes(3000))
        written = records(first, "wal")
    with MetadataManager.open(plogs, cpo, "p0", sizes=ROOMY) as second:
        assert records(second, "wal") == written


# Metadata log switch


def test_a_new_metadata_plog_starts_with_the_plog_before_it_and_a_full_record(
    plogs: Plogs, cpo: Cpo, log: LogStream, manager: MetadataManager
) -> None:
    """A recovery that has the newest one needs no other: those before it are deleted."""
    before = newest(cpo)
    while newest(cpo) == before:
        log.append(bytes(40))
    chain, full, *_ = manager.read_all()
    assert isinstance(chain, Chain)
    assert isinstance(full, Full)
    assert [plog for plog, _ in chain.previous] == [str(before)]
    with pytest.raises(NoSuchPlog):
        plogs.info(before)


def test_the_oracle_holds_the_newest_id_and_nothing_else(plogs: Plogs, cpo: Cpo, log: LogStream) -> None:
    """However often the metadata log switches, the oracle does not grow: one row a partition."""
    seen = set()
    for _ in range(30):
        log.append(bytes(40))
        seen.add(newest(cpo))
    assert len(seen) > 2
    assert not plogs.info(newest(cpo)).sealed
    assert cpo.keys() == []


def newest(cpo: Cpo) -> PlogId:
    found = cpo.metadata_plog("p0")
    assert found is not None
    return found.plog_id


# The seed's own list of what is still to do


@pytest.mark.buckets
def test_a_log_goes_on_after_a_failure(plogs: Plogs, cpo: Cpo) -> None:
    """A full disk in the middle of a switch is one clear error; nothing is lost, and the next append is taken."""
    gated = GatedPlogs(plogs)
    with MetadataManager.open(gated, cpo, "p0", sizes=ROOMY) as manager:
        log = manager.log("wal")
        log.append(b"a" * 4000)
        gated.fail("append", DiskFull("disk"))  # the record of the switch
        with pytest.raises(DiskFull):
            log.append(b"b" * 4000)
        log.append(b"c" * 4000)
        assert content(log) == b"a" * 4000 + b"c" * 4000


def test_a_log_refuses_with_an_error_of_its_own(log: LogStream) -> None:
    """Whatever is wrong with a call to a log can be caught as a LogError."""
    with pytest.raises(LogError):
        log.append(b"x", expected=LogPosition(ids(log)[0], 7))


def test_a_metadata_log_of_many_plogs_is_recovered(plogs: Plogs, cpo: Cpo) -> None:
    """Plogs of any size make it testable: some hundred records need many metadata plogs."""
    metadata_plogs, kept = set(), b""
    for turn in range(25):
        with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager:
            manager.log("kept").append(b"%040d" % turn)
            kept += b"%040d" % turn
            for number in range(5):
                manager.log("wal").append(b"%040d" % number)
                manager.log("wal").truncate(ids(manager.log("wal"))[-1])
                metadata_plogs.add(newest(cpo))
            assert content(manager.log("wal")) == b"%040d" % 4
            assert content(manager.log("kept")) == kept
    assert len(metadata_plogs) > 5


def test_a_metadata_plog_has_room_for_100_000_plogs(plogs: Plogs, cpo: Cpo, manager: MetadataManager) -> None:
    """An id takes less than 100 bytes, and a sealed plog in a full record less than a 16 MiB plog's share of it."""
    log = manager.log("wal")
    for _ in range(100):
        log.append(bytes(40))
    assert all(len(str(plog_id)) < 100 for plog_id in ids(log))
    assert plogs.info(newest(cpo)).length / len(ids(log)) < (16 << 20) / 100_000


def test_a_payload_above_the_append_limit_is_written_in_chunks_and_put_in_at_once(plogs: Plogs, cpo: Cpo) -> None:
    """The chunks are a log of their own until all of them are there; then one record makes them part of the log."""
    chunks = [bytes([number]) * APPEND_SIZE_MAX for number in range(3)]
    with MetadataManager.open(plogs, cpo, "p0") as manager:
        log, parts = manager.log("wal"), manager.log("wal-chunks")
        log.append(b"before")
        for chunk in chunks:
            parts.append(chunk)
        assert content(log) == b"before"
        log.splice(parts)
        log.append(b"behind")
        assert content(log) == b"before" + b"".join(chunks) + b"behind"
        assert manager.logs() == ["wal"]
