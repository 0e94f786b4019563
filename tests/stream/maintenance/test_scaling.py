"""Automatic scaling: what is measured, and what is decided on it."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.embedded import open_store
from penstock.model import SEGMENTS_MAX, ByDataRate, ByEventRate, BySize, Fixed, Scaling, StreamConfig
from penstock.stream.catalog._stream_state import StreamState
from penstock.stream.format import StreamCreated, StreamScaled, StreamStopped
from penstock.stream.maintenance._maintenance import Maintenance
from penstock.stream.maintenance._scaling import (
    COOL_DOWN_S,
    MERGE_AFTER_S,
    SAMPLES_MAX,
    WIDTH_MIN,
    WINDOW_S,
    Decision,
    Meter,
    decide,
)
from penstock.stream.write import _flush
from penstock.stream.write._flush import Flusher
from penstock.stream.write._lanes import place_again

if TYPE_CHECKING:
    from penstock.stream import Engine

NOW: Final = 1_700_000_000.0
TICK_S: Final = 1.0


def stream(scaling: Scaling, segments: int = 1) -> StreamState:
    return StreamState(StreamCreated("a/b", 0, segments, StreamConfig(scaling=scaling)))


def measured(*rates: float, seconds: float = WINDOW_S, size: int = 1, now: float = NOW) -> dict[int, Meter]:
    """Return meters, by segment, of segments that took so many events a second, each of ``size`` bytes."""
    meters = {segment: Meter() for segment in range(len(rates))}
    for segment, rate in enumerate(rates):
        for tick in range(int(seconds / TICK_S) + 1):
            time = now - seconds + tick * TICK_S
            events = round(rate * tick * TICK_S)
            meters[segment].sample(time, events=events, size=events * size)
    return meters


def test_a_rate_is_that_of_the_last_window() -> None:
    """What happened before it must not keep a segment hot, or cold."""
    meter = Meter()
    for second in range(241):
        meter.sample(NOW + second, events=100 * min(second, 180), size=0)
    assert meter.rate("events", NOW + 180) == pytest.approx(100)
    assert meter.rate("events", NOW + 210) == pytest.approx(50)
    assert meter.rate("events", NOW + 240) == pytest.approx(0)


def test_there_is_no_rate_before_a_whole_window_was_measured() -> None:
    """A burst in the first second of a segment is no reason to split it."""
    meter = Meter()
    for second in range(int(WINDOW_S)):
        meter.sample(NOW + second, events=1000 * second, size=0)
        assert meter.rate("events", NOW + second) is None
    meter.sample(NOW + WINDOW_S, events=60_000, size=0)
    assert meter.rate("events", NOW + WINDOW_S) == pytest.approx(1000)


def test_a_meter_without_samples_knows_no_rate() -> None:
    """So it is for every segment after a restart."""
    assert Meter().rate("bytes", NOW) is None


@pytest.mark.parametrize(
    ("later", "events"),
    [(-1.0, 10_000), (WINDOW_S + 1, 10_000), (1.0, 50)],
    ids=["clock set back", "not looked at for long", "counted anew"],
)
def test_a_break_in_the_measurements_starts_them_afresh(later: float, events: int) -> None:
    """What cannot be compared says nothing: a wrong merge or split costs more than a minute's delay."""
    meter = measured(10, seconds=2 * WINDOW_S)[0]
    assert meter.rate("events", NOW) is not None
    meter.sample(NOW + later, events=events, size=events)
    assert meter.rate("events", NOW + later) is None


@given(st.lists(st.floats(0.001, 30), min_size=1, max_size=300))
def test_a_meter_keeps_few_samples_however_often_it_is_asked_to(steps: list[float]) -> None:
    """Ten thousand segments are measured at once; the figure is asserted in the meter itself."""
    meter, now = Meter(), NOW
    for step in steps * 4:
        now += step
        meter.sample(now, events=0, size=0)
    assert len(meter._samples) <= SAMPLES_MAX


@given(st.lists(st.tuples(st.floats(0.5, 20), st.integers(0, 5000)), min_size=80, max_size=200))
def test_a_rate_is_near_the_true_one(steps: list[tuple[float, int]]) -> None:
    """Samples are thinned out; what is lost by that must stay within what one sample interval may hold."""
    meter, now, events, truth = Meter(), NOW, 0, [(NOW, 0)]
    meter.sample(now, events=0, size=0)
    for step, more in steps:
        now, events = now + step, events + more
        meter.sample(now, events=events, size=0)
        truth.append((now, events))
    rate = meter.rate("events", now)
    if rate is None:
        return
    before = [count for time, count in truth if time <= now - WINDOW_S - 20]
    after = [count for time, count in truth if time >= now - WINDOW_S + 20]
    assert (events - after[0]) / WINDOW_S <= rate + 1e-6
    if before:
        assert rate - 1e-6 <= (events - before[-1]) / WINDOW_S


def test_a_segment_above_the_target_splits_into_equal_parts() -> None:
    """As many as would each take the target: one change instead of many."""
    state = stream(ByEventRate(target=100, factor=8))
    assert decide(state, measured(101), NOW) == Decision([0], [(0.0, 0.5), (0.5, 1.0)])
    assert decide(state, measured(290), NOW) == Decision([0], [(0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0)])


def test_a_split_makes_at_most_as_many_parts_as_the_factor() -> None:
    """The user says how steeply a stream may grow."""
    state = stream(ByEventRate(target=100, factor=2))
    assert decide(state, measured(10_000), NOW) == Decision([0], [(0.0, 0.5), (0.5, 1.0)])


def test_a_segment_at_the_target_stays() -> None:
    """The target is what a segment may take."""
    assert decide(stream(ByEventRate(target=100)), measured(100), NOW) is None


def test_data_rate_counts_bytes_and_event_rate_counts_events() -> None:
    """Few large events, or many small ones: the user chose what is scarce."""
    meters = measured(10, size=1000)
    assert decide(stream(ByDataRate(target=5000)), meters, NOW) is not None
    assert decide(stream(ByEventRate(target=5000)), meters, NOW) is None


def test_the_hottest_segment_is_split_first() -> None:
    """One change at a time, so the first must be the one that helps most."""
    state = stream(ByEventRate(target=100), segments=3)
    decision = decide(state, measured(150, 400, 200), NOW)
    assert decision is not None
    assert decision.seal == [1]


def test_a_fixed_stream_is_never_scaled() -> None:
    """Its user asked for just that."""
    assert decide(stream(Fixed()), measured(1e6), NOW) is None


def test_a_sealed_stream_is_never_scaled() -> None:
    """It takes no events, whatever was measured before."""
    state = stream(ByEventRate(target=1))
    state.apply(StreamStopped("a/b", {0: 0}))
    assert decide(state, measured(100), NOW) is None


def test_a_stream_cools_down_after_a_change() -> None:
    """The effect of one change must be seen before the next, or a burst splits a stream to pieces."""
    state = stream(ByEventRate(target=1))
    state.apply(StreamScaled("a/b", {0: 0}, [(0.0, 1.0)], int(NOW * 1000)))
    for seconds, expected in ((0.0, False), (COOL_DOWN_S - 1, False), (COOL_DOWN_S, True)):
        meters = {1: measured(100, now=NOW + seconds)[0]}
        assert (decide(state, meters, NOW + seconds) is not None) == expected


def test_a_clock_that_was_set_back_does_not_stop_scaling() -> None:
    """The last change is then in the future, maybe by a year."""
    state = stream(ByEventRate(target=1))
    state.apply(StreamScaled("a/b", {0: 0}, [(0.0, 1.0)], int((NOW + 1e7) * 1000)))
    assert decide(state, {1: measured(100)[0]}, NOW) is not None


def test_cold_neighbours_merge() -> None:
    """Segments that are not needed any more cost every reader something."""
    state = stream(ByEventRate(target=100), segments=2)
    assert decide(state, measured(20, 20, seconds=MERGE_AFTER_S), NOW) == Decision([0, 1], [(0.0, 1.0)])


def test_neighbours_that_are_not_cold_for_long_enough_stay() -> None:
    """A pause is no reason to merge what is needed again after it."""
    state = stream(ByEventRate(target=100), segments=2)
    assert decide(state, measured(0, 0, seconds=MERGE_AFTER_S - TICK_S), NOW) is None


def test_neighbours_that_take_half_of_the_target_together_stay() -> None:
    """Otherwise a stream whose rate wavers a little would be split and merged for ever."""
    state = stream(ByEventRate(target=100), segments=2)
    assert decide(state, measured(25, 25, seconds=MERGE_AFTER_S), NOW) is None


def test_one_warm_window_among_ten_keeps_neighbours_apart() -> None:
    """The mean over ten minutes would hide a burst that a merged segment cannot take."""
    state = stream(ByEventRate(target=100), segments=2)
    meters = {0: Meter(), 1: Meter()}
    for second in range(int(MERGE_AFTER_S) + 1):
        burst = min(max(second - 200, 0), 60) * 80
        meters[0].sample(NOW - MERGE_AFTER_S + second, events=burst, size=0)
        meters[1].sample(NOW - MERGE_AFTER_S + second, events=0, size=0)
    assert decide(state, meters, NOW) is None


def test_the_coldest_neighbours_merge_first() -> None:
    """One change at a time, so the first must be the one that does least harm."""
    state = stream(ByEventRate(target=100), segments=4)
    decision = decide(state, measured(20, 10, 1, 30, seconds=MERGE_AFTER_S), NOW)
    assert decision == Decision([1, 2], [(0.25, 0.75)])


def test_a_hot_segment_is_split_before_cold_ones_merge() -> None:
    """Too few segments hold writers up; too many only cost a little."""
    state = stream(ByEventRate(target=100), segments=3)
    decision = decide(state, measured(1, 1, 200, seconds=MERGE_AFTER_S), NOW)
    assert decision is not None
    assert decision.seal == [2]


def test_a_merge_leaves_the_least_number_of_segments() -> None:
    """Readers may have been set up for just so many."""
    meters = measured(0, 0, 0, seconds=MERGE_AFTER_S)
    assert decide(stream(ByEventRate(target=100, min_segments=3), segments=3), meters, NOW) is None
    assert decide(stream(ByEventRate(target=100, min_segments=2), segments=3), meters, NOW) is not None


def test_a_stream_with_too_few_segments_gets_the_least_number() -> None:
    """The figure may have been raised since the stream was created, and an idle stream shall have it, too."""
    state = stream(ByEventRate(target=100, min_segments=4), segments=2)
    decision = decide(state, {}, NOW)
    assert decision == Decision([0], [(0.0, 0.5 / 3), (0.5 / 3, 1 / 3), (1 / 3, 0.5)])


def test_a_stream_with_the_most_segments_is_not_split() -> None:
    """``scale_stream`` would refuse, every minute."""
    state = stream(ByEventRate(target=1), segments=SEGMENTS_MAX)
    assert decide(state, measured(100), NOW) is None


def test_a_split_does_not_go_beyond_the_most_segments() -> None:
    """Where there is budget for one more, two parts are all there can be."""
    state = stream(ByEventRate(target=1, factor=10), segments=SEGMENTS_MAX - 1)
    decision = decide(state, measured(100), NOW)
    assert decision is not None
    assert len(decision.ranges) == 2


def test_a_segment_of_a_single_hot_key_is_not_split_for_ever() -> None:
    """No split can spread one key; each would only add a segment that takes nothing."""
    state, now, segment = stream(ByEventRate(target=1)), NOW, 0
    for _ in range(64):
        meters = {segment: measured(100, now=now)[0]}
        decision = decide(state, meters, now)
        if decision is None:
            break
        state.apply(StreamScaled("a/b", {segment: 0}, decision.ranges, int(now * 1000)))
        segment, now = state.locate(0.3), now + COOL_DOWN_S
    narrow = state.segments[segment]
    assert WIDTH_MIN / 2 <= narrow.high - narrow.low < WIDTH_MIN


@given(
    st.lists(st.floats(0, 500), min_size=1, max_size=8),
    st.integers(2, 6),
    st.integers(1, 8),
    st.sampled_from([WINDOW_S, MERGE_AFTER_S]),
)
def test_a_decision_is_one_that_the_stream_accepts(
    rates: list[float], factor: int, min_segments: int, seconds: float
) -> None:
    """A refused change would be tried again every pass, and nothing else would be done."""
    state = stream(ByEventRate(target=100, factor=factor, min_segments=min_segments), segments=len(rates))
    decision = decide(state, measured(*rates, seconds=seconds), NOW)
    if decision is None:
        assert max(rates) <= 101
        return
    state.check_scale(decision.seal, decision.ranges)
    assert len(decision.seal) == 1 or len(decision.ranges) == 1
    assert all(one[1] == other[0] for one, other in pairwise(decision.ranges))
    assert len(rates) - len(decision.seal) + len(decision.ranges) >= min(min_segments, len(rates) + 1)


def test_the_meters_of_a_stream_that_is_gone_are_forgotten(store: Engine) -> None:
    """A store in which streams come and go does not grow; nor does one keep those of a stream that is fixed now."""
    config = StreamConfig(scaling=ByEventRate(100))
    for name in ("a/deleted", "a/fixed", "a/stays"):
        store.create_stream(name, config=config)
    store.maintain()
    assert len(store.maintenance._meters) == 3
    store.seal_stream("a/deleted")
    store.delete_stream("a/deleted")
    store.update_stream("a/fixed", StreamConfig())
    store.maintain()
    assert list(store.maintenance._meters) == [store.catalog.streams["a/stays"].uid]


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory"), TypeError("foreign"), MemoryError()])
def test_maintenance_goes_on_after_an_error_that_is_not_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread ended at the first one, and nothing was scaled, truncated or given time any more, without a word."""
    with open_store("memory:", maintenance_interval_s=0.001) as store:
        store.create_stream("a/fails", config=StreamConfig(retention=BySize(1 << 20)))
        store.create_stream("a/other", config=StreamConfig(retention=BySize(1 << 20)))
        others, original = threading.Semaphore(0), Maintenance._retain

        def fail(maintenance: Maintenance, state: StreamState) -> None:
            if state.name == "a/fails":
                raise error
            original(maintenance, state)
            others.release()

        monkeypatch.setattr(Maintenance, "_retain", fail)
        for _ in range(3):
            assert others.acquire(timeout=30), "maintenance has ended"
    assert "maintenance failed and is tried again, retention of stream a/fails" in caplog.text


def test_an_interrupt_while_the_thread_starts_is_no_thread_that_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was kept and never started would not be started again, and closing the store would fail."""
    started, start = list[str](), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        started.append(thread.name)
        if len(started) == 1:
            raise KeyboardInterrupt
        start(thread)

    with open_store("memory:") as store:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        config = StreamConfig(retention=BySize(1 << 20))
        with pytest.raises(KeyboardInterrupt):
            store.create_stream("a/b", config=config)
        store.create_stream("a/c", config=config)
        assert started == ["penstock-maintenance"] * 2


def test_scaling_again_and_again_does_not_starve_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that end whenever events were put into them, before they are sent, never take any."""
    with open_store("memory:") as store:
        store.create_stream("a/b")
        writer = store.writer("a/b")
        scalers: list[threading.Thread] = []
        rounds = 0

        def scale() -> None:
            [segment] = store.stream("a/b").segments
            store.scale_stream("a/b", [segment.segment_id], [(0.0, 1.0)])

        def place_and_scale(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            nonlocal rounds
            rounds += 1
            loads = place_again(*args, **options)
            if len(scalers) < 5:
                scalers.append(threading.Thread(target=scale))
                scalers[-1].start()
                scalers[-1].join(0.2)  # it ends the segments, if it is let
            return loads

        monkeypatch.setattr(_flush, "place_again", place_and_scale)
        monkeypatch.setattr(writer._open, "call_pump", lambda: None)
        ack = writer.write_event(b"x" * 100)
        scale()
        writer.flush()
        assert ack.done()
        assert rounds == 1, "its segments ended again and again"
        for scaler in scalers:
            scaler.join()


def test_events_that_a_scale_moves_hold_back_who_writes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were taken out of the buffer, and are not on the disk: counting only the buffer fills the memory."""
    with open_store("memory:") as store:
        store.create_stream("a/b")
        writer, send = store.writer("a/b"), Flusher._send
        monkeypatch.setattr(writer._open, "call_pump", lambda: None)
        sizes: list[int] = []

        def write_and_send(self: Flusher, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            sizes.append(self._lanes.size)
            if len(sizes) == 1:
                writer.write_event(b"y" * 1000)
            return send(self, *args, **options)

        monkeypatch.setattr(Flusher, "_send", write_and_send)
        writer.write_event(b"x" * 100)
        store.scale_stream("a/b", [0], [(0.0, 1.0)])
        writer.flush()
        assert len(sizes) == 2
        assert sizes[1] > 1000
        assert writer._lanes.size == 0
