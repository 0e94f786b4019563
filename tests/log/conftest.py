"""A partition on any disk, with plogs so small that every test switches."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.ports import Disk

TINY: Final = PlogSizes(first=64, largest=256)


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    """A real oracle in memory."""
    with open_cpo("memory:") as oracle:
        yield oracle


@contextmanager
def open_manager(disk: Disk, cpo: Cpo, sizes: PlogSizes = TINY, partition: str = "p0") -> Iterator[MetadataManager]:
    """Open a partition whose plogs lie on ``disk``."""
    with (
        FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12) as plogs,
        MetadataManager.open(plogs, cpo, partition, sizes=sizes) as manager,
    ):
        yield manager


@pytest.fixture
def disk() -> MemoryDisk:
    """Where :func:`reopen` keeps its plogs."""
    return MemoryDisk()


@pytest.fixture
def reopen(cpo: Cpo, disk: MemoryDisk) -> Callable[[], AbstractContextManager[MetadataManager]]:
    """Open the same partition on the same disk, again and again."""
    return lambda: open_manager(disk, cpo)


@pytest.fixture
def manager(reopen: Callable[[], AbstractContextManager[MetadataManager]]) -> Iterator[MetadataManager]:
    """A partition that is open for the whole test."""
    with reopen() as manager:
        yield manager


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads, all of which end with the test."""
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _no_background_task_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No caller waits for a background task, so without this a bug in one would go unnoticed."""
    yield
    errors = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not errors, errors[0].exc_text or errors[0].getMessage()
