"""Stores for the tests of streams: in this process, and over the wire.

A test that gets a ``store`` is run with both. One that looks inside the store, or waits for what only a store in this
process does at once, is skipped for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded import open_store
from penstock.log import PlogSizes
from penstock.testing import ManualClock
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded", "remote"])
def store(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Any]:
    with open_store("memory:", clock=clock, sizes=PlogSizes(first=4096, largest=64 << 10)) as store:
        if request.param == "embedded":
            yield store
        else:
            with over_the_wire(store, clock) as outside:
                yield outside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
