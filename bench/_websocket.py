"""A WebSocket client that costs little beside the server it measures: whole messages, no checks, no threads."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["WebSocket"]

_REQUEST: Final = (
    b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_TEXT, _PING, _PONG, _CLOSE = 0x1, 0x9, 0xA, 0x8
_MASKED: Final = 0x80
_RECEIVE: Final = 1 << 20


def _frame(message: bytes, kind: int = _TEXT) -> bytes:
    """Return a frame; its mask is zero, which leaves the message as it is."""
    size = len(message)
    if size < 126:
        return struct.pack(">BBI", 0x80 | kind, _MASKED | size, 0) + message
    assert size < 1 << 16, "requests are small"
    return struct.pack(">BBHI", 0x80 | kind, _MASKED | 126, size, 0) + message


class WebSocket:
    """An open connection."""

    def __init__(self, port: int, path: str) -> None:
        self.socket: Final = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall(_REQUEST % path.encode())
        self._buffer = bytearray()
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._receive()
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        assert b" 101 " in head, head
        self._buffer = bytearray(rest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def _receive(self) -> bytes:
        data = self.socket.recv(_RECEIVE)
        assert data, "the server has closed the connection"
        return data

    def send(self, *messages: bytes) -> None:
        """Send messages, together."""
        self.socket.sendall(b"".join(map(_frame, messages)))

    def messages(self) -> list[bytes]:
        """Return the messages that have come, at least one."""
        while not (complete := self._complete()):
            self._buffer += self._receive()
        return complete

    def received(self) -> list[bytes]:
        """Return the messages that are complete with what has come."""
        self._buffer += self._receive()
        return self._complete()

    def _complete(self) -> list[bytes]:
        messages, data, place = [], self._buffer, 0
        while len(data) - place >= 2:
            kind, size, start = data[place] & 0xF, data[place + 1], place + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                start += width
                size = int.from_bytes(data[start - width : start], "big")
            if len(data) < start or len(data) < start + size:
                break
            message = bytes(data[start : start + size])
            place = start + size
            assert kind != _CLOSE, f"the server has closed the connection: {message!r}"
            if kind == _PING:
                self.socket.sendall(_frame(message, _PONG))
            else:
                messages.append(message)
        del data[:place]
        return messages
