"""The writer: events in, acknowledgements out.

Events wait in a lane for each segment until a thread flushes them: one that waits for an acknowledgement, one that
fills the buffer, one that calls ``flush()``, or the pump's. ``_flush`` says what a flush is, ``_lanes`` how an event
gets to its segment, how one that is written twice is recognised, and what happens when a stream is scaled meanwhile,
``_large_write`` where events go that are larger than a block.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock import forks
from penstock.errors import BadArgument, PenstockError
from penstock.model import check_kind, check_method, check_name, check_time
from penstock.ports import uninterrupted
from penstock.stream.format import Attributes, as_headers, headers_size, key_bytes
from penstock.stream.write._acks import Ack, BatchAck, DoneAck, EventPointers, run_at
from penstock.stream.write._batch import around_large, array_lengths, as_rows, check_events
from penstock.stream.write._lanes import NO_POSITION
from penstock.stream.write._large_write import LargeEvents

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any, Self

    import numpy.typing as npt

    from penstock.model import EventPointer
    from penstock.stream.format import GivenHeaders, Headers
    from penstock.stream.serializers import Serializer
    from penstock.stream.write._acks import Run
    from penstock.stream.write._batch import EventRows
    from penstock.stream.write._lanes import Spread
    from penstock.stream.write._large_write import EventOutputStream
    from penstock.stream.write._managed_writer import ManagedWriter

__all__ = ["BUFFER_SIZE", "EVENT_SIZE_MAX", "StreamWriter", "check_writer"]

EVENT_SIZE_MAX: Final = 1 << 20
BUFFER_SIZE: Final = 8 << 20  # the thread that reaches it flushes: the more blocks at once, the less it waits


class StreamWriter:
    """Writes events to a stream; get one from :meth:`Store.writer`. Threads may share it."""

    def __init__(self, writer: ManagedWriter, serializer: Serializer[Any] | None) -> None:
        forks.guard(self)
        self.stream: Final = writer.stream
        self.writer_id: Final = writer.writer_id
        self._open = writer
        self._serialize = None if serializer is None else serializer.serialize
        self._flusher, self._lanes, self._numbers = writer.flusher, writer.flusher.lanes, writer.flusher.numbers
        self._large = LargeEvents(writer.host, self.stream, self._lanes, self._numbers, self._flusher)
        self._lock = self._flusher.lock

    @property
    def last_number(self) -> int | None:
        """The number up to which all events of this writer id are durable, over restarts; None if there are none."""
        floor = self._numbers.floor
        return floor - 1 if floor else None

    # One event

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
        if number is not None or self._numbers.are_given:
            return self._write_numbered(event, key, number, pairs)
        lanes = self._lanes
        with self._lock:
            if self._flusher.trouble is not None:
                raise self._flusher.trouble
            try:
                lane, stored, more = lanes.by_key[key]
            except (KeyError, TypeError):
                lane, stored, more = lanes.route_of(key)
            run = lane.run
            events = run.events
            ack = Ack(run, len(events))
            size += more + headers_size(pairs) if pairs else more
            waiting = lanes.size
            lanes.size = waiting + size
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
        if not self._open.is_pumped:
            self._open.call_pump()
        elif waiting > BUFFER_SIZE:
            self._flush_if_full()
        return ack

    def _write_numbered(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> Ack | DoneAck:
        self._begin_numbers()
        ack = self._add_numbered(event, key, number, headers)
        self._flush_or_pump()
        return ack

    @uninterrupted
    def _add_numbered(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> Ack | DoneAck:
        with self._lock:
            self._flusher.check()
            wanted, _, lane = self._numbers.place(self._lanes, key, number)
            if lane is None:
                return DoneAck(None)
            run = lane.run
            ack = Ack(run, len(run.events))
            self._lanes.size += run.add(event, None if key is None else key_bytes(key), headers)
            run.numbers.append(wanted)
            return ack

    def _begin_numbers(self) -> None:
        """From here on events get their numbers when they are written, not when blocks are made."""
        if self.writer_id is None:
            raise BadArgument("event numbers need a writer_id: open the writer with one")
        if not self._numbers.are_given:
            self.flush()

    def _write_large(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> DoneAck:
        """Write an event that does not fit into a block, in chunks; return when it is durable."""
        attributes = Attributes(None if key is None else key_bytes(key), headers)
        if number is not None or self._numbers.are_given:
            self._begin_numbers()
            return self._large.write_numbered(event, attributes, number)
        return DoneAck(self._large.write(event, attributes))

    def begin_write_event(
        self, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> EventOutputStream:
        """Begin an event of any size, to be written as a file; nothing of it can be read before that is closed.

        Many may be open at once. The order of events is that in which they are closed. An exception in the ``with``
        block aborts.
        """
        return self._large.begin(Attributes.of(key, headers), self._write_bytes)

    def _write_bytes(self, event: bytes, attributes: Attributes) -> EventPointer:
        """Write an event that needs no serializer any more, and wait for it."""
        if self._numbers.are_given:
            ack = self._write_numbered(event, attributes.key, None, attributes.headers)
            assert isinstance(ack, Ack), "a new number was never there before"
            return ack.result()
        return self._add_bytes(event, attributes).result()

    @uninterrupted
    def _add_bytes(self, event: bytes, attributes: Attributes) -> Ack:
        with self._lock:
            self._flusher.check()
            run = self._lanes.route_of(attributes.key)[0].run
            ack = Ack(run, len(run.events))
            self._lanes.size += run.add(event, attributes.key, attributes.headers)
            return ack

    # Many events

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
        check_events(events)
        if self._serialize is not None:
            events = [self._serialize(event) for event in events]
        rows, positions = as_rows(events, keys, headers, without=NO_POSITION)
        is_mixed = bool((array_lengths(rows.events) > EVENT_SIZE_MAX).any())
        spread = self._write_mixed(rows, positions) if is_mixed else self._write_small(rows, positions)
        return BatchAck(spread[0], EventPointers(*spread))

    def _write_mixed(self, rows: EventRows, positions: npt.NDArray[np.float64] | None) -> Spread:
        """Write a batch some of whose events are large."""
        runs: list[Run] = []
        run_of, index = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
        for small, large in around_large(rows, EVENT_SIZE_MAX):
            part = None if positions is None else positions[small]
            more, which, index[small] = self._write_small(rows.part(small.start, small.stop), part)
            run_of[small] = len(runs) + (0 if which is None else which)
            runs += more
            if large is not None:
                run_of[large] = len(runs)
                runs.append(run_at(self._flusher, self._large.write(rows.event(large), rows.attributes(large))))
        return runs, run_of, index

    def _write_small(self, rows: EventRows, positions: npt.NDArray[np.float64] | None) -> Spread:
        """Write events none of which is large."""
        spread = self._add_small(rows, positions)
        self._flush_or_pump()
        return spread

    @uninterrupted
    def _add_small(self, rows: EventRows, positions: npt.NDArray[np.float64] | None) -> Spread:
        with self._lock:
            self._flusher.check()
            if self._numbers.are_given:
                raise BadArgument("this writer's events are numbered by the caller: write them one by one")
            if not len(rows):
                return [], None, np.zeros(0, np.int64)
            return self._lanes.spread(rows, positions)

    # Time

    def note_time(self, time: int) -> None:
        """Promise that all events up to a time, in milliseconds since 1970, are written: what comes is later.

        What was written before becomes durable first. Readers see it in their time window, and in watermarks, once all
        writers that note time have come as far. A time before the last one is ignored without an error.
        """
        if self.writer_id is None:
            raise BadArgument("noting time needs a writer_id: open the writer with one")
        if self._open.notes_time:
            raise BadArgument("this writer notes the time by itself: open it without automatically_note_time")
        check_time("time", time)
        self._open.note_time(time)

    # Flushing

    def flush(self) -> None:
        """Return when everything written so far is durable; raise what made some of it fail."""
        self._flusher.holding(self._flusher.flush)
        self._flusher.check()

    def _flush_or_pump(self) -> None:
        """Flush if the buffer is full; otherwise the pump is going to."""
        if self._lanes.size > BUFFER_SIZE:
            self._flush_if_full()
        elif not self._open.is_pumped:
            self._open.call_pump()

    def _flush_if_full(self) -> None:
        """Flush, unless another thread did meanwhile; so a full buffer holds back the thread that fills it."""
        self._flusher.holding(lambda: self._flusher.flush() if self._lanes.size > BUFFER_SIZE else None)

    # The end

    def close(self) -> None:
        """Make everything durable; write no more, nor note time. Closing again does nothing."""
        self._open.end(for_good=True)

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error that is on its way already is not replaced by another."""
        with suppress(PenstockError) if error is not None else nullcontext():
            self.close()


def check_writer(writer_id: object, serializer: object, *, automatically_note_time: object = False) -> None:
    """Refuse an invalid name of a writer, an object that is not a serializer, and noting time without a name."""
    if writer_id is not None:
        check_name("writer", writer_id)
    if serializer is not None:
        check_method("serializer", serializer, "serialize")
    check_kind("automatically_note_time", automatically_note_time, bool)
    if automatically_note_time and writer_id is None:
        raise BadArgument("automatically_note_time needs a writer_id: time is kept under it")


def _as_bytes(event: object) -> bytes:
    try:
        return bytes(memoryview(event))  # type: ignore[arg-type]
    except TypeError:
        raise BadArgument(
            f"invalid event, a {type(event).__name__}: give bytes, or open the writer with a serializer"
        ) from None
