"""Reader groups: who reads what, leases, checkpoints, resets, and what a crash leaves."""

from __future__ import annotations

import shutil
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    CheckpointFailed,
    DataTruncated,
    GroupExists,
    NoSuchGroup,
    NoSuchReader,
    NoSuchStream,
    ReaderInUse,
    ReaderOffline,
    WrongCut,
)
from penstock.log import PlogSizes
from penstock.model import Lag, Position, StreamCut
from penstock.stream.catalog._group_state import lost_segments
from penstock.stream.format._block import StreamBlockHeader, pack_lengths
from penstock.stream.group import _losses
from penstock.stream.group._membership import LocalMembership
from penstock.stream.read import READER_LEASE_S
from penstock.testing import ManualClock
from tests.stream.harness import embedded_only, inside, is_embedded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import Engine, LocalReaderGroup, Reader

STREAM: Final = "plant/readings"
OTHER: Final = "plant/alarms"
BLOCK: Final = 64 + 4  # what a block of one empty event takes
SECONDS_MAX: Final = 20.0
"""How long to wait for another thread before the test is taken to have failed."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def put(store: Engine, *events: bytes, segment: int = 0, stream: str = STREAM) -> None:
    """Append one block, durably."""
    store = inside(store)
    header = StreamBlockHeader(count=len(events), time_ms=int(store.clock.now() * 1000))
    lengths = pack_lengths(np.array([len(event) for event in events]))
    store.segments.get(stream, segment).submit(header, lengths, b"".join(events)).result()


def new_group(store: Engine, segments: int = 1, name: str = "g") -> LocalReaderGroup:
    """A group on a new stream."""
    store.create_stream(STREAM, segments=segments, exist_ok=True)
    return store.create_reader_group(name, [STREAM])


def take(reader: Reader, count: int) -> list[bytes]:
    """Return the next events; fewer if there are no more."""
    reads = (reader.read_next_event(timeout=0) for _ in range(count))
    return [read.event for read in reads if read is not None]


def rest(reader: Reader) -> list[bytes]:
    """Return all events that are there now."""
    found = []
    while (read := reader.read_next_event(timeout=0)) is not None:
        found.append(read.event)
    return found


def held(store: Engine, group: str = "g") -> dict[str, list[int]]:
    """Return which segments each reader has."""
    return {name: sorted(one for _, one in keys) for name, keys in inside(store).catalog.group(group).readers.items()}


@contextmanager
def killed(folder: Path) -> Iterator[Engine]:
    """Open what a store would find whose owner was killed now: a copy of the folder, without a word to the owner."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    with open_store(copy) as store:
        yield store


# Creating


def test_a_group_begins_at_the_head_or_at_a_cut_of_each_stream(store: Engine) -> None:
    """A stream without a cut is read from its head."""
    for stream in (STREAM, OTHER):
        store.create_stream(stream)
        put(store, b"", stream=stream)
    group = store.create_reader_group("g", [STREAM, OTHER], start=store.tail(OTHER))
    assert group.streams == (STREAM, OTHER)
    assert group.position == (store.head(STREAM), store.tail(OTHER))
    assert store.reader_group("g").position == group.position
    assert group.readers() == []


def test_what_is_no_place_is_refused_with_the_places_that_are(store: Engine) -> None:
    """The name of a checkpoint, seconds of time.time() and the text of a pointer are at hand, but are no places."""
    store.create_stream("plant/readings")
    group = store.create_reader_group("g", ["plant/readings"])
    for to in ("noon", 1_794_803_987.5):
        with pytest.raises(
            BadArgument, match=r"group\.checkpoints\['noon'\].* a datetime, or whole milliseconds since 1970"
        ):
            group.reset(to)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match=r"use EventPointer\.parse\(text\)"):
        store.fetch_event("plant/readings:0@0")  # type: ignore[arg-type]
    checkpoint = group.checkpoint("noon")
    group.reset(group.checkpoints["noon"])
    assert group.checkpoints["noon"] == checkpoint


def test_a_group_that_is_there_may_be_asked_for_again(store: Engine) -> None:
    """A script that creates what it needs runs twice, and the second time goes on where the first has stopped."""
    store.create_stream(STREAM)
    store.create_stream(OTHER)
    start = store.head(STREAM)
    put(store, b"a", b"b")
    group = store.create_reader_group("g", [STREAM, OTHER], start, exist_ok=True)
    with group.reader("r") as reader:
        assert reader.read_next_event(SECONDS_MAX) is not None
    for again in (None, start):
        same = store.create_reader_group("g", [OTHER, STREAM], again, exist_ok=True)
        assert same.position == group.position
    store.truncate_stream(STREAM, store.tail(STREAM))
    store.create_reader_group("g", [OTHER, STREAM], start, exist_ok=True)  # it began there, whatever is left


def test_a_group_that_is_there_and_another_than_was_asked_for_is_refused(store: Engine) -> None:
    """No group reads on silently from a place, or of a stream, that was not meant; the message says which."""
    store.create_stream(STREAM)
    store.create_stream(OTHER)
    put(store, b"a")
    tail = store.tail(STREAM)
    store.create_reader_group("g", [STREAM], exist_ok=True)
    store.create_reader_group("h", [STREAM], end=tail)
    with pytest.raises(GroupExists, match=rf"has other streams than \['{STREAM}', '{OTHER}'\]: choose"):
        store.create_reader_group("g", [STREAM, OTHER], exist_ok=True)
    with pytest.raises(GroupExists, match=rf"has another start, \['{STREAM}:0@0'\]: choose"):
        store.create_reader_group("g", [STREAM], tail, exist_ok=True)
    with pytest.raises(GroupExists, match="has another end, none: choose"):
        store.create_reader_group("g", [STREAM], end=tail, exist_ok=True)
    with pytest.raises(GroupExists, match=rf"has an end, \['{tail}'\]: choose"):
        store.create_reader_group("h", [STREAM], exist_ok=True)
    store.create_reader_group("h", [STREAM], end=tail, exist_ok=True)
    with pytest.raises(GroupExists, match="exists: choose another name, or pass exist_ok=True"):
        store.create_reader_group("g", [STREAM])


def test_a_group_that_cannot_be_is_refused(store: Engine) -> None:
    """Each mistake has its own error, and leaves nothing behind."""
    store.create_stream(STREAM)
    store.create_stream(OTHER)
    put(store, b"")
    put(store, b"")
    head, middle, tail = store.head(STREAM), StreamCut.of(STREAM, {0: BLOCK}), store.tail(STREAM)
    create = store.create_reader_group
    for name in ("", "a/b", None):
        with pytest.raises(BadArgument, match="reader group"):
            create(name, [STREAM])  # type: ignore[arg-type]
    for streams in ([], [STREAM, STREAM], ["x"], [None]):
        with pytest.raises(BadArgument):
            create("g", streams)  # type: ignore[arg-type]
    with pytest.raises(NoSuchStream):
        create("g", ["plant/unknown"])
    with pytest.raises(WrongCut, match="a cut of stream 'plant/alarms'"):
        create("g", [STREAM], start=store.head(OTHER))
    with pytest.raises(WrongCut, match="ends before"):
        create("g", [STREAM], start=tail, end=middle)
    with pytest.raises(WrongCut):
        create("g", [STREAM], end=StreamCut.of(STREAM, {0: tail.offsets[0] + 1}))
    with pytest.raises(BadArgument, match="one cut of each stream"):
        create("g", [STREAM], start=[head, tail])
    for start in ("noon", -7, [None]):
        with pytest.raises(BadArgument):
            create("g", [STREAM], start=start)  # type: ignore[arg-type]
    store.truncate_stream(STREAM, middle)
    with pytest.raises(DataTruncated):
        create("g", [STREAM], start=head)
    with pytest.raises(NoSuchGroup):
        store.reader_group("g")
    create("g", [STREAM], start=middle, end=middle)
    with pytest.raises(GroupExists):
        create("g", [STREAM])


def test_a_group_may_not_begin_in_segments_that_follow_its_end(store: Engine) -> None:
    """Behind is behind, also over a change of segments."""
    store.create_stream(STREAM)
    before = store.tail(STREAM)
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    with pytest.raises(WrongCut, match="ends before"):
        store.create_reader_group("g", [STREAM], start=store.tail(STREAM), end=before)


# Sharing


def test_readers_share_the_segments_and_give_them_up_exactly_where_they_are(store: Engine) -> None:
    """When readers come and go in good order, nothing is read twice and nothing is left out."""
    group = new_group(store, segments=4)
    for number in range(4):
        put(store, b"a%d" % number, b"b%d" % number, segment=number)
    with group.reader("r1") as first:
        found = take(first, 1)
        assert held(store) == {"r1": [0, 1, 2, 3]}
        with group.reader("r2") as second:
            found += take(first, 1)
            assert held(store) == {"r1": [0, 1], "r2": []}
            found += take(second, 1)
            assert held(store) == {"r1": [0, 1], "r2": [2, 3]}
            assert group.readers() == ["r1", "r2"]
        found += rest(first)
        assert held(store) == {"r1": [0, 1, 2, 3]}
    assert sorted(found) == sorted(b"%c%d" % (letter, number) for letter in b"ab" for number in range(4))


@given(
    segments=st.integers(1, 5),
    steps=st.lists(
        st.tuples(st.sampled_from(["join", "close", "event", "batch", "put", "scale"]), st.integers(0, 4)), max_size=60
    ),
)
def test_however_readers_come_and_go_every_event_is_read_once_and_each_key_in_order(
    segments: int, steps: list[tuple[str, int]]
) -> None:
    """The promise of a group, across scaling too."""
    with open_store("memory:", clock=ManualClock()) as store, ExitStack() as stack:
        group = new_group(store, segments)
        readers: dict[int, Reader] = {}
        written = 0
        found: list[bytes] = []
        for step, number in steps:
            if step == "join" and number not in readers:
                readers[number] = stack.enter_context(group.reader(f"r{number}"))
            elif step == "close" and number in readers:
                readers.pop(number).close()
            elif step == "event" and number in readers:
                found += take(readers[number], 1)
            elif step == "batch" and number in readers:
                batch = readers[number].read_batch(20, timeout=0)
                found += [] if batch is None else batch["event"].to_pylist()
            elif step == "put":
                for one in store.stream(STREAM).segments:
                    put(store, *(b"%d %.3f" % (written + more, one.low) for more in range(3)), segment=one.segment_id)
                written += 3
            elif step == "scale":
                split_or_merge(store, number)
        store.seal_stream(STREAM)
        last = stack.enter_context(group.reader("last"))
        for reader in readers.values():
            reader.close()
        found += rest(last)
        assert last.finished
    assert max(Counter(found).values(), default=1) == 1
    assert {int(event.split()[0]) for event in found} == set(range(written))
    by_key = defaultdict(list)
    for event in found:
        turn, low = event.split()
        by_key[low].append(int(turn))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def split_or_merge(store: Engine, number: int) -> None:
    segments = store.stream(STREAM).segments
    one = segments[number % len(segments)]
    following = [other for other in segments if other.low == one.high]
    if following and number == 4:
        marks = (one.low, (one.low + one.high) / 2, following[0].high)
        store.scale_stream(STREAM, [one.segment_id, following[0].segment_id], list(pairwise(marks)))
    elif following and number % 2:
        store.scale_stream(STREAM, [one.segment_id, following[0].segment_id], [(one.low, following[0].high)])
    elif len(segments) < 8:
        middle = (one.low + one.high) / 2
        store.scale_stream(STREAM, [one.segment_id], [(one.low, middle), (middle, one.high)])


def test_threads_that_read_write_and_scale_at_once_read_every_event_once(
    store: Engine, pool: ThreadPoolExecutor
) -> None:
    """As above, with all that happens at the same time, and readers that wait."""
    group = new_group(store, segments=3)
    found: list[list[bytes]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        with group.reader(f"r{number}") as reader:
            if number % 2:
                while (batch := reader.read_batch(200)) is not None:
                    found[number] += batch["event"].to_pylist()
            else:
                found[number] += [read.event for read in reader]

    workers = [pool.submit(work, number) for number in range(4)]
    written = 0
    for turn in range(60):
        for one in store.stream(STREAM).segments:
            put(store, *(b"%d" % (written + more) for more in range(10)), segment=one.segment_id)
            written += 10
        if turn % 5 == 0:
            split_or_merge(store, turn)
    store.seal_stream(STREAM)
    for worker in workers:
        worker.result(SECONDS_MAX)
    assert sorted(int(event) for events in found for event in events) == list(range(written))


def test_a_waiting_reader_takes_what_another_gives_up(store: Engine, pool: ThreadPoolExecutor) -> None:
    """It is woken: no thread polls."""
    group = new_group(store)
    put(store, b"a")
    with group.reader("r1") as first:
        assert take(first, 1) == [b"a"]
        with group.reader("r2") as second:
            waiting = pool.submit(second.read_next_event, SECONDS_MAX)
            put(store, b"b")
            first.close()
            read = waiting.result(SECONDS_MAX)
            assert read is not None
            assert read.event == b"b"


def test_a_reader_without_segments_ends_with_the_others(store: Engine, pool: ThreadPoolExecutor) -> None:
    """It waits while they read, because one of them might fail; then there is nothing left to wait for."""
    group = new_group(store)
    put(store, b"a")
    with group.reader("r1") as first, group.reader("r2") as second:
        assert take(first, 1) == [b"a"]
        waiting = pool.submit(lambda: list(second))
        store.seal_stream(STREAM)
        assert rest(first) == []
        assert waiting.result(SECONDS_MAX) == []


def test_two_readers_of_one_name_cannot_read_at_once(store: Engine) -> None:
    """They would take each other's places for their own."""
    group = new_group(store)
    with group.reader("r1"), pytest.raises(ReaderInUse):
        store.reader_group("g").reader("r1")
    group.reader("r1").close()


# Leases


def test_a_silent_reader_is_taken_offline_and_another_reads_on_from_where_it_was(
    store: Engine, clock: ManualClock
) -> None:
    """A reader that hangs does not hold up its segments for ever; what it had worked off is not read again."""
    group = new_group(store, segments=2)
    for number in range(2):
        put(store, b"a%d" % number, b"b%d" % number, segment=number)
    with group.reader("r1") as first:
        assert take(first, 2) == [b"a0", b"b0"]
        with group.reader("r2") as second:
            clock.advance(READER_LEASE_S)
            assert rest(second) == []
            clock.advance(1)
            unsaid = [] if is_embedded(store) else [b"a0"]  # over the wire it says only from time to time where it is
            assert rest(second) == [*unsaid, b"b0", b"a1", b"b1"]
            assert group.readers() == ["r2"]
            for read in (first.read_next_event, first.read_batch):
                with pytest.raises(ReaderOffline, match="silent"):
                    read(timeout=0)
        first.close()
        with group.reader("r1") as again:
            assert rest(again) == []


def test_a_reader_that_was_taken_offline_is_woken_no_more(store: Engine, clock: ManualClock) -> None:
    """It may never be called again, and segments would collect its wake-ups for ever."""
    embedded_only(store)
    group = new_group(store, segments=2)
    ends = (
        lambda: clock.advance(READER_LEASE_S + 1),
        lambda: group.reader_offline("r1"),
        lambda: group.reset("head"),
        group.delete,
    )
    for number, end in enumerate(ends):
        assert rest(group.reader(f"r{number}")) == []
        end()
    assert not any(inside(store).segments.get(STREAM, number)._watchers for number in range(2))


def test_a_reader_that_is_called_now_and_then_keeps_its_segments(store: Engine, clock: ManualClock) -> None:
    """Also if it takes its time with the events of one block, which leaves no other trace."""
    embedded_only(store)
    group = new_group(store)
    put(store, *[b"a"] * 10)
    with group.reader("r1") as first, group.reader("r2") as second:
        for _ in range(10):
            assert take(first, 1) == [b"a"]
            clock.advance(READER_LEASE_S)
            assert rest(second) == []
        assert rest(first) == []


def test_a_reader_that_waits_is_not_silent(store: Engine, clock: ManualClock, pool: ThreadPoolExecutor) -> None:
    """Nothing came for an hour, and it is still there."""
    embedded_only(store)
    group = new_group(store)
    with group.reader("r1") as first:
        assert rest(first) == []
        waiting = pool.submit(first.read_next_event, SECONDS_MAX)
        with group.reader("r2") as second:
            first_is_inside(first)
            clock.advance(3600)
            assert rest(second) == []
            clock.advance(3600)
            assert rest(second) == []
            put(store, b"a")
            read = waiting.result(SECONDS_MAX)
            assert read is not None


def test_a_reader_that_is_kept_alive_keeps_its_segments(
    store: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work on one event may take hours; the lease begins anew when it is done."""
    monkeypatch.setattr("penstock.client._membership._REPORT_EVERY_S", 0.0)
    group = new_group(store)
    put(store, b"a", b"b")
    with group.reader("r1") as first, group.reader("r2") as second:
        assert take(first, 1) == [b"a"]
        with first.keep_alive():
            with first.keep_alive():
                pass_an_hour(store, clock, second)
            first.commit()
            pass_an_hour(store, clock, second)
        clock.advance(READER_LEASE_S)
        assert rest(second) == []
        clock.advance(1)
        assert rest(second) == [b"b"]
        assert group.readers() == ["r2"]


def pass_an_hour(store: Any, clock: ManualClock, idle: Reader) -> None:  # noqa: ANN401 - here or over the wire
    for _ in range(120):
        clock.advance(READER_LEASE_S)
        if not is_embedded(store):
            store.report()  # which a thread of the client does every few seconds
        assert rest(idle) == []


def first_is_inside(reader: Reader) -> None:
    """Return once the reader's thread is at work; it looks at its group again whenever it is asked to."""
    reached, membership = threading.Event(), reader._membership
    assert isinstance(membership, LocalMembership)
    original = membership._coordinator.rebalance

    def rebalance(reader_id: str, places: Any) -> Any:  # noqa: ANN401 - as the original
        if reader_id == reader.reader_id:
            reached.set()
        return original(reader_id, places)

    membership._coordinator.rebalance = rebalance  # type: ignore[method-assign]
    reader._member.attend()
    assert reached.wait(SECONDS_MAX)
    membership._coordinator.rebalance = original  # type: ignore[method-assign]


def test_the_name_of_a_silent_reader_is_free_again(store: Engine, clock: ManualClock) -> None:
    """A user who restarts hanging work under the same name need not wait until another reader notices."""
    group = new_group(store)
    put(store, b"a")
    hanging = group.reader("r1")
    assert take(hanging, 1) == [b"a"]
    clock.advance(READER_LEASE_S + 1)
    with group.reader("r1") as again:
        assert rest(again) == [b"a"]
    with pytest.raises(ReaderOffline):
        hanging.read_next_event(timeout=0)


def test_a_reader_can_be_taken_offline_by_hand(store: Engine) -> None:
    """Somebody who knows that it is gone need not wait; with the position of its last results nothing is done twice."""
    group = new_group(store)
    put(store, b"a", b"b", b"c", b"d")
    reader = group.reader("r1")
    reads = [reader.read_next_event(timeout=0) for _ in range(3)]
    position = reads[0].position if reads[0] else None
    group.reader_offline("r1", position)
    with pytest.raises(ReaderOffline, match="taken offline"):
        reader.read_next_event(timeout=0)
    with group.reader("r1") as reader:
        assert take(reader, 2) == [b"b", b"c"]
        group.reader_offline("r1")
    with group.reader("r2") as reader:
        assert rest(reader) == [b"c", b"d"]
    with pytest.raises(NoSuchReader):
        group.reader_offline("r1")


def test_a_reader_is_not_taken_offline_at_a_place_that_is_none(store: Engine) -> None:
    """It could never be read on from there."""
    group = new_group(store)
    put(store, b"abc")
    with group.reader("r1") as reader:
        assert take(reader, 1) == [b"abc"]
        for offsets in ({(STREAM, 0): 57}, {(STREAM, 0): 1000}, {(OTHER, 0): 0}):
            with pytest.raises(WrongCut):
                group.reader_offline("r1", Position.of(offsets))
        with pytest.raises(BadArgument):
            group.reader_offline("r1", "plant/readings:0@0")  # type: ignore[arg-type]
        assert group.readers() == ["r1"]


# Checkpoints


def test_a_checkpoint_is_where_all_readers_were_and_a_reset_goes_back_there(
    store: Engine, pool: ThreadPoolExecutor
) -> None:
    """Results that were saved at the checkpoint, and events read again from there, add up to every event once."""
    group = new_group(store, segments=2)
    for number in range(2):
        put(store, b"a%d" % number, b"b%d" % number, b"c%d" % number, segment=number)
    with group.reader("r1") as first, group.reader("r2") as second:
        assert take(first, 1) == [b"a0"]
        assert take(second, 2) == [b"a1", b"b1"]
        waiting = pool.submit(group.checkpoint, "c", SECONDS_MAX)
        wait_for_checkpoint(store)
        for reader, event in ((first, b"b0"), (second, b"c1")):
            read = reader.read_next_event(timeout=0)
            assert read is not None
            assert (read.event, read.checkpoint, read.pointer) == (None, "c", None)
            assert repr(read) == "EventRead(checkpoint='c')"
            assert not waiting.done()
            assert take(reader, 1) == [event]
        checkpoint = waiting.result(SECONDS_MAX)
        assert checkpoint.cuts == (StreamCut.of(STREAM, {0: 64 + 6, 1: 64 + 12}),)
        assert group.checkpoints == {"c": checkpoint}
        group.reset(checkpoint)
        with pytest.raises(ReaderOffline, match="reset"):
            first.read_next_event(timeout=0)
    with group.reader("r1") as reader:
        assert sorted(rest(reader)) == [b"b0", b"c0", b"c1"]


def wait_for_checkpoint(store: Engine, group: str = "g") -> None:
    """Return once a checkpoint is under way; it is begun under the lock, in another thread."""
    begun = threading.Event()
    live = inside(store).groups.at_work[group]
    alert = live.alert

    def alert_and_tell(*, besides: str | None = None) -> None:
        alert(besides=besides)
        begun.set()

    with inside(store).catalog.lock:
        live.alert = alert_and_tell  # type: ignore[method-assign]
        if live.state.checkpoint is not None:
            begun.set()
    assert begun.wait(SECONDS_MAX)
    store.reader_groups()  # a caller of the store has received what it told before


def test_a_checkpoint_comes_to_a_waiting_reader_at_once(store: Engine, pool: ThreadPoolExecutor) -> None:
    """A quiet stream does not keep a checkpoint waiting."""
    group = new_group(store)
    with group.reader("r1") as reader:
        waiting = pool.submit(reader.read_next_event, SECONDS_MAX)
        done = pool.submit(group.checkpoint, "c", SECONDS_MAX)
        read = waiting.result(SECONDS_MAX)
        assert read is not None
        assert read.checkpoint == "c"
        assert read.position.offsets == {(STREAM, 0): 0}
        while not done.done():
            assert reader.read_next_event(timeout=0.01) is None
        assert done.result(SECONDS_MAX).cuts == (store.head(STREAM),)


def test_who_reads_batches_comes_to_a_checkpoint_between_two_of_them(store: Engine, pool: ThreadPoolExecutor) -> None:
    """There is no event in whose place it could come."""
    group = new_group(store)
    put(store, b"a")
    with group.reader("r1") as reader:
        assert reader.read_batch(timeout=0) is not None
        done = pool.submit(group.checkpoint, "c", SECONDS_MAX)
        wait_for_checkpoint(store)
        put(store, b"b")
        assert reader.read_batch(timeout=0)["event"].to_pylist() == [b"b"]  # type: ignore[index]
        assert done.result(SECONDS_MAX).cuts == (StreamCut.of(STREAM, {0: 69}),)


def test_a_reader_that_closes_has_come_to_the_checkpoint(store: Engine, pool: ThreadPoolExecutor) -> None:
    """With all that it returned."""
    group = new_group(store)
    put(store, b"a")
    with group.reader("r1") as reader:
        assert take(reader, 1) == [b"a"]
        done = pool.submit(group.checkpoint, "c", SECONDS_MAX)
        wait_for_checkpoint(store)
    assert done.result(SECONDS_MAX).cuts == (store.tail(STREAM),)


def test_a_checkpoint_that_takes_too_long_fails_and_is_forgotten(store: Engine) -> None:
    """A caller that wants one tries again; the readers go on, and share segments again."""
    group = new_group(store, segments=2)
    with group.reader("r1") as first, group.reader("r2") as second:
        assert rest(first) == rest(second) == []
        with pytest.raises(CheckpointFailed, match="r1, r2 did not come to it in time"):
            group.checkpoint("c", timeout=0.01)
        assert group.checkpoints == {}
        assert rest(first) == []
        assert rest(second) == []
    assert group.checkpoint("c").cuts == (store.head(STREAM),)


def test_there_is_one_checkpoint_at_a_time_and_each_name_once(store: Engine, pool: ThreadPoolExecutor) -> None:
    """A checkpoint that another one replaced without a word could not be gone back to."""
    group = new_group(store)
    group.checkpoint("a")
    with pytest.raises(CheckpointFailed, match="there is one of this name"):
        group.checkpoint("a")
    with pytest.raises(BadArgument):
        group.checkpoint("a/b")
    with group.reader("r1") as reader:
        assert rest(reader) == []
        waiting = pool.submit(group.checkpoint, "b", SECONDS_MAX)
        wait_for_checkpoint(store)
        with pytest.raises(CheckpointFailed, match="another one is under way"):
            group.checkpoint("c")
        group.reset("head")
        with pytest.raises(CheckpointFailed, match="the group was reset"):
            waiting.result(SECONDS_MAX)


def test_a_reader_that_joins_during_a_checkpoint_waits_for_segments_until_it_is_done(
    store: Engine, pool: ThreadPoolExecutor
) -> None:
    """Otherwise the checkpoint would be a different place for each of them."""
    group = new_group(store, segments=2)
    with group.reader("r1") as first:
        assert rest(first) == []
        done = pool.submit(group.checkpoint, "c", SECONDS_MAX)
        wait_for_checkpoint(store)
        with group.reader("r2") as second:
            assert rest(second) == []
            read = first.read_next_event(timeout=0)
            assert read is not None
            assert read.checkpoint == "c"
            assert held(store) == {"r1": [0, 1], "r2": []}
            assert rest(first) == []
            assert done.result(SECONDS_MAX).name == "c"
            assert rest(second) == []
            assert held(store) == {"r1": [0], "r2": [1]}


# Resets, lag, the end


def test_a_group_is_reset_to_the_head_to_cuts_and_not_behind_its_end(store: Engine) -> None:
    """To read something again, or to leave something out."""
    for stream in (STREAM, OTHER):
        store.create_stream(stream)
        put(store, b"a", stream=stream)
    tails = [store.tail(STREAM), store.tail(OTHER)]
    group = store.create_reader_group("g", [STREAM, OTHER], end=tails)
    put(store, b"b")
    with group.reader("r") as reader:
        assert rest(reader) == [b"a", b"a"]
    group.reset(store.head(OTHER))
    assert group.position == (tails[0], store.head(OTHER))
    group.reset(tails)
    assert group.position == tuple(tails)
    group.reset("head")
    with group.reader("r") as reader:
        assert rest(reader) == [b"a", b"a"]
        assert reader.finished
    with pytest.raises(WrongCut, match="ends before"):
        group.reset(store.tail(STREAM))
    with pytest.raises(WrongCut, match="ends before"):
        group.reset("tail")
    with pytest.raises(BadArgument):
        group.reset("noon")  # type: ignore[arg-type]


def test_a_group_is_reset_to_the_position_of_an_event(store: Engine) -> None:
    """A program that keeps the position with its results goes on exactly behind them; other segments stay in place."""
    group = new_group(store, segments=2)
    put(store, b"a", b"b", segment=0)
    put(store, b"c", b"d", segment=1)
    one, other = group.reader("r1"), group.reader("r2")
    read = one.read_next_event(timeout=0)
    assert read is not None
    assert (read.event, rest(one), rest(other)) == (b"a", [b"b"], [b"c", b"d"])
    other.commit()
    group.reset(read.position)
    with pytest.raises(ReaderOffline):
        one.read_next_event(timeout=0)
    with group.reader("r3") as reader:
        assert rest(reader) == [b"b"]


def test_a_group_is_reset_to_a_position_in_segments_that_it_has_passed(store: Engine) -> None:
    """A neighbour that was read to the end meanwhile, and has no place in the position, stays read."""
    group = new_group(store, segments=2)
    put(store, b"a", segment=0)
    put(store, b"b", b"c", segment=1)
    store.scale_stream(STREAM, [0, 1], [(0.0, 0.7), (0.7, 1.0)])
    put(store, b"d", segment=2)
    put(store, b"e", segment=3)
    with group.reader("r") as reader:
        reads = [read for _ in range(5) if (read := reader.read_next_event(timeout=0)) is not None]
        position = next(read.position for read in reads if read.event == b"b")
    in_segment = {key: place for key, place in position.offsets.items() if key == (STREAM, 1)}
    group.reset(Position.of(in_segment))
    with group.reader("r") as reader:
        found = rest(reader)
    assert (found[0], sorted(found[1:])) == (b"c", [b"d", b"e"])


def test_a_group_is_not_reset_to_a_position_beyond_what_it_has_read_or_of_another_stream(store: Engine) -> None:
    """What lies before it, in segments that the position does not tell of, would be left out."""
    group = new_group(store)
    store.create_stream(OTHER)
    put(store, b"a")
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    with pytest.raises(WrongCut, match="every segment"):
        group.reset(Position.of({(STREAM, 1): 0}))
    with pytest.raises(WrongCut, match="does not read that stream"):
        group.reset(Position.of({(OTHER, 0): 0}))
    group.reset(Position.of({(STREAM, 1): 0, (STREAM, 2): 0}))
    assert group.position == (StreamCut.of(STREAM, {1: 0, 2: 0}),)


def test_a_group_is_created_at_a_time_and_reset_to_one(store: Engine, clock: ManualClock) -> None:
    """What was appended at that time, or later, is read."""
    store.create_stream(STREAM)
    put(store, b"a")
    clock.advance(60)
    time_ms = int(clock.now() * 1000)
    put(store, b"b")
    group = store.create_reader_group("g", [STREAM], datetime.fromtimestamp(clock.now(), UTC))
    for to in (time_ms, datetime.fromtimestamp(clock.now(), UTC), datetime.fromtimestamp(clock.now())):  # noqa: DTZ006
        with group.reader("r") as reader:
            assert rest(reader) == [b"b"]
        group.reset(to)
    assert store.create_reader_group("g", [STREAM], time_ms, exist_ok=True).streams == (STREAM,)
    with pytest.raises(BadArgument):
        group.reset(-1)
    with pytest.raises(BadArgument):
        group.reset(True)


def test_the_lag_is_what_is_not_read_yet_in_bytes_and_since_when(store: Engine, clock: ManualClock) -> None:
    """What an operator looks at first; it counts successors, and what readers have read since they recorded it."""
    group = new_group(store)
    assert group.lag() == Lag(events=0, bytes=0, seconds=0.0)
    put(store, b"")
    clock.advance(10)
    put(store, b"", b"")
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    put(store, b"", segment=2)
    clock.advance(5)
    assert group.lag() == Lag(events=4, bytes=3 * BLOCK + 4, seconds=15.0)
    with group.reader("r") as reader:
        assert take(reader, 1) == [b""]
        assert group.lag() == Lag(events=3, bytes=2 * BLOCK + 4, seconds=5.0)
        assert take(reader, 1) == [b""]
        assert group.lag().bytes == BLOCK + 4
        rest(reader)
        assert group.lag() == Lag(events=0, bytes=0, seconds=0.0)


def test_the_lag_of_a_group_with_an_end_is_up_to_there_and_not_what_is_truncated_away(store: Engine) -> None:
    """No reader can read the rest."""
    store.create_stream(STREAM)
    for _ in range(3):
        put(store, b"")
    group = store.create_reader_group("g", [STREAM], end=StreamCut.of(STREAM, {0: 2 * BLOCK}))
    assert group.lag().bytes == 2 * BLOCK
    store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: BLOCK}))
    assert group.lag().bytes == BLOCK
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    store.truncate_stream(STREAM, store.tail(STREAM))
    assert group.lag().bytes == 0
    assert store.create_reader_group("h", [STREAM]).lag().bytes == 0


def test_a_deleted_group_is_gone_and_its_readers_are_told(store: Engine, pool: ThreadPoolExecutor) -> None:
    """Also those that wait; a new group of the same name has nothing to do with them."""
    group = new_group(store)
    reader = group.reader("r")
    waiting = pool.submit(reader.read_next_event, SECONDS_MAX)
    group.delete()
    with pytest.raises(ReaderOffline, match="deleted"):
        waiting.result(SECONDS_MAX)
    for ask in (group.lag, group.readers, group.delete, lambda: group.reader("r"), lambda: group.checkpoint("c")):
        with pytest.raises(NoSuchGroup):
            ask()
    store.create_reader_group("g", [STREAM])
    with pytest.raises(ReaderOffline):
        reader.read_next_event()
    reader.close()


# Restarts


def test_a_store_that_is_closed_keeps_the_places_of_readers_that_were_not(folder: Path) -> None:
    """A program that forgets to close a reader gets its last event again, and nothing else."""
    with open_store(folder) as store:
        group = new_group(store)
        put(store, b"a", b"b", b"c")
        assert take(group.reader("r"), 2) == [b"a", b"b"]
    with open_store(folder) as store, store.reader_group("g").reader("r") as reader:
        assert rest(reader) == [b"b", b"c"]


def test_after_a_kill_closed_readers_are_where_they_were_and_others_begin_again(folder: Path) -> None:
    """At least once: what was not recorded is read again, what was is not, and nothing is left out."""
    with open_store(folder) as store:
        group = new_group(store, segments=2)
        put(store, b"a", b"b", segment=0)
        put(store, b"c", b"d", segment=1)
        with group.reader("r1") as reader:
            assert take(reader, 1) == [b"a"]
        reader = group.reader("r1")
        assert take(reader, 2) == [b"b", b"c"]
        with killed(folder) as found:
            again = found.reader_group("g")
            with again.reader("r2") as other:
                assert again.readers() == ["r2"]
                events = rest(other)
            assert sorted(events) == [b"b", b"c", b"d"]


def test_after_a_kill_a_reader_may_have_its_old_name_again(folder: Path) -> None:
    """The one that has it was in the process that is gone."""
    with open_store(folder) as store:
        group = new_group(store)
        put(store, b"a")
        reader = group.reader("r1")
        assert take(reader, 1) == [b"a"]
        store.create_stream(OTHER)  # is durable, and with it that the reader joined
        with killed(folder) as found:
            assert found.reader_group("g").readers() == ["r1"]
            with found.reader_group("g").reader("r1") as again:
                assert rest(again) == [b"a"]


def test_checkpoints_survive_a_kill_and_one_that_was_under_way_is_forgotten(
    folder: Path, pool: ThreadPoolExecutor
) -> None:
    """The caller that asked for it is gone, and the readers are, too."""
    with open_store(folder) as store:
        group = new_group(store)
        put(store, b"a")
        with group.reader("r1") as reader:
            assert take(reader, 1) == [b"a"]
        done = group.checkpoint("c1")
        reader = group.reader("r1")
        assert rest(reader) == []
        waiting = pool.submit(group.checkpoint, "c2", SECONDS_MAX)
        wait_for_checkpoint(store)
        store.create_stream(OTHER)  # is durable, and with it that the checkpoint began
        with killed(folder) as found:
            again = found.reader_group("g")
            assert found.catalog.group("g").checkpoint == "c2"
            with again.reader("r1") as other:
                assert rest(other) == []
            assert again.checkpoints == {"c1": done}
            again.reset("head")
            assert again.checkpoint("c3").cuts == (found.head(STREAM),)
        reader.close()
        assert waiting.result(SECONDS_MAX).name == "c2"


def test_places_are_recorded_about_once_a_second(store: Engine, clock: ManualClock) -> None:
    """Often enough that little is read again after a crash, and seldom enough to cost nothing."""
    embedded_only(store)
    store.groups.positions.close()  # which records them by a clock that stands still
    group = new_group(store)
    for number in range(4):
        put(store, b"%d" % number)
    with group.reader("r") as reader:
        recorded = []
        for _ in range(4):
            take(reader, 1)
            recorded.append(store.catalog.group("g").readers["r"][STREAM, 0] // 61)
            clock.advance(0.6)
    assert recorded == [0, 0, 2, 2]


def test_the_lag_is_nothing_once_every_event_is_read_whatever_else_is_stored(folder: Path) -> None:
    """A writer's last word, and the table of writers that a truncation leaves behind, are nothing to be read."""
    sizes = PlogSizes(first=4096, largest=4096)
    with open_store(folder, sizes=sizes) as store:
        store.create_stream(STREAM, segments=2)
        group = store.create_reader_group("g", [STREAM])
        with store.writer(STREAM, "w") as writer:
            for number in range(30):
                writer.write_event(bytes(500), key=f"k{number}").result()
            with group.reader("r") as reader:
                assert len(rest(reader)) == 30
        assert group.lag() == Lag(events=0, bytes=0, seconds=0.0)
        store.truncate_stream(STREAM, store.tail(STREAM))
        assert store.stream(STREAM).size_bytes > 0
        assert group.lag().bytes == 0
    with open_store(folder, sizes=sizes) as store:
        group = store.reader_group("g")
        assert group.lag().bytes == 0
        put(store, b"more")
        assert group.lag().bytes == BLOCK + len(b"more")


def test_what_is_truncated_away_without_events_is_not_missed(store: Engine) -> None:
    """A reader that has read every event need not be told that something was lost."""
    store.create_stream(STREAM)
    group = store.create_reader_group("g", [STREAM])
    put(store, b"event")
    with group.reader("r") as reader:
        assert rest(reader) == [b"event"]
    put(store)
    assert group.position != (store.tail(STREAM),)
    store.truncate_stream(STREAM, store.tail(STREAM))
    put(store, b"more")
    with group.reader("r") as reader:
        assert rest(reader) == [b"more"]
    assert group.position == (store.tail(STREAM),)


def test_lost_segments_are_looked_for_only_after_a_truncation(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every segment that ends would cost a look at all others."""
    look = Mock(wraps=lost_segments)
    monkeypatch.setattr(_losses, "lost_segments", look)
    store.create_stream(STREAM, segments=50)
    store.seal_stream(STREAM)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        assert rest(reader) == []
        assert reader.finished
    assert look.call_count == 1


def test_a_clock_that_is_set_forward_takes_no_reader_offline(store: Engine, clock: ManualClock) -> None:
    """No time has passed: the reader was there a moment ago."""
    store.create_stream(STREAM)
    group = store.create_reader_group("group", [STREAM])
    first, second = group.reader("first"), group.reader("second")
    for reader in (first, second):
        reader.read_next_event(timeout=0)
    clock.set_forward(3600)
    for reader in (second, first, second):
        reader.read_next_event(timeout=0)
    group.lag()
    assert sorted(group.readers()) == ["first", "second"]
