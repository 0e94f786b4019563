"""Events that are truncated away while somebody plans to read them, or reads them: that is what is told."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from penstock.embedded import open_store
from penstock.errors import DataTruncated, NoSuchStream
from penstock.log import PlogSizes
from penstock.model import StreamCut
from penstock.stream.segment._segment import Segment
from penstock.stream.segment._segments import Segments
from penstock.stream.time import CutFinder
from penstock.testing import ManualClock
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.model import StreamPosition
    from penstock.stream import Engine
    from penstock.stream.catalog._stream_state import StreamState

STREAM: Final = "plant/readings"
CALLS: Final[dict[str, Callable[[Engine, StreamCut], object]]] = {
    "step by bytes": lambda store, cut: store.next_cut(STREAM, cut, max_bytes=300),
    "step by events": lambda store, cut: store.next_cut(STREAM, cut, max_events=40),
    "ranges": lambda store, cut: store.segment_ranges(STREAM, cut, approx_bytes=300),
    "read": lambda store, cut: list(store.read(STREAM, cut)),
    "consumer": lambda store, cut: store.register_consumer(STREAM, "consumer", cut),
    "group": lambda store, cut: store.create_reader_group(f"g{len(store.reader_groups())}", [STREAM], cut),
    "truncate": lambda store, cut: store.truncate_stream(STREAM, cut),
}


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store with a stream of many small plogs in two segments, one after the other."""
    with open_store("memory:", clock=ManualClock(), sizes=PlogSizes(first=512, largest=512)) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            for round_ in range(2):
                for _ in range(20):
                    writer.write_event(b"x" * 100).result()
                store.scale_stream(STREAM, [round_], [(0.0, 1.0)])
        yield store


class Meanwhile:
    """Does something once, when the store has come to some point for the so-manieth time, or now."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._tasks: list[Callable[[], object]] = []

    def __call__(self, task: Callable[[], object]) -> None:
        self._tasks = [task]

    def pass_by(self) -> None:
        """Note that the store has come to the point."""
        if self._tasks:
            self._times -= 1
            if not self._times:
                self.now()

    def now(self) -> None:
        """Do it, if it was not done."""
        while self._tasks:
            self._tasks.pop()()


@pytest.fixture(params=["before a segment is found", "before it is read", "between two reads"])
def meanwhile(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Meanwhile:
    found, meanwhile = (
        request.param == "before a segment is found",
        Meanwhile(1 + (request.param == "between two reads")),
    )
    segment_of, views = Segments.of, Segment.views

    def find(segments: Segments, state: StreamState, segment: int) -> Segment:
        if found and not segments._catalog.lock._is_owned():  # type: ignore[attr-defined]
            meanwhile.pass_by()
        return segment_of(segments, state, segment)

    def read(segment: Segment, offset: int, end: int) -> Iterator[tuple[int, memoryview, int]]:
        if not found:
            meanwhile.pass_by()
        return views(segment, offset, end)

    monkeypatch.setattr(Segments, "of", find)
    monkeypatch.setattr(Segment, "views", read)
    return meanwhile


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("head", [{0: 1680}, {1: 0}, {2: 0}])
def test_what_is_truncated_away_meanwhile_is_data_truncated(
    store: Engine, meanwhile: Meanwhile, call: str, head: dict[int, int]
) -> None:
    """A planner beside retention knows what to do then; a KeyError it can only die of."""
    start = store.head(STREAM)
    meanwhile(lambda: store.truncate_stream(STREAM, StreamCut.of(STREAM, head)))
    with suppress(DataTruncated):  # and nothing else; what was there in time may be found
        CALLS[call](store, start)
    meanwhile.now()
    with pytest.raises(DataTruncated):
        CALLS[call](store, start)


@pytest.mark.parametrize("call", CALLS)
def test_a_stream_that_is_deleted_meanwhile_is_no_stream(store: Engine, meanwhile: Meanwhile, call: str) -> None:
    """Also if there is another of its name, whose events must not be taken for those of the first."""

    def replace() -> None:
        store.seal_stream(STREAM)
        store.delete_stream(STREAM)
        store.create_stream(STREAM, segments=4)

    meanwhile(replace)
    with suppress(NoSuchStream, DataTruncated):
        CALLS[call](store, store.head(STREAM))


def place_of_consumer(store: Engine) -> StreamCut:
    store.register_consumer(STREAM, "consumer", "head")
    return store.consumers(STREAM)["consumer"]


def place_of_new_group(store: Engine) -> StreamCut:
    return store.create_reader_group("new", [STREAM], 0).position[0]


def place_of_old_group(store: Engine) -> StreamCut:
    group = store.reader_group("old")
    group.reset(0)
    return group.position[0] if group.streams else store.head(STREAM)


def head_after_truncation(store: Engine) -> StreamCut:
    return store.truncate_stream(STREAM, 0).head


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("change", [place_of_consumer, place_of_new_group, place_of_old_group, head_after_truncation])
def test_a_place_that_goes_after_it_was_found_is_found_again(
    store: Engine, monkeypatch: pytest.MonkeyPatch, change: Callable[[Engine], StreamCut], is_replaced: bool
) -> None:
    """It is found without a lock, and a consumer or a group that begins before the stream does would miss something."""
    store.create_reader_group("old", [STREAM])
    real, tasks = CutFinder.find, [store.truncate_stream]

    def find(finder: CutFinder, what: str, name: str, place: StreamPosition) -> StreamCut:
        found = real(finder, what, name, place)
        if tasks:
            tasks.pop()(STREAM, StreamCut.of(STREAM, {1: 0}))
            if is_replaced:
                store.seal_stream(STREAM)
                store.delete_stream(STREAM)
                store.create_stream(STREAM)
        return found

    monkeypatch.setattr(CutFinder, "find", find)
    assert change(store) == store.head(STREAM) == StreamCut.of(STREAM, {int(not is_replaced): 0})
    assert not tasks


def test_who_asks_for_all_there_is_gets_what_is_left(store: Engine, meanwhile: Meanwhile) -> None:
    """No start was given, so nothing is missing."""
    meanwhile(lambda: store.truncate_stream(STREAM, StreamCut.of(STREAM, {1: 0})))
    store.segment_ranges(STREAM, approx_bytes=300)
    meanwhile.now()
    parts = store.segment_ranges(STREAM, approx_bytes=300)
    assert {part.segment_id for part in parts} == {1}


def test_a_step_that_may_skip_does_so_also_meanwhile(store: Engine, meanwhile: Meanwhile) -> None:
    """Otherwise a query that said so would end all the same, now and then."""
    start = store.head(STREAM)
    meanwhile(lambda: store.truncate_stream(STREAM, StreamCut.of(STREAM, {1: 0})))
    for _ in range(2):
        step = store.next_cut(STREAM, start, max_events=40, skip_truncated=True)
        start = step.cut
    assert start == store.tail(STREAM)


def test_a_client_is_told_so_too(store: Engine, meanwhile: Meanwhile) -> None:
    """What it asks next finds that the segment is gone."""
    with over_the_wire(store) as outside:
        meanwhile(lambda: store.truncate_stream(STREAM, StreamCut.of(STREAM, {2: 0})))
        with suppress(DataTruncated):
            list(outside.read(STREAM, StreamCut.of(STREAM, {0: 0})))
        meanwhile.now()
        with pytest.raises(DataTruncated):
            list(outside.read(STREAM, StreamCut.of(STREAM, {0: 0})))
