"""Blocks that many readers follow are read once for all of them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.client import RemoteStore
from penstock.embedded import open_store
from penstock.errors import BadArgument
from penstock.log import PlogSizes
from penstock.server import _blocks as blocks
from penstock.server._blocks import Blocks
from penstock.stream.segment._segment import Segment
from tests.log.harness import SECONDS_MAX
from tests.stream.wire_harness import served

if TYPE_CHECKING:
    from penstock.stream import Engine, Reader

STREAM: Final = "plant/readings"


class Count:
    """How often blocks were read from the log to be sent with a notification, and how often they were asked for.

    Reads for other ends do not count: clients report their positions all the time, and the server looks them up.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.sent = 0
        views, new, between = Segment.views, Blocks.new, Blocks.between
        notified = threading.local()

        def counted_views(*args: Any) -> Any:  # noqa: ANN401 - as they come
            self.reads += getattr(notified, "now", False)
            return views(*args)

        def counted_new(*args: Any) -> Any:  # noqa: ANN401 - as they come
            notified.now = True
            try:
                return new(*args)
            finally:
                notified.now = False

        def counted_between(*args: Any) -> Any:  # noqa: ANN401 - as they come
            self.sent += 1
            notified.now = True
            try:
                yield from between(*args)
            finally:
                notified.now = False

        monkeypatch.setattr(Segment, "views", counted_views)
        monkeypatch.setattr(Blocks, "new", counted_new)
        monkeypatch.setattr(Blocks, "between", counted_between)


def put(store: Engine, event: bytes) -> None:
    with store.writer(STREAM) as writer:
        writer.write_event(event).result()


def event_of(reader: Reader) -> object:
    read = reader.read_next_event(timeout=SECONDS_MAX)
    return None if read is None else read.event


def test_two_hundred_readers_at_the_tail_share_one_read(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read once for ten clients, and sent with the notification: no client asks for it."""
    store.create_stream(STREAM)
    put(store, b"before")
    with served(store) as (_, finder), ExitStack() as stack:
        clients = [stack.enter_context(RemoteStore(finder)) for _ in range(10)]
        groups = [client.create_reader_group(f"g{number}", [STREAM]) for number, client in enumerate(clients * 20)]
        readers = [stack.enter_context(group.reader("r")) for group in groups]
        assert {event_of(reader) for reader in readers} == {b"before"}
        count = Count(monkeypatch)
        for event in (b"one", b"two", b"three"):
            put(store, event)
            assert [event_of(reader) for reader in readers] == [event] * 200
        assert (count.reads, count.sent) == (3, 0)
        put(store, bytes(20_000))
        assert [event_of(reader) for reader in readers] == [bytes(20_000)] * 200
        assert (count.reads, count.sent) == (4, 10), "a larger one is fetched, once by each client"


def test_what_is_read_from_far_back_is_not_kept(store: Engine) -> None:
    """A stream is larger than memory."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_batch([bytes(500_000)] * 6).result()
    segment, source = store.segments.get(STREAM, 0), Blocks()
    assert sum(len(one) for one in source.between(segment, 0, segment.tail)) > 1
    assert sum(len(one) for one in source.between(segment, 0, 10)) == 1
    assert not source._followed


def test_what_was_truncated_away_is_not_given() -> None:
    """Also if it was sent a moment before."""
    with open_store("memory:", sizes=PlogSizes(first=4096, largest=4096)) as store:
        store.create_stream(STREAM)
        segment, source = store.segments.get(STREAM, 0), Blocks()
        for number in range(10):
            put(store, bytes(1000))
            assert len(list(source.between(segment, 0, segment.tail))) == number + 1
        store.truncate_stream(STREAM, store.tail(STREAM))
        assert segment.start > 0
        with pytest.raises(BadArgument, match="it begins at"):
            list(source.between(segment, 0, segment.tail))


def test_segments_that_are_followed_no_more_are_let_go(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is a view of a file, which takes its budget on the disk for as long."""
    monkeypatch.setattr(blocks, "_FOLLOWED_MAX", 2)
    store.create_stream(STREAM, segments=4)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"x"] * 100, [str(number) for number in range(100)]).result()
    segments, source = [store.segments.get(STREAM, number) for number in range(4)], Blocks()
    for segment in (segments[0], segments[1], segments[0], segments[2], segments[3]):
        assert len(list(source.between(segment, 0, segment.tail))) == 1
    assert list(source._followed) == segments[2:]
