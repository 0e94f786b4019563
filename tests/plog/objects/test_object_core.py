"""What decides, without threads and requests: which changes share an object, and what is compacted."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from penstock.errors import BadArgument, StorageUnavailable
from penstock.model import PlogId
from penstock.plog.objects import ObjectSettings
from penstock.plog.objects._commit import GroupCommit, PutGroup, pack_group
from penstock.plog.objects._compact import crowded_before, plan
from penstock.plog.objects._records import AppendRecord, CreateRecord, JournalHeader, SealRecord, unpack_table
from penstock.plog.objects._state import PlogState, StoreState
from tests.plog.objects.actors import Subject

SETTINGS = ObjectSettings(group_wait_s=1.0, group_size_max=100, puts_in_flight_max=3)


def subject(number: int) -> Subject:
    return Subject(PlogId("local", "main", f"{number:032x}"), bytes(8), written=0, sealed=False)


def groups(commit: GroupCommit, count: int) -> list[PutGroup]:
    taken = []
    for number in range(count):
        commit.add(subject(number), None, bytes(20), b"x" * 90, offset=90)
        group = commit.next(0.0)
        assert isinstance(group, PutGroup)
        taken.append(group)
    return taken


def test_a_group_waits_after_the_last_one_unless_it_is_full() -> None:
    """One put serves all that came within the wait; an append to an idle store, or a full group, waits for nothing."""
    commit = GroupCommit(SETTINGS, number=7)
    assert commit.next(0.0) is None
    commit.add(subject(1), None, bytes(20), b"abc", offset=3)
    first = commit.next(5.0)
    assert isinstance(first, PutGroup)
    assert len(list(commit.durable(first))) == 1
    commit.add(subject(1), None, bytes(20), b"abc", offset=6)
    commit.add(subject(2), None, bytes(20), b"def", offset=3)
    assert commit.next(5.25) == 0.75
    group = commit.next(6.0)
    assert isinstance(group, PutGroup)
    assert (group.number, len(group.tickets)) == (8, 2)
    assert commit.next(99.0) is None
    commit.add(subject(1), None, bytes(20), b"x" * 90, offset=93)
    full = commit.next(7.0)
    assert isinstance(full, PutGroup)
    assert full.number == 9
    commit.add(subject(1), None, bytes(20), b"y", offset=94)
    assert isinstance(commit.next(7.0, at_once=True), PutGroup)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_groups_are_acknowledged_in_the_order_of_their_numbers(order: tuple[int, ...]) -> None:
    """A new owner reads up to the first gap: nothing behind one may be acknowledged."""
    commit = GroupCommit(SETTINGS, number=0)
    taken = groups(commit, 3)
    commit.add(subject(9), None, bytes(20), b"x" * 90, offset=90)
    assert commit.next(0.0) is None, "as many are under way as may be"
    acknowledged: list[int] = []
    for index in order:
        acknowledged += [group.number for group in commit.durable(taken[index])]
        durable = {taken[done].number for done in order[: order.index(index) + 1]}
        assert acknowledged == list(itertools.takewhile(durable.__contains__, range(3)))
    assert commit.acknowledged == 3
    assert isinstance(commit.next(0.0), PutGroup)


def test_nothing_is_acknowledged_after_a_failure() -> None:
    """Also what became durable: only the next owner knows how far it was."""
    commit = GroupCommit(SETTINGS, number=0)
    first, second = groups(commit, 2)
    commit.add(subject(3), None, bytes(20), b"x", offset=1)
    assert len(commit.fail(StorageUnavailable("memory:", reason="test"))) == 3
    assert not list(commit.durable(first))
    assert not list(commit.durable(second))
    assert commit.next(99.0) is None
    assert commit.is_idle


def test_blocks_of_a_plog_lie_together_and_many_bytes_get_an_object_of_their_own() -> None:
    """One extent for each plog in a group; bulk bytes are put once, and never copied by compaction."""
    commit = GroupCommit(replace(SETTINGS, group_wait_s=0.0, group_size_max=1 << 20), number=4)
    small, large = subject(1), subject(2)
    commit.add(small, CreateRecord("local", "main", small.uid, 1000, bytes(8)), offset=0)
    for number in range(3):
        commit.add(small, None, bytes([number]) * 20, b"abc", offset=3 * number + 3)
        commit.add(large, None, bytes([number]) * 20, b"d" * 500, offset=500 * number + 500)
    commit.add(small, SealRecord(small.uid, 9), offset=0)
    group = commit.next(0.0)
    assert isinstance(group, PutGroup)
    put = pack_group(group, epoch=2, token=bytes(16), part_size_min=1000)
    (part,) = put.parts
    assert part.name == f"{large.folder}2-4-0.part"
    assert sum(map(len, part.parts)) == 3 * 520
    data = memoryview(b"".join((put.head, *put.blocks)))
    header = JournalHeader.unpack(data, where="object")
    assert (header.size, put.size) == (len(data), len(data))
    _, appended, in_part, sealed = unpack_table(header, data, where="object")
    assert appended == AppendRecord(small.uid, 0, b"\3\0\0\0" * 3, 0)
    assert in_part == AppendRecord(large.uid, 0, b"\xf4\1\0\0" * 3, 0, part.name)
    assert sealed == SealRecord(small.uid, 9)
    assert bytes(data[header.data_start :]) == b"".join(bytes([number]) * 20 + b"abc" for number in range(3))


def test_oldest_half_of_a_crowded_journal_is_left() -> None:
    """Then it takes a while until it is crowded again."""
    settings = ObjectSettings(journal_size_max=100, journal_objects_max=10)
    assert crowded_before({1: 50, 2: 50}, {1: 1, 2: 1}, settings) == 0
    assert crowded_before({1: 50, 2: 50, 3: 1}, {1: 1, 2: 1}, settings) == 0
    assert crowded_before({1: 50, 2: 30, 3: 30}, {1: 1, 2: 1, 3: 1}, settings) == 3
    assert crowded_before(dict.fromkeys(range(11), 1), dict.fromkeys(range(11), 1), settings) == 6


def state_with(*plogs: tuple[int, bool]) -> StoreState:
    """Return a store with plogs of these lengths, sealed or not, each in a journal object of its own."""
    state = StoreState()
    for number, (length, sealed) in enumerate(plogs):
        plog = PlogState(PlogId("local", "main", f"{number:032x}"), size=1 << 20, birth=bytes(8), epoch=1)
        plog.append(length.to_bytes(4, "little"), number, 100)
        if sealed:
            plog.seal(length)
        state.plogs[plog.plog_id.uid_bytes] = plog
    return state


def test_sealed_plogs_are_compacted_within_the_allowance_and_small_ones_when_the_journal_is_crowded() -> None:
    """Small plogs are mostly merged or deleted soon; bytes that compaction puts cost as much as those of a writer."""
    settings = ObjectSettings(compact_size_min=1000, journal_size_max=10_000)
    state = state_with((5000, True), (10, True), (7000, False), (2000, True))
    retained = {0: 5000, 1: 100, 2: 7000, 3: 2000}

    def planned(allowance: float, size_max: int) -> list[int]:
        tasks = plan(state.plogs, retained, replace(settings, journal_size_max=size_max), allowance)
        return [int.from_bytes(task.uid, "big") for task in tasks]

    assert planned(1e9, 1 << 30) == [0, 3]
    assert planned(3000, 1 << 30) == [3]
    assert planned(1e9, 10_000) == [0, 1, 2, 3]
    assert planned(0, 10_000) == []


def test_impossible_settings_are_refused() -> None:
    """More puts under way than a new owner expects would let an owner that is gone write behind the fence."""
    for setting in ({"puts_in_flight_max": 9}, {"puts_in_flight_max": 0}, {"group_size_max": 0}, {"group_wait_s": -1}):
        with pytest.raises(BadArgument, match=next(iter(setting))):
            ObjectSettings(**setting)
