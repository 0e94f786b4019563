"""The status of the cluster of a store, as its owner knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire import unpack_members
from penstock.wire.operations import clusters

if TYPE_CHECKING:
    from penstock.client._store import RemoteStore
    from penstock.wire import ClusterMember

__all__ = ["ask_for_members"]


def ask_for_members(store: RemoteStore) -> list[ClusterMember]:
    """Return the servers of the store, and its plog servers; the user needs the permission to read all streams."""
    return unpack_members(store.connection.call(clusters.ClusterStatus()))
