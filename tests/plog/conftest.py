"""Plogs in memory and in a folder: every test of the contract runs with both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.plog import FilePlogs, open_plogs
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.plog import Plogs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plogs"


@pytest.fixture(params=["memory", "file"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plogs(kind: str, folder: Path) -> Iterator[Plogs]:
    """Plogs as a user opens them."""
    with open_plogs("memory:" if kind == "memory" else f"file:{folder}") as plogs:
        yield plogs


@pytest.fixture
def open_store(kind: str, folder: Path) -> Iterator[Callable[..., FilePlogs]]:
    """Return a function that opens the same plogs, closing them first; their journal is full after a few appends."""
    memory, stores = MemoryDisk(), list[FilePlogs]()

    def open_again(*, journal_size: int = 4096, direct_size_min: int = 512, open_files_max: int = 256) -> FilePlogs:
        for store in stores:
            store.close()
        disk = memory if kind == "memory" else OsDisk(folder)
        store = FilePlogs(
            disk, journal_size=journal_size, direct_size_min=direct_size_min, open_files_max=open_files_max
        )
        stores.append(store)
        return store

    yield open_again
    stores[-1].close()
