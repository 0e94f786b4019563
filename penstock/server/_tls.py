"""Certificates: those that are given, or our own, which are made in the store's folder.

Our own are two. ``server.crt`` is an authority's: it is made once, clients trust it by having a copy, and its key stays
in ``server.key``. With that the server signs ``server-host.crt`` for the names and addresses that it is reached at, and
signs it again when it is started with others: the copies that clients have stay good. To get a new authority, remove
``server.crt`` and start the server again.
"""

from __future__ import annotations

import ipaddress
import secrets
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
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

    def context(self) -> ssl.SSLContext:
        """Return a context for connections that speak HTTP/2."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_path, self.key_path)
        context.set_alpn_protocols(["h2"])
        context.options |= ssl.OP_NO_RENEGOTIATION
        return context


def own_certificate(folder: Path, hosts: Sequence[str], *, clock: Clock) -> Certificate:
    """Return a certificate for these names and addresses of the server, signed by the folder's own authority.

    Authority and certificate are made if they are not there; the certificate also if it is for other names.
    """
    cert_path, key_path = folder / "server-host.crt", folder / "server-host.key"
    with alone_in(folder):
        authority = _authority(folder, clock=clock)
        try:
            found = load_certificate(cert_path, key_path, clock=clock)
            if _is_for(found, hosts, authority):
                return found
        except CertificateUnusable:
            pass  # there is none, or a crash has left half of it
        key = ec.generate_private_key(ec.SECP256R1())
        cert = _signed_by(authority, key, hosts, now=_now(clock))
        replace_file(key_path, _private_pem(key))
        replace_file(cert_path, cert.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return load_certificate(cert_path, key_path, clock=clock)


def _authority(folder: Path, *, clock: Clock) -> Certificate:
    cert_path, key_path = folder / "server.crt", folder / "server.key"
    if not cert_path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        cert = _self_signed(key, now=_now(clock))
        replace_file(key_path, _private_pem(key))  # first: a certificate in the folder has its key there
        replace_file(cert_path, cert.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return load_certificate(cert_path, key_path, clock=clock)


def _is_for(found: Certificate, hosts: Sequence[str], authority: Certificate) -> bool:
    cert = x509.load_pem_x509_certificate(found.cert)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    try:
        cert.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.cert))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return set(names) == set(_general_names(hosts))


def _self_signed(key: ec.EllipticCurvePrivateKey, *, now: datetime) -> x509.Certificate:
    name = _name(f"Penstock {secrets.token_hex(8)}")  # of its own, or a client could take one authority for another
    usage = _usage(key_cert_sign=True, crl_sign=True)
    return (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _signed_by(
    authority: Certificate, key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], *, now: datetime
) -> x509.Certificate:
    above = x509.load_pem_x509_certificate(authority.cert)
    above_key = _read_key(authority.key_path, authority.key)
    assert isinstance(above_key, ec.EllipticCurvePrivateKey), "as it was made"
    above_id = above.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder(
            issuer_name=above.subject, subject_name=_name("Penstock server"), public_key=key.public_key()
        )
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - _CLOCKS_DIFFER, above.not_valid_before_utc))
        .not_valid_after(above.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(_general_names(hosts)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above_id), critical=False)
        .sign(above_key, hashes.SHA256())
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
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
        raise CertificateUnusable(str(cert_path), reason="it is not a certificate in PEM form") from None
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
        raise CertificateUnusable(str(path), reason="it is not a private key in PEM form") from None


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)
