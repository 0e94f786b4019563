"""Retention: where a stream is cut, against plain lists and against a model that looks at everything."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WrongCut
from penstock.model import StreamConfig, StreamCut
from penstock.stream.catalog._stream_state import StreamState
from penstock.stream.format import StreamCreated, StreamScaled, StreamStopped, StreamTruncated
from penstock.stream.maintenance._retention import by_consumption, by_size, by_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME: Final = "a/b"


@dataclass
class FakeSegment:
    """A segment as lists: its plogs, and of each the size and the time of its blocks."""

    plogs: list[list[tuple[int, int]]] = field(default_factory=list)
    reads: int = 0

    @property
    def tail(self) -> int:
        return sum(size for plog in self.plogs for size, _ in plog)

    def plog_starts(self) -> Sequence[int]:
        sizes = [sum(size for size, _ in plog) for plog in self.plogs]
        return list(accumulate(sizes, initial=0))[: len(self.plogs)]

    def time_at(self, offset: int) -> int:
        self.reads += 1
        end = 0
        for plog in self.plogs:
            for size, time in plog:
                end += size
                if offset < end:
                    return time
        raise AssertionError("past the tail")


@dataclass
class ManyPlogs:
    """A segment of very many plogs of 10 bytes, one a millisecond."""

    count: int
    reads: int = 0

    @property
    def tail(self) -> int:
        return 10 * self.count

    def plog_starts(self) -> Sequence[int]:
        return range(0, self.tail, 10)

    def time_at(self, offset: int) -> int:
        self.reads += 1
        return offset // 10


class Stream:
    """A state and its segments, and what happens to both."""

    def __init__(self, segments: int = 1) -> None:
        self.state = StreamState(StreamCreated(NAME, 0, segments, StreamConfig()))
        self.segments = {segment: FakeSegment() for segment in range(segments)}

    def view(self, segment: int) -> FakeSegment:
        return self.segments[segment]

    def plog(self, segment: int, *blocks: tuple[int, int]) -> None:
        self.segments[segment].plogs.append(list(blocks))

    def scale(self, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> None:
        self.state.check_scale(seal, ranges)
        ends = {segment: self.segments[segment].tail for segment in seal}
        self.state.apply(StreamScaled(NAME, ends, list(ranges), 0))
        self.segments |= {one: FakeSegment() for one in self.state.segments if one not in self.segments}

    def stop(self) -> None:
        ends = {one.segment_id: self.segments[one.segment_id].tail for one in self.state.current}
        self.state.apply(StreamStopped(NAME, ends))

    def truncate(self, head: dict[int, int]) -> None:
        self.state.check_cut(StreamCut.of(NAME, head))
        self.state.apply(StreamTruncated(NAME, head))

    def by_time(self, older_than_ms: int, now_ms: int = 1_000_000) -> dict[int, int] | None:
        return by_time(self.state, self.view, older_than_ms=older_than_ms, now_ms=now_ms)

    def by_size(self, size_bytes: int, now_ms: int = 1_000_000) -> dict[int, int] | None:
        return by_size(self.state, self.view, size_bytes=size_bytes, now_ms=now_ms)

    def by_consumption(self, *cuts: dict[int, int]) -> dict[int, int] | None:
        return by_consumption(self.state, self.view, cuts)

    @property
    def reads(self) -> int:
        return sum(one.reads for one in self.segments.values())


@pytest.fixture
def stream() -> Stream:
    """One segment with four plogs of 100 bytes; the last block of each is at 20, 40, 60, 80."""
    one = Stream()
    for time in (10, 30, 50, 70):
        one.plog(0, (50, time), (50, time + 10))
    return one


@pytest.fixture
def split() -> Stream:
    """A segment of two plogs, split in two that have two plogs each."""
    one = Stream()
    one.plog(0, (100, 10))
    one.plog(0, (100, 20))
    one.scale([0], [(0.0, 0.5), (0.5, 1.0)])
    one.plog(1, (100, 30))
    one.plog(1, (100, 50))
    one.plog(2, (100, 40))
    one.plog(2, (100, 60))
    return one


def test_by_time_frees_the_plogs_in_which_all_is_older(stream: Stream) -> None:
    """A block that is not older is kept, and with it the plog that it lies in."""
    assert stream.by_time(20) is None
    assert stream.by_time(21) == {0: 100}
    assert stream.by_time(40) == {0: 100}
    assert stream.by_time(41) == {0: 200}


def test_by_time_keeps_the_plog_that_takes_events(stream: Stream) -> None:
    """Cutting into it would give no budget back."""
    assert stream.by_time(1000) == {0: 300}


def test_by_time_goes_on_from_the_head(stream: Stream) -> None:
    """A pass after another finds what has grown old since, and nothing else."""
    stream.truncate({0: 100})
    assert stream.by_time(41) == {0: 200}
    stream.truncate({0: 200})
    assert stream.by_time(41) is None


def test_by_time_does_not_go_back_to_where_a_plog_begins(stream: Stream) -> None:
    """A user may have truncated within a plog; the head never moves back."""
    stream.truncate({0: 150})
    assert stream.by_time(30) is None
    assert stream.by_time(41) == {0: 200}


def test_a_stream_that_was_never_written_to_is_left_alone() -> None:
    """It has no plog, and no block that could be asked for its time."""
    stream = Stream(segments=3)
    assert stream.by_time(1000) is None
    assert stream.by_size(1) is None
    assert stream.by_consumption({0: 0, 1: 0, 2: 0}) is None


def test_a_sealed_segment_goes_whole_once_its_last_block_is_old(split: Stream) -> None:
    """Its successors take its place, so its log can be deleted."""
    assert split.by_time(20) == {0: 100}
    assert split.by_time(21) == {1: 0, 2: 0}


def test_successors_are_cut_in_the_same_pass(split: Stream) -> None:
    """A stream without maintenance for a long time is cleaned up at once."""
    assert split.by_time(31) == {1: 100, 2: 0}
    assert split.by_time(1000) == {1: 100, 2: 100}


def test_nothing_goes_before_what_comes_before_it(split: Stream) -> None:
    """Clocks of old blocks may say anything; a reader still needs them in order."""
    split.segments[0].plogs[1] = [(100, 500)]
    assert split.by_time(400) == {0: 100}


def test_a_merged_segment_waits_for_all_its_predecessors() -> None:
    """One of them at its end is a place of its own, until the other is there, too."""
    stream = Stream(segments=2)
    stream.plog(0, (100, 10))
    stream.plog(1, (100, 10))
    stream.plog(1, (100, 90))
    stream.scale([0, 1], [(0.0, 1.0)])
    stream.plog(2, (100, 100))
    stream.plog(2, (100, 100))
    assert stream.by_time(50) == {0: 100, 1: 100}
    stream.truncate({0: 100, 1: 100})
    assert stream.by_time(91) == {2: 0}
    assert stream.by_time(101) == {2: 100}


def test_segments_that_hang_together_go_together() -> None:
    """The middle one of three new segments has keys of both old ones, so neither old one can go without the other."""
    stream = Stream(segments=2)
    stream.plog(0, (100, 10))
    stream.plog(1, (100, 90))
    stream.scale([0, 1], [(0.0, 0.3), (0.3, 0.7), (0.7, 1.0)])
    for segment in (2, 3, 4):
        stream.plog(segment, (10, 95))
        stream.plog(segment, (10, 99))
    assert stream.by_time(50) == {0: 100, 1: 0}
    assert stream.by_time(91) == {2: 0, 3: 0, 4: 0}


def test_segments_that_only_ended_together_go_one_by_one() -> None:
    """One change may split two segments that have nothing to do with each other."""
    stream = Stream(segments=2)
    stream.plog(0, (100, 10))
    stream.plog(1, (100, 90))
    stream.scale([0, 1], [(0.0, 0.2), (0.2, 0.5), (0.5, 1.0)])
    assert stream.by_time(50) == {1: 0, 2: 0, 3: 0}


def test_an_empty_sealed_segment_does_not_hold_up_what_follows() -> None:
    """It has no block that could grow old."""
    stream = Stream()
    stream.scale([0], [(0.0, 0.5), (0.5, 1.0)])
    stream.scale([1], [(0.0, 0.5)])
    assert stream.by_time(0) == {2: 0, 3: 0}
    assert stream.reads == 0


def test_a_sealed_stream_is_cut_at_its_end() -> None:
    """It takes no more events, so its last plog may go, too, once it is old; but its size alone never empties it."""
    stream = Stream()
    stream.plog(0, (100, 10))
    stream.plog(0, (100, 20))
    stream.stop()
    assert stream.by_time(11) == {0: 100}
    assert stream.by_time(21) == {0: 200}
    assert stream.by_size(150) == {0: 100}
    assert stream.by_size(50) == {0: 100}


def test_a_plog_that_is_not_acknowledged_yet_is_not_cut_at() -> None:
    """The switch to it is recorded a moment before the segment's tail moves; a head beyond the tail must not be."""
    stream = Stream()
    stream.plog(0, (100, 10))
    stream.plog(0)
    assert stream.by_time(1000) == {0: 100}

    class Behind(FakeSegment):
        tail = property(lambda _: 50)

    stream.segments[0] = Behind(stream.segments[0].plogs)
    assert stream.by_time(1000) is None


def test_by_size_keeps_at_most_the_size(stream: Stream) -> None:
    """That is what the user has budget for."""
    assert stream.by_size(400) is None
    assert stream.by_size(399) == {0: 100}
    assert stream.by_size(300) == {0: 100}
    assert stream.by_size(299) == {0: 200}
    assert stream.by_size(100) == {0: 300}


def test_by_size_keeps_the_plog_that_takes_events_even_if_it_is_too_large(stream: Stream) -> None:
    """As little as can be is left; it grows below the size again with the next plog."""
    assert stream.by_size(1) == {0: 300}
    one = Stream()
    one.plog(0, (10**9, 1))
    assert one.by_size(1) is None


def test_by_size_takes_the_oldest_first_whatever_segment_it_is_in(split: Stream) -> None:
    """Every segment is cut at the same age, so no key loses more of its past than another."""
    assert split.by_size(599) == {0: 100}
    assert split.by_size(499) == {1: 0, 2: 0}
    assert split.by_size(399) == {1: 100, 2: 0}
    assert split.by_size(299) == {1: 100, 2: 100}


def test_by_size_counts_from_the_head(stream: Stream) -> None:
    """What was truncated away takes no budget."""
    stream.truncate({0: 200})
    assert stream.by_size(200) is None
    assert stream.by_size(199) == {0: 300}


def test_by_size_is_not_led_astray_by_what_is_written_meanwhile(stream: Stream) -> None:
    """A search that looks again and again at a growing stream might never come to an end."""
    grown = 0

    class Growing(FakeSegment):
        @property
        def tail(self) -> int:
            nonlocal grown
            grown += 1000
            return 400 + grown

    stream.segments[0] = Growing(stream.segments[0].plogs)
    assert stream.by_size(1399) == {0: 100}


def test_by_consumption_frees_what_everybody_has_passed(stream: Stream) -> None:
    """The slowest decides, and only whole plogs are worth a record."""
    assert stream.by_consumption({0: 400}, {0: 350}) == {0: 300}
    assert stream.by_consumption({0: 400}, {0: 250}) == {0: 200}
    assert stream.by_consumption({0: 99}, {0: 400}) is None


def test_by_consumption_does_not_go_back_to_where_a_plog_begins(stream: Stream) -> None:
    """The head may lie within a plog, and never moves back."""
    stream.truncate({0: 150})
    assert stream.by_consumption({0: 160}) is None
    assert stream.by_consumption({0: 210}) == {0: 200}


def test_by_consumption_without_a_consumer_keeps_everything(stream: Stream) -> None:
    """The first reader must find all there is."""
    assert stream.by_consumption() is None


def test_by_consumption_frees_a_segment_whose_successors_everybody_reads(split: Stream) -> None:
    """Before that, a reader at its end must still find out where to go on."""
    assert split.by_consumption({0: 200}) == {0: 100}
    assert split.by_consumption({1: 0, 2: 0}, {0: 200}) == {0: 100}
    assert split.by_consumption({1: 0, 2: 0}) == {1: 0, 2: 0}
    assert split.by_consumption({1: 150, 2: 0}, {1: 100, 2: 200}) == {1: 100, 2: 0}


def test_a_reader_at_the_end_of_an_empty_segment_keeps_it() -> None:
    """Its beginning is its end; the reader has not gone on yet."""
    stream = Stream()
    stream.scale([0], [(0.0, 0.5), (0.5, 1.0)])
    assert stream.by_consumption({0: 0}) is None
    assert stream.by_consumption({1: 0, 2: 0}) == {1: 0, 2: 0}


def test_a_consumer_that_was_overtaken_by_a_truncation_needs_all_that_is_left(split: Stream) -> None:
    """It goes on at the head; what it could not read is no reason to take more away from it."""
    split.truncate({1: 0, 2: 0})
    assert split.by_consumption({0: 100}, {1: 200, 2: 200}) is None


def test_a_pass_that_finds_nothing_reads_once() -> None:
    """Retention runs all the time, mostly for nothing."""
    many = ManyPlogs(100_000)
    state = StreamState(StreamCreated(NAME, 0, 1, StreamConfig()))
    assert by_time(state, lambda _: many, older_than_ms=0, now_ms=10**9) is None
    assert many.reads == 1
    assert by_size(state, lambda _: many, size_bytes=many.tail, now_ms=10**9) is None
    assert many.reads == 1


@pytest.mark.parametrize("gone", [1, 2, 3, 1000, 50_000, 99_998, 99_999])
def test_a_cut_is_found_with_few_reads(gone: int) -> None:
    """A scan of a hundred thousand plogs would open every one of them."""
    many = ManyPlogs(100_000)
    state = StreamState(StreamCreated(NAME, 0, 1, StreamConfig()))
    assert by_time(state, lambda _: many, older_than_ms=gone, now_ms=10**9) == {0: 10 * gone}
    assert many.reads <= 2 * math.log2(gone + 1) + 2


@pytest.mark.parametrize("gone", [1, 2, 3, 1000, 50_000, 99_998, 99_999])
def test_a_cut_by_size_is_found_with_few_reads(gone: int) -> None:
    """Many ages are tried, and for each a place is looked for; much of that has been looked at before."""
    many = ManyPlogs(100_000)
    state = StreamState(StreamCreated(NAME, 0, 1, StreamConfig()))
    assert by_size(state, lambda _: many, size_bytes=many.tail - 10 * gone, now_ms=10**9) == {0: 10 * gone}
    assert many.reads <= (math.log2(gone) + 1) ** 2 + 8


# A stream with any history, and a model of retention that looks at every plog.


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    stream, time = Stream(segments=draw(st.integers(1, 3))), 0
    for _ in range(draw(st.integers(0, 12))):
        current = stream.state.current
        chosen = draw(st.sampled_from(current))
        match draw(st.sampled_from(["plog", "plog", "plog", "block", "split", "merge", "mix"])):
            case "plog":
                time += draw(st.integers(0, 3))
                stream.plog(chosen.segment_id, (draw(st.integers(1, 50)), time))
            case "block" if stream.segments[chosen.segment_id].plogs:
                time += draw(st.integers(0, 3))
                stream.segments[chosen.segment_id].plogs[-1].append((draw(st.integers(1, 50)), time))
            case "split":
                middle = (chosen.low + chosen.high) / 2
                stream.scale([chosen.segment_id], [(chosen.low, middle), (middle, chosen.high)])
            case "merge" if len(current) > 1:
                low, high = current[0], current[1]
                stream.scale([low.segment_id, high.segment_id], [(low.low, high.high)])
            case "mix" if len(current) > 1:
                low, high = current[-2], current[-1]
                marks = [low.low, (low.low + low.high) / 2, (high.low + high.high) / 2, high.high]
                stream.scale([low.segment_id, high.segment_id], list(pairwise(marks)))
            case _:
                pass
    if draw(st.booleans()):
        stream.stop()
    if draw(st.booleans()):
        head = model_cut(stream, lambda _, last: last < draw(st.integers(0, time + 1)))
        stream.truncate(head)
    return stream


def model_cut(stream: Stream, may_go: Callable[[int, int], bool]) -> dict[int, int]:
    """Return the furthest cut: plog by plog, from the head on, as long as a plog may go by its last block's time."""
    state, cut = stream.state, dict(stream.state.head)
    changed = True
    while changed:
        changed = False
        for segment, offset in list(cut.items()):
            view, end = stream.segments[segment], state.segments[segment].end
            ends = [*view.plog_starts()[1:], *([] if end is None else [end])]
            following = next((mark for mark in ends if mark > offset), None)
            if following is not None and may_go(segment, view.time_at(following - 1)):
                cut[segment], changed = following, True
        for new in candidates(state, cut):
            cut, changed = new, True
            break
    return cut


def candidates(state: StreamState, cut: dict[int, int]) -> list[dict[int, int]]:
    """Return the cuts in which segments at their ends give way to the successors of a set of them, if valid."""
    ended = [one for one in cut if cut[one] == state.segments[one].end and state.segments[one].successors]
    found = []
    for size in range(1, 2 ** len(ended)):
        old = {one for place, one in enumerate(ended) if size >> place & 1}
        new = {after for one in old for after in state.segments[one].successors}
        after = {segment: offset for segment, offset in cut.items() if segment not in old} | dict.fromkeys(new, 0)
        try:
            state.check_cut(StreamCut.of(NAME, after))
        except WrongCut:
            continue
        found.append(after)
    return found


@given(streams(), st.integers(0, 40))
def test_by_time_is_as_the_model_says(stream: Stream, limit: int) -> None:
    """Whatever the history of a stream: nothing young goes, nothing old stays, and the cut is one."""
    expected = model_cut(stream, lambda _, last: last < limit)
    found = stream.by_time(limit)
    assert (stream.state.head if found is None else found) == expected
    if found is not None:
        stream.truncate(found)
        assert stream.by_time(limit) is None


@given(streams(), st.integers(1, 400))
def test_by_size_is_as_the_model_says(stream: Stream, size: int) -> None:
    """The youngest of all ages at which the rest is small enough, tried one by one; one less if there is no rest."""

    def left(cut: dict[int, int]) -> int:
        tails = {one.segment_id: stream.segments[one.segment_id].tail for one in stream.state.current}
        spans = stream.state.between(cut, tails)
        return sum((stream.segments[one].tail if end is None else end) - start for one, start, end in spans)

    cuts = [model_cut(stream, lambda _, last, limit=limit: last < limit) for limit in range(42)]  # type: ignore[misc]
    fitting = [cut for cut in cuts if left(cut) <= size]
    expected = stream.state.head if left(stream.state.head) <= size else fitting[0] if fitting else cuts[-1]
    if fitting and left(stream.state.head) > size and not left(expected):
        expected = cuts[cuts.index(expected) - 1]
    found = stream.by_size(size)
    assert (stream.state.head if found is None else found) == expected


@given(streams(), st.data())
def test_by_consumption_takes_nothing_that_a_consumer_needs(stream: Stream, data: st.DataObject) -> None:
    """Whatever the history: every consumer finds all that is behind its place, and its segments."""
    consumers = [
        model_cut(stream, lambda _, last, limit=limit: last < limit)  # type: ignore[misc]
        for limit in data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3))
    ]
    found = stream.by_consumption(*consumers)
    if found is None:
        return
    stream.truncate(found)
    for cut in consumers:
        stream.state.check_cut(StreamCut.of(NAME, cut))
        assert all(offset >= stream.state.head.get(segment, 0) for segment, offset in cut.items())
    assert stream.by_consumption(*consumers) is None


# Clocks that were wrong


FUTURE = 10**12


def from_the_future(*times: int) -> Stream:
    """Return a stream of one plog of 100 bytes a time, and one that takes events."""
    stream = Stream()
    for time in times:
        stream.plog(0, (100, time))
    return stream


def test_a_plog_from_the_future_is_as_old_as_what_follows_it() -> None:
    """Somebody's clock was wrong for a minute: for years nothing would go."""
    stream = from_the_future(10, 20, FUTURE, FUTURE, 50, 60)
    assert stream.by_time(21, now_ms=100) == {0: 200}
    assert stream.by_time(50, now_ms=100) == {0: 200}
    assert stream.by_time(51, now_ms=100) == {0: 500}


def test_a_plog_from_the_future_with_nothing_behind_it_is_young() -> None:
    """Nothing says how old it is, and what is kept too long is not lost."""
    stream = from_the_future(10, FUTURE, FUTURE)
    assert stream.by_time(100, now_ms=100) == {0: 100}
    stream.plog(0, (100, 50))
    assert stream.by_time(51, now_ms=100) == {0: 300}


def test_what_ended_with_a_time_from_the_future_is_older_than_the_scale_that_ended_it() -> None:
    """Else all its successors would wait for that time, too."""
    stream = from_the_future(10, FUTURE)
    stream.state.apply(StreamScaled(NAME, {0: 200}, [(0.0, 1.0)], 30))
    stream.segments[1] = FakeSegment()
    assert stream.by_time(30, now_ms=100) == {0: 100}
    assert stream.by_time(31, now_ms=100) == {1: 0}


def test_a_plog_from_the_future_does_not_make_retention_by_size_take_everything() -> None:
    """All is younger than nothing, but older than the future: cut at that age, nothing would be left."""
    stream = from_the_future(10, FUTURE, 30, 40, 50, 60)
    assert stream.by_size(400, now_ms=100) == {0: 300}
    assert stream.by_size(500, now_ms=100) == {0: 100}


def test_of_very_many_plogs_from_the_future_few_are_looked_at() -> None:
    """Each look may open a file, in every run of maintenance."""
    stream = from_the_future(*[FUTURE] * 1000)
    assert stream.by_time(50, now_ms=100) is None
    assert stream.reads < 100
