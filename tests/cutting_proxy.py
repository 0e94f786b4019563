"""A proxy between a client and a server that cuts, resets, delays or holds connections, as networks do."""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CuttingProxy", "cutting_proxy"]

_RESETS = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST


class CuttingProxy:
    """Forwards to ``port`` of this machine. Any thread may set how connections fail, at any time.

    ``chance`` is the probability that a connection is cut once some of what either side sends has passed, by a close or
    by a reset. While ``passes`` is cleared, no byte passes, in either direction; while ``requests`` or ``answers`` is,
    none to the server or from it. Bytes that were held arrive later, unless their connection was cut meanwhile.
    """

    def __init__(self, port: int, *, seed: int = 0) -> None:
        self.chance = 0.0
        self.passes = threading.Event()
        self.requests, self.answers = threading.Event(), threading.Event()
        self._let_pass()
        self.cuts = 0
        self._target, self._random = port, random.Random(seed)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut_all(self) -> None:
        """Reset every connection that is open now."""
        with self._lock:
            for side in self._open:
                _reset(side)
            self._open.clear()

    def close(self) -> None:
        """End all connections, and take no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self._let_pass()
        self.cut_all()

    def _let_pass(self) -> None:
        for passes in (self.passes, self.requests, self.answers):
            passes.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for way in ((client, server, self.requests), (server, client, self.answers)):
                threading.Thread(target=self._forward, args=way, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, passes: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.passes.wait()
                passes.wait()
                with self._lock:
                    is_cut = self._random.random() < self.chance
                    size = self._random.randrange(len(data)) if is_cut else len(data)
                    is_reset = self._random.random() < 0.5
                sink.sendall(data[:size])
                if is_cut:
                    self.cuts += 1
                    if is_reset:
                        _reset(source)
                        _reset(sink)
                    break
        with self._lock:
            self._open -= {source, sink}
        for side in (source, sink):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


def _reset(side: socket.socket) -> None:
    with suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        side.shutdown(socket.SHUT_RD)


@contextmanager
def cutting_proxy(port: int, *, seed: int = 0) -> Iterator[CuttingProxy]:
    """Run a proxy to a port of this machine."""
    proxy = CuttingProxy(port, seed=seed)
    try:
        yield proxy
    finally:
        proxy.close()
