"""Stores for the tests of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.embedded import open_store
from penstock.log import PlogSizes
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import StreamStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[StreamStore]:
    with open_store("memory:", clock=clock, sizes=PlogSizes(first=4096, largest=64 << 10)) as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
