"""The address of a server, ``penstock://host:port``, or of several, and the credentials that clients send."""

from __future__ import annotations

import base64
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyarrow import flight

from penstock.client._reasons import check_certificates, reason_in_words
from penstock.errors import BadArgument
from penstock.model import check_kind, shown

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["ADDRESSES_MAX", "ServerFinder", "split_addresses"]

ADDRESSES_MAX: Final = 32  # of the servers of one store
_SCHEME: Final = "penstock://"
_PORT: Final = 7367
_NOT_COMPRESSED: Final = 1  # a set of algorithms; gRPC would unpack a message before anything sees how large it is
_FRAME_SIZE: Final = 1 << 20  # a block comes in one or two pieces, not in sixty-four
_KEEPALIVE_MS: Final = 330_000  # gRPC closes connections that ping more often than every five minutes
_ANSWER_MS: Final = 10_000  # also for what the other machine's system has to confirm: that is noticed with every call


class ServerFinder:
    """Finds a server, which stays where it is."""

    patience_s: Final = 0.0

    def __init__(
        self,
        address: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        tls: bool | None = None,
        tls_ca: str | PathLike[str] | None = None,
    ) -> None:
        self._host, self._port = _host_and_port(address)
        self.address: Final = address
        if tls is not None:
            check_kind("tls", tls, bool)
        self._tls_ca = None if tls_ca is None else str(tls_ca)
        if tls_ca is not None and tls is False:
            raise BadArgument("tls_ca is the certificate to trust, and tls=False does without: leave one of them out")
        self._is_tls = tls_ca is not None or (not _is_loopback(self._host) if tls is None else tls)
        self._location = f"{'grpc+tls' if self._is_tls else 'grpc'}://{self._host}:{self._port}"
        self._options: dict[str, Any] = {
            "generic_options": [
                ("grpc.compression_enabled_algorithms_bitset", _NOT_COMPRESSED),
                ("grpc.http2.max_frame_size", _FRAME_SIZE),
                ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", _ANSWER_MS),
            ]
        }
        if tls_ca is not None:
            self._options["tls_root_certs"] = _read(tls_ca)
            check_certificates(str(tls_ca), self._options["tls_root_certs"])
        said = _authorization(user, password, token)
        if said is not None:
            self._options["middleware"] = [_Identification(said)]

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address, as sockets take it."""
        return self._host.strip("[]"), self._port

    @property
    def block_host(self) -> str | None:
        """Where the port for blocks of the server is; None with TLS, which that port does not have."""
        return None if self._is_tls else self._host.strip("[]")

    @property
    def place(self) -> str:
        """The address, as messages about several servers name it."""
        return f"{self._host}:{self._port}"

    def open(self) -> flight.FlightClient:
        """Return a client of the server."""
        return flight.connect(self._location, **self._options)

    def explained(self, reason: str) -> str:
        """Return why the server cannot be reached, and what to do."""
        return reason_in_words(reason, host=self._host, port=self._port, tls=self._is_tls, tls_ca=self._tls_ca)

    def close(self) -> None:
        """Do nothing: the server belongs to others."""


class _Identification(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Sends the credentials with every call."""

    def __init__(self, authorization: str) -> None:
        super().__init__()
        self._authorization = authorization

    def start_call(self, info: flight.CallInfo) -> flight.ClientMiddleware:
        """Return the middleware that sends the credentials."""
        del info
        return _Header(self._authorization)


class _Header(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, authorization: str) -> None:
        super().__init__()
        self._authorization = authorization

    def sending_headers(self) -> dict[str, str]:
        """Return the ``Authorization`` header."""
        return {"authorization": self._authorization}


def _authorization(user: str | None, password: str | None, token: str | None) -> str | None:
    for name, given in (("user", user), ("password", password), ("token", token)):
        _check_text(name, given)
    if token is not None:
        if user is not None or password is not None:
            raise BadArgument("pass a token, or user and password, not both")
        if not (token.isascii() and token.isprintable()):
            raise BadArgument("invalid token: use one line of ASCII letters (does it end with a newline?)")
        return f"Bearer {token}"
    if (user is None) != (password is None):
        raise BadArgument("user and password go together: pass both, or a token")
    if user is None:
        return None
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _check_text(name: str, given: object) -> None:
    """Refuse what cannot be sent, without showing it: it may be a secret."""
    if given is None:
        return
    if not isinstance(given, str):
        raise BadArgument(f"invalid {name} of type {type(given).__name__}: use a str")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadArgument(f"invalid {name}: it contains a lone surrogate") from None


def split_addresses(address: str) -> list[str]:
    """Return the address of each server in ``penstock://a:7367,b:7367``, each once."""
    _check_no_user(address)
    parts = address.removeprefix(_SCHEME).removesuffix("/").split(",")
    if len(parts) > ADDRESSES_MAX:
        raise BadArgument(f"invalid server address with {len(parts)} servers: use at most {ADDRESSES_MAX}")
    if len(parts) > 1 and not all(parts):
        raise BadArgument(f"invalid server address {address!r}: use penstock://host:port,host:port")
    if len(parts) == 1:
        return [address]
    places = dict[tuple[str, int], str]()
    for part in parts:
        places.setdefault(_host_and_port(_SCHEME + part), _SCHEME + part)
    return list(places.values())


def _check_no_user(address: str) -> None:
    """Refuse a user and a password in an address, before another message shows them."""
    if "@" in address:
        raise BadArgument("invalid server address: user and password are not part of it; pass them by themselves")


def _host_and_port(address: str) -> tuple[str, int]:
    _check_no_user(address)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError as error:
        raise BadArgument(f"invalid server address {address!r}: {error}") from error
    if parts.scheme != "penstock" or not host or parts.path not in ("", "/") or parts.query:
        raise BadArgument(f"invalid server address {address!r}: use penstock://host:port")
    return f"[{host}]" if ":" in host else host, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (TypeError, ValueError) as error:
        raise BadArgument(f"invalid tls_ca {shown(path)}: use the path of a certificate") from error
    except OSError as error:
        raise BadArgument(f"cannot read the certificate {path}: {error.strerror}") from error
