"""Streams as FutoIn event streams (FTN18): events are added, polled and pushed over HTTP and WebSockets.

A FutoIn stream is an ordinary stream with one segment: reader groups and Spark read the same events. The id of an event
is the place just after it. Here are the clients; a server is made of what :mod:`penstock.events.serving` has. A name is
imported at first use: the clients need packages that a program without them does not have.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.events._clients import Generator, PollClient
    from penstock.events._event import Event, WireEvent, checked_component, checked_want
    from penstock.events._functions import LIVE
    from penstock.events._receivers import LiveReceiver, PositionFile, PushClient, ReliableReceiver
    from penstock.events._store_events import StoreEvents
    from penstock.events.consumers import Consumer

__all__ = [
    "LIVE",
    "Consumer",
    "Event",
    "Generator",
    "LiveReceiver",
    "PollClient",
    "PositionFile",
    "PushClient",
    "ReliableReceiver",
    "StoreEvents",
    "WireEvent",
    "checked_component",
    "checked_want",
]

_MODULES: Final = {
    "LIVE": "_functions",
    "Consumer": "consumers",
    "Event": "_event",
    "Generator": "_clients",
    "LiveReceiver": "_receivers",
    "PollClient": "_clients",
    "PositionFile": "_receivers",
    "PushClient": "_receivers",
    "ReliableReceiver": "_receivers",
    "StoreEvents": "_store_events",
    "WireEvent": "_event",
    "checked_component": "_event",
    "checked_want": "_event",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
