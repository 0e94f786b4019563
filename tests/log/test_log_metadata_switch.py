"""The metadata log over many plogs of its own, which the seed could not test; and two who both believe it is theirs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.errors import LogFenced, PenstockError
from penstock.log import MetadataManager, PlogSizes
from penstock.log._records import Chain, Doomed, Full
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk
from tests.log.conftest import TINY
from tests.log.harness import content, contents, leftovers, plog_files
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from penstock.cpo import Cpo
    from penstock.model import PlogId

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]

LOGS: Final = 12
STEPS: Final = 3000


def newest(cpo: Cpo) -> PlogId:
    found = cpo.metadata_plog("p0")
    assert found is not None
    return found.plog_id


def test_a_partition_of_many_logs_and_switches_survives_reopening_at_any_moment(
    reopen: Reopen, cpo: Cpo, disk: MemoryDisk
) -> None:
    """Hundreds of records need many metadata plogs; each of them must say all that those before it said."""
    chance = random.Random(3)
    model: dict[str, bytes] = {}
    metadata_plogs: set[PlogId] = set()
    steps = 0
    while steps < STEPS:
        with reopen() as manager:
            assert contents(manager) == model
            for _ in range(chance.randrange(1, 200)):
                steps += 1
                name = f"log{chance.randrange(LOGS)}"
                if chance.random() < 0.03 and name in model:
                    manager.delete_log(name)
                    del model[name]
                    continue
                if chance.random() < 0.05 and name in model and len(model) > 1:
                    source = chance.choice(sorted(set(model) - {name}))
                    manager.log(name).splice(manager.log(source))
                    model[name] += model.pop(source)
                    continue
                data = b"%d." % steps * chance.randrange(1, 30)
                manager.log(name).append(data)
                model[name] = model.get(name, b"") + data
                metadata_plogs.add(manager.partition.plog_id)
                assert newest(cpo) == manager.partition.plog_id
        assert not leftovers(manager, disk), "old metadata plogs are deleted"
    assert len(metadata_plogs) > 5, "the metadata log did not switch often enough to prove anything"  # 8 to 13 seen


def test_a_new_metadata_plog_starts_with_the_chain_and_full_records(manager: MetadataManager, cpo: Cpo) -> None:
    """Recovery reads this one plog; the oracle has nothing but its id."""
    first = newest(cpo)
    names = [f"log{number}" for number in range(20)]
    for name in names:
        manager.log(name).append(b"x" * 60)
    while newest(cpo) == (switched := newest(cpo)) and switched == first:
        manager.log(names[0]).append(b"y" * 60)
    before = newest(cpo)
    while newest(cpo) == before:
        manager.log(names[1]).append(b"z" * 60)
    chain, *rest = manager.read_all()
    assert isinstance(chain, Chain)
    assert [plog for plog, _ in chain.previous] == [str(before)]
    full = [record.log for record in rest[: len(names)] if isinstance(record, Full)]
    assert sorted(full) == sorted(names)


def test_the_metadata_log_switches_rarely_however_much_there_is_to_remember(manager: MetadataManager) -> None:
    """A switch writes everything anew; with plogs in proportion, the cost of each record stays the same."""
    switches, last = 0, manager.partition.plog_id
    for number in range(400):
        manager.log(f"log{number}")
        switches += manager.partition.plog_id != last
        last = manager.partition.plog_id
    assert switches < 12


def test_plogs_still_to_be_deleted_are_remembered_over_a_metadata_switch(
    reopen: Reopen, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep may fail or not come to its turn; what it would have deleted must not be forgotten."""
    with reopen() as manager:
        manager.log("gone").append(b"x" * 60)
        doomed = {manager.log("gone").plogs()[0][0]}
        monkeypatch.setattr(manager, "sweep", lambda: None)
        manager.delete_log("gone")
        first = manager.partition.plog_id
        while manager.partition.plog_id == first:
            manager.log("log").append(b"y" * 60)
        snapshot = [record for record in manager.read_all() if isinstance(record, Doomed)]
        assert doomed & set(manager.partition.metadata.doomed)
        assert snapshot
        assert leftovers(manager, disk)
    with reopen() as manager:
        pass
    assert not leftovers(manager, disk)


def test_a_partition_of_one_log_with_very_many_plogs_is_recovered(cpo: Cpo) -> None:
    """More plogs than one record holds, over a restart."""
    disk, sizes = MemoryDisk(), PlogSizes(first=8, largest=8)
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "p0", sizes=sizes) as manager:
        log = manager.log("log")
        for number in range(2500):
            log.append(b"%08d" % number)
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "p0", sizes=sizes) as manager:
        assert content(manager.log("log")) == b"".join(b"%08d" % number for number in range(2500))
        assert len(manager.log("log").plogs()) == 2500
    assert not leftovers(manager, disk)


def test_partitions_on_the_same_plogs_do_not_know_each_other(cpo: Cpo, disk: MemoryDisk) -> None:
    """A store has many partitions; the same names in them are different logs."""
    with FilePlogs(disk) as plogs:
        managers = [MetadataManager.open(plogs, cpo, f"p{number}", sizes=TINY) for number in range(3)]
        for number, manager in enumerate(managers):
            manager.log("log").append(b"%d" % number * 100)
        for number, manager in enumerate(managers):
            assert contents(manager) == {"log": b"%d" % number * 100}
            manager.close()
    assert len(plog_files(disk)) >= 6


def test_the_manager_that_lost_the_partition_is_fenced(cpo: Cpo, disk: MemoryDisk) -> None:
    """From the new owner's first record on, the old one can change nothing, and says so."""
    with FilePlogs(disk) as plogs:
        old = MetadataManager.open(plogs, cpo, "p0", sizes=TINY)
        old.log("a").append(b"1" * 60)
        old.log("b").append(b"old")
        new = MetadataManager.open(plogs, cpo, "p0", sizes=TINY)
        new.log("a").append(b"2" * 60)
        for use in (lambda: old.log("a").append(b"3" * 60), lambda: old.log("c"), lambda: old.delete_log("b"),
                    lambda: old.log("b").splice(old.log("a")),
                    lambda: old.log("a").truncate(old.log("a").plogs()[-1][0])):  # fmt: skip
            with pytest.raises(LogFenced):
                use()
        old.close()
        new.log("a").append(b"4" * 60)
        assert contents(new) == {"a": b"1" * 60 + b"2" * 60 + b"4" * 60, "b": b"old"}
        new.close()
        with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as last:
            assert contents(last) == {"a": b"1" * 60 + b"2" * 60 + b"4" * 60, "b": b"old"}


def test_the_loser_is_fenced_by_a_metadata_switch_too(cpo: Cpo, disk: MemoryDisk) -> None:
    """Then its metadata plog is sealed or gone, and the oracle has another one."""
    with FilePlogs(disk) as plogs:
        old = MetadataManager.open(plogs, cpo, "p0", sizes=TINY)
        old.log("a").append(b"1" * 60)
        new = MetadataManager.open(plogs, cpo, "p0", sizes=TINY)
        before = newest(cpo)
        while newest(cpo) == before:
            new.log(f"log{len(new.logs())}")
        for _ in range(3):
            with pytest.raises(LogFenced):
                old.log("b")
        assert "a" in new.logs()
        old.close()
        new.close()


steps = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from(["append", "append", "append", "create", "open"]), st.integers(1, 150)
    ),
    min_size=1,
    max_size=25,
)


@given(steps)
@settings(max_examples=examples(150))
def test_two_managers_of_one_partition_lose_nothing_that_either_acknowledged(
    history: list[tuple[int, str, int]],
) -> None:
    """A process that was taken for dead may still run: it may be refused, but must not destroy."""
    with open_cpo("memory:") as cpo, FilePlogs(MemoryDisk(), journal_size=1 << 16, direct_size_min=1 << 12) as plogs:
        managers = [MetadataManager.open(plogs, cpo, "p0", sizes=TINY) for _ in range(2)]
        acknowledged: list[bytes] = []
        for number, (which, what, size) in enumerate(history):
            manager = managers[which]
            name = f"log{size % 2}"
            data = b"<%d:%s>" % (number, b"." * size)
            try:
                if what == "append":
                    manager.log(name).append(data)
                    acknowledged.append(data)
                elif what == "create":
                    manager.log(f"other{number}").append(data)
                    acknowledged.append(data)
                else:
                    manager.close()
                    managers[which] = MetadataManager.open(plogs, cpo, "p0", sizes=TINY)
            except PenstockError as error:
                assert isinstance(error, LogFenced), repr(error)  # noqa: PT017
        for manager in managers:
            manager.close()
        with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as last:
            held = b"".join(contents(last).values())
        for data in acknowledged:
            assert held.count(data) == 1, data
