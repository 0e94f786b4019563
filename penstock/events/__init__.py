"""Streams as FutoIn event streams (FTN18): events are added, polled and pushed over HTTP and WebSockets.

A FutoIn stream is an ordinary stream with one segment: reader groups and Spark read the same events. The id of an event
is the place just after it. :class:`Service` does what a server is called for, :class:`Connection` speaks for one peer.
"""

from penstock.events._clients import Generator, PollClient
from penstock.events._connection import Authenticate, Connection, answer_http
from penstock.events._errors import FutoinError
from penstock.events._event import Event
from penstock.events._receivers import LiveReceiver, PositionFile, PushClient, ReliableReceiver
from penstock.events._service import Caller, Service

__all__ = [
    "Authenticate",
    "Caller",
    "Connection",
    "Event",
    "FutoinError",
    "Generator",
    "LiveReceiver",
    "PollClient",
    "PositionFile",
    "PushClient",
    "ReliableReceiver",
    "Service",
    "answer_http",
]
