"""The port for blocks: a listening socket, and a thread for each connection; see :mod:`penstock.wire._block_messages`.

A connection belongs to a session, and ends with it. Until it has proved that, it may send a few bytes, and has as long
as the head of a request may take. A session has ``OF_SESSION_MAX`` connections, and each has room for one frame.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pyarrow import flight

from penstock.errors import BadArgument
from penstock.frames import HELLO_SIZE_MAX, FrameConnection, FrameError, pack_frame
from penstock.server._block_connection import BlockConnection
from penstock.wire import (
    BLOCK_CHALLENGE_SIZE,
    PROTOCOL,
    BlocksOpened,
    Greeting,
    OpenBlocks,
    block_mac,
    pack_block_message,
    unpack_block_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pyarrow as pa

    from penstock.server._limits import Limits, MessageLimit
    from penstock.server._quotas import Quotas
    from penstock.server._session import Session
    from penstock.wire.operations import streams

__all__ = ["OF_SESSION_MAX", "BlockPort", "BlockRules"]

OF_SESSION_MAX: Final = 16
_ACCEPT_PAUSE_S: Final = 0.1  # after a connection could not be accepted, perhaps for want of descriptors
_SEND_S: Final = 5.0  # for the first messages, which are short
_HELLO_S_MAX: Final = 60.0
_END_S: Final = 5.0
_logger: Final = logging.getLogger("penstock.server")


class BlockRules(NamedTuple):
    """What the port needs of the service: sessions by name, blocks that are asked for, and limits."""

    session_named: Callable[[str], Session | None]
    blocks_asked: Callable[[Session, streams.GetBlocks], Generator[pa.RecordBatch]]
    quotas: Quotas
    messages: MessageLimit
    limits: Limits


class BlockPort:
    """Serves connections for blocks until it is closed; see the module."""

    def __init__(self, listener: socket.socket, rules: BlockRules) -> None:
        is_unix = listener.family == socket.AF_UNIX
        self.port: Final[int] = 0 if is_unix else listener.getsockname()[1]  # 0: clients know the path of the socket
        self._listener, self._rules = listener, rules
        self._lock = threading.Lock()
        self._open: dict[FrameConnection, Session | None] = {}
        self._threads: set[threading.Thread] = set()
        self._over = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="penstock-blocks-accept", daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._over.wait(_ACCEPT_PAUSE_S)
                continue
            if not self._started(connection):
                connection.close()

    def _started(self, connection: socket.socket) -> bool:
        """Start the thread of a connection; return whether there can be one more."""
        thread = threading.Thread(target=self._serve, args=(connection,), name="penstock-blocks", daemon=True)
        with self._lock:
            if len(self._threads) >= self._rules.limits.max_connections or self._over.is_set():
                return False
            try:
                thread.start()
            except RuntimeError as error:  # of the system, which has no thread for it now: others end
                _logger.warning("a connection for blocks is closed: %s", error)
                return False
            self._threads.add(thread)
        return True

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, EOFError):  # the client is gone
                frames = FrameConnection(connection, size_max=HELLO_SIZE_MAX, checks_data=False)
                with self._lock:
                    self._open[frames] = None
                try:
                    self._serve_frames(frames)
                finally:
                    with self._lock:
                        del self._open[frames]
                    frames.close()
        except (FrameError, BadArgument) as error:
            _logger.info("a connection for blocks is closed: %s", error)
        except Exception:  # a mistake of ours ends one connection, not the server
            _logger.exception("a connection for blocks has failed")
        finally:
            connection.close()
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _serve_frames(self, frames: FrameConnection) -> None:
        opened = self._opened(frames)
        if opened is None:
            return
        session, answer = opened
        quota = self._rules.quotas["calls"]  # it has a thread, as a call has
        try:
            quota.take(session.owner)
        except flight.FlightError:
            return  # before the proof, so that the client uses Flight; a connection lost later would end its session
        try:
            _send(frames, pack_block_message(answer))
            BlockConnection(frames, session, self._rules).serve()
        finally:
            quota.give(session.owner)

    def _opened(self, frames: FrameConnection) -> tuple[Session, BlocksOpened] | None:
        """Let the client prove which session it has; return that, and the proof of the server. None if it cannot."""
        challenge = secrets.token_bytes(BLOCK_CHALLENGE_SIZE)
        _send(frames, pack_block_message(Greeting(PROTOCOL, challenge)))
        deadline = time.monotonic() + min(self._rules.limits.header_timeout_s, _HELLO_S_MAX)
        while (frame := frames.receive()) is None:
            if not frames.wait(deadline - time.monotonic()):
                return None
        opening = unpack_block_message(frame.header)
        if not isinstance(opening, OpenBlocks) or len(frame.payload):
            raise BadArgument("the first message has to say which session it belongs to")
        session = self._rules.session_named(opening.name)
        key = secrets.token_bytes(BLOCK_CHALLENGE_SIZE) if session is None else session.block_key
        if not hmac.compare_digest(block_mac(key, "client", challenge), opening.mac) or session is None:
            return None
        with self._lock:
            is_over = session.is_over or self._over.is_set()
            if is_over or Counter(self._open.values())[session] >= OF_SESSION_MAX:
                return None
            self._open[frames] = session
        return session, BlocksOpened(block_mac(key, "server", opening.challenge))

    def hang_up(self, session: Session) -> None:
        """End the connections of a session."""
        with self._lock:
            connections = [frames for frames, owner in self._open.items() if owner is session]
        for frames in connections:
            frames.shut_down()

    def close(self) -> None:
        """End all connections, and accept no more."""
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(2)
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            connections, threads = list(self._open), list(self._threads)
        for frames in connections:
            frames.shut_down()
        deadline = time.monotonic() + _END_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _send(frames: FrameConnection, header: bytes) -> None:
    frames.send(pack_frame(header), timeout_s=_SEND_S)
