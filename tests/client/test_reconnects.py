"""How often a client connects to an address that takes connections and closes them at once."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.client import _connection
from penstock.client._address import ServerFinder
from penstock.embedded import open_store
from penstock.errors import StoreUnreachable
from penstock.retry import PAUSE_MAX_S, PAUSE_S, Retry
from penstock.server._service import FlightService
from penstock.wire.operations import streams

if TYPE_CHECKING:
    from collections.abc import Iterator


class Closing:
    """Accepts every connection, and closes it."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                self._listener.accept()[0].close()
            except OSError:
                return
            self.accepted += 1

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def closing() -> Iterator[Closing]:
    listener = Closing()
    yield listener
    listener.close()


def attempts_max(seconds: float) -> float:
    """Return how many attempts the pauses leave time for, if each is as short as it may be; gRPC adds one to each."""
    return 2 * (8 + seconds / (PAUSE_MAX_S / 2))


def test_a_client_that_finds_no_server_asks_less_and_less_often(
    closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of clients without a pause would keep the server from coming up again."""
    monkeypatch.setattr(ServerFinder, "patience_s", 3.0)
    begun = time.monotonic()
    with pytest.raises(StoreUnreachable):
        penstock.connect(f"penstock://127.0.0.1:{closing.port}")
    assert 0 < closing.accepted <= attempts_max(time.monotonic() - begun)


def test_a_client_that_lost_its_server_asks_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each attempt seems to succeed at first."""
    monkeypatch.setattr(_connection, "_PATIENCE_S", 3.0)
    with open_store("memory:") as store:
        service = FlightService(store, "grpc://127.0.0.1:0")
        with penstock.connect(f"penstock://127.0.0.1:{service.port}") as far:
            service.shutdown()
            closing = Closing(service.port)
            begun = time.monotonic()
            with pytest.raises(StoreUnreachable):
                far.connection.call(streams.ListStreams(None))  # type: ignore[attr-defined]
            assert 0 < closing.accepted <= attempts_max(time.monotonic() - begun)
        closing.close()


def test_pauses_grow_up_to_a_limit_and_begin_again_after_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a random part, so that clients that lost their server together do not come back together."""
    pauses: list[float] = []
    monkeypatch.setattr("penstock.retry._INTERRUPTIBLE_EVERY_S", 10.0)
    now = iter(range(10_000_000))
    clock = SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses) + next(now) * 1e-9)
    monkeypatch.setattr("penstock.retry.time", clock)

    def taken(count: int) -> list[float]:
        pauses.clear()
        for _ in range(count):
            retry.after(ConnectionError("lost"))
        return [round(pause, 6) for pause in pauses if pause > 1e-6]

    retry = Retry(attempts_max=1000)
    first = taken(12)
    for number, pause in enumerate(first):
        most = min(PAUSE_S * 2**number, PAUSE_MAX_S)
        assert most / 2 <= pause <= most + 1e-6
    assert len(set(first[-5:])) > 1
    retry.progress()
    assert taken(1)[0] <= PAUSE_S + 1e-6
