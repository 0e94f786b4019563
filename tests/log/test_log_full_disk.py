"""A disk that is nearly full: as long as there is any room, it is used."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import DiskFull
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk
from tests.log.harness import content
from tests.stream.large_harness import settle

if TYPE_CHECKING:
    from penstock.model import PlogId

SIZE: Final = 3000
SIZES: Final = PlogSizes(first=1024, largest=64 << 10)


class FullPlogs(FilePlogs):
    """Plogs on a disk that has so many bytes left in one piece."""

    left = 1 << 30

    def create(self, *, size: int = 1, plog_id: PlogId | None = None) -> PlogId:
        if size > self.left:
            raise DiskFull("the disk")
        return super().create(size=size, plog_id=plog_id)


def test_a_log_goes_on_in_small_plogs_when_there_is_no_room_for_large_ones() -> None:
    """Two thirds of the disk may be free when the next plog, which is four times as large, does not fit."""
    with open_cpo("memory:") as cpo, FullPlogs(MemoryDisk()) as plogs:
        with MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as manager:
            log = manager.log("log")
            for number in range(35):
                log.append(bytes([number]) * SIZE)
            settle(manager)
            plogs.left = 8192
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
