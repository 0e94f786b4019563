"""A power loss in a store's life: after every kind of operation in every step of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from penstock.cpo import open_cpo
from penstock.errors import DataTruncated
from penstock.model import EventPointer, StreamCut
from penstock.testing import RecordingDisk
from tests.log.harness import Published, RecordedOracle
from tests.sampling import crash_states
from tests.stream.harness import STREAM, event_of, numbers_of, store_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cpo import Cpo
    from penstock.stream import Engine, Reader
    from penstock.testing import CrashState


@dataclass(frozen=True)
class Acked:
    """The event of this number is durable."""

    number: int


@dataclass(frozen=True)
class Read:
    """A reader was given the event of this number, and has gone on."""

    number: int


@dataclass(frozen=True)
class Cut:
    """The stream is about to begin behind the event of this number; what lies before may be gone."""

    number: int


@dataclass(frozen=True)
class Done:
    """A step returned to its caller."""

    name: str


class Life:
    """What happens to the store, noted on its disk."""

    def __init__(self, store: Engine, disk: RecordingDisk) -> None:
        self._store, self._disk = store, disk
        self._numbers = count()
        self._pointers: dict[int, EventPointer] = {}

    def run(self) -> None:
        """Live through all of it."""
        store = self._store
        self._step("created", lambda: store.create_stream(STREAM))
        self._write("abc", flush_every=1)
        self._step("split", lambda: store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)]))
        self._write("abcdefgh", flush_every=4)
        self._step("grouped", lambda: store.create_reader_group("group", [STREAM]))
        self._step("read", lambda: self._read(5))
        self._step("merged", lambda: store.scale_stream(STREAM, [1, 2], [(0.0, 1.0)]))
        self._write("abcd", flush_every=2)
        self._truncate(12)
        self._write("ab", flush_every=1)
        self._step("sealed", lambda: store.seal_stream(STREAM))
        self._step("deleted", lambda: store.delete_stream(STREAM))

    def _step(self, name: str, step: Callable[[], object]) -> None:
        step()
        self._disk.note(Done(name))

    def _write(self, keys: str, *, flush_every: int) -> None:
        with self._store.writer(STREAM, "w") as writer:
            for index, key in enumerate(keys):
                number = next(self._numbers)
                ack = writer.write_event(event_of(number, key), key=key, number=number)
                ack.add_done_callback(partial(self._note_ack, number))
                if index % flush_every == flush_every - 1:
                    pointer = ack.result()
                    assert pointer is not None
                    self._pointers[number] = pointer

    def _note_ack(self, number: int, _: object) -> None:
        self._disk.note(Acked(number))

    def _read(self, events: int) -> None:
        with self._store.reader_group("group").reader("reader") as reader:
            reads = [reader.read_next_event(0.0) for _ in range(events)]
        for read in reads:
            assert read is not None
            self._disk.note(Read(int(read.event.split(b":")[1])))

    def _truncate(self, number: int) -> None:
        self._disk.note(Cut(number))
        self._store.truncate_stream(STREAM, StreamCut.of(STREAM, {3: self._pointers[number].offset}))
        self._disk.note(Done("truncated"))


KEYS = "abcabcdefghabcdab"  # of the events, by number


def check(state: CrashState, cpo: Cpo) -> None:
    """Recover from one crash; see that nothing is lost, doubled or out of order; and go on."""
    done = {note.name for note in state.notes if isinstance(note, Done)}
    published = [note.plog_id for note in state.notes if isinstance(note, Published)]
    partition = "begun" if published else f"new-{hash(state.describe)}"
    if published:
        newest = cpo.metadata_plog(partition)
        cpo.set_metadata_plog(partition, published[-1], expected=newest.version if newest else 0)
    with store_on(state.disk, cpo, partition, seed=2) as store:
        names = [info.name for info in store.streams()]
        assert "created" not in done or "sealed" in done or names == [STREAM], state.describe
        assert "deleted" not in done or not names, state.describe
        if names:
            check_stream(store, state, done)


def check_stream(store: Engine, state: CrashState, done: set[str]) -> None:
    acked = {note.number for note in state.notes if isinstance(note, Acked)}
    cuts = {note.number for note in state.notes if isinstance(note, Cut)}
    found = check_order(store, state)
    missing = acked - {number for _, number in found}
    assert not missing or all(number < max(cuts, default=0) for number in missing), state.describe
    if "truncated" in done:
        assert min(number for _, number in found) == max(cuts), state.describe
    if "read" in done:
        check_group(store, state, found)
    if store.stream(STREAM).state == "sealed":
        return
    check_replay(store, state, found, acked)


def check_order(store: Engine, state: CrashState) -> list[tuple[str, int]]:
    found = numbers_of(store)
    assert len(set(found)) == len(found), f"doubled: {state.describe}"
    for key in KEYS:
        numbers = [number for own, number in found if own == key]
        assert numbers == sorted(numbers), f"out of order: {state.describe}"
    return found


def check_group(store: Engine, state: CrashState, found: list[tuple[str, int]]) -> None:
    """Reading goes on behind the events that were read; all others come, each once."""
    numbers: list[int] = []
    with store.reader_group("group").reader("another") as reader:
        while (events := next_events(reader)) is not None:
            numbers += (int(event.split(b":")[1]) for event in events)
    read = {note.number for note in state.notes if isinstance(note, Read)}
    assert sorted(numbers) == sorted({number for _, number in found} - read), state.describe


def next_events(reader: Reader) -> list[bytes] | None:
    """Return what comes next, nothing of it where something was truncated away, None at the end."""
    try:
        batch = reader.read_batch(timeout=0.0)
    except DataTruncated:
        return []
    return None if batch is None else batch["event"].to_pylist()


def check_replay(store: Engine, state: CrashState, found: list[tuple[str, int]], acked: set[int]) -> None:
    """A source that begins again with its first event changes nothing but what was missing."""
    first = min((number for _, number in found), default=0)
    with store.writer(STREAM, "w") as writer:
        last = writer.last_number
        assert last is None or set(range(first, last + 1)) <= {number for _, number in found}, state.describe
        assert not acked or (last is not None and last >= max(acked)), state.describe
        for number, key in enumerate(KEYS):
            writer.write_event(event_of(number, key), key=key, number=number)
    again = check_order(store, state)
    assert {number for _, number in again} >= set(range(first, len(KEYS))), state.describe


def test_a_crash_at_any_point_of_a_store_loses_doubles_and_reorders_nothing() -> None:
    """Create, write, split, read, merge, truncate, seal, delete: whatever was under way, what was said holds."""
    disk = RecordingDisk()
    with open_cpo("memory:") as cpo, store_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as store:  # type: ignore[arg-type]
        Life(store, disk).run()
    with open_cpo("memory:") as cpo:
        for state in crash_states(disk):
            check(state, cpo)
    assert len(disk.crash_points()) > 300, "the history has become too short to prove anything"
