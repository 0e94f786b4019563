"""The writer: events in, acknowledgements out.

Events wait in a lane for each segment until somebody sends them off: who waits for an acknowledgement, who fills the
buffer, ``flush()``, or the pump. One flush takes all lanes, appends a block or more to each segment, and ends when all
of them are durable, before the next one begins. So of each key, and of each writer's numbers, what is durable has no
gaps, whatever happens in between.

A segment may end under our hands, because the stream is scaled. What did not get there goes to its successors, before
anything that was written later.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np

from penstock import forks
from penstock.deadlines import ANSWER_SLACK_S, TimeIsOver, do_held
from penstock.errors import (
    BadArgument,
    NoSuchStream,
    PenstockError,
    StoreClosed,
    StreamSealed,
    WriterFailed,
    WriterFenced,
)
from penstock.model import check_many, check_method, check_name, check_time, shown
from penstock.ports import uninterrupted
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    EXTENT,
    NO_WRITER,
    WORDS_SIZE,
    Attributes,
    BlockHeader,
    as_headers,
    headers_size,
    key_bytes,
    key_position,
)
from penstock.stream.segment import SegmentEnded, WakeUp, writer_hash
from penstock.stream.write._acks import Ack, ArrayRun, BatchAck, DoneAck, EventPointers, ListRun, Place, Run
from penstock.stream.write._batch import Rows, array_lengths, as_rows, cut_marks, split
from penstock.stream.write._large_write import EventOutputStream, LargeWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, Self

    import numpy.typing as npt

    from penstock.model import EventPointer
    from penstock.ports import Bytes
    from penstock.stream.format import GivenHeaders, Headers
    from penstock.stream.serializers import Serializer
    from penstock.stream.write._host import LargeLogs, Pending, WritableSegment, WriterHost

    _Spread = tuple[list[Run], npt.NDArray[np.integer] | None, npt.NDArray[np.int64]]
    """The runs that the events of a batch are in, in which of them each is, and where in it."""

__all__ = ["EVENT_SIZE_MAX", "StreamWriter", "check_writer"]

T = TypeVar("T")
EVENT_SIZE_MAX: Final = 1 << 20
_BLOCK_SIZE: Final = 1 << 20  # of the events in a block, unless there is just one
_BUFFER_SIZE: Final = 1 << 20  # who reaches it sends it off
_BATCH_SIZE_MIN: Final = 64 << 10  # smaller batches are buffered like single events
_KEYS_MAX: Final = 65_536  # remembered, so that a key that comes again need not be hashed again
_KEY_BYTES_MAX: Final = 16 << 20  # of the keys that are remembered, with what Python needs for each
_NUMBER_MAX: Final = (1 << 63) - 2
_NO_POSITION: Final = -1.0  # of an event of a batch that has no key


class _Lane:
    """What waits for one segment."""

    __slots__ = ("run", "runs", "segment", "segment_id")

    def __init__(self, segment_id: int, segment: WritableSegment, run: ListRun) -> None:
        self.segment_id, self.segment = segment_id, segment
        self.run = run  # takes events
        self.runs: list[Run] = []  # came before it


class _Piece(msgspec.Struct, eq=False):
    """Events of a run that make one block."""

    run: Run
    first: int
    last: int
    number: int = 0  # of the last of them


_Load = tuple[_Lane, list[_Piece]]
_Route = tuple[_Lane, bytes | None, int]
"""Where a key goes, the key as it is stored, and how many bytes an event with it takes besides its own."""


class StreamWriter:
    """Writes events to a stream; get one from :meth:`Store.writer`. Threads may share it."""

    def __init__(
        self,
        store: WriterHost,
        stream: str,
        writer_id: str | None,
        serializer: Serializer[Any] | None,
        *,
        notes_time: bool = False,
        identity: bytes = NO_WRITER,
    ) -> None:
        if writer_id is not None:
            check_name("writer", writer_id)
        forks.guard(self)
        self.stream, self.writer_id = stream, writer_id
        self._store = store
        self._serialize = None if serializer is None else serializer.serialize
        self._writer = identity if writer_id is None else writer_hash(writer_id)  # what its blocks are known by
        self._lock = threading.Lock()  # the lanes; never held while waiting
        self._flush_lock = threading.Lock()  # held by who sends off; taken before the other
        self._settled: deque[Run] = deque()  # those who asked are called back when the lock is free again
        self._size = 0  # bytes that wait; a mark counts as one
        self.notes_time: Final = notes_time  # by itself
        self._noted: int | None = None  # a time that waits to be marked, behind the events before it
        self._pumped = False  # the pump is going to come
        self._pump_turn = 0  # which was the turn when it came last
        self._trouble: BaseException | None = None  # why nothing can be written any more
        self._numbered = False  # the caller numbers the events
        self._floor = self._number = self._resume = 0  # as stored, where 0 is "none": one more than callers see
        self._floor_said = True
        self._uid: int | None = None  # which stream of this name
        self._lanes: list[_Lane] = []
        self._lows: npt.NDArray[np.float64] = np.zeros(0)
        self._by_key: dict[str | bytes | None, _Route] = {}
        self._key_bytes = 0  # of the keys in it
        self._keeps_keys = True  # as far as is known here: the segments drop keys that are not to be stored
        self._turn = 0
        self._find_lanes()
        if writer_id is not None:
            self._find_numbers()

    @property
    def last_number(self) -> int | None:
        """The number up to which all events of this writer id are durable, over restarts; None if there are none."""
        return self._floor - 1 if self._floor else None

    @property
    def stream_uid(self) -> int:
        """The number of its stream: another may get the name later."""
        assert self._uid is not None, "it was found when the writer was opened"
        return self._uid

    is_at_work: Final = True

    @property
    def is_sound(self) -> bool:
        """Whether it still writes: it was not closed or fenced, and nothing failed."""
        return self._trouble is None

    def _find_numbers(self) -> None:
        self._floor, highest = self._store.numbers_of(self.stream, self._writer)
        self._number = self._resume = max(self._floor, highest)

    def _find_lanes(self) -> None:
        """Learn which segments take events now; the caller holds the lock, or is the only one who knows the writer."""
        uid, found, self._keeps_keys = self._store.lanes(self.stream)
        if self._uid not in (None, uid):
            raise NoSuchStream(self.stream)  # it was deleted; this one only has its name
        self._uid = uid
        known = {lane.segment_id: lane for lane in self._lanes}
        self._lanes = [known.get(one.segment_id) or self._new_lane(one.segment_id, one.segment) for one in found]
        self._lows = np.array([one.low for one in found])
        self._by_key, self._key_bytes = {}, 0

    def _new_lane(self, segment_id: int, segment: WritableSegment) -> _Lane:
        return _Lane(segment_id, segment, ListRun(self, self.stream, segment_id))

    def _route_of(self, key: str | bytes | None) -> _Route:
        """Return where a key goes, or events without one: to another lane after each flush."""
        if key is None:
            route: _Route = self._lanes[self._turn % len(self._lanes)], None, WORDS_SIZE
        else:
            stored = key_bytes(key)
            route = self._lane_at(key_position(stored)), stored, WORDS_SIZE + len(stored)
        size = sys.getsizeof(key) + sys.getsizeof(route[1])
        if len(self._by_key) >= _KEYS_MAX or self._key_bytes + size > _KEY_BYTES_MAX:
            self._by_key, self._key_bytes = {}, 0
        if size <= _KEY_BYTES_MAX:
            self._by_key[key] = route
            self._key_bytes += size
        return route

    def _lane_at(self, position: float) -> _Lane:
        """Return the lane for a place in the key space."""
        return self._lanes[int(np.searchsorted(self._lows, position, side="right")) - 1]

    def write_event(
        self,
        event: object,
        key: str | bytes | None = None,
        *,
        number: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> Ack | DoneAck:
        """Write one event; the acknowledgement is done when it is durable.

        Events with the same key are read in the order in which they were written. A ``number``, higher with every
        event, makes writing it again harmless: one that is durable already is not written again. The key and the
        ``headers``, names with values or pairs of them, come back with the event.
        """
        if self._serialize is not None:
            event = self._serialize(event)
        if type(event) is not bytes:
            event = _as_bytes(event)
        size = len(event)
        pairs = None if headers is None else as_headers(headers)
        if size > EVENT_SIZE_MAX:
            return self._write_large(event, key, number, pairs)
        if number is not None or self._numbered:
            return self._write_numbered(event, key, number, pairs)
        with self._lock:
            if self._trouble is not None:
                raise self._trouble
            try:
                lane, stored, more = self._by_key[key]
            except (KeyError, TypeError):
                lane, stored, more = self._route_of(key)
            run = lane.run
            events = run.events
            ack = Ack(run, len(events))
            size += more + headers_size(pairs) if pairs else more
            waiting = self._size
            self._size = waiting + size
            run.size += size
            try:
                if pairs:
                    run.headers[len(events)] = pairs
                run.keys.append(stored)
                events.append(event)
            except BaseException:  # an interrupt between them
                run.headers.pop(len(events), None)
                del run.keys[len(events) :]
                raise
        if not self._pumped:
            self._call_pump()
        elif waiting > _BUFFER_SIZE:
            self._send_off()
        return ack

    @uninterrupted
    def _call_pump(self) -> None:
        """Let the pump come, unless it is going to."""
        if not self._pumped:
            self._pumped = True
            self._store.pump.add(self)

    def _write_numbered(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> Ack | DoneAck:
        self._begin_numbers()
        ack = self._add_numbered(event, key, number, headers)
        if self._size > _BUFFER_SIZE:
            self._send_off()
        elif not self._pumped:
            self._call_pump()
        return ack

    @uninterrupted
    def _add_numbered(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> Ack | DoneAck:
        with self._lock:
            wanted, _, lane = self._place_numbered(key, number)
            if lane is None:
                return DoneAck(None)
            run = lane.run
            ack = Ack(run, len(run.events))
            size = run.add(event, None if key is None else key_bytes(key), headers)
            run.numbers.append(wanted)
            self._size += size
            return ack

    def _begin_numbers(self) -> None:
        """From here on numbers are given out when events are written, not when they are sent."""
        if self.writer_id is None:
            raise BadArgument("numbers are kept under the writer's id: open the writer with one")
        if not self._numbered:
            self.flush()

    def _place_numbered(self, key: str | bytes | None, number: int | None) -> tuple[int, float, _Lane | None]:
        """Return an event's number as stored, its place and its lane; no lane if it is there already.

        The caller holds the lock.
        """
        if self._trouble is not None:
            raise self._trouble
        wanted = max(self._number, self._resume) + 1 if number is None else _stored_number(number)
        has_begun = self._numbered or self._number > self._resume  # to give out numbers since it was opened
        if has_begun and wanted <= self._number:
            raise BadArgument(
                f"event number {number} comes after {self._number - 1}: numbers only grow; to write again what may be "
                "there already, open the writer again"
            )
        place = _numbered_position(key, wanted)
        lane = self._lane_at(place)
        self._numbered, self._number = True, wanted
        there = wanted <= self._resume and wanted <= lane.segment.last_of(self._writer, place)
        return wanted, place, None if there else lane

    def begin_write_event(
        self, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> EventOutputStream:
        """Begin an event of any size, to be written as a file; nothing of it can be read before that is closed.

        Many may be open at once. The order of events is that in which they are closed. An exception in the ``with``
        block aborts.
        """
        attributes = Attributes.of(key, headers)
        self._check()
        logs = self._store.large_logs(self.stream, self.stream_uid)

        def commit(write: LargeWrite, output: EventOutputStream) -> None:
            event = write.finish()
            output.place_at(
                self._commit_large(logs, write, attributes) if event is None else self._write_bytes(event, attributes)
            )

        write = LargeWrite(logs.new_large_log, self._store.clock)
        return EventOutputStream(write, commit, lambda _: logs.drop(), logs.abandon, check=self._check)

    def _check(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def _write_bytes(self, event: bytes, attributes: Attributes) -> EventPointer:
        """Write an event that needs no serializer any more, and wait for it."""
        if self._numbered:
            ack = self._write_numbered(event, attributes.key, None, attributes.headers)
            assert isinstance(ack, Ack), "a new number was never there before"
            return ack.result()
        return self._add_bytes(event, attributes).result()

    @uninterrupted
    def _add_bytes(self, event: bytes, attributes: Attributes) -> Ack:
        with self._lock:
            self._check()
            run = self._route_of(attributes.key)[0].run
            ack = Ack(run, len(run.events))
            self._size += run.add(event, attributes.key, attributes.headers)
            return ack

    def _write_large(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> DoneAck:
        """Write an event that does not fit into a block, in chunks; returns when it is durable."""
        attributes = Attributes(None if key is None else key_bytes(key), headers)
        if number is not None or self._numbered:
            return self._write_large_numbered(event, attributes, number)
        return DoneAck(self._write_large_at(event, attributes))

    def _write_large_at(self, event: Bytes, attributes: Attributes) -> EventPointer:
        logs = self._store.large_logs(self.stream, self.stream_uid)
        try:
            return self._commit_large(logs, self._write_chunks(logs, event), attributes)
        except BaseException:
            logs.drop()
            raise

    def _write_large_numbered(self, event: bytes, attributes: Attributes, number: int | None) -> DoneAck:
        """Write a large event that has a number: nothing that comes later is sent off before it."""
        self._begin_numbers()
        return self._sending(lambda: self._send_large_numbered(event, attributes, number))

    @uninterrupted
    def _send_large_numbered(self, event: bytes, attributes: Attributes, number: int | None) -> DoneAck:
        wanted, place, lane = self._behind_all(lambda: self._place_numbered(attributes.key, number))
        if lane is None:
            return DoneAck(None)
        logs = self._store.large_logs(self.stream, self.stream_uid)
        try:
            write = self._write_chunks(logs, event)
            return DoneAck(self._commit_numbered(logs, write, place, wanted, attributes))
        except BaseException as error:
            logs.drop()
            self._fail(set(), error)
            raise

    def _write_chunks(self, logs: LargeLogs, event: Bytes) -> LargeWrite:
        write = LargeWrite(logs.new_large_log, self._store.clock)
        write.write(event)
        write.finish()
        return write

    def _behind_all(self, step: Callable[[], T]) -> T:
        """Take a step while nothing waits, after sending off what does; the caller holds the flush lock."""
        while True:
            with self._lock:
                self._check()
                if not self._size:
                    return step()
            self._flush()

    def _commit_large(self, logs: LargeLogs, write: LargeWrite, attributes: Attributes) -> EventPointer:
        """Make a large event, all of which is durable, part of the stream, behind all that was written before."""
        return self._sending(lambda: self._send_large(logs, write, attributes))

    @uninterrupted
    def _send_large(self, logs: LargeLogs, write: LargeWrite, attributes: Attributes) -> EventPointer:
        number = self._behind_all(self._next_number)
        place = self._store.random_position() if attributes.key is None else key_position(attributes.key)
        return self._commit_numbered(logs, write, place, number, attributes)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _commit_numbered(
        self, logs: LargeLogs, write: LargeWrite, position: float, number: int, attributes: Attributes
    ) -> EventPointer:
        floor = max(self._floor, number)
        columns, body = attributes.packed(keeps_key=self._keeps_keys)
        header = BlockHeader(
            kind=EXTENT, columns=columns, count=0, writer=self._writer, last=number, whole=floor, floor=floor
        )
        pointer = logs.commit_large(write, header, body, position)
        self._store.note_activity(self)
        self._floor, self._floor_said = floor, True
        return pointer

    def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
    ) -> BatchAck:
        """Write many events: a list of bytes or an Arrow array, with one acknowledgement for all.

        There is a key for each, None where an event has none, or one for all, or no keys at all; and headers for each,
        None where an event has none, as mappings, pairs or an Arrow array of maps. Large events go out in chunks, each
        behind those before it, so this returns when the last of them is durable.
        """
        check_many("events", events, "bytes, or an Arrow array")
        if self._serialize is not None:
            events = [self._serialize(event) for event in events]
        rows, positions = as_rows(events, keys, headers, without=_NO_POSITION)
        large = np.flatnonzero(array_lengths(rows.events) > EVENT_SIZE_MAX).tolist()
        spread = self._write_mixed(rows, positions, large) if large else self._write_small(rows, positions)
        return BatchAck(spread[0], EventPointers(*spread))

    def _write_mixed(self, rows: Rows, positions: npt.NDArray[np.float64] | None, large: list[int]) -> _Spread:
        """Write a batch some of whose events are large."""
        runs: list[Run] = []
        run_of, index = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
        done = 0
        for place in (*large, len(rows)):
            part = slice(done, place)
            places = None if positions is None else positions[part]
            more, which, index[part] = self._write_small(rows.part(done, place), places)
            run_of[part] = len(runs) + (0 if which is None else which)
            runs += more
            if place < len(rows):
                run_of[place] = len(runs)
                runs.append(self._large_run(rows.events[place].as_buffer(), rows.attributes(place)))
            done = place + 1
        return runs, run_of, index

    def _large_run(self, event: Bytes, attributes: Attributes) -> Run:
        pointer = self._write_large_at(memoryview(event), attributes)
        run = Run(self, self.stream, pointer.segment_id)
        run.places.append(Place(0, pointer.offset - BLOCK_HEADER_SIZE, b""))
        run.settle()
        return run

    def _write_small(self, rows: Rows, positions: npt.NDArray[np.float64] | None) -> _Spread:
        """Write events none of which is large."""
        spread = self._add_small(rows, positions)
        if self._size > _BUFFER_SIZE:
            self._send_off()
        elif not self._pumped:
            self._call_pump()
        return spread

    @uninterrupted
    def _add_small(self, rows: Rows, positions: npt.NDArray[np.float64] | None) -> _Spread:
        with self._lock:
            self._check()
            if self._numbered:
                raise BadArgument("this writer's events are numbered by the caller: write them one by one")
            if not len(rows):
                return [], None, np.zeros(0, np.int64)
            return self._spread(rows, positions)

    def _spread(self, rows: Rows, positions: npt.NDArray[np.float64] | None) -> _Spread:
        """Put the events into their lanes; the caller holds the lock."""
        everything = np.arange(len(rows))
        spare = self._route_of(None)[0]
        if positions is None:
            run, first = self._put(spare, rows)
            return [run], None, everything + first
        which = np.searchsorted(self._lows, positions, side="right") - 1
        which[positions == _NO_POSITION] = self._lanes.index(spare)
        runs: list[Run] = []
        run_of, index = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
        for number, chosen, part in split(rows, which):
            run, first = self._put(self._lanes[number], part)
            run_of[chosen], index[chosen] = len(runs), everything[: len(chosen)] + first
            runs.append(run)
        return runs, run_of, index

    def _put(self, lane: _Lane, rows: Rows) -> tuple[Run, int]:
        """Put events behind what waits in a lane; return their run, and how many are before them in it."""
        size = int(rows.sizes().sum())
        self._size += size
        if size < _BATCH_SIZE_MIN:
            run = lane.run
            return run, run.extend(rows, size)
        whole = ArrayRun(self, self.stream, lane.segment_id, rows=rows)
        if lane.run.events:
            lane.runs.append(lane.run)
            lane.run = ListRun(self, self.stream, lane.segment_id)
        lane.runs.append(whole)
        return whole, 0

    def note_time(self, time: int) -> None:
        """Promise that all events up to a time, in milliseconds since 1970, are written: what comes is later.

        What was written before becomes durable first. Readers see it in their time window, and in watermarks, once all
        writers that give time have come as far. A time before the last one is not taken, and nothing is said.
        """
        if self.writer_id is None:
            raise BadArgument("time is kept under the writer's id: open the writer with one")
        if self.notes_time:
            raise BadArgument("this writer notes the time by itself: open it without automatically_note_time")
        check_time("time", time)
        self._note(time)

    def note_by_itself(self, time: int) -> None:
        """Note a time, for a writer that does so by itself; one that is in trouble is silent."""
        with suppress(PenstockError):
            self._note(time)

    def _note(self, time: int) -> None:
        with self._lock:
            self._check()
            if self._noted is None:
                self._size += 1
            self._noted = max(time, self._noted or 0)
        if not self._pumped:
            self._call_pump()

    def flush(self) -> None:
        """Return when everything written so far is durable; raise what made some of it fail."""
        self._sending(self._flush)
        if self._trouble is not None:
            raise self._trouble

    def _send_off(self) -> None:
        """Send off what waits, if nobody did meanwhile: how a full buffer holds back who fills it."""
        self._sending(lambda: self._flush() if self._size > _BUFFER_SIZE else None)

    def drive(self, run: Run, timeout: float | None) -> None:
        """Return when the run is done, sending it off if nobody else does."""

        def send_off() -> None:
            if not run.done:
                self._flush()

        if timeout is None:
            self._sending(send_off)
        elif self._store.is_remote and not self._store.pump.is_at_work_here:
            self._await(run, timeout)
        else:
            try:
                do_held(self._flush_lock, send_off, time.monotonic() + min(timeout, threading.TIMEOUT_MAX))
            except TimeIsOver:
                raise TimeoutError(f"no acknowledgement from stream {self.stream!r} within {timeout} s") from None
            finally:
                self._announce()

    def _await(self, run: Run, timeout: float) -> None:
        """Return when the run is done, which the pump sends off: a server may not answer for longer than there is."""
        wake_up = WakeUp()
        run.when_done(wake_up.notify)
        self._store.pump.add(self)
        if not wake_up.wait(max(timeout, 0) + ANSWER_SLACK_S):  # who may not wait has it sent off, as in this process
            raise TimeoutError(f"no acknowledgement from stream {self.stream!r} within {timeout} s")

    def _sending(self, step: Callable[[], T]) -> T:
        """Take a step while nobody else sends off, then call back who asked for it: they may write, or wait."""
        try:
            with self._flush_lock:
                return step()
        finally:
            self._announce()

    def _announce(self) -> None:
        """Call back who asked for it; who is interrupted before that leaves it to the next, or to the pump."""
        if self._settled:
            self._call_back()

    @uninterrupted
    def _call_back(self) -> None:
        while self._settled:
            with suppress(IndexError):  # another thread has taken it
                self._settled.popleft().announce()

    def pump(self) -> bool:
        """Send off what waits, unless somebody is at it; False if nothing was written since the last time."""
        self._pumped = False  # first: who writes now either is seen here, or sees this
        if self._size and self._flush_lock.acquire(blocking=False):  # the pump's thread knows no interrupts
            try:
                self._flush()
            finally:
                self._flush_lock.release()
        self._announce()
        busy = self._size > 0 or self._turn != self._pump_turn
        self._pump_turn = self._turn
        if busy:
            self._pumped = True
        return busy

    @uninterrupted
    def _flush(self) -> None:
        """Send off what waits and see it durable; the caller holds the flush lock. Who waits is told of errors."""
        runs: set[Run] = set()
        with self._lock:
            taken = self._take(runs)
            noted = self._take_noted(None)
        try:
            whole = self._give_numbers(taken)
            # Parts of the same flush that an earlier writer left must not be counted with these.
            parts = len(taken) if whole > self._resume else 0
            if taken:
                self._floor_said = bool(parts) or self.writer_id is None
            rest, retaken = self._send(taken, whole, parts=parts), 0
            while rest:
                with self._store.steady:  # or lanes end again while events are put into them, and again
                    with self._lock:
                        retaken += self._size
                        more = self._take(runs)
                        self._size = retaken  # who fills the buffer is held back as before
                        noted = self._take_noted(noted)
                        whole = max(whole, self._give_numbers(more))
                        self._find_lanes()
                        taken = self._place_again(rest, more)
                    self._floor_said = self.writer_id is None
                    rest = self._send(taken, whole, parts=0)
            with self._lock:
                self._size -= retaken
            self._floor = whole
            if not self._floor_said:
                with suppress(StreamSealed):  # then nobody goes on with these numbers
                    self._say_floor()
        except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it was
            self._fail(runs, error)
        else:
            self._settle(runs)
            if runs:
                self._store.note_activity(self)
            if noted is not None:
                self._mark(noted)

    def _take_noted(self, before: int | None) -> int | None:
        """Take the time that waits to be marked, if any, or the one taken before; the caller holds the lock."""
        noted, self._noted = self._noted, None
        return before if noted is None else max(noted, before or 0)

    def _mark(self, time: int) -> None:
        """Mark a time behind all that is durable: whatever was written before it was noted is."""
        try:
            self._store.mark_behind(self, time)
        except Exception as error:  # noqa: BLE001 - whoever writes next is told, whatever it was
            self._fail(set(), error)

    def _take(self, runs: set[Run]) -> list[_Load]:
        """Take what waits out of the lanes, and add its runs to ``runs``; the caller holds the lock."""
        taken = []
        for lane in self._lanes:
            if lane.run.events:
                lane.runs.append(lane.run)
                lane.run = ListRun(self, self.stream, lane.segment_id)
            if lane.runs:
                pieces: list[_Piece] = []
                for run in lane.runs:
                    pieces += _cut(run)
                taken.append((lane, pieces))
                runs.update(lane.runs)
                lane.runs = []
        self._size = 0
        self._turn += 1
        self._by_key.pop(None, None)
        return taken

    def _give_numbers(self, taken: list[_Load]) -> int:
        """Number the events, unless the caller did; return the highest number."""
        highest = self._floor
        for _, pieces in taken:
            for piece in pieces:
                if piece.run.numbers:
                    piece.number = piece.run.numbers[piece.last - 1]
                else:
                    self._number += piece.last - piece.first
                    piece.number = self._number
                highest = max(highest, piece.number)
        return highest

    def _send(self, taken: list[_Load], whole: int, *, parts: int) -> list[_Piece]:
        """Append blocks and wait for them; return the pieces whose segment has ended."""
        rest: list[_Piece] = []
        sent: list[tuple[_Piece, Bytes, Pending]] = []
        for lane, pieces in taken:
            for piece in pieces:
                final = parts if piece is pieces[-1] else 0
                columns, body = self._contents(piece)
                header = BlockHeader(
                    columns=columns,
                    parts=final,
                    count=piece.last - piece.first,
                    writer=self._writer,
                    last=piece.number,
                    whole=whole if final else 0,
                    floor=whole if final == 1 else self._floor,
                )
                try:
                    sent.append((piece, body[0], lane.segment.submit(header, *body)))
                except SegmentEnded:
                    rest += pieces[pieces.index(piece) :]
                    break
        for piece, words, pending in sent:
            try:
                pending.result()
            except SegmentEnded:
                rest.append(piece)
            else:
                piece.run.places.append(Place(piece.first, pending.start, words))
        return rest

    def _contents(self, piece: _Piece) -> tuple[int, list[Bytes]]:
        """Return the column flags of the block that a piece makes, and its body."""
        run, first, last = piece.run, piece.first, piece.last
        if isinstance(run, ArrayRun):
            assert run.rows is not None, "it is let go when the run is done"
            rows = run.rows.part(first, last)
            return (rows if self._keeps_keys else replace(rows, keys=None)).packed()
        assert isinstance(run, ListRun)
        return run.packed(first, last, keeps_keys=self._keeps_keys)

    def _place_again(self, rest: list[_Piece], more: list[_Load]) -> list[_Load]:
        """Put events whose segment has ended into the lanes of its successors, in the order of their numbers."""
        alive = set(self._lanes)
        lost = rest + [piece for lane, pieces in more if lane not in alive for piece in pieces]
        runs: dict[_Lane, ListRun] = {}
        for number, event, key, headers, run, index in sorted(
            (entry for piece in lost for entry in _entries(piece)), key=lambda entry: entry[0]
        ):
            if self._numbered:
                lane = self._lane_at(_numbered_position(key, number))
            else:
                lane = (self._by_key.get(key) or self._route_of(key))[0]
            new = runs.setdefault(lane, ListRun(self, self.stream, lane.segment_id))
            run.moved[index] = (new, len(new.events))
            new.add(event, key, headers)
            new.numbers.append(number)
        loads = {lane: _cut(run) for lane, run in runs.items()}
        for piece in (piece for pieces in loads.values() for piece in pieces):
            piece.number = piece.run.numbers[piece.last - 1]
        for lane, pieces in more:
            if lane in alive:
                loads[lane] = [*loads.get(lane, []), *pieces]
        return list(loads.items())

    def _fail(self, runs: set[Run], error: BaseException) -> None:
        """Write no more: what came later would be out of order. What waits fails, too."""
        with self._lock:
            if self._trouble is None:
                known = isinstance(error, StreamSealed | WriterFenced | NoSuchStream | StoreClosed)
                self._trouble = error if known else WriterFailed(self.stream, cause=error)
            self._take(runs)
        self._settle(runs, self._trouble)

    def _settle(self, runs: Iterable[Run], error: BaseException | None = None) -> None:
        for run in runs:
            run.settle(error)
        self._settled.extend(run for run in runs if run.callbacks)

    def fence(self) -> None:
        """Write no more, because another writer has this one's id now; what is under way comes to its end.

        The pump calls back who asked for it: the caller has locks that they may need.
        """
        with self._flush_lock:
            self._fence()

    @uninterrupted
    def _fence(self) -> None:
        self._fail(set(), WriterFenced(self.stream, str(self.writer_id)))
        self._call_pump()

    def close(self) -> None:
        """See everything durable and write no more, nor give time; closing again does nothing."""
        self.end(for_good=True)

    def end(self, *, for_good: bool) -> None:
        """See everything durable and write no more; who does not do so for good is waited for when time goes on."""
        trouble = self._sending(lambda: self._end(for_good=for_good))
        if trouble is not None:
            raise trouble

    @uninterrupted
    def _end(self, *, for_good: bool) -> BaseException | None:
        """Return what made something fail that was written, unless it was told when this was called before."""
        if isinstance(self._trouble, StoreClosed):
            return None
        self._flush()
        trouble = self._trouble
        self._store.forget_writer(self, for_good=for_good and trouble is None)
        self._trouble = StoreClosed(f"the writer of stream {self.stream!r}")
        return trouble

    def _say_floor(self) -> None:
        """Let a block without events say how far the numbers are durable: those of the last flush could not."""
        header = BlockHeader(
            count=0,
            writer=self._writer,
            last=self._floor,
            whole=self._floor,
            floor=self._floor,
        )
        segment = self._lanes[0].segment
        while not self._floor_said:
            try:
                segment.submit(header).result()
                self._floor_said = True
            except SegmentEnded:
                uid, lanes, _ = self._store.lanes(self.stream)
                if uid != self._uid:
                    raise NoSuchStream(self.stream) from None
                segment = lanes[0].segment

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error that is on its way already is not replaced by another."""
        with suppress(PenstockError) if error is not None else nullcontext():
            self.close()


def check_writer(writer_id: object, serializer: object) -> None:
    """Refuse what is no name of a writer, or no serializer."""
    if writer_id is not None:
        check_name("writer", writer_id)
    if serializer is not None:
        check_method("serializer", serializer, "serialize")


def _numbered_position(key: str | bytes | None, number: int) -> float:
    """Return where an event with a number goes: without a key the number decides, and again when it is sent again."""
    return key_position(str(number) if key is None else key)


def _cut(run: Run) -> list[_Piece]:
    """Cut a run into pieces that fit into a block."""
    if isinstance(run, ListRun):
        if run.size <= _BLOCK_SIZE:
            return [_Piece(run, 0, len(run.events))]
        marks = cut_marks(np.cumsum(run.sizes()), size=_BLOCK_SIZE)
    else:
        assert isinstance(run, ArrayRun)
        assert run.rows is not None, "it is let go when the run is done"
        marks = run.rows.block_marks(_BLOCK_SIZE)
    return [_Piece(run, first, last) for first, last in pairwise(marks)]


def _entries(piece: _Piece) -> Iterator[tuple[int, bytes, bytes | None, Headers | None, Run, int]]:
    """Return number, event, key, headers, run and place of each event of a piece."""
    run, first, last = piece.run, piece.first, piece.last
    headers: Iterable[Headers | None]
    if isinstance(run, ArrayRun):
        assert run.rows is not None, "it is let go when the run is done"
        rows = run.rows.part(first, last)
        events = rows.events.to_pylist()
        keys = [None] * len(events) if rows.keys is None else rows.keys.to_pylist()
        headers = repeat(None) if rows.headers is None else rows.headers.to_pylist()
    else:
        assert isinstance(run, ListRun)
        events, keys = run.events[first:last], run.keys[first:last]
        headers = map(run.headers.get, range(first, last))
    numbers = run.numbers[first:last] or range(piece.number - len(events) + 1, piece.number + 1)
    return zip(numbers, events, keys, headers, repeat(run), range(first, last), strict=False)


def _stored_number(number: object) -> int:
    if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
        raise BadArgument(f"{shown(number)} is no event number: it is whole, from 0 to {_NUMBER_MAX}")
    return number + 1


def _as_bytes(event: object) -> bytes:
    try:
        return bytes(memoryview(event))  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(
            f"{type(event).__name__} is no event: give bytes, or open the writer with a serializer"
        ) from None
