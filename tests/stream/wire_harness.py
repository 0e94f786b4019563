"""A store over the wire, for tests: what a store in this process serves, as a client sees it."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest
from pyarrow import flight

from penstock import deadlines
from penstock.client._store import RemoteStore
from penstock.client._task import Task
from penstock.server._service import FlightService
from tests.log.harness import SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Clock
    from penstock.stream import Engine

_LOOPBACK: Final = "127.0.0.1"
INSIDE: Final = frozenset(
    {"_logs", "_manager", "catalog", "cuts", "groups", "maintenance", "marks", "segments", "transactions", "writers"}
)
"""Attributes of the engine that no client has: a test that needs one is skipped for the remote store."""


@contextmanager
def served(store: Engine) -> Iterator[tuple[FlightService, Fixed]]:
    """Serve a store; give the service, and where it is found."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        location = f"grpc+unix://{folder}/socket"
        service = FlightService(store, location, block_listener=socket.create_server((_LOOPBACK, 0)))
        try:
            yield service, Fixed(location)
        finally:
            service.shutdown()


def come_to_rest(store: Any) -> None:  # noqa: ANN401 - a store, in this process or over the wire
    """Return when a client has done what it was told before."""
    if isinstance(store, RemoteStore):
        is_done = threading.Event()
        store.pump.add(Task(is_done.set))
        assert is_done.wait(SECONDS_MAX)


@contextmanager
def over_the_wire(store: Engine, clock: Clock | None = None) -> Iterator[Any]:
    """Serve a store, and give it as a client sees it; on a busy machine an answer takes as long as it takes."""
    slack = patch.object(deadlines, "ANSWER_SLACK_S", SECONDS_MAX)
    with slack, served(store) as (_, finder), Outside(finder, clock=clock) as outside:
        outside.inside = store
        yield outside


class Outside(RemoteStore):
    """A store over the wire that does not let a test look inside, unless that asks for it."""

    inside: Engine

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - nothing is returned
        if name not in INSIDE:
            raise AttributeError(f"{name!r} is missing from the remote store, and not listed as internal to the engine")
        pytest.skip(f"looks inside the engine, at {name}")


class Fixed:
    """A finder for a store that is served at one place, which does not move."""

    patience_s = 0.0
    block_host = _LOOPBACK

    def __init__(self, address: str) -> None:
        self.address = address

    def open(self) -> flight.FlightClient:
        """Return a client."""
        return flight.connect(self.address)

    def explained(self, reason: str) -> str:
        """Return it as it is."""
        return reason

    def close(self) -> None:
        """Nothing."""
