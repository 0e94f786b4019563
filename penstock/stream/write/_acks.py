"""Runs of events on their way into a segment, and the acknowledgements of those events.

An acknowledgement has two fields, because there is one for every event; the run knows the rest, once for all its
events. The pointer of an event is computed when it is asked for.
"""

from __future__ import annotations

import logging
import struct
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, overload

import msgspec
import numpy as np

from penstock.model import EventPointer, check_timeout
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    KEYS,
    LENGTH_SIZE,
    WORDS_SIZE,
    headers_of_list,
    headers_size,
    pack_columns,
    pack_key_list,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from penstock.ports import Bytes
    from penstock.stream.format import Headers
    from penstock.stream.write._batch import EventRows

__all__ = [
    "Ack",
    "ArrayRun",
    "BatchAck",
    "BlockPlace",
    "DoneAck",
    "EventPointers",
    "ListRun",
    "Run",
    "run_at",
    "settle",
]

_FIRST: Final = attrgetter("first")
_logger: Final = logging.getLogger("penstock.stream")


class Driver(Protocol):
    """The flusher of a run, which can make it durable."""

    @property
    def is_at_work(self) -> bool:
        """Always True; in a process that was forked from the writer's, asking raises ``ForkedHandle``."""

    def drive(self, run: Run, timeout: float | None) -> None:
        """Return when the run is done."""


class BlockPlace(msgspec.Struct, eq=False):
    """Where a block of a run is: it begins at ``start``, with the event ``first``, and has these length words."""

    first: int
    start: int
    words: Bytes
    _ends: npt.NDArray[np.int64] | None = None

    def offset_of(self, index: int) -> int:
        """Return the offset of an event."""
        index -= self.first
        if index and self._ends is None:
            self._ends = np.cumsum(np.frombuffer(self.words, ">u4"), dtype=np.int64)
        before = 0 if self._ends is None or not index else int(self._ends[index - 1])
        return self.start + BLOCK_HEADER_SIZE + LENGTH_SIZE * index + before


class Run(msgspec.Struct, eq=False):
    """Events of one segment, in order. It is done when they are durable, or have failed.

    They may lie in several blocks: ``places`` are those. If the segment ended before they got there, ``moved`` says
    where each of them went.
    """

    driver: Driver
    stream: str
    segment_id: int
    done: bool = False
    error: BaseException | None = None
    numbers: list[int] = []  # of each event, if the caller gave them
    places: list[BlockPlace] = []
    moved: dict[int, tuple[Run, int]] = {}
    callbacks: deque[Callable[[], object]] = msgspec.field(default_factory=deque)

    def is_done(self) -> bool:
        """Whether the events are durable, or have failed; ``ForkedHandle`` in a process forked from the writer's."""
        return self.done or not self.driver.is_at_work

    def pointer(self, index: int) -> EventPointer:
        """Return where an event is."""
        if index in self.moved:
            run, index = self.moved[index]
            return run.pointer(index)
        place = self.places[bisect_right(self.places, index, key=_FIRST) - 1]
        return EventPointer(self.stream, self.segment_id, place.offset_of(index))

    def settle(self, error: BaseException | None = None) -> None:
        """End, with an error or without; keep only what acknowledgements need, because callers may keep those."""
        self.error = error
        self.done = True  # when_done() looks at this after adding a callback, so none is left out
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing but where the events are."""

    def announce(self) -> None:
        """Call the callbacks; the caller holds no lock, so that callbacks may write, or wait.

        An exception of a callback is logged, even SystemExit: the thread is the pump's, or that of another writer.
        """
        while self.callbacks:
            with suppress(IndexError):  # another thread has taken it
                _call_back(self.callbacks.popleft())

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once the run is done, at once if it is."""
        self.is_done()  # which raises in a forked process, where the run never is
        self.callbacks.append(callback)
        if self.done:
            self.announce()


def _call_back(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException:
        _logger.exception("a callback of an acknowledgement failed")


class ListRun(Run, eq=False):
    """Events that came one by one, with the key of each, None if it has none, and the headers of those that have any.

    ``size`` is how many bytes they take in a block.
    """

    events: list[bytes] = []
    keys: list[bytes | None] = []
    headers: dict[int, Headers] = {}
    size: int = 0

    def add(self, event: bytes, key: bytes | None, headers: Headers | None) -> int:
        """Add an event; return how many bytes it takes in a block."""
        if headers:
            self.headers[len(self.events)] = headers
        self.events.append(event)
        self.keys.append(key)
        size = WORDS_SIZE + len(event) + (0 if key is None else len(key)) + headers_size(headers)
        self.size += size
        return size

    def extend(self, rows: EventRows, size: int) -> int:
        """Add events that take so many bytes; return how many were there before."""
        first = len(self.events)
        if rows.headers is not None:
            self.headers |= {
                first + place: headers for place, headers in enumerate(rows.headers.to_pylist()) if headers
            }
        self.events += rows.events.to_pylist()
        self.keys += [None] * len(rows) if rows.keys is None else rows.keys.to_pylist()
        self.size += size
        return first

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return how many bytes each event takes in a block."""
        count = len(self.events)
        sizes = np.fromiter(map(len, self.events), np.int64, count) + WORDS_SIZE
        sizes += np.fromiter((0 if key is None else len(key) for key in self.keys), np.int64, count)
        for place, headers in self.headers.items():
            sizes[place] += headers_size(headers)
        return sizes

    def packed(self, first: int, last: int, *, keeps_keys: bool) -> tuple[int, list[Bytes]]:
        """Return the column flags of the block that some of the events make, and its body."""
        whole = last - first == len(self.events)
        events, keys = (self.events, self.keys) if whole else (self.events[first:last], self.keys[first:last])
        words = struct.pack(f">{len(events)}I", *map(len, events))
        stored = pack_key_list(keys) if keeps_keys and keys.count(None) < len(keys) else []
        flags, body = (KEYS if stored else 0), [words, b"".join(events), *stored]
        if self.headers:
            found, headers = pack_columns(None, headers_of_list([self.headers.get(at) for at in range(first, last)]))
            flags, body = flags | found, [*body, *headers]
        return flags, body

    def let_go(self) -> None:
        """Keep nothing but where the events are."""
        self.events, self.keys, self.headers, self.numbers = [], [], {}, []


class ArrayRun(Run, eq=False, kw_only=True):
    """Events that came as an Arrow array."""

    rows: EventRows | None

    def part(self, first: int, stop: int) -> EventRows:
        """Return some of the events."""
        assert self.rows is not None, "a run keeps its rows until it is done"
        return self.rows.part(first, stop)

    def packed(self, first: int, stop: int, *, keeps_keys: bool) -> tuple[int, list[Bytes]]:
        """Return the column flags of the block that some of the events make, and its body."""
        rows = self.part(first, stop)
        return (rows if keeps_keys else replace(rows, keys=None)).packed()

    def let_go(self) -> None:
        """Keep nothing but where the events are."""
        self.rows = None


def settle(runs: Iterable[Run], error: BaseException | None = None) -> list[Run]:
    """End runs, with an error or without; return those whose callbacks are to be called."""
    for run in runs:
        run.settle(error)
    return [run for run in runs if run.callbacks]


def run_at(driver: Driver, pointer: EventPointer) -> Run:
    """Return the run of one event that is durable already, at ``pointer``."""
    run = Run(driver, pointer.stream, pointer.segment_id)
    run.places.append(BlockPlace(0, pointer.offset - BLOCK_HEADER_SIZE, b""))
    run.settle()
    return run


class Ack(msgspec.Struct, eq=False):
    """What a write returns: the event's pointer once it is durable."""

    _run: Run
    _index: int

    __repr__ = object.__repr__  # and not that of the run, with all its events

    def done(self) -> bool:
        """Whether the event is durable, or has failed."""
        return self._run.is_done()

    def result(self, timeout: float | None = None) -> EventPointer:
        """Wait until the event is durable; return its pointer, or raise what made it fail."""
        if timeout is not None:
            check_timeout("timeout", timeout)
        run = self._run
        if not run.done:
            run.driver.drive(run, timeout)
        if run.error is not None:
            raise run.error
        return run.pointer(self._index)

    def add_done_callback(self, callback: Callable[[Ack], object]) -> None:
        """Call back with this object once it is done, at once if it is; what it raises is logged."""
        self._run.when_done(lambda: callback(self))


class EventPointers(Sequence[EventPointer]):
    """The pointers of a batch, in the order in which its events were given; each is made when it is asked for."""

    def __init__(self, runs: list[Run], which: npt.NDArray[np.integer] | None, index: npt.NDArray[np.integer]) -> None:
        self._runs, self._which, self._index = runs, which, index

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, item: int) -> EventPointer: ...

    @overload
    def __getitem__(self, item: slice) -> list[EventPointer]: ...

    def __getitem__(self, item: int | slice) -> EventPointer | list[EventPointer]:
        if isinstance(item, slice):
            return [self[place] for place in range(*item.indices(len(self)))]
        run = self._runs[0 if self._which is None else int(self._which[item])]
        return run.pointer(int(self._index[item]))


class BatchAck:
    """What the write of a batch returns: the pointers of its events once all of them are durable."""

    __slots__ = ("_pointers", "_runs")

    def __init__(self, runs: list[Run], pointers: EventPointers) -> None:
        self._runs, self._pointers = runs, pointers

    def done(self) -> bool:
        """Whether all events are durable, or some have failed."""
        return all(run.is_done() for run in self._runs)

    def result(self, timeout: float | None = None) -> EventPointers:
        """Wait until all events are durable; return their pointers, or raise what made one fail."""
        check_timeout("timeout", timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        for run in self._runs:
            if not run.done:
                run.driver.drive(run, None if deadline is None else deadline - time.monotonic())
            if run.error is not None:
                raise run.error
        return self._pointers

    def add_done_callback(self, callback: Callable[[BatchAck], object]) -> None:
        """Call back with this object once it is done, at once if it is; what it raises is logged."""
        left = count(len(self._runs) - 1, -1)  # counted down by any thread, each figure given once

        def one_done() -> None:
            if next(left) == 0:
                callback(self)

        for run in self._runs:
            run.when_done(one_done)
        if not self._runs:
            callback(self)


class DoneAck:
    """What a write returns that was over at once.

    That is a large event, or one that was durable before under the same number, whose pointer is not known any more.
    """

    __slots__ = ("_pointer",)

    def __init__(self, pointer: EventPointer | None) -> None:
        self._pointer = pointer

    def done(self) -> bool:
        """Return True: the write was over at once."""
        return True

    def result(self, timeout: float | None = None) -> EventPointer | None:
        """Return the event's pointer, if it is known, at once."""
        check_timeout("timeout", timeout)
        return self._pointer

    def add_done_callback(self, callback: Callable[[DoneAck], object]) -> None:
        """Call back at once."""
        callback(self)
