"""A partition on any disk, with plogs so small that every test switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.ports import Disk
from penstock.testing import MemoryDisk

TINY = PlogSizes(first=64, largest=256)


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    """A real oracle in memory."""
    with open_cpo("memory:") as oracle:
        yield oracle


@contextmanager
def open_manager(disk: Disk, cpo: Cpo, sizes: PlogSizes = TINY, partition: str = "p0") -> Iterator[MetadataManager]:
    """Open a partition whose plogs lie on ``disk``."""
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, partition, sizes=sizes) as manager:
        yield manager


@pytest.fixture
def reopen(cpo: Cpo) -> Callable[[], contextmanager[MetadataManager]]:
    """Open the same partition on the same disk, again and again."""
    disk = MemoryDisk()
    return lambda: open_manager(disk, cpo)
