"""TLS at the front: a socket whose every call does a bounded amount of work.

A socket of :mod:`ssl` reads until it has data, and a client that sends nothing but key updates keeps it reading for as
long as it likes: two of them stopped the front. Here a call takes so many bytes from the socket, fewer if they take
long, and a client that sends many without any data among them is given up.
"""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

__all__ = ["RECEIVED_MAX", "TlsSocket"]

_TAKEN_MAX: Final = 17 << 10  # the largest record
_TAKEN_MIN: Final = 512  # some twenty key updates
_SLOW_S: Final = 0.001
_USELESS_MAX: Final = 64 << 10  # bytes in a row without data
_UNSENT_MAX: Final = 256 << 10  # answers to key updates come on top of what is sent
RECEIVED_MAX: Final = 2 * _TAKEN_MAX
"""The most that one call can return: what was taken, with the beginning of a record that came before."""


class TlsSocket:
    """The server's side of TLS on a socket that does not block, with the methods of a socket that the front needs.

    ``EOFError`` if the client has to be given up.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = b""
        self._taken_max, self._useless = _TAKEN_MAX, 0
        self.fileno, self.shutdown, self.close = connection.fileno, connection.shutdown, connection.close

    @property
    def has_unsent(self) -> bool:
        """Whether something was encrypted and not sent."""
        return bool(self._unsent)

    def do_handshake(self) -> None:
        """Go on with the handshake; ``SSLWantReadError`` until it is complete. There may be data after it."""
        self._take()
        try:
            self._tls.do_handshake()
        finally:
            self.flush()

    def recv_into(self, buffer: memoryview) -> int:
        """Return how much has come, 0 at the end; ``SSLWantReadError`` if it was nothing, though more may be there."""
        begun, size = time.thread_time(), 0
        is_over = not self._take()
        with suppress(ssl.SSLWantReadError):
            while part := self._tls.read(len(buffer) - size, buffer[size:]):
                size += part  # type: ignore[operator] # with a buffer it is a number
            is_over = True  # the client has said so
        is_slow = time.thread_time() - begun > _SLOW_S
        self._taken_max = max(_TAKEN_MIN, self._taken_max // 2) if is_slow else min(_TAKEN_MAX, 2 * self._taken_max)
        self.flush()
        if size:
            self._useless = 0
        elif not is_over:
            raise ssl.SSLWantReadError
        return size

    def send(self, data: memoryview | bytes) -> int:
        """Encrypt and send the first of the data; ``BlockingIOError`` while what was encrypted before is not sent."""
        self.flush()
        if self._unsent:
            raise BlockingIOError
        size = self._tls.write(data)
        self.flush()
        return size

    def flush(self) -> None:
        """Send what is encrypted, as far as possible."""
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if len(self._unsent) > _UNSENT_MAX:
            raise EOFError("the client does not read")

    def _take(self) -> bool:
        """Take what has come from the socket, some of it; return False if it was the end."""
        with suppress(BlockingIOError):
            data = self._socket.recv(self._taken_max)
            self._incoming.write(data)
            self._useless += len(data)
            if self._useless > _USELESS_MAX:
                raise EOFError("the client sends no data")
            return bool(data)
        return True
