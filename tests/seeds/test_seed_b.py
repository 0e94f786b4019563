"""Seed B, watermarking, in its own order: every promise once, as a user would try it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.errors import BadArgument, TransactionEnded
from penstock.model import StreamConfig, StreamCut, TimeWindow, Watermark
from penstock.plog import FilePlogs
from penstock.stream.segment import watermark_log
from penstock.stream.time._marks import MarkStatus
from penstock.testing import ManualClock, MemoryDisk
from tests.stream.harness import inside
from tests.stream.time.watermark_harness import (
    CONFIG,
    MAINTENANCE_INTERVAL_S,
    STREAM,
    TIMEOUT_S,
    Timed,
    note,
    open_timed,
    timed_store,
    write,
)
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import Engine

HALVES = [(0.0, 0.5), (0.5, 1.0)]
KEYS = "abcdefgh"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded", "remote"])
def timed(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Timed]:
    with open_timed("memory:", clock) as store:
        store.create_stream(STREAM, segments=2, config=CONFIG)
        if request.param == "embedded":
            yield Timed(store, clock)
        else:
            with over_the_wire(store, clock) as outside:
                yield Timed(outside, clock)


@pytest.fixture
def store(timed: Timed) -> Engine:
    return timed.store


def events_before(store: Engine, cut: StreamCut) -> list[bytes]:
    return sorted(event for batch in store.read(STREAM, end=cut) for event in batch["event"].to_pylist())


# Introduction


def test_who_has_read_up_to_a_watermark_has_received_everything_before_its_time(timed: Timed) -> None:
    """The bound that writers give to readers."""
    store = timed.store
    with store.writer(STREAM, "w") as writer:
        for minute in range(1, 6):
            for key in KEYS:
                writer.write_event(f"{minute}:{key}".encode(), key=key)
            note(writer, minute)
            timed.run_pass(2)
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        received: list[bytes] = []
        while (read := reader.read_next_event(0.0)) is not None:
            window = reader.current_time_window()
            received.append(read.event)
            assert window is not None
            if window.lower is not None:
                complete = {f"{minute}:{key}".encode() for minute in range(1, window.lower + 1) for key in KEYS}
                assert complete <= set(received)
    assert len(received) == 5 * len(KEYS)


def test_what_time_means_is_up_to_the_application(timed: Timed) -> None:
    """Any numbers that grow: of a clock, of the data, or just counted."""
    with timed.store.writer(STREAM, "w") as writer:
        for time in (0, 7, 1_700_000_000_000):
            note(writer, time)
            timed.run_pass(2)
    assert timed.lowers() == [0, 7, 1_700_000_000_000]


# Overview


def test_pairs_of_time_and_cut_are_kept_in_a_special_segment_of_the_stream(store: Engine, timed: Timed) -> None:
    """No event is among them, and they are not among the events."""
    state = inside(store).catalog.stream(STREAM)
    assert not inside(store)._logs.has(watermark_log(state.uid))
    timed.begin(10)
    assert inside(store)._logs.has(watermark_log(state.uid))
    assert store.watermarks(STREAM) == [Watermark(10, 10, store.tail(STREAM))]
    assert list(store.read(STREAM)) == []


def test_the_time_is_the_lowest_of_what_all_writers_reported_last(timed: Timed) -> None:
    """No writer is left out."""
    writers = [timed.store.writer(STREAM, f"w{number}") for number in range(3)]
    for times, lowest in (((5, 3, 9), 3), ((6, 8, 9), 6), ((7, 8, 99), 7)):
        for writer, time in zip(writers, times, strict=True):
            note(writer, time)
        timed.run_pass(2)
        assert timed.lowers()[-1] == lowest


def test_the_cut_is_at_an_event_boundary_as_far_as_the_writers_were(timed: Timed) -> None:
    """Where writers were when they gave the time, not where they are when it is put together."""
    store = timed.store
    one, other = store.writer(STREAM, "one"), store.writer(STREAM, "other")
    for key in KEYS:
        write(one, b"one", key=key)
        write(other, b"other", key=key)
    note(one, 10)
    note(other, 12)
    write(one, b"late")
    timed.run_pass(2)
    [mark] = store.watermarks(STREAM)
    inside(store).cuts.check(mark.cut)
    assert events_before(store, mark.cut) == [b"one"] * len(KEYS) + [b"other"] * len(KEYS)


def test_readers_know_where_they_are_relative_to_one_another(timed: Timed) -> None:
    """A window is of the group: the slower of two readers says what was read."""
    store, writer = timed.store, timed.begin(10)
    for key in KEYS:
        write(writer, b"event", key=key)
    note(writer, 20)
    timed.run_pass()
    group = store.create_reader_group("group", [STREAM])
    with group.reader("one") as one, group.reader("other") as other:
        for _ in range(2 * len(KEYS)):
            one.read_next_event(0.0)
            if other.current_time_window() != TimeWindow(10, 20):
                break
        assert one.current_time_window() == other.current_time_window() == TimeWindow(10, 20)
        for _ in range(2 * len(KEYS)):
            other.read_next_event(0.0)
            one.read_next_event(0.0)
        assert one.current_time_window() == other.current_time_window() == TimeWindow(20, None)


# Client factory


def test_writers_of_both_kinds_are_created_with_an_id(timed: Timed) -> None:
    """Time is kept under it."""
    store = timed.store
    with store.writer(STREAM, writer_id="w") as writer, store.transactional_writer(STREAM, writer_id="t") as other:
        note(writer, 5)
        other.begin().commit(6)
        assert sorted(inside(store).catalog.stream(STREAM).writers) == ["t", "w"]


# Event writer API


def test_without_an_id_noting_a_time_is_an_error(store: Engine) -> None:
    """The id is optional, unless time is to be given."""
    with store.writer(STREAM) as writer:
        write(writer, b"event")
        with pytest.raises(BadArgument, match="id"):
            writer.note_time(5)


def test_a_noted_time_is_seen_by_readers_and_one_that_goes_back_is_not(timed: Timed) -> None:
    """Monotonic is recommended and not enforced: an earlier one is no error, and changes nothing."""
    writer = timed.begin(10)
    group = timed.store.create_reader_group("group", [STREAM])
    assert group.current_time_window() == TimeWindow(10, None)
    note(writer, 5)
    timed.run_pass(2)
    assert group.current_time_window() == TimeWindow(10, None)
    assert timed.store.watermark(STREAM) == timed.store.watermarks(STREAM)[-1]


def test_writers_need_not_note_time_and_then_there_is_none(timed: Timed) -> None:
    """Readers get None, whatever was written."""
    with timed.store.writer(STREAM, "w") as writer:
        write(writer, b"event")
    timed.run_pass(3)
    with timed.store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        assert reader.read_next_event(0.0) is not None
        assert reader.current_time_window() is None
    assert timed.store.watermark(STREAM) is None


@pytest.mark.buckets
def test_a_commit_supplies_data_and_time_at_once(timed: Timed) -> None:
    """The time is optional, and of a transaction that is not open any more there is neither."""
    store = timed.store
    with store.transactional_writer(STREAM, "t") as writer:
        with writer.begin(lease=36000) as transaction:
            transaction.write_event(b"without")
        timed.run_pass(2)
        assert store.watermarks(STREAM) == []
        transaction = writer.begin(lease=36000)
        for key in KEYS:
            transaction.write_event(b"with", key=key)
        transaction.commit(10)
        timed.run_pass(2)
        assert events_before(store, store.watermarks(STREAM)[-1].cut) == [b"with"] * len(KEYS) + [b"without"]
        with pytest.raises(TransactionEnded):
            transaction.commit(20)


# Config API


def test_a_writer_is_forgotten_when_it_has_not_noted_for_the_time_out(timed: Timed) -> None:
    """Then its time is not valid any more, and the others go on."""
    writer, silent = timed.begin(10), timed.store.writer(STREAM, "silent")
    note(silent, 11)
    for number in range(int(TIMEOUT_S / MAINTENANCE_INTERVAL_S)):
        note(writer, 20 + number)
        timed.run_pass()
    assert timed.lowers() == [10, 11, 29]
    assert list(inside(timed.store).catalog.stream(STREAM).writers) == ["w"]


def test_with_no_known_writers_there_is_no_upper_bound(timed: Timed) -> None:
    """Where the seed says null; what was promised before still holds, so the lower bound stays."""
    timed.begin(10)
    timed.run_pass(2 * int(TIMEOUT_S / MAINTENANCE_INTERVAL_S))
    assert not inside(timed.store).catalog.stream(STREAM).writers
    group = timed.store.create_reader_group("group", [STREAM])
    assert group.current_time_window() == TimeWindow(10, None)


def test_noting_the_clock_regularly_is_a_setting_of_the_writer(timed: Timed, clock: ManualClock) -> None:
    """With every pass of the store, in milliseconds since 1970."""
    with timed.store.writer(STREAM, "w", automatically_note_time=True) as writer:
        for _ in range(3):
            timed.run_pass()
            writer.flush()
        timed.run_pass()
    assert timed.lowers()
    assert all(
        time % int(MAINTENANCE_INTERVAL_S * 1000) == 1_700_000_000_000 % int(MAINTENANCE_INTERVAL_S * 1000)
        for time in timed.lowers()
    )
    assert timed.lowers()[-1] >= int((clock.now() - 2 * MAINTENANCE_INTERVAL_S) * 1000)


def test_the_first_mark_of_a_new_stream_is_delayed_on_purpose(timed: Timed) -> None:
    """It takes some time for all writers to come online."""
    first, second = timed.store.writer(STREAM, "first"), timed.store.writer(STREAM, "second")
    note(first, 100)
    timed.store.maintain()
    assert timed.lowers() == []
    note(second, 50)
    timed.run_pass()
    assert timed.lowers() == [50]


# Event reader API


def test_a_reader_asks_for_the_window_it_is_reading(timed: Timed) -> None:
    """None where no writer noted a time, then from the watermark it has passed to the next."""
    store, writer = timed.store, timed.store.writer(STREAM, "w")
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        assert reader.current_time_window() is None
        write(writer, b"event")
        note(writer, 10)
        timed.run_pass(2)
        assert reader.current_time_window() == TimeWindow(None, 10)
        reader.read_next_event(0.0)
        assert reader.current_time_window() == TimeWindow(10, None)


def test_upper_is_at_least_what_anybody_noted_before_lower_at_most_what_everybody_noted(timed: Timed) -> None:
    """Of any event: what its writer had noted when it wrote it lies in the window, and upper is not below lower."""
    store = timed.store
    slow, fast = store.writer(STREAM, "slow"), store.writer(STREAM, "fast")
    noted = {"slow": 0, "fast": 0}
    for number in range(1, 8):
        for writer, time in ((slow, 10 * number), (fast, 10 * number + 35)):
            name = str(writer.writer_id)
            writer.write_event(f"{noted[name]}:{time}".encode(), key=name)
            note(writer, time)
            noted[name] = time
        timed.run_pass(2)
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        while (read := reader.read_next_event(0.0)) is not None:
            before, after = map(int, read.event.split(b":"))
            assert read.pointer is not None
            window = store.time_window(read.pointer)
            assert window is not None
            assert window.lower is None or window.lower <= after, "not later than what its writer noted next"
            assert window.upper is None or window.upper >= before, "not earlier than what its writer had noted"
            assert window.lower is None or window.upper is None or window.lower <= window.upper


def test_the_window_depends_on_the_time_out_of_the_stream(clock: ManualClock) -> None:
    """Applications may be more or less conservative about when a writer is alive."""
    found = {}
    for patience in (2 * MAINTENANCE_INTERVAL_S, 20 * MAINTENANCE_INTERVAL_S):
        with open_timed("memory:", clock) as store:
            store.create_stream(STREAM, config=StreamConfig(timestamp_aggregation_timeout=patience))
            timed = Timed(store, clock)
            writer, silent = timed.begin(10), store.writer(STREAM, "silent")
            note(silent, 11)
            note(writer, 20)
            timed.run_pass(4)
            window = store.create_reader_group("group", [STREAM]).current_time_window()
            assert window is not None
            found[patience] = window.lower
    assert found == {2 * MAINTENANCE_INTERVAL_S: 20, 20 * MAINTENANCE_INTERVAL_S: 11}


# Controller and watermarking


def test_the_cut_is_at_least_as_far_as_every_position_and_the_time_the_lowest(timed: Timed) -> None:
    """Two writers, each ahead of the other somewhere."""
    store = timed.store
    with store.writer(STREAM) as writer:
        for key in KEYS:
            write(writer, b"event", key=key)
    tail = store.tail(STREAM).offsets
    inside(store).marks.note(STREAM, "one", 10, {0: tail[0], 1: 0})
    inside(store).marks.note(STREAM, "other", 12, {0: 0, 1: tail[1]})
    timed.run_pass(2)
    assert store.watermarks(STREAM) == [Watermark(10, 12, store.tail(STREAM))]


def test_a_writer_gives_its_position_and_that_of_a_commit_is_found_by_the_store(timed: Timed) -> None:
    """Only the store knows where a transaction was committed."""
    store = timed.store
    with store.writer(STREAM) as writer:
        write(writer, b"event", key="a")
    assert inside(store).marks.note(STREAM, "w", 10, {0: 0, 1: 0}) is MarkStatus.SUCCESS
    timed.run_pass(2)
    assert events_before(store, store.watermarks(STREAM)[-1].cut) == []
    assert inside(store).marks.remove(STREAM, "w") is MarkStatus.SUCCESS
    transaction = store.transactional_writer(STREAM, "t").begin(lease=36000)
    transaction.write_event(b"committed", key="a")
    transaction.commit(20)
    timed.run_pass()
    assert events_before(store, store.watermarks(STREAM)[-1].cut) == [b"committed", b"event"]


def test_one_instance_is_responsible_for_a_stream_at_any_time(clock: ManualClock) -> None:
    """The new owner writes watermarks; the former one cannot."""
    plogs = FilePlogs(MemoryDisk(), journal_size=1 << 16, direct_size_min=4096)
    with plogs, open_cpo("memory:") as cpo, timed_store(plogs, cpo, "main", clock) as former:
        former.create_stream(STREAM, config=CONFIG)
        writer = Timed(former, clock).begin(10)
        note(writer, 20)
        with timed_store(plogs, cpo, "main", clock) as present, present.writer(STREAM, "w") as taken_over:
            for time in (30, 40):
                note(taken_over, time)
                Timed(present, clock).run_pass()
                Timed(former, clock).run_pass()
            assert Timed(present, clock).lowers() == [10, 30, 40]


def test_after_a_crash_the_last_value_is_read_back_and_time_goes_on_from_there(
    tmp_path: Path, clock: ManualClock
) -> None:
    """There is a gap in which it does not advance; it never goes back."""
    with open_timed(tmp_path / "data", clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        writer = Timed(store, clock).begin(10)
        note(writer, 20)
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    with open_timed(tmp_path / "crashed", clock) as store:
        timed = Timed(store, clock)
        timed.run_pass(2)
        assert timed.lowers() == [10], "the gap: what was only in memory is lost"
        with store.writer(STREAM, "w") as writer:
            note(writer, 30)
            timed.run_pass()
        assert timed.lowers() == [10, 30]


# Writer marks


def test_marks_of_event_writers_are_checked_and_recorded_durably(tmp_path: Path, clock: ManualClock) -> None:
    """Time and position must make sense; what was taken is there after a restart."""
    with open_timed(tmp_path / "data", clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        with store.writer(STREAM) as writer:
            write(writer, b"event")
        end = store.tail(STREAM).offsets[0]
        assert inside(store).marks.note(STREAM, "w", 10, {0: end}) is MarkStatus.SUCCESS
        assert inside(store).marks.note(STREAM, "w", 9, {0: end}) is MarkStatus.INVALID_TIME
        assert inside(store).marks.note(STREAM, "w", 11, {0: 0}) is MarkStatus.INVALID_POSITION
        assert inside(store).marks.note(STREAM, "w", 11, {0: end + 1}) is MarkStatus.INVALID_POSITION
        assert inside(store).marks.remove(STREAM, "nobody") is MarkStatus.UNKNOWN_WRITER
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with open_timed(tmp_path / "copy", clock) as store:
        assert inside(store).marks.note(STREAM, "w", 9, {0: end}) is MarkStatus.INVALID_TIME
        assert inside(store).marks.note(STREAM, "w", 10, {0: 0}) is MarkStatus.INVALID_POSITION


def test_marks_of_transactions_and_of_event_writers_are_put_together(timed: Timed) -> None:
    """They are made in different ways, and count alike."""
    store, writer = timed.store, timed.store.writer(STREAM, "w")
    write(writer, b"event", key="a")
    transaction = store.transactional_writer(STREAM, "t").begin(lease=36000)
    transaction.write_event(b"event", key="b")
    note(writer, 20)
    transaction.commit(10)
    timed.run_pass(2)
    assert store.watermarks(STREAM) == [Watermark(10, 20, store.tail(STREAM))]


# Watermark computation


def test_a_segment_counts_unless_a_successor_does_and_at_its_highest_offset(timed: Timed) -> None:
    """Three writers before, in the middle of and behind a scale."""
    store = timed.store
    with store.writer(STREAM) as writer:
        for key in KEYS:
            write(writer, b"before", key=key)
        before = store.tail(STREAM).offsets
        store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
        for key in KEYS:
            write(writer, b"behind", key=key)
    tail = store.tail(STREAM).offsets
    inside(store).marks.note(STREAM, "one", 10, {0: before[0], 1: before[1]})
    inside(store).marks.note(STREAM, "two", 11, {0: 0, 1: tail[1]})
    inside(store).marks.note(STREAM, "three", 12, {2: tail[2], 3: 0, 1: 0})
    timed.run_pass(2)
    [mark] = store.watermarks(STREAM)
    assert mark == Watermark(10, 12, StreamCut.of(STREAM, {1: tail[1], 2: tail[2], 3: 0}))


def test_key_ranges_that_no_position_has_are_completed_to_a_cut(timed: Timed) -> None:
    """A writer's position is no cut: it may be in a successor for some keys only."""
    store = timed.store
    store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    with store.writer(STREAM) as writer:
        for key in KEYS:
            write(writer, b"event", key=key)
    tail = store.tail(STREAM).offsets
    inside(store).marks.note(STREAM, "w", 10, {2: tail[2]})
    timed.run_pass(2)
    [mark] = store.watermarks(STREAM)
    inside(store).cuts.check(mark.cut)
    assert mark.cut.offsets == {1: 0, 2: tail[2], 3: 0}
