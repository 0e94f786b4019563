"""What the tests of the console share: a server with users, whose passwords are quickly checked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import argon2
import pytest

import penstock
from penstock.server import USERS_FILE, Config, Server, Users
from tests.console.client import PASSWORD, Client
from tests.console.pages import launched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from penstock import Store
    from penstock.wire.operations import Permission

STREAM: Final = "plant/readings"
HIDDEN: Final = "secret/plans"
GRANTS: Final[dict[str, list[tuple[Permission, str]]]] = {
    "anna": [("admin", "*")],
    "rita": [("read", "plant/*")],
    "cora": [("consume", STREAM)],
    "walt": [("write", STREAM)],
    "adam": [("admin", "plant/*")],
    "nina": [],
}


class Served(NamedTuple):
    """A server, its users, and the store as its administrator sees it."""

    server: Server
    users: Users
    store: Store

    def client(self, user: str | None = None) -> Client:
        """Return a client that has signed in, if a user is given."""
        client = Client(self.server.http_port)
        if user is not None:
            assert client.sign_in(user).status == 200
        return client


@pytest.fixture(autouse=True, scope="module")
def quick_passwords() -> Iterator[None]:
    """Let a password cost little: that it costs much otherwise is tested where it matters."""
    with pytest.MonkeyPatch.context() as patch:
        cheap = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
        patch.setattr(argon2, "PasswordHasher", cheap)
        yield


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory, quick_passwords: None) -> Callable[..., _Serving]:
    """Return what begins a server in a new folder, or in the folder that is given."""
    del quick_passwords

    def serving(folder: Path | None = None, **settings: object) -> _Serving:
        return _Serving(folder or tmp_path_factory.mktemp("data"), settings)

    return serving


class _Serving:
    """A server with the users of the tests, for as long as the block lasts."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self.folder = folder
        users = Users.open(folder / USERS_FILE)
        for user, grants in GRANTS.items():
            if user not in {known.name for known in users}:
                users.add(user, PASSWORD)
                for permission, pattern in grants:
                    users.grant(user, permission, pattern)
        self._users = users
        self._server = Server(Config(**{"store": str(folder), "port": 0, "http_port": 0, **settings}))  # type: ignore[arg-type]

    def __enter__(self) -> Served:
        self._server.__enter__()
        self._store = penstock.connect(self._server.address, user="anna", password=PASSWORD)
        return Served(self._server, self._users, self._store)

    def __exit__(self, *error: object) -> None:
        self._store.close()
        self._server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def served(serve: Callable[..., _Serving]) -> Iterator[Served]:
    """A server with two streams, one of which only the administrator may read; tests of a module share it."""
    with serve() as served:
        for name in (STREAM, HIDDEN):
            served.store.create_stream(name, segments=2)
        yield served


@pytest.fixture(scope="module")
def lively(served: Served) -> Served:
    """A stream that was split and merged, with writers that note time, readers, a consumer and a transaction."""
    store = served.store
    with store.writer(STREAM, writer_id="plant-1") as writer:
        for _ in range(3):
            writer.write_batch([b'{"degrees": 80}'] * 20, [f"sensor-{number}" for number in range(20)]).result()
            writer.note_time(1_000)
    store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    store.scale_stream(STREAM, [1, 3], [(0.25, 1.0)])
    group = store.create_reader_group("dashboard", [STREAM])
    group.reader("r1").read_next_event(timeout=1)
    store.register_consumer(STREAM, "archiver")
    store.transactional_writer(STREAM, "etl").begin(lease=600)
    return served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module."""
    with launched() as browser:
        yield browser
