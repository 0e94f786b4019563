"""Stores for the tests of streams: in this process, and over the wire.

A test that gets a ``store`` is run with both. One that looks inside the store, or waits for what only a store in this
process does at once, is skipped for the other.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client._store import RemoteStore
from penstock.embedded import open_store
from penstock.log import PlogSizes
from penstock.server._service import FlightService
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import StreamStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded", "remote"])
def store(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Any]:
    with open_store("memory:", clock=clock, sizes=PlogSizes(first=4096, largest=64 << 10)) as store:
        if request.param == "embedded":
            yield store
            return
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            location = f"grpc+unix://{folder}/socket"
            service = FlightService(store, location)
            with Outside(Fixed(location), clock=clock) as outside:
                outside.inside = store
                yield outside
            service.shutdown()


class Outside(RemoteStore):
    """A store over the wire that does not let a test look inside, unless that asks for it."""

    inside: StreamStore

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - nothing is returned
        pytest.skip(f"looks inside the store, at {name}")


class Fixed:
    """Who knows where the store is served, because it does not move."""

    is_local = False

    def __init__(self, address: str) -> None:
        self.address = address

    def find(self) -> str:
        """Return the location."""
        return self.address

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
