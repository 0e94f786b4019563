"""The connections for blocks of a channel; see :mod:`penstock.wire._block_messages`.

A thread takes one, sends a request, reads the answer and gives it back. If there is none, because the server has no
port for blocks, or it cannot be reached, or as many as possible are in use, blocks go over Flight.

A port that could not be reached is tried again after a pause, by one thread at a time. The pauses become longer,
because an attempt may take as long as ``_OPEN_S``, and a firewall stays.
"""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pyarrow import flight

from penstock.deadlines import DeadlineExceeded, time_left
from penstock.errors import BadArgument, ServerError
from penstock.frames import FrameConnection, FrameError, pack_frame
from penstock.wire import (
    BLOCK_CHALLENGE_SIZE,
    BUSY,
    PROTOCOL,
    AskBlocks,
    BlocksAcknowledged,
    BlocksEnd,
    BlocksOpened,
    BlocksRefused,
    Greeting,
    OpenBlocks,
    PutBlock,
    PutShared,
    SentBlocks,
    block_mac,
    pack_block_message,
    unpack_block_message,
    unpack_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.frames import ReceivedFrame
    from penstock.ports import Bytes
    from penstock.wire import BlockAccess, BlockMessage, PutRows
    from penstock.wire.operations import streams

__all__ = ["BlockSocket", "BlockSockets"]

IN_USE_MAX: Final = 8
_IDLE_MAX: Final = 2
_OPEN_S: Final = 1.0  # the server has just answered at its other port
_OPEN_MIN_S: Final = 0.25  # with less time than that, a server that cannot be reached looks like one that is slow
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 300.0
_SEND_S: Final = 30.0
_SHARED: Final = pack_block_message(PutShared())
_logger: Final = logging.getLogger("penstock.client")


class BlockSocket:
    """One connection, which one thread at a time uses. ``OSError`` if it is lost."""

    def __init__(self, frames: FrameConnection, on_close: Callable[[BlockSocket], None]) -> None:
        self._frames, self._on_close = frames, on_close
        self._reading = threading.Lock()

    def exchange(self, message: bytes) -> Bytes:
        """Send small blocks of some writers; return the acknowledgements."""
        self._send(_SHARED, message)
        return self._acknowledgement()

    def put(self, writer: int, blocks: Iterable[Sequence[Bytes]]) -> Bytes:
        """Send blocks of a writer that are acknowledged together; return the acknowledgement."""
        header = pack_block_message(PutBlock(writer))
        for parts in blocks:
            self._send(header, *parts)
        return self._acknowledgement()

    def put_rows(self, head: PutRows, parts: Iterable[Bytes]) -> None:
        """Send events of a transaction; return when they are added."""
        self._send(pack_block_message(head), *parts)
        self._acknowledgement()

    def blocks(self, call: streams.GetBlocks) -> Iterator[tuple[int, memoryview, int]]:
        """Return the blocks of a segment: where each begins, its bytes, and from when on it counts."""
        self._send(pack_block_message(AskBlocks(call.stream, call.segment, call.offset, call.end)))
        while True:
            message, payload = self._received()
            if isinstance(message, BlocksEnd):
                return
            if not isinstance(message, SentBlocks):
                raise ServerError("the server sent something else in place of a block")
            yield message.start, memoryview(payload), message.commit_ms

    def _send(self, header: bytes, *payload: Bytes) -> None:
        self._frames.send(pack_frame(header, *payload, payload_crc=0), timeout_s=_SEND_S)

    def _acknowledgement(self) -> Bytes:
        message, payload = self._received()
        if not isinstance(message, BlocksAcknowledged):
            raise ServerError("the server sent something else in place of an acknowledgement")
        return payload

    def _received(self) -> tuple[BlockMessage, Bytes]:
        try:
            with self._reading:
                frame = self._frames.await_frame() if time_left() is None else self._frame_in_time()
            message = unpack_block_message(frame.header)
        except (EOFError, FrameError, BadArgument) as error:
            raise ConnectionResetError(str(error)) from error
        if isinstance(message, BlocksRefused):
            if message.info == BUSY:
                raise flight.FlightUnavailableError("the server is busy", extra_info=BUSY)
            raise unpack_error(message.info)
        return message, frame.payload

    def _frame_in_time(self) -> ReceivedFrame:
        while (frame := self._frames.receive()) is None:
            if not self._frames.wait(time_left()):
                raise DeadlineExceeded
        return frame

    def close(self) -> None:
        """Close the connection, on which something may still come; a thread that waits for that is woken."""
        self._on_close(self)
        self._frames.shut_down()
        with self._reading, suppress(OSError):
            self._frames.close()


class BlockSockets:
    """The connections of a channel to ``host``; ``access`` is what the server says about them. None: there are none."""

    def __init__(
        self, host: str | None, access: BlockAccess | None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._place = None if host is None or access is None else (host, access)
        self._now = now
        self._lock = threading.Lock()
        self._idle: list[BlockSocket] = []
        self._open: set[BlockSocket] = set()
        self._pause_s = 0.0  # after the last attempt, if that failed
        self._retry_at = -math.inf
        self._is_closed = False

    def take(self) -> BlockSocket | None:
        """Return a connection for this thread, if there can be one."""
        seconds = _opening_s()
        with self._lock:
            if self._idle:
                return self._idle.pop()
            place = self._place
            if place is None or self._is_closed or len(self._open) >= IN_USE_MAX:
                return None
            if seconds < _OPEN_MIN_S or self._now() < self._retry_at:
                return None
            pause_s = self._pause_s
            if pause_s:
                self._retry_at = self._now() + _OPEN_S  # other threads do not try, too
        try:
            found = BlockSocket(_opened(*place, seconds), self._forget)
        except (OSError, BadArgument) as error:
            pause_s = min(pause_s * 2 or _PAUSE_S, _PAUSE_MAX_S)  # the same for threads that have failed together
            _logger.debug("for %g s blocks go over Flight, because there is no connection: %s", pause_s, error)
            with self._lock:
                self._pause_s, self._retry_at = pause_s, self._now() + pause_s
            return None
        return found if self._add(found) else None

    def _add(self, found: BlockSocket) -> bool:
        with self._lock:
            self._pause_s, self._retry_at = 0.0, -math.inf
            is_closed = self._is_closed
            if not is_closed:
                self._open.add(found)
        if is_closed:
            found.close()
        return not is_closed

    def _forget(self, found: BlockSocket) -> None:
        with self._lock:
            self._open.discard(found)

    def give(self, found: BlockSocket) -> None:
        """Take a connection back on which all requests are answered."""
        with self._lock:
            if not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(found)
                return
        found.close()

    def close(self) -> None:
        """Close all connections, also those that are in use."""
        with self._lock:
            self._is_closed = True
            connections, self._idle = list(self._open), []
        for found in connections:
            found.close()

    @contextmanager
    def used(self, found: BlockSocket) -> Iterator[BlockSocket]:
        """Give a connection back at the end of the block; after an error it is closed."""
        try:
            yield found
        except BaseException:
            found.close()
            raise
        self.give(found)


def _opening_s() -> float:
    """Return the seconds that an attempt may take: if it fails, the other half of the time is for Flight."""
    left = time_left()
    return _OPEN_S if left is None else min(left / 2, _OPEN_S)


def _opened(host: str, access: BlockAccess, seconds: float = _OPEN_S) -> FrameConnection:
    """Connect, and let both sides prove that they have the key."""
    raw = socket.create_connection((host, access[0]), timeout=seconds) if access[0] else socket.socket(socket.AF_UNIX)
    try:
        if not access[0]:
            raw.settimeout(seconds)
            raw.connect(host)
        return _proved(FrameConnection(raw, checks_data=False), access, time.monotonic() + seconds)
    except BaseException:
        raw.close()
        raise


def _proved(frames: FrameConnection, access: BlockAccess, deadline: float) -> FrameConnection:
    _, name, key = access
    greeting = _message(frames, deadline)
    if not isinstance(greeting, Greeting) or greeting.protocol != PROTOCOL:
        raise ConnectionResetError("another program listens there")
    challenge = secrets.token_bytes(BLOCK_CHALLENGE_SIZE)
    opening = OpenBlocks(name, challenge, block_mac(key, "client", greeting.challenge))
    frames.send(pack_frame(pack_block_message(opening)), timeout_s=_OPEN_S)
    answer = _message(frames, deadline)
    expected = block_mac(key, "server", challenge)
    if not isinstance(answer, BlocksOpened) or not hmac.compare_digest(expected, answer.mac):
        raise ConnectionResetError("the other side does not prove that it is the server")
    return frames


def _message(frames: FrameConnection, deadline: float) -> BlockMessage:
    try:
        while (frame := frames.receive()) is None:
            if not frames.wait(deadline - time.monotonic()):
                raise TimeoutError("no answer in time")
        return unpack_block_message(frame.header)
    except (EOFError, FrameError, BadArgument) as error:
        raise ConnectionResetError(str(error)) from error
