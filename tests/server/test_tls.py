"""Certificates: our own, and those that are given."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.errors import CertificateUnusable
from penstock.ports import SystemClock
from penstock.server._tls import load_certificate, own_certificate
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.server._tls import Certificate

HOSTS = ["localhost", "127.0.0.1", "::1", "bücher.example"]
NO_NAME = "x" * 64
YEAR_S = 365 * 86_400


@pytest.fixture
def own(tmp_path: Path) -> Certificate:
    return own_certificate(tmp_path, [NO_NAME, *HOSTS], clock=SystemClock())


def authority_of(own: Certificate) -> Path:
    """Return what clients have a copy of."""
    return own.cert_path.with_name("server.crt")


def shake_hands(own: Certificate, host: str, trusted: bytes | None = None) -> None:
    """Connect to a server that has this certificate, under a name of it, as a client that trusts nothing else."""
    ours, theirs = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(own.cert_path, own.key_path)

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cadata=(trusted or authority_of(own).read_bytes()).decode())
        client.wrap_socket(ours, server_hostname=host).close()
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("host", HOSTS)
def test_client_that_has_a_copy_trusts_our_own_certificate(own: Certificate, host: str) -> None:
    """Under every name and address it was made for, with all checks on."""
    shake_hands(own, host)


@pytest.mark.parametrize("host", ["example.com", "127.0.0.2"])
def test_our_own_certificate_is_for_no_other_name(own: Certificate, host: str) -> None:
    """Or it would vouch for others."""
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(own, host)


def test_our_own_certificate_is_made_once_for_the_same_names(tmp_path: Path, own: Certificate) -> None:
    """In whatever order they are found."""
    assert own_certificate(tmp_path, [*reversed(HOSTS), NO_NAME], clock=SystemClock()) == own


def test_other_names_get_a_certificate_that_copies_of_the_old_trust(tmp_path: Path, own: Certificate) -> None:
    """A machine gets another address, and no client has to be given another file."""
    copy = authority_of(own).read_bytes()
    again = own_certificate(tmp_path, ["another.example", "192.0.2.7"], clock=SystemClock())
    assert authority_of(own).read_bytes() == copy
    shake_hands(again, "another.example", copy)
    shake_hands(again, "192.0.2.7", copy)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(again, "localhost", copy)


def test_another_authority_signs_anew(tmp_path: Path, own: Certificate) -> None:
    """A user who removes server.crt wants all that depends on it to be gone."""
    authority_of(own).unlink()
    again = own_certificate(tmp_path, [NO_NAME, *HOSTS], clock=SystemClock())
    assert again.cert != own.cert
    shake_hands(again, "localhost")


def test_other_users_cannot_read_the_key(own: Certificate) -> None:
    """A process that has it can pretend to be the server."""
    assert own.key_path.stat().st_mode & 0o777 == 0o600
    assert own.cert_path.stat().st_mode & 0o777 == 0o644


def test_crash_while_our_own_is_made_does_no_harm(tmp_path: Path, own: Certificate) -> None:
    """The key comes first, so one that has no certificate yet is made anew with it."""
    own.cert_path.unlink()
    authority_of(own).unlink()
    again = own_certificate(tmp_path, HOSTS, clock=SystemClock())
    assert again.cert != own.cert
    shake_hands(again, "localhost")


def other_key(own: Certificate) -> None:
    other = own_certificate(own.cert_path.parent / "other", HOSTS, clock=SystemClock())
    own.key_path.write_bytes(other.key)


def locked_key(own: Certificate) -> None:
    key = serialization.load_pem_private_key(own.key, password=None)
    lock = serialization.BestAvailableEncryption(b"secret")
    own.key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock),
    )


def folder_for_key(own: Certificate) -> None:
    own.key_path.unlink()
    own.key_path.mkdir()


@pytest.mark.parametrize(
    ("damage", "name", "reason"),
    [
        (lambda own: own.key_path.unlink(), "server-host.key", "it is missing"),
        (lambda own: own.cert_path.unlink(), "server-host.crt", "it is missing"),
        (lambda own: own.cert_path.write_bytes(own.key), "server-host.crt", "it is not a certificate"),
        (lambda own: own.cert_path.write_bytes(own.cert[:200]), "server-host.crt", "it is not a certificate"),
        (lambda own: own.cert_path.write_bytes(b""), "server-host.crt", "it is not a certificate"),
        (lambda own: own.key_path.write_bytes(own.cert), "server-host.key", "it is not a private key"),
        (lambda own: own.key_path.write_bytes(b"\xff" * 100), "server-host.key", "it is not a private key"),
        (folder_for_key, "server-host.key", "Is a directory"),
        (other_key, "server-host.key", "it is not the key of .*server-host.crt"),
        (locked_key, "server-host.key", "it is locked with a password"),
    ],
)
def test_error_says_what_is_wrong_with_which_file(
    own: Certificate, damage: Callable[[Certificate], None], name: str, reason: str
) -> None:
    """The messages of TLS libraries do not."""
    damage(own)
    with pytest.raises(CertificateUnusable, match=f"{name}: {reason}"):
        load_certificate(own.cert_path, own.key_path, clock=SystemClock())


@pytest.mark.parametrize(
    ("passed_s", "reason"), [(11 * YEAR_S, "expired on 2033-"), (-YEAR_S, "not valid before 2023-11")]
)
def test_certificate_of_another_time_is_refused(tmp_path: Path, passed_s: float, reason: str) -> None:
    """Clients would refuse it, and not say why."""
    clock = ManualClock(1_700_000_000)
    own = own_certificate(tmp_path, HOSTS, clock=clock)
    clock.advance(passed_s)
    with pytest.raises(CertificateUnusable, match=reason):
        load_certificate(own.cert_path, own.key_path, clock=clock)


def test_given_chain_is_kept_whole(tmp_path: Path, own: Certificate) -> None:
    """Clients need the certificates between the server's and the one they trust."""
    other = own_certificate(tmp_path / "other", HOSTS, clock=SystemClock())
    own.cert_path.write_bytes(own.cert + other.cert)
    assert load_certificate(own.cert_path, own.key_path, clock=SystemClock()).cert == own.cert + other.cert
