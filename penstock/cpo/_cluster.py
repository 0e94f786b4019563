"""The persistence cluster: which groups of plog servers there are under a name.

Stored under ``cluster/NAME`` as one MessagePack map, sorted by group::

    group    str           the group's name, as in a plog id
    servers  array of str  the addresses of its servers, in the order they were given
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.cpo._limits import OWNER_SIZE_MAX, check_text
from penstock.errors import BadArgument
from penstock.model import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_decoder: Final = msgspec.msgpack.Decoder(dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class PersistenceCluster:
    """A name and its groups: group name to server addresses. Equal if both are, whatever order the groups have."""

    name: str
    groups: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, name: str, groups: Mapping[str, Sequence[str]]) -> PersistenceCluster:
        """Check what a caller gave, and freeze it."""
        check_name("cluster", name)
        if not groups:
            raise BadArgument(f"cluster {name!r} has no groups: give each group's name and its servers' addresses")
        return cls(name, MappingProxyType({group: _servers(group, servers) for group, servers in groups.items()}))


def _servers(group: str, servers: Sequence[str]) -> tuple[str, ...]:
    check_name("group", group)
    if isinstance(servers, str) or not servers:
        raise BadArgument(f"group {group!r} has {servers!r} for servers: give a list of one address or more")
    for server in servers:
        check_text("server address", server, size_max=OWNER_SIZE_MAX)
    if len(set(servers)) < len(servers):
        raise BadArgument(f"group {group!r} names a server twice: two copies on one server are one copy")
    return tuple(servers)


def encode(cluster: PersistenceCluster) -> bytes:
    """Return the stored form; the name is the row's key."""
    return msgspec.msgpack.encode(dict(cluster.groups), order="deterministic")


def decode(name: str, value: bytes) -> PersistenceCluster:
    """Read what :func:`encode` wrote."""
    return PersistenceCluster(name, MappingProxyType(_decoder.decode(value)))
