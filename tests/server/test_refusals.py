"""A client that is not let in, or that a server is not reached by: each mistake has a message of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import BadArgument, NotAuthenticated, StoreUnreachable
from penstock.ports import SystemClock
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANNA: dict[str, Any] = {"user": "anna", "password": "secret"}


@dataclass
class Place:
    """A server with TLS, reached at all addresses of this machine, and one without; both know anna."""

    folder: Path
    with_tls: str
    other_host: str
    https: str
    plain: str
    http: str
    token: str
    expired: str

    @property
    def authority(self) -> Path:
        return self.folder / "tls" / "server.crt"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("refusals")
    Users.open(folder / "tls" / USERS_FILE).add("anna", "secret")
    users = Users.open(folder / "plain" / USERS_FILE)
    users.add("anna", "secret")
    token = users.token("anna", 60)
    expired = Users.open(folder / "plain" / USERS_FILE, clock=_Yesterday()).token("anna", 60)
    ports: dict[str, Any] = {"port": 0, "http_port": 0}
    with (
        Server(Config(store=str(folder / "tls"), host="0.0.0.0", **ports)) as tls,
        Server(Config(store=str(folder / "plain"), **ports)) as plain,
    ):
        yield Place(
            folder=folder,
            with_tls=f"penstock://127.0.0.1:{tls.port}",
            other_host=f"penstock://127.0.0.2:{tls.port}",
            https=f"penstock://127.0.0.1:{tls.http_port}",
            plain=plain.address,
            http=f"penstock://127.0.0.1:{plain.http_port}",
            token=token,
            expired=expired,
        )


class _Yesterday(SystemClock):
    def now(self) -> float:
        return super().now() - 86_400


def told(address: str, kind: type[Exception], **options: Any) -> str:  # noqa: ANN401 - as connect() takes them
    with pytest.raises(kind) as refusal:
        penstock.connect(address, **options)
    return str(refusal.value)


def test_what_is_right_is_let_in(place: Place) -> None:
    """Or the rest would prove nothing."""
    penstock.connect(place.with_tls, tls_ca=place.authority, **ANNA).close()
    penstock.connect(place.plain, **ANNA).close()
    penstock.connect(place.plain, token=place.token).close()


def test_a_server_with_tls_is_spoken_to_without(place: Place) -> None:
    """It just hangs up; so a client asks it whether it is that."""
    assert "the server uses TLS: make tls_ca a copy of its server.crt" in told(place.with_tls, StoreUnreachable, **ANNA)


def test_a_server_without_tls_is_spoken_to_with(place: Place) -> None:
    """With a certificate to trust, or without one."""
    for options in ({"tls": True}, {"tls_ca": place.authority}):
        assert "the server does not use TLS: leave out tls_ca and tls, or pass tls=False" in told(
            place.plain, StoreUnreachable, **ANNA, **options
        )


def test_a_certificate_that_is_not_trusted(place: Place, tmp_path: Path) -> None:
    """Because none was given to trust, or that of another server."""
    assert "is not signed by an authority that this machine trusts: make tls_ca a copy of its server.crt" in told(
        place.with_tls, StoreUnreachable, tls=True, **ANNA
    )
    with Server(Config(store=str(tmp_path), port=0, http_port=0, tls=True, anonymous=True)):
        pass
    other = tmp_path / "server.crt"
    assert f"its certificate is not signed by {other}: make tls_ca a copy" in told(
        place.with_tls, StoreUnreachable, tls_ca=other, **ANNA
    )


def test_a_certificate_of_other_names(place: Place) -> None:
    """127.0.0.2 is this machine, too, but the certificate does not name it."""
    message = told(place.other_host, StoreUnreachable, tls_ca=place.authority, **ANNA)
    assert "its certificate is not for 127.0.0.2: connect to a name or address that it is for" in message


def test_a_certificate_to_trust_that_is_none(place: Place) -> None:
    """The client refuses before it connects."""
    key = place.folder / "tls" / "server.key"
    assert told(place.with_tls, BadArgument, tls_ca=key) == f"invalid tls_ca {key}: use a certificate in PEM form"
    assert "leave one of them out" in told(place.with_tls, BadArgument, tls_ca=place.authority, tls=False)


def test_the_wrong_port(place: Place) -> None:
    """That of health and metrics, with and without TLS, or one where nothing listens."""
    assert "this is an HTTP port" in told(place.http, StoreUnreachable, **ANNA)
    assert "this is an HTTP port" in told(place.https, StoreUnreachable, tls_ca=place.authority, **ANNA)
    assert "no server listens there (Connection refused)" in told("penstock://127.0.0.1:1", StoreUnreachable, **ANNA)
    assert "unknown host name" in told("penstock://no.such.host.invalid", StoreUnreachable, **ANNA)


def test_a_user_that_is_missing_wrong_or_past(place: Place) -> None:
    """Each is mended in another way; but whether the name or the password is wrong is not told."""
    assert "authentication required: pass user and password, or a token" in told(place.plain, NotAuthenticated)
    wrong = told(place.plain, NotAuthenticated, user="anna", password="x")
    assert wrong == told(place.plain, NotAuthenticated, user="nobody", password="secret")
    assert wrong == "user or password is wrong: correct them, or ask an administrator"
    assert "the token is not known here" in told(place.plain, NotAuthenticated, token="nonsense")
    assert "the token is not known here" in told(place.plain, NotAuthenticated, token=place.expired[:-1])
    expired = told(place.plain, NotAuthenticated, token=place.expired)
    assert expired.startswith("the token expired on 20")
    assert expired.endswith("UTC: make one with penstock user token")


def test_a_password_in_an_address_is_not_shown() -> None:
    """It is what users of databases try first, and the message may end up in a log."""
    with pytest.raises(BadArgument, match="user and password are not part of it") as refusal:
        penstock.connect("penstock://anna:secret@127.0.0.1:7367")
    assert "secret" not in str(refusal.value)
