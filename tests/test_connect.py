"""``penstock.connect``: what it refuses before it opens anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import BadArgument, FolderUnusable
from penstock.plog import open_plogs

if TYPE_CHECKING:
    from pathlib import Path

FOR_SERVERS = {
    "user": "anna",
    "password": "secret",
    "token": "secret",
    "tls": False,
    "tls_ca": "server.crt",
    "plogs": "s3://bucket",
    "plogs_options": {"secret_access_key": "secret"},
}


@pytest.mark.parametrize("name", FOR_SERVERS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_credentials_and_tls_are_refused_where_no_server_checks_them(
    tmp_path: Path, name: str, *, is_folder: bool
) -> None:
    """A program that names a user must not believe that one was checked; the value, perhaps a secret, is not shown."""
    address = str(tmp_path / "data") if is_folder else "memory:"
    given: dict[str, Any] = {name: FOR_SERVERS[name]}
    with pytest.raises(BadArgument, match=f"^{name} has no meaning for a (folder|store in memory)") as refused:
        penstock.connect(address, **given)
    assert "secret" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "name", "value"),
    [
        ("penstock://127.0.0.1:1", "exclusive", True),
        ("penstock://127.0.0.1:1", "maintenance_interval_s", 0.1),
        ("memory:", "exclusive", True),
        ("memory:", "own", False),
    ],
)
def test_options_of_a_folder_are_refused_for_other_addresses(address: str, name: str, value: object) -> None:
    """A server stays open to others whatever one client asks for, and runs its own maintenance."""
    given: dict[str, Any] = {name: value}
    with pytest.raises(BadArgument, match=f"^{name} has no meaning for"):
        penstock.connect(address, **given)


@pytest.mark.parametrize("own", [True, False])
def test_host_and_port_of_a_server_do_not_become_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    """A client that forgets penstock:// would write to a new folder, and no reader would ever see the events."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match="use 'penstock://localhost:9092' for a server"):
        penstock.connect("localhost:9092", own=own)
    assert not list(tmp_path.iterdir())
    (tmp_path / "localhost:9092").mkdir()
    penstock.connect("localhost:9092").close()


def test_a_file_url_does_not_become_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plogs are opened with one, so users may try it here."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match="use the path of a folder"):
        penstock.connect("file:./data")
    assert list(tmp_path.iterdir()) == []


def test_a_store_shows_its_address(tmp_path: Path) -> None:
    """In a notebook or a log, whichever process owns the folder."""
    shown = f"<penstock.Store {str(tmp_path)!r}>"
    with (
        penstock.connect(tmp_path) as owner,
        penstock.connect(tmp_path) as other,
        penstock.connect("memory:") as memory,
    ):
        assert (repr(owner), repr(other), repr(memory)) == (shown, shown, "<penstock.Store 'memory:'>")


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    """The message of the system would not say what to pass instead."""
    file = tmp_path / "a.py"
    file.touch()
    with pytest.raises(FolderUnusable, match="it is a file"):
        penstock.connect(file)
    with pytest.raises(FolderUnusable, match="it is a file"):
        open_plogs(f"file:{file}")
    with pytest.raises(FolderUnusable, match=f"{file} is a file"):
        penstock.connect(file / "data")


def test_the_address_of_sqlite_for_memory_is_not_taken_for_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that means memory would write into the folder in which it runs."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match="use 'memory:' for a store in memory"):
        penstock.connect(":memory:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["", "http://localhost"])
def test_wrong_address_is_named_before_wrong_options(address: str) -> None:
    """Whether an option has a meaning is only known once the address is."""
    with pytest.raises(BadArgument, match=r"address of a store|cannot connect to"):
        penstock.connect(address, own=False, user="anna")


@pytest.mark.parametrize("address", ["s3://bucket/prefix", "az://container/prefix"])
def test_a_bucket_is_left_to_its_servers(address: str) -> None:
    """A process without the oracle would fence them."""
    with pytest.raises(BadArgument, match="a bucket is opened by its servers; name one, penstock://host:port"):
        penstock.connect(address)
