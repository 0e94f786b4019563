"""A server of a cluster, as ``penstock cluster status`` shows it and as a server sends it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.errors import ServerError

__all__ = ["ClusterMember", "unpack_members"]


class ClusterMember(msgspec.Struct, frozen=True, array_like=True):
    """A server; what does not apply to its role is None. Times are milliseconds since 1970.

    An "unwritable" server is a plog server whose disk is full or fails.

    ``partition`` is what an owner owns, or the cluster and group of a plog server. ``repair`` is the number of plogs
    of its group that are known to lack a good replica, None if none is known of but not all servers of the group were
    looked through since they started; ``scrub`` the percentage of its replicas that the present scrub has read, and
    ``damaged`` the number of damaged ones that it has found and that are not replaced yet. ``note`` is what the owner
    of the store knows about it, such as why it refuses the owner; the oracle knows a part of that.
    """

    server: str
    role: Literal["owner", "standby", "plog-server", "unwritable", "away"]
    partition: str | None
    since: int | None = None
    until: int | None = None
    epoch: int | None = None
    repair: int | None = None
    scrub: int | None = None
    damaged: int | None = None
    note: str | None = None


def unpack_members(answer: Any) -> list[ClusterMember]:  # noqa: ANN401 - what a server sends is not believed
    """Check the answer of a server."""
    try:
        return msgspec.convert(answer, list[ClusterMember])
    except msgspec.ValidationError as error:
        raise ServerError("the server sent an invalid list of servers: is it a Penstock server?") from error
