"""What a review found: each of these was wrong once."""

from __future__ import annotations

import gc
import pickle
import threading
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.embedded import open_store
from penstock.errors import DataTruncated, NoSuchEvent, NoSuchStream, StoreClosed, StoreLocked, StreamNotSealed
from penstock.log import PlogSizes
from penstock.model import ByConsumption, SegmentRange, StreamConfig
from penstock.stream import Ack, StreamWriter
from penstock.stream.catalog import _catalog
from penstock.stream.catalog._catalog import _parts
from penstock.stream.write._acks import ArrayRun, ListRun
from tests.stream.test_writer import STREAM, all_events

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

SECONDS_MAX = 30.0


def delete(store: Engine, name: str = STREAM) -> None:
    store.seal_stream(name)
    store.delete_stream(name)


def write(store: Engine, *events: bytes, stream: str = STREAM) -> None:
    with store.writer(stream) as writer:
        writer.write_batch(list(events), ["k"] * len(events))


def test_a_writer_does_not_write_to_another_stream_of_the_same_name(store: Engine) -> None:
    """Its stream was deleted; it used to look for its segments for ever."""
    store.create_stream(STREAM)
    writer = store.writer(STREAM)
    writer.write_event(b"old").result()
    delete(store)
    store.create_stream(STREAM)
    with pytest.raises(NoSuchStream):
        writer.write_event(b"lost").result(SECONDS_MAX)
    write(store, b"new")
    assert all_events(store) == [b"new"]


def test_a_group_does_not_go_on_in_another_stream_of_the_same_name(store: Engine) -> None:
    """Its places are those of the stream that was deleted; with them events would be passed by."""
    store.create_stream(STREAM)
    write(store, b"1", b"2", b"3")
    group = store.create_reader_group("group", [STREAM])
    with group.reader("reader") as reader:
        assert reader.read_next_event(0.0) is not None
    delete(store)
    store.create_stream(STREAM, config=StreamConfig(retention=ByConsumption()))
    write(store, *[b"x" * 500] * 40)
    with store.reader_group("group").reader("reader") as reader:
        with pytest.raises(NoSuchStream):
            reader.read_next_event(0.0)
        assert reader.read_next_event(0.0) is None
        assert reader.finished
    store.maintain()
    assert len(all_events(store)) == 40
    assert group.streams == ()


def test_a_group_goes_on_with_its_other_streams(store: Engine) -> None:
    """Each reader is told once which stream is gone."""
    for name in ("a/gone", "a/stays"):
        store.create_stream(name)
        write(store, b"in " + name.encode(), stream=name)
    group = store.create_reader_group("group", ["a/gone", "a/stays"])
    with group.reader("reader") as reader:
        delete(store, "a/gone")
        found: list[bytes] = []
        told = 0
        for _ in range(4):
            try:
                read = reader.read_next_event(0.0)
            except NoSuchStream:
                told += 1
            else:
                found += [read.event] if read is not None else []
        assert found == [b"in a/stays"]
        assert told <= 1
    group.reset("head")
    with group.reader("reader") as reader:
        read = reader.read_next_event(0.0)
        assert read is not None
        assert read.event == b"in a/stays"


def test_a_callback_that_fails_harms_nobody_else(store: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the thread that sends off what nobody waits for goes on, for all writers."""
    store.create_stream(STREAM)
    done = threading.Event()
    with store.writer(STREAM) as writer, store.writer(STREAM) as other:
        failing = writer.write_event(b"1")
        failing.add_done_callback(lambda _: 1 / 0)
        after = threading.Event()
        writer.write_event(b"2").add_done_callback(lambda _: after.set())
        assert after.wait(SECONDS_MAX)
        other.write_event(b"3").add_done_callback(lambda _: done.set())
        assert done.wait(SECONDS_MAX)
        assert failing.done()
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_write_and_wait(store: Engine) -> None:
    """Callbacks come when nobody holds the writer any more."""
    store.create_stream(STREAM)
    done = threading.Event()
    with store.writer(STREAM) as writer:
        second = writer.write_event(b"second")

        def go_on(_: object) -> None:
            assert second.result(SECONDS_MAX) is not None
            for _ in range(3):
                writer.write_event(bytes(900_000)).result(SECONDS_MAX)
            done.set()

        writer.write_event(b"first").add_done_callback(go_on)
        writer.flush()
        assert done.wait(SECONDS_MAX)
    assert len(all_events(store)) == 5


def test_an_acknowledgement_that_is_kept_does_not_keep_the_events(store: Engine) -> None:
    """Only where they are; a few thousand of them would otherwise hold all that was ever written."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        acks = [writer.write_event(bytes(1000)) for _ in range(100)]
        batch = writer.write_batch([bytes(100_000)] * 5)
        writer.flush()
    gc.collect()
    runs = [ack._run for ack in acks if isinstance(ack, Ack)]
    assert not any(run.events for run in runs if isinstance(run, ListRun))
    assert not any(run.rows for run in batch._runs if isinstance(run, ArrayRun))
    assert acks[99].result() is not None
    assert len(batch.result()) == 5


def test_an_empty_batch_is_done(store: Engine) -> None:
    """There is nothing to wait for."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        ack = writer.write_batch([])
        found: list[object] = []
        ack.add_done_callback(found.append)
        assert ack.done()
        assert found == [ack]
        assert len(ack.result()) == 0


@pytest.mark.parametrize("timeout", [float("inf"), 1e12, -5, 0])
def test_any_time_can_be_waited_for(store: Engine, timeout: float) -> None:
    """Python's locks know a longest time, and no negative one."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        assert writer.write_event(b"event").result(timeout) is not None
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        assert reader.read_next_event(timeout) is not None


def test_two_writers_opened_at_once_under_one_id_are_opened_one_after_the_other(store: Engine) -> None:
    """Just one of them lives."""
    store.create_stream(STREAM)
    writers: list[StreamWriter] = []
    threads = [threading.Thread(target=lambda: writers.append(store.writer(STREAM, "w"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(writer.is_sound for writer in writers) == 1


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


def test_a_stream_of_many_segments_and_consumers_fits_into_the_catalog(folder: Path) -> None:
    """No record is too large for an append, whatever a stream has come to."""
    with open_store(folder) as store:
        store.create_stream(STREAM, segments=10_000)
        for number in range(40):
            store.register_consumer(STREAM, f"consumer-{number}")
        store.create_stream("a/b")
        for number in range(60):
            store.update_stream("a/b", StreamConfig(tags=(f"{number}" * 120,) * 128))
        assert store.catalog._log.length - store.catalog._log.start < 16_000_000
    with open_store(folder) as store:
        assert len(store.stream(STREAM).segments) == 10_000
        assert len(store.catalog.streams[STREAM].consumers) == 40


def test_a_snapshot_that_is_cut_short_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash, or a full disk, in the middle of it; records behind it say things about streams that it had not said."""
    sizes = PlogSizes(first=64 << 10, largest=64 << 10)
    with open_store(folder, sizes=sizes) as store:
        for number in range(1500):
            store.create_stream(f"a/s{number}", config=StreamConfig(tags=("x" * 250,)))
        monkeypatch.setattr(_catalog, "_parts", lambda state: [next(iter(_parts(state)))])
        monkeypatch.setattr(type(store.catalog._log), "truncate", lambda *_: None)
        store.catalog._write_snapshot()
        monkeypatch.undo()
        store.seal_stream("a/s1499")
        store.create_stream("a/last")
    for _ in range(2):
        with open_store(folder, sizes=sizes) as store:
            assert len(store.streams("a")) == 1501
            assert store.stream("a/s1499").state == "sealed"


def test_a_closed_store_answers_no_questions(store: Engine) -> None:
    """What it says might not be so any more."""
    store.create_stream(STREAM)
    group = store.create_reader_group("group", [STREAM])
    store.close()
    for call in (
        store.streams,
        store.reader_groups,
        lambda: store.reader_group("group"),
        lambda: group.reader("reader"),
    ):
        with pytest.raises(StoreClosed):
            call()


def test_there_is_one_who_has_a_folder_alone(folder: Path) -> None:
    """Whoever comes next is told."""
    with penstock.connect(folder, exclusive=True), pytest.raises(StoreLocked):
        penstock.connect(folder, exclusive=True)


def test_only_a_sealed_stream_is_deleted_under_a_group(store: Engine) -> None:
    """Nothing changes for its groups then."""
    store.create_stream(STREAM)
    group = store.create_reader_group("group", [STREAM])
    with pytest.raises(StreamNotSealed):
        store.delete_stream(STREAM)
    assert group.streams == (STREAM,)
