"""A disk that is nearly full: as long as there is any room, it is used."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import count, repeat
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CpoUnavailable, DiskFull, PenstockError
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk
from tests.log.harness import content, contents
from tests.stream.large_harness import settle

if TYPE_CHECKING:
    from penstock.cpo import Cpo
    from penstock.model import PlogId
    from penstock.plog._journal import Ticket

SIZE: Final = 3000
SIZES: Final = PlogSizes(first=1024, largest=64 << 10)


class FullPlogs(FilePlogs):
    """Plogs on a disk that has so many bytes left in one piece."""

    left = 1 << 30

    def submit_create(self, plog_id: PlogId, size: int) -> Ticket:
        if size > self.left:
            raise DiskFull("the disk")
        return super().submit_create(plog_id, size)


def test_a_log_goes_on_in_small_plogs_when_there_is_no_room_for_large_ones() -> None:
    """Two thirds of the disk may be free when the next plog, which is four times as large, does not fit."""
    with open_cpo("memory:") as cpo, FullPlogs(MemoryDisk()) as plogs:
        with MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as manager:
            log = manager.log("log")
            for number in range(35):
                log.append(bytes([number]) * SIZE)
            settle(manager)
            plogs.left = 9000
            for number in range(35, 80):
                log.append(bytes([number]) * SIZE)
            assert max(length for _, length, _ in log.plogs()) > plogs.left
            plogs.left = 0
            with pytest.raises(DiskFull):
                deque(map(log.append, repeat(bytes(SIZE))))
            plogs.left = 1 << 30
            log.append(b"more")
        with MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as manager:
            found = content(manager.log("log"))
    assert found.startswith(b"".join(bytes([number]) * SIZE for number in range(80)))
    assert found.endswith(b"more")


class FailingOracle:
    """A real oracle that refuses what is published, or takes it and does not say so."""

    def __init__(self, cpo: Cpo) -> None:
        self._cpo, self.metadata_plog, self.where = cpo, cpo.metadata_plog, cpo.where
        self.error: PenstockError | None = None
        self.is_taken = False

    def set_metadata_plog(self, partition: str, plog_id: PlogId, *, expected: int) -> int:
        if self.error is not None and not self.is_taken:
            raise self.error
        version = self._cpo.set_metadata_plog(partition, plog_id, expected=expected)
        if self.error is not None:
            raise self.error
        return version


def create_until_refused(manager: MetadataManager, error: type[PenstockError]) -> int:
    """Create logs with one append each; return the number of the first that could not be."""
    for number in count():
        try:
            manager.log(f"log-{number}").append(b"%d" % number)
        except error:
            return number
    raise AssertionError


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("error", [DiskFull("cpo.db"), CpoUnavailable("cpo.db", reason="busy")])
def test_an_oracle_that_could_not_take_a_new_metadata_plog_is_asked_again(error: PenstockError, is_taken: bool) -> None:
    """A partition that takes such an error for a new owner is lost until the process ends, also with space again."""
    disk = MemoryDisk()
    with open_cpo("memory:") as cpo:
        oracle = FailingOracle(cpo)
        with (
            FilePlogs(disk) as plogs,
            MetadataManager.open(plogs, oracle, "main", sizes=PlogSizes(first=256, largest=256)) as manager,  # type: ignore[arg-type]
        ):
            oracle.error, oracle.is_taken = error, is_taken
            first = create_until_refused(manager, type(error))
            with suppress(type(error)):  # it may be known by now that it was taken
                manager.log("refused")
            oracle.error = None
            for number in range(first, first + 50):
                manager.log(f"log-{number}").append(b"%d" % number)
        with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            assert {b"%d" % number for number in range(first + 50)} <= set(contents(manager).values())
