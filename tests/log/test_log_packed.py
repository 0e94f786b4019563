"""Logs of many plogs: their ids in little memory, read all at once when a partition is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import PlogSizes
from penstock.log._chain import LogChain, PackedPlogs
from penstock.model import PlogId
from tests.log.harness import content

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from penstock.log import MetadataManager

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]


def plog(number: int, group: str = "main") -> PlogId:
    return PlogId("local", group, f"{number:032x}")


def chain_of(plogs: list[tuple[PlogId, int, bytes]]) -> LogChain:
    chain = LogChain(active=plog(10_000), next_id=plog(10_001), start=7)
    for sealed in plogs:
        chain.add_sealed(*sealed)
    return chain


sealed_plogs = st.lists(
    st.tuples(st.sampled_from(["main", "other", "third"]), st.integers(0, 1 << 40), st.sampled_from([b"", b"label"])),
    max_size=40,
).map(lambda found: [(plog(number, group), length, label) for number, (group, length, label) in enumerate(found)])


@given(sealed_plogs, st.integers(1, 20), st.integers(0, 39))
def test_a_chain_is_the_same_after_it_was_packed(
    plogs: list[tuple[PlogId, int, bytes]], most: int, truncated: int
) -> None:
    """A snapshot that changes an offset would show other bytes to every reader."""
    chain = chain_of(plogs)
    if truncated < len(plogs):
        chain.truncate(plogs[truncated][0])
    other = LogChain(active=chain.active, next_id=chain.next, start=chain.start)
    for packed in chain.packed(most=most):
        other.add_packed(packed)
    assert other.sealed == chain.sealed
    assert other.labels == chain.labels
    assert all(other.start_of(plog_id) == chain.start_of(plog_id) for plog_id, _ in chain.sealed)
    assert other.ranges(chain.start, chain.active_start) == chain.ranges(chain.start, chain.active_start)


@given(sealed_plogs.filter(lambda plogs: len(plogs) > 12), st.data())
def test_plogs_are_found_after_any_change(plogs: list[tuple[PlogId, int, bytes]], data: st.DataObject) -> None:
    """The table by which a plog is found is made once, and has to follow truncations and merges."""
    chain, model = chain_of(plogs), [(plog_id, length) for plog_id, length, _ in plogs]
    for number in range(4):
        chain.start_of(model[0][0])  # the table is there
        if data.draw(st.booleans()):
            count = data.draw(st.integers(0, len(model) - 3))
            assert chain.truncate(model[count][0]) == [plog_id for plog_id, _ in model[:count]]
            model = model[count:]
        else:
            first = data.draw(st.integers(0, len(model) - 2))
            new, length = plog(20_000 + number, "other"), model[first][1] + model[first + 1][1]
            chain.replace(model[first][0], 2, new, length)
            assert model[first][0] not in chain
            model[first : first + 2] = [(new, length)]
        chain.add_sealed(plog(30_000 + number), 5)
        model.append((plog(30_000 + number), 5))
        assert chain.sealed == model
        assert all(plog_id in chain for plog_id, _ in model)
        assert plog(5, "elsewhere") not in chain


@pytest.mark.parametrize(
    "packed",
    [
        PackedPlogs([("c", "g")], bytes(4), bytes(16), bytes(16), {}),
        PackedPlogs([("c", "g")], bytes(4), bytes(16), bytes(7), {}),
        PackedPlogs([("c", "g")], bytes(8), bytes(16), bytes(8), {}),
        PackedPlogs([("c", "g")], bytes(3), bytes(16), bytes(8), {}),
        PackedPlogs([], bytes(4), bytes(16), bytes(8), {}),
        PackedPlogs([("c", "not a name")], bytes(4), bytes(16), bytes(8), {}),
        PackedPlogs([("c", "g")], bytes(4), bytes(16), bytes(8), {1: b"label"}),
        PackedPlogs([("c", "g")], bytes(4), bytes(16), bytes(8), {-1: b"label"}),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(packed: PackedPlogs) -> None:
    """ValueError is what recovery turns into a clear error; anything else would be a crash."""
    with pytest.raises(ValueError):  # noqa: PT011 - numpy's own, and ours
        chain_of([]).add_packed(packed)


def test_a_log_of_many_plogs_is_read_again(reopen: Reopen) -> None:
    """Its snapshot has another form than that of a short log."""
    with reopen() as manager:
        log = manager.log("long", sizes=PlogSizes(first=64, largest=64))
        for number in range(300):
            log.append(b"%050d" % number)
        expected, plogs = content(log), log.plogs()
    with reopen() as manager:
        assert manager.log("long").plogs() == plogs
        assert content(manager.log("long")) == expected
        manager.log("long").truncate(plogs[150][0])
        manager.log("long").append(b"more")
    with reopen() as manager:
        assert content(manager.log("long")) == expected[150 * 50 :] + b"more"


def test_a_partition_that_is_closed_leaves_few_records_to_be_read(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise opening a store takes as long as it was used, up to four times its size."""
    monkeypatch.setattr("penstock.log._partition.REPLAY_SIZE_MAX", 100)
    with reopen() as manager:
        for number in range(40):
            manager.log(f"log-{number}").append(b"%d" % number)
        partition = manager.partition
        manager.compact()
        assert partition.length == partition.snapshot_end
        manager.compact()
        manager.log("last").append(b"one more")
    with reopen() as manager:
        assert 0 < manager.partition.snapshot_end < manager.partition.length, "behind it are the last log, a new owner"
        assert [content(manager.log(f"log-{number}")) for number in range(40)] == [b"%d" % n for n in range(40)]
        assert content(manager.log("last")) == b"one more"
