"""How plogs on three servers are opened: a group by the addresses of its servers, or a cluster that an oracle knows.

The epoch of the new owner comes from the oracle, which counts it. Without one, it is one above the highest that the
servers have seen, and all three have to answer.
"""

from __future__ import annotations

import os
import secrets
import ssl
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, GroupUnavailable
from penstock.model import shown, split_address
from penstock.plog.replicated._deployment import deployment_of
from penstock.plog.replicated._link import ServerAccess, open_session
from penstock.plog.replicated._messages import PROTOCOL, Hello
from penstock.plog.replicated._plogs import ReplicatedPlogs
from penstock.plog.replicated._rows import OracleRows
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cpo import Cpo

__all__ = ["access_from", "open_cluster_plogs", "open_group_plogs"]

_CLUSTER: Final = "local"
_GROUP: Final = "main"
_PARTITION: Final = "main"


def access_from(environ: Mapping[str, str]) -> ServerAccess:
    """Return how to be let in by plog servers, from ``PENSTOCK_PLOG_USER``, ``_PASSWORD``, ``_TOKEN`` and ``_CA``.

    A token travels as a password without a user: it says by itself whose it is.
    """
    tls, user, password = None, environ.get("PENSTOCK_PLOG_USER", ""), environ.get("PENSTOCK_PLOG_PASSWORD", "")
    token = environ.get("PENSTOCK_PLOG_TOKEN", "")
    if token and (user or password):
        raise BadArgument("PENSTOCK_PLOG_TOKEN and PENSTOCK_PLOG_USER contradict each other: leave one of them out")
    authority = environ.get("PENSTOCK_PLOG_CA")
    if authority:
        try:
            tls = ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise BadArgument(f"cannot read the certificates in {authority} (PENSTOCK_PLOG_CA): {error}") from error
    return ServerAccess(user, password or token, tls)


def open_group_plogs(
    servers: str, *, partition: str = _PARTITION, access: ServerAccess | None = None
) -> ReplicatedPlogs:
    """Open the plogs of one group, given as ``host:port,host:port,host:port``, and take them over."""
    addresses = tuple(servers.split(","))
    for address in addresses:
        if split_address(address) is None:
            raise BadArgument(f"invalid address {shown(address)} of a plog server: use host:port")
    if len(addresses) != REPLICAS:
        raise BadArgument(
            f"invalid group of {len(addresses)} servers {servers!r}: name three, host:port,host:port,host:port"
        )
    access = access or access_from(os.environ)
    epoch = 1 + max(_epoch_of(address, partition, access) for address in addresses)
    groups = {_GROUP: addresses}
    return ReplicatedPlogs(_CLUSTER, groups, partition=partition, epoch=epoch, rows=None, access=access)


def _epoch_of(address: str, partition: str, access: ServerAccess) -> int:
    hello = Hello(PROTOCOL, _CLUSTER, _GROUP, partition, None, secrets.token_bytes(16), 1, access.user, access.password)
    try:
        connection, welcome = open_session(address, hello, access)
    except OSError as error:
        raise GroupUnavailable(_GROUP, reason=f"server {address} does not answer ({error})") from error
    connection.close()
    return welcome.epoch


def open_cluster_plogs(
    name: str, cpo: Cpo, *, partition: str = _PARTITION, access: ServerAccess | None = None
) -> ReplicatedPlogs:
    """Open the plogs of a partition on a cluster that is registered in an oracle, and take them over."""
    groups, deployment = cpo.cluster(name).groups, deployment_of(cpo)
    rows = OracleRows(cpo, cluster=name, partition=partition)
    access = access or access_from(os.environ)
    return ReplicatedPlogs(
        name, groups, partition=partition, epoch=rows.lease.epoch, rows=rows, access=access, deployment=deployment
    )
