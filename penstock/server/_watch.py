"""Looks at the connections of a port again and again, and closes those that have to go.

They belong to gRPC, or are still at the handshake of TLS, so nothing is kept of them: each time the files of this
process are looked through, and a socket is known again by its cookie, which no other ever has. One is closed through a
second descriptor of it, so that never another is met that has the number meanwhile.
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

from penstock.server._lines import Account, Flow, Line, to_close

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server._limits import Limits

__all__ = ["Ledger", "Rounds", "Watch", "close_all"]

_LOOK_S: Final = 0.05  # what a stranger can send meanwhile, it has sent
_ROUND_S: Final = 0.1
_END_S: Final = 5.0
_PAUSES: Final = 30  # for each time that it takes to look, so many are waited
_SO_COOKIE: Final = 57
_TCP_INFO_SIZE: Final = 136
_BYTES_ACKED: Final = 120  # where it stands in TCP_INFO, with the bytes that were received behind it
_logger: Final = logging.getLogger("penstock.server")


class Ledger:
    """The accounts of all connections, by the peer that gRPC names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, Account] = {}
        self._addresses: dict[str, str] = {}  # what gRPC calls them

    def account(self, peer: str) -> Account:
        """Return the account of a peer."""
        address = self._addresses.get(peer)
        found = None if address is None else self._accounts.get(address)
        if found is None:
            with self._lock:
                address = self._addresses[peer] = _address_of_peer(peer)
                found = self._accounts.setdefault(address, Account())
        return found

    def known(self) -> set[str]:
        """Return whose accounts there are."""
        with self._lock:
            return set(self._accounts)

    def take(self, address: str) -> tuple[int, int]:
        """Return what was given to the service since the last time."""
        found = self._accounts.get(address)
        return (0, 0) if found is None else found.take()

    def forget(self, gone: set[str]) -> None:
        """Close accounts."""
        with self._lock:
            for address in gone:
                self._accounts.pop(address, None)
            if gone:
                self._addresses = {peer: one for peer, one in self._addresses.items() if one not in gone}


class Rounds:
    """A thread that does something again and again which may wait for the disk: so nobody else may wait for it."""

    def __init__(self, task: Callable[[], None], name: str) -> None:
        self._task = task
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Do it no more; a disk that hangs is not waited for."""
        self._over.set()
        self._thread.join(_END_S)

    def _work(self) -> None:
        while not self._over.wait(_ROUND_S):
            try:
                self._task()
            except Exception:  # the next time may be better
                _logger.exception("a round was broken off")


class Watch:
    """A thread that looks after the connections of a port."""

    def __init__(self, port: int, limits: Limits, ledger: Ledger) -> None:
        self._port, self._limits, self._ledger = port, limits, ledger
        self._lines: dict[bytes, Line] = {}  # by cookie
        self._others: set[bytes] = set()  # sockets that are none of ours
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        pause = _LOOK_S
        while not self._over.wait(pause):
            begun = time.monotonic()
            try:
                self._look(begun)
            except Exception:  # the next time may be better, and without it nobody looks at all
                _logger.exception("the connections could not be looked at")
            pause = max(_LOOK_S, _PAUSES * (time.monotonic() - begun))

    def _look(self, now: float) -> None:
        known = self._ledger.known()  # first: who comes meanwhile is not forgotten
        files: dict[Line, tuple[int, bytes]] = {}
        others: set[bytes] = set()
        for number, cookie, one in _sockets():
            line = None if cookie in self._others else self._lines.get(cookie) or self._line(number, now)
            if line is None:
                others.add(cookie)
                continue
            with suppress(OSError):
                line.note(_flow(one), *self._ledger.take(line.peer), now)
            files[line] = number, cookie
        self._lines, self._others = {cookie: line for line, (_, cookie) in files.items()}, others
        self._ledger.forget(known - {line.peer for line in files})
        for line, why in dict(to_close(files, self._limits, now)).items():
            _logger.info("closing a connection", extra={"peer": line.peer, "reason": why})
            _close(*files[line])

    def _line(self, number: int, now: float) -> Line | None:
        """Return a connection of the port; None if the socket is none."""
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                here, there = one.getsockname(), one.getpeername()
        except OSError:  # it listens, or is gone
            return None
        is_ours = one.family in (socket.AF_INET, socket.AF_INET6) and here[1] == self._port
        return Line(peer=_address(*there[:2]), since=now) if is_ours else None


def close_all(at: int | str) -> None:
    """Break off all connections of a port, or of a socket that is a file."""
    for number, _, _ in _sockets():
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            one.getpeername()  # who listens has none
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


def _flow(one: socket.socket) -> Flow:
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    acked, received = struct.unpack_from("=QQ", info, _BYTES_ACKED)
    return Flow(received=received, acked=acked)


def _close(number: int, cookie: bytes) -> None:
    """Break a connection off, unless it is gone already."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
        if one.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8) == cookie:
            one.shutdown(socket.SHUT_RDWR)


def _address_of_peer(peer: str) -> str:
    """Return the address that gRPC writes as ``ipv4:127.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _address(host.strip("[]"), port)


def _address(host: str, port: object) -> str:
    """Return an address in one form: one of IPv4 may be written as one of IPv6."""
    with suppress(ValueError):
        found = ipaddress.ip_address(host)
        host = str(getattr(found, "ipv4_mapped", None) or found)
    return f"{host}:{port}"
