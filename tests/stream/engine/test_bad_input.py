"""Bad input: every call refuses what it cannot take, before anything is changed, and says which argument it was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import BadArgument
from penstock.model import (
    ByDataRate,
    ByEventRate,
    BySize,
    ByTime,
    Checkpoint,
    EventPointer,
    Fixed,
    Position,
    SegmentRange,
    StreamConfig,
    StreamCut,
)
from penstock.stream.serializers import StrSerializer
from penstock.stream.write._acks import DoneAck
from tests.sampling import in_case
from tests.stream.harness import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.stream import Engine

STREAM = "plant/readings"
HUGE = 10**5000  # has more digits than Python shows

NO_NAMES: list[object] = ["", "a b", None, 5, True, [], b"a/b", "x" * 300, HUGE]
NO_TEXTS: list[object] = [None, 5, True, [], b"a/b", HUGE]
NO_COUNTS = [0, -1, 1.5, math.nan, True, "1", [], HUGE]  # int, 1 or more
NO_OFFSETS = [-1, 1.5, math.nan, True, "1", None, HUGE]
NO_FIGURES = [0, -1, math.nan, math.inf, True, "1", None, [], HUGE]  # above 0
NO_LISTS = [0, None, 1.5, True, object()]
NO_OBJECTS = [0, "", [], True, "x", object(), HUGE]
NO_SERIALIZERS = [0, 5, "utf-8", [], StrSerializer, HUGE]
NO_KEYS = [5, 1.5, True, [], math.nan]
NO_TIMEOUTS = ["1", math.nan, True, [], object()]
NO_BOOLS = [1, "no", None]
NO_PATHS = [5, True, [], b"server.crt", "a\0b", "\ud800"]
NO_CUTS = [*NO_OBJECTS, EventPointer(STREAM, 0, 0)]
NO_PLACES = [bad for bad in NO_CUTS if type(bad) is not int]  # an int is a time
NO_CHECKPOINT: Any = Checkpoint("c", "g", 5)  # type: ignore[arg-type]
CUTS_OF_NONE = [
    one for one in NO_CUTS if one != [] and type(one) is not int
]  # no cuts are as good as None, an int is a time


class Opened:
    """A store with a stream, a writer, a group and a reader, to be spoken to wrongly."""

    def __init__(self, store: Engine) -> None:
        self.store: Any = store
        store.create_stream(STREAM)
        self.writer: Any = store.writer(STREAM, "w")
        self.texts: Any = store.writer(STREAM, serializer=StrSerializer())
        self.ack: Any = self.writer.write_event(b"event", key="k")
        self.ack.result()
        self.group: Any = store.create_reader_group("group", [STREAM])
        self.reader: Any = self.group.reader("reader")

    def state(self) -> tuple[object, ...]:
        """Return all that a call could have changed."""
        for writer in (self.writer, self.texts):
            writer.flush()
        store, group = self.store, self.group
        consumers = dict(inside(store).catalog.streams[STREAM].consumers)
        groups = [(name, store.reader_group(name).position) for name in store.reader_groups()]
        return store.streams(), groups, group.readers(), group.checkpoints, consumers, self.writer.last_number


CALLS: list[tuple[str, Callable[[Opened, Any], object], str, Sequence[object]]] = [
    ("create_stream name", lambda d, bad: d.store.create_stream(bad), "stream name", NO_NAMES),
    ("create_stream segments", lambda d, bad: d.store.create_stream("a/b", bad), "segments", [*NO_COUNTS, 10_001]),
    ("create_stream config", lambda d, bad: d.store.create_stream("a/b", config=bad), "config", NO_OBJECTS),
    ("create_stream exist_ok", lambda d, bad: d.store.create_stream(STREAM, exist_ok=bad), "exist_ok", [1, "no", None]),
    ("streams", lambda d, bad: d.store.streams(bad), "scope", [one for one in NO_NAMES if one is not None]),
    ("stream", lambda d, bad: d.store.stream(bad), "name", NO_TEXTS),
    ("update_stream name", lambda d, bad: d.store.update_stream(bad, StreamConfig()), "name", NO_TEXTS),
    ("update_stream config", lambda d, bad: d.store.update_stream(STREAM, bad), "config", [None, *NO_OBJECTS]),
    ("seal_stream", lambda d, bad: d.store.seal_stream(bad), "name", NO_TEXTS),
    ("delete_stream", lambda d, bad: d.store.delete_stream(bad), "name", NO_TEXTS),
    ("scale_stream name", lambda d, bad: d.store.scale_stream(bad, [0], [(0.0, 1.0)]), "name", NO_TEXTS),
    ("scale_stream seal", lambda d, bad: d.store.scale_stream(STREAM, bad, [(0.0, 1.0)]), "seal", [*NO_LISTS, "0", {}]),
    ("scale_stream seal of", lambda d, bad: d.store.scale_stream(STREAM, [bad], [(0.0, 1.0)]), "seal", NO_OFFSETS),
    (
        "scale_stream ranges",
        lambda d, bad: d.store.scale_stream(STREAM, [0], bad),
        "ranges",
        [*NO_LISTS, "x", [0.5], [], [(0.0, HUGE)], [(math.nan, 1.0)], [(0.0, math.inf)], [(1.0, 0.0)], [(0.0, None)]],
    ),
    ("truncate_stream name", lambda d, bad: d.store.truncate_stream(bad, d.store.tail(STREAM)), "name", NO_TEXTS),
    ("truncate_stream cut", lambda d, bad: d.store.truncate_stream(STREAM, bad), "cut", [None, *NO_PLACES]),
    ("head", lambda d, bad: d.store.head(bad), "name", NO_TEXTS),
    ("tail", lambda d, bad: d.store.tail(bad), "name", NO_TEXTS),
    ("fetch_event", lambda d, bad: d.store.fetch_event(bad), "pointer", [None, *NO_OBJECTS]),
    ("fetch_event_as_stream", lambda d, bad: d.store.fetch_event_as_stream(bad), "pointer", [None, *NO_OBJECTS]),
    ("read name", lambda d, bad: d.store.read(bad), "name", NO_TEXTS),
    ("read start", lambda d, bad: d.store.read(STREAM, bad), "start", NO_PLACES),
    ("read end", lambda d, bad: d.store.read(STREAM, end=bad), "end", NO_PLACES),
    ("read size", lambda d, bad: d.store.read(STREAM, max_event_size=bad), "max_event_size", [None, *NO_COUNTS]),
    ("read_range", lambda d, bad: d.store.read_range(bad), "part", [None, *NO_OBJECTS]),
    (
        "read_range size",
        lambda d, bad: d.store.read_range(d.store.segment_ranges(STREAM)[0], max_event_size=bad),
        "max_event_size",
        [None, *NO_COUNTS],
    ),
    ("segment_ranges name", lambda d, bad: d.store.segment_ranges(bad), "name", NO_TEXTS),
    ("segment_ranges start", lambda d, bad: d.store.segment_ranges(STREAM, bad), "start", NO_PLACES),
    ("segment_ranges end", lambda d, bad: d.store.segment_ranges(STREAM, end=bad), "end", NO_PLACES),
    ("segment_ranges size", lambda d, bad: d.store.segment_ranges(STREAM, approx_bytes=bad), "approx_bytes", NO_COUNTS),
    ("register_consumer name", lambda d, bad: d.store.register_consumer(bad, "c"), "name", NO_TEXTS),
    ("register_consumer", lambda d, bad: d.store.register_consumer(STREAM, bad), "consumer", NO_NAMES),
    ("register_consumer cut", lambda d, bad: d.store.register_consumer(STREAM, "c", bad), "cut", NO_PLACES),
    ("unregister_consumer", lambda d, bad: d.store.unregister_consumer(STREAM, bad), "consumer", NO_NAMES),
    ("writer name", lambda d, bad: d.store.writer(bad), "name", NO_TEXTS),
    ("writer id", lambda d, bad: d.store.writer(STREAM, bad), "writer", ["", "a b", 5, True, [], HUGE]),
    ("writer serializer", lambda d, bad: d.store.writer(STREAM, "w", bad), "serializer", NO_SERIALIZERS),
    ("transactional_writer name", lambda d, bad: d.store.transactional_writer(bad), "name", NO_TEXTS),
    ("transactional_writer id", lambda d, bad: d.store.transactional_writer(STREAM, bad), "writer", ["", 5, True, []]),
    (
        "transactional_writer serializer",
        lambda d, bad: d.store.transactional_writer(STREAM, None, bad),
        "serializer",
        NO_SERIALIZERS,
    ),
    ("transaction", lambda d, bad: d.store.transactional_writer(STREAM).get(bad), "transaction", NO_TEXTS),
    ("reader_group", lambda d, bad: d.store.reader_group(bad), "reader group", NO_NAMES),
    ("create_reader_group", lambda d, bad: d.store.create_reader_group(bad, [STREAM]), "reader group", NO_NAMES),
    (
        "create_reader_group streams",
        lambda d, bad: d.store.create_reader_group("g", bad),
        "stream",
        [*NO_LISTS, [], "x", {}, [5], [None], [STREAM, STREAM]],
    ),
    ("create_reader_group start", lambda d, bad: d.store.create_reader_group("g", STREAM, bad), "start", CUTS_OF_NONE),
    (
        "create_reader_group end",
        lambda d, bad: d.store.create_reader_group("g", STREAM, None, bad),
        "end",
        CUTS_OF_NONE,
    ),
    ("write_event event", lambda d, bad: d.writer.write_event(bad), "event", [None, 5, "text", [], True, math.nan]),
    ("write_event key", lambda d, bad: d.writer.write_event(b"x", bad), "key", NO_KEYS),
    (
        "write_event number",
        lambda d, bad: d.writer.write_event(b"x", number=bad),
        "number",
        [-1, 1.5, math.nan, True, HUGE],
    ),
    ("write_batch events", lambda d, bad: d.writer.write_batch(bad), "events", [*NO_LISTS, "abc", b"abc", {}, [5]]),
    ("write_batch texts", lambda d, bad: d.texts.write_batch(bad), "events", [*NO_LISTS, "abc", {}]),
    (
        "write_batch keys",
        lambda d, bad: d.writer.write_batch([b"1", b"2"], bad),
        "key",
        [0, ["k"], [1, 2]],
    ),
    ("begin_write_event", lambda d, bad: d.writer.begin_write_event(bad), "key", NO_KEYS),
    ("reader", lambda d, bad: d.group.reader(bad), "reader", NO_NAMES),
    ("reader serializer", lambda d, bad: d.group.reader("r", bad), "serializer", NO_SERIALIZERS),
    ("reader size", lambda d, bad: d.group.reader("r", max_event_size=bad), "max_event_size", [None, *NO_COUNTS]),
    ("reader_offline", lambda d, bad: d.group.reader_offline(bad), "reader", NO_NAMES),
    ("reader_offline position", lambda d, bad: d.group.reader_offline("reader", bad), "position", NO_CUTS),
    ("checkpoint", lambda d, bad: d.group.checkpoint(bad), "checkpoint", NO_NAMES),
    ("checkpoint timeout", lambda d, bad: d.group.checkpoint("c", bad), "timeout", NO_TIMEOUTS),
    (
        "reset",
        lambda d, bad: d.group.reset(bad),
        "^invalid to ",
        [None, "", "noon", True, [None], NO_CHECKPOINT],
    ),
    (
        "reader's time window",
        lambda d, bad: d.reader.current_time_window(bad),
        "stream",
        [5, True, [], {}, b"a/b", HUGE],
    ),
    ("group's time window", lambda d, bad: d.group.current_time_window(bad), "stream", [5, True, [], {}, b"a/b", HUGE]),
    ("result", lambda d, bad: d.ack.result(bad), "timeout", NO_TIMEOUTS),
    ("result of a batch", lambda d, bad: d.writer.write_batch([]).result(bad), "timeout", NO_TIMEOUTS),
    ("result of what is there", lambda _, bad: DoneAck(None).result(bad), "timeout", NO_TIMEOUTS),
    ("connect exclusive", lambda _, bad: penstock.connect("memory:", exclusive=bad), "exclusive", NO_BOOLS),
    ("connect own", lambda _, bad: penstock.connect("memory:", own=bad), "own", NO_BOOLS),
    ("connect tls", lambda _, bad: penstock.connect("penstock://h", tls=bad), "tls", [one for one in NO_BOOLS if one]),
    ("connect plogs", lambda _, bad: penstock.connect("penstock://h", plogs=bad), "plogs", [1, b"s3://b", ["s3://b"]]),
    ("connect tls_ca", lambda _, bad: penstock.connect("penstock://h", tls_ca=bad), "tls_ca", NO_PATHS),
    ("EventPointer stream", lambda _, bad: EventPointer(bad, 0, 0), "stream", NO_TEXTS),
    ("EventPointer segment", lambda _, bad: EventPointer(STREAM, bad, 0), "segment_id", NO_OFFSETS[:-1]),
    ("EventPointer offset", lambda _, bad: EventPointer(STREAM, 0, bad), "offset", NO_OFFSETS[:-1]),
    ("StreamCut stream", lambda _, bad: StreamCut(bad, ()), "stream", NO_TEXTS),
    ("StreamCut places", lambda _, bad: StreamCut(STREAM, bad), "places", [*NO_LISTS, "x", [(0, 0)], (0,), ((0, -1),)]),
    ("StreamCut.of", lambda _, bad: StreamCut.of(STREAM, bad), "offsets", [*NO_LISTS, "x", []]),
    ("StreamCut.of places", lambda _, bad: StreamCut.of(STREAM, {0: 0, 1: bad}), "places", NO_OFFSETS),
    ("StreamCut.of segments", lambda _, bad: StreamCut.of(STREAM, {0: 0, bad: 1}), "places", NO_OFFSETS),
    ("StreamCut.parse", lambda _, bad: StreamCut.parse(bad), "stream cut", NO_NAMES),
    ("EventPointer.parse", lambda _, bad: EventPointer.parse(bad), "event pointer", NO_NAMES),
    ("Position", lambda _, bad: Position(bad), "cuts", [*NO_LISTS, "x", [], (0,)]),
    ("Position.of", lambda _, bad: Position.of(bad), "offsets", [*NO_LISTS, "x", {0: 0}, {(1, 2, 3): 0}]),
    ("SegmentRange stream", lambda _, bad: SegmentRange(bad, 0, 0, 1), "stream", NO_TEXTS),
    ("SegmentRange segment", lambda _, bad: SegmentRange(STREAM, bad, 0, 1), "segment_id", NO_OFFSETS),
    ("SegmentRange start", lambda _, bad: SegmentRange(STREAM, 0, bad, 1), "start", NO_OFFSETS),
    ("SegmentRange end", lambda _, bad: SegmentRange(STREAM, 0, 2, bad), "end", [*NO_OFFSETS, 1]),
    ("ByTime", lambda _, bad: ByTime(bad), "seconds", NO_FIGURES),
    ("BySize", lambda _, bad: BySize(bad), "size_bytes", [None, *NO_COUNTS]),
    ("Fixed", lambda _, bad: Fixed(bad), "segments", NO_COUNTS),
    ("ByEventRate target", lambda _, bad: ByEventRate(bad), "target", NO_FIGURES),
    ("ByEventRate factor", lambda _, bad: ByEventRate(1, bad), "factor", [1, *NO_COUNTS]),
    ("ByDataRate segments", lambda _, bad: ByDataRate(1, min_segments=bad), "min_segments", [None, *NO_COUNTS]),
    ("StreamConfig scaling", lambda _, bad: StreamConfig(scaling=bad), "scaling", [None, *NO_OBJECTS]),
    ("StreamConfig retention", lambda _, bad: StreamConfig(retention=bad), "retention", NO_OBJECTS),
    ("StreamConfig tags", lambda _, bad: StreamConfig(tags=bad), "tags", [None, 0, "tag", ("",), (5,), ("x" * 257,)]),
]


def test_bad_input_is_refused_by_name_and_changes_nothing(store: Engine) -> None:
    """The caller sees which argument it was; an error from deep inside would be about our code, not theirs."""
    opened = Opened(store)
    before = opened.state()
    for name, call, argument, bads in CALLS:
        for number, bad in enumerate(bads):
            with in_case(f"{name}: value {number}, a {type(bad).__name__}"):
                with pytest.raises(BadArgument, match=argument) as caught:
                    call(opened, bad)
                assert len(str(caught.value)) < 1000
        assert opened.state() == before, name
    assert opened.writer.write_event(b"goes on", number=1).result(30.0) is not None
    assert [opened.reader.read_next_event(30.0).event for _ in range(2)] == [b"event", b"goes on"]
