"""The catalog on a disk that is full: what it said before holds, and what it says next is read again."""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import BadArgument, DiskFailed, DiskFull, PenstockError
from penstock.log import MetadataManager, PlogSizes
from penstock.model import StreamConfig
from penstock.plog import FilePlogs
from penstock.stream.catalog._catalog import Catalog
from penstock.stream.format import ConsumerMoved, StreamCreated, StreamStopped
from penstock.testing import MemoryDisk
from tests.log.harness import GatedPlogs
from tests.stream.large_harness import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cpo import Cpo

SIZES: Final = PlogSizes(first=512, largest=512)


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


@contextmanager
def catalog_on(disk: MemoryDisk, cpo: Cpo) -> Iterator[tuple[Catalog, GatedPlogs, MetadataManager]]:
    with (
        GatedPlogs(FilePlogs(disk)) as plogs,
        MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as manager,
    ):
        yield Catalog(manager.log("catalog")), plogs, manager


def created(number: int) -> StreamCreated:
    return StreamCreated(f"plant/stream-{number}", number, 1, StreamConfig())


def create_until_refused(catalog: Catalog, *, first: int) -> int:
    """Create streams without waiting for the disk; return the number of the one that it refused."""
    for number in count(first):
        try:
            catalog.commit(created(number), durable=False)
        except DiskFull:
            return number
    raise AssertionError


@pytest.mark.parametrize("refused", ["the switch to the next plog", "the next plog"])
def test_what_a_full_disk_drops_at_the_switch_of_plogs_is_written_again(cpo: Cpo, refused: str) -> None:
    """Later records build on those that were dropped: without them the store would never open again."""
    disk = MemoryDisk()
    with catalog_on(disk, cpo) as (catalog, plogs, manager):
        catalog.commit(created(0))
        settle(manager)
        plogs.fail("append" if refused.startswith("the switch") else "create", DiskFull("the disk"), always=True)
        number = create_until_refused(catalog, first=1)
        assert sorted(one.uid for one in catalog.streams.values()) == list(range(number))
        plogs.heal()
        catalog.commit(StreamStopped(f"plant/stream-{number - 1}", {0: 0}))
        known = {name: state.full() for name, state in catalog.streams.items()}
    with catalog_on(disk, cpo) as (catalog, *_):
        assert {name: state.full() for name, state in catalog.streams.items()} == known


def test_a_change_that_was_refused_is_not_there_later(cpo: Cpo) -> None:
    """A caller that got DiskFull makes the change again, or does without it."""
    disk = MemoryDisk()
    with catalog_on(disk, cpo) as (catalog, plogs, manager):
        catalog.commit(created(0))
        settle(manager)
        plogs.fail("append", DiskFull("the disk"), always=True)
        catalog.commit(created(1), durable=False)
        for number in range(2, 20):
            try:
                catalog.commit(created(number))
            except DiskFull:
                break
        else:
            pytest.fail("there was no switch")
        plogs.heal()
        catalog.commit(created(100))
        known = set(catalog.streams)
        assert known == {f"plant/stream-{one}" for one in (*range(number), 100)}
        catalog.close()
    with catalog_on(disk, cpo) as (catalog, *_):
        assert set(catalog.streams) == known


def test_a_catalog_that_does_not_know_what_it_kept_stops_and_is_read_again(cpo: Cpo) -> None:
    """To go on would be to build on what may not be there; reading goes on, and opening the store again tells."""
    disk = MemoryDisk()
    with catalog_on(disk, cpo) as (catalog, plogs, _):
        catalog.commit(created(0))
        plogs.fail("result", DiskFailed("the disk", reason="it is broken", stopped=True))
        with pytest.raises(DiskFailed):
            catalog.commit(created(1))
        for _ in range(2):
            with pytest.raises(PenstockError, match="it is broken"):
                catalog.commit(created(2))
        assert catalog.is_failed
        assert catalog.stream("plant/stream-0").uid == 0
    with catalog_on(disk, cpo) as (catalog, *_):
        catalog.commit(created(2))
        assert {0, 2} <= {one.uid for one in catalog.streams.values()}


@pytest.mark.parametrize("place", ["text", 1.5, math.nan, -5, True, None, 1 << 63, 1 << 70, b"7", [7], "\ud800"])
def test_what_cannot_be_read_again_is_not_written(cpo: Cpo, place: int) -> None:
    """A store whose catalog holds one such record does not open, whichever part of the program has made it."""
    disk = MemoryDisk()
    with catalog_on(disk, cpo) as (catalog, _, _):
        catalog.commit(created(0))
        bad = ConsumerMoved("plant/stream-0", "consumer", {0: place})
        changes: list[Callable[[], object]] = [
            lambda: catalog.commit(bad),
            lambda: catalog.commit_reading(bad, durable=True),
            lambda: catalog.submit(bad),
            lambda: catalog.settle(bad),
        ]
        for change in changes:
            with pytest.raises(BadArgument, match="cannot be recorded"):
                change()
        assert not catalog.stream("plant/stream-0").consumers
        assert not catalog.is_failed
        catalog.commit(created(1))
    with catalog_on(disk, cpo) as (catalog, _, _):
        assert list(catalog.streams) == ["plant/stream-0", "plant/stream-1"]
