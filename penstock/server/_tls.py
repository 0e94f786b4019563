"""Certificates: those that are given, or one of our own, which is made once and kept in the store's folder.

Clients trust our own certificate by having a copy of ``server.crt``; ``server.key`` stays where it is. To get a new
one, remove ``server.crt`` and start the server again.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.errors import CertificateUnusable
from penstock.server._files import alone_in, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from penstock.ports import Clock

__all__ = ["Certificate", "load_certificate", "own_certificate"]

_LIFETIME: Final = timedelta(days=3650)
_CLOCKS_DIFFER: Final = timedelta(hours=1)  # a client's may be behind ours
_FILE_SIZE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate, with those above it if there are any, and its key: both as PEM, and where they are."""

    cert_path: Path
    key_path: Path
    cert: bytes
    key: bytes
    expires: datetime


def own_certificate(folder: Path, hosts: Sequence[str], *, clock: Clock) -> Certificate:
    """Return the folder's own certificate; if it has none, one is made for these names and addresses of the server."""
    cert_path, key_path = folder / "server.crt", folder / "server.key"
    with alone_in(folder):
        if not cert_path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            cert = _sign(key, hosts, now=_now(clock))
            replace_file(key_path, _private_pem(key))  # first: a certificate in the folder has its key there
            replace_file(cert_path, cert.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return load_certificate(cert_path, key_path, clock=clock)


def _sign(key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], *, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Penstock")])
    is_end = x509.BasicConstraints(ca=False, path_length=None)
    return (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(_general_names(hosts)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(is_end, critical=True)
        .sign(key, hashes.SHA256())
    )


def _general_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            with suppress(UnicodeError):  # a name that is none, of a machine that is called so nevertheless
                names.append(x509.DNSName(host.encode("idna").decode()))
    return names


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, no_password = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, no_password)


def load_certificate(cert_path: Path, key_path: Path, *, clock: Clock) -> Certificate:
    """Read a certificate and its key; ``CertificateUnusable`` says what is wrong with which of them."""
    cert_pem, key_pem = _read(cert_path), _read(key_path)
    try:
        cert = x509.load_pem_x509_certificates(cert_pem)[0]
    except ValueError:
        raise CertificateUnusable(str(cert_path), reason="it is no certificate in PEM form") from None
    if _read_key(key_path, key_pem).public_key() != cert.public_key():
        raise CertificateUnusable(str(key_path), reason=f"it is not the key of {cert_path}")
    now = _now(clock)
    if now >= cert.not_valid_after_utc:
        reason = (
            f"it has expired on {cert.not_valid_after_utc:%Y-%m-%d}: get a new one, or remove our own to have one made"
        )
        raise CertificateUnusable(str(cert_path), reason=reason)
    if now < cert.not_valid_before_utc:
        reason = f"it is not valid before {cert.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: look at the clock"
        raise CertificateUnusable(str(cert_path), reason=reason)
    expires = cert.not_valid_after_utc
    return Certificate(cert_path=cert_path, key_path=key_path, cert=cert_pem, key=key_pem, expires=expires)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_SIZE_MAX)
    except FileNotFoundError:
        raise CertificateUnusable(str(path), reason="it is missing") from None
    except OSError as error:
        raise CertificateUnusable(str(path), reason=error.strerror or str(error)) from error


def _read_key(path: Path, pem: bytes) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise CertificateUnusable(str(path), reason="it is locked with a password: unlock it first") from None
    except ValueError:
        raise CertificateUnusable(str(path), reason="it is no private key in PEM form") from None


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)
