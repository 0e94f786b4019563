"""What a server of FutoIn is made of: :class:`EventService` carries out calls, :class:`Peer` is one connection."""

from penstock.events._filter import load_filter
from penstock.events._mac import MAC_SCHEMES, answer_mac, mac_matches
from penstock.events._peer import Peer, answer_http, too_large
from penstock.events._service import Caller, EventService
from penstock.events._sizes import SMALL_MESSAGE

__all__ = [
    "MAC_SCHEMES",
    "SMALL_MESSAGE",
    "Caller",
    "EventService",
    "Peer",
    "answer_http",
    "answer_mac",
    "load_filter",
    "mac_matches",
    "too_large",
]
