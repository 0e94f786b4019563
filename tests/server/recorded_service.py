"""The Flight service, with a note of what a server has given it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.server._run import start_service

if TYPE_CHECKING:
    from penstock.server import Config
    from penstock.server._login import Logins
    from penstock.server._tls import Certificate
    from penstock.stream import Engine


class RecordedService:
    """Serves, and remembers."""

    latest: ClassVar[RecordedService]

    def __init__(self, store: Engine, config: Config, logins: Logins | None, certificate: Certificate | None) -> None:
        RecordedService.latest = self
        self.store, self.logins, self.certificate = store, logins, certificate
        self._service = start_service(store, config, logins, certificate)
        self.port, self.connections = self._service.port, self._service.connections
        self.quotas, self.sent_bytes = self._service.quotas, self._service.sent_bytes
        self.streams_at_the_end: list[str] | None = None

    def shutdown(self) -> None:
        self.streams_at_the_end = [one.name for one in self.store.streams()]
        self._service.shutdown()
