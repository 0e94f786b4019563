"""The calls that only show something, each with the permission that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.console._events import event_page, one_event
from penstock.console._health import cluster_of, health_of
from penstock.console._readers import readers_of
from penstock.console._segments import segment_picture
from penstock.console._streams import describe, stream_page
from penstock.console._times import time_of_stream
from penstock.errors import BadArgument
from penstock.model import EventPointer, check_stream_name, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.console._mark_history import MarkHistory
    from penstock.console._ports import Access, ConsoleStore, ConsoleUser, ServerFigures
    from penstock.console._rates import Rates

__all__ = ["CALLS"]

_PAGE_MAX: Final = 1_000_000


class _Served(Protocol):
    """The console that is called."""

    @property
    def store(self) -> ConsoleStore: ...
    @property
    def access(self) -> Access: ...
    @property
    def server(self) -> ServerFigures: ...
    @property
    def rates(self) -> Rates: ...
    @property
    def history(self) -> MarkHistory: ...


def _readable(served: _Served, user: ConsoleUser, query: Mapping[str, str]) -> str:
    """Return the stream that a call is about, which the user may read, whether or not it exists."""
    name = query.get("name", "")
    check_stream_name(name)
    served.access.check(user, "read", name)
    return name


def _whole(query: Mapping[str, str], argument: str, default: int) -> int:
    text = query.get(argument, str(default))
    if not (text.isascii() and text.isdigit()) or not 1 <= len(text) <= 7 or not 1 <= int(text) <= _PAGE_MAX:
        raise BadArgument(f"invalid {argument} {shown(text)}: use a number from 1 to {_PAGE_MAX}")
    return int(text)


def _flag(query: Mapping[str, str], argument: str) -> bool:
    text = query.get(argument, "0")
    if text not in {"0", "1"}:
        raise BadArgument(f"invalid {argument} {shown(text)}: use 0 or 1")
    return text == "1"


def _streams(served: _Served, user: ConsoleUser, query: Mapping[str, str]) -> object:
    return stream_page(
        served.store,
        served.rates,
        user,
        contains=query.get("filter", ""),
        page=_whole(query, "page", 1),
        order=query.get("order", "name"),
    )


def _events(served: _Served, user: ConsoleUser, query: Mapping[str, str]) -> object:
    name = _readable(served, user, query)
    start, key = query.get("start", "latest"), query.get("key", "")
    return event_page(served.store, name, start=start, key=key, follow=_flag(query, "follow"))


def _event(served: _Served, user: ConsoleUser, query: Mapping[str, str]) -> object:
    pointer = EventPointer.parse(query.get("pointer", ""))
    served.access.check(user, "read", pointer.stream)
    return one_event(served.store, pointer)


def _cluster(served: _Served, user: ConsoleUser, _: Mapping[str, str]) -> object:
    served.access.check(user, "read", "*")
    return cluster_of(served.server)


def _users(served: _Served, user: ConsoleUser, _: Mapping[str, str]) -> dict[str, Any]:
    served.access.check(user, "admin", "*")
    listed = [] if served.access.is_anonymous else served.access.users()
    return {
        "users": [
            {"name": name, "grants": [{"permission": permission, "pattern": pattern} for permission, pattern in grants]}
            for name, grants in listed
        ]
    }


CALLS: Final[dict[str, Callable[[_Served, ConsoleUser, Mapping[str, str]], object]]] = {
    "streams": _streams,
    "stream": lambda served, user, query: describe(served.store, served.rates, user, _readable(served, user, query)),
    "segments": lambda served, user, query: segment_picture(served.store, served.rates, _readable(served, user, query)),
    "time": lambda served, user, query: time_of_stream(
        served.store, _readable(served, user, query), history=served.history if _flag(query, "past") else None
    ),
    "readers": lambda served, user, query: readers_of(
        served.store, served.access, user, _readable(served, user, query)
    ),
    "events": _events,
    "event": _event,
    "health": lambda served, user, _: health_of(served.store, served.rates, served.server, user),
    "cluster": _cluster,
    "users": _users,
}
"""The calls, by their path."""
