"""The store over the wire: the same streams, writers and readers, of a store that another process has open."""

from penstock.client._address import ServerFinder
from penstock.client._cluster import ask_for_members
from penstock.client._objects import open_objects
from penstock.client._overview import remote_figures, remote_overview
from penstock.client._servers import find_server
from penstock.client._store import RemoteStore

__all__ = [
    "RemoteStore",
    "ServerFinder",
    "ask_for_members",
    "find_server",
    "open_objects",
    "remote_figures",
    "remote_overview",
]
