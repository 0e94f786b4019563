"""Watermarks of a stream against the wall clock, and the writers that they are made of."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.console._mark_history import slowest_first
from penstock.errors import LogError, NoSuchStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.console._mark_history import MarkHistory
    from penstock.console._ports import ConsoleStore
    from penstock.model import Watermark
    from penstock.stream.catalog import StreamState

__all__ = ["held_back_by", "time_of_stream"]

_SPAN_MS: Final = 600_000  # of the stream's own time, that is looked back
_POINTS_MAX: Final = 60  # of the past: a block of some segments is read for each
_PLACES_MAX: Final = 16  # segments of a cut that are looked at
_WRITERS_MAX: Final = 200  # the slowest
_HOLDS_BACK_S: Final = 3.0  # of silence: the slowest writer of several is always behind the others


def time_of_stream(store: ConsoleStore, name: str, *, history: MarkHistory | None = None) -> dict[str, Any]:
    """Return the last watermark and the marks of its writers, slowest first; with ``history``, those before, too."""
    with store.catalog.lock:
        state = store.catalog.open_stream(name)
    last = store.watermark(name)
    return {
        "now_ms": int(store.clock.now() * 1000),
        "timeout_s": state.config.timestamp_aggregation_timeout,
        "last": None if last is None else {"lower": last.lower, "upper": last.upper},
        **_writers(store, state, last, history),
        "past": [] if history is None or last is None else _past(store, name, state, last),
    }


def held_back_by(store: ConsoleStore, uid: int, last: Watermark) -> tuple[str, float] | None:
    """Return the writer that the watermark of a stream waits for, with the seconds of its silence; None if none is."""
    found = [row for row in _writer_rows(store, uid, last) if row["holds_back"]]
    return (found[0]["writer"], found[0]["silent_s"]) if found else None


def _writers(
    store: ConsoleStore, state: StreamState, last: Watermark | None, history: MarkHistory | None
) -> dict[str, Any]:
    rows = _writer_rows(store, state.uid, last)
    shown = rows[:_WRITERS_MAX]
    if history is not None:
        shown = [{**row, "past": history.of(state.uid, row["writer"])} for row in shown]
    return {"writers": shown, "writers_total": len(rows)}


def _writer_rows(store: ConsoleStore, uid: int, last: Watermark | None) -> list[dict[str, Any]]:
    marks, silences = store.marks.of(uid), store.marks.silences(uid)
    slowest = min((mark.time for mark in marks.values() if mark.is_open), default=None)
    ahead = last is not None and any(mark.is_open and mark.time > last.lower for mark in marks.values())
    return [
        {
            "writer": writer,
            "time": mark.time,
            "open": mark.is_open,
            "silent_s": silences.get(writer),
            "slowest": mark.is_open and mark.time == slowest,
            "holds_back": mark.is_open
            and ahead
            and last is not None
            and mark.time <= last.lower
            and silences.get(writer, 0.0) >= _HOLDS_BACK_S,
        }
        for writer, mark in sorted(marks.items(), key=slowest_first)
    ]


def _past(store: ConsoleStore, name: str, state: StreamState, last: Watermark) -> list[dict[str, int]]:
    found = store.watermarks(name, start=max(0, last.lower - _SPAN_MS))
    every = max(1, -(-len(found) // _POINTS_MAX))
    thinned = found[::-1][::every][::-1]  # with the last one
    points = []
    for watermark in thinned:
        wall_ms = _appended_before(store, state, watermark.cut.places)
        if wall_ms is not None:
            points.append({"wall_ms": wall_ms, "lower": watermark.lower, "upper": watermark.upper})
    return points


def _appended_before(store: ConsoleStore, state: StreamState, places: Sequence[tuple[int, int]]) -> int | None:
    """Return when the last event before a cut was appended: about when its watermark was made."""
    times = []
    for segment, offset in islice(places, _PLACES_MAX):
        with suppress(KeyError, NoSuchStream, LogError):  # it is truncated away, or its stream is deleted
            handle = store.segments.of(state, segment)
            if handle.start < offset <= handle.tail:
                times.append(handle.time_at(offset - 1))
    return max(times, default=None)
