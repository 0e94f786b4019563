"""The server: a store, open to other processes and machines.

:func:`run` serves a store over Arrow Flight, with users, TLS, health and metrics, until a signal ends it.
:class:`FlightService` is the data plane alone; the owner of a folder starts one for other processes of its machine.
A name is imported at first use: commands that only need a few of them stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.server._addresses import listen
    from penstock.server._cluster_status import cluster_members
    from penstock.server._config import Config, load_config
    from penstock.server._local_cluster import local_cluster
    from penstock.server._plog_server import PlogServerSettings, run_plog_server
    from penstock.server._run import Server, run
    from penstock.server._service import FlightService
    from penstock.server._tls import load_certificate
    from penstock.server._users import USERS_FILE, Users

__all__ = [
    "USERS_FILE",
    "Config",
    "FlightService",
    "PlogServerSettings",
    "Server",
    "Users",
    "cluster_members",
    "listen",
    "load_certificate",
    "load_config",
    "local_cluster",
    "run",
    "run_plog_server",
]

_MODULES: Final = {
    "USERS_FILE": "_users",
    "Config": "_config",
    "FlightService": "_service",
    "PlogServerSettings": "_plog_server",
    "Server": "_run",
    "Users": "_users",
    "cluster_members": "_cluster_status",
    "listen": "_addresses",
    "load_certificate": "_tls",
    "load_config": "_config",
    "local_cluster": "_local_cluster",
    "run": "_run",
    "run_plog_server": "_plog_server",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
