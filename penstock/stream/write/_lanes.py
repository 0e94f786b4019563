"""Lanes: the events that wait for each segment of a stream, their numbers, and the blocks that they become.

A lane is a queue of runs. Single events are appended to its last run, which stays open; a large batch becomes a run of
its own, so that its array is never copied. Events without a key go to one lane until the next flush, then to the next.
A run is cut into block plans when it is taken out of its lane. A plan whose segment has ended before the block got
there is taken apart again, event by event, because its events may belong to several successors.

By its number an event that is written again is recognised. Either the caller gives the numbers, or the writer does when
it makes blocks. They only grow, over restarts under the same id, too. Here they are as stored, where 0 is "none": one
more than callers see.

A writer guards its lanes with one lock: the caller of any method here holds it.
"""

from __future__ import annotations

import sys
from itertools import pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from penstock.errors import BadArgument, NoSuchStream
from penstock.model import shown
from penstock.stream.format import WORDS_SIZE, key_bytes, key_position
from penstock.stream.segment import writer_hash
from penstock.stream.write._acks import ArrayRun, ListRun, Run
from penstock.stream.write._batch import cut_points, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    import numpy.typing as npt

    from penstock.stream.format import Headers
    from penstock.stream.write._acks import Driver, Run
    from penstock.stream.write._batch import EventRows
    from penstock.stream.write._host import WritableSegment, WriterHost

    Spread = tuple[list[Run], npt.NDArray[np.integer] | None, npt.NDArray[np.int64]]
    """The runs that hold the events of a batch; for each event which of them, None if there is one, and its index."""
    Load = tuple["Lane", list["BlockPlan"]]
    """What a flush takes from a lane."""
    Route = tuple["Lane", bytes | None, int]
    """The lane of a key, the key as stored, and how many bytes an event with it takes besides its own."""
    from collections.abc import Sequence


__all__ = [
    "KEY_BYTES_MAX",
    "NO_POSITION",
    "BlockPlan",
    "Lane",
    "Lanes",
    "Numbers",
    "numbered_position",
    "place_again",
    "plan_blocks",
]

_BLOCK_SIZE: Final = 1 << 20  # of the events in a block, unless there is just one
_NUMBER_MAX: Final = (1 << 63) - 2
NO_POSITION: Final = -1.0  # the key position of an event without a key
KEY_BYTES_MAX: Final = 16 << 20  # of the keys whose route is cached, with the memory that Python needs for each
_KEYS_MAX: Final = 65_536  # whose route is cached
_BATCH_SIZE_MIN: Final = 64 << 10  # smaller batches are buffered like single events


class BlockPlan(msgspec.Struct, eq=False):
    """The events of a run, from ``first`` up to ``stop``, that make one block."""

    run: ListRun | ArrayRun
    first: int
    stop: int
    last_number: int = 0  # of its last event

    def entries(self) -> Iterator[tuple[int, bytes, bytes | None, Headers | None, Run, int]]:
        """Return the number, event, key and headers of each event, and the run and the index it has there."""
        run, first, stop = self.run, self.first, self.stop
        headers: Iterable[Headers | None]
        if isinstance(run, ListRun):
            events, keys = run.events[first:stop], run.keys[first:stop]
            headers = map(run.headers.get, range(first, stop))
        else:
            rows = run.part(first, stop)
            events = rows.events.to_pylist()
            keys = [None] * len(events) if rows.keys is None else rows.keys.to_pylist()
            headers = repeat(None) if rows.headers is None else rows.headers.to_pylist()
        numbers = run.numbers[first:stop] or range(self.last_number - len(events) + 1, self.last_number + 1)
        return zip(numbers, events, keys, headers, repeat(run), range(first, stop), strict=False)


def plan_blocks(run: ListRun | ArrayRun) -> list[BlockPlan]:
    """Cut a run into plans whose events fit into a block."""
    if isinstance(run, ListRun):
        if run.size <= _BLOCK_SIZE:
            return [BlockPlan(run, 0, len(run.events))]
        cuts = cut_points(np.cumsum(run.sizes()), size=_BLOCK_SIZE)
    else:
        assert run.rows is not None, "a run keeps its rows until it is done"
        cuts = run.rows.block_cuts(_BLOCK_SIZE)
    return [BlockPlan(run, first, stop) for first, stop in pairwise(cuts)]


class Numbers:
    """The numbers of one writer, whose blocks carry the hash ``writer``.

    All events up to ``floor`` are durable. ``resume`` is the highest number that was used before the writer was opened:
    only up to there can an event be in its segment already. ``are_given`` once the caller has numbered an event.
    """

    def __init__(self, writer: bytes, *, floor: int = 0, highest: int = 0) -> None:
        self.writer: Final = writer
        self.floor = floor
        self.resume: Final = max(floor, highest)
        self.are_given = False
        self._last = self.resume

    @classmethod
    def of(cls, host: WriterHost, stream: str, writer_id: str | None, identity: bytes) -> Self:
        """Return where the numbers of a writer go on; ``identity`` is what its blocks carry if it has no id."""
        if writer_id is None:
            return cls(identity)
        writer = writer_hash(writer_id)
        floor, highest = host.numbers_of(stream, writer)
        return cls(writer, floor=floor, highest=highest)

    def next(self) -> int:
        """Return the number of the next event, above all that were used: the caller may have sent old ones again."""
        self._last = max(self._last, self.resume) + 1
        return self._last

    def place(self, lanes: Lanes, key: str | bytes | None, number: int | None) -> tuple[int, float, Lane | None]:
        """Return the number, the position and the lane of an event; no lane if the segment has the event already.

        The caller holds the lock of the lanes.
        """
        wanted = max(self._last, self.resume) + 1 if number is None else _stored_number(number)
        has_begun = self.are_given or self._last > self.resume  # to give out numbers since it was opened
        if has_begun and wanted <= self._last:
            raise BadArgument(
                f"event number {number} comes after {self._last - 1}: numbers only grow; to write again what may be "
                "there already, open the writer again"
            )
        position = numbered_position(key, wanted)
        lane = lanes.at(position)
        self.are_given, self._last = True, wanted
        is_there = wanted <= self.resume and wanted <= lane.segment.last_of(self.writer, position, durable=self.floor)
        return wanted, position, None if is_there else lane

    def give(self, loads: Iterable[Load]) -> int:
        """Number the events of blocks, unless the caller did; return the highest number."""
        highest = self.floor
        for _, plans in loads:
            for plan in plans:
                if plan.run.numbers:
                    plan.last_number = plan.run.numbers[plan.stop - 1]
                else:
                    self._last = max(self._last, self.resume) + plan.stop - plan.first
                    plan.last_number = self._last
                highest = max(highest, plan.last_number)
        return highest


def numbered_position(key: str | bytes | None, number: int) -> float:
    """Return the key position of a numbered event: without a key its number decides, also when it is sent again."""
    return key_position(str(number) if key is None else key)


def _stored_number(number: object) -> int:
    if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
        raise BadArgument(f"invalid event number {shown(number)}: use a whole number from 0 to {_NUMBER_MAX}")
    return number + 1


class Lane:
    """The events that wait for one segment: ``runs`` in order, then those of ``run``, which takes more."""

    __slots__ = ("run", "runs", "segment", "segment_id")

    def __init__(self, segment_id: int, segment: WritableSegment, run: ListRun) -> None:
        self.segment_id, self.segment, self.run = segment_id, segment, run
        self.runs: list[ListRun | ArrayRun] = []


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
            known.get(opened.segment_id) or Lane(opened.segment_id, opened.segment, self.new_run(opened.segment_id))
            for opened in segments
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
        self.by_key[None] = self._lanes[self.turn % len(self._lanes)], None, WORDS_SIZE
        return loads


def place_again(lanes: Lanes, unsent: Sequence[BlockPlan], more: Sequence[Load], *, numbers_given: bool) -> list[Load]:
    """Return what is to be sent now, by open lanes: ``unsent`` events in the order of their numbers, then ``more``.

    ``more`` was taken from the lanes since; events in it whose segment has ended count as unsent. With
    ``numbers_given`` the caller numbers the events, and those numbers decide where an event without a key goes.
    """
    is_open = set(lanes.open)
    lost = [*unsent, *(plan for lane, plans in more if lane not in is_open for plan in plans)]
    runs: dict[Lane, ListRun] = {}
    for number, event, key, headers, run, index in sorted(
        (entry for plan in lost for entry in plan.entries()), key=itemgetter(0)
    ):
        if numbers_given:
            lane = lanes.at(numbered_position(key, number))
        else:
            lane = (lanes.by_key.get(key) or lanes.route_of(key))[0]
        new = runs.setdefault(lane, lanes.new_run(lane.segment_id))
        run.moved[index] = (new, len(new.events))
        new.add(event, key, headers)
        new.numbers.append(number)
    loads = {lane: plan_blocks(run) for lane, run in runs.items()}
    for plan in (plan for plans in loads.values() for plan in plans):
        plan.last_number = plan.run.numbers[plan.stop - 1]
    for lane, plans in more:
        if lane in is_open:
            loads[lane] = [*loads.get(lane, []), *plans]
    return list(loads.items())
