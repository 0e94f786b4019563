"""A flood of wrong passwords, at a server that checks them at their full price."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest
from pyarrow import flight

import penstock
from penstock.client._address import _Identification
from penstock.server._users import USERS_FILE, WAITING_MAX, Users
from tests.server.apart import server_apart, threads_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

STREAM: Final = "plant/readings"
FLOODERS: Final = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = Users.open(tmp_path / "data" / USERS_FILE)
    for name in ("anna", "bert"):
        users.add(name, "right")
        users.grant(name, "admin", "plant/*")
    return tmp_path / "data"


class Flood:
    """Guesses of names and passwords, from many threads, until the block ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over, self._begun = threading.Event(), threading.Event()
        self.answers: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._threads = ThreadPoolExecutor(FLOODERS)
        self._futures = [self._threads.submit(self._guess, number) for number in range(FLOODERS)]
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for future in self._futures:
            future.result()
        self._threads.shutdown()

    def _guess(self, number: int) -> None:
        for guess in self._guesses(number):
            with flight.connect(f"grpc://127.0.0.1:{self._port}", middleware=[_Identification(guess)]) as client:
                try:
                    list(client.do_action(flight.Action("streams", b"")))
                except flight.FlightError as error:
                    self.answers[type(error).__name__] += 1
                    if isinstance(error, flight.FlightUnavailableError):
                        self._begun.set()

    def _guesses(self, number: int) -> Iterator[str]:
        while not self._over.is_set():
            said = f"nobody-{number}:wrong"
            yield "Basic " + base64.b64encode(said.encode()).decode()


def test_a_flood_of_wrong_passwords_holds_up_nobody_who_is_known(folder: Path) -> None:
    """A user who is remembered, or has a token, goes on at once; a new one tries again by itself, and is admitted."""
    token = Users.open(folder / USERS_FILE).token("bert", 600)
    with server_apart(folder) as (port, pid), ThreadPoolExecutor(1) as another:
        address = f"penstock://127.0.0.1:{port}"
        with penstock.connect(address, user="anna", password="right") as anna:
            quiet = threads_of(pid)
            with Flood(port) as flood:
                anna.create_stream(STREAM)
                with anna.writer(STREAM) as writer:
                    for number in range(50):
                        writer.write_event(b"%d" % number).result()
                with penstock.connect(address, token=token) as bert:
                    assert sum(map(len, bert.read(STREAM))) == 50
                assert threads_of(pid) - quiet < FLOODERS + WAITING_MAX
                late = another.submit(penstock.connect, address, user="bert", password="right")
            with late.result() as bert:
                assert [info.name for info in bert.streams()] == [STREAM]
    assert set(flood.answers) == {"FlightUnauthenticatedError", "FlightUnavailableError"}
    assert flood.answers["FlightUnavailableError"] > flood.answers["FlightUnauthenticatedError"]
