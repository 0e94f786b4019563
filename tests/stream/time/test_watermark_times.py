"""What time it is at a place of a stream: windows, and the time of every event."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.model import TimeWindow, Watermark
from penstock.plog import FilePlogs
from penstock.stream.time._watermark_log import WatermarkLog
from penstock.stream.time._watermark_times import WatermarkTimes, event_window, window_at
from penstock.testing import MemoryDisk
from tests.sampling import examples
from tests.stream.time.mark_harness import (
    LENGTH,
    POINTS,
    STREAM,
    History,
    Places,
    as_cut,
    at_point,
    draw_cut,
    histories,
    new_history,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import DataObject

    from penstock.stream.catalog._stream_state import StreamState

HALVES = [(0.0, 0.5), (0.5, 1.0)]


@contextmanager
def mark_log(*marks: Watermark) -> Iterator[WatermarkLog]:
    plogs = FilePlogs(MemoryDisk(), journal_size=1 << 16, direct_size_min=1 << 12)
    sizes = PlogSizes(first=64, largest=64)
    with plogs, open_cpo("memory:") as cpo, MetadataManager.open(plogs, cpo, "main", sizes=sizes) as manager:
        log = WatermarkLog(manager.log("m0"), STREAM)
        for mark in marks:
            log.append(mark)
        yield log


def watermarks(*cuts: Places) -> list[Watermark]:
    """Return one for each cut, of the times 10-15, 20-25, and so on."""
    return [Watermark(10 * number, 10 * number + 5, as_cut(cut)) for number, cut in enumerate(cuts, start=1)]


def draw_watermarks(data: DataObject, history: History, *, most: int = 5) -> list[Watermark]:
    cuts: list[Places] = []
    for _ in range(data.draw(st.integers(0, most))):
        cuts.append(draw_cut(data, history, from_=cuts[-1] if cuts else None))
    return watermarks(*cuts)


def times(one: WatermarkTimes, *offsets: int) -> list[int | None]:
    """Return the times of some events in milliseconds."""
    column = one.of(np.array(offsets, np.int64))
    return list(column.cast("timestamp[ms]").cast("int64").to_pylist())


def is_behind(state: StreamState, segment: int, offset: int, cut: Places) -> bool:
    """Whether an event lies behind a cut, by the keys that its segment has."""
    one = state.segments[segment]
    own = [point for point in POINTS if one.low <= point < one.high]
    return all((at_point(state, cut, point) or (0, 0)) <= (segment, offset) for point in own)


def expected_times(state: StreamState, segment: int, offsets: list[int], marks: list[Watermark]) -> list[int | None]:
    found: list[int | None] = []
    for offset in offsets:
        before = [mark.lower for mark in marks if is_behind(state, segment, offset, mark.cut.offsets)]
        found.append(before[-1] if before else None)
    return found


# The time of every event


def test_without_a_log_or_a_watermark_no_event_has_a_time() -> None:
    """Null is what says so."""
    state = new_history().state
    assert times(WatermarkTimes(lambda: None, state, 0), 0, 5) == [None, None]
    with mark_log() as log:
        assert times(WatermarkTimes(lambda: log, state, 0), 0, 5) == [None, None]
        assert len(WatermarkTimes(lambda: log, state, 0).of(np.array([], np.int64))) == 0


def test_an_event_has_the_time_of_the_last_watermark_before_it() -> None:
    """One that begins just at the cut lies behind it."""
    state = new_history().state
    with mark_log(*watermarks({0: 3}, {0: 3}, {0: 6})) as log:
        assert times(WatermarkTimes(lambda: log, state, 0), *range(8)) == [None, None, None, 20, 20, 20, 30, 30]


def test_a_time_of_zero_is_a_time() -> None:
    """Not every stream's writers count from 1970."""
    state = new_history().state
    with mark_log(Watermark(0, 0, as_cut({0: 2}))) as log:
        assert times(WatermarkTimes(lambda: log, state, 0), 1, 2) == [None, 0]
        assert times(WatermarkTimes(lambda: log, state, 0), 2, 3) == [0, 0]


def test_times_go_on_over_a_split_and_a_merge() -> None:
    """A successor begins with the time that its predecessors came to."""
    history = new_history()
    history.scale([0], HALVES)
    history.scale([1, 2], [(0.0, 1.0)])
    with mark_log(*watermarks({0: 4}, {1: 2, 2: 0}, {1: 2, 2: 5}, {3: 3})) as log:
        found = {
            segment: times(WatermarkTimes(lambda: log, history.state, segment), 0, 2, 4, 5) for segment in range(4)
        }
    assert found == {
        0: [None, None, 10, 10],
        1: [10, 30, 30, 30],
        2: [20, 20, 20, 30],
        3: [30, 30, 40, 40],
    }


def test_a_new_watermark_is_seen_by_who_reads_already() -> None:
    """A tail reader keeps what it knows, and looks for more."""
    state = new_history().state
    first, second, third = watermarks({0: 2}, {0: 4}, {0: 4})
    with mark_log(first) as log:
        reading = WatermarkTimes(lambda: log, state, 0)
        assert times(reading, 1, 3) == [None, 10]
        log.append(second)
        assert times(reading, 4, 5) == [20, 20]
        log.append(third)
        assert times(reading, 6) == [30]


def test_the_first_watermark_is_seen_by_who_read_before_there_was_a_log() -> None:
    """Writers may begin to note times any day."""
    state = new_history().state
    with mark_log(*watermarks({0: 2})) as log:
        logs: list[WatermarkLog] = []
        reading = WatermarkTimes(lambda: logs[0] if logs else None, state, 0)
        assert times(reading, 0, 1) == [None, None]
        logs.append(log)
        assert times(reading, 2) == [10]


def test_who_reads_on_after_watermarks_were_freed_sees_the_later_ones() -> None:
    """Retention by consumption truncates just where the reader is, and the log of watermarks with it."""
    state = new_history().state
    with mark_log(*watermarks(*[{0: 2}] * 30)) as log:
        reading = WatermarkTimes(lambda: log, state, 0)
        assert times(reading, 0) == [None]
        log.truncate(lambda _: True)
        assert log.start > 0
        assert times(reading, 2) == [300]


@settings(max_examples=examples(60))
@given(history=histories(), data=st.data())
def test_every_event_has_the_time_that_all_keys_of_its_segment_have_passed(history: History, data: DataObject) -> None:
    """In any pieces, forwards, backwards and again, over any scales."""
    marks = draw_watermarks(data, history)
    with mark_log(*marks) as log:
        for segment in data.draw(st.sets(st.sampled_from(sorted(history.state.segments)), min_size=1, max_size=3)):
            reading = WatermarkTimes(lambda: log, history.state, segment)
            for _ in range(data.draw(st.integers(1, 4))):
                low = data.draw(st.integers(0, LENGTH))
                offsets = list(range(low, data.draw(st.integers(low, LENGTH)) + 1))
                assert times(reading, *offsets) == expected_times(history.state, segment, offsets, marks)


@settings(max_examples=examples(40))
@given(history=histories(), data=st.data())
def test_truncating_changes_no_time_of_what_is_left(history: History, data: DataObject) -> None:
    """The last watermark before the head is kept, and those behind it."""
    marks = draw_watermarks(data, history, most=8)
    head = draw_cut(data, history)
    offsets = {segment: list(range(head.get(segment, 0), LENGTH + 1)) for segment in history.state.segments}
    before = {segment: expected_times(history.state, segment, some, marks) for segment, some in offsets.items()}
    heads = [mark for mark in marks if all(
        (at_point(history.state, mark.cut.offsets, point) or (0, 0)) <= (at_point(history.state, head, point) or (0, 0))
        for point in POINTS
    )]  # fmt: skip
    history.truncate(head)
    with mark_log(*marks) as log:
        log.truncate(lambda mark: mark in heads)
        for segment in history.state.segments:
            reading = WatermarkTimes(lambda: log, history.state, segment)
            assert times(reading, *offsets[segment]) == before[segment]


# Windows


def test_there_is_no_window_where_no_writer_noted_time() -> None:
    """None, so that it cannot be taken for a time."""
    state = new_history().state
    with mark_log() as log:
        assert window_at(log, state, {0: 3}) is None
        assert event_window(log, state, 0, 3) is None


def test_a_window_is_between_the_last_passed_and_the_first_ahead() -> None:
    """At the head there is no lower bound, at the tail no upper one; being just there counts as passed."""
    state = new_history().state
    with mark_log(*watermarks({0: 3}, {0: 6})) as log:
        assert window_at(log, state, {0: 2}) == TimeWindow(None, 15)
        assert window_at(log, state, {0: 3}) == TimeWindow(10, 25)
        assert window_at(log, state, {0: 5}) == TimeWindow(10, 25)
        assert window_at(log, state, {0: 6}) == TimeWindow(20, None)


def test_a_watermark_that_is_passed_in_some_segments_only_bounds_nothing() -> None:
    """It is not passed, and not ahead either: the next one behind it is the upper bound."""
    state = new_history(2).state
    with mark_log(*watermarks({0: 1, 1: 1}, {0: 5, 1: 5}, {0: 9, 1: 9})) as log:
        assert window_at(log, state, {0: 6, 1: 2}) == TimeWindow(10, 35)
        assert window_at(log, state, {0: 5, 1: 2}) == TimeWindow(10, 25)
    with mark_log(*watermarks({0: 1, 1: 1}, {0: 5, 1: 5})) as log:
        assert window_at(log, state, {0: 6, 1: 2}) == TimeWindow(10, None)


@settings(max_examples=examples(60))
@given(history=histories(), data=st.data())
def test_a_window_is_what_looking_at_all_watermarks_says(history: History, data: DataObject) -> None:
    """Halving finds the same, and upper is never below lower."""
    marks = draw_watermarks(data, history)
    position = draw_cut(data, history)
    state = history.state

    def pairs(mark: Watermark) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        cut = mark.cut.offsets
        return [(at_point(state, position, one) or (0, 0), at_point(state, cut, one) or (0, 0)) for one in POINTS]

    passed = [mark for mark in marks if all(ours >= theirs for ours, theirs in pairs(mark))]
    ahead = [
        mark for mark in marks if mark not in passed and all(ours <= theirs for ours, theirs in pairs(mark))
    ]  # fmt: skip
    with mark_log(*marks) as log:
        found = window_at(log, state, position)
    if not marks:
        assert found is None
        return
    assert found == TimeWindow(passed[-1].lower if passed else None, ahead[0].upper if ahead else None)
    assert found.lower is None or found.upper is None or found.lower <= found.upper


@settings(max_examples=examples(40))
@given(history=histories(), data=st.data())
def test_the_window_of_an_event_goes_by_its_own_segment(history: History, data: DataObject) -> None:
    """Whatever the readers of other segments have come to."""
    marks = draw_watermarks(data, history)
    segment = data.draw(st.sampled_from(sorted(history.state.segments)))
    offset = data.draw(st.integers(0, LENGTH))
    before = [mark for mark in marks if is_behind(history.state, segment, offset, mark.cut.offsets)]
    behind = marks[len(before) :]
    with mark_log(*marks) as log:
        found = event_window(log, history.state, segment, offset)
    expected = TimeWindow(before[-1].lower if before else None, behind[0].upper if behind else None)
    assert found == (expected if marks else None)
