"""A plog server from its beginning to its end: the folder, the port, metrics, and its lease in the oracle.

With an oracle, the server holds a lease on its identity for as long as it runs: so the others are listed, and a second
server with a copy of the folder is refused.
"""

from __future__ import annotations

import base64
import logging
import os
import signal
import sys
import threading
from collections import Counter
from contextlib import ExitStack, closing, suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import (
    BadArgument,
    CpoError,
    LeaseHeld,
    LeaseLost,
    NotAuthenticated,
    NotPermitted,
    PenstockError,
)
from penstock.local import raise_file_limit
from penstock.model import shown, split_address
from penstock.plog.replicated import listed_groups
from penstock.plog.server import PlogServer, ScrubSettings, ServerFolder
from penstock.ports import SystemClock
from penstock.server import _run
from penstock.server._addresses import is_loopback, listen
from penstock.server._leases import LEASE_S, RENEW_S
from penstock.server._logs import logging_to
from penstock.server._periodic import Periodic
from penstock.server._scrub_report import REPORT_S, ScrubReport, ScrubRow, scrub_rows

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from prometheus_client.core import Metric

    from penstock.cpo import Cpo, Lease
    from penstock.plog.replicated import ListedGroup, ServerIdentity

__all__ = ["PlogServerSettings", "Presence", "plog_server_rows", "run_plog_server"]

_PRESENCE: Final = "plog-server/"
_LOG_LINES_MAX: Final = 120
_TRY_S: Final = LEASE_S / 4
_TRIES: Final = 10  # until a lease of a server that was killed a moment ago is over, or counts as one that does not end
_logger: Final = logging.getLogger("penstock.plog_server")


class PlogServerSettings(NamedTuple):
    """The settings of a plog server; the addresses are HOST:PORT."""

    folder: Path
    listen: str
    cluster: str
    group: str
    cpo: str | None = None
    advertise: str | None = None
    http: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    users: Path | None = None
    allow_plain: bool = False
    scrub: ScrubSettings | None = None
    end_with_stdin: bool = False  # for a server that must not outlive the process that started it


def run_plog_server(settings: PlogServerSettings, *, ready: Callable[[str], object]) -> None:
    """Serve replicas until SIGTERM or Ctrl-C; ``ready`` is called with the address once clients can come."""
    raise_file_limit()
    host, port = _host_and_port("--listen", settings.listen)
    _check_access(settings, host)
    context = _tls_context(settings)
    check_user = None if settings.users is None else _user_check(settings.users)
    with logging_to(sys.stderr, "plain", _LOG_LINES_MAX), _run.stop_signals() as wait, ExitStack() as parts:
        listener = parts.enter_context(closing(listen(host, port, setting="--listen")))
        address = settings.advertise or f"{host}:{listener.getsockname()[1]}"
        cpo = None if settings.cpo is None else _registered_in(parts, settings.cpo, settings, address)
        folder = ServerFolder(settings.folder, cluster=settings.cluster, group=settings.group)  # it binds the folder
        parts.callback(folder.close)
        if cpo is not None:
            _hold_lease(parts, cpo, folder.identity, address)
        server = parts.enter_context(
            PlogServer(folder, listener, tls=context, check_user=check_user, scrub=settings.scrub)
        )
        if cpo is not None:
            report = ScrubReport(cpo, server, folder.identity, address)
            parts.callback(Periodic(report.write, "penstock-scrub-report", every_s=REPORT_S).end)
        if settings.http is not None:
            _serve_metrics(parts, server, *_host_and_port("--http", settings.http))
        if settings.end_with_stdin:
            threading.Thread(target=_stop_with_stdin, name="penstock-stdin", daemon=True).start()
        ready(address)
        identity = folder.identity
        _logger.info("serving", extra={"address": address, "group": identity.group, "server": identity.server})
        _logger.info("shutting down", extra={"signal": wait()})


def _stop_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _host_and_port(option: str, address: str) -> tuple[str, int]:
    found = split_address(address)
    if found is None:
        raise BadArgument(f"invalid {option} {shown(address)}: use HOST:PORT")
    return found


def _tls_context(settings: PlogServerSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise BadArgument("--tls-cert and --tls-key are both needed, or neither")
    from penstock.server._tls import load_certificate  # noqa: PLC0415 - of the extra "server", as the next

    return load_certificate(settings.tls_cert, settings.tls_key, clock=SystemClock()).context()


def _user_check(path: Path) -> Callable[[str, str, str], Callable[[], None]]:
    """Return what lets in users who may change everything: an owner reads, writes and deletes all replicas.

    It returns a function that raises once the user may do so no more. Without a user, the password is a token.
    """
    from penstock.server._login import Logins  # noqa: PLC0415
    from penstock.server._users import Users  # noqa: PLC0415

    logins = Logins(Users.open(path))

    def check(name: str, password: str, peer: str) -> Callable[[], None]:
        if ":" in name:  # which no name has, and the password would begin there
            raise NotAuthenticated
        header: str | None = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
        if not name:
            header = f"Bearer {password}" if password else None
        current = logins(header, peer, waits=False)

        def check_again() -> None:
            user = current()
            if not user.may("admin", "*"):
                advice = f"run 'penstock user grant {user.name} admin \"*\"' with the file of this server's users"
                raise NotPermitted(user.name, act="own plogs", advice=advice)

        check_again()
        return check_again

    return check


def _check_access(settings: PlogServerSettings, host: str) -> None:
    """Refuse a port that others reach and that has no users, or lets them read passwords."""
    if is_loopback(host):
        return
    if settings.users is None:
        raise BadArgument(
            f"--users is missing: {host} is open to others, and only a loopback host may do without users"
        )
    if settings.tls_cert is None and not settings.allow_plain:
        reason = f"{host} is open to others, who could read passwords: --allow-plain permits it"
        raise BadArgument(f"--tls-cert is missing: {reason}")


def _registered_in(parts: ExitStack, url: str, settings: PlogServerSettings, address: str) -> Cpo:
    """Return the oracle; an error if this server is not in it: no owner would ever come."""
    from penstock.cpo import open_cpo  # noqa: PLC0415 - heavy

    cpo = parts.enter_context(open_cpo(url, create=False))
    cluster, group = settings.cluster, settings.group
    groups = cpo.cluster(cluster).groups
    if group not in groups:
        known = ", ".join(groups)
        raise BadArgument(f"cluster {cluster} has no group {group!r}: use --group with one of {known}")
    servers = groups[group]
    if address not in servers:
        known = ", ".join(servers)
        raise BadArgument(
            f"group {group} of cluster {cluster} has the servers {known}, not {address}: name the address that is "
            "registered with --advertise, or change the group with 'penstock cluster replace-server'"
        )
    return cpo


def _hold_lease(parts: ExitStack, cpo: Cpo, identity: ServerIdentity, address: str) -> None:
    name = f"{_PRESENCE}{identity.cluster}/{identity.group}/{identity.server}"
    presence = Presence(cpo, name, f"{address} {identity.instance.hex()}")
    parts.callback(presence.release)
    renewal = Periodic(presence.renew, "penstock-plog-lease", every_s=RENEW_S)
    parts.callback(renewal.end)


class Presence:
    """The lease of a plog server on its identity; ``pause`` waits for some seconds."""

    def __init__(self, cpo: Cpo, name: str, owner: str, *, pause: Callable[[float], object] | None = None) -> None:
        self._cpo, self._name, self._owner = cpo, name, owner
        self._pause = pause or threading.Event().wait
        self._lease = self._first()

    def _first(self) -> Lease:
        """Acquire the lease as soon as the one of an earlier process is over, or counts as one that does not end.

        The clock of the oracle may have been set back since, by hours. So a lease that is not renewed for more than
        twice as long as it lasts is released: a server that runs renews its lease all the time.
        """
        first = self._cpo.lease(self._name)
        for _ in range(_TRIES):
            with suppress(LeaseHeld):
                return self._cpo.acquire(self._name, self._owner, seconds=LEASE_S)
            self._pause(_TRY_S)
        held = self._cpo.lease(self._name)
        if held is not None and held == first:
            _logger.warning("the lease %r of %s is not renewed and does not end: releasing it", held.name, held.owner)
            self._cpo.release(held)
        try:
            return self._cpo.acquire(self._name, self._owner, seconds=LEASE_S)
        except LeaseHeld as error:
            where = error.owner.partition(" ")[0]
            reason = f"another server with the identity of this folder runs at {where}"
            raise CpoError(f"{reason}: stop it, or use another folder") from error

    def renew(self) -> None:
        """Renew the lease, or acquire it again."""
        try:
            with suppress(LeaseLost):
                self._lease = self._cpo.renew(self._lease, seconds=LEASE_S)
                return
            self._lease = self._cpo.acquire(self._name, self._owner, seconds=LEASE_S)
        except PenstockError as error:  # replicas are served all the same: owners fence each other
            _logger.warning("the lease of this server cannot be renewed: %s", error)

    def release(self) -> None:
        """Release the lease."""
        with suppress(PenstockError):
            self._cpo.release(self._lease)


def _serve_metrics(parts: ExitStack, server: PlogServer, host: str, port: int) -> None:
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server  # noqa: PLC0415 - heavy
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415
    from prometheus_client.registry import Collector  # noqa: PLC0415

    from penstock.server._scrub_metrics import scrub_metrics  # noqa: PLC0415

    class PlogServerCollector(Collector):
        """The figures of a plog server."""

        def collect(self) -> Iterable[Metric]:
            """Return the figures of now."""
            appends, size = server.appended()
            partitions = server.folder.partitions().values()
            syncs = sum(partition.replicas.syncs.count for partition in partitions)
            name = "penstock_plog_server"
            yield GaugeMetricFamily(f"{name}_connections", "Open connections.", server.connections())
            yield GaugeMetricFamily(f"{name}_partitions", "Partitions with replicas here.", len(partitions))
            yield CounterMetricFamily(f"{name}_changes", "Changes made for clients.", appends)
            yield CounterMetricFamily(f"{name}_bytes", "Bytes that clients appended.", size)
            yield CounterMetricFamily(f"{name}_syncs", "Syncs that made changes durable.", syncs)
            yield from scrub_metrics(server.scrubber)

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(PlogServerCollector())
    listen(host, port, setting="--http").close()  # its error names the address
    http, thread = start_http_server(port, host, registry)
    parts.callback(thread.join)
    parts.callback(http.server_close)
    parts.callback(http.shutdown)


class PlogServerRow(NamedTuple):
    """A server of a registered cluster, whether it runs as far as the oracle knows, and what its group must repair.

    ``is_listed`` says whether an owner has looked through the servers of its group since they started, None if one of
    them does not run, or has no oracle; ``lost`` is the number of plogs of the group without any good replica.
    """

    address: str
    cluster: str
    group: str
    is_running: bool
    until: float
    under_replicated: int
    is_listed: bool | None
    lost: int
    scrub: ScrubRow | None

    @property
    def repair(self) -> int | None:
        """How many plogs of the group are to be repaired; None if none is known of, and that is not all of them."""
        return self.under_replicated or (0 if self.is_listed else None)


def plog_server_rows(cpo: Cpo) -> list[PlogServerRow]:
    """Return the plog servers of all clusters that an oracle knows, in the order of their groups."""
    listed = listed_groups(cpo)  # the rows of what a group lacks are there before
    scrubs = scrub_rows(cpo)
    last = sorted(cpo.leases(_PRESENCE), key=lambda lease: lease.expires)  # one may be of a folder that was deleted
    leases = {lease.owner.partition(" ")[0]: lease for lease in last}
    under_replicated = Counter(tuple(key.split("/")[2:4]) for key in cpo.keys("seal/"))
    rows = []
    for name in cpo.clusters():
        for group, servers in cpo.cluster(name).groups.items():
            count, views = under_replicated[name, group], listed.get((name, group), [])
            is_listed = _is_listed(views, [leases.get(address) for address in servers])
            lost = sum(view.lost for view in views)
            for address in servers:
                lease = leases.get(address)
                runs, until = lease is not None, 0.0 if lease is None else lease.expires
                scrub = scrubs.get((name, group, address))
                rows.append(PlogServerRow(address, name, group, runs, until, count, is_listed, lost, scrub))
    return rows


def _is_listed(views: list[ListedGroup], leases: list[Lease | None]) -> bool | None:
    running = [None if lease is None else lease.owner.rpartition(" ")[2] for lease in leases]
    for view in views:
        pairs = zip_longest(running, (instance.hex() for instance in view.instances))
        if any(now not in (None, before) for now, before in pairs):
            return False
    return None if None in running else bool(views)
