"""The frame: how one message travels over TCP, and the connection that sends and receives frames.

The 16 bytes before every message, big-endian::

    0   4  magic         tells a client of another protocol from ours
    4   4  header_size   bytes of the message that follow
    8   4  payload_size  bytes of its data that follow them
    12  4  checksum      crc32c of the data, bytes 0-11, the message: of the same data it is computed once

A connection may do without the checksum of the data; then both sides compute it as if there were none.

Both sizes are checked before anything is allocated. Data is sent from the buffers of the caller, and received into the
memory in which the caller gets it. A connection is read by one thread; any thread may send.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import msgspec
import numpy as np

from penstock.checksums import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Bytes

__all__ = [
    "FRAME_SIZE",
    "HEADER_SIZE_MAX",
    "HELLO_SIZE_MAX",
    "PAYLOAD_SIZE_MAX",
    "FrameConnection",
    "FrameError",
    "ReceivedFrame",
    "ReceivedMemory",
    "pack_frame",
]

_FRAME: Final = struct.Struct(">4sIII")
FRAME_SIZE: Final = _FRAME.size
assert FRAME_SIZE == 16, "sent since protocol 1: a new size needs a new magic"
_SIZES: Final = struct.Struct(">4sII")  # what comes before the checksum
_MAGIC: Final = b"PPL1"
HEADER_SIZE_MAX: Final = 256 << 10
PAYLOAD_SIZE_MAX: Final = 8 << 20
HELLO_SIZE_MAX: Final = 4 << 10
"""The most that a client may send before its session is open."""
_BUFFER_SIZE: Final = 128 << 10
_IOVECS_MAX: Final = 1024
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class FrameError(Exception):
    """The peer does not speak this protocol, or the connection has garbled what it sent."""


class ReceivedMemory(np.ndarray[Any, Any]):
    """Memory that one message was received into: nothing else has it, and nothing changes it later."""


class ReceivedFrame(msgspec.Struct, frozen=True):
    """A message as it was received: its header, not decoded, and its data, which nothing else has or changes."""

    header: bytes
    payload: Bytes


def pack_frame(header: bytes, *payload: Bytes, payload_crc: int | None = None) -> list[Bytes]:
    """Return the parts of a frame, which are sent one after another."""
    sizes = _SIZES.pack(_MAGIC, len(header), sum(map(len, payload)))
    if payload_crc is None:
        payload_crc = crc32c(0, *payload) if payload else 0
    crc = google_crc32c.extend(payload_crc, sizes + header)
    return [sizes + crc.to_bytes(4, "big") + header, *payload]


_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class FrameConnection:
    """A connection, plain or TLS, whose handshake is done."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        size_max: int = HEADER_SIZE_MAX + PAYLOAD_SIZE_MAX,
        checks_data: bool = True,
    ) -> None:
        self.size_max = size_max  # of what follows the first 16 bytes
        self._checks_data = checks_data  # or the checksum does without the data, on both sides
        connection.setblocking(not isinstance(connection, ssl.SSLSocket))
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for level, option, value in _KEEP_ALIVE:  # a peer whose machine is gone says nothing
                connection.setsockopt(level, option, value)
        self._socket = connection
        # TLS has one state for both directions.
        self._tls_lock = threading.Lock() if isinstance(connection, ssl.SSLSocket) else None
        self._send_lock = threading.Lock()
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._start = self._end = 0  # of what is received and not used
        self._body: memoryview | None = None  # of a frame that did not arrive in one piece
        self._sizes = (0, 0, 0)  # of that frame: header, data, checksum
        self._filled = 0
        self._is_drained = False  # the last call has received all that there was
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor, to wait for several connections at once."""
        return self._socket.fileno()

    def send(self, parts: Sequence[Bytes], *, timeout_s: float) -> None:
        """Send the parts of a frame; ``OSError`` if the peer does not take them in time, after which all is over."""
        with self._send_lock:
            rest: list[Bytes] = list(parts)
            deadline: float | None = None
            while rest:
                try:
                    if self._tls_lock is None:
                        sent = self._socket.sendmsg(rest[:_IOVECS_MAX], (), socket.MSG_DONTWAIT)
                    else:
                        with self._tls_lock:
                            sent = self._socket.send(rest[0]) if len(rest[0]) else 0
                except _NOT_NOW:
                    now = time.monotonic()
                    deadline = deadline or now + timeout_s
                    if now >= deadline or not self._wait(select.POLLOUT, deadline - now):
                        raise TimeoutError(f"the peer has taken nothing for {timeout_s:g} s") from None
                    continue
                if sent == sum(map(len, rest)):
                    return
                while rest and sent >= len(rest[0]):
                    sent -= len(rest.pop(0))
                if sent:
                    rest[0] = memoryview(rest[0])[sent:]

    def receive(self) -> ReceivedFrame | None:
        """Return the next frame as far as it has arrived, else None; ``EOFError`` at the end, ``FrameError``."""
        while True:
            if self._start < self._end or self._body is not None:
                frame = self._next()
                if frame is not None:
                    return frame
            if self._is_drained:
                self._is_drained = False  # so the next call looks again
                return None
            try:
                if not self._fill():
                    raise EOFError("the peer has closed the connection")
            except _NOT_NOW:
                return None

    def await_frame(self) -> ReceivedFrame:
        """Wait for the next frame and return it; the errors of :meth:`receive`."""
        frame = self._next() if self._start < self._end or self._body is not None else None
        while frame is None:
            if self._tls_lock is not None:
                self.wait(None)
                frame = self.receive()
                continue
            if not self._fill(waits=True):
                raise EOFError("the peer has closed the connection")
            frame = self._next()
        return frame

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something has arrived; return False if that takes longer."""
        if self._tls_lock is not None:
            with self._tls_lock:
                assert isinstance(self._socket, ssl.SSLSocket)
                if self._socket.pending():
                    return True
        return self._wait(select.POLLIN, timeout_s)

    def _wait(self, event: int, timeout_s: float | None) -> bool:
        if self._closed:
            raise OSError("the connection is closed")
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(None if timeout_s is None else max(0, timeout_s * 1000)))

    def _next(self) -> ReceivedFrame | None:
        """Return the frame that is complete, if one is."""
        if self._body is None:
            start, there = self._start, self._end - self._start - FRAME_SIZE
            if there < 0:
                return None
            magic, header_size, payload_size, checksum = _FRAME.unpack_from(self._buffer, start)
            if magic != _MAGIC:
                raise FrameError("this is not the protocol of plog servers")
            size = header_size + payload_size
            if not 0 < header_size <= HEADER_SIZE_MAX or size > self.size_max:
                raise FrameError(f"a message of {header_size} bytes with {payload_size} bytes of data is too large")
            body = start + FRAME_SIZE
            if there < size:
                self._begin_body(body, there, (header_size, payload_size, checksum))
                return None
            header = bytes(self._buffer[body : body + header_size])
            payload: Bytes = bytes(self._buffer[body + header_size : body + size])
            self._start = body + size
        else:
            if self._filled < len(self._body):
                return None
            header_size, _, checksum = self._sizes
            header, payload = bytes(self._body[:header_size]), self._body[header_size:].toreadonly()
            self._body = None
        sizes = _SIZES.pack(_MAGIC, len(header), len(payload))
        data_crc = crc32c(0, payload) if self._checks_data and len(payload) else 0
        if google_crc32c.extend(data_crc, sizes + header) != checksum:
            raise FrameError("a message fails its checksum")
        return ReceivedFrame(header, payload)

    def _begin_body(self, start: int, there: int, sizes: tuple[int, int, int]) -> None:
        """Move what there is of a frame into memory of its own, because it did not arrive in one piece."""
        memory = np.empty(sizes[0] + sizes[1], np.uint8).view(ReceivedMemory)
        self._body, self._sizes = memory.data, sizes
        self._body[:there] = self._buffer[start : self._end]
        self._filled, self._start = there, self._end

    def _fill(self, *, waits: bool = False) -> int:
        """Receive what there is, and wait for something if need be; return how much, 0 at the end."""
        flags = 0 if waits else socket.MSG_DONTWAIT
        body = self._body
        fills_body = body is not None and len(body) - self._filled >= _BUFFER_SIZE
        if fills_body and body is not None:
            target = body[self._filled :]
            flags |= socket.MSG_WAITALL if waits else 0  # one call, however it arrives
        else:
            if self._start:  # what is left moves to the beginning
                left = self._end - self._start
                if left:
                    self._buffer[:left] = bytes(self._buffer[self._start : self._end])
                self._start, self._end = 0, left
            target = self._buffer[self._end :] if self._end else self._buffer
        if self._tls_lock is None:
            size = self._socket.recv_into(target, 0, flags)
            self._is_drained = size < len(target)
        else:
            with self._tls_lock:
                size = self._socket.recv_into(target)
        if fills_body:
            self._filled += size
            return size
        self._end += size
        if body is not None:
            there = min(len(body) - self._filled, self._end - self._start)
            body[self._filled : self._filled + there] = self._buffer[self._start : self._start + there]
            self._filled += there
            self._start += there
        return size

    def shut_down(self) -> None:
        """End the connection from another thread: the thread that reads it is woken, and closes it."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, from the thread that reads it."""
        self.shut_down()
        with self._send_lock:
            self._socket.close()
