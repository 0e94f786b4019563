"""Merging small plogs: fewer files, the same bytes in the same appends at the same offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DiskFull, NotInLog
from penstock.log._chain import RUN_MIN, SMALL_SIZE_MAX, find_run
from tests.log.harness import content, plog_files
from tests.stream.large_harness import settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from penstock.log import LogStream, MetadataManager
    from penstock.testing import MemoryDisk

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]


def filled(manager: MetadataManager, count: int = 10) -> LogStream:
    """Return a log of many plogs with two appends each, and one that takes more."""
    log = manager.log("log")
    for number in range(count):
        source = manager.log("source")
        source.append(bytes([number]) * 10)
        source.append(bytes([number]) * 7)
        log.splice(source)
    log.append(b"last")
    return log


def appends(log: LogStream) -> list[tuple[int, bytes]]:
    """Return all appends with their offsets."""
    return [(offset, bytes(view)) for offset, view in log.blocks(log.start, log.length)]


def test_merged_plogs_hold_the_same_appends_at_the_same_offsets(manager: MetadataManager) -> None:
    """Pointers, cuts and positions that people keep are offsets."""
    log = filled(manager)
    before = appends(log)
    plogs = log.plogs()
    assert log.merge(plogs[2][0], 5)
    assert appends(log) == before
    assert [length for _, length, _ in log.plogs()] == [17, 17, 5 * 17, 17, 17, 17, 4]


def test_merging_leaves_one_file_for_many(reopen: Reopen, disk: MemoryDisk) -> None:
    """This is what it is for; a restart finds the same."""
    with reopen() as manager:
        log = filled(manager)
        settle(manager)
        before, files = content(log), len(plog_files(disk))
        log.merge(log.plogs()[0][0], 10)
        settle(manager)
        assert len(plog_files(disk)) == files - 9
    with reopen() as manager:
        assert content(manager.log("log")) == before
        manager.log("log").append(b"more")
        assert content(manager.log("log")) == before + b"more"


def test_a_reader_on_its_way_goes_on_in_the_merged_plog(manager: MetadataManager) -> None:
    """A reader knows nothing of plogs, and must not notice that they change."""
    log = filled(manager)
    expected, length = appends(log), log.length
    blocks, views = log.blocks(0, length), log.read(log.plogs()[0][0], 0, length)
    found = [next(blocks) for _ in range(3)]
    start = next(views)
    log.merge(log.plogs()[0][0], 10)
    settle(manager)
    found += blocks
    assert [(offset, bytes(view)) for offset, view in found] == expected
    assert b"".join((start, *views)) == b"".join(data for _, data in expected)


def test_plogs_that_were_truncated_away_are_not_merged(manager: MetadataManager) -> None:
    """Retention does not wait for merging."""
    log = filled(manager)
    plogs = log.plogs()
    log.truncate(plogs[4][0])
    with pytest.raises(NotInLog):
        log.merge(plogs[2][0], 5)
    assert manager.logs() == ["log"]
    assert log.start == 4 * 17


def test_plogs_that_are_truncated_away_while_they_are_copied_stay_away(manager: MetadataManager) -> None:
    """The copy is dropped, or the stream would begin with what was removed."""
    log = filled(manager)
    plogs = log.plogs()

    class Truncating:
        def __enter__(self) -> None:
            log.truncate(plogs[4][0])

        def __exit__(self, *_: object) -> None:
            pass

    assert not log.merge(plogs[2][0], 5, guard=Truncating())
    assert appends(log)[0] == (4 * 17, bytes([4]) * 10)
    assert log.merge(plogs[5][0], 3)


def test_a_full_disk_leaves_everything_as_it_was(manager: MetadataManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging needs as much again for a moment; where that is not there, nothing is lost."""
    log = filled(manager)
    before = appends(log)

    def refuse(*_: object, **__: object) -> None:
        raise DiskFull("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(manager.plogs, "submit", refuse)
        with pytest.raises(DiskFull):
            log.merge(log.plogs()[0][0], 10)
    assert appends(log) == before
    assert log.merge(log.plogs()[0][0], 10)
    assert appends(log) == before


lengths_of_plogs = st.lists(st.one_of(st.integers(0, 5000), st.integers(0, 2 * SMALL_SIZE_MAX)), max_size=60)


@given(lengths_of_plogs, st.integers(1 << 10, 1 << 20))
def test_merging_ends_with_few_small_plogs_and_copies_little(lengths: list[int], largest: int) -> None:
    """However many commits there are, the number of files is bounded by what is in them."""
    copied = 0
    while (run := find_run(lengths, lengths, largest=largest)) is not None:
        size = sum(lengths[place] for place in run)
        assert len(run) >= RUN_MIN
        assert size <= largest
        assert all(lengths[place] <= SMALL_SIZE_MAX for place in run)
        lengths = [*lengths[: run.start], size, *lengths[run.stop :]]
        copied += size
    assert copied <= 4 * sum(lengths)


def test_many_small_commits_leave_few_plogs() -> None:
    """Ten thousand commits of a hundred bytes are a megabyte, and a handful of files."""
    lengths, copied = list[int](), 0
    for _ in range(10_000):
        lengths.append(100)
        run = find_run(lengths, lengths, largest=16 << 20)
        if run is not None:
            size = sum(lengths[place] for place in run)
            lengths = [*lengths[: run.start], size, *lengths[run.stop :]]
            copied += size
    assert len(lengths) < 40
    assert copied < 8 * 10_000 * 100


def test_plogs_of_different_groups_are_not_merged() -> None:
    """What is to go at different times must not lie in one plog."""
    lengths, starts = [10] * 20, list(range(0, 200, 10))
    assert find_run(lengths, starts, largest=1 << 20, group=lambda start: start // 50) is None
    assert find_run(lengths, starts, largest=1 << 20, group=lambda start: start // 100) == range(10)
