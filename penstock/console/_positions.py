"""Where a page of events begins: a cut, a time, a pointer, the head, the tail, or a little before the tail."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, LogError, NoSuchEvent, WrongCut
from penstock.model import EventPointer, StreamCut, shown
from penstock.stream.segment import block_at

if TYPE_CHECKING:
    from penstock.console._ports import ConsoleStore

__all__ = ["LATEST", "PAGE_BYTES", "bytes_between", "find_position", "latest_cut"]

LATEST: Final = "latest"
PAGE_BYTES: Final = 1 << 20  # that are read for a page of events
EVENTS_FEW: Final = 100  # that are shown from the head on, however large they are
_LATEST_BYTES: Final = 64 << 10
_LATEST_BYTES_MIN: Final = 4 << 10
_BACK_S: Final = (10, 60, 600, 3_600, 86_400)
_SEGMENTS_MAX: Final = 256  # a block of each is read
_ADVICE: Final = (
    "use head, latest, tail, a cut, a pointer, or a time: milliseconds since 1970, "
    "and on the page also 12:30 or 2026-11-20 12:30"
)


def find_position(store: ConsoleStore, name: str, text: str) -> StreamCut:
    """Return the cut that a text names; ``BadArgument`` if it names none of this stream."""
    if text == "head":
        return store.head(name)
    if text == "tail":
        return store.tail(name)
    if text == LATEST:
        return latest_cut(store, name)
    if text.isascii() and text.isdigit() and len(text) < 18:
        return store.cut_at_time(name, int(text), by="append")
    try:
        cut = StreamCut.parse(text)
    except BadArgument:
        raise BadArgument(f"invalid position {shown(text)}: {_ADVICE}") from None
    if cut.stream != name:
        raise BadArgument(f"invalid position {shown(text)}: it is in stream {cut.stream}, not in {name}")
    if len(cut.places) == 1:
        return _at_pointer(store, EventPointer(name, *cut.places[0]), cut)
    return cut


def _at_pointer(store: ConsoleStore, pointer: EventPointer, cut: StreamCut) -> StreamCut:
    """Return the cut that begins with an event, and elsewhere where events of its time begin.

    The one place of a cut may also be a cut by itself, in a stream with one segment.
    """
    try:
        with store.fetch_event_as_stream(pointer) as event:
            time_ms = event.timestamp
    except (NoSuchEvent, WrongCut):
        return cut
    around = store.cut_at_time(pointer.stream, time_ms, by="append")
    if pointer.segment_id not in around.offsets:
        return around
    exact = StreamCut.of(pointer.stream, around.offsets | {pointer.segment_id: pointer.offset})
    try:
        store.next_cut(pointer.stream, exact, max_events=1)
    except (WrongCut, NoSuchEvent):  # a large event begins before its pointer
        return around
    return exact


def bytes_between(store: ConsoleStore, name: str, start: StreamCut, end: StreamCut) -> int:
    """Return how many bytes lie between two cuts."""
    return sum(part.size for part in store.segment_ranges(name, start, end))


def latest_cut(store: ConsoleStore, name: str) -> StreamCut:
    """Return a cut a little before the tail: some kilobytes, if there are so many; the head if events are few."""
    info = store.stream(name)
    if info.events <= EVENTS_FEW:
        return info.head
    tail, head = info.tail, info.head.offsets
    offsets = dict(tail.places)
    share = max(1 << 10, _LATEST_BYTES // max(1, len(offsets)))
    for segment, end in tail.places[:_SEGMENTS_MAX]:
        with suppress(KeyError, LogError):  # it is truncated away meanwhile
            handle = store.segments.get(name, segment)
            low = max(head.get(segment, 0), handle.start)
            wanted = max(low, end - share)
            block = block_at(handle, wanted) if wanted < end else None
            offsets[segment] = end if block is None else max(low, handle.event_border(block.start))
    near = StreamCut.of(name, offsets)
    enough = sum(end - offsets[segment] for segment, end in tail.places) >= _LATEST_BYTES_MIN
    return near if enough else _before_scaling(store, name, near, tail)


def _before_scaling(store: ConsoleStore, name: str, near: StreamCut, tail: StreamCut) -> StreamCut:
    """Return a cut further back, where segments that take no more events have the latest ones."""
    now, found = store.clock.now(), near
    head = store.head(name)
    for cut in [*(store.cut_at_time(name, max(0, int((now - back) * 1000)), by="append") for back in _BACK_S), head]:
        size = bytes_between(store, name, cut, tail)
        if size > PAGE_BYTES:
            break
        found = cut
        if size >= _LATEST_BYTES_MIN:
            break
    return found
