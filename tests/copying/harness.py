"""Streams with a history of their own, and what a copy of one must have in common with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

from penstock import StreamConfig, StreamCut
from penstock.copying import translate_cut
from penstock.copying._records import records_of
from penstock.copying._state import CopyState
from penstock.errors import DataTruncated
from penstock.model import EventPointer, SegmentRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from penstock import Store
    from penstock.testing import ManualClock

STREAM: Final = "plant/readings"
KEYS: Final = [*"abcdefgh", None, None]
LARGE: Final = 1 << 20
CHANGES: Final = {
    "add_watermarks",
    "commit_all",
    "create_reader_group",
    "create_stream",
    "prepare",
    "register_consumer",
    "scale_stream",
    "seal_stream",
    "update_stream",
    "write_event",
}
"""What a copy changes in its target."""


class Crash(Exception):
    """The process that copies ends here."""


class Mortal:
    """A store, a writer or a transaction of a process that ends before or after one of its changes.

    ``countdown`` says after how many; a process that begins at 0 lives for ever. With another ``error``, that is what
    happens to the process instead, once.
    """

    def __init__(self, inner: object, countdown: list[int], error: type[Exception] | Exception = Crash) -> None:
        self._inner, self._countdown, self._error = inner, countdown, error

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._inner, name)
        if name in {"writer", "transactional_writer", "begin"}:
            return lambda *args, **more: Mortal(found(*args, **more), self._countdown, self._error)
        return self._mortal(found) if name in CHANGES else found

    def _mortal(self, change: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            self._live()
            done = change(*args, **more)
            self._live()
            return done

        return call

    def _live(self) -> None:
        self._countdown[0] -= 1
        if not self._countdown[0]:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not Crash:
            self._inner.__exit__(*error)  # type: ignore[attr-defined]


class History:
    """Does random things to a stream, each of which leaves its trace in what a copy must have."""

    def __init__(self, store: Store, clock: ManualClock, dice: Random) -> None:
        self.store, self._clock, self._dice = store, clock, dice
        store.create_stream(STREAM, dice.choice([1, 2, 3]), StreamConfig(keep_keys=dice.random() < 0.8))
        self._writer = store.writer(STREAM, "w")
        self._number = self._time = 0
        self.cuts: list[StreamCut] = []

    def run(self, count: int, *, truncates: bool) -> None:
        """Do so many things."""
        acts: list[Callable[[], object]] = [self._write, self._write, self._batch, self._commit, self._note, self._note]
        acts += [self._scale, self._note_cut, *([self._truncate] if truncates else [])]
        for _ in range(count):
            self._dice.choice(acts)()
            self._writer.flush()
        self._note()
        while (last := self.store.watermark(STREAM)) is None or last.lower < self._time:
            self._maintain()  # no watermark is still to come for what is copied now

    def _event(self) -> bytes:
        self._number += 1
        return f"{self._number:06}".encode() + b"." * self._dice.choice([0, 1, 50, 900])

    def _write(self) -> None:
        for _ in range(self._dice.randrange(1, 6)):
            headers = self._dice.choice([None, None, {"trace": b"1"}, [("x", b""), ("x", b"2")]])
            self._writer.write_event(self._event(), self._dice.choice(KEYS), headers=headers)

    def _batch(self) -> None:
        count = self._dice.randrange(1, 40)
        self._writer.write_batch([self._event() for _ in range(count)], [self._dice.choice(KEYS) for _ in range(count)])

    def _commit(self) -> None:
        with self.store.transactional_writer(STREAM).begin() as transaction:
            for _ in range(self._dice.randrange(1, 5)):
                transaction.write_event(self._event(), self._dice.choice(KEYS))
            if self._dice.random() < 0.15:
                with transaction.begin_write_event(self._dice.choice(KEYS), headers={"big": b""}) as output:
                    output.write(self._event() + bytes(LARGE))

    def _note(self) -> None:
        self._time += self._dice.randrange(1, 5)
        self._writer.note_time(self._time)
        self._maintain()

    def _maintain(self) -> None:
        self._clock.advance(1)
        self.store.maintain()

    def _scale(self) -> None:
        current = self.store.stream(STREAM).segments
        first = self._dice.randrange(len(current))
        chosen = current[first : first + self._dice.choice([1, 1, 2])]
        low, high = chosen[0].low, chosen[-1].high
        middle = low + (high - low) * self._dice.choice([0.25, 0.5])
        ranges = self._dice.choice([[(low, high)], [(low, middle), (middle, high)]])
        self.store.scale_stream(STREAM, [segment.segment_id for segment in chosen], ranges)

    def _truncate(self) -> None:
        if self.cuts and self._dice.random() < 0.3:
            self.store.truncate_stream(STREAM, self.cuts.pop(0))
            self.cuts = []

    def _note_cut(self) -> None:
        """Remember a cut: the tail, or where a reader group is after some events."""
        group = self.store.create_reader_group(f"g{self._number}.{len(self.cuts)}", [STREAM])
        with group.reader("r", max_event_size=2 * LARGE) as reader:
            for _ in range(self._dice.randrange(12)):
                reader.read_next_event(timeout=0)
        self.cuts += [group.position[0], self.store.tail(STREAM)]
        group.delete()


def event_at(store: Store, row: dict[str, Any]) -> tuple[Any, ...]:
    event = row["event"]
    if event is None:
        event = store.fetch_event(EventPointer(STREAM, row["segment_id"], row["offset"]))
    return event, row["key"], row["headers"]


def events_between(store: Store, start: StreamCut | None, end: StreamCut | None) -> Counter[tuple[Any, ...]]:
    rows = (row for batch in store.read(STREAM, start, end) for row in batch.to_pylist())
    return Counter((event[:20], key, repr(headers)) for event, key, headers in (event_at(store, row) for row in rows))


def by_segment(store: Store) -> dict[int, list[tuple[object, ...]]]:
    """Return the events of each segment, in order, behind its part of the key space."""
    spans = {segment.segment_id: (segment.low, segment.high) for segment in store.stream_segments(STREAM)}
    found: dict[int, list[tuple[object, ...]]] = {segment: [span] for segment, span in spans.items()}
    for part in store.segment_ranges(STREAM):
        assert isinstance(part, SegmentRange)
        found[part.segment_id] += [
            event_at(store, row) for batch in store.read_range(part) for row in batch.to_pylist()
        ]
    return found


def check_copy(source: Store, target: Store, cuts: list[StreamCut]) -> None:
    """Require that a stream and its copy have the same events, watermarks and cuts."""
    targets = CopyState.of(records_of(target, STREAM)).targets
    ours, theirs = by_segment(source), by_segment(target)
    first = len(theirs) - len(ours)  # a stream that was truncated may begin with parts of any size: a scale makes them
    assert {targets[segment]: events for segment, events in ours.items()} == {
        segment: theirs[segment] for segment in sorted(theirs)[first:]
    }
    info, copied = source.stream(STREAM), target.stream(STREAM)
    assert (info.config, info.state, info.events) == (copied.config, copied.state, copied.events)
    marks, copied_marks = source.watermarks(STREAM), target.watermarks(STREAM)
    assert [(mark.lower, mark.upper) for mark in marks] == [(mark.lower, mark.upper) for mark in copied_marks]
    pairs = [(mark.cut, copy.cut) for mark, copy in zip(marks, copied_marks, strict=True)]
    pairs += [(cut, translate_cut(source, target, cut)) for cut in cuts]
    for cut, translated in pairs:
        behind = events_between(target, translated, None)
        try:
            assert behind == events_between(source, cut, None)
        except DataTruncated:  # a watermark from before the head, in some segment
            assert behind <= events_between(source, None, None)
