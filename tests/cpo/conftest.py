"""An oracle in memory, a clock for it, and a place for one in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_000.0)


@pytest.fixture
def cpo(clock: ManualClock) -> Iterator[Cpo]:
    with open_cpo("memory:", clock=clock) as cpo:
        yield cpo


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpo.db"
