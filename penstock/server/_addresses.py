"""Addresses: the names that clients may call a server by, how a port is opened, and how a client's is written."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from penstock.errors import AddressUnusable

__all__ = ["is_address", "is_loopback", "listen", "names_of", "split_peer", "usable_port", "written_address"]

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_IPV4: Final = Path("/proc/net/fib_trie")
_IPV6: Final = Path("/proc/net/if_inet6")
_LOCAL_IPV4: Final = re.compile(r"\|-- ([\d.]+)\n\s+/32 host LOCAL")
_BACKLOG: Final = 1024
_ATTEMPTS_MAX: Final = 20  # at a port that is free at every address of a name


def names_of(host: str) -> list[str]:
    """Return every name and address under which a server that listens at ``host`` is reached, each once."""
    try:
        found = _addresses() if ipaddress.ip_address(host).is_unspecified else [host]
    except ValueError:
        found = [host, *_resolved(host)]
    return list(dict.fromkeys([*found, socket.gethostname(), *_LOOPBACK]))


def _addresses() -> list[str]:
    """Return the addresses of this machine; where Linux does not list them, those of its name."""
    found = _LOCAL_IPV4.findall(_text(_IPV4))
    for line in _text(_IPV6).splitlines():
        address = ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))
        if not address.is_link_local:  # those mean nothing without the name of a network card
            found.append(str(address))
    return found or _resolved(socket.gethostname())


def _resolved(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:  # listening there raises the error
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def listen(host: str, port: int, *, setting: str | None = None) -> socket.socket:
    """Return a socket that listens there, at ``::`` also for IPv4; connections wait in it until they are accepted.

    An error advises to change the setting, or else the port.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        is_for_both = address[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_for_both)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the rest repeats the address
        raise AddressUnusable(f"{host}:{port}", reason=reason, setting=setting) from error


def usable_port(host: str, port: int, *, setting: str) -> int:
    """Return the port, or a free one for 0, after a look whether it is free at every address of the host.

    gRPC itself would share a port that is in use. Of a name with several addresses, as ``localhost``, it takes those
    that are free, and does not mention the others: a client that tries another one first reaches another program.
    """
    addresses = _LOOPBACK[1:] if host == "localhost" else _resolved(host)  # gRPC takes both for localhost
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        with listen(host, port, setting=setting) as first:
            found: int = first.getsockname()[1]
            in_use = _first_in_use(set(addresses) - {first.getsockname()[0]}, found)
        if in_use is None:
            return found
        if port or attempt == _ATTEMPTS_MAX:
            raise AddressUnusable(written_address(in_use, found), reason=os.strerror(errno.EADDRINUSE), setting=setting)
    raise AssertionError("the last attempt returns or raises")


def _first_in_use(addresses: set[str], port: int) -> str | None:
    """Return an address where the port is in use; one that this machine lacks does not count."""
    for address in addresses:
        try:
            socket.create_server((address, port), family=_family(address)).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return address
    return None


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_address(host: str) -> bool:
    """Return whether a host is an address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_peer(peer: str) -> tuple[str, str]:
    """Return the host and the port of a peer, as gRPC or the HTTP port write it.

    That is ``ipv4:127.0.0.1:5000``, ``ipv6:%5B::1%5D:5000``, or, of a connection through the front,
    ``unix-abstract:NAME/127.0.0.1:5000``.
    """
    host, _, port = unquote(peer).partition(":")[2].rpartition("/")[2].rpartition(":")
    return host.strip("[]"), port


def written_address(host: str, port: object) -> str:
    """Return an address in one form: IPv4 may be written as IPv6."""
    with suppress(ValueError):
        found = ipaddress.ip_address(host)
        host = str(getattr(found, "ipv4_mapped", None) or found)
    return f"{host}:{port}"
