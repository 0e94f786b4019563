"""FutoIn as it is on the wire: messages that no client of ours would send."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final

from websockets.sync.client import ClientConnection, connect

from penstock.events._mac import mac_base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server import Server

__all__ = ["LONG_S", "Wire", "call", "message_of", "post", "signed", "websocket"]

LONG_S: Final = 30


def message_of(function: str, rid: str | None = "C1", **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a message to the server; a function of FTN18 may leave out ``futoin.``."""
    message: dict[str, Any] = {"f": f"futoin.{function}", "p": parameters}
    return message if rid is None else message | {"rid": rid}


def signed(
    message: dict[str, Any], user: str, key: str, *, scheme: str = "-smac", algorithm: str = "HS256"
) -> dict[str, Any]:
    """Return a message with a signature."""
    name = {"HMD5": "md5", "MD5": "md5"}.get(algorithm, f"sha{algorithm[-3:]}")
    code = hmac.new(base64.b64decode(key), mac_base(message), getattr(hashlib, name)).digest()
    return message | {"sec": f"{scheme}:{user}:{algorithm}:{base64.b64encode(code).decode()}"}


class Wire:
    """A WebSocket; pushed events are kept until they are asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._pushed: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any] | str | bytes) -> None:
        """Send a message as it is, or a map as JSON."""
        self.socket.send(json.dumps(message) if isinstance(message, dict) else message)

    def received(self) -> dict[str, Any]:
        """Return the next message of the server."""
        message: dict[str, Any] = json.loads(self.socket.recv(LONG_S))
        return message

    def answer(self) -> dict[str, Any]:
        """Return the next answer; keep the events that are pushed meanwhile."""
        while "f" in (message := self.received()):
            self._pushed.append(message)
        return message

    @property
    def has_pushed(self) -> bool:
        """Whether events were pushed before the last answer, and not asked for."""
        return bool(self._pushed)

    def pushed(self) -> dict[str, Any]:
        """Return the next group that is pushed."""
        return self._pushed.pop(0) if self._pushed else self.received()

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message."""
        self.send(message)
        return self.answer()


@contextmanager
def websocket(server: Server, path: str = "/futoin", **options: Any) -> Iterator[Wire]:  # noqa: ANN401
    """Connect to a server."""
    url = f"ws://127.0.0.1:{server.http_port}{path}"
    with connect(url, compression=None, max_size=None, open_timeout=LONG_S, **options) as socket:
        yield Wire(socket)


def post(server: Server, body: bytes, path: str = "/futoin") -> tuple[int, str | None, bytes]:
    """Return the status, the content type and the body of the answer to a request."""
    with closing(HTTPConnection("127.0.0.1", server.http_port, timeout=LONG_S)) as connection:
        connection.request("POST", path, body)
        response = connection.getresponse()
        return response.status, response.getheader("content-type"), response.read()


def call(server: Server, message: dict[str, Any], path: str = "/futoin") -> dict[str, Any]:
    """Return the answer to a message by HTTP."""
    answer: dict[str, Any] = json.loads(post(server, json.dumps(message).encode(), path)[2])
    return answer
