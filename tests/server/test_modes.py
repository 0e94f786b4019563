"""The permissions of what a store puts into its folder: other users of the machine see none of it."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock.server import Config, Server
from penstock.server._files import alone_in
from penstock.server._users import USERS_FILE, Users

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM: Final = "plant/readings"
PUBLIC: Final = {"server.crt", "server-host.crt"}  # certificates, of which clients get copies


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def generous(request: pytest.FixtureRequest) -> Iterator[None]:
    """A process whose new files others may read, or even change."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the permissions of all there is, by path."""
    found = {".": stat.S_IMODE(folder.stat().st_mode)}
    for path in folder.rglob("*"):
        found[str(path.relative_to(folder))] = stat.S_IMODE(path.stat().st_mode)
    return found


def use(folder: Path) -> None:
    """Make a store, with users and TLS, and write so much that there are files of every kind."""
    users = Users.open(folder / USERS_FILE)
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    users.token("anna", 60)
    with Server(Config(store=str(folder), port=0, http_port=0, tls=True)) as server:
        ca = folder / "server.crt"
        with penstock.connect(server.address, user="anna", password="secret", tls_ca=ca) as store:
            write(store)
        with penstock.connect(folder) as other:
            write(other)
            check(folder)
    check(folder)


def write(store: penstock.Store) -> None:
    store.create_stream(STREAM, segments=2, exist_ok=True)
    with store.writer(STREAM) as writer, writer.begin_write_event() as output:
        writer.write_batch([bytes(1000)] * 100).result()
        output.write(bytes(2 << 20))


def check(folder: Path) -> None:
    """Assert that nothing in the folder can be read by others; gRPC's socket lies in a folder of its own."""
    assert {
        path: oct(mode)
        for path, mode in modes(folder).items()
        if mode & 0o077 and path not in PUBLIC and not path.startswith("flight/")
    } == {}


@pytest.mark.usefixtures("generous")
def test_a_new_store_is_closed_to_other_users(tmp_path: Path) -> None:
    """They would read every event, whatever permissions the server checks, and could hold its lock."""
    use(tmp_path / "new" / "data")


@pytest.mark.usefixtures("generous")
def test_a_store_in_a_folder_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    """The folder itself is left as it is: its user has made it, and it may hold other things."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    users = Users.open(folder / USERS_FILE)
    users.add("anna", "secret")
    with penstock.connect(folder) as store:
        write(store)
    assert {path: oct(mode) for path, mode in modes(folder).items() if mode & 0o077} == {".": "0o755"}


@pytest.mark.usefixtures("generous")
def test_a_store_that_was_opened_to_others_stays_so(tmp_path: Path) -> None:
    """Stores of before, and those that are opened on purpose: new files are as readable as their folder."""
    folder = tmp_path / "data"
    with penstock.connect(folder) as store:
        write(store)
    before = modes(folder)
    for path, mode in ((folder, 0o755), (folder / "plogs", 0o750)):
        path.chmod(mode)
    for path in folder.glob("plogs/*.plog"):
        path.chmod(0o640)
    with penstock.connect(folder) as store:
        write(store)
        events = sum(map(len, store.read(STREAM)))
    assert events == 202
    new = {path: mode for path, mode in modes(folder).items() if path not in before and path.endswith(".plog")}
    assert new
    assert set(new.values()) == {0o640}
    assert modes(folder)["plogs/LOCK"] == 0o600


def test_a_process_that_locks_the_folder_does_not_keep_users_from_being_changed(tmp_path: Path) -> None:
    """A folder can be locked by everybody who may list it; our lock is a file that is ours."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    users = Users.open(folder / USERS_FILE)
    users.add("anna", "secret")
    os.close(fd)
    assert [user.name for user in users] == ["anna"]
    with alone_in(folder):
        assert {mode for path, mode in modes(folder).items() if path != "."} == {0o600}
