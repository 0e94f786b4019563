"""The newest metadata plog is published by the newest owner alone, also where plogs are in a bucket."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cpo import open_cpo
from penstock.errors import LogFenced
from penstock.log import MetadataManager
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.testing import MemoryObjects
from tests.log.conftest import TINY

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cpo import Cpo
    from penstock.model import PlogId


class Suspended:
    """An oracle whose user is suspended just before it publishes a metadata plog, for as long as ``meanwhile`` takes.

    What the new owner does is run there, in between.
    """

    def __init__(self, cpo: Cpo) -> None:
        self._cpo = cpo
        self.meanwhile: Callable[[], object] = int

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - anything of the oracle
        return getattr(self._cpo, name)

    def set_metadata_plog(self, *arguments: Any, **named: Any) -> int:  # noqa: ANN401 - as the oracle takes them
        self.meanwhile()
        return self._cpo.set_metadata_plog(*arguments, **named)


class Killed(Exception):
    """The end of a process."""


class ShortLived(ObjectPlogs):
    """The plogs of an owner that is killed before it creates one."""

    def create(self, *, size: int = 0, plog_id: PlogId | None = None) -> PlogId:
        raise Killed(size, plog_id)


def append_to_many_logs(manager: MetadataManager) -> None:
    """Fill the metadata plog, so that it has to be replaced."""
    for number in range(1000):
        manager.log(f"log{number}").append(b"x")


def test_an_owner_that_wakes_up_publishes_no_metadata_plog() -> None:
    """Its successor has deleted that plog, to write it again: if it is killed then, the store would be lost."""
    bucket, settings = MemoryObjects(), ObjectSettings(group_wait_s=0)
    with open_cpo("memory:") as cpo:
        own = partial(cpo.next_epoch, "plogs/bucket")
        suspended: Any = Suspended(cpo)
        former = MetadataManager.open(ObjectPlogs(bucket, settings=settings, own=own), suspended, "p0", sizes=TINY)
        former.log("before").append(b"x")

        def take_over() -> None:
            with pytest.raises(Killed):
                MetadataManager.open(ShortLived(bucket, settings=settings, own=own), cpo, "p0", sizes=TINY)

        suspended.meanwhile = take_over
        with pytest.raises(LogFenced):
            append_to_many_logs(former)
        plogs = ObjectPlogs(bucket, settings=settings, own=own)
        with plogs, MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager:
            assert "before" in manager.partition.metadata.logs
