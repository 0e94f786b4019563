"""A stand-in for the Flight service, where only what is around it is tested."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from penstock.server import Config
    from penstock.server._tls import Certificate
    from penstock.server._users import Users
    from penstock.stream import StreamStore


class FakeService:
    """Has a port, and serves nobody."""

    latest: ClassVar[FakeService]

    def __init__(
        self, store: StreamStore, config: Config, users: Users | None, certificate: Certificate | None
    ) -> None:
        FakeService.latest = self
        self.store, self.users, self.certificate = store, users, certificate
        self._socket = socket.create_server((config.host, config.port))
        self.port = self._socket.getsockname()[1]
        self.streams_at_the_end: list[str] | None = None

    def connections(self) -> int:
        return 3

    def shutdown(self) -> None:
        self.streams_at_the_end = [one.name for one in self.store.streams()]
        self._socket.close()
