"""A client of HTTP/2 that does what no library lets one do: calls that never end, and are as large as one likes."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
WINDOW_SETTING: Final = 4
FRAME_SIZE: Final = 16_384


def frame(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(method: str, **more: str) -> bytes:
    sent = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/arrow.flight.protocol.FlightService/{method}",
        ":authority": "test",
        "te": "trailers",
        "content-type": "application/grpc",
        **more,
    }
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in sent.items()
    )


def message(content: bytes, *, compressed: bool = False) -> bytes:
    """Return a message of gRPC, with what goes before it."""
    return struct.pack(">BI", compressed, len(content)) + content


def call(*payloads: bytes, stream: int = 1) -> bytes:
    """Return the frames of a call, from its headers to its end."""
    begun = frame(HEADERS, stream, headers("DoPut"), END_HEADERS)
    return begun + b"".join(frame(DATA, stream, one) for one in payloads) + frame(DATA, stream, b"", END_STREAM)


def unread_calls(port: int, method: str, sent: bytes, *, count: int, token: str) -> socket.socket:
    """Make many calls on one connection, and let the server send none of their answers."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(PREFACE + frame(SETTINGS, 0, struct.pack(">HI", WINDOW_SETTING, 0)))
    head, body = headers(method, authorization=f"Bearer {token}"), message(sent)
    for stream in range(1, 2 * count, 2):
        connection.sendall(frame(HEADERS, stream, head, END_HEADERS) + frame(DATA, stream, body, END_STREAM))
    return connection


class Call:
    """One call on a connection of its own."""

    def __init__(self, port: int, method: str = "DoAction", **more: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._windows = {0: 65_535, 1: 65_535}
        self._initial = 65_535
        self._unread = b""
        self._is_ended = False
        self._send(PREFACE + frame(SETTINGS, 0, b"") + frame(HEADERS, 1, headers(method, **more), END_HEADERS))

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def declare(self, size: int, beginning: bytes = b"") -> None:
        """Say how large the message is that follows, and how it begins."""
        self._send_data(struct.pack(">BI", 0, size) + beginning)

    def send(self, size: int) -> int:
        """Send so many bytes of the message, as the server lets us; return how many it took before it hung up."""
        sent = 0
        with suppress(ConnectionError, BrokenPipeError):
            while sent < size:
                sent += self._send_data(bytes(min(FRAME_SIZE, size - sent)))
        return sent

    def send_message(self, content: bytes, *, compressed: bool = False) -> None:
        """Send a message as a whole."""
        left = message(content, compressed=compressed)
        while left:
            left = left[self._send_data(left[:FRAME_SIZE]) :]

    def wait_until_ended(self) -> None:
        """Say that nothing more comes, and wait until the server has ended the call."""
        self._send(frame(DATA, 1, b"", END_STREAM))
        while not self._is_ended:
            self._receive()

    def _send_data(self, data: bytes) -> int:
        while min(self._windows.values()) <= 0:
            self._receive()
        part = data[: min(self._windows.values())]
        for stream in self._windows:
            self._windows[stream] -= len(part)
        self._send(frame(DATA, 1, part))
        return len(part)

    def ping_until_closed(self) -> None:
        """Say something that is of no use, again and again."""
        with suppress(ConnectionError, BrokenPipeError):
            while True:
                self._send(frame(PING, 0, bytes(8)))
                self._receive()

    def _receive(self) -> None:
        data = self._socket.recv(65_536)
        if not data:
            raise ConnectionResetError
        self._unread += data
        while len(self._unread) >= 9:
            size = int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < 9 + size:
                return
            kind, flags, stream = self._unread[3], self._unread[4], int.from_bytes(self._unread[5:9], "big")
            payload, self._unread = self._unread[9 : 9 + size], self._unread[9 + size :]
            self._hear(kind, flags, stream, payload)

    def _hear(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif (kind == HEADERS and flags & END_STREAM) or kind == RST_STREAM:
            self._is_ended = True
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, 0, payload, ACK))
        elif kind == SETTINGS and not flags & ACK:
            for place in range(0, len(payload), 6):
                number, value = struct.unpack_from(">HI", payload, place)
                if number == WINDOW_SETTING:
                    self._windows[1] += value - self._initial
                    self._initial = value
            self._send(frame(SETTINGS, 0, b"", ACK))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
