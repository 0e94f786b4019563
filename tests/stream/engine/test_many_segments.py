"""Streams of many segments: a look at them keeps no other call waiting."""

from __future__ import annotations

import threading
from functools import partialmethod
from typing import TYPE_CHECKING, Final

import pytest

from penstock.embedded import open_store
from penstock.model import Position, SegmentInfo, StreamCut
from penstock.stream.engine import _stream_view
from penstock.stream.segment._segment import Segment
from penstock.stream.segment._segment_log import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.stream import Engine

STREAM: Final = "a/b"
SECONDS_MAX: Final = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with open_store(tmp_path / "data", maintenance_interval_s=3600) as store:
        store.create_stream(STREAM, segments=4)
        yield store


def is_free(lock: threading.RLock) -> bool:
    """Whether another thread gets a lock that this one may hold."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def test_the_catalog_is_not_held_while_streams_are_described(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 streams of 10,000 segments it was held for seconds, in which nothing else could be done."""
    free: list[bool] = []

    def noted(*args: object) -> object:
        free.append(is_free(store.catalog.lock))
        return SegmentInfo(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(_stream_view, "SegmentInfo", noted)
    store.streams()
    store.stream(STREAM)
    assert free == [True] * 8


def test_nothing_is_computed_of_streams_that_are_not_wanted(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may see no stream would use the server for nothing."""
    store.create_stream("a/c")
    described: list[str] = []
    real = _stream_view.StreamView.info

    def noted(view: _stream_view.StreamView) -> object:
        described.append(view._name)
        return real(view)

    monkeypatch.setattr(_stream_view.StreamView, "info", noted)
    assert [info.name for info in store.selected_streams(lambda name: name == "a/c")] == described == ["a/c"]
    assert list(store.selected_streams(lambda _: False)) == []
    assert described == ["a/c"]


def offline_at(store: Engine, cut: StreamCut) -> None:
    group = store.reader_group("group")
    with group.reader("reader") as reader:
        reader.read_next_event(timeout=0)
        group.reader_offline("reader", Position((cut,)))


KEYS: Final = [str(key) for key in range(100)]
FUTURE: Final = 2_000_000_000_000
LOOKS: Final[dict[str, Callable[[Engine, StreamCut], object]]] = {
    "lag": lambda store, _: store.reader_group("group").lag(),
    "time": lambda store, _: store.cut_at_time(STREAM, FUTURE, by="append"),
    "consumer at a time": lambda store, _: store.register_consumer(STREAM, "consumer", FUTURE),
    "consumer at a cut": lambda store, cut: store.register_consumer(STREAM, "consumer", cut),
    "group from a time": lambda store, _: store.create_reader_group("other", [STREAM], FUTURE),
    "group up to a cut": lambda store, cut: store.create_reader_group("other", [STREAM], end=cut),
    "reset to a time": lambda store, _: store.reader_group("group").reset(FUTURE),
    "reset to a cut": lambda store, cut: store.reader_group("group").reset(cut),
    "reset to a position": lambda store, cut: store.reader_group("group").reset(Position((cut,))),
    "offline at a position": offline_at,
    "truncate at a time": lambda store, _: store.truncate_stream(STREAM, FUTURE),
    "truncate at a cut": lambda store, cut: store.truncate_stream(STREAM, cut),
    "ranges from a time": lambda store, _: store.segment_ranges(STREAM, FUTURE),
    "ranges up to a cut": lambda store, cut: store.segment_ranges(STREAM, end=cut),
    "next cut": lambda store, cut: store.next_cut(STREAM, cut, max_bytes=100),
    "watermarks": lambda store, cut: store.watermarks(STREAM, cut),
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_catalog_is_not_held_while_blocks_are_read(
    store: Engine, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """Of 10,000 segments that takes seconds, and every user who may read can ask for it."""
    store.create_reader_group("group", [STREAM])
    with store.writer(STREAM) as writer:
        writer.write_batch([b"event"] * 100, KEYS).result()
        cut = store.tail(STREAM)
        writer.write_batch([b"event"] * 100, KEYS).result()
    free: list[bool] = []

    def note(one: object, read: Callable[..., object], *args: object) -> object:
        free.append(is_free(store.catalog.lock))
        return read(one, *args)

    monkeypatch.setattr(SegmentLog, "block_at", partialmethod(note, SegmentLog.block_at))
    monkeypatch.setattr(Segment, "views", partialmethod(note, Segment.views))
    LOOKS[look](store, cut)
    assert free
    assert all(free)


@pytest.mark.parametrize("look", [one for one in LOOKS if one.startswith(("consumer", "group", "reset", "truncate"))])
def test_others_go_on_while_a_place_is_found_on_a_slow_disk(
    store: Engine, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """They wait for what is recorded in the catalog, and not for what is read before."""
    store.create_reader_group("group", [STREAM])
    with store.writer(STREAM) as writer:
        writer.write_batch([b"event"] * 100, KEYS).result()
        cut = store.tail(STREAM)
        writer.write_batch([b"event"] * 100, KEYS).result()
    reads, may_read = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: LOOKS[look](store, cut))

    def wait(one: object, read: Callable[..., object], *args: object) -> object:
        if threading.current_thread() is thread:
            reads.set()
            assert may_read.wait(SECONDS_MAX)
        return read(one, *args)

    monkeypatch.setattr(SegmentLog, "block_at", partialmethod(wait, SegmentLog.block_at))
    monkeypatch.setattr(Segment, "views", partialmethod(wait, Segment.views))
    thread.start()
    try:
        assert reads.wait(SECONDS_MAX)
        assert store.stream(STREAM).events == 200
        store.create_stream("a/other")
        store.create_reader_group("third", ["a/other"])
    finally:
        may_read.set()
        thread.join()


@pytest.mark.parametrize("look", ["info", "lag", "time"])
def test_a_stream_is_looked_at_while_it_is_scaled_and_truncated(store: Engine, look: str) -> None:
    """What was copied may be gone when its events are read; then it is looked at again."""
    over, trouble, seen = threading.Event(), list[BaseException](), list[int]()
    group = store.create_reader_group("group", [STREAM])

    def count() -> int:
        if look == "info":
            return store.stream(STREAM).events
        if look == "lag":
            return group.lag().events
        return sum(place < 0 for _, place in store.cut_at_time(STREAM, 2_000_000_000_000, by="append").places)

    def work() -> None:
        try:
            while not over.is_set():
                seen.append(count())
        except BaseException as error:  # noqa: BLE001 - told below
            trouble.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with store.writer(STREAM) as writer:
            for _ in range(30):
                writer.write_batch([b"event"] * 8, [str(key) for key in range(8)]).result()
                current = store.stream(STREAM).segments
                ranges = [(one.low, one.high) for one in current]
                store.scale_stream(STREAM, [one.segment_id for one in current], ranges)
                store.truncate_stream(STREAM, "tail")
    finally:
        over.set()
        thread.join()
    assert not trouble
    assert all(0 <= count <= 16 for count in seen)
    assert store.stream(STREAM).events == 0


def test_a_stream_that_is_deleted_meanwhile_is_left_out(store: Engine) -> None:
    """A list of streams does not fail for one of them."""
    store.create_stream("a/c")
    infos = store.selected_streams(lambda _: True)
    assert next(infos).name == STREAM
    store.seal_stream("a/c")
    store.delete_stream("a/c")
    assert list(infos) == []
