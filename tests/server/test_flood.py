"""A flood of wrong passwords, at a server that checks them at their full price."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest
from pyarrow import flight

import penstock
from penstock.client._address import _Identification
from penstock.server import Config
from penstock.server._login_queue import FAILURES_FREE, SHARE_OF_NETWORK
from penstock.server._users import USERS_FILE, Users
from tests.local.owners import wait_until
from tests.server.apart import server_apart, threads_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

STREAM: Final = "plant/readings"
FLOODERS: Final = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = Users.open(tmp_path / "data" / USERS_FILE)
    for name in ("anna", "bert"):
        users.add(name, "right")
        users.grant(name, "admin", "plant/*")
    return tmp_path / "data"


class Flood:
    """Guesses of passwords, from many threads at one address, until the block ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self.answers: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._threads = ThreadPoolExecutor(FLOODERS)
        self._futures = [self._threads.submit(self._guess, number) for number in range(FLOODERS)]
        wait_until(lambda: self.answers.total() > 2 * FAILURES_FREE)
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

    def _guesses(self, number: int) -> Iterator[str]:
        for turn in count():
            if self._over.is_set():
                return
            name = "bert" if number % 2 else f"nobody-{number}-{turn}"
            said = f"{name}:wrong {number} {turn}"
            yield "Basic " + base64.b64encode(said.encode()).decode()


def test_a_flood_of_wrong_passwords_does_not_hold_up_other_clients(folder: Path) -> None:
    """Users that are remembered, or have a token, go on at once; one that comes anew waits for those before it."""
    token = Users.open(folder / USERS_FILE).token("bert", 600)
    with server_apart(folder) as (port, pid):
        address = f"penstock://127.0.0.1:{port}"
        with penstock.connect(address, user="anna", password="right") as anna:
            quiet = threads_of(pid)
            with Flood(port) as flood:
                anna.create_stream(STREAM)
                with anna.writer(STREAM) as writer:
                    for number in range(20):
                        writer.write_event(b"%d" % number).result()
                with penstock.connect(address, token=token) as bert:
                    assert sum(map(len, bert.read(STREAM))) == 20
                assert threads_of(pid) - quiet < FLOODERS + SHARE_OF_NETWORK * Config().max_waiting_logins
                before = flood.answers.total()
                with penstock.connect(address, user="bert", password="right") as bert:
                    assert [info.name for info in bert.streams()] == [STREAM]
                assert flood.answers.total() - before <= 2 * FLOODERS, "no more than have come before it"
    assert set(flood.answers) == {"FlightUnauthenticatedError"}
