"""Streams as FutoIn event streams (FTN18): events are added, polled and pushed over HTTP and WebSockets.

A FutoIn stream is an ordinary stream with one segment: reader groups and Spark read the same events. The id of an event
is the place just after it. :class:`EventService` does what a server is called for, :class:`Peer` speaks for one peer.
"""

from penstock.events._clients import Generator, PollClient
from penstock.events._event import Component, Event, WireEvent
from penstock.events._filter import load_filter
from penstock.events._functions import LIVE
from penstock.events._mac import MAC_SCHEMES, answer_mac, mac_matches
from penstock.events._peer import Peer, answer_http, too_large
from penstock.events._receivers import LiveReceiver, PositionFile, PushClient, ReliableReceiver
from penstock.events._registrations import PREFIX as CONSUMER_PREFIX
from penstock.events._registrations import Consumer
from penstock.events._service import Caller, EventService
from penstock.events._store_events import StoreEvents

__all__ = [
    "CONSUMER_PREFIX",
    "LIVE",
    "MAC_SCHEMES",
    "Caller",
    "Component",
    "Consumer",
    "Event",
    "EventService",
    "Generator",
    "LiveReceiver",
    "Peer",
    "PollClient",
    "PositionFile",
    "PushClient",
    "ReliableReceiver",
    "StoreEvents",
    "WireEvent",
    "answer_http",
    "answer_mac",
    "load_filter",
    "mac_matches",
    "too_large",
]
