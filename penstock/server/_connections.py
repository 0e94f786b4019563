"""The connections of a port: what each has cost, which of them have to be closed, and how that is done.

gRPC buffers what a client sends before it calls the service, and pyarrow offers no way to limit the buffer. But the
sockets of gRPC are file descriptors of this process, and the kernel counts the bytes that each socket has received. The
bytes received, less the bytes handed to the service, are what gRPC holds in memory for a connection. The same is true
during the TLS handshake.

A thread therefore lists the descriptors of this process periodically. It recognises a socket by its cookie, which the
kernel never gives to another socket. It closes a socket through a second descriptor: the number of the first may belong
to another socket by then. Other modules use :class:`ConnectionWatch` only: they start it when the port is known, report
the messages that were accepted, and end it.

A client is unauthenticated until one of its calls has been accepted. Unauthenticated clients are closed after a short
time, and share one byte budget.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.ports import copied_socket
from penstock.server._addresses import split_peer, written_address

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager

    from penstock.server._limits import Limits

__all__ = ["TOO_LARGE", "TOO_MUCH", "TOO_MUCH_IN_ALL", "ConnectionWatch", "close_all"]

_OBSERVE_INTERVAL_S: Final = 0.05  # what an unauthenticated client can send meanwhile is not limited
_PAUSES: Final = 30  # an observation may take this part of the time
_SO_COOKIE: Final = 57
_TCP_INFO_SIZE: Final = 136
_BYTES_ACKED: Final = 120  # its place in TCP_INFO; the received bytes are behind it
_logger: Final = logging.getLogger("penstock.server")
TOO_LARGE: Final = "a message that is too large"
TOO_MUCH: Final = "the client sent more than it may have under way"
TOO_MUCH_IN_ALL: Final = "unauthenticated clients have sent too much"
_CALL_BYTES: Final = 1 << 10  # of headers and framing in a call: seldom as many
_FRAMES: Final = 32  # of so many bytes in either direction one is for frames: in truth one of some hundreds


# What a connection has cost, and which have to be closed


class Usage:
    """The messages and bytes that the service was given of a connection since the last :meth:`take`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._bytes = self._logins = 0
        self.user: str | None = None  # of the first call that was accepted

    @contextmanager
    def logging_in(self) -> Iterator[None]:
        """Note that a login of the connection is being checked, or waits for that."""
        with self._lock:
            self._logins += 1
        try:
            yield
        finally:
            with self._lock:
                self._logins -= 1

    @property
    def is_logging_in(self) -> bool:
        """Whether the client waits for the server to check who it is."""
        return self._logins > 0

    def add(self, size: int) -> None:
        """Count a message that was accepted."""
        with self._lock:
            self._calls += 1
            self._bytes += size

    def take(self) -> tuple[int, int]:
        """Return the number of messages and of their bytes, and begin to count again."""
        with self._lock:
            found, self._calls, self._bytes = (self._calls, self._bytes), 0, 0
        return found


class ByteCounts(NamedTuple):
    """The bytes that a socket has received, and those it sent that the other side has acknowledged."""

    received: int
    acked: int


_NOTHING: Final = ByteCounts(0, 0)


@dataclass(slots=True, eq=False)
class ObservedConnection:
    """One connection, as it was observed last."""

    peer: str
    since: float
    last: float | None = None  # when a call was accepted, or an answer was read; None while unauthenticated
    kept: int = 0  # bytes that were received, and not given to the service
    counts: ByteCounts = _NOTHING

    def note(self, counts: ByteCounts, calls: int, size: int, now: float) -> None:
        """Take in what happened since the last time; ``kept`` is too low by no more than frames and headers."""
        came, read = counts.received - self.counts.received, counts.acked - self.counts.acked
        given = size + size // _FRAMES + calls * _CALL_BYTES + read // _FRAMES
        self.kept, self.counts = max(0, self.kept + came - given), counts
        if calls or (read and self.last is not None):
            self.last = now


def to_close(
    connections: Collection[ObservedConnection], limits: Limits, now: float
) -> Iterator[tuple[ObservedConnection, str]]:
    """Return the connections that have to be closed, and why."""
    unauthenticated = [connection for connection in connections if connection.last is None]
    for connection in connections:
        if connection.last is not None:
            if connection.kept > limits.max_inflight_bytes + limits.max_message_bytes:
                yield connection, TOO_MUCH
            elif now - connection.last > limits.idle_timeout_s:
                yield connection, "it was idle for too long"
        elif connection.kept > limits.max_message_bytes:
            yield connection, TOO_LARGE
        elif now - connection.since > limits.header_timeout_s:
            yield connection, "it sent no accepted call in time"
    yield from _too_many(connections, len(connections) - limits.max_connections)
    yield from _too_much(unauthenticated, limits.max_inflight_bytes)


def _too_many(connections: Collection[ObservedConnection], surplus: float) -> Iterator[tuple[ObservedConnection, str]]:
    """Return the oldest unauthenticated connections; and where others are too many, the newest of those."""
    if surplus > 0:
        for connection in sorted(connections, key=_leaves_sooner)[: int(surplus)]:
            yield connection, "there are too many connections"


def _leaves_sooner(connection: ObservedConnection) -> tuple[bool, float]:
    is_known = connection.last is not None
    return is_known, -connection.since if is_known else connection.since


def _too_much(unauthenticated: list[ObservedConnection], limit: float) -> Iterator[tuple[ObservedConnection, str]]:
    """Return those with most bytes, until the rest of them have few enough together."""
    total = sum(connection.kept for connection in unauthenticated)
    for connection in sorted(unauthenticated, key=lambda connection: -connection.kept):
        if total <= limit:
            return
        total -= connection.kept
        yield connection, TOO_MUCH_IN_ALL


# Observing and closing


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
                address = self._addresses[peer] = written_address(*split_peer(peer))
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

    def is_logging_in(self, address: str) -> bool:
        """Whether a connection waits for the server to check who it is."""
        found = self._usages.get(address)
        return found is not None and found.is_logging_in

    def user_of(self, address: str) -> str | None:
        """Return the user of a connection; None if no call of it was accepted."""
        found = self._usages.get(address)
        return None if found is None else found.user

    def forget(self, gone: set[str]) -> None:
        """Remove the usage of connections that are closed."""
        with self._lock:
            for address in gone:
                self._usages.pop(address, None)
            if gone:
                self._addresses = {
                    peer: connection for peer, connection in self._addresses.items() if connection not in gone
                }


class ConnectionWatch:
    """A thread that observes the connections of a port, once :meth:`start` was called, and keeps them to ``limits``."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._usages = limits, UsageTable()
        self._port = 0
        self._connections: dict[bytes, ObservedConnection] = {}  # by cookie
        self._others: set[bytes] = set()  # cookies of sockets that do not belong to the port
        self.closed: Final = Counter[str]()  # connections, by the reason
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-watch", daemon=True)

    def start(self, port: int) -> None:
        """Begin to observe, now that the port is known; messages may have been noted before."""
        self._port = port
        self._thread.start()

    def note(self, peer: str, size: int, user_of_call: Callable[[], str] = str) -> None:
        """Note a message that was accepted, of a peer as gRPC writes it, such as ``ipv4:127.0.0.1:5000``."""
        usage = self._usages.of(peer)
        usage.add(size)
        if usage.user is None:
            usage.user = user_of_call()

    def user_of(self, address: str) -> str | None:
        """Return the user of the client at an address; None if it is not authenticated: no call was accepted."""
        return self._usages.user_of(address)

    def logging_in(self, peer: str) -> AbstractContextManager[None]:
        """Note that a peer waits for the server to check who it is: meanwhile it is not late."""
        return self._usages.of(peer).logging_in()

    def end(self) -> None:
        """End the watch."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        pause = _OBSERVE_INTERVAL_S
        while not self._over.wait(pause):
            begun = time.thread_time()  # on a busy machine the work takes longer, and is needed more
            try:
                self._observe(time.monotonic())
            except Exception:  # the next time may be better, and without it no limit holds
                _logger.exception("the connections could not be observed")
            pause = max(_OBSERVE_INTERVAL_S, _PAUSES * (time.thread_time() - begun))

    def _observe(self, now: float) -> None:
        known = self._usages.known()  # first: a connection that is opened meanwhile is not forgotten
        files: dict[ObservedConnection, tuple[int, bytes]] = {}
        others: set[bytes] = set()
        for number, cookie, tcp_socket in _sockets():
            connection = (
                None if cookie in self._others else self._connections.get(cookie) or self._connection(number, now)
            )
            if connection is None:
                others.add(cookie)
                continue
            with suppress(OSError):
                connection.note(_counts(tcp_socket), *self._usages.take(connection.peer), now)
            if self._usages.is_logging_in(connection.peer):
                connection.since = now  # its time begins when it has been answered
            files[connection] = number, cookie
        self._connections, self._others = {cookie: connection for connection, (_, cookie) in files.items()}, others
        self._usages.forget(known - {connection.peer for connection in files})
        for connection, why in dict(to_close(files, self._limits, now)).items():
            _logger.info("closing a connection", extra={"peer": connection.peer, "reason": why})
            self.closed[why] += 1
            _close(*files[connection])

    def _connection(self, number: int, now: float) -> ObservedConnection | None:
        """Return the connection of a socket; None if it does not belong to the port."""
        try:
            with copied_socket(number) as copy:
                here, there = copy.getsockname(), copy.getpeername()
        except OSError:  # it listens, or is gone
            return None
        is_ours = copy.family in (socket.AF_INET, socket.AF_INET6) and here[1] == self._port
        return ObservedConnection(peer=written_address(*there[:2]), since=now) if is_ours else None


def close_all(at: int | str) -> None:
    """Shut down all connections of a port, or of a socket that is a file."""
    for number, _, _ in _sockets():
        with suppress(OSError), copied_socket(number) as copy:
            copy.getpeername()  # a listening socket has none
            here = copy.getsockname()
            if at == (here if copy.family == socket.AF_UNIX else here[1]):
                copy.shutdown(socket.SHUT_RDWR)


def _sockets() -> Iterator[tuple[int, bytes, socket.socket]]:
    """Return the sockets of this process: number, cookie, and a socket that is good until the next."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or gone
            tcp_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(name))
            try:
                yield int(name), tcp_socket.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8), tcp_socket
            finally:
                tcp_socket.detach()  # it is not ours to close


def _counts(tcp_socket: socket.socket) -> ByteCounts:
    info = tcp_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    acked, received = struct.unpack_from("=QQ", info, _BYTES_ACKED)
    return ByteCounts(received=received, acked=acked)


def _close(number: int, cookie: bytes) -> None:
    """Shut a connection down, unless it is gone already."""
    with suppress(OSError), copied_socket(number) as copy:
        if copy.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8) == cookie:
            copy.shutdown(socket.SHUT_RDWR)
