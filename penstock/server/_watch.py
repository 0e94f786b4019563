"""Observes the connections of a port periodically, and closes those that have to be closed.

The sockets belong to gRPC, or are still in the TLS handshake, so no socket object is kept: each time the descriptors of
this process are listed, and a socket is recognised by its cookie, which no other socket ever has. It is closed through
a second descriptor, so that a socket that got the same number meanwhile is never closed instead.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from penstock.server._connections import ByteCounts, ObservedConnection, Usage, to_close

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server._limits import Limits

__all__ = ["ConnectionWatch", "Periodic", "UsageTable", "close_all"]

_LOOK_S: Final = 0.05  # what an unauthenticated client can send meanwhile is not limited
_ROUND_S: Final = 0.1
_END_S: Final = 5.0
_PAUSES: Final = 30  # an observation may take this part of the time
_SO_COOKIE: Final = 57
_TCP_INFO_SIZE: Final = 136
_BYTES_ACKED: Final = 120  # its place in TCP_INFO; the received bytes are behind it
_logger: Final = logging.getLogger("penstock.server")


class UsageTable:
    """The usage of all connections, by the peer that gRPC names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usages: dict[str, Usage] = {}
        self._addresses: dict[str, str] = {}  # by the peer as gRPC writes it

    def of(self, peer: str) -> Usage:
        """Return the usage of a peer's connection."""
        address = self._addresses.get(peer)
        found = None if address is None else self._usages.get(address)
        if found is None:
            with self._lock:
                address = self._addresses[peer] = _address_of_peer(peer)
                found = self._usages.setdefault(address, Usage())
        return found

    def known(self) -> set[str]:
        """Return the addresses in the table."""
        with self._lock:
            return set(self._usages)

    def take(self, address: str) -> tuple[int, int]:
        """Return the messages and bytes that the service was given since the last time."""
        found = self._usages.get(address)
        return (0, 0) if found is None else found.take()

    def forget(self, gone: set[str]) -> None:
        """Remove the usage of connections that are closed."""
        with self._lock:
            for address in gone:
                self._usages.pop(address, None)
            if gone:
                self._addresses = {peer: one for peer, one in self._addresses.items() if one not in gone}


class Periodic:
    """A thread that runs a task periodically. The task may wait for the disk, so no other thread waits for it."""

    def __init__(self, task: Callable[[], None], name: str, *, every_s: float = _ROUND_S) -> None:
        self._task, self._every_s = task, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, without waiting long for a disk that hangs."""
        self._over.set()
        self._thread.join(_END_S)

    def _work(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._task()
            except Exception:  # the next time may be better
                _logger.exception("a periodic task failed")


class ConnectionWatch:
    """A thread that observes the connections of a port."""

    def __init__(self, port: int, limits: Limits, usages: UsageTable) -> None:
        self._port, self._limits, self._usages = port, limits, usages
        self._connections: dict[bytes, ObservedConnection] = {}  # by cookie
        self._others: set[bytes] = set()  # cookies of sockets that do not belong to the port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the watch."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        pause = _LOOK_S
        while not self._over.wait(pause):
            begun = time.monotonic()
            try:
                self._look(begun)
            except Exception:  # the next time may be better, and without it no limit holds
                _logger.exception("the connections could not be observed")
            pause = max(_LOOK_S, _PAUSES * (time.monotonic() - begun))

    def _look(self, now: float) -> None:
        known = self._usages.known()  # first: a connection that is opened meanwhile is not forgotten
        files: dict[ObservedConnection, tuple[int, bytes]] = {}
        others: set[bytes] = set()
        for number, cookie, one in _sockets():
            connection = (
                None if cookie in self._others else self._connections.get(cookie) or self._connection(number, now)
            )
            if connection is None:
                others.add(cookie)
                continue
            with suppress(OSError):
                connection.note(_counts(one), *self._usages.take(connection.peer), now)
            files[connection] = number, cookie
        self._connections, self._others = {cookie: connection for connection, (_, cookie) in files.items()}, others
        self._usages.forget(known - {connection.peer for connection in files})
        for connection, why in dict(to_close(files, self._limits, now)).items():
            _logger.info("closing a connection", extra={"peer": connection.peer, "reason": why})
            _close(*files[connection])

    def _connection(self, number: int, now: float) -> ObservedConnection | None:
        """Return the connection of a socket; None if it does not belong to the port."""
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                here, there = one.getsockname(), one.getpeername()
        except OSError:  # it listens, or is gone
            return None
        is_ours = one.family in (socket.AF_INET, socket.AF_INET6) and here[1] == self._port
        return ObservedConnection(peer=_address(*there[:2]), since=now) if is_ours else None


def close_all(at: int | str) -> None:
    """Shut down all connections of a port, or of a socket that is a file."""
    for number, _, _ in _sockets():
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            one.getpeername()  # a listening socket has none
            here = one.getsockname()
            if at == (here if one.family == socket.AF_UNIX else here[1]):
                one.shutdown(socket.SHUT_RDWR)


def _sockets() -> Iterator[tuple[int, bytes, socket.socket]]:
    """Return the sockets of this process: number, cookie, and a socket that is good until the next."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or gone
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(name))
            try:
                yield int(name), one.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8), one
            finally:
                one.detach()  # it is not ours to close


def _counts(one: socket.socket) -> ByteCounts:
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    acked, received = struct.unpack_from("=QQ", info, _BYTES_ACKED)
    return ByteCounts(received=received, acked=acked)


def _close(number: int, cookie: bytes) -> None:
    """Shut a connection down, unless it is gone already."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
        if one.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8) == cookie:
            one.shutdown(socket.SHUT_RDWR)


def _address_of_peer(peer: str) -> str:
    """Return the address that gRPC writes as ``ipv4:127.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _address(host.strip("[]"), port)


def _address(host: str, port: object) -> str:
    """Return an address in one form: IPv4 may be written as IPv6."""
    with suppress(ValueError):
        found = ipaddress.ip_address(host)
        host = str(getattr(found, "ipv4_mapped", None) or found)
    return f"{host}:{port}"
