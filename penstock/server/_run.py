"""A server from its beginning to its end: the store, the Flight port and the HTTP port.

A server that shares a store with others opens it when it is its turn: see :mod:`penstock.server._standby`.

It ends in the reverse order: health says so, the ports serve no more, and the store is closed, which makes everything
durable. A second signal does not wait for that.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.embedded import open_store_at
from penstock.local import open_owned, raise_file_limit
from penstock.ports import SystemClock, keep_freed_memory
from penstock.server._addresses import is_address, is_loopback, listen, names_of, usable_port
from penstock.server._limits import Limits
from penstock.server._log_counts import counting_logs
from penstock.server._logs import log_use, logging_to
from penstock.server._periodic import Periodic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from penstock.cpo import Cpo
    from penstock.server._config import Config
    from penstock.server._http import HttpServer
    from penstock.server._limits import QuotaUse
    from penstock.server._log_counts import LogCounter
    from penstock.server._login import Logins
    from penstock.server._tls import Certificate
    from penstock.stream import Engine

__all__ = ["Server", "run"]

_HEALTH_S: Final = 5.0
_CACHE: Final = "cache"
_PORT: Final = "--port (port)"
_BLOCK_PORT: Final = "--block-port (block_port)"
_SIGNAL_S: Final = 0.5  # a signal that another thread gets is handled when the main thread wakes up
_logger: Final = logging.getLogger("penstock.server")


class DataPlane(Protocol):
    """What a server needs of its data plane."""

    port: int

    def connections(self) -> int:
        """Return how many clients are connected."""

    def sent_bytes(self) -> int:
        """Return how many bytes of events were sent to readers."""

    def quotas(self) -> list[QuotaUse]:
        """Return the limit and the use of each kind of thing that is limited."""

    def cut_off(self) -> None:
        """Send clients nothing more."""

    def shutdown(self) -> None:
        """End the sessions and close the connections and the port."""


def run(config: Config, *, ready: Callable[[Server], object] = lambda _: None) -> None:
    """Serve a store until SIGTERM or Ctrl-C; ``ready`` is called once clients can come."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes a line for every header that it does not understand
    raise_file_limit()
    keep_freed_memory()
    with logging_to(sys.stderr, config.log_format, config.max_log_lines), stop_signals() as wait:
        with Server(config) as server:
            ready(server)
            if config.plogs is None:
                _logger.info("serving", extra=server.places())
            _logger.info("shutting down", extra={"signal": wait()})
        _logger.info("ended")


@contextmanager
def stop_signals() -> Iterator[Callable[[], str]]:
    """Give a function that waits for SIGTERM or Ctrl-C, and returns which it was; one that came before counts, too.

    When it has returned, the next signal does what it always does.
    """
    received: SimpleQueue[int] = SimpleQueue()  # a signal may come anywhere, also in here, and put something into it
    before = {
        signal_number: signal.signal(signal_number, lambda number, _: received.put(number))
        for signal_number in (signal.SIGTERM, signal.SIGINT)
    }

    def restore() -> None:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)

    def wait() -> str:
        while True:
            with suppress(Empty):
                name = signal.Signals(received.get(timeout=_SIGNAL_S)).name
                restore()
                return name

    try:
        yield wait
    finally:
        restore()


class Server:
    """A store and its two ports, for as long as the block lasts."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._parts = ExitStack()
        self.port = self.http_port = 0

    @property
    def address(self) -> str:
        """The address of the server, for ``penstock.connect``."""
        return f"penstock://{_host(self._config)}:{self.port}"

    @property
    def http_address(self) -> str:
        """The URL of health and metrics."""
        return f"{'https' if self._config.uses_tls else 'http'}://{_host(self._config)}:{self.http_port}"

    @property
    def console_address(self) -> str:
        """The URL of the web console."""
        return f"{self.http_address}/console/"

    @property
    def futoin_address(self) -> str:
        """The URL of the event stream of FutoIn; another stream has its name behind it: ``…/futoin/scope/stream``."""
        return f"{self.http_address.replace('http', 'ws', 1)}/futoin"

    def places(self) -> dict[str, str]:
        """Return where the store and its ports are, for the log."""
        config = self._config
        return {
            "store": config.plogs or config.store,
            "flight": self.address,
            "http": self.http_address,
            "console": self.console_address,
            "futoin": self.futoin_address,
        }

    def __enter__(self) -> Self:
        """Open the store, then the ports; a server that shares a store with others opens it when it is its turn."""
        with ExitStack() as parts:
            self._start(parts)
            self._parts = parts.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the ports, then the store."""
        self._parts.__exit__(kind, error, trace)

    def _start(self, parts: ExitStack) -> None:
        logged = parts.enter_context(counting_logs())
        if self._config.plogs is not None and self._config.cpo is not None:
            self._start_standby(parts, self._config.plogs, self._config.cpo, logged)
            return
        from penstock.server._http import HttpServer  # noqa: PLC0415 - heavy, as the next
        from penstock.server._service import FlightService  # noqa: PLC0415

        config, folder = self._config, Path(self._config.store).absolute()
        usable_port(config.host, config.port, setting=_PORT)  # an error comes before the store is opened
        interval_s = config.maintenance_interval_s
        store = parts.enter_context(open_owned(folder, maintenance_interval_s=interval_s, serve=FlightService))
        certificate, logins = _certificate(config, folder), _logins(config, folder)
        http = HttpServer(config, certificate)
        parts.callback(http.shutdown)
        ports = parts.enter_context(closing(StorePorts(store, config, logins, certificate, http, logged=logged)))
        self.port, self.http_port = ports.port, http.port

    def _start_standby(self, parts: ExitStack, plogs: str, cpo: str, logged: LogCounter) -> None:
        from penstock.server import _front, _futoin, _futoin_metrics, _service  # noqa: F401, PLC0415 - heavy; for later
        from penstock.server._http import HttpServer, new_app  # noqa: PLC0415
        from penstock.server._leases import ServerLeases  # noqa: PLC0415
        from penstock.server._metrics import standby_registry  # noqa: PLC0415
        from penstock.server._standby import (  # noqa: PLC0415
            RefusingPort,
            Standby,
            StandbyHealth,
            reachable_plogs,
            registered_oracle,
        )

        folder = Path(self._config.store).absolute()
        plogs_address = reachable_plogs(plogs, folder / _CACHE)
        oracle = parts.enter_context(registered_oracle(cpo, plogs))
        folder.mkdir(0o700, parents=True, exist_ok=True)
        refusing = parts.enter_context(closing(RefusingPort(self._config.host, self._config.port)))
        config = self._config = msgspec.structs.replace(self._config, port=refusing.port)
        certificate, logins = _certificate(config, folder), _logins(config, folder)
        http = HttpServer(config, certificate)
        parts.callback(http.shutdown)
        self.port, self.http_port = config.port, http.port

        def open_store() -> Engine:
            return open_store_at(
                plogs_address,
                cpo,
                address=plogs,
                maintenance_interval_s=config.maintenance_interval_s,
            )

        def serve(store: Engine) -> StorePorts:
            refusing.close()
            ports = StorePorts(store, config, logins, certificate, http, logged=logged, cpo=oracle)
            _logger.info("serving", extra=self.places())
            return ports

        def stand_by() -> None:
            health = StandbyHealth(standby.trouble)
            registry = standby_registry(health, logged)
            http.start(new_app(health, registry, logins, is_local=is_loopback(config.host)))
            refusing.open()
            _logger.info("standing by", extra=self.places())

        standby = Standby(ServerLeases(oracle, config.advertised), open_store, serve, stand_by)
        parts.callback(standby.close)
        standby.start()


class StorePorts:
    """The ports of an open store: Flight, and the application of the HTTP port."""

    def __init__(
        self,
        store: Engine,
        config: Config,
        logins: Logins | None,
        certificate: Certificate | None,
        http: HttpServer,
        *,
        logged: LogCounter,
        cpo: Cpo | None = None,
    ) -> None:
        from penstock.console import SAMPLE_EVERY_S, Console  # noqa: PLC0415 - heavy, as those below
        from penstock.server._console import ConsoleAccess, ConsoleFigures  # noqa: PLC0415
        from penstock.server._futoin import FutoinPort  # noqa: PLC0415
        from penstock.server._futoin_metrics import FutoinCollector  # noqa: PLC0415
        from penstock.server._health import Health  # noqa: PLC0415
        from penstock.server._http import new_app  # noqa: PLC0415
        from penstock.server._metrics import new_registry  # noqa: PLC0415

        self._store = store
        with ExitStack() as parts:
            parts.callback(http.stop)
            service = self._service = start_service(store, config, logins, certificate)
            parts.callback(service.shutdown)
            health = Health(store, _folder_of_plogs(config))
            parts.callback(health.end)
            watch = Periodic(health.trouble, "penstock-health", every_s=_HEALTH_S)  # so that the log says it, too
            parts.callback(watch.end)
            connections = {"flight": service.connections, "http": http.connections, "websocket": http.websockets}
            futoin = FutoinPort(store, logins, config)

            def uses() -> list[QuotaUse]:
                return [
                    *service.quotas(),
                    futoin.quota(),
                    http.use(),
                    *([] if logins is None else logins.uses()),
                    *log_use(),
                ]

            sent_bytes = service.sent_bytes
            registry = new_registry(store, connections, uses, health, logins, sent_bytes=sent_bytes, logged=logged)
            registry.register(FutoinCollector(futoin, store))
            console = Console(
                store,
                ConsoleAccess(logins, Limits.of(config)),
                ConsoleFigures(health, connections, uses, logins, sent_bytes=sent_bytes, logged=logged, cpo=cpo),
            )
            parts.callback(console.close)
            history = Periodic(console.sample, "penstock-console-history", every_s=SAMPLE_EVERY_S)
            parts.callback(history.end)
            http.start(new_app(health, registry, logins, futoin, console.routes, is_local=is_loopback(config.host)))
            self.port: Final = service.port
            self._parts = parts.pop_all()

    def cut_off(self) -> None:
        """Answer clients of the store no more, at once."""
        self._service.cut_off()

    def close(self) -> None:
        """Let requests come to their end, and serve no more."""
        self._store.prepare_close()  # else requests that wait for an object store would end after a minute
        self._parts.close()


def start_service(store: Engine, config: Config, logins: Logins | None, certificate: Certificate | None) -> DataPlane:
    """Start the Flight service, with a front or without: the one place where the server meets its data plane."""
    from penstock.server._front import FrontedService  # noqa: PLC0415 - heavy, as the next
    from penstock.server._service import FlightService  # noqa: PLC0415 - tests put others in its place

    limits = Limits.of(config)
    with ExitStack() as parts:
        blocks = None if certificate is not None else listen(config.host, config.block_port, setting=_BLOCK_PORT)
        if blocks is not None:
            parts.callback(blocks.close)
        service: DataPlane
        if config.refuses_compressed:
            context = None if certificate is None else certificate.context()
            listener = listen(config.host, config.port, setting=_PORT)
            service = FrontedService(store, listener, guard=logins, tls=context, limits=limits, block_listener=blocks)
        else:
            tls = None if certificate is None else [(certificate.cert, certificate.key)]
            port = config.port if is_address(config.host) else usable_port(config.host, config.port, setting=_PORT)
            location = f"{'grpc' if tls is None else 'grpc+tls'}://{_host(config)}:{port}"
            service = FlightService(store, location, blocks, guard=logins, tls=tls, limits=limits)
        parts.pop_all()
        return service


def _folder_of_plogs(config: Config) -> Path | None:
    """Return the folder on whose disk the events are; None if they are in a bucket."""
    kind, _, place = (config.plogs or f"file:{config.store}").partition(":")
    return Path(place).absolute() if kind == "file" else None


def _host(config: Config) -> str:
    return f"[{config.host}]" if ":" in config.host else config.host


def _certificate(config: Config, folder: Path) -> Certificate | None:
    if not config.uses_tls:
        return None
    from penstock.server._tls import load_certificate, own_certificate  # noqa: PLC0415 - heavy

    if config.tls_cert is not None and config.tls_key is not None:
        return load_certificate(Path(config.tls_cert), Path(config.tls_key), clock=SystemClock())
    return own_certificate(folder, names_of(config.host), clock=SystemClock())


def _logins(config: Config, folder: Path) -> Logins | None:
    from penstock.server._login import Logins  # noqa: PLC0415 - of the extra "server", as the next
    from penstock.server._users import USERS_FILE, Users  # noqa: PLC0415

    if config.anonymous:
        return None
    users = Users.open(folder / USERS_FILE)
    if not list(users):
        _logger.warning("there are no users yet, so every call is refused: add one with penstock user add")
    return Logins(users, checks=config.max_password_checks, waiting=config.max_waiting_logins)
