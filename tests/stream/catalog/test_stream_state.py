"""A stream's state: segments that follow each other, and cuts through them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument, WrongCut
from penstock.model import SEGMENTS_MAX, ByTime, StreamConfig, StreamCut
from penstock.stream.catalog._stream_state import StreamState, covers, even_ranges
from penstock.stream.format import (
    ConsumerMoved,
    StreamCreated,
    StreamScaled,
    StreamStopped,
    StreamTruncated,
    StreamUpdated,
    decode_records,
    encode_records,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME: Final = "plant/readings"
END: Final = 100
KEYS: Final = [number / 64 for number in range(64)]


def new_stream(segments: int = 1) -> StreamState:
    return StreamState(StreamCreated(NAME, 7, segments, StreamConfig()))


def scale(state: StreamState, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> None:
    state.check_scale(seal, ranges)
    state.apply(StreamScaled(NAME, dict.fromkeys(seal, END), list(ranges), 5))


@pytest.fixture
def state() -> StreamState:
    """A segment that was split in two, which were merged again and mixed with nothing: 0, then 1 and 2, then 3."""
    state = new_stream()
    scale(state, [0], [(0.0, 0.5), (0.5, 1.0)])
    scale(state, [1, 2], [(0.0, 1.0)])
    return state


@pytest.fixture
def mixed() -> StreamState:
    """Two segments that became three, of which the middle one has keys of both; then the first was split."""
    state = new_stream(2)
    scale(state, [0, 1], [(0.0, 0.7), (0.7, 1.0)])
    scale(state, [2], [(0.0, 0.5), (0.5, 0.7)])
    return state


def check_whole(state: StreamState) -> None:
    """Check what is true of every stream at any time."""
    assert covers((one.low, one.high) for one in state.current)
    assert all((one.end is None) != (bool(one.successors) or state.sealed) for one in state.segments.values())
    for one in state.segments.values():
        assert all(before < one.segment_id < after for before in one.predecessors for after in one.successors)
        for after in one.successors:
            assert one.segment_id in state.segments[after].predecessors
            assert state.segments[after].overlaps(one.low, one.high)
    state.check_cut(StreamCut.of(NAME, state.head))
    assert not state.before(state.head)
    assert state.segments.keys() == state.head.keys() | state.after(state.head)


def any_cut(state: StreamState, chance: random.Random) -> dict[int, int]:
    """Return a random cut: from the head on, segments give way to their successors here and there."""
    cut = set(state.head)
    for _ in range(chance.randint(0, 10)):
        old: set[int] = set()
        more = {chance.choice(sorted(cut))}
        new: set[int] = set()
        while more - old:
            old |= more
            new = {after for one in old for after in state.segments[one].successors}
            more = {before for one in new for before in state.segments[one].predecessors}
        if new and old <= cut:
            cut = cut - old | new
    return {one: chance.randint(state.head.get(one, 0), END) for one in cut}


def random_scale(state: StreamState, chance: random.Random) -> None:
    current = state.current
    first = chance.randrange(len(current))
    taken = current[first : first + chance.randint(1, 3)]
    low, high = taken[0].low, taken[-1].high
    marks = sorted({low, high, *(low + (high - low) * chance.randint(1, 7) / 8 for _ in range(chance.randint(0, 3)))})
    scale(state, [one.segment_id for one in taken], list(pairwise(marks)))


def random_stream(seed: int) -> tuple[StreamState, random.Random]:
    chance = random.Random(seed)
    state = new_stream(chance.randint(1, 4))
    for _ in range(chance.randint(0, 8)):
        random_scale(state, chance)
        if chance.random() < 0.2:
            state.apply(StreamTruncated(NAME, any_cut(state, chance)))
    return state, chance


def places_at(state: StreamState, cut: Mapping[int, int], key: float) -> tuple[int, int]:
    """Return where a cut is for a key: segment and offset, in the order in which its events were written."""
    found = [place for place in cut.items() if state.segments[place[0]].low <= key < state.segments[place[0]].high]
    assert len(found) == 1, "a cut is in one place for every key"
    return found[0]


def test_a_new_stream_has_even_segments_and_begins_with_them() -> None:
    """Without a reason to prefer any, each has as many keys."""
    state = new_stream(4)
    assert [(one.low, one.high) for one in state.current] == [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]
    assert state.head == {0: 0, 1: 0, 2: 0, 3: 0}
    check_whole(state)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000, SEGMENTS_MAX])
def test_even_ranges_cover_everything_without_a_gap(count: int) -> None:
    """Floating-point sums must not leave a crack that a key falls into."""
    assert covers(even_ranges(count))
    assert covers(even_ranges(count, 0.1, 0.7), [(0.1, 0.7)])


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(0.0, 0.5)],
        [(0.0, 0.5), (0.6, 1.0)],
        [(0.0, 0.6), (0.5, 1.0)],
        [(0.0, 1.0), (1.0, 1.0)],
        [(0.0, 0.5), (1.0, 0.5)],
        [(0.0, 1.1)],
        [(0.0, float("nan")), (float("nan"), 1.0)],
    ],
)
def test_ranges_that_are_not_the_whole_do_not_cover_it(ranges: list[tuple[float, float]]) -> None:
    """A gap loses keys, an overlap has a key twice; either would be noticed only when it is too late."""
    assert not covers(ranges)


def test_a_split_follows_one_segment_by_several(state: StreamState) -> None:
    """Readers go from a segment to its successors, so these must know each other."""
    assert state.segments[0].successors == (1, 2)
    assert state.segments[1].predecessors == state.segments[2].predecessors == (0,)
    assert (state.segments[0].end, state.segments[0].epoch, state.segments[1].epoch) == (END, 0, 1)


def test_a_merge_follows_several_segments_by_one(state: StreamState) -> None:
    """A successor is read after all of its predecessors."""
    assert state.segments[3].predecessors == (1, 2)
    assert state.segments[1].successors == state.segments[2].successors == (3,)
    assert (state.epoch, state.scaled_ms) == (2, 5)
    assert [one.segment_id for one in state.current] == [3]


def test_a_mixed_change_connects_those_that_share_keys(mixed: StreamState) -> None:
    """Those that share none need not wait for each other."""
    assert mixed.segments[0].successors == (2,)
    assert mixed.segments[1].successors == (2, 3)
    assert mixed.segments[3].predecessors == (1,)
    check_whole(mixed)


@pytest.mark.parametrize(("key", "segment"), [(0.0, 4), (0.49, 4), (0.5, 5), (0.7, 3), (0.99999, 3)])
def test_locate_finds_the_segment_that_takes_a_key(mixed: StreamState, key: float, segment: int) -> None:
    """A range begins with its low end and ends before its high one."""
    assert mixed.locate(key) == segment


@pytest.mark.parametrize(
    ("seal", "ranges", "message"),
    [
        ([], [], "cannot seal"),
        ([0], [(0.0, 0.5)], "cannot seal"),
        ([9], [(0.0, 1.0)], "cannot seal"),
        ([4, 4], [(0.0, 0.5)], "cannot seal"),
        ([4.0], [(0.0, 0.5)], "cannot seal"),
        ([4], [], "key space"),
        ([4], [(0.0, 0.4)], "key space"),
        ([4, 3], [(0.0, 1.0)], "key space"),
        ([4], [(0.0, 0.3), (0.2, 0.5)], "key space"),
        ([4], even_ranges(SEGMENTS_MAX, 0.0, 0.5), "at most"),
    ],
)
def test_a_change_that_would_break_the_key_space_is_refused(
    mixed: StreamState, seal: list[int], ranges: list[tuple[float, float]], message: str
) -> None:
    """The message says what is wrong; nothing is changed."""
    with pytest.raises(BadArgument, match=message):
        mixed.check_scale(seal, ranges)


def test_segments_that_do_not_touch_may_change_together(mixed: StreamState) -> None:
    """Their key spaces are kept, each."""
    scale(mixed, [4, 3], [(0.0, 0.25), (0.25, 0.5), (0.7, 1.0)])
    check_whole(mixed)


def test_a_sealed_stream_has_ends_everywhere(mixed: StreamState) -> None:
    """Readers find its end, and its last segments are still those of its tail."""
    mixed.apply(StreamStopped(NAME, {3: 5, 4: 6, 5: 7}))
    assert mixed.sealed
    assert {one.segment_id: one.end for one in mixed.current} == {3: 5, 4: 6, 5: 7}
    check_whole(mixed)


def test_a_truncation_forgets_what_comes_before(state: StreamState) -> None:
    """Their logs are deleted; a segment at the head stays, even one at its end."""
    state.apply(StreamTruncated(NAME, {1: 100, 2: 50}))
    assert state.segments.keys() == {1, 2, 3}
    check_whole(state)
    state.apply(StreamTruncated(NAME, {3: 10}))
    assert state.segments.keys() == {3}
    check_whole(state)


def test_numbers_are_never_given_twice(state: StreamState) -> None:
    """A pointer to a segment that is gone must not find another one."""
    state.apply(StreamTruncated(NAME, {3: 0}))
    scale(state, [3], [(0.0, 1.0)])
    assert state.segments.keys() == {3, 4}


def test_a_change_that_does_not_follow_is_an_error() -> None:
    """A catalog that says so is damaged; it must not be guessed at."""
    with pytest.raises(KeyError):
        new_stream().apply(StreamScaled(NAME, {5: 0}, [(0.0, 1.0)], 0))


def test_consumers_and_configuration_are_what_was_said_last(state: StreamState) -> None:
    """A consumer that is forgotten twice was forgotten."""
    config = StreamConfig(retention=ByTime(5))
    state.apply(StreamUpdated(NAME, config))
    state.apply(ConsumerMoved(NAME, "spark", {0: 5}))
    state.apply(ConsumerMoved(NAME, "spark", {1: 5, 2: 0}))
    assert (state.config, state.consumer_cuts()) == (config, {"spark": {1: 5, 2: 0}})
    state.apply(ConsumerMoved(NAME, "spark", None))
    state.apply(ConsumerMoved(NAME, "spark", None))
    assert state.consumers == {}


@pytest.mark.parametrize(
    "places", [{0: 0, 1: 0}, {2: 5, 3: 5}, {3: 1, 4: 2, 5: 3}, {0: 100, 1: 100}], ids=["head", "middle", "tail", "ends"]
)
def test_a_set_of_segments_that_once_took_all_keys_is_a_cut(mixed: StreamState, places: dict[int, int]) -> None:
    """It is a place that every reader can be at."""
    mixed.check_cut(StreamCut.of(NAME, places))


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({0: 0}, "every segment"),
        ({}, "every segment"),
        ({0: 0, 1: 0, 4: 0}, "every segment"),
        ({0: 0, 99: 0}, "no segment 99"),
        ({4: 5, 1: 3}, "segment 1 precedes another"),
    ],
)
def test_places_that_are_no_cut_are_refused(mixed: StreamState, places: dict[int, int], message: str) -> None:
    """Also those that cover every key once and that no reader can be at: who reads 4 has read 1 to its end."""
    with pytest.raises(WrongCut, match=message):
        mixed.check_cut(StreamCut.of(NAME, places))


def test_a_cut_of_another_stream_is_refused(state: StreamState) -> None:
    """Its numbers mean something else there."""
    with pytest.raises(WrongCut, match="it is a cut of stream 'other/stream'"):
        state.check_cut(StreamCut.of("other/stream", {3: 0}))
    with pytest.raises(BadArgument, match="invalid cut"):
        state.check_cut({3: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("places", [((3, 1.0),), ((True, 0),), ((3, -1),), ((3,),), (3,)])
def test_a_cut_that_could_not_be_read_back_is_refused(state: StreamState, places: tuple[tuple[int, int], ...]) -> None:
    """A float for an offset is no number to the catalog's decoder; stored once, it would cost all streams."""
    with pytest.raises(BadArgument, match="invalid places"):
        state.check_cut(StreamCut(NAME, places))


def test_between_gives_every_segment_from_one_cut_to_another(state: StreamState) -> None:
    """Predecessors come first; where the end is not in a segment, it is read to its own."""
    assert state.between({0: 5}, {3: 9}) == [(0, 5, None), (1, 0, None), (2, 0, None), (3, 0, 9)]
    assert state.between({1: 5, 2: 6}, {1: 8, 2: 9}) == [(1, 5, 8), (2, 6, 9)]
    assert state.between({0: 5}, {0: 5}) == [(0, 5, 5)]


def test_nothing_lies_between_a_cut_and_an_earlier_one(state: StreamState) -> None:
    """A start that is behind the end is an empty range, not one that is read backwards."""
    assert state.between({3: 1}, {0: 5}) == []


@given(st.integers(0, 2**32))
def test_a_stream_stays_whole_whatever_happens_to_it(seed: int) -> None:
    """Any changes and truncations: every key has one place to be written to, and every segment its neighbours."""
    state, _ = random_stream(seed)
    check_whole(state)


@given(st.integers(0, 2**32))
def test_a_stream_comes_back_from_its_snapshot_as_it_was(seed: int) -> None:
    """That is all that is left of it after the catalog's log was cut."""
    state, chance = random_stream(seed)
    if chance.random() < 0.3:
        state.apply(StreamStopped(NAME, {one.segment_id: END for one in state.current}))
    [record] = decode_records(encode_records([state.full()]))
    found = StreamState.restore(record)  # type: ignore[arg-type]
    assert vars(found) == vars(state)
    assert found.full() == state.full()
    if not state.sealed:
        random_scale(found, random.Random(seed))
        random_scale(state, random.Random(seed))
        assert vars(found) == vars(state)


@given(st.integers(0, 2**32))
def test_every_key_is_read_once_and_in_order_from_cut_to_cut(seed: int) -> None:
    """Whatever the history: between two cuts a key's segments follow each other without a gap or a repetition."""
    state, chance = random_stream(seed)
    start, end = any_cut(state, chance), any_cut(state, chance)
    spans = state.between(start, end)
    for key in KEYS:
        mine = [span for span in spans if state.segments[span[0]].low <= key < state.segments[span[0]].high]
        first, last = places_at(state, start, key), places_at(state, end, key)
        if first > last:
            assert all(high is not None and high <= low for _, low, high in mine)
            continue
        assert (mine[0][:2], (mine[-1][0], mine[-1][2])) == (first, last)
        for (one, _, high), (other, low, _) in pairwise(mine):
            assert (high, low) == (None, 0)
            assert other in state.segments[one].successors
