"""What a copy of a stream needs of a store: past segments, watermarks of others, events without a key at a position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import BadArgument, NoSuchStream, WrongCut
from penstock.model import StreamCut, Watermark
from tests.stream.harness import STREAM

if TYPE_CHECKING:
    from penstock.stream import Engine


def test_segments_that_take_no_more_events_are_listed_until_they_are_truncated(store: Engine) -> None:
    """A copy replays how they followed each other, whenever that was."""
    store.create_stream(STREAM, 2)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"1"] * 20, list(map(str, range(20))))
    store.scale_stream(STREAM, [0, 1], [(0.0, 0.25), (0.25, 1.0)])
    listed = [(segment.segment_id, segment.low, segment.high) for segment in store.stream_segments(STREAM)]
    assert listed == [(0, 0.0, 0.5), (1, 0.5, 1.0), (2, 0.0, 0.25), (3, 0.25, 1.0)]
    store.truncate_stream(STREAM, store.tail(STREAM))
    assert [segment.segment_id for segment in store.stream_segments(STREAM)] == [2, 3]
    with pytest.raises(NoSuchStream):
        store.stream_segments("no/stream")


def test_watermarks_are_added_behind_the_last_one_and_time_does_not_go_back(store: Engine) -> None:
    """A copy adds those of its source; one that goes on after a crash may add the last of them again."""
    store.create_stream(STREAM)
    head = store.head(STREAM)
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"1").result()
        tail = store.tail(STREAM)
        marks = [Watermark(5, 9, head), Watermark(7, 8, tail)]
        store.add_watermarks(STREAM, marks)
        store.add_watermarks(STREAM, [*marks, Watermark(7, 20, tail), Watermark(8, 20, tail)])
        assert store.watermarks(STREAM) == [marks[0], Watermark(7, 9, tail), Watermark(8, 20, tail)]
        writer.note_time(30)
    store.maintain()
    last = store.watermark(STREAM)
    assert last is not None
    assert (last.lower, last.upper) == (30, 30)


def test_more_watermarks_than_fit_into_a_call_are_added(store: Engine) -> None:
    """A stream has one of every second, for years."""
    store.create_stream(STREAM)
    marks = [Watermark(time, time, store.head(STREAM)) for time in range(1, 2500)]
    store.add_watermarks(STREAM, marks)
    assert store.watermarks(STREAM) == marks


def test_what_is_no_watermark_is_refused(store: Engine) -> None:
    """A time that is wrong stays in force for ever."""
    store.create_stream(STREAM)
    head = store.head(STREAM)
    wrong: list[Any] = [Watermark(5, 4, head), Watermark(-1, 5, head), Watermark(1, None, head), "mark"]  # type: ignore[arg-type]
    for mark in wrong:
        with pytest.raises(BadArgument):
            store.add_watermarks(STREAM, [Watermark(1, 1, head), mark])
    with pytest.raises(WrongCut):
        store.add_watermarks(STREAM, [Watermark(1, 1, StreamCut.of(STREAM, {0: 100}))])
    assert store.watermark(STREAM) is None
    with store.writer(STREAM) as writer:
        writer.write_event(b"1").result()
    with pytest.raises(BadArgument, match="the one before it"):
        store.add_watermarks(STREAM, [Watermark(1, 1, store.tail(STREAM)), Watermark(2, 2, head)])


def test_events_without_a_key_go_to_the_segment_at_a_position(store: Engine) -> None:
    """Those of a segment stay together in a copy, so their order and every cut among them are kept."""
    store.create_stream(STREAM, 4)
    with store.transactional_writer(STREAM).begin() as transaction:
        for segment in (2, 0, 3):
            position = (segment + 0.5) / 4
            transaction.write_batch([b"1"] * segment + [b"2"], position=position)
            with transaction.begin_write_event(position=position) as output:
                output.write(bytes(2 << 20))
        transaction.write_batch([b"k"], ["a"], position=0.1)
        for wrong in (1.0, -0.1, 1, "x"):
            with pytest.raises(BadArgument, match="key position"):
                transaction.write_batch([b"x"], position=wrong)  # type: ignore[arg-type]
    rows = [row for batch in store.read(STREAM) for row in batch.to_pylist()]
    counts = {segment: sum(row["segment_id"] == segment and row["key"] is None for row in rows) for segment in range(4)}
    assert counts == {0: 2, 1: 0, 2: 4, 3: 5}
