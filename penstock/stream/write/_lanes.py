"""Lanes: the events that wait for each segment of a stream, and the lane that each key belongs to.

A lane is a queue of runs. Single events are appended to its last run, which stays open; a large batch becomes a run of
its own, so that its array is never copied. Events without a key go to one lane until the next flush, then to the next.

A writer guards its lanes with one lock: the caller of any method here holds it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import NoSuchStream
from penstock.stream.format import WORDS_SIZE, key_bytes, key_position
from penstock.stream.write._acks import ArrayRun, ListRun
from penstock.stream.write._batch import split
from penstock.stream.write._block_plan import plan_blocks

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.stream.write._acks import Driver, Run
    from penstock.stream.write._batch import EventRows
    from penstock.stream.write._block_plan import BlockPlan
    from penstock.stream.write._host import WritableSegment, WriterHost

    Spread = tuple[list[Run], npt.NDArray[np.integer] | None, npt.NDArray[np.int64]]
    """The runs that hold the events of a batch; for each event which of them, None if there is one, and its index."""

    Load = tuple["Lane", list[BlockPlan]]
    """What a flush takes from a lane."""

    Route = tuple["Lane", bytes | None, int]
    """The lane of a key, the key as stored, and how many bytes an event with it takes besides its own."""

__all__ = ["KEY_BYTES_MAX", "NO_POSITION", "Lane", "Lanes"]

NO_POSITION: Final = -1.0  # the key position of an event without a key
KEY_BYTES_MAX: Final = 16 << 20  # of the keys whose route is cached, with the memory that Python needs for each
_KEYS_MAX: Final = 65_536  # whose route is cached
_BATCH_SIZE_MIN: Final = 64 << 10  # smaller batches are buffered like single events


class Lane:
    """The events that wait for one segment: ``runs`` in order, then those of ``run``, which takes more."""

    __slots__ = ("run", "runs", "segment", "segment_id")

    def __init__(self, segment_id: int, segment: WritableSegment, run: ListRun) -> None:
        self.segment_id, self.segment, self.run = segment_id, segment, run
        self.runs: list[Run] = []


class Lanes:
    """The lanes of one writer, in the order of their key ranges.

    ``size`` counts the bytes that wait, ``turn`` how often the lanes were emptied. ``by_key`` caches the routes of
    keys. ``keeps_keys`` is False if the stream stored no keys when its segments were last looked up.
    """

    def __init__(self, driver: Driver, host: WriterHost, stream: str) -> None:
        self._driver, self._host, self._stream = driver, host, stream
        self.size = self.turn = 0
        self.by_key: dict[str | bytes | None, Route] = {}
        self.keeps_keys = True
        self._key_bytes = 0  # of the keys in it
        self._uid: int | None = None
        self._lanes: list[Lane] = []
        self._lows: npt.NDArray[np.float64] = np.zeros(0)
        self.refresh()

    @property
    def uid(self) -> int:
        """The number of the stream."""
        assert self._uid is not None, "it was looked up when the writer was opened"
        return self._uid

    @property
    def open(self) -> list[Lane]:
        """The lanes of the segments that take events."""
        return self._lanes

    def refresh(self) -> None:
        """Look up which segments take events now; lanes of segments that still do are kept."""
        uid, segments, self.keeps_keys = self._host.lanes(self._stream)
        if self._uid not in (None, uid):
            raise NoSuchStream(self._stream)  # it was deleted; this one only has its name
        self._uid = uid
        known = {lane.segment_id: lane for lane in self._lanes}
        self._lanes = [
            known.get(one.segment_id) or Lane(one.segment_id, one.segment, self.new_run(one.segment_id))
            for one in segments
        ]
        self._lows = np.array([segment.low for segment in segments])
        self._forget_keys()

    def new_run(self, segment_id: int) -> ListRun:
        """Return an empty run for a segment."""
        return ListRun(self._driver, self._stream, segment_id)

    def _forget_keys(self) -> None:
        self.by_key, self._key_bytes = {}, 0

    def route_of(self, key: str | bytes | None) -> Route:
        """Return the route of a key, or of events without one, and cache it."""
        if key is None:
            route: Route = self._lanes[self.turn % len(self._lanes)], None, WORDS_SIZE
        else:
            stored = key_bytes(key)
            route = self.at(key_position(stored)), stored, WORDS_SIZE + len(stored)
        size = sys.getsizeof(key) + sys.getsizeof(route[1])
        if len(self.by_key) >= _KEYS_MAX or self._key_bytes + size > KEY_BYTES_MAX:
            self._forget_keys()
        if size <= KEY_BYTES_MAX:
            self.by_key[key] = route
            self._key_bytes += size
        return route

    def at(self, position: float) -> Lane:
        """Return the lane of a position in the key space."""
        return self._lanes[int(np.searchsorted(self._lows, position, side="right")) - 1]

    def spread(self, rows: EventRows, positions: npt.NDArray[np.float64] | None) -> Spread:
        """Put the events of a batch into their lanes; without ``positions`` no event has a key."""
        everything = np.arange(len(rows))
        keyless = self.route_of(None)[0]
        if positions is None:
            run, first = self._put(keyless, rows)
            return [run], None, everything + first
        which = np.searchsorted(self._lows, positions, side="right") - 1
        which[positions == NO_POSITION] = self._lanes.index(keyless)
        runs: list[Run] = []
        run_of, index = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
        for number, chosen, part in split(rows, which):
            run, first = self._put(self._lanes[number], part)
            run_of[chosen], index[chosen] = len(runs), everything[: len(chosen)] + first
            runs.append(run)
        return runs, run_of, index

    def _put(self, lane: Lane, rows: EventRows) -> tuple[Run, int]:
        """Put events at the end of a lane; return their run, and the index of the first of them there."""
        size = int(rows.sizes().sum())
        self.size += size
        if size < _BATCH_SIZE_MIN:
            run = lane.run
            return run, run.extend(rows, size)
        array_run = ArrayRun(self._driver, self._stream, lane.segment_id, rows=rows)
        self._close_run(lane)
        lane.runs.append(array_run)
        return array_run, 0

    def _close_run(self, lane: Lane) -> None:
        if lane.run.events:
            lane.runs.append(lane.run)
            lane.run = self.new_run(lane.segment_id)

    def take(self, runs: set[Run]) -> list[Load]:
        """Empty the lanes; return what was in them, cut into blocks, and add its runs to ``runs``."""
        loads: list[Load] = []
        for lane in self._lanes:
            self._close_run(lane)
            if lane.runs:
                plans: list[BlockPlan] = []
                for run in lane.runs:
                    plans += plan_blocks(run)
                loads.append((lane, plans))
                runs.update(lane.runs)
                lane.runs = []
        self.size = 0
        self.turn += 1
        self.by_key.pop(None, None)
        return loads
