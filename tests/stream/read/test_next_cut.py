"""Steps: how far a reader that goes by whole batches reads next."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock import StreamCut
from penstock.embedded import open_store
from penstock.errors import BadArgument, DataTruncated, WrongCut
from penstock.testing import ManualClock
from tests.sampling import examples
from tests.stream.time.watermark_harness import CONFIG, Timed, note, open_timed
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine, StreamWriter

STREAM = "a/b"


def walk(store: Engine, max_bytes: int | None = None, max_events: int | None = None) -> list[list[bytes]]:
    """Return the events of a stream, by step."""
    cut, steps = store.head(STREAM), []
    while (step := store.next_cut(STREAM, cut, max_bytes=max_bytes, max_events=max_events)).cut != cut:
        steps.append(events_between(store, cut, step.cut))
        cut = step.cut
    assert cut == store.tail(STREAM)
    return steps


def events_between(store: Engine, start: StreamCut, end: StreamCut) -> list[bytes]:
    batches = store.read(STREAM, start, end, max_event_size=1 << 30)
    return [event for batch in batches for event in batch.column("event").to_pylist()]


def write(store: Engine, events: list[bytes], key: str = "k") -> None:
    with store.writer(STREAM) as writer:
        writer.write_batch(events, keys=[f"{key}{number}" for number in range(len(events))])


def test_without_limits_a_step_goes_to_the_tail(store: Engine) -> None:
    """And the next one stays there, until something is written."""
    store.create_stream(STREAM, segments=3)
    write(store, [b"%d" % number for number in range(100)])
    step = store.next_cut(STREAM, store.head(STREAM))
    assert (step.cut, step.time) == (store.tail(STREAM), None)
    assert store.next_cut(STREAM, step.cut).cut == step.cut


def test_events_are_limited_exactly(store: Engine) -> None:
    """Even where a block has many of them; the last step has what is left."""
    store.create_stream(STREAM, segments=1)
    write(store, [b"%d" % number for number in range(25)])
    assert [len(step) for step in walk(store, max_events=10)] == [10, 10, 5]


def test_bytes_are_an_upper_limit(store: Engine) -> None:
    """Unless a single event has more of them."""
    store.create_stream(STREAM, segments=2)
    write(store, [bytes(100)] * 200)
    write(store, [bytes(5000)])
    steps = walk(store, max_bytes=3000)
    assert sum(map(len, steps)) == 201
    assert all(sum(map(len, step)) <= 3000 or len(step) == 1 for step in steps)
    assert max(len(step) for step in steps) > 15, "and the budget is used"


def test_segments_share_a_step_evenly(store: Engine) -> None:
    """One that is far ahead does not let another wait."""
    store.create_stream(STREAM, segments=2)
    write(store, [bytes(100)] * 400)
    step = store.next_cut(STREAM, store.head(STREAM), max_bytes=10_000)
    assert all(3500 <= offset <= 5000 for offset in step.cut.offsets.values())


def test_what_one_segment_does_not_need_is_left_to_the_others(store: Engine) -> None:
    """A step is full as long as there is enough in any segment."""
    store.create_stream(STREAM, segments=4)
    with store.writer(STREAM) as writer:
        writer.write_batch([bytes(100)] * 200, keys=["same"] * 200)
    step = store.next_cut(STREAM, store.head(STREAM), max_events=150)
    assert len(events_between(store, store.head(STREAM), step.cut)) == 150


def test_a_step_goes_on_in_the_segments_that_follow(store: Engine) -> None:
    """Once all that they hang together with are at their ends, and not before."""
    store.create_stream(STREAM, segments=2)
    write(store, [b"old"] * 40)
    store.scale_stream(STREAM, [0, 1], [(0.0, 0.3), (0.3, 1.0)])
    write(store, [b"new"] * 40)
    steps = walk(store, max_events=15)
    assert [len(step) for step in steps] == [15, 15, 15, 15, 15, 5]
    assert [event for step in steps for event in step] == [b"old"] * 40 + [b"new"] * 40


def test_large_events_are_one_event(store: Engine) -> None:
    """They are never cut, and never passed by."""
    store.create_stream(STREAM, segments=1)
    with store.writer(STREAM) as writer:
        for letter in b"abc":
            writer.write_event(b"small")
            with writer.begin_write_event() as out:
                out.write(bytes([letter]) * (3 << 20))
    sizes = [[len(event) for event in step] for step in walk(store, max_bytes=1000)]
    assert sizes == [[5], [3 << 20]] * 3
    assert [len(step) for step in walk(store, max_events=4)] == [4, 2]


def test_a_step_ends_where_it_is_told_to(store: Engine) -> None:
    """So that a run over all that there is now comes to an end although more is written."""
    store.create_stream(STREAM, segments=2)
    write(store, [b"early"] * 20)
    end = store.tail(STREAM)
    write(store, [b"late"] * 20)
    cut, found = store.head(STREAM), 0
    while (step := store.next_cut(STREAM, cut, end, max_events=7)).cut != cut:
        found += len(events_between(store, cut, step.cut))
        cut = step.cut
    assert (found, cut) == (20, end)


def test_a_step_refuses_what_makes_no_sense(store: Engine) -> None:
    """With errors that name the argument."""
    store.create_stream(STREAM, segments=1)
    write(store, [b"event"] * 10)
    head, tail = store.head(STREAM), store.tail(STREAM)
    with pytest.raises(BadArgument, match="max_bytes"):
        store.next_cut(STREAM, head, max_bytes=0)
    with pytest.raises(BadArgument, match="max_events"):
        store.next_cut(STREAM, head, max_events=-1)
    with pytest.raises(BadArgument, match="align"):
        store.next_cut(STREAM, head, align="watermark")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="skip_truncated"):
        store.next_cut(STREAM, head, skip_truncated=1)  # type: ignore[arg-type]
    with pytest.raises(WrongCut):
        store.next_cut(STREAM, StreamCut.of("other/stream", {0: 0}))
    store.truncate_stream(STREAM, tail)
    with pytest.raises(DataTruncated):
        store.next_cut(STREAM, head)


def test_a_step_may_skip_what_was_truncated_but_reads_nothing_twice(timed: Timed) -> None:
    """A stream may begin in one segment behind the step's start, in another before it, and be scaled besides."""
    store = timed.store
    write(store, [b"%d" % number for number in range(40)])
    cut = store.next_cut(STREAM, store.head(STREAM), max_events=20).cut
    middle = store.next_cut(STREAM, cut, max_events=10).cut
    store.scale_stream(STREAM, seal=[1], ranges=[(0.5, 0.75), (0.75, 1.0)])
    write(store, [b"new %d" % number for number in range(40)])
    old = StreamCut.of(STREAM, {0: cut.offsets[0], 2: 0, 3: 0})
    head = StreamCut.of(STREAM, {0: middle.offsets[0], 1: middle.offsets[1]})
    store.truncate_stream(STREAM, head)
    with pytest.raises(DataTruncated):
        store.next_cut(STREAM, old, old)
    step = store.next_cut(STREAM, old, old, skip_truncated=True)
    assert step.cut == StreamCut.of(STREAM, {0: middle.offsets[0], 2: 0, 3: 0})
    assert store.next_cut(STREAM, cut, cut, skip_truncated=True).cut == head
    assert store.next_cut(STREAM, middle, middle, skip_truncated=True).cut == middle
    tail = store.tail(STREAM)
    assert store.next_cut(STREAM, cut, tail, skip_truncated=True).cut == tail
    store.truncate_stream(STREAM, tail)
    assert store.next_cut(STREAM, cut, cut, skip_truncated=True).cut == tail
    with pytest.raises(WrongCut):
        store.next_cut(STREAM, StreamCut.of("other/stream", {0: 0}), skip_truncated=True)


@pytest.fixture(params=["embedded", "remote"])
def timed(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Timed]:
    with open_timed("memory:", clock) as store:
        store.create_stream(STREAM, segments=2, config=CONFIG)
        if request.param == "embedded":
            yield Timed(store, clock)
        else:
            with over_the_wire(store, clock) as outside:
                yield Timed(outside, clock)


def write_two_rounds(timed: Timed) -> StreamWriter:
    """Write fifty events and note a time behind them, twice; then ten more."""
    writer = timed.store.writer(STREAM, writer_id="w")
    for time in (1000, 2000):
        writer.write_batch([b"event"] * 50, keys=[str(number) for number in range(50)])
        note(writer, time)
        timed.run_pass(2)
    writer.write_batch([b"late"] * 10)
    writer.flush()
    assert timed.lowers(STREAM) == [1000, 2000]
    return writer


def test_a_step_has_the_time_of_the_last_watermark_that_it_has_passed(timed: Timed) -> None:
    """Passed in all segments: one that is behind in some says nothing of those."""
    write_two_rounds(timed)
    store = timed.store
    head, first = store.head(STREAM), store.watermarks(STREAM)[0]
    assert store.next_cut(STREAM, head).time == 2000
    assert store.next_cut(STREAM, head, first.cut).time == 1000
    behind = StreamCut.of(STREAM, first.cut.offsets | {0: 0})
    assert store.next_cut(STREAM, head, behind).time is None


def test_aligned_steps_end_at_watermarks(timed: Timed) -> None:
    """What is behind the last one waits, as long as there is a writer that may promise something about it."""
    writer = write_two_rounds(timed)
    store = timed.store
    head, (first, second) = store.head(STREAM), store.watermarks(STREAM)
    step = store.next_cut(STREAM, head, align=True)
    assert (step.cut, step.time) == (second.cut, 2000)
    assert store.next_cut(STREAM, second.cut, align=True) == step, "the rest waits"
    step = store.next_cut(STREAM, head, align=True, max_events=70)
    assert (step.cut, step.time) == (first.cut, 1000)
    step = store.next_cut(STREAM, head, align=True, max_events=20)
    assert (len(events_between(store, head, step.cut)), step.time) == (20, None), "no watermark is that near"
    writer.close()
    timed.run_pass(2)
    assert store.next_cut(STREAM, second.cut, align=True).cut == store.tail(STREAM), (
        "no writer is left to promise anything"
    )


def test_a_stream_without_time_is_not_held_up(store: Engine) -> None:
    """No writer ever promises anything about it."""
    store.create_stream(STREAM, segments=1)
    write(store, [b"event"] * 10)
    assert store.next_cut(STREAM, store.head(STREAM), align=True).cut == store.tail(STREAM)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(rounds=[([0, 0, 0, 0, 968, 759], "stay")], max_bytes=1582, max_events=None)  # the first is more than its share
@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.integers(0, 3000), max_size=30),
            st.sampled_from(["stay", "split", "merge", "shift"]),
        ),
        min_size=1,
        max_size=4,
    ),
    max_bytes=st.none() | st.integers(1, 20_000),
    max_events=st.none() | st.integers(1, 40),
)
def test_steps_give_everything_once(
    rounds: list[tuple[list[int], str]], max_bytes: int | None, max_events: int | None
) -> None:
    """Whatever the events, however the stream was scaled, whatever the limits: each event once, each key in order."""
    with open_store("memory:", clock=ManualClock()) as store:
        store.create_stream(STREAM, segments=2)
        written = []
        for number, (sizes, change) in enumerate(rounds):
            with store.writer(STREAM) as writer:
                for index, size in enumerate(sizes):
                    event = b"%d:%d:" % (number, index) + bytes(size)
                    writer.write_event(event, key=f"k{index % 5}")
                    written.append(event)
            scale(store, change)
        steps = walk(store, max_bytes=max_bytes, max_events=max_events)
        found = [event for step in steps for event in step]
        assert sorted(found) == sorted(written)
        for key in range(5):
            places = [place_of(event) for event in found if place_of(event)[1] % 5 == key]
            assert all(a < b for a, b in pairwise(places))
        if max_events is not None:
            assert all(len(step) <= max_events for step in steps)
        if max_bytes is not None:
            assert all(sum(map(len, step)) <= max_bytes or len(step) == 1 for step in steps)


def place_of(event: bytes) -> tuple[int, int]:
    number, index, _ = event.split(b":", 2)
    return int(number), int(index)


def scale(store: Engine, change: str) -> None:
    segments = sorted(store.stream(STREAM).segments, key=lambda one: one.low)
    if change == "split":
        one = segments[0]
        middle = (one.low + one.high) / 2
        store.scale_stream(STREAM, [one.segment_id], [(one.low, middle), (middle, one.high)])
    elif change == "merge" and len(segments) > 1:
        one, other = segments[:2]
        store.scale_stream(STREAM, [one.segment_id, other.segment_id], [(one.low, other.high)])
    elif change == "shift" and len(segments) > 1:
        one, other = segments[:2]
        border = (one.low + one.high) / 2
        store.scale_stream(STREAM, [one.segment_id, other.segment_id], [(one.low, border), (border, other.high)])
