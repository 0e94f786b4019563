"""The address of a server, and the identity that a client shows there."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client._address import ServerFinder
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("penstock://127.0.0.1:7000", "grpc://127.0.0.1:7000"),
        ("penstock://localhost", "grpc://localhost:7367"),
        ("penstock://[::1]:7000/", "grpc://[::1]:7000"),
        ("penstock://plant.example", "grpc+tls://plant.example:7367"),
        ("penstock://10.0.0.7:80", "grpc+tls://10.0.0.7:80"),
    ],
)
def test_only_this_machine_is_spoken_to_without_tls(address: str, location: str) -> None:
    """Events and passwords cross no network in plain text unless somebody asks for it."""
    assert ServerFinder(address)._location == location


@pytest.mark.parametrize(("tls", "scheme"), [(True, "grpc+tls"), (False, "grpc")])
def test_whoever_asks_for_tls_or_against_it_gets_that(tls: bool, scheme: str) -> None:
    """A proxy may speak TLS on this machine, and a private network may do without."""
    for host in ("localhost", "plant.example"):
        assert ServerFinder(f"penstock://{host}", tls=tls)._location == f"{scheme}://{host}:7367"


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost",
        "penstock://",
        "penstock://:7367",
        "penstock://localhost:nothing",
        "penstock://localhost:99999",
        "penstock://localhost/folder",
        "penstock://localhost?tls=no",
        "penstock://anna:secret@localhost",
        "penstock://[::1",
    ],
)
def test_an_invalid_address_is_refused(address: str) -> None:
    """What is left out of an address in silence, a password or a folder, would be missed only later."""
    with pytest.raises(BadArgument):
        ServerFinder(address)


def sent_by(finder: ServerFinder) -> dict[str, str] | None:
    """Return the headers that go with every call."""
    middleware: list[Any] = finder._options.get("middleware", [])
    return middleware[0].start_call(None).sending_headers() if middleware else None


def test_a_client_sends_its_token_or_its_password_or_nothing() -> None:
    """The server decides by this header alone."""
    basic = base64.b64encode("anna:süß".encode()).decode()
    address = "penstock://localhost"
    assert sent_by(ServerFinder(address)) is None
    assert sent_by(ServerFinder(address, token="abc")) == {"authorization": "Bearer abc"}
    assert sent_by(ServerFinder(address, user="anna", password="süß")) == {"authorization": f"Basic {basic}"}


@pytest.mark.parametrize(
    "given",
    [
        {"user": "anna"},
        {"password": "hidden-1"},
        {"token": "hidden-1", "user": "anna", "password": "hidden-1"},
        {"token": "hidden-1\n"},
        {"token": "hidden-1\u00e9"},
        {"token": b"hidden-1"},
        {"user": "anna", "password": "hidden-1\ud800"},
    ],
)
def test_credentials_that_cannot_be_meant_are_refused_and_not_shown(given: dict[str, Any]) -> None:
    """Messages are copied into logs and tickets."""
    with pytest.raises(BadArgument) as refused:
        ServerFinder("penstock://localhost", **given)
    assert "hidden-1" not in str(refused.value)


def test_a_certificate_that_cannot_be_used_is_refused_by_its_path(tmp_path: Path) -> None:
    """The error of gRPC says that the server has no address."""
    (tmp_path / "server.crt").write_text("not a certificate")
    for path in (tmp_path / "server.crt", tmp_path / "missing.crt", tmp_path):
        with pytest.raises(BadArgument, match=path.name):
            ServerFinder("penstock://localhost", tls_ca=path)
    with pytest.raises(BadArgument, match="tls"):
        ServerFinder("penstock://localhost", tls_ca=tmp_path / "server.crt", tls=False)
