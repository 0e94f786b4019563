"""Watermarks at work, through a store whose clock and passes are the test's own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cpo import open_cpo
from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    DataTruncated,
    DiskFull,
    NoSuchStream,
    StoreClosed,
    StreamSealed,
    TransactionEnded,
    WriterFenced,
    WrongCut,
)
from penstock.log import PlogSizes
from penstock.model import TIME_MAX, StreamConfig, StreamCut, TimeWindow, Watermark
from penstock.plog import FilePlogs
from penstock.stream.segment import watermark_log
from penstock.stream.segment._segment import Segment
from penstock.stream.time import _watermarks
from penstock.stream.time._marks import MarkStatus
from penstock.stream.time._watermark_log import WATERMARK_LOG_SIZES
from penstock.stream.write._flush import Flusher
from penstock.testing import ManualClock, MemoryDisk
from tests.log.harness import GatedPlogs
from tests.stream.harness import inside
from tests.stream.time.watermark_harness import (
    CONFIG,
    MAINTENANCE_INTERVAL_S,
    OTHER,
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
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.stream import Engine
    from penstock.stream.segment._segment import PendingBlock

HALVES = [(0.0, 0.5), (0.5, 1.0)]
BAD_TIMES: list[Any] = [-1, TIME_MAX + 1, 10**30, True, 1.5, float("nan"), "5", None]


@pytest.fixture(params=["embedded", "remote"])
def timed(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Timed]:
    with open_timed("memory:", clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        if request.param == "embedded":
            yield Timed(store, clock)
        else:
            with over_the_wire(store, clock) as outside:
                yield Timed(outside, clock)


@pytest.fixture
def store(timed: Timed) -> Engine:
    return timed.store


def key_in(segment_low: float) -> str:
    """Return a key of the lower half of the key space, or of the upper one."""
    return "b" if segment_low else "a"


def at_tail(store: Engine, time: int, upper: int | None = None) -> Watermark:
    return Watermark(time, time if upper is None else upper, store.tail(STREAM))


# What becomes of a mark


def test_a_mark_is_taken_or_its_status_says_why_not(timed: Timed) -> None:
    """One status for each thing that may be wrong, and none of them an exception."""
    marks, writer = inside(timed.store).marks, timed.store.writer(STREAM)
    write(writer, b"one", b"two")
    first, end = 64, timed.store.tail(STREAM).offsets[0]
    assert marks.note(STREAM, "w", 10, {0: end}) is MarkStatus.SUCCESS
    assert marks.note(STREAM, "w", 10, {0: end}) is MarkStatus.SUCCESS
    assert marks.note(STREAM, "w", 9, {0: end}) is MarkStatus.INVALID_TIME
    assert marks.note(STREAM, "w", 11, {0: 0}) is MarkStatus.INVALID_POSITION
    assert marks.note(STREAM, "w", 11, {0: end}) is MarkStatus.SUCCESS
    assert marks.note(STREAM, "v", 3, {0: first + 8}) is MarkStatus.INVALID_POSITION, "inside an event"
    assert marks.note(STREAM, "v", 3, {0: end + 1}) is MarkStatus.INVALID_POSITION, "beyond the end"
    assert marks.note(STREAM, "v", 3, {1: 0}) is MarkStatus.INVALID_POSITION, "no such segment"
    assert marks.note(STREAM, "v", 3, {}) is MarkStatus.SUCCESS


def test_where_a_position_names_nothing_the_writer_stays_where_it_was(timed: Timed) -> None:
    """It may write to some segments now and to others then: all of it lies before the watermark."""
    store = timed.store
    store.scale_stream(STREAM, [0], HALVES)
    with store.writer(STREAM) as writer:
        for key in "abcdefgh":
            write(writer, b"event", key=key)
    tail = store.tail(STREAM).offsets
    assert all(tail.values())
    assert inside(store).marks.note(STREAM, "w", 10, {1: tail[1]}) is MarkStatus.SUCCESS
    assert inside(store).marks.note(STREAM, "w", 11, {2: tail[2]}) is MarkStatus.SUCCESS
    assert inside(store).marks.note(STREAM, "w", 12, {1: 0}) is MarkStatus.INVALID_POSITION
    timed.run_pass(2)
    assert store.watermarks(STREAM) == [at_tail(store, 11)]


def test_a_position_in_what_was_truncated_away_is_no_mistake(timed: Timed) -> None:
    """The writer was slow, and the stream has gone on."""
    store = timed.store
    with store.writer(STREAM) as writer:
        write(writer, b"one")
    store.scale_stream(STREAM, [0], HALVES)
    store.truncate_stream(STREAM, store.tail(STREAM))
    assert inside(store).marks.note(STREAM, "w", 10, {0: 7}) is MarkStatus.SUCCESS
    timed.run_pass(2)
    assert store.watermarks(STREAM) == [Watermark(10, 10, store.head(STREAM))]


def test_a_mark_that_no_writer_could_give_is_an_error(store: Engine) -> None:
    """Not one of a status, because no writer would send it."""
    for time in BAD_TIMES:
        with pytest.raises(BadArgument, match="time"):
            inside(store).marks.note(STREAM, "w", time, {0: 0})
    with pytest.raises(BadArgument):
        inside(store).marks.note(STREAM, "no/name", 1, {0: 0})
    with pytest.raises(BadArgument):
        inside(store).marks.note(STREAM, "w", 1, {0: -1})
    with pytest.raises(NoSuchStream):
        inside(store).marks.note("plant/none", "w", 1, {0: 0})


def test_who_never_gave_time_is_unknown(store: Engine) -> None:
    """There is nothing to shut down, and nothing to remove."""
    uid = inside(store).catalog.stream(STREAM).uid
    assert inside(store).marks.shut_down(STREAM, uid, "w") is MarkStatus.UNKNOWN_WRITER
    assert inside(store).marks.remove(STREAM, "w") is MarkStatus.UNKNOWN_WRITER
    assert inside(store).marks.note(STREAM, "w", 1, {0: 0}) is MarkStatus.SUCCESS
    assert inside(store).marks.shut_down(STREAM, uid, "w") is MarkStatus.SUCCESS
    assert inside(store).marks.remove(STREAM, "w") is MarkStatus.SUCCESS
    assert inside(store).marks.remove(STREAM, "w") is MarkStatus.UNKNOWN_WRITER
    with pytest.raises(NoSuchStream):
        inside(store).marks.remove("plant/none", "w")


def test_a_mark_after_a_shut_down_revives_the_writer(timed: Timed) -> None:
    """It is waited for again."""
    writer = timed.begin(10)
    uid = inside(timed.store).catalog.stream(STREAM).uid
    inside(timed.store).marks.note(STREAM, "v", 20, {0: 0})
    inside(timed.store).marks.shut_down(STREAM, uid, "v")
    assert inside(timed.store).marks.note(STREAM, "v", 15, {0: 0}) is MarkStatus.INVALID_TIME, "it is still known"
    inside(timed.store).marks.note(STREAM, "v", 21, {0: 0})
    note(writer, 30)
    timed.run_pass()
    note(writer, 40)
    timed.run_pass(3)
    assert timed.lowers() == [10, 21]


def test_a_writer_that_is_removed_never_gave_time(timed: Timed) -> None:
    """What it noted does not count, and no watermark waits for it; a lower time of the same id is its first."""
    writer = timed.begin(10)
    inside(timed.store).marks.note(STREAM, "v", 11, {0: 0})
    inside(timed.store).marks.remove(STREAM, "v")
    note(writer, 30)
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 30)
    assert inside(timed.store).marks.note(STREAM, "v", 5, {0: 0}) is MarkStatus.SUCCESS


# What writers may say


@pytest.mark.parametrize("time", BAD_TIMES)
def test_what_is_no_time_is_refused_and_changes_nothing(timed: Timed, time: object) -> None:
    """A time in other units, a year 300,000, would hold for ever: time does not go back."""
    with timed.store.writer(STREAM, "w") as writer:
        with pytest.raises(BadArgument, match="time"):
            writer.note_time(time)  # type: ignore[arg-type]
        note(writer, 5)
        timed.run_pass(2)
    assert timed.lowers() == [5]


def test_the_first_and_the_last_time_there_is_are_times(timed: Timed) -> None:
    """Both ends of the range are taken."""
    writer = timed.begin(0)
    note(writer, TIME_MAX)
    timed.run_pass()
    assert timed.lowers() == [0, TIME_MAX]


def test_time_needs_a_writer_id(store: Engine) -> None:
    """It is kept under it, over restarts."""
    with store.writer(STREAM) as writer, pytest.raises(BadArgument, match="id"):
        writer.note_time(5)
    with pytest.raises(BadArgument, match="writer_id"):
        store.writer(STREAM, automatically_note_time=True)


def test_a_writer_that_is_closed_gives_no_time(timed: Timed) -> None:
    """As it writes nothing."""
    writer = timed.store.writer(STREAM, "w")
    writer.close()
    with pytest.raises(StoreClosed):
        writer.note_time(5)
    timed.run_pass(2)
    assert timed.lowers() == []


def test_of_two_writers_under_one_id_the_older_gives_no_time(timed: Timed) -> None:
    """The newer one goes on with what the older had promised."""
    older = timed.begin(10)
    newer = timed.store.writer(STREAM, "w")
    with pytest.raises(WriterFenced):
        older.note_time(99)
    note(newer, 9)
    timed.run_pass()
    assert timed.lowers() == [10], "time does not go back under an id"
    note(newer, 20)
    with pytest.raises(WriterFenced):
        older.close()
    timed.run_pass()
    note(newer, 30)
    timed.run_pass()
    assert timed.lowers() == [10, 20, 30], "closing the older one did not shut down the newer"


def test_a_time_before_the_last_one_is_not_taken_and_nothing_is_said(timed: Timed) -> None:
    """Readers rely on time going on; a source with a few late times is no reason to stop writing."""
    writer = timed.begin(10)
    note(writer, 7)
    write(writer, b"event")
    timed.run_pass(2)
    assert timed.lowers() == [10]
    writer.note_time(20)
    note(writer, 15)
    timed.run_pass(2)
    assert timed.lowers() == [10, 20]


def test_what_was_written_before_a_time_was_noted_is_durable_first(timed: Timed) -> None:
    """The mark lies behind it, though no acknowledgement was asked for."""
    writer = timed.begin(10)
    for number in range(100):
        writer.write_event(b"event", key=str(number))
    note(writer, 20)
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 20)
    assert timed.store.tail(STREAM).offsets[0] > 100 * len(b"event")


def test_a_sealed_stream_takes_no_more_time_but_shows_what_was_noted(timed: Timed) -> None:
    """What was promised before the end still becomes a watermark."""
    writer = timed.begin(10)
    write(writer, b"event")
    note(writer, 20)
    timed.store.seal_stream(STREAM)
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 20)
    writer.note_time(30)
    writer.write_event(b"late")
    with pytest.raises(StreamSealed):
        writer.flush()
    with pytest.raises(StreamSealed):
        writer.note_time(30)
    timed.run_pass(20)
    assert timed.lowers() == [10, 20]


# Who is waited for


def test_a_new_stream_waits_a_pass_for_writers_to_come_online(timed: Timed) -> None:
    """The intentional delay: the first to come must not set the time for all others."""
    early, late = timed.store.writer(STREAM, "early"), timed.store.writer(STREAM, "late")
    note(early, 100)
    timed.store.maintain()
    assert timed.lowers() == []
    note(late, 50)
    timed.run_pass()
    assert timed.store.watermarks(STREAM) == [at_tail(timed.store, 50, 100)]


def test_a_mark_is_seen_within_two_passes(timed: Timed) -> None:
    """However new the stream; later it takes one."""
    writer = timed.store.writer(STREAM, "w")
    note(writer, 10)
    timed.run_pass(2)
    assert timed.lowers() == [10]
    for time in range(20, 60, 10):
        note(writer, time)
        timed.run_pass()
        assert timed.lowers()[-1] == time


def test_a_pass_without_anything_new_writes_nothing(timed: Timed) -> None:
    """Watermarks are written when time advances, and only then."""
    writer = timed.begin(10)
    timed.run_pass(3)
    write(writer, b"event")
    note(writer, 10)
    timed.run_pass(3)
    assert timed.lowers() == [10]


def test_time_is_that_of_the_slowest_and_its_cut_behind_the_furthest(timed: Timed) -> None:
    """Lower and upper are the lowest and the highest of what the writers noted last."""
    slow, fast = timed.begin(10), timed.store.writer(STREAM, "fast")
    note(slow, 20)
    write(fast, b"event")
    note(fast, 90)
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 20, 90)


def test_one_silent_writer_holds_time_until_its_time_out_is_over(timed: Timed) -> None:
    """Whether it is alive is unknown; different streams may be more or less patient."""
    writer, silent = timed.begin(10), timed.store.writer(STREAM, "silent")
    note(silent, 20)
    passes = int(TIMEOUT_S / MAINTENANCE_INTERVAL_S)
    for number in range(1, passes):
        note(writer, 100 + number)
        timed.run_pass()
        assert timed.lowers() == [10, 20]
    note(writer, 200)
    timed.run_pass()
    assert timed.lowers() == [10, 20, 200]


def test_a_writer_that_was_forgotten_comes_back_with_its_next_note(timed: Timed) -> None:
    """It is a new one then: even an earlier time is its first, and is waited for."""
    writer, silent = timed.begin(10), timed.store.writer(STREAM, "silent")
    note(silent, 20)
    note(writer, 100)
    timed.run_pass(1 + int(TIMEOUT_S / MAINTENANCE_INTERVAL_S))
    assert timed.lowers() == [10, 20, 100]
    note(silent, 19)
    note(writer, 200)
    timed.run_pass()
    assert timed.lowers() == [10, 20, 100]
    note(silent, 150)
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 150, 200)


def test_when_all_writers_are_forgotten_time_stands_still(timed: Timed) -> None:
    """No writers, no watermark; the next one that comes goes on."""
    writer = timed.begin(10)
    timed.run_pass(30)
    assert not inside(timed.store).catalog.stream(STREAM).writers
    note(writer, 5)
    timed.run_pass(2)
    assert timed.lowers() == [10], "never back, whichever writer comes"
    note(writer, 11)
    timed.run_pass()
    assert timed.lowers() == [10, 11]


def test_the_time_out_is_a_minute_unless_the_stream_says_otherwise(timed: Timed) -> None:
    """It may be changed while writers are at work."""
    assert StreamConfig().timestamp_aggregation_timeout == 60.0
    writer, silent = timed.begin(10), timed.store.writer(STREAM, "silent")
    note(silent, 20)
    note(writer, 100)
    timed.run_pass()
    assert timed.lowers() == [10, 20]
    timed.store.update_stream(STREAM, StreamConfig())
    timed.run_pass()
    assert timed.lowers() == [10, 20, 100]


def test_closing_a_writer_lets_time_go_on(timed: Timed) -> None:
    """What it noted last counts, and the watermark no longer waits for it."""
    writer, other = timed.begin(10), timed.store.writer(STREAM, "other")
    note(other, 20)
    note(writer, 30)
    other.close()
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 30)
    write(writer, b"event")
    writer.note_time(40)
    writer.close()
    timed.run_pass(5)
    assert timed.store.watermarks(STREAM)[-1] == at_tail(timed.store, 40), "what was noted just before closing counts"


def test_many_writers_that_come_and_go_do_not_delay_time(timed: Timed) -> None:
    """A pass for each of them, and a job that opens a writer a second would fall further and further behind."""
    writer = timed.begin(10)
    for number in range(50):
        with timed.store.writer(STREAM, f"job{number}") as job:
            job.note_time(11 + number)
    note(writer, 1000)
    timed.run_pass()
    assert timed.lowers() == [10, 1000]
    timed.run_pass()
    assert list(inside(timed.store).catalog.stream(STREAM).writers) == ["w"]


def test_what_the_last_writer_noted_counts_when_all_are_closed(timed: Timed) -> None:
    """Those before it are not going to write what is earlier."""
    timed.begin(10).close()
    for number, time in enumerate((20, 40, 30)):
        with timed.store.writer(STREAM, f"job{number}") as job:
            job.note_time(time)
    timed.run_pass(3)
    assert timed.lowers() == [10, 40]
    assert not inside(timed.store).catalog.stream(STREAM).writers


# Time by itself


def test_a_writer_may_note_the_time_by_itself(timed: Timed, clock: ManualClock) -> None:
    """With every pass, as the store's clock says, behind what it has written."""
    with timed.store.writer(STREAM, "w", automatically_note_time=True) as writer:
        writer.write_event(b"event")
        timed.run_pass()
        writer.flush()
        noted = int(clock.now() * 1000)
        timed.run_pass(2)
        first = timed.store.watermarks(STREAM)[0]
        assert first == at_tail(timed.store, first.lower)
        assert first.lower >= noted, "what the next pass noted may be marked already"
        writer.flush()
        timed.run_pass()
        assert timed.lowers()[-1] > noted


def test_a_writer_that_notes_the_time_by_itself_is_not_told(timed: Timed) -> None:
    """A time of the caller's own among those of the clock is a mistake."""
    with (
        timed.store.writer(STREAM, "w", automatically_note_time=True) as writer,
        pytest.raises(BadArgument, match="by itself"),
    ):
        writer.note_time(5)
    with pytest.raises(BadArgument, match="automatically_note_time"):
        timed.store.writer(STREAM, "w", automatically_note_time=1)  # type: ignore[arg-type]


def test_a_writer_that_is_closed_or_fenced_notes_no_time_by_itself(timed: Timed) -> None:
    """And the pass goes on with the others."""
    closed = timed.store.writer(STREAM, "closed", automatically_note_time=True)
    timed.run_pass()
    closed.close()
    fenced = timed.store.writer(STREAM, "fenced", automatically_note_time=True)
    timed.store.writer(STREAM, "fenced")
    timed.run_pass(3)
    with pytest.raises(WriterFenced):
        fenced.flush()
    assert timed.store.writers.noting_time() == []
    assert not inside(timed.store).catalog.stream(STREAM).writers


# Transactions


def test_a_commit_may_note_a_time_behind_its_events(timed: Timed) -> None:
    """With the events, not before them: no reader sees the time without the events."""
    store = timed.store
    store.scale_stream(STREAM, [0], HALVES)
    with store.transactional_writer(STREAM, "t") as writer:
        transaction = writer.begin(lease=3600)
        for key in "abcdefgh":
            transaction.write_event(b"event", key=key)
        transaction.commit(10)
        timed.run_pass(2)
        assert store.watermarks(STREAM) == [at_tail(store, 10)]
        writer.begin(lease=3600).commit(20)
        timed.run_pass()
        assert store.watermarks(STREAM)[-1] == at_tail(store, 20), "there need not be any event"


def test_a_commit_without_a_time_neither_marks_nor_waits(timed: Timed) -> None:
    """Or the first transaction without one would hold up time for ever."""
    writer = timed.begin(10)
    transactional = timed.store.transactional_writer(STREAM, "t")
    with transactional.begin(lease=3600) as transaction:
        transaction.write_event(b"event")
    note(writer, 20)
    timed.run_pass()
    assert timed.lowers() == [10, 20]
    assert list(inside(timed.store).catalog.stream(STREAM).writers) == ["w"]


def test_a_commit_with_an_earlier_time_is_a_commit(timed: Timed) -> None:
    """The events count, the time does not."""
    store = timed.store
    writer = store.transactional_writer(STREAM, "t")
    for time in (10, 5):
        transaction = writer.begin(lease=36000)
        transaction.write_event(b"event")
        transaction.commit(time)
        assert transaction.status == "committed"
        timed.run_pass(2)
    assert timed.lowers() == [10]
    assert sum(map(len, store.read(STREAM))) == 2


@pytest.mark.parametrize("time", [time for time in BAD_TIMES if time is not None])
def test_a_commit_with_what_is_no_time_leaves_the_transaction_open(timed: Timed, time: Any) -> None:  # noqa: ANN401
    """So it can be committed with another."""
    transaction = timed.store.transactional_writer(STREAM, "t").begin(lease=36000)
    transaction.write_event(b"event")
    with pytest.raises(BadArgument, match="timestamp"):
        transaction.commit(time)
    assert transaction.status == "open"
    transaction.commit(7)
    timed.run_pass(2)
    assert timed.lowers() == [7]


def test_a_commit_with_a_time_needs_a_writer_id(store: Engine) -> None:
    """As any time does; the transaction is still open then."""
    transaction = store.transactional_writer(STREAM).begin()
    with pytest.raises(BadArgument, match="id"):
        transaction.commit(5)
    transaction.commit()
    assert transaction.status == "committed"


def test_a_large_transaction_that_began_before_a_split_is_before_its_time(timed: Timed) -> None:
    """Its logs go where no segment is any more, and its mark lies behind all of them."""
    store = timed.store
    writer = store.transactional_writer(STREAM, "t")
    transaction = writer.begin(lease=36000)
    for key in "abcdefgh":
        transaction.write_event(bytes(100_000), key=key)
    store.scale_stream(STREAM, [0], HALVES)
    transaction.commit(10)
    timed.run_pass(2)
    [mark] = store.watermarks(STREAM)
    assert mark == at_tail(store, 10)
    assert sum(map(len, store.read(STREAM, end=mark.cut))) == 8


def test_closing_a_writer_of_transactions_lets_time_go_on(timed: Timed) -> None:
    """As closing any other does."""
    writer = timed.begin(10)
    with timed.store.transactional_writer(STREAM, "t") as transactional:
        transactional.begin(lease=36000).commit(15)
        note(writer, 20)
        timed.run_pass()
        note(writer, 30)
        timed.run_pass()
        assert timed.lowers() == [10, 15]
    timed.run_pass()
    assert timed.lowers() == [10, 15, 30]


def test_an_aborted_transaction_notes_nothing(timed: Timed) -> None:
    """There is nothing that its time could be of."""
    transaction = timed.store.transactional_writer(STREAM, "t").begin(lease=1)
    timed.run_pass()
    with pytest.raises(TransactionEnded):
        transaction.commit(5)
    timed.run_pass(2)
    assert timed.lowers() == []


# Time never overtakes data


def test_a_large_event_that_went_to_a_successor_is_before_the_time_noted_after_it(timed: Timed) -> None:
    """It goes where its key is now, though the writer has not noticed yet that the stream was split."""
    store, writer = timed.store, timed.begin(10)
    write(writer, b"event")
    store.scale_stream(STREAM, [0], HALVES)
    with writer.begin_write_event("key") as output:
        output.write(bytes(3 << 20))
    note(writer, 20)
    timed.run_pass()
    cut = store.watermarks(STREAM)[-1].cut
    assert output.pointer.segment_id in cut.offsets
    assert output.pointer.offset < cut.offsets[output.pointer.segment_id]


def test_an_event_that_is_not_shown_yet_is_before_the_time_noted_after_it(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is half there, so nothing behind it is shown, and time waits until it is."""
    store = timed.store
    store.scale_stream(STREAM, [0], HALVES)
    writer = timed.begin(10)
    blocks = iter([True, False])
    submit = Segment.submit_held

    def refused(self: Segment, *data: Any) -> PendingBlock:  # noqa: ANN401
        if not next(blocks, True):
            raise DiskFull("memory:")
        return submit(self, *data)

    transaction = store.transactional_writer(STREAM).begin(lease=36000)
    for key in "abcdefgh":
        transaction.write_event(b"event", key=key)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "submit_held", refused)
        with pytest.raises(CommitUnfinished):
            transaction.commit()
    shown = store.tail(STREAM)
    pointers = [writer.write_event(b"event", key=key).result() for key in "abcdefgh"]
    assert store.tail(STREAM) == shown, "else this proves nothing"
    note(writer, 20)
    inside(store).time.run(inside(store).catalog.stream(STREAM))
    assert timed.lowers() == [10], "a cut that no reader can read up to is no use"
    timed.run_pass()
    [_, mark] = store.watermarks(STREAM)
    inside(store).cuts.check(mark.cut)
    for pointer in pointers:
        assert pointer is not None
        assert pointer.offset < mark.cut.offsets[pointer.segment_id]


def test_a_time_noted_while_a_segment_ends_is_marked_with_what_moves_on(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other call would fetch it: there is nothing left to send."""
    store, writer = timed.store, timed.begin(10)
    with writer._flusher.flush_lock:  # so that the event still waits when its segment ends
        writer.write_event(b"event", key="key")
        store.scale_stream(STREAM, [0], HALVES)
        _note_within_the_next_flush(20, monkeypatch)
    writer.flush()
    timed.run_pass()
    assert timed.store.watermarks(STREAM)[-1] == at_tail(store, 20)


def _note_within_the_next_flush(time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Flusher._send
    notes = iter([time])

    def send(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        rest = sent(self, *args, **options)
        for noted in notes:
            self.note_time(noted)
        return rest

    monkeypatch.setattr(Flusher, "_send", send)


def test_an_event_of_a_segment_that_is_gone_keeps_to_the_times_before_it(timed: Timed) -> None:
    """A reader may hold some when the stream is truncated: later times are not theirs."""
    store, writer = timed.store, timed.store.writer(STREAM, "w")
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        writer.write_batch([bytes(100)] * 10).result()
        first = reader.read_batch(max_bytes=150, timeout=0.0)
        assert first is not None
        assert first["mark_time"].to_pylist() == [None]
        store.scale_stream(STREAM, [0], HALVES)
        write(writer, b"event")
        note(writer, 20)
        timed.run_pass(2)
        assert timed.lowers() == [20]
        store.truncate_stream(STREAM, store.tail(STREAM))
        batch = reader.read_batch(max_bytes=150, timeout=0.0)
        assert batch is not None
        assert batch["mark_time"].to_pylist() == [None]


def test_a_watermark_that_could_not_be_written_is_written_by_the_next_pass(clock: ManualClock) -> None:
    """Whether it is there or not, time goes on, without opening the store again."""
    gated = GatedPlogs(FilePlogs(MemoryDisk(), journal_size=1 << 16, direct_size_min=4096))
    with gated, open_cpo("memory:") as cpo, timed_store(gated, cpo, "main", clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        timed = Timed(store, clock)
        writer = timed.begin(10)
        for after in (False, True):
            note(writer, timed.lowers()[-1] + 10)
            inside(store).marks.record_all()
            gated.fail("result", DiskFull("memory:"), after=after)
            timed.run_pass()
            gated.heal()
            note(writer, timed.lowers()[-1] + 25)
            timed.run_pass()
        assert timed.lowers()[-1] >= 60
        assert timed.lowers() == sorted(set(timed.lowers()))


# Restarts


def test_after_a_restart_time_goes_on_from_the_last_watermark(folder: Path, clock: ManualClock) -> None:
    """It is read back; there is no second delay, and no way back."""
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        writer = Timed(store, clock).begin(10)
        write(writer, b"event")
        marks = store.watermarks(STREAM)
        writer.close()
    with open_timed(folder, clock) as store:
        timed = Timed(store, clock)
        assert store.watermarks(STREAM) == marks
        with store.writer(STREAM, "another") as writer:
            note(writer, 9)
            timed.run_pass(3)
            assert store.watermarks(STREAM) == marks
            note(writer, 11)
            timed.run_pass()
            assert store.watermarks(STREAM) == [*marks, at_tail(store, 11)]


def test_after_a_restart_time_waits_for_the_writers_that_were_open(folder: Path, clock: ManualClock) -> None:
    """A store that is closed for an update must not let time jump to its fastest writer."""
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        timed = Timed(store, clock)
        slow, fast = timed.begin(10), store.writer(STREAM, "fast")
        note(fast, 100)
        assert slow._open.is_sound
    with open_timed(folder, clock) as store:
        timed = Timed(store, clock)
        timed.run_pass(3)
        assert [mark.lower for mark in store.watermarks(STREAM)] == [10]
        with store.writer(STREAM, "fast") as writer:
            note(writer, 101)
            timed.run_pass(3)
            assert [mark.lower for mark in store.watermarks(STREAM)] == [10]


def test_the_upper_bound_never_goes_back(folder: Path, clock: ManualClock) -> None:
    """A cut is found by it, by halving; and what a writer noted was noted, also when the writer is gone."""
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        timed = Timed(store, clock)
        writer, fast = timed.begin(10), store.writer(STREAM, "fast")
        note(fast, 1_000)
        note(writer, 20)
        timed.run_pass()
        inside(store).marks.remove(STREAM, "fast")
        note(writer, 30)
        timed.run_pass()
        assert [(mark.lower, mark.upper) for mark in store.watermarks(STREAM)] == [(10, 10), (20, 1_000), (30, 1_000)]


def test_what_was_noted_just_before_a_store_is_closed_is_on_record(folder: Path, clock: ManualClock) -> None:
    """No pass came in between."""
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        writer = Timed(store, clock).begin(10)
        writer.write_event(b"event")
        writer.note_time(20)
    with open_timed(folder, clock) as store:
        Timed(store, clock).run_pass(2)
        assert store.watermarks(STREAM)[-1] == at_tail(store, 20)


def test_a_writer_that_had_given_time_before_a_kill_is_waited_for(folder: Path, clock: ManualClock) -> None:
    """Its first mark is on record at once, so that no crash lets time go on without it."""
    copy = folder.with_name("copy")
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        writer, new = Timed(store, clock).begin(10), store.writer(STREAM, "new")
        note(new, 20)
        shutil.copytree(folder, copy)
        del writer
    with open_timed(copy, clock) as store:
        timed = Timed(store, clock)
        writer = store.writer(STREAM, "w")
        note(writer, 100)
        timed.run_pass()
        note(writer, 200)
        timed.run_pass(int(TIMEOUT_S / MAINTENANCE_INTERVAL_S) - 2)
        assert timed.lowers() == [10, 20], "silence while the store was not there does not count"
        timed.run_pass()
        assert timed.lowers() == [10, 20, 200]


def test_what_counted_before_a_kill_is_on_record(folder: Path, clock: ManualClock) -> None:
    """A writer that comes back after it cannot go back behind the watermark it made."""
    copy = folder.with_name("copy")
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        timed = Timed(store, clock)
        writer = timed.begin(10)
        note(writer, 20)
        timed.run_pass()
        note(writer, 30)
        shutil.copytree(folder, copy)
    with open_timed(copy, clock) as store:
        timed = Timed(store, clock)
        assert timed.lowers() == [10, 20]
        writer = store.writer(STREAM, "w")
        note(writer, 19)
        assert inside(store).marks.note(STREAM, "w", 19, {}) is MarkStatus.INVALID_TIME
        note(writer, 25)
        timed.run_pass()
        assert timed.lowers() == [10, 20, 25]


def test_writers_on_record_survive_many_passes_and_snapshots(folder: Path, clock: ManualClock) -> None:
    """The catalog's log is cut off before each snapshot."""
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        timed = Timed(store, clock)
        writer, slow = timed.begin(10), store.writer(STREAM, "slow")
        note(slow, 5)
        for number in range(300):
            note(writer, 20 + number)
            note(slow, 5)
            timed.run_pass()
        shutil.copytree(folder, folder.with_name("copy"))
    with open_timed(folder.with_name("copy"), clock) as store:
        found = inside(store).catalog.stream(STREAM).writers
        assert {name: mark.time for name, mark in found.items()} == {"w": 319, "slow": 5}
        assert Timed(store, clock).lowers() == [10]


def test_a_store_that_was_taken_over_writes_no_watermark(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Exactly one owner computes; the former one finds that it is fenced, and says so."""
    plogs = FilePlogs(MemoryDisk(), journal_size=1 << 16, direct_size_min=4096)
    with plogs, open_cpo("memory:") as cpo, timed_store(plogs, cpo, "main", clock) as former:
        former.create_stream(STREAM, config=CONFIG)
        old = Timed(former, clock)
        writer = old.begin(10)
        note(writer, 20)
        with timed_store(plogs, cpo, "main", clock) as present:
            new = Timed(present, clock)
            with present.writer(STREAM, "w") as taken_over:
                note(taken_over, 30)
                new.run_pass()
                assert new.lowers() == [10, 30]
                old.run_pass()
                assert "maintenance was put off, watermarks of stream" in caplog.text
                note(taken_over, 40)
                new.run_pass()
                assert new.lowers() == [10, 30, 40]


# Streams that change


def test_marks_go_with_the_stream(timed: Timed) -> None:
    """Its log is deleted, its writers are forgotten; one of the same name begins without."""
    store, writer = timed.store, timed.begin(10)
    note(writer, 20)
    store.seal_stream(STREAM)
    assert any(inside(store)._logs.has(watermark_log(state.uid)) for state in inside(store).catalog.streams.values())
    old = inside(store).catalog.stream(STREAM)
    store.delete_stream(STREAM)
    assert not inside(store)._logs.has(watermark_log(old.uid))
    with pytest.raises(NoSuchStream):
        store.watermarks(STREAM)
    store.create_stream(STREAM, config=CONFIG)
    timed.run_pass(3)
    assert store.watermarks(STREAM) == []
    assert store.cut_at_time(STREAM, 100) == store.head(STREAM)
    with store.writer(STREAM, "w") as another:
        note(another, 5)
        timed.run_pass(2)
        assert timed.lowers() == [5], "the time of the old one does not hold"


def test_a_writer_of_a_deleted_stream_gives_no_time_to_another_of_its_name(timed: Timed) -> None:
    """It was of the other one."""
    store, writer = timed.store, timed.begin(10)
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    store.create_stream(STREAM, config=CONFIG)
    writer.note_time(20)
    with pytest.raises(NoSuchStream):
        writer.flush()
    timed.run_pass(3)
    assert store.watermarks(STREAM) == []
    assert not inside(store).catalog.stream(STREAM).writers


def test_a_mark_log_that_a_crash_left_behind_is_deleted(folder: Path, clock: ManualClock) -> None:
    """The stream was deleted, its log not yet."""
    with open_timed(folder, clock) as store:
        store.create_stream(STREAM, config=CONFIG)
        Timed(store, clock).begin(10)
        store.seal_stream(STREAM)
        state = inside(store).catalog.stream(STREAM)
        store.delete_stream(STREAM)
        inside(store)._logs.open(watermark_log(state.uid), WATERMARK_LOG_SIZES).append(b"left")
        assert inside(store)._logs.has(watermark_log(state.uid))
    with open_timed(folder, clock) as store:
        assert not inside(store)._logs.has(watermark_log(state.uid))


def test_watermarks_are_truncated_with_the_stream(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the last before the head, which is the time there, as far as they fill plogs."""
    monkeypatch.setattr(_watermarks, "WATERMARK_LOG_SIZES", PlogSizes(first=64, largest=64))
    store, writer = timed.store, timed.begin(1)
    for time in range(2, 60):
        write(writer, b"event")
        note(writer, time)
        timed.run_pass()
    assert timed.lowers() == list(range(1, 60))
    cut = store.cut_at_time(STREAM, 40)
    store.truncate_stream(STREAM, cut)
    left = timed.lowers()
    assert 30 < left[0] <= 40
    assert left[-1] == 59
    assert store.cut_at_time(STREAM, 40) == store.cut_at_time(STREAM, 3) == cut
    group = store.create_reader_group("group", [STREAM])
    assert group.current_time_window() == TimeWindow(40, 41)
    rows = [time for batch in store.read(STREAM) for time in batch["mark_time"].cast("timestamp[ms]").cast("int64")]
    assert [time.as_py() for time in rows] == list(range(40, 59))


def test_reading_goes_on_after_watermarks_were_truncated_just_behind_the_reader(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet stream whose writers note times, and retention that takes what was read."""
    monkeypatch.setattr(_watermarks, "WATERMARK_LOG_SIZES", PlogSizes(first=64, largest=64))
    store, writer = timed.store, timed.store.writer(STREAM, "w")
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        write(writer, b"event")
        note(writer, 1)
        timed.run_pass(2)
        assert reader.read_batch(timeout=30.0) is not None
        for time in range(2, 60):
            note(writer, time)
            timed.run_pass()
        store.truncate_stream(STREAM, store.tail(STREAM))
        assert timed.lowers()[0] > 30
        write(writer, b"event")
        batch = reader.read_batch(timeout=30.0)
        assert batch is not None
        assert batch["mark_time"].cast("timestamp[ms]").cast("int64").to_pylist() == [59]


def test_watermarks_go_on_over_splits_and_merges(timed: Timed) -> None:
    """The writer need not know: where it has nothing to say the others' segments are completed."""
    store, writer = timed.store, timed.begin(10)
    write(writer, b"event")
    store.scale_stream(STREAM, [0], HALVES)
    note(writer, 20)
    timed.run_pass()
    write(writer, b"event")
    note(writer, 30)
    timed.run_pass()
    store.scale_stream(STREAM, [1, 2], [(0.0, 1.0)])
    write(writer, b"event")
    note(writer, 40)
    timed.run_pass()
    marks = store.watermarks(STREAM)
    assert [mark.lower for mark in marks] == [10, 20, 30, 40]
    assert [sum(map(len, store.read(STREAM, end=mark.cut))) for mark in marks] == [0, 1, 2, 3]
    assert marks[-1].cut == store.tail(STREAM)


def test_writers_that_write_to_different_segments_make_one_cut(timed: Timed) -> None:
    """One has noticed the split and the other has not."""
    store = timed.store
    slow, fast = timed.begin(10), store.writer(STREAM, "fast")
    write(slow, b"event")
    write(fast, b"event")
    note(slow, 20)
    store.scale_stream(STREAM, [0], HALVES)
    write(fast, b"event", key="a")
    note(fast, 21)
    timed.run_pass()
    mark = store.watermarks(STREAM)[-1]
    inside(store).cuts.check(mark.cut)
    assert mark == at_tail(store, 20, 21)


# What readers ask


def test_a_group_is_between_the_times_of_the_watermarks_around_it(timed: Timed) -> None:
    """No lower bound at the head, no upper one at the tail, no window at all without time."""
    store, writer = timed.store, timed.store.writer(STREAM, "w")
    group = store.create_reader_group("group", [STREAM])
    with group.reader("reader") as reader:
        assert reader.current_time_window() is None
        write(writer, b"one")
        note(writer, 10)
        timed.run_pass(2)
        for time in (20, 30):
            write(writer, b"event")
            note(writer, time)
            timed.run_pass()
        found = [(reader.current_time_window(), group.current_time_window())]
        for _ in range(3):
            reader.read_next_event(0.0)
            found.append((reader.current_time_window(), group.current_time_window()))
    windows = [TimeWindow(None, 10), TimeWindow(10, 20), TimeWindow(20, 30), TimeWindow(30, None)]
    assert found == [(window, window) for window in windows]
    assert group.current_time_window() == windows[-1], "readers or not"


def test_a_group_in_the_middle_of_a_watermark_has_neither_passed_it_nor_is_it_ahead(timed: Timed) -> None:
    """One reader is beyond it, the other is not there yet: the group waits for both."""
    store = timed.store
    store.scale_stream(STREAM, [0], HALVES)
    writer = timed.begin(10)
    halves: dict[int, str] = {}
    for key in "abcdefgh":
        pointer = writer.write_event(b"event", key=key).result()
        assert pointer is not None
        halves.setdefault(pointer.segment_id, key)
    middle_cut = store.tail(STREAM)
    note(writer, 20)
    timed.run_pass()
    for key in halves.values():
        write(writer, b"event", key=key)
    note(writer, 30)
    timed.run_pass()
    middle, tail = middle_cut.offsets, store.tail(STREAM).offsets
    beyond = store.create_reader_group("beyond", [STREAM], start=StreamCut.of(STREAM, {1: tail[1], 2: 0}))
    assert beyond.current_time_window() == TimeWindow(10, 30), "the watermark of 20 says nothing here"
    just_there = store.create_reader_group("there", [STREAM], start=StreamCut.of(STREAM, {1: middle[1], 2: 0}))
    assert just_there.current_time_window() == TimeWindow(10, 20)


def test_a_group_of_several_streams_is_asked_for_one(timed: Timed) -> None:
    """Each stream has its own time."""
    store = timed.store
    store.create_stream(OTHER, config=CONFIG)
    group = store.create_reader_group("group", [STREAM, OTHER])
    timed.begin(10)
    assert group.current_time_window(STREAM) == TimeWindow(10, None)
    assert group.current_time_window(OTHER) is None
    with group.reader("reader") as reader:
        assert reader.current_time_window(STREAM) == TimeWindow(10, None)
        for wrong in (None, "plant/none", 5):
            with pytest.raises(BadArgument, match="invalid stream"):
                reader.current_time_window(wrong)  # type: ignore[arg-type]
            with pytest.raises(BadArgument, match="invalid stream"):
                group.current_time_window(wrong)  # type: ignore[arg-type]


def test_a_reader_that_lost_its_place_to_a_truncation_is_before_what_is_left(timed: Timed) -> None:
    """Until it has gone on from the head."""
    store, writer = timed.store, timed.begin(10)
    group = store.create_reader_group("group", [STREAM])
    with group.reader("reader") as reader:
        for time in (20, 30, 40):
            write(writer, b"event")
            note(writer, time)
            timed.run_pass()
        store.scale_stream(STREAM, [0], HALVES)
        store.truncate_stream(STREAM, store.tail(STREAM))
        write(writer, b"last")
        note(writer, 50)
        timed.run_pass()
        window = group.current_time_window()
        assert window is not None
        assert window.upper is not None
        assert window.lower is None or window.lower <= 40
        with pytest.raises(DataTruncated):
            reader.read_next_event(0.0)
        read = reader.read_next_event(0.0)
        assert read is not None
        assert read.event == b"last"
        assert reader.read_next_event(0.0) is None
        assert group.current_time_window() == TimeWindow(50, None)


def test_watermarks_are_listed_from_one_time_or_cut_up_to_another(timed: Timed) -> None:
    """The start belongs to them, the end does not."""
    store, writer = timed.store, timed.begin(10)
    for time in (20, 30, 40):
        write(writer, b"event")
        note(writer, time)
        timed.run_pass()
    marks = store.watermarks(STREAM)
    assert [mark.lower for mark in marks] == [10, 20, 30, 40]
    for start in range(5, 50, 5):
        for end in range(5, 50, 5):
            expected = [mark for mark in marks if start <= mark.lower < end]
            assert store.watermarks(STREAM, start, end) == expected
    assert store.watermarks(STREAM, end=0) == []
    assert store.watermarks(STREAM, start=0, end=TIME_MAX) == marks
    for first in range(4):
        for last in range(first, 4):
            cuts = marks[first].cut, marks[last].cut
            assert store.watermarks(STREAM, *cuts) == marks[first:last]
            assert store.watermarks(STREAM, marks[first].lower, marks[last].cut) == marks[first:last]
    assert store.watermarks(STREAM, store.head(STREAM), store.tail(STREAM)) == marks[:3]
    assert store.watermarks(STREAM, store.tail(STREAM)) == marks[3:]


def test_watermarks_are_not_listed_from_what_is_no_place(store: Engine) -> None:
    """A wrong cut would be compared with others of another stream."""
    store.create_stream(OTHER)
    for wrong in [time for time in BAD_TIMES if time is not None]:
        for bounds in ({"start": wrong}, {"end": wrong}):
            with pytest.raises(BadArgument):
                store.watermarks(STREAM, **bounds)
    for cut in (store.tail(OTHER), StreamCut.of(STREAM, {0: 5}), StreamCut.of(STREAM, {7: 0})):
        with pytest.raises(WrongCut):
            store.watermarks(STREAM, start=cut)
    with pytest.raises(NoSuchStream):
        store.watermarks("plant/none")


def test_a_cut_is_found_by_its_time(timed: Timed) -> None:
    """By the lower bound all that was written up to it, by the upper one nothing that came after it."""
    store, writer = timed.store, timed.begin(10)
    fast = store.writer(STREAM, "fast")
    for number, time in enumerate((20, 30, 40)):
        write(writer, b"event")
        note(writer, time)
        note(fast, time + 5 + number)
        timed.run_pass()
    marks = store.watermarks(STREAM)
    assert [(mark.lower, mark.upper) for mark in marks] == [(10, 10), (20, 25), (30, 36), (40, 47)]
    head = store.head(STREAM)
    for time in range(60):
        lower = [mark.cut for mark in marks if mark.lower <= time]
        upper = [mark.cut for mark in marks if mark.upper <= time]
        assert store.cut_at_time(STREAM, time) == (lower[-1] if lower else head)
        assert store.cut_at_time(STREAM, time, bound="upper") == (upper[-1] if upper else head)
    for wrong in BAD_TIMES:
        with pytest.raises(BadArgument, match="time"):
            store.cut_at_time(STREAM, wrong)
    with pytest.raises(BadArgument, match="bound"):
        store.cut_at_time(STREAM, 5, bound="middle")  # type: ignore[arg-type]


def test_a_cut_by_time_is_not_before_the_head(timed: Timed) -> None:
    """It can be read from, whatever was truncated away, and over scales."""
    store, writer = timed.store, timed.begin(10)
    write(writer, b"event")
    note(writer, 20)
    timed.run_pass()
    store.scale_stream(STREAM, [0], HALVES)
    write(writer, b"event")
    store.truncate_stream(STREAM, store.tail(STREAM))
    write(writer, b"event")
    note(writer, 30)
    timed.run_pass()
    for time in (0, 10, 20, 29):
        cut = store.cut_at_time(STREAM, time)
        assert cut == store.head(STREAM)
        assert sum(map(len, store.read(STREAM, start=cut))) == 1
    assert store.cut_at_time(STREAM, 30) == store.tail(STREAM)


def test_every_row_has_the_time_of_the_last_watermark_before_it(timed: Timed) -> None:
    """In bounded reads, forwards and in parts, and in those of groups."""
    store, writer = timed.store, timed.begin(10)
    for time in (20, 30):
        write(writer, b"event", b"event")
        note(writer, time)
        timed.run_pass()
    write(writer, b"event")
    expected = [10, 10, 20, 20, 30]

    def times(batch: Any) -> list[int | None]:  # noqa: ANN401
        return list(batch["mark_time"].cast("timestamp[ms]").cast("int64").to_pylist())

    assert [time for batch in store.read(STREAM) for time in times(batch)] == expected
    parts = store.segment_ranges(STREAM, approx_bytes=1)
    assert len(parts) > 1
    found = [[time for batch in store.read_range(part) for time in times(batch)] for part in reversed(parts)]
    assert [time for part in reversed(found) for time in part] == expected
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        batch = reader.read_batch(timeout=0.0)
        assert batch is not None
        assert times(batch) == expected


def test_the_last_watermark_is_known_without_reading_all(timed: Timed) -> None:
    """What a user asks first."""
    assert timed.store.watermark(STREAM) is None
    timed.begin(10)
    assert timed.store.watermark(STREAM) == at_tail(timed.store, 10)


def test_an_event_is_between_the_times_around_it(timed: Timed) -> None:
    """By its pointer, without any reader."""
    store, writer = timed.store, timed.store.writer(STREAM, "w")
    pointers = [writer.write_event(b"event").result()]
    assert pointers[0] is not None
    assert store.time_window(pointers[0]) is None
    note(writer, 10)
    timed.run_pass(2)
    pointers += [writer.write_event(b"event").result()]
    note(writer, 20)
    timed.run_pass()
    pointers += [writer.write_event(b"event").result()]
    windows = [store.time_window(pointer) for pointer in pointers if pointer is not None]
    assert windows == [TimeWindow(None, 10), TimeWindow(10, 20), TimeWindow(20, None)]


# Who is there, and who is not


def test_a_writer_that_is_opened_again_is_waited_for(timed: Timed) -> None:
    """It goes on behind the last time that it noted: time that went on without it would overtake its events."""
    writer = timed.begin(10)
    other = timed.store.writer(STREAM, "v")
    note(other, 20)
    other.close()
    other = timed.store.writer(STREAM, "v")
    note(writer, 30)
    timed.run_pass(2)
    note(writer, 40)
    write(other, b"21")
    timed.run_pass(2)
    assert timed.lowers() == [10, 20]
    note(other, 35)
    timed.run_pass()
    assert timed.lowers() == [10, 20, 35]


def write_small(timed: Timed) -> None:
    write(timed.store.writer(STREAM, "v"), b"event")


def write_large(timed: Timed) -> None:
    timed.store.writer(STREAM, "v").write_event(bytes(2 << 20)).result()


def commit(timed: Timed) -> None:
    with timed.store.transactional_writer(STREAM, "v").begin() as transaction:
        transaction.write_event(b"event")


def ping(timed: Timed) -> None:
    timed.store.transactional_writer(STREAM, "v").begin().ping()


@pytest.mark.parametrize("act", [write_small, write_large, commit, ping])
def test_a_writer_that_writes_is_not_silent(timed: Timed, act: Callable[[Timed], None]) -> None:
    """It notes a time less often than the time-out, and all that it writes meanwhile may be early."""
    writer = timed.begin(10)
    note(timed.store.writer(STREAM, "v"), 11)
    for number in range(4):
        note(writer, 20 + number)
        act(timed)
        timed.clock.advance(0.6 * TIMEOUT_S)
        timed.store.maintain()
        note(writer, 21 + number)
    assert timed.lowers()[:2] == [10, 11]
    assert len(timed.lowers()) == 2
    timed.clock.advance(TIMEOUT_S)
    timed.run_pass(2)
    assert timed.lowers() == [10, 11, 24]


def test_a_clock_that_is_set_forward_does_not_make_a_writer_silent(timed: Timed) -> None:
    """No time has passed: who was heard a moment ago is waited for."""
    writer = timed.begin(10)
    note(timed.store.writer(STREAM, "v"), 11)
    note(writer, 20)
    timed.run_pass()
    timed.clock.set_forward(10 * TIMEOUT_S)
    timed.store.maintain()
    assert timed.lowers() == [10, 11]


@pytest.mark.parametrize("ends", ["closed", "silent"])
def test_what_a_writer_wrote_behind_its_last_mark_lies_before_later_watermarks(timed: Timed, ends: str) -> None:
    """Its events may be as early as its last time: a window that is complete without them would lose them."""
    slow, other = timed.begin(10), timed.store.writer(STREAM, "v")
    note(other, 11)
    note(slow, 20)
    timed.run_pass()
    write(other, b"12", b"13")
    if ends == "closed":
        other.close()
    else:
        timed.clock.advance(TIMEOUT_S)
        write(slow)
    timed.run_pass()
    last = timed.store.watermark(STREAM)
    assert last is not None
    assert (last.lower, last.cut) == (20, timed.store.tail(STREAM))
    note(slow, 21)
    timed.run_pass()
    assert list(inside(timed.store).catalog.stream(STREAM).writers) == ["w"], "it is forgotten then"


def test_a_writer_that_closes_while_others_hold_time_up_is_not_forgotten_before_its_events_count(timed: Timed) -> None:
    """Between its end and the next watermark there may be many passes."""
    slow, other, third = timed.begin(10), timed.store.writer(STREAM, "v"), timed.store.writer(STREAM, "u")
    note(other, 11)
    note(third, 11)
    timed.run_pass()
    note(slow, 20)
    timed.run_pass()
    write(other, b"12")
    other.close()
    timed.run_pass(3)
    assert timed.lowers() == [10, 11], "the third holds time up"
    inside(timed.store).marks.note(STREAM, "u", 15, {0: 0})
    timed.run_pass()
    last = timed.store.watermark(STREAM)
    assert last is not None
    assert (last.lower, last.cut) == (15, timed.store.tail(STREAM))
