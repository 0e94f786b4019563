"""Stores for the tests of patterns: in this process, and on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded import open_store
from penstock.ports import SystemClock
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Clock


@pytest.fixture
def clock() -> Clock:
    """The clock of the store, and of its clients; a module may have another."""
    return SystemClock()


@pytest.fixture(params=["embedded", "server"])
def empty_store(clock: Clock, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A store without streams, used as patterns use it: each test runs with both kinds."""
    with open_store("memory:", clock=clock) as store:
        if request.param == "embedded":
            yield store
        else:
            with over_the_wire(store, clock) as client:
                yield client
