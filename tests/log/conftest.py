"""A partition on any disk or in an object store, with plogs so small that every test switches."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.plog.objects import ObjectSettings
from penstock.testing import MemoryDisk
from tests.plog_backend import BACKEND, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.plog import Plogs
    from penstock.ports import Disk, Objects
    from tests.plog_backend import Buckets

TINY: Final = PlogSizes(first=64, largest=256)


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    """A real oracle in memory."""
    with open_cpo("memory:") as oracle:
        yield oracle


@contextmanager
def open_manager(
    disk: Disk,
    cpo: Cpo,
    sizes: PlogSizes = TINY,
    partition: str = "p0",
    *,
    wrap: Callable[[FilePlogs], Plogs] = lambda plogs: plogs,
) -> Iterator[MetadataManager]:
    """Open a partition whose plogs lie on ``disk``."""
    with (
        wrap(FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12)) as plogs,
        MetadataManager.open(plogs, cpo, partition, sizes=sizes) as manager,
    ):
        yield manager


@contextmanager
def open_in_bucket(buckets: Buckets, bucket: Objects, cpo: Cpo) -> Iterator[MetadataManager]:
    """Open a partition whose plogs lie in an object store, and move there all the time."""
    settings = ObjectSettings(
        group_wait_s=0, part_size_min=40, checkpoint_objects=11, compact_size_min=100, journal_objects_max=20
    )
    with (
        buckets.open(bucket, settings) as plogs,
        MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager,
    ):
        yield manager


@contextmanager
def open_on_servers(buckets: Buckets, cpo: Cpo) -> Iterator[MetadataManager]:
    """Open a partition whose plogs are on three servers."""
    with buckets.on_servers("p0") as plogs, MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager:
        yield manager


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on a disk and in an object store, except those that look at the files."""
    if "storage" in metafunc.fixturenames:
        on_disk = "groups" if BACKEND in GROUPS else "files"
        stored = ["files", "objects"] if BACKEND == "disk" else [on_disk if BACKEND in GROUPS else "objects"]
        metafunc.parametrize("storage", [on_disk] if "disk" in metafunc.fixturenames else stored)


@pytest.fixture
def disk() -> MemoryDisk:
    """Where :func:`reopen` keeps its plogs."""
    return MemoryDisk()


@pytest.fixture
def reopen(
    cpo: Cpo, storage: str, request: pytest.FixtureRequest, buckets: Buckets
) -> Callable[[], AbstractContextManager[MetadataManager]]:
    """Open the same partition on the same disk, or in the same bucket, again and again."""
    if BACKEND == "servers":
        return lambda: open_on_servers(buckets, cpo)
    if storage == "objects":
        bucket = buckets.new()
        return lambda: open_in_bucket(buckets, bucket(), cpo)
    disk: MemoryDisk = request.getfixturevalue("disk")
    if storage == "groups":
        return lambda: open_manager(disk, cpo, wrap=buckets.groups)
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
