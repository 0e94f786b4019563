"""A server whose users own what they make, for the tests that ask whose something is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import penstock
from penstock.embedded import open_store
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.client import RemoteStore
    from penstock.model import StreamConfig

STREAM: Final = "plant/readings"


def new_folder(tmp_path: Path, config: StreamConfig | None = None, **permissions: str) -> Path:
    """Return a folder with a stream, and users with one permission each for it."""
    folder = tmp_path / "data"
    with open_store(folder) as store:
        store.create_stream(STREAM, config=config)
    users = Users.open(folder / USERS_FILE)
    for name, permission in permissions.items():
        users.add(name, "secret")
        users.grant(name, permission, STREAM)  # type: ignore[arg-type]
    return folder


def serving(folder: Path) -> Server:
    return Server(Config(store=str(folder), port=0, http_port=0))


def as_user(server: Server, user: str) -> RemoteStore:
    return penstock.connect(server.address, user=user, password="secret")  # type: ignore[return-value]


def events_in(folder: Path) -> list[bytes]:
    with penstock.connect(folder) as store:
        return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
