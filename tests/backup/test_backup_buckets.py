"""Backups into real buckets, and of stores whose plogs are in one."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from penstock.backup import backup_store, check_backup, check_store, list_points, restore_store, verify_backup
from penstock.cpo import open_cpo
from penstock.embedded import PARTITION, open_store
from penstock.errors import PenstockError
from penstock.log import MetadataManager
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.stream import Engine
from penstock.testing import MemoryObjects
from tests.backup.harness import OTHER, SMALL, contents, fill

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.plog import Plogs


pytestmark = pytest.mark.long


@pytest.mark.parametrize("provider", ["s3_address", "azurite_address"])
def test_a_backup_in_a_bucket(tmp_path: Path, provider: str, request: pytest.FixtureRequest) -> None:
    """Each provider has its own conditional puts, listings and deletions."""
    address = request.getfixturevalue(provider)
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store)
        backup_store(store, address)
        with store.writer(OTHER) as writer:
            writer.write_event(b"later").result()
        second = backup_store(store, address, keep_points=1)
        before = contents(store)
    assert second.copied_bytes < 3000
    assert [point.name for point in list_points(address)] == [second.point]
    assert not verify_backup(address).faults
    assert check_backup(address).is_good
    restore_store(address, tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_bucket_that_refuses_is_named_without_secrets(tmp_path: Path, s3_address: str) -> None:
    """The message goes to a log that others read."""
    with open_store(tmp_path / "a") as store, pytest.MonkeyPatch.context() as patch:
        secret = secrets.token_hex()
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        with pytest.raises(PenstockError) as caught:
            backup_store(store, s3_address)
    assert s3_address.rpartition("/")[0] in str(caught.value)
    assert secret not in str(caught.value)


def opened(plogs: Plogs) -> Engine:
    with ExitStack() as resources:
        cpo = resources.enter_context(open_cpo("memory:"))
        resources.enter_context(plogs)
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, PARTITION, sizes=SMALL))
        return Engine(manager, resources=resources)


def test_a_store_with_plogs_in_a_bucket_is_restored_into_a_folder(tmp_path: Path) -> None:
    """Blocks are the same bytes wherever plogs are, also in objects that were compacted."""
    settings = ObjectSettings(group_wait_s=0, part_size_min=2000, compact_size_min=2000, checkpoint_objects=20)
    with opened(ObjectPlogs(MemoryObjects(), settings=settings)) as store:
        fill(store)
        backup_store(store, tmp_path / "b")
        with store.writer(OTHER) as writer:
            writer.write_event(b"later").result()
        assert backup_store(store, tmp_path / "b").copied_bytes < 3000
        assert check_store(store).is_good
        before = contents(store)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as restored:
        assert contents(restored) == before
