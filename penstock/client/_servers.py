"""The servers of one store, ``penstock://a:7367,b:7367``: one of them owns the store, and the others stand by.

A server that stands by does not listen at its Flight port, so the one that answers is the owner. A client asks the
addresses in turn, beginning behind the one that it used last, and gives each some time to answer: the system accepts
connections for a process that is stopped. For the same reason the client asks its server for a sign of life every few
seconds. When there is none, and another server answers, the client shuts its connections to the silent one down:
gRPC would wait for it for ever. From then on it is as if that server had been killed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyarrow import flight

from penstock.client._address import ServerFinder, split_addresses
from penstock.client._knock import ConnectionLost, answering, knock
from penstock.client._reasons import without_context
from penstock.errors import StoreUnreachable
from penstock.ports import copied_socket

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["ServersFinder", "find_server"]

ANSWER_S: Final = 1.0  # that each server has to answer; twice as long after a round in which none did, ...
ANSWER_MAX_S: Final = 8.0  # ... up to this
CHECK_S: Final = 2.0  # between two questions to the server in use
_SILENCES: Final = 2  # in a row, before the client looks for another server
_logger: Final = logging.getLogger("penstock.client")


def find_server(
    address: str,
    *,
    user: str | None,
    password: str | None,
    token: str | None,
    tls: bool | None,
    tls_ca: str | PathLike[str] | None,
) -> ServerFinder | ServersFinder:
    """Return the finder for an address of one server, or of several."""
    finders = [
        ServerFinder(part, user=user, password=password, token=token, tls=tls, tls_ca=tls_ca)
        for part in split_addresses(address)
    ]
    return finders[0] if len(finders) == 1 else ServersFinder(address, finders)


class ServersFinder:
    """Finds the one of several servers that answers."""

    patience_s: Final = 10.0  # longer than a hand-over takes: a store of several servers is seldom without an owner

    def __init__(self, address: str, finders: list[ServerFinder]) -> None:
        self.address: Final = address
        self._finders = finders
        self._at = len(finders) - 1  # the server found last
        self._answer_s = ANSWER_S
        self._reasons: dict[ServerFinder, str] = {}  # why each did not answer in the last round
        self._watch: _SilenceWatch | None = None

    def open(self) -> flight.FlightClient:
        """Return a client of the server that answers."""
        self._reasons.clear()
        for _ in self._finders:
            self._at = (self._at + 1) % len(self._finders)
            finder = self._finders[self._at]
            try:
                client = answering(finder.open(), self._answer_s, is_strict=True)
            except ConnectionLost as error:
                self._reasons[finder] = without_context(str(error.__cause__ or error))
            else:
                self._answer_s = ANSWER_S
                self._watch_from_now(finder, client)
                return client
        self._answer_s = min(2 * self._answer_s, ANSWER_MAX_S)
        raise StoreUnreachable(self.address, reason="no server answers")

    @property
    def block_host(self) -> str | None:
        """Where the port for blocks of the server is that was found last."""
        return self._finders[self._at].block_host

    def _watch_from_now(self, finder: ServerFinder, client: flight.FlightClient) -> None:
        if self._watch is None:
            self._watch = _SilenceWatch(self._finders)
        self._watch.target = finder, client

    def explained(self, reason: str) -> str:
        """Return why none of the servers can be reached; each by itself, unless one answered and was lost."""
        if not self._reasons:
            return reason
        return "; ".join(f"{finder.place}: {finder.explained(text)}" for finder, text in self._reasons.items())

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()


class _SilenceWatch:
    """Asks the server in use for a sign of life, and shuts the connections to it down if another one has taken over."""

    def __init__(self, finders: list[ServerFinder]) -> None:
        self.target: tuple[ServerFinder, flight.FlightClient] | None = None
        self._finders = finders
        self._over = threading.Event()
        threading.Thread(target=self._work, name="penstock-server-watch", daemon=True).start()

    def _work(self) -> None:
        silences, watched = 0, None
        while not self._over.wait(CHECK_S):
            if self.target is not watched:
                silences, watched = 0, self.target
            if watched is None:
                continue
            finder, client = watched
            silences = 0 if _answers(client) else silences + 1
            if silences >= _SILENCES and any(_is_there(other) for other in self._finders if other is not finder):
                _logger.warning("%s does not answer, and another server does: looking for the owner", finder.place)
                self.target = None
                _shut_down(finder)

    def close(self) -> None:
        """End it."""
        self._over.set()


def _answers(client: flight.FlightClient) -> bool:
    """Whether a server gives a sign of life; a connection that is lost does not count as silence: others notice it."""
    try:
        knock(client, ANSWER_S)
    except ConnectionLost as error:
        return not isinstance(error.__cause__, flight.FlightTimedOutError)
    return True


def _is_there(finder: ServerFinder) -> bool:
    try:
        answering(finder.open(), ANSWER_S, is_strict=True).close()
    except ConnectionLost:
        return False
    return True


def _shut_down(finder: ServerFinder) -> None:
    """Shut down all connections of this process to a server."""
    with suppress(OSError):
        addresses = {found[4][:2] for found in socket.getaddrinfo(*finder.host_and_port, type=socket.SOCK_STREAM)}
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError), copied_socket(int(name)) as sock:
                if sock.family in {socket.AF_INET, socket.AF_INET6} and _peer(sock) in addresses:
                    sock.shutdown(socket.SHUT_RDWR)


def _peer(sock: socket.socket) -> tuple[object, ...]:
    host, port = sock.getpeername()[:2]
    return host.removeprefix("::ffff:"), port  # gRPC connects to IPv4 through sockets of IPv6
