"""Where a query begins and ends: what an option says, as a cut of each stream."""

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
    """Return the streams that are read: those that are named, or those there are now that match the pattern."""
    if options.pattern is None:
        return options.streams
    return tuple(sorted(info.name for info in store.streams() if options.pattern.fullmatch(info.name)))


def cuts_of(store: Store, streams: Iterable[str], place: Place, *, option: str) -> dict[str, StreamCut]:
    """Return the cut of each stream at a place that the option ``start`` or ``end`` names."""
    names = tuple(streams)
    others = [cut.stream for cut in place.cuts if cut.stream not in names] if isinstance(place, Position) else []
    if others:
        raise BadArgument(f"the option {option!r} has a cut of stream {others[0]!r}, which is not read here")
    return {name: cut_at(store, name, place, at_end=option == "end") for name in names}


def cut_at(store: Store, stream: str, place: Place, *, at_end: bool = False) -> StreamCut:
    """Return the cut of a stream at a place; what that leaves open is the stream's head, or ``at_end`` its tail."""
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
    """Return a cut with the segments that it leaves out: whole in a start, and whole in an end, too."""
    head, tail = store.head(cut.stream).offsets, store.tail(cut.stream).offsets
    rest: tuple[Mapping[int, int], ...] = (tail,) if at_end else (head, dict.fromkeys(tail, 0))
    for offsets in ({}, *rest):
        found = StreamCut.of(cut.stream, {**offsets, **cut.offsets})
        try:
            store.next_cut(cut.stream, found, found, skip_truncated=True)
        except WrongCut:
            continue
        return found
    return cut  # whoever uses it is told what is wrong with it


def check_order(store: Store, start: StreamCut, end: StreamCut) -> None:
    """Refuse a start behind the end: nothing lies between them, and no rows would look like no events."""
    store.segment_ranges(start.stream, start, end)  # which does so
