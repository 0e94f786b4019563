"""Where a query starts and stops: the value of an option as a cut of each stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadArgument, WrongCut
from penstock.model import Position, StreamCut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock import Store
    from penstock.spark._options import Place, SourceOptions

__all__ = ["check_order", "cut_at", "cuts_of", "streams_of"]


def streams_of(store: Store, options: SourceOptions) -> tuple[str, ...]:
    """Return the streams to read: those that are named, or those that exist now and match the pattern."""
    if options.pattern is None:
        return options.streams
    return tuple(sorted(info.name for info in store.streams() if options.pattern.fullmatch(info.name)))


def cuts_of(store: Store, streams: Iterable[str], place: Place, *, option: str) -> dict[str, StreamCut]:
    """Return the cut of each stream at the position of the option ``start`` or ``end``."""
    names = tuple(streams)
    others = [cut.stream for cut in place.cuts if cut.stream not in names] if isinstance(place, Position) else []
    if others:
        raise BadArgument(f"the option {option!r} has a cut of stream {others[0]!r}, which is not read here")
    return {name: cut_at(store, name, place, at_end=option == "end") for name in names}


def cut_at(store: Store, stream: str, place: Place, *, at_end: bool = False) -> StreamCut:
    """Return the cut of a stream at a position; by default the head of the stream, or ``at_end`` its tail."""
    match place:
        case "earliest":
            return store.head(stream)
        case "latest":
            return store.tail(stream)
        case int():
            return store.cut_at_time(stream, place, by="append")
    for cut in place.cuts:
        if cut.stream == stream:
            return _completed(store, cut, at_end=at_end)
    return store.tail(stream) if at_end else store.head(stream)


def _completed(store: Store, cut: StreamCut, *, at_end: bool) -> StreamCut:
    """Add the segments that a cut omits, so that they are read completely."""
    head, tail = store.head(cut.stream).offsets, store.tail(cut.stream).offsets
    rest: tuple[Mapping[int, int], ...] = (tail,) if at_end else (head, dict.fromkeys(tail, 0))
    for offsets in ({}, *rest):
        found = StreamCut.of(cut.stream, {**offsets, **cut.offsets})
        try:
            store.next_cut(cut.stream, found, found, skip_truncated=True)
        except WrongCut:
            continue
        return found
    return cut  # the store refuses it with its own error


def check_order(store: Store, start: StreamCut, end: StreamCut) -> None:
    """Refuse a start after the end: a result without rows would look like a stream without events."""
    store.segment_ranges(start.stream, start, end)  # which does so
