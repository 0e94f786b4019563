"""The streams that a user may read, a page of them at a time, and what there is to know of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from penstock.console._rates import Rate
from penstock.errors import BadArgument
from penstock.model import ByConsumption, ByDataRate, ByEventRate, BySize, ByTime, shown

if TYPE_CHECKING:
    from penstock.console._ports import ConsoleStore, ConsoleUser
    from penstock.console._rates import Rates
    from penstock.model import StreamConfig, StreamInfo

__all__ = ["PAGE_SIZE", "StreamList", "describe", "stream_page"]

PAGE_SIZE: Final = 50
_FILTER_SIZE_MAX: Final = 256

_Order = Literal["name", "rate"]
_PERMISSIONS: Final = ("read", "consume", "write", "admin")


class StreamList(msgspec.Struct, kw_only=True):
    """A page of streams; ``total`` are those that the user may read, ``found`` those of them that were asked for."""

    streams: list[dict[str, Any]]
    total: int
    found: int
    page: int
    pages: int


def stream_page(
    store: ConsoleStore, rates: Rates, user: ConsoleUser, *, contains: str = "", page: int = 1, order: str = "name"
) -> StreamList:
    """Return a page of the streams whose names contain a text; only those of the page are described."""
    if len(contains) > _FILTER_SIZE_MAX:
        raise BadArgument(f"invalid filter of {len(contains)} characters: use at most {_FILTER_SIZE_MAX}")
    names = [name for name in store.stream_changes.names() if user.may("read", name)]
    found = [name for name in names if contains.lower() in name.lower()] if contains else names
    of_streams = rates.of_streams()
    if order == "rate":
        found = _busiest_first(store, found, of_streams or {})
    elif order != "name":
        raise BadArgument(f"invalid order {shown(order)}: use name or rate")
    pages = max(1, -(-len(found) // PAGE_SIZE))
    page = min(max(1, page), pages)
    chosen = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    described = [_row(info, of_streams) for info in store.stream_changes.infos(chosen)]
    return StreamList(streams=described, total=len(names), found=len(found), page=page, pages=pages)


def _busiest_first(store: ConsoleStore, names: list[str], rates: dict[int, Rate]) -> list[str]:
    with store.catalog.lock:
        uids = {name: store.catalog.streams[name].uid for name in names if name in store.catalog.streams}
    events = {name: rates[uid].events for name, uid in uids.items() if uid in rates}
    return sorted(names, key=lambda name: (-events.get(name, 0.0), name))


def _row(info: StreamInfo, rates: dict[int, Rate] | None) -> dict[str, Any]:
    rate = None if rates is None else rates.get(info.uid, Rate(0.0, 0.0))
    return {
        "name": info.name,
        "state": info.state,
        "segments": len(info.segments),
        "events": info.events,
        "size_bytes": info.size_bytes,
        "retention": in_words(info.config),
        "tags": list(info.config.tags),
        "rate": None if rate is None else rate._asdict(),
    }


def describe(store: ConsoleStore, rates: Rates, user: ConsoleUser, name: str) -> dict[str, Any]:
    """Return what there is to know of a stream, and what the user may do with it."""
    info = store.stream(name)
    with store.catalog.lock:
        owner = store.catalog.open_stream(name).owner
    config = info.config
    return _row(info, rates.of_streams()) | {
        "uid": str(info.uid),
        "epoch": info.epoch,
        "owner": owner,
        "head": str(info.head),
        "tail": str(info.tail),
        "scaling": _scaling_in_words(config),
        "keep_keys": config.keep_keys,
        "aggregation_timeout_s": config.timestamp_aggregation_timeout,
        "may": [permission for permission in _PERMISSIONS if user.may(permission, name)],
        "now_ms": int(store.clock.now() * 1000),
    }


def in_words(config: StreamConfig) -> str:
    """Return the retention of a stream for people to read."""
    match config.retention:
        case ByTime(seconds):
            return f"{_duration(seconds)}"
        case BySize(size):
            return f"{_size(size)}"
        case ByConsumption():
            return "until consumed"
    return "unlimited"


def _scaling_in_words(config: StreamConfig) -> str:
    match config.scaling:
        case ByEventRate(target, factor, least):
            return f"above {target:g} events/s, by {factor}, at least {least}"
        case ByDataRate(target, factor, least):
            return f"above {_size(target)}/s, by {factor}, at least {least}"
    return "fixed"


def _duration(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def _size(size: float) -> str:
    for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g} {name}"
    return f"{size:g} B"
