"""Time never overtakes data, whatever writers, scales, truncations and crashes do.

For every watermark (T, cut) each live writer has noted a time of T or later, and all that it had written before that
lies before the cut.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.model import StreamConfig
from penstock.stream.format._keys import key_position
from penstock.testing import ManualClock, MemoryDisk, RecordingDisk
from tests.log.harness import Published, RecordedOracle
from tests.sampling import EXPLORES, examples
from tests.stream.time.mark_harness import POINTS, at_point, whole_cells
from tests.stream.time.watermark_harness import MAINTENANCE_INTERVAL_S, STREAM, timed_store_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cpo import Cpo
    from penstock.model import EventPointer, Watermark
    from penstock.stream import Engine
    from penstock.stream.catalog._stream_state import StreamState
    from penstock.testing import CrashState

    Choose = Callable[[int], int]  # a number below another
    Say = Callable[[object], None]

CONFIG = StreamConfig(timestamp_aggregation_timeout=10**9)  # no writer is forgotten
KINDS = ["plain", "plain", "transactional", "automatic"]
KEYS = "abcdefgh"
STEPS = [
    *["write"] * 5, *["note"] * 4, *["pass"] * 4, *["commit"] * 2, "scale", "scale", "truncate", "close", "open",
    "open", "large",
]  # fmt: skip


@dataclass(frozen=True)
class Noting:
    """A writer is about to note a time, behind so many of its events."""

    writer: str
    time: int
    events: int


@dataclass(frozen=True)
class Noted:
    """A writer has noted a time since it was opened, and it was taken."""

    writer: str


@dataclass(frozen=True)
class Closing:
    """A writer is about to be closed."""

    writer: str


@dataclass(frozen=True)
class Passing:
    """A pass is about to begin."""


@dataclass(frozen=True)
class Seen:
    """A pass has returned, and this was the last watermark."""

    watermark: Watermark


@dataclass
class Source:
    """A writer, and what it has done."""

    name: str
    kind: str
    handle: Any
    events: list[tuple[float, Callable[[], EventPointer | None]]] = field(default_factory=list)
    notes: list[tuple[int, int]] = field(default_factory=list)  # which were taken: time, and events before it
    is_open: bool = True
    is_live: bool = False  # it has noted a time since it was opened
    was_reopened: bool = False  # since it noted a time
    closed: int = 0  # how many events it had written when it was closed last

    def note(self, time: int) -> None:
        """Take a note, unless it is earlier than the last."""
        if time >= self.time:
            self.notes.append((time, len(self.events)))
            self.is_live = True

    @property
    def time(self) -> int:
        """What it noted last."""
        return self.notes[-1][0] if self.notes else -1


class Life:
    """What happens to a stream, chosen step by step, and checked pass by pass."""

    def __init__(self, store: Engine, clock: ManualClock, choose: Choose, say: Say) -> None:
        self.store, self.clock, self.choose, self.say = store, clock, choose, say
        self.sources: dict[str, Source] = {}
        self.passes = 0
        self.seen: list[Watermark] = []
        store.create_stream(STREAM, config=CONFIG, exist_ok=True)

    @property
    def state(self) -> StreamState:
        return self.store.catalog.stream(STREAM)

    def run(self, steps: int) -> None:
        """Live for so many steps."""
        for _ in range(steps):
            getattr(self, STEPS[self.choose(len(STEPS))] + "_")()
        self.pass_()
        self.pass_()

    def any_of(self, *kinds: str) -> Source | None:
        found = [one for one in self.sources.values() if one.is_open and one.kind in kinds]
        return found[self.choose(len(found))] if found else None

    # Steps

    def open_(self) -> None:
        """Open a writer, or one that was closed again."""
        number = self.choose(len(KINDS))
        name, kind = f"{KINDS[number]}{number}", KINDS[number]
        if name in self.sources and self.sources[name].is_open:
            return
        self.open_one(name, kind)

    def open_one(self, name: str, kind: str) -> Source:
        if kind == "transactional":
            handle: Any = self.store.transactional_writer(STREAM, name)
        else:
            handle = self.store.writer(STREAM, name, automatically_note_time=kind == "automatic")
        known = self.sources.get(name)
        one = self.sources[name] = Source(name, kind, handle)
        if known is not None:
            one.events, one.notes, one.is_live, one.closed = known.events, known.notes, known.is_live, known.closed
            one.was_reopened = bool(one.notes)
        return one

    def write_(self) -> None:
        """Write some events, durably or not yet."""
        one = self.any_of("plain", "automatic")
        if one is None:
            return
        for _ in range(1 + self.choose(3)):
            key = KEYS[self.choose(len(KEYS))]
            ack = one.handle.write_event(b"event", key=key)
            one.events.append((key_position(key), ack.result))
        if self.choose(2):
            one.handle.flush()

    def large_(self) -> None:
        """Write an event that goes to where its key is now, whatever the writer knows."""
        one = self.any_of("plain", "automatic")
        if one is None or self.choose(3):
            return
        key = KEYS[self.choose(len(KEYS))]
        with one.handle.begin_write_event(key) as output:
            output.write(bytes((1 << 20) + 1))
        pointer = output.pointer
        one.events.append((key_position(key), lambda: pointer))

    def note_(self) -> None:
        """Note a time; now and then one that is earlier than the last."""
        one = self.any_of("plain")
        if one is not None:
            self.note_one(one, int(self.clock.now() - self.choose(5) * 0.4 * MAINTENANCE_INTERVAL_S) * 1000)

    def note_one(self, one: Source, time: int) -> None:
        self.say(Noting(one.name, time, len(one.events)))
        one.handle.note_time(time)
        one.handle.flush()
        one.note(time)
        if one.is_live:
            self.say(Noted(one.name))

    def commit_(self) -> None:
        """Commit some events with a time, or without."""
        one = self.any_of("transactional")
        if one is None:
            return
        transaction, outputs = one.handle.begin(lease=10**4), []
        for _ in range(self.choose(4)):
            key = KEYS[self.choose(len(KEYS))]
            with transaction.begin_write_event(key) as output:
                output.write(b"event")
            outputs.append((key_position(key), output))
        if not self.choose(4):
            transaction.commit()
            one.events += [(place, lambda out=out: out.pointer) for place, out in outputs]  # type: ignore[misc]
            return
        time = int(self.clock.now() - self.choose(5) * 0.4 * MAINTENANCE_INTERVAL_S) * 1000
        self.say(Noting(one.name, time, len(one.events) + len(outputs)))
        transaction.commit(time)
        one.events += [(place, lambda out=out: out.pointer) for place, out in outputs]  # type: ignore[misc]
        one.note(time)
        if one.is_live:
            self.say(Noted(one.name))

    def close_(self) -> None:
        """Close a writer."""
        one = self.any_of("plain", "automatic", "transactional")
        if one is not None:
            self.say(Closing(one.name))
            one.handle.close()
            one.is_open = one.is_live = one.was_reopened = False
            one.closed = len(one.events) if one.notes else 0  # a writer that never noted a time is not waited for

    def scale_(self) -> None:
        """Split, merge, or cut anew some neighbouring segments."""
        current = self.state.current
        first = self.choose(len(current))
        chosen = current[first : first + 1 + self.choose(2)]
        low, high = chosen[0].low, chosen[-1].high
        inside = whole_cells(low, high)
        cuts = [inside[self.choose(len(inside))]] if inside and len(current) < 5 and self.choose(3) else []
        marks = [low, *cuts, high]
        ranges = list(zip(marks, marks[1:], strict=False))  # noqa: RUF007 - pairs
        self.store.scale_stream(STREAM, [one.segment_id for one in chosen], ranges)

    def truncate_(self) -> None:
        """Let the stream begin at a watermark, or at its end."""
        marks = self.store.watermarks(STREAM, start=self.store.head(STREAM))
        if marks and self.choose(4):
            self.store.truncate_stream(STREAM, marks[self.choose(len(marks))].cut)
        elif not self.choose(3):
            self.store.truncate_stream(STREAM, self.store.tail(STREAM))

    def pass_(self) -> None:
        """Let a pass go by, and look at what it wrote."""
        self.clock.advance(MAINTENANCE_INTERVAL_S)
        automatic = [one for one in self.sources.values() if one.is_open and one.kind == "automatic"]
        known = {one.name for one in self.sources.values() if one.notes and (one.is_live or one not in automatic)}
        for one in automatic:
            time = int(self.clock.now() * 1000)
            self.say(Noting(one.name, time, len(one.events)))
            one.note(time)
        before = self.store.watermark(STREAM)
        self.say(Passing())
        self.store.maintain()
        for one in automatic:
            one.handle.flush()
            self.say(Noted(one.name))
        after = self.store.watermark(STREAM)
        self.passes += 1
        if after is not None and after != before:
            self.check_new(before, after, known)
            self.seen.append(after)
            self.say(Seen(after))
        if not automatic:
            self.check_that_time_goes_on(before, after)

    # What holds

    def check_new(self, before: Watermark | None, after: Watermark, known: set[str]) -> None:
        """See that a watermark follows the one before it, and that no writer contradicts it."""
        self.store.cuts.check(after.cut)
        assert after.lower <= after.upper
        if before is not None:
            assert after.lower > before.lower, "time went back"
            assert not goes_back(self.state, before, after)
        for one in self.sources.values():
            if one.name not in known or (not one.is_live and before is not None and one.time <= before.lower):
                continue  # had not given time when the pass began, or was closed and had counted
            enough = [events for time, events in one.notes if time >= after.lower]
            assert enough or not one.is_live, f"{one.name} has noted {one.time}, the watermark says {after}"
            count = enough[0] if one.kind == "automatic" and enough else one.notes[-1][1]
            for place, pointer in one.events[:count]:
                check_before(self.state, after, place, pointer())
        for one in self.sources.values():
            for place, pointer in one.events[: one.closed] if one.notes else ():
                check_before(self.state, after, place, pointer())

    def check_that_time_goes_on(self, before: Watermark | None, after: Watermark | None) -> None:
        """See that the pass wrote what it could: all that were waited for had noted something new."""
        if any(one.was_reopened and not one.is_live for one in self.sources.values()):
            return  # it may be waited for
        times = [one.time for one in self.sources.values() if one.is_live]
        waited = before is not None or (self.passes > 1 and after is not None)
        if times and waited and (before is None or min(times) > before.lower):
            assert after is not None
            assert after.lower == min(times)


def goes_back(state: StreamState, before: Watermark, after: Watermark) -> bool:
    """Whether a cut is before an earlier one, for any key; what was truncated away lies before everything."""
    for point in POINTS:
        old, new = at_point(state, before.cut.offsets, point), at_point(state, after.cut.offsets, point)
        if old is not None and (new is None or new < old):
            return True
    return False


def check_before(state: StreamState, mark: Watermark, place: float, pointer: EventPointer | None) -> None:
    """See that an event lies before a watermark, if it is there at all."""
    assert pointer is not None
    if pointer.segment_id in state.segments:
        found = at_point(state, mark.cut.offsets, place)
        assert found is None or (pointer.segment_id, pointer.offset) < found, f"{pointer} is not before {mark}"


def ignored(_: object) -> None:
    """What is only to be said where a crash may come."""


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 1 << 32))
def test_time_never_overtakes_data(seed: int) -> None:
    """Random writers of all kinds, splits, merges and truncations, and a restart in between."""
    chance, clock, disk = random.Random(seed), ManualClock(), MemoryDisk()
    with open_cpo("memory:") as cpo:
        with timed_store_on(disk, cpo, "main", clock, seed=1) as store:
            life = Life(store, clock, chance.randrange, ignored)
            life.open_one("plain0", "plain")
            life.run(50)
            marks = store.watermarks(STREAM)
        with timed_store_on(disk, cpo, "main", clock, seed=2) as store:
            assert store.watermarks(STREAM)[: len(marks)] == marks
            again = Life(store, clock, chance.randrange, ignored)
            again.sources, again.passes = life.sources, life.passes
            for one in again.sources.values():
                one.is_open = False  # though it still holds time: a store closes no writer for good
            again.run(20)


def live_by_chance(seed: int, disk: RecordingDisk, cpo: Cpo, clock: ManualClock) -> Life:
    chance = random.Random(seed)
    with timed_store_on(disk, RecordedOracle(cpo, disk), "main", clock, seed=seed) as store:  # type: ignore[arg-type]
        life = Life(store, clock, chance.randrange, disk.note)
        life.open_one("plain0", "plain")
        life.run(60)
    return life


def check_crash(state: CrashState, cpo: Cpo, life: Life, clock: ManualClock) -> int:
    """Recover from a crash; see that what was promised holds, and that time goes on from there."""
    published = [note.plog_id for note in state.notes if isinstance(note, Published)]
    if not published:
        return 0
    partition = f"{abs(hash(state.describe))}"
    cpo.set_metadata_plog(partition, published[-1], expected=0)
    seen = [note.watermark for note in state.notes if isinstance(note, Seen)]
    with timed_store_on(state.disk, cpo, partition, clock, seed=99) as store:
        if not store.streams():
            return 0
        store.maintain()  # as it does by itself when it is opened, sooner or later
        marks = store.watermarks(STREAM)
        lowers = [mark.lower for mark in marks]
        assert lowers == sorted(set(lowers))
        assert not seen or seen[-1] in marks, f"a watermark was lost: {state.describe}"
        if marks:
            check_promise(store, state, marks[-1], life)
        go_on(store, clock, marks)
    return len(marks)


def check_promise(store: Engine, state: CrashState, mark: Watermark, life: Life) -> None:
    """See that every writer that was waited for had noted the time, behind all that it had written before."""
    alive, waited_for = set[str](), set[str]()
    for note in state.notes:
        match note:
            case Noted(name):
                alive.add(name)
            case Closing(name):
                alive.discard(name)
            case Passing():
                waited_for = set(alive)
            case Seen(watermark) if watermark == mark:
                break
    else:
        waited_for &= alive  # it may be of the pass that a store makes when it is opened
    for name in waited_for:
        notes = [note for note in state.notes if isinstance(note, Noting) and note.writer == name]
        enough = [note.events for note in notes if note.time >= mark.lower]
        assert enough, f"{name} has not noted {mark}: {state.describe}"
        for place, pointer in life.sources[name].events[: enough[0]]:
            check_before(store.catalog.stream(STREAM), mark, place, pointer())


def go_on(store: Engine, clock: ManualClock, marks: list[Watermark]) -> None:
    """Let those on record come back, and another one come; time goes on behind what was there."""
    clock.advance(MAINTENANCE_INTERVAL_S)
    life = Life(store, clock, lambda _: 0, ignored)
    for name in sorted({*store.catalog.stream(STREAM).writers, "new"}):
        one = life.open_one(name, "plain")
        one.events.append((key_position("a"), one.handle.write_event(b"event", key="a").result))
        life.note_one(one, int(clock.now() * 1000))
    life.pass_()
    life.pass_()
    after = store.watermarks(STREAM)
    assert after[: len(marks)] == marks
    assert len(after) == len(marks) + 1


def test_time_never_overtakes_data_over_a_crash() -> None:
    """At many points of some lives, and whatever a power loss leaves of what was not synced."""
    watermarks = 0
    for seed in (1, 2, 3):
        disk, clock = RecordingDisk(), ManualClock()
        with open_cpo("memory:") as cpo:
            life = live_by_chance(seed, disk, cpo, clock)
        points = disk.crash_points()
        chosen = sorted(random.Random(seed).sample(points, 60 if EXPLORES else 7))
        with open_cpo("memory:") as cpo:
            for point in chosen:
                states = list(disk.crash_states(point, power_set_max=1))
                watermarks += check_crash(states[point % len(states)], cpo, life, clock)
    assert watermarks > (120 if EXPLORES else 14), "the lives have become too short to prove anything"
