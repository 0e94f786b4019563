"""Logs that are created together: with few syncs, and with nothing left over where that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, DiskFull
from penstock.log import PlogSizes
from penstock.log._manager import LOGS_TOGETHER_MAX
from tests.log.harness import content, leftovers
from tests.stream.large_harness import settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from penstock.log import MetadataManager
    from penstock.testing import MemoryDisk

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]


def test_many_logs_cost_few_syncs(reopen: Reopen) -> None:
    """A flush that goes to a hundred new segments would wait for the disk three hundred times."""
    with reopen() as manager:
        before, names = manager.plogs.syncs.count, [f"log-{number}" for number in range(100)]
        manager.create_logs(dict.fromkeys(names))
        few = manager.plogs.syncs.count - before
        for number, name in enumerate(names):
            manager.log(name).append(b"%d" % number)
    assert few < 100, "one by one they take more than two each; the plogs of a test are tiny"
    with reopen() as manager:
        assert [content(manager.log(name)) for name in names] == [b"%d" % number for number in range(100)]


def test_more_logs_than_one_append_takes_are_created(reopen: Reopen) -> None:
    """A stream may have ten thousand segments."""
    names = [f"log-{number}" for number in range(LOGS_TOGETHER_MAX + 3)]
    with reopen() as manager:
        manager.create_logs(dict.fromkeys(names))
        assert manager.logs() == sorted(names)
    with reopen() as manager:
        assert manager.logs() == sorted(names)


def test_logs_that_are_there_stay_as_they_are(reopen: Reopen, disk: MemoryDisk) -> None:
    """Two writers may flush at the same moment."""
    with reopen() as manager:
        manager.log("there").append(b"before")
        manager.create_logs({"there": None, "first": PlogSizes(first=99, largest=99), "second": None})
        manager.create_logs({"there": None, "first": None})
        manager.log("there").append(b", after")
        assert manager.plogs.info(manager.partition.metadata.logs["first"].active).size == 99
    with reopen() as manager:
        assert content(manager.log("there")) == b"before, after"
        assert manager.logs() == ["first", "second", "there"]
        settle(manager)
        assert not leftovers(manager, disk), "the ids announced for the next logs are not used any more"


def test_a_name_that_is_none_creates_no_log(manager: MetadataManager) -> None:
    """Nothing may be half done because of one of them."""
    with pytest.raises(BadArgument):
        manager.create_logs({"first": None, "not a name": None})
    assert not manager.logs()


def test_a_full_disk_leaves_no_plog_behind(reopen: Reopen, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The space that is missing would be taken by plogs of logs that do not exist."""
    with reopen() as manager:
        manager.log("there")
        plogs = manager.plogs
        made: list[object] = []

        def create(plog_id: object, size: int) -> object:
            if len(made) == 2:
                raise DiskFull("/data")
            made.append(plog_id)
            return submit_create(plog_id, size)

        submit_create = plogs.submit_create  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(plogs, "submit_create", create)
            with pytest.raises(DiskFull):
                manager.create_logs({"a": None, "b": None, "c": None})
        assert manager.logs() == ["there"]
        assert not leftovers(manager, disk)
        manager.create_logs({"a": None, "b": None, "c": None})
        assert manager.logs() == ["a", "b", "c", "there"]
