"""Plogs in memory, in a folder and in an object store: every test of the contract runs with all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.plog import FilePlogs, open_plogs
from penstock.plog.objects import ObjectSettings
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk
from tests.plog_backend import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.plog import Plogs
    from tests.plog_backend import Buckets


def crowded(*, part_size_min: int = 512, journal_size_max: int = 4096) -> ObjectSettings:
    """Settings with which everything that happens once in a while happens after a few appends."""
    return ObjectSettings(
        group_wait_s=0,
        part_size_min=part_size_min,
        journal_size_max=journal_size_max,
        journal_objects_max=20,
        checkpoint_objects=7,
        checkpoint_size=2048,
        compact_size_min=300,
        compaction_share=100.0,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plogs"


KINDS = {"disk": ["memory", "file", "objects"], "servers": ["servers"]}


@pytest.fixture(params=KINDS.get(BACKEND, ["objects"]))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plogs(kind: str, folder: Path, buckets: Buckets) -> Iterator[Plogs]:
    """Plogs as a user opens them."""
    if kind == "objects":
        with buckets.open(buckets.new()(), ObjectSettings(group_wait_s=0)) as plogs:
            yield plogs
    elif kind == "servers":
        with buckets.on_servers("plogs") as plogs:
            yield plogs
    else:
        with open_plogs("memory:" if kind == "memory" else f"file:{folder}") as plogs:
            yield plogs


@pytest.fixture
def open_store(kind: str, folder: Path, buckets: Buckets) -> Iterator[Callable[..., Plogs]]:
    """Return a function that opens the same plogs, closing them first; their journal is full after a few appends."""
    memory, bucket = MemoryDisk(), buckets.new()
    stores: list[Plogs] = []

    def open_again(*, journal_size: int = 4096, direct_size_min: int = 512, open_files_max: int = 256) -> Plogs:
        for opened in stores:
            opened.close()
        store: Plogs
        if kind == "objects":
            settings = crowded(part_size_min=direct_size_min, journal_size_max=journal_size)
            store = buckets.open(bucket(), settings)
        elif kind == "servers":
            store = buckets.on_servers("plogs")
        else:
            disk = memory if kind == "memory" else OsDisk(folder)
            store = FilePlogs(
                disk, journal_size=journal_size, direct_size_min=direct_size_min, open_files_max=open_files_max
            )
        stores.append(store)
        return store

    yield open_again
    stores[-1].close()
