"""The persistence cluster: a name for groups of plog servers.

Stored under ``cluster/NAME`` as one MessagePack map, sorted by group::

    group    str           the group's name, as in a plog id
    servers  array of str  the addresses of its servers, in the order of registration
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.cpo._limits import OWNER_SIZE_MAX, check_text
from penstock.errors import BadArgument, ClusterExists
from penstock.model import canonical_address, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_decoder: Final = msgspec.msgpack.Decoder(dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class PersistenceCluster:
    """A name and its groups, from group name to server addresses; the order of the groups does not matter."""

    name: str
    groups: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, name: str, groups: Mapping[str, Sequence[str]]) -> PersistenceCluster:
        """Check the caller's arguments, and return a frozen cluster."""
        check_name("cluster", name)
        if not groups:
            raise BadArgument(f"invalid cluster {name!r} without groups: use one group or more with its servers")
        checked = {group: _servers(group, servers) for group, servers in groups.items()}
        twice = _named_twice([server for servers in checked.values() for server in servers])
        if twice is not None:
            raise BadArgument(f"invalid cluster {name!r}: server {twice} is in two groups, and can serve one of them")
        return cls(name, MappingProxyType(checked))

    def with_group(self, group: str, servers: Sequence[str]) -> PersistenceCluster:
        """Return the cluster with one more group; ``ClusterExists`` if it has one of this name with other servers."""
        if self.groups.get(group, tuple(servers)) != tuple(servers):
            raise ClusterExists(self.name, group=group)
        return self.of(self.name, {**self.groups, group: servers})

    def group_of(self, server: str) -> str:
        """Return the group that a server is in."""
        for group, servers in self.groups.items():
            if server in servers:
                return group
        known = ", ".join(server for servers in self.groups.values() for server in servers)
        raise BadArgument(f"cluster {self.name} has no server {server!r}: use one of {known}")

    def with_server(self, new: str, *, in_place_of: str) -> PersistenceCluster:
        """Return the cluster with a server in the place of another one."""
        group = self.group_of(in_place_of)
        if canonical_address(new) == canonical_address(in_place_of):
            raise BadArgument(f"server {in_place_of} cannot take its own place: name the new server by another address")
        servers = [new if server == in_place_of else server for server in self.groups[group]]
        return self.of(self.name, {**self.groups, group: servers})


def _servers(group: str, servers: Sequence[str]) -> tuple[str, ...]:
    check_name("group", group)
    if isinstance(servers, str) or not servers:
        raise BadArgument(f"invalid servers {servers!r} of group {group!r}: use a list of at least one address")
    for server in servers:
        check_text("server address", server, size_max=OWNER_SIZE_MAX)
    twice = _named_twice(servers)
    if twice is not None:
        raise BadArgument(f"invalid servers of group {group!r}: name {twice} once, as each server holds a copy")
    return tuple(servers)


def _named_twice(servers: Sequence[str]) -> str | None:
    """Return a server that is named twice, if there is one, with both spellings if they differ."""
    known: dict[str, str] = {}
    for server in servers:
        address = canonical_address(server)
        if address in known:
            return server if known[address] == server else f"{server}, which is {known[address]},"
        known[address] = server
    return None


def encode(cluster: PersistenceCluster) -> bytes:
    """Return the stored form; the name is the row's key."""
    return msgspec.msgpack.encode(dict(cluster.groups), order="deterministic")


def decode(name: str, value: bytes) -> PersistenceCluster:
    """Decode the stored form."""
    return PersistenceCluster(name, MappingProxyType(_decoder.decode(value)))
