"""Breezy, beside ours; and a store for repositories, as it is and over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.client import RemoteStore, ServerFinder
from penstock.embedded import open_store
from penstock.server import FlightService
from tests.repo.breezy_oracle import Oracle, missing, oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine


@pytest.fixture(scope="session")
def breezy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """One process for all questions of a session: it takes half a second to start."""
    if reason := missing():
        pytest.skip(reason)
    with oracle(tmp_path_factory.mktemp("breezy")) as process:
        yield process


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store in memory."""
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def remote(store: Engine) -> Iterator[RemoteStore]:
    """The same store over the wire."""
    service = FlightService(store, "grpc://127.0.0.1:0")
    try:
        with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as remote:
            yield remote
    finally:
        service.shutdown()
