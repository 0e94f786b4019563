"""A proxy between a client and an object store that fails as services do: request by request, and not always honestly.

What becomes of a request is one of :data:`FATES`. Three of them hide that it was carried out. A request is on its way
for a while, and is lost if its client is gone meanwhile: otherwise what a process has sent would be there, though it
was killed a moment later, and no test could see that it acknowledges something too early.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FATES", "FaultyHttp", "faulty_http"]

FATES: Final = (
    "busy",  # 503, and nothing was done
    "lost",  # the connection is closed, and nothing was done
    "late",  # an answer that takes a while
    "hidden",  # it is done, and the connection is closed without an answer
    "denied",  # it is done, and the answer is 500
    "cut",  # it is done, and the connection is closed in the middle of the answer
)
_BUSY: Final = b"<?xml version='1.0'?><Error><Code>ServerBusy</Code><Message>slow down</Message></Error>"
_NOT_FORWARDED: Final = {"connection", "transfer-encoding", "keep-alive"}
_LATE_S: Final = 0.3
_TARGET_S: Final = 60.0


class FaultyHttp:
    """Where the proxy is, how often it fails, and what it has done."""

    def __init__(self, target: str, *, seed: int) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        self.target, self._path = (parts.hostname, parts.port or 80), parts.path
        self.chance = self.slow_s = 0.0  # how often it fails, and how long requests are on their way, at most
        self.fates: Counter[str] = Counter()
        self._random, self._lock = random.Random(seed), threading.Lock()
        self.port = 0

    @property
    def address(self) -> str:
        """The address that a client uses instead of the target's."""
        return f"http://127.0.0.1:{self.port}{self._path}"

    def delay_s(self) -> float:
        """Decide how long the next request is on its way."""
        with self._lock:
            return self._random.uniform(0.0, self.slow_s)

    def fate(self) -> str:
        """Decide what becomes of the next request."""
        with self._lock:
            fate = self._random.choice(FATES) if self._random.random() < self.chance else "well"
            self.fates[fate] += 1
            return fate


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyHttp

    def _serve(self) -> None:
        fate = self.proxy.fate()
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        time.sleep(self.proxy.delay_s() + (_LATE_S if fate == "late" else 0.0))
        if fate == "lost" or self._is_client_gone():
            self.close_connection = True
            return
        if fate == "busy":
            self._answer(503, [("content-type", "application/xml")], _BUSY)
            return
        try:
            status, headers, content = self._forward(body)
        except (OSError, HTTPException):
            self.close_connection = True
            return
        if fate == "hidden":
            self.close_connection = True
        elif fate == "denied":
            self._answer(500, [("content-type", "application/xml")], _BUSY.replace(b"ServerBusy", b"OperationTimedOut"))
        elif fate == "cut":
            self._answer(status, headers, content, sent=len(content) // 2)
            self.close_connection = True
        else:
            self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - as the base class has them

    def _is_client_gone(self) -> bool:
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(*self.proxy.target, timeout=_TARGET_S)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _NOT_FORWARDED:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, sent: int | None = None) -> None:
        with suppress(OSError):  # the client may be gone
            self.send_response_only(status)
            has_length = False
            for name, value in headers:
                has_length |= name.lower() == "content-length"
                if name.lower() not in _NOT_FORWARDED:
                    self.send_header(name, value)
            if not has_length:
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[:sent])

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:  # noqa: ANN401 - as the base class has it
        """Stay quiet: a client that was killed is no error of the proxy."""


@contextmanager
def faulty_http(target: str, *, seed: int = 0) -> Iterator[FaultyHttp]:
    """Run a proxy to a server of HTTP; it fails when its ``chance`` is set."""
    proxy = FaultyHttp(target, seed=seed)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with _Server(("127.0.0.1", 0), handler) as server:
        proxy.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
