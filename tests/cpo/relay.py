"""A relay between an oracle and its PostgreSQL server, which loses the messages that a test tells it to lose."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.postgres import Postgres

__all__ = ["COMMIT", "LOCK", "Link", "Relay"]

COMMIT: Final = b"COMMIT\0"
LOCK: Final = b"pg_advisory_xact_lock"
_SOCKET: Final = ".s.PGSQL.5432"


class Link:
    """One connection through the relay."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.is_cut_at_answer = False

    def cut(self) -> None:
        """End the client's side; the server's side goes on."""
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End both sides."""
        self.cut()
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)

    def pump_answers(self) -> None:
        with suppress(OSError):
            while (answer := self.server.recv(1 << 16)) and not self.is_cut_at_answer:
                self.client.sendall(answer)
        self.end()


class Relay:
    """Passes messages on, if ``on_message`` says so; it is asked for each."""

    def __init__(self, folder: Path, server: Postgres) -> None:
        self.url: Final = f"postgresql://postgres@/postgres?host={folder}"
        self.on_message: Callable[[bytes, Link], bool] = lambda *_: True
        self.is_down = False
        """Whether new connections are refused."""
        self._server = f"{server.folder}/{_SOCKET}"
        self._links: list[Link] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def go_down(self) -> None:
        """Cut all connections, and refuse new ones."""
        self.is_down = True
        for link in self._links:
            link.end()

    def lose(self, message: bytes, *, arrives: bool, times: int = 1) -> None:
        """Cut connections at messages with this text, before they arrive or before they are answered."""
        left = iter(range(times))

        def pass_on(sent: bytes, link: Link) -> bool:
            if message not in sent or next(left, None) is None:
                return True
            if arrives:
                link.is_cut_at_answer = True
            else:
                link.end()
            return arrives

        self.on_message = pass_on

    def delay(self, message: bytes, *, until: bytes) -> None:
        """Cut the connection at a message with this text, and let it arrive behind the next one with the other text."""
        delayed: list[tuple[bytes, Link]] = []

        def pass_on(sent: bytes, link: Link) -> bool:
            if message in sent and not delayed:
                delayed.append((sent, link))
                link.cut()
                return False
            if until in sent and delayed:
                link.server.sendall(sent)
                late, other = delayed[0]
                self.on_message = lambda *_: True
                other.server.sendall(late)
                return False
            return True

        self.on_message = pass_on

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self.is_down:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                link = Link(client, server)
                self._links.append(link)
                for thread in (
                    threading.Thread(target=self._pump_messages, args=(link,)),
                    threading.Thread(target=link.pump_answers),
                ):
                    self._threads.append(thread)
                    thread.start()

    def _pump_messages(self, link: Link) -> None:
        with suppress(OSError):
            while message := link.client.recv(1 << 16):
                if self.on_message(message, link):
                    link.server.sendall(message)

    def close(self) -> None:
        """End all connections, and the threads."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for link in self._links:
            link.end()
        for thread in self._threads:
            thread.join()
        for link in self._links:
            link.client.close()
            link.server.close()
        self._listener.close()
