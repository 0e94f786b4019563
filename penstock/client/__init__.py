"""The store over the wire: the same streams, writers and readers, of a store that another process has open."""

from penstock.client._address import ServerFinder
from penstock.client._group import RemoteGroup
from penstock.client._store import RemoteStore
from penstock.stream import Engine

__all__ = ["RemoteGroup", "RemoteStore", "ServerFinder", "Store"]

Store = Engine | RemoteStore
"""A store, in this process or in another."""
