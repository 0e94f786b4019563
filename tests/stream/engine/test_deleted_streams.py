"""A deleted stream, and another one that is created under its name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.errors import NoSuchStream, StreamNotSealed
from penstock.model import ByConsumption, StreamConfig
from tests.stream.write.test_writer import STREAM, all_events

if TYPE_CHECKING:
    from penstock.stream import Engine, StreamWriter

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


def test_two_writers_opened_at_once_under_one_id_are_opened_one_after_the_other(store: Engine) -> None:
    """Just one of them lives."""
    store.create_stream(STREAM)
    writers: list[StreamWriter] = []
    threads = [threading.Thread(target=lambda: writers.append(store.writer(STREAM, "w"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(writer._open.is_sound for writer in writers) == 1


def test_only_a_sealed_stream_is_deleted_under_a_group(store: Engine) -> None:
    """Nothing changes for its groups then."""
    store.create_stream(STREAM)
    group = store.create_reader_group("group", [STREAM])
    with pytest.raises(StreamNotSealed):
        store.delete_stream(STREAM)
    assert group.streams == (STREAM,)
