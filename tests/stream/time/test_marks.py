"""Marks as values: what a mark may follow, who holds time up, and where a watermark lies."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.time._marks import (
    MarkStatus,
    Relation,
    Verdict,
    WriterMark,
    bound_of,
    check_mark,
    compare,
    judge,
    least_upper_bound,
    place_in,
    times_of,
)
from tests.stream.time.mark_harness import LENGTH, POINTS, History, as_cut, at_point, draw_cut, histories, new_history

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import DataObject

HALVES = [(0.0, 0.5), (0.5, 1.0)]


def mark(time: int, places: Mapping[int, int] | None = None, *, is_open: bool = True) -> WriterMark:
    places = {} if places is None else places
    return WriterMark(time, tuple(places), np.array(list(places.values()), np.int64), is_open)


# What a mark may follow


def test_the_first_mark_of_a_writer_is_taken_whatever_it_says() -> None:
    """There is nothing that it could contradict."""
    assert check_mark(None, mark(0, {0: 0})) is MarkStatus.SUCCESS
    assert check_mark(None, mark(7, {})) is MarkStatus.SUCCESS


@pytest.mark.parametrize(
    ("new", "status"),
    [
        (mark(11, {0: 50, 1: 60}), MarkStatus.SUCCESS),
        (mark(10, {0: 50, 1: 60}), MarkStatus.SUCCESS),
        (mark(9, {0: 50, 1: 60}), MarkStatus.INVALID_TIME),
        (mark(9, {0: 49, 1: 60}), MarkStatus.INVALID_TIME),
        (mark(11, {0: 49, 1: 99}), MarkStatus.INVALID_POSITION),
        (mark(10, {0: 49, 1: 60}), MarkStatus.INVALID_POSITION),
        (mark(11, {1: 59}), MarkStatus.INVALID_POSITION),
        (mark(11, {1: 60}), MarkStatus.SUCCESS),
        (mark(11, {2: 0}), MarkStatus.SUCCESS),
        (mark(11, {1: 60, 2: 0}), MarkStatus.SUCCESS),
        (mark(11, {}), MarkStatus.SUCCESS),
    ],
)
def test_neither_time_nor_position_of_a_writer_goes_back(new: WriterMark, status: MarkStatus) -> None:
    """Equal is fine, and so are other segments: the writer has moved on, or writes to some of them only."""
    assert check_mark(mark(10, {0: 50, 1: 60}), new) is status


PLACES = st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=4)


@given(before=PLACES, after=PLACES, times=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_a_mark_is_refused_just_when_something_goes_back(
    before: dict[int, int], after: dict[int, int], times: tuple[int, int]
) -> None:
    """The quick way for the same segments and the other one say the same."""
    if times[1] < times[0]:
        expected = MarkStatus.INVALID_TIME
    elif any(after[segment] < before[segment] for segment in before.keys() & after.keys()):
        expected = MarkStatus.INVALID_POSITION
    else:
        expected = MarkStatus.SUCCESS
    assert check_mark(mark(times[0], before), mark(times[1], after)) is expected


# Who holds time up


def judged(marks: Mapping[str, WriterMark], *, last_time: int | None = 10) -> tuple[set[str], set[str]]:
    """Return who is not waited for, and whose marks give the next watermark its times."""
    verdict = judge(marks, last_time=last_time)
    names = {id(one): name for name, one in marks.items()}
    return set(verdict.gone), {names[id(one)] for one in verdict.counted}


def test_without_writers_there_is_no_watermark() -> None:
    """No writer promises anything."""
    assert judge({}, last_time=None) == Verdict([], [])


def test_everybody_makes_the_first_watermark() -> None:
    """There is no time yet that anyone could be behind."""
    marks = {"a": mark(0), "b": mark(5), "c": mark(3, is_open=False)}
    assert judged(marks, last_time=None) == (set(), {"a", "b", "c"})


def test_all_writers_with_later_times_make_the_next_one() -> None:
    """Each has said something new."""
    assert judged({"a": mark(11), "b": mark(99)}) == (set(), {"a", "b"})


@pytest.mark.parametrize("time", [10, 9])
def test_one_writer_that_says_nothing_new_holds_up_all_others(time: int) -> None:
    """It is alive, and may still write what is earlier than what the others have noted."""
    assert judged({"a": mark(11), "slow": mark(time)}) == (set(), set())


def test_a_writer_that_was_shut_down_does_not_hold_up_time() -> None:
    """It writes no more, so there is nothing to wait for."""
    assert judged({"a": mark(11), "gone": mark(10, is_open=False)}) == ({"gone"}, {"a"})


def test_a_writer_that_was_shut_down_counts_while_it_is_ahead() -> None:
    """What it noted last is still to become a watermark."""
    assert judged({"gone": mark(11, is_open=False)}) == (set(), {"gone"})


def test_one_that_waits_and_one_that_is_gone_make_no_watermark() -> None:
    """As long as a writer is waited for, nothing is written."""
    marks = {"a": mark(11), "slow": mark(10), "gone": mark(5, is_open=False)}
    assert judged(marks) == ({"gone"}, set())


@given(
    data=st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 4), st.booleans()), max_size=5),
    last_time=st.none() | st.integers(0, 4),
)
def test_the_verdict_is_what_the_rules_say(data: dict[str, tuple[int, bool]], last_time: int | None) -> None:
    """All of them together, writer by writer."""
    marks = {name: mark(time, is_open=is_open) for name, (time, is_open) in data.items()}
    gone, counted = judged(marks, last_time=last_time)
    new = {name for name, one in marks.items() if last_time is None or one.time > last_time}
    assert gone == {name for name, one in marks.items() if name not in new and not one.is_open}
    assert counted == (new if marks.keys() == new | gone else set())


# Which times


def test_the_slowest_writer_says_how_late_it_is_and_the_fastest_how_late_it_may_be() -> None:
    """Lower is what all promise, upper what none has gone beyond."""
    assert times_of([mark(7), mark(5), mark(9)]) == (5, 9)
    assert times_of([mark(7)]) == (7, 7)


def test_writers_that_were_shut_down_do_not_hold_time_back() -> None:
    """Else time would lag behind by a pass for each of them: they write no more."""
    gone = [mark(time, is_open=False) for time in (1, 2, 3, 50)]
    assert times_of([*gone, mark(7), mark(9)]) == (7, 50)


def test_if_all_were_shut_down_the_one_that_had_come_furthest_counts() -> None:
    """None of them is going to write what is earlier."""
    assert times_of([mark(3, is_open=False), mark(8, is_open=False)]) == (8, 8)


# Where a watermark lies


def scaled() -> History:
    """0, split into 1 and 2, which were merged into 3."""
    history = new_history()
    history.scale([0], HALVES)
    history.scale([1, 2], [(0.0, 1.0)])
    return history


def test_of_one_segment_the_highest_offset_counts() -> None:
    """The bound is behind all positions."""
    segments = new_history(2).state.segments
    assert least_upper_bound(segments, [{0: 5, 1: 2}, {0: 3, 1: 4}, {0: 4}]) == {0: 5, 1: 4}


def test_a_successor_takes_the_place_of_what_comes_before_it() -> None:
    """Whatever the order in which they are found, and however far the others were."""
    segments = scaled().state.segments
    for positions in ([{0: 9}, {1: 4, 2: 4}], [{1: 4, 2: 4}, {0: 9}]):
        assert least_upper_bound(segments, positions) == {1: 4, 2: 4}
    assert least_upper_bound(segments, [{1: 9, 2: 9}, {3: 0}, {0: 9}]) == {3: 0}


def test_positions_may_leave_out_key_ranges_and_so_does_their_bound() -> None:
    """A writer need not have written everywhere; completing it is another matter."""
    assert least_upper_bound(scaled().state.segments, [{0: 9}, {1: 4}]) == {1: 4}
    assert least_upper_bound(scaled().state.segments, []) == {}


def test_segments_that_are_gone_do_not_count() -> None:
    """The stream begins behind them."""
    history = scaled()
    history.truncate({3: 0})
    assert least_upper_bound(history.state.segments, [{0: 9}, {1: 5, 2: 7}]) == {}
    assert bound_of(history.state, [mark(1, {0: 9})], None) == {3: 0}


@given(history=histories(), data=st.data())
def test_the_bound_of_cuts_is_their_highest_at_every_point_of_the_key_space(history: History, data: DataObject) -> None:
    """Least and upper: not a byte before any of them, not a byte beyond."""
    cuts = [draw_cut(data, history) for _ in range(data.draw(st.integers(1, 4)))]
    bound = least_upper_bound(history.state.segments, cuts)
    for point in POINTS:
        assert at_point(history.state, bound, point) == max(
            found for cut in cuts if (found := at_point(history.state, cut, point))
        )
    history.state.check_cut(as_cut(bound))


def test_key_ranges_without_a_position_are_completed_by_the_latest_epoch_there_is() -> None:
    """Half a writer's position is in a successor: then all that came before the other half was passed as well."""
    history = new_history()
    history.scale([0], HALVES)
    assert bound_of(history.state, [mark(1, {1: 5})], None) == {1: 5, 2: 0}
    assert bound_of(history.state, [mark(1, {1: 5}), mark(1, {0: 3})], None) == {1: 5, 2: 0}


def test_key_ranges_without_a_position_are_completed_by_the_last_watermark_first() -> None:
    """It is further than the beginning of the segment."""
    history = new_history(2)
    assert bound_of(history.state, [mark(1, {0: 5})], {0: 1, 1: 7}) == {0: 5, 1: 7}
    assert bound_of(history.state, [mark(1, {0: 5})], None) == {0: 5, 1: 0}


def test_a_watermark_is_not_before_the_head() -> None:
    """What was truncated away cannot be read up to."""
    history = new_history(2)
    history.truncate({0: 3, 1: 4})
    assert bound_of(history.state, [mark(1, {0: 5, 1: 1})], None) == {0: 5, 1: 4}
    assert bound_of(history.state, [], None) == {0: 3, 1: 4}


def test_a_segment_does_not_stay_beside_one_that_comes_after_it_by_way_of_another() -> None:
    """Segments 0 and 1 were merged, then split: who is in 4 has passed 0, though no key is in both."""
    history = new_history(2)
    history.scale([0, 1], [(0.0, 1.0)])
    history.scale([2], HALVES)
    for places in ({0: 5, 4: 7}, {0: 5, 2: 3, 4: 7}):
        marks = [mark(1, {segment: offset}) for segment, offset in places.items()]
        assert bound_of(history.state, marks, None) == {3: 0, 4: 7}


@given(history=histories(), data=st.data())
def test_a_watermark_is_a_cut_behind_all_marks_behind_the_last_one_and_not_before_the_head(
    history: History, data: DataObject
) -> None:
    """Whatever parts of the key space the writers name, over any splits, merges and truncations."""
    head = draw_cut(data, history)
    last = draw_cut(data, history, from_=head) if data.draw(st.booleans()) else None
    positions = []
    for _ in range(data.draw(st.integers(0, 4))):
        cut = draw_cut(data, history)
        positions.append({segment: cut[segment] for segment in data.draw(st.sets(st.sampled_from(sorted(cut))))})
    history.truncate(head)
    state = history.state
    bound = bound_of(state, [mark(1, places) for places in positions], last)
    state.check_cut(as_cut(bound))
    for point in POINTS:
        found = at_point(state, bound, point)
        assert found is not None
        for places in (head, last or {}, *positions):
            named = at_point(state, places, point)
            assert named is None or named <= found


@given(history=histories(), data=st.data())
def test_a_watermark_of_whole_cuts_goes_no_further_than_it_must(history: History, data: DataObject) -> None:
    """Nothing has to be completed then, so it is the highest of all cuts, the head's included."""
    cuts = [draw_cut(data, history) for _ in range(3)]
    last = draw_cut(data, history)
    bound = bound_of(history.state, [mark(1, cut) for cut in cuts], last)
    for point in POINTS:
        assert at_point(history.state, bound, point) == max(
            found for cut in (*cuts, last) if (found := at_point(history.state, cut, point))
        )


# How a position lies to a cut


def test_a_position_is_behind_a_cut_or_ahead_or_both_or_just_there() -> None:
    """Both means undecided: in some segments the reader has passed it, in some it has not."""
    segments = new_history(2).state.segments
    cut = {0: 5, 1: 5}
    assert compare(segments, {0: 5, 1: 5}, cut) == Relation(behind=False, ahead=False)
    assert compare(segments, {0: 4, 1: 5}, cut) == Relation(behind=True, ahead=False)
    assert compare(segments, {0: 5, 1: 6}, cut) == Relation(behind=False, ahead=True)
    assert compare(segments, {0: 4, 1: 6}, cut) == Relation(behind=True, ahead=True)


def test_a_successor_is_ahead_of_what_comes_before_it() -> None:
    """Even its first byte is behind the last of its predecessor."""
    segments = scaled().state.segments
    assert compare(segments, {1: 0, 2: 0}, {0: LENGTH}) == Relation(behind=False, ahead=True)
    assert compare(segments, {0: LENGTH}, {1: 0, 2: 0}) == Relation(behind=True, ahead=False)
    assert compare(segments, {3: 0}, {1: LENGTH, 2: LENGTH}) == Relation(behind=False, ahead=True)


@given(history=histories(), data=st.data())
def test_comparing_says_what_every_point_of_the_key_space_says(history: History, data: DataObject) -> None:
    """A pair of segments that share no key has no say."""
    position, cut = draw_cut(data, history), draw_cut(data, history)
    pairs = [(at_point(history.state, position, point), at_point(history.state, cut, point)) for point in POINTS]
    relation = compare(history.state.segments, position, cut)
    assert relation.behind == any(ours < theirs for ours, theirs in pairs if ours and theirs)
    assert relation.ahead == any(ours > theirs for ours, theirs in pairs if ours and theirs)


@given(history=histories(), data=st.data())
def test_comparing_says_the_same_when_what_lies_before_is_gone(history: History, data: DataObject) -> None:
    """Marks from before the head are kept for a while, and readers who have passed it ask about them."""
    head, cut = draw_cut(data, history), draw_cut(data, history)
    position = draw_cut(data, history, from_=head)
    before = compare(history.state.segments, position, cut)
    backwards = compare(history.state.segments, cut, position)
    history.truncate(head)
    assert compare(history.state.segments, position, cut) == before
    assert compare(history.state.segments, cut, position) == backwards


# Which events lie behind a cut


@given(history=histories(), data=st.data())
def test_an_event_lies_behind_a_cut_if_it_does_so_for_every_key_of_its_segment(
    history: History, data: DataObject
) -> None:
    """What mark_time goes by: one border for each segment."""
    cut = draw_cut(data, history)
    for segment, one in history.state.segments.items():
        place = place_in(history.state.segments, segment, cut)
        own = [point for point in POINTS if one.low <= point < one.high]
        for offset in range(LENGTH + 1):
            behind = all((at_point(history.state, cut, point) or (0, 0)) <= (segment, offset) for point in own)
            assert behind == (place is not None and place <= offset)


def test_of_a_segment_that_is_gone_nothing_is_said_to_lie_behind_a_cut() -> None:
    """A reader may still hold some of its events: time must not overtake them."""
    history = scaled()
    before = deepcopy(history.state.segments)
    history.truncate({3: 0})
    assert place_in(before, 0, {1: 4, 2: 4}) is None
    assert place_in(history.state.segments, 0, {1: 4, 2: 4}) is None
    assert place_in(history.state.segments, 0, {3: 4}) is None
    assert place_in(history.state.segments, 0, {0: 4}) == 4
