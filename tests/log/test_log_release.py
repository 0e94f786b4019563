"""Giving back the allocated size of a log that takes no more appends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.log import PlogSizes
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE
from tests.log.harness import content
from tests.stream.large_harness import settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from penstock.log import LogStream, MetadataManager
    from penstock.testing import MemoryDisk

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]


def allocated(manager: MetadataManager, disk: MemoryDisk, log: LogStream) -> int:
    """Return how many bytes the log's files take, the pre-allocated one included."""
    settle(manager)
    chain = manager.partition.metadata.logs[log.name]
    plogs = [*(plog_id for plog_id, _ in chain.sealed), chain.active, chain.next]
    names = {f"{plog_id.uid}.plog" for plog_id in plogs}
    return sum(disk.open(name).size() for name in disk.names() if name in names)


def test_a_released_log_takes_no_more_than_its_blocks(manager: MetadataManager, disk: MemoryDisk) -> None:
    """A store with many ended segments would otherwise take many times the size of its data."""
    log = manager.log("log")
    log.append(b"x" * 40)  # more than half of a plog: the next one is allocated
    assert allocated(manager, disk, log) > 2 * HEAD_SIZE + 64
    log.release()
    assert allocated(manager, disk, log) == HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + 40


def test_a_released_log_allocates_nothing_in_the_background(reopen: Reopen, disk: MemoryDisk) -> None:
    """Otherwise the first look at an ended segment after a restart would allocate its next plog again."""
    with reopen() as manager:
        manager.log("log").append(b"x" * 10)
        manager.log("log").release()
    with reopen() as manager:
        log = manager.log("log")
        assert log.tail.offset == 10
        assert allocated(manager, disk, log) == HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + 10


def test_a_released_log_takes_appends_again(reopen: Reopen) -> None:
    """The change that was to end a segment may fail, and then its writers continue."""
    with reopen() as manager:
        log = manager.log("log")
        log.append(b"before,")
        log.release()
        log.release()
        log.append(b"after")
        assert content(log) == b"before,after"
    with reopen() as manager:
        log = manager.log("log")
        log.append(b",again")
        assert content(log) == b"before,after,again"


@pytest.mark.parametrize("ahead", [True, False])
def test_the_next_plog_is_allocated_ahead_only_where_that_is_wanted(
    manager: MetadataManager, disk: MemoryDisk, *, ahead: bool
) -> None:
    """A log that is full with its first plog needs no second one, and there may be thousands of them."""
    log = manager.log("log", sizes=PlogSizes(first=64, largest=64, ahead=ahead))
    log.append(b"x" * 32)
    assert allocated(manager, disk, log) == HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + 64  # it may never need more
    log.append(b"x")
    assert allocated(manager, disk, log) == (1 + ahead) * (HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + 64)
    log.append(b"y" * 64)
    assert content(log) == b"x" * 33 + b"y" * 64
