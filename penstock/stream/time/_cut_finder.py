"""The cut of a stream at a place that a user gives: a cut, a time, the head or the tail."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from penstock.errors import BadArgument
from penstock.model import StreamCut, as_time, check_append_time, shown

if TYPE_CHECKING:
    from penstock.model import Place
    from penstock.stream.catalog import Catalog
    from penstock.stream.segment import Cuts
    from penstock.stream.time._watermarks import Watermarks

__all__ = ["CutFinder"]


class CutFinder:
    """Finds cuts by time, in the order in which events were appended or by the writers' own watermarks."""

    def __init__(self, catalog: Catalog, cuts: Cuts, watermarks: Watermarks) -> None:
        self._catalog, self._cuts, self._watermarks = catalog, cuts, watermarks

    def find(self, what: str, name: str, place: Place) -> StreamCut:
        """Return a place of a stream as a cut: a time is where what was appended then, or later, begins."""
        if isinstance(place, StreamCut):
            self._cuts.check(place, stream=name)
            return place
        if isinstance(place, str) and place in {"head", "tail"}:
            return self._cuts.head(name) if place == "head" else self._cuts.tail(name)
        if not isinstance(place, int | datetime) or isinstance(place, bool):
            places = "a StreamCut, 'head', 'tail', a datetime, or whole milliseconds since 1970"
            raise BadArgument(f"invalid {what} {shown(place)}: use {places}")
        time_ms = as_time(what, place)
        check_append_time(what, time_ms)
        return self.at_time(name, time_ms, by="append")

    def at_time(self, name: str, time: object, *, bound: str = "lower", by: str | None = None) -> StreamCut:
        """Return the cut at a time, by watermarks if the stream has any; see :meth:`penstock.Store.cut_at_time`."""
        time_ms = as_time("time", time)
        if by not in ("watermark", "append", None):
            raise BadArgument(f"invalid by {shown(by)}: use 'watermark', 'append' or None")
        with self._catalog.lock:
            state = self._catalog.open_stream(name)
            by_watermark = self._watermarks.log_of(state) is not None if by is None else by == "watermark"
            if by_watermark:
                return self._watermarks.cut_at(state, time_ms, bound)
            check_append_time("time", time_ms)
            return self._cuts.appended_before(state, time_ms)
