"""The streams of a store at a glance, for ``penstock top``: rates, lag, watermarks and transactions of each.

A table that is asked for every second must not cost more than what it shows is worth, however many streams and groups
there are. So:

- only the rows that are sent are described in full;
- what all streams are sorted by is computed at most once a second, for all clients together;
- of this, lags and watermarks may read blocks: computing them ends after ``_PART_S``, and goes on where it ended a
  second later. Until then, the figures of the streams and groups that it did not come to stay as they were.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from penstock.console._rates import Rate, Rates
from penstock.console._readers import readers_of
from penstock.console._streams import describe
from penstock.console._times import held_back_by, time_of_stream
from penstock.errors import BadArgument, LogError, StreamError
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.console._ports import ConsoleStore, ConsoleUser, SeesGroups
    from penstock.model import Lag, StreamInfo

__all__ = ["FILTER_SIZE_MAX", "ORDERS", "ROWS_MAX", "Overviews", "overviews_of", "stream_figures"]

ROWS_MAX: Final = 200
FILTER_SIZE_MAX: Final = 256
ORDERS: Final = ("name", "events", "bytes", "time", "lag", "transactions")
T = TypeVar("T")
_EVERY_S: Final = 1.0
_PART_S: Final = 0.1  # for lags, and again for watermarks
_NOTHING: Final = Rate(0.0, 0.0)
_lock: Final = threading.Lock()
_overviews: Final[WeakKeyDictionary[ConsoleStore, Overviews]] = WeakKeyDictionary()


class _SortFigures(NamedTuple):
    """What streams are sorted by."""

    rates: Mapping[int, Rate] | None
    lags: Mapping[str, Lag]
    groups: Mapping[str, list[str]]  # by stream
    lowers: Mapping[str, int]
    transactions: Mapping[str, int]


class Overviews:
    """The overviews of one store, which is passed to each call: it is closed by others."""

    def __init__(self, rates: Rates, elapsed: Callable[[], float]) -> None:
        self.rates: Final = rates
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._at: float | None = None
        self._table: _SortFigures | None = None
        self._lags: _InParts[Lag] = _InParts(elapsed)
        self._lowers: _InParts[int] = _InParts(elapsed)

    def page(
        self,
        store: ConsoleStore,
        access: SeesGroups,
        user: ConsoleUser,
        *,
        contains: str = "",
        order: str = "name",
        first: int = 0,
        limit: int = ROWS_MAX,
    ) -> dict[str, Any]:
        """Return some of the streams that the user may read, from the ``first`` on, and figures of all of them."""
        if len(contains) > FILTER_SIZE_MAX:
            raise BadArgument(f"invalid filter of {len(contains)} characters: use at most {FILTER_SIZE_MAX}")
        table = self._newest(store)
        names = [name for name in store.stream_changes.names() if user.may("read", name)]
        found = [name for name in names if contains.lower() in name.lower()] if contains else names
        with store.catalog.lock:
            uids = {name: store.catalog.streams[name].uid for name in found if name in store.catalog.streams}
            seen = {name for name, state in store.catalog.groups.items() if access.may_see(user, state)}
        found = _sorted(table, found, uids, seen, order)
        first = min(first, max(0, len(found) - 1))
        infos = store.stream_changes.infos(found[first : first + min(limit, ROWS_MAX)])
        rates = [table.rates.get(uid, _NOTHING) for uid in uids.values()] if table.rates is not None else None
        now_ms = int(store.clock.now() * 1000)
        return {
            "now_ms": now_ms,
            "total": len(names),
            "found": len(found),
            "first": first,
            "rate": None if rates is None else [sum(rate.events for rate in rates), sum(rate.bytes for rate in rates)],
            "transactions": sum(table.transactions.get(name, 0) for name in found),
            "streams": [_row(store, table, info, seen, now_ms) for info in infos],
        }

    def _newest(self, store: ConsoleStore) -> _SortFigures:
        with self._lock:
            now = self._elapsed()
            if self._table is None or self._at is None or now - self._at >= _EVERY_S:
                self._at, self._table = now, self._computed(store)
            return self._table

    def _computed(self, store: ConsoleStore) -> _SortFigures:
        with store.catalog.lock:
            groups = {name: list(state.streams) for name, state in store.catalog.groups.items()}
            timed = [name for name, state in store.catalog.streams.items() if store.marks.has_marks(state.uid)]
        of_streams: dict[str, list[str]] = defaultdict(list)
        for group, streams in groups.items():
            for stream in streams:
                of_streams[stream].append(group)
        return _SortFigures(
            self.rates.of_streams(),
            self._lags.computed(groups, lambda group: store.reader_group(group).lag()),
            dict(of_streams),
            self._lowers.computed(timed, lambda name: _lower(store, name)),
            _transactions(store),
        )


class _InParts(Generic[T]):
    """Figures by name; each call computes as many of them anew as fit into ``_PART_S``, the oldest first."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._known: dict[str, T | None] = {}  # in the order in which they were computed

    def computed(self, names: Iterable[str], compute: Callable[[str], T | None]) -> dict[str, T]:
        """Return the figures that there are for these names; those of other names are forgotten."""
        wanted = dict.fromkeys(names)
        known = {name: figure for name, figure in self._known.items() if name in wanted}
        end = self._elapsed() + _PART_S
        for name in [*(wanted.keys() - known.keys()), *known]:
            known.pop(name, None)
            known[name] = None
            with suppress(StreamError, LogError, KeyError):  # it may have been deleted, or truncated, meanwhile
                known[name] = compute(name)
            if self._elapsed() > end:
                break
        self._known = known
        return {name: figure for name, figure in known.items() if figure is not None}


def overviews_of(store: ConsoleStore) -> Overviews:
    """Return the overviews of a store: the same for all clients, so that many of them cost what one does."""
    with _lock:
        found = _overviews.get(store)
        if found is None:
            elapsed = store.clock.elapsed
            found = _overviews[store] = Overviews(Rates(store.segments.at_work, elapsed), elapsed)
        return found


def stream_figures(
    store: ConsoleStore, rates: Rates, access: SeesGroups, user: ConsoleUser, name: str
) -> dict[str, Any]:
    """Return all that the pages of the console know of a stream, but its past and its events."""
    return {
        "stream": describe(store, rates, user, name),
        "time": time_of_stream(store, name),
        "readers": readers_of(store, access, user, name),
    }


def _lower(store: ConsoleStore, name: str) -> int | None:
    last = store.watermark(name)
    return None if last is None else last.lower


def _transactions(store: ConsoleStore) -> Counter[str]:
    """Count the open and the prepared transactions of each stream."""
    with store.catalog.lock:
        streams = {record.transaction: record.stream for record in store.catalog.prepared.values()}
        streams |= {found.id: found.stream for found in store.transactions.open.values()}
    return Counter(streams.values())


def _sorted(table: _SortFigures, names: list[str], uids: Mapping[str, int], seen: set[str], order: str) -> list[str]:
    """Return names with what an operator looks for first; of two that are alike, by name, as they come."""
    rates = table.rates or {}

    def key(name: str) -> float:
        match order:
            case "events":
                return -rates.get(uids.get(name, 0), _NOTHING).events
            case "bytes":
                return -rates.get(uids.get(name, 0), _NOTHING).bytes
            case "time":
                return table.lowers.get(name, math.inf)
            case "lag":
                slowest = _slowest(table, name, seen)
                return 0.0 if slowest is None else -table.lags[slowest].seconds
            case "transactions":
                return -table.transactions.get(name, 0)
        raise BadArgument(f"invalid order {shown(order)}: use {', '.join(ORDERS)}")

    return names if order == "name" else sorted(names, key=key)


def _slowest(table: _SortFigures, name: str, seen: set[str]) -> str | None:
    """Return the group that has the oldest unread event, of those that the user may see."""
    groups = [group for group in table.groups.get(name, ()) if group in seen and group in table.lags]
    return max(groups, key=lambda group: (table.lags[group].seconds, table.lags[group].bytes), default=None)


def _row(store: ConsoleStore, table: _SortFigures, info: StreamInfo, seen: set[str], now_ms: int) -> dict[str, Any]:
    rate = None if table.rates is None else table.rates.get(info.uid, _NOTHING)
    slowest = _slowest(table, info.name, seen)
    row: dict[str, Any] = {
        "name": info.name,
        "state": info.state,
        "segments": len(info.segments),
        "events": info.events,
        "size_bytes": info.size_bytes,
        "rate": None if rate is None else [rate.events, rate.bytes],
        "time_behind_s": None,
        "held_back_by": None,
        "group": slowest,
        "lag": None,
        "transactions": table.transactions.get(info.name, 0),
    }
    if slowest is not None:
        lag = table.lags[slowest]
        row["lag"] = [lag.events, lag.bytes, lag.seconds]
    with suppress(StreamError, LogError):  # it was deleted meanwhile
        last = store.watermark(info.name)
        if last is not None:
            row["time_behind_s"] = max(0.0, (now_ms - last.lower) / 1000)
            row["held_back_by"] = held_back_by(store, info.uid, last)
    return row
