"""Ranges of a segment that are not there, or not any more, and groups that have read to their end."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, DataTruncated, NoSuchEvent
from penstock.model import ByConsumption, SegmentRange, StreamConfig
from tests.stream.write.test_writer import STREAM, all_events

if TYPE_CHECKING:
    from penstock.stream import Engine

SECONDS_MAX = 30.0


def write(store: Engine, *events: bytes, stream: str = STREAM) -> None:
    with store.writer(stream) as writer:
        writer.write_batch(list(events), ["k"] * len(events))


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (SegmentRange(STREAM, 0, 0, 10**6), NoSuchEvent),
        (SegmentRange(STREAM, 99, 0, 10), NoSuchEvent),
    ],
)
def test_a_part_that_is_not_there_is_refused(store: Engine, part: SegmentRange, error: type[Exception]) -> None:
    """Parts travel to other processes and outlive what they were cut from."""
    store.create_stream(STREAM)
    write(store, b"event")
    with pytest.raises(error):
        list(store.read_range(part))


def test_a_stream_is_not_cut_into_very_many_parts(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has all of them in memory: with one byte each, a user who may read could take all of it."""
    monkeypatch.setattr("penstock.stream.read._stream_reads._RANGES_MAX", 10)
    store.create_stream(STREAM)
    for _ in range(15):
        write(store, b"x" * 100)
    with pytest.raises(BadArgument, match="more than 10 parts: use an approx_bytes above 1"):
        store.segment_ranges(STREAM, approx_bytes=1)
    assert len(store.segment_ranges(STREAM, approx_bytes=1000)) in range(2, 11)


def test_what_is_truncated_away_while_it_is_read_is_told(store: Engine) -> None:
    """Retention does not ask who reads."""
    store.create_stream(STREAM)
    write(store, *[b"x" * 1000] * 100)
    parts = pickle.loads(pickle.dumps(store.segment_ranges(STREAM)))
    batches = store.read(STREAM)
    store.truncate_stream(STREAM, store.tail(STREAM))
    write(store, *[b"y" * 3000] * 30)
    store.truncate_stream(STREAM, store.tail(STREAM))
    with pytest.raises(DataTruncated):
        list(batches)
    with pytest.raises(DataTruncated):
        list(store.read_range(parts[0]))
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    store.truncate_stream(STREAM, store.tail(STREAM))
    with pytest.raises(DataTruncated):
        list(store.read_range(parts[0]))


def test_a_group_that_has_read_to_its_end_holds_nothing_back(store: Engine) -> None:
    """A bounded group that is through does not keep a stream for ever."""
    store.create_stream(STREAM, config=StreamConfig(retention=ByConsumption()))
    write(store, *[b"x" * 1000] * 20)
    bounded = store.create_reader_group("bounded", [STREAM], end=store.tail(STREAM))
    going_on = store.create_reader_group("going-on", [STREAM])
    for _ in range(30):
        write(store, *[b"y" * 1000] * 10)
    for group in (bounded, going_on):
        with group.reader("reader") as reader:
            while reader.read_batch(timeout=0.0) is not None:
                pass
    store.maintain()
    assert len(all_events(store)) < 100
