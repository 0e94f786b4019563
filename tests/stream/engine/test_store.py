"""The store: streams made, found, changed and gone; cuts; bounded reading; what survives a restart."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import penstock
from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    DataTruncated,
    NoSuchEvent,
    NoSuchStream,
    StoreClosed,
    StoreLocked,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    WrongCut,
)
from penstock.log import PlogSizes
from penstock.model import (
    ByConsumption,
    ByDataRate,
    ByEventRate,
    BySize,
    ByTime,
    EventPointer,
    Fixed,
    StreamConfig,
    StreamCut,
)

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine
    from penstock.testing import ManualClock

STREAM = "plant/readings"
SMALL = PlogSizes(first=4096, largest=4096)


def write(store: Engine, events: list[bytes], *, keys: list[str] | None = None, stream: str = STREAM) -> None:
    with store.writer(stream) as writer:
        for number, event in enumerate(events):
            writer.write_event(event, key=keys[number] if keys else None).result()


def read(store: Engine, start: StreamCut | None = None, end: StreamCut | None = None) -> list[bytes]:
    return [event for batch in store.read(STREAM, start, end) for event in batch["event"].to_pylist()]


def test_a_stream_is_created_listed_and_shown(store: Engine) -> None:
    """What was asked for is what there is."""
    config = StreamConfig(retention=BySize(10_000), tags=("hot", "line-4"))
    info = store.create_stream(STREAM, segments=4, config=config)
    store.create_stream("plant/alarms")
    store.create_stream("office/mail")
    assert info == store.stream(STREAM)
    assert (info.name, info.state, info.epoch, info.config, info.size_bytes) == (STREAM, "active", 0, config, 0)
    assert [(one.low, one.high) for one in info.segments] == [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]
    assert info.head == info.tail == StreamCut.parse(f"{STREAM}:0@0,1@0,2@0,3@0")
    assert [one.name for one in store.streams()] == ["office/mail", "plant/alarms", STREAM]
    assert [one.name for one in store.streams("plant")] == ["plant/alarms", STREAM]
    assert store.streams("plan") == []


def test_a_name_is_taken_once(store: Engine) -> None:
    """Unless the caller says that it may be there; then it stays as it is."""
    store.create_stream(STREAM, segments=2)
    with pytest.raises(StreamExists, match=STREAM):
        store.create_stream(STREAM)
    assert len(store.create_stream(STREAM, segments=5, exist_ok=True).segments) == 2


@pytest.mark.parametrize("name", ["", "one", "a/b/c", "/b", "a/", "a b/c", "a/../c", "ä/b", None, 7, "a/" + "x" * 256])
def test_a_bad_name_is_refused(store: Engine, name: str) -> None:
    """Names end up in messages, addresses and commands."""
    with pytest.raises(BadArgument, match="scope/name"):
        store.create_stream(name)
    assert store.streams() == []


@pytest.mark.parametrize("segments", [0, -1, 10_001, 1.5, "4"])
def test_a_bad_number_of_segments_is_refused(store: Engine, segments: int) -> None:
    """Before anything is made."""
    with pytest.raises(BadArgument, match="segments"):
        store.create_stream(STREAM, segments=segments)


def test_segments_come_from_the_scaling_if_their_number_is_not_given(store: Engine) -> None:
    """Saying it twice, and differently, is a mistake."""
    fixed = StreamConfig(scaling=Fixed(3))
    assert len(store.create_stream("a/fixed", config=fixed).segments) == 3
    rate = StreamConfig(scaling=ByEventRate(100, min_segments=2))
    assert len(store.create_stream("a/rate", config=rate).segments) == 2
    assert len(store.create_stream("a/more", segments=5, config=rate).segments) == 5
    with pytest.raises(BadArgument, match="pass one of them"):
        store.create_stream("a/both", segments=2, config=fixed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: StreamConfig(scaling="fixed"),  # type: ignore[arg-type]
        lambda: StreamConfig(retention=60),  # type: ignore[arg-type]
        lambda: StreamConfig(timestamp_aggregation_timeout=0),
        lambda: StreamConfig(tags=("",)),
        lambda: StreamConfig(tags="tag"),  # type: ignore[arg-type]
        lambda: ByTime(-1),
        lambda: ByTime(float("nan")),
        lambda: BySize(0),
        lambda: ByEventRate(0),
        lambda: ByDataRate(10, factor=1),
        lambda: ByEventRate(10, min_segments=0),
        lambda: Fixed(0),
    ],
)
def test_a_bad_configuration_is_refused(make: object) -> None:
    """When it is made, and not when it is used for the first time."""
    assert callable(make)
    with pytest.raises(BadArgument):
        make()


def test_an_unknown_stream_is_told_by_name(store: Engine) -> None:
    """Every call says the same."""
    cut = StreamCut.parse("no/such:0@0")
    for call in (
        lambda: store.stream("no/such"),
        lambda: store.update_stream("no/such", StreamConfig()),
        lambda: store.seal_stream("no/such"),
        lambda: store.delete_stream("no/such"),
        lambda: store.scale_stream("no/such", [0], [(0.0, 1.0)]),
        lambda: store.truncate_stream("no/such", cut),
        lambda: store.head("no/such"),
        lambda: store.tail("no/such"),
        lambda: store.read("no/such"),
        lambda: store.segment_ranges("no/such"),
        lambda: store.fetch_event(EventPointer("no/such", 0, 0)),
        lambda: store.register_consumer("no/such", "c"),
    ):
        with pytest.raises(NoSuchStream, match="no/such"):
            call()


def test_a_configuration_is_changed_and_kept(folder: Path) -> None:
    """Also after a restart."""
    config = StreamConfig(scaling=ByDataRate(1e6, factor=4, min_segments=2), retention=ByConsumption(), tags=("a",))
    with open_store(folder) as store:
        store.create_stream(STREAM)
        assert store.update_stream(STREAM, config).config == config
    with open_store(folder) as store:
        assert store.stream(STREAM).config == config


def test_only_a_sealed_stream_is_deleted(store: Engine) -> None:
    """So no stream is deleted that is still written to; then the name is free again, and nothing of the old is left."""
    store.create_stream(STREAM)
    write(store, [b"old"])
    with pytest.raises(StreamNotSealed, match="seal"):
        store.delete_stream(STREAM)
    assert store.seal_stream(STREAM).state == "sealed"
    assert store.seal_stream(STREAM).segments == ()
    assert read(store) == [b"old"]
    store.delete_stream(STREAM)
    assert store.streams() == []
    store.create_stream(STREAM)
    assert read(store) == []
    write(store, [b"new"])
    assert read(store) == [b"new"]


def test_a_sealed_stream_is_changed_no_more(store: Engine) -> None:
    """It can be read, truncated and deleted."""
    store.create_stream(STREAM)
    write(store, [b"a", b"b"])
    store.seal_stream(STREAM)
    with pytest.raises(StreamSealed):
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    with pytest.raises(StreamSealed):
        store.update_stream(STREAM, StreamConfig())
    store.truncate_stream(STREAM, store.tail(STREAM))
    assert read(store) == []


def test_deleting_frees_the_logs(folder: Path) -> None:
    """Nothing is left on the disk, not even after a crash before it was done."""
    with open_store(folder, sizes=SMALL) as store:
        store.create_stream(STREAM, segments=3)
        write(store, [bytes(3000)] * 20)
        before = len(list((folder / "plogs").iterdir()))
        store.seal_stream(STREAM)
        store.delete_stream(STREAM)
    assert len(list((folder / "plogs").iterdir())) < before - 15


@pytest.mark.parametrize(
    ("seal", "ranges"),
    [
        ([], [(0.0, 1.0)]),
        ([0], []),
        ([0], [(0.0, 0.25)]),
        ([0], [(0.0, 0.3), (0.25, 0.5)]),
        ([0], [(0.0, 0.5), (0.5, 0.6)]),
        ([0, 0], [(0.0, 0.5)]),
        ([7], [(0.0, 0.5)]),
        ([0, 1], [(0.0, 0.5), (0.6, 1.0)]),
        ([0], [(0.5, 0.0)]),
        ([0], [(0.0, 0.5), (0.5, 0.5)]),
        ([0], "nonsense"),
        ([0], [(0.0, float("nan"))]),
    ],
)
def test_a_scale_that_does_not_fit_changes_nothing(
    store: Engine, seal: list[int], ranges: list[tuple[float, float]]
) -> None:
    """The key space has no gap and no overlap, ever."""
    before = store.create_stream(STREAM, segments=2)
    with pytest.raises(BadArgument):
        store.scale_stream(STREAM, seal, ranges)
    assert store.stream(STREAM) == before
    write(store, [b"goes on"], keys=["k"])


def test_scaling_gives_a_new_epoch_with_new_segments(store: Engine) -> None:
    """The old ones stay to be read."""
    store.create_stream(STREAM, segments=2)
    info = store.scale_stream(STREAM, [1], [(0.5, 0.7), (0.7, 1.0)])
    assert info.epoch == 1
    assert [(one.segment_id, one.low, one.high) for one in info.segments] == [
        (0, 0.0, 0.5),
        (2, 0.5, 0.7),
        (3, 0.7, 1.0),
    ]
    info = store.scale_stream(STREAM, [0, 2], [(0.0, 0.7)])
    assert info.epoch == 2
    assert [one.segment_id for one in info.segments] == [4, 3]


def test_everything_survives_a_restart(folder: Path) -> None:
    """Streams, epochs, heads, events."""
    with open_store(folder, sizes=SMALL) as store:
        store.create_stream(STREAM, segments=2)
        write(store, [b"%d" % number for number in range(50)], keys=[f"k{number}" for number in range(50)])
        store.scale_stream(STREAM, [0, 1], [(0.0, 1.0)])
        write(store, [b"later"])
        cut = store.tail(STREAM)
        write(store, [b"%d" % number for number in range(50, 60)])
        info, events = store.stream(STREAM), read(store)
    with open_store(folder, sizes=SMALL) as store:
        assert store.stream(STREAM) == info
        assert read(store) == events
        assert read(store, start=cut) == [b"%d" % number for number in range(50, 60)]
        store.truncate_stream(STREAM, cut)
    with open_store(folder, sizes=SMALL) as store:
        assert read(store) == [b"%d" % number for number in range(50, 60)]
        assert store.head(STREAM) == cut


def test_reading_is_between_two_cuts(store: Engine) -> None:
    """The end is fixed at the call; predecessors come before successors."""
    store.create_stream(STREAM)
    write(store, [b"1", b"2"])
    first = store.tail(STREAM)
    batches = store.read(STREAM)
    write(store, [b"3"])
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    second = store.tail(STREAM)
    write(store, [b"4", b"5"])
    assert [event for batch in batches for event in batch["event"].to_pylist()] == [b"1", b"2"]
    assert read(store, end=first) == [b"1", b"2"]
    assert read(store, start=first, end=second) == [b"3"]
    assert sorted(read(store, start=second)) == [b"4", b"5"]
    assert read(store)[:3] == [b"1", b"2", b"3"]


def test_a_batch_tells_where_each_event_is(store: Engine) -> None:
    """Segment and offset make a pointer."""
    store.create_stream(STREAM, segments=2)
    write(store, [b"%d" % number for number in range(20)], keys=[f"k{number}" for number in range(20)])
    for batch in store.read(STREAM):
        assert batch.schema.names == ["event", "key", "timestamp", "headers", "segment_id", "offset", "mark_time"]
        assert batch.schema.field("mark_time").type == pa.timestamp("ms", "UTC")
        for row in batch.to_pylist():
            pointer = EventPointer(STREAM, row["segment_id"], row["offset"])
            assert store.fetch_event(pointer) == row["event"]


def test_a_cut_may_lie_in_the_middle_of_a_block(store: Engine) -> None:
    """A reader stops after any event, whatever came together."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = writer.write_batch([b"%d" % number for number in range(10)]).result()
    middle = StreamCut.of(STREAM, {0: pointers[4].offset})
    assert read(store, end=middle) == [b"0", b"1", b"2", b"3"]
    assert read(store, start=middle) == [b"4", b"5", b"6", b"7", b"8", b"9"]
    assert read(store, start=middle, end=middle) == []
    store.truncate_stream(STREAM, middle)
    assert read(store) == [b"4", b"5", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("size", [1, 100, 10_000, 10_000_000])
def test_ranges_for_parallel_readers_are_the_whole_stream(store: Engine, size: int) -> None:
    """Together they give every event once, each small enough, and each can be sent to another process."""
    store.create_stream(STREAM, segments=3)
    events = [b"%d" % number * 50 for number in range(200)]
    write(store, events, keys=[f"k{number}" for number in range(200)])
    store.scale_stream(STREAM, [0, 1], [(0.0, 2 / 3)])
    write(store, events, keys=[f"k{number}" for number in range(200)])
    ranges = pickle.loads(pickle.dumps(store.segment_ranges(STREAM, approx_bytes=size)))
    found = [event for one in ranges for batch in store.read_range(one) for event in batch["event"].to_pylist()]
    assert sorted(found) == sorted(events * 2)
    assert found == read(store)
    if size == 10_000:
        assert all(one.size < 2 * size for one in ranges)
        assert len(ranges) > 8
    if size == 10_000_000:
        assert len(ranges) == 4


def test_a_bad_size_of_ranges_is_refused(store: Engine) -> None:
    """Nothing can be cut into nothing."""
    store.create_stream(STREAM)
    for size in (0, -1):
        with pytest.raises(BadArgument):
            store.segment_ranges(STREAM, approx_bytes=size)


def test_a_cut_that_is_not_the_streams_is_refused(store: Engine) -> None:
    """Of another stream, with a segment that never was, not covering the keys, past the tail, inside an event."""
    store.create_stream(STREAM, segments=2)
    store.create_stream("plant/other", segments=2)
    write(store, [b"event"] * 20, keys=[f"k{number}" for number in range(20)])
    tail = store.tail(STREAM).offsets
    for text, reason in (
        ("plant/other:0@0,1@0", "plant/other"),
        (f"{STREAM}:0@0,9@0", "no segment 9"),
        (f"{STREAM}:0@0", "every segment"),
        (f"{STREAM}:0@0,1@{tail[1] + 1}", "ends at"),
        (f"{STREAM}:0@{tail[0] - 1},1@0", "begins or ends"),
    ):
        cut = StreamCut.parse(text)
        for call in (
            lambda cut=cut: store.truncate_stream(STREAM, cut),
            lambda cut=cut: list(store.read(STREAM, start=cut)),
            lambda cut=cut: store.segment_ranges(STREAM, end=cut),
        ):
            with pytest.raises(WrongCut, match=reason):
                call()
    assert store.head(STREAM).offsets == {0: 0, 1: 0}
    with pytest.raises(BadArgument):
        store.truncate_stream(STREAM, "no cut")  # type: ignore[arg-type]


def test_truncating_frees_plogs_and_is_not_undone(store: Engine) -> None:
    """What lies before the head is gone for every call, and says so."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = [writer.write_event(bytes(3000)).result() for _ in range(60)]
    early, late = pointers[5], pointers[50]
    assert early is not None
    assert late is not None
    size = store.stream(STREAM).size_bytes
    old_head = store.head(STREAM)
    store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: late.offset}))
    assert store.stream(STREAM).size_bytes < size / 5
    assert len(read(store)) == 10
    with pytest.raises(DataTruncated):
        store.fetch_event(early)
    with pytest.raises(DataTruncated):
        store.truncate_stream(STREAM, old_head)
    with pytest.raises(DataTruncated):
        list(store.read(STREAM, start=old_head))
    assert store.fetch_event(late) == bytes(3000)


def test_truncating_past_a_scale_drops_the_old_segments(store: Engine) -> None:
    """A cut in the successors leaves nothing of the predecessors."""
    store.create_stream(STREAM, segments=2)
    write(store, [b"old"] * 4, keys=["a", "b", "c", "d"])
    old = store.tail(STREAM)
    store.scale_stream(STREAM, [0, 1], [(0.0, 1.0)])
    write(store, [b"new"])
    store.truncate_stream(STREAM, StreamCut.of(STREAM, {2: 0}))
    assert read(store) == [b"new"]
    with pytest.raises(DataTruncated):
        store.truncate_stream(STREAM, old)
    with pytest.raises(DataTruncated):
        store.fetch_event(EventPointer(STREAM, 0, 64))


def test_a_writer_is_remembered_though_all_it_wrote_was_truncated_away(store: Engine) -> None:
    """The table of writers moves on with the head, or a replay would write everything again."""
    store.create_stream(STREAM)
    with store.writer(STREAM, "w") as writer:
        for number in range(30):
            writer.write_event(bytes(1000), number=number).result()
    store.truncate_stream(STREAM, store.tail(STREAM))
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    store.truncate_stream(STREAM, store.tail(STREAM))
    with store.writer(STREAM, "w") as writer:
        assert writer.last_number == 29
        for number in range(31):
            writer.write_event(b"%d" % number, number=number)
    assert read(store) == [b"30"]


@pytest.mark.parametrize(
    "pointer", [EventPointer(STREAM, 0, 65), EventPointer(STREAM, 0, 0), EventPointer(STREAM, 5, 64)]
)
def test_a_pointer_to_nothing_is_refused(store: Engine, pointer: EventPointer) -> None:
    """It is never the nearest event, or a part of one."""
    store.create_stream(STREAM)
    write(store, [b"event", b"another"])
    with pytest.raises(NoSuchEvent):
        store.fetch_event(pointer)
    end = store.tail(STREAM).offsets[0]
    with pytest.raises(NoSuchEvent):
        store.fetch_event(EventPointer(STREAM, 0, end))
    with pytest.raises(BadArgument):
        store.fetch_event("text")  # type: ignore[arg-type]


def test_a_folder_has_one_owner(folder: Path) -> None:
    """Until a server shares it; the error says who has it."""
    with open_store(folder), pytest.raises(StoreLocked, match="process"):
        open_store(folder)
    open_store(folder).close()


def test_a_closed_store_is_closed(store: Engine) -> None:
    """Every call says so, and closing again is harmless."""
    store.create_stream(STREAM)
    writer = store.writer(STREAM)
    store.close()
    store.close()
    for call in (
        lambda: store.create_stream("a/b"),
        lambda: store.stream(STREAM),
        lambda: store.writer(STREAM),
        lambda: writer.write_event(b"late"),
    ):
        with pytest.raises(StoreClosed):
            call()


def test_closing_the_store_sends_off_what_its_writers_have(folder: Path) -> None:
    """A writer that is not closed loses nothing."""
    with open_store(folder) as store:
        store.create_stream(STREAM)
        store.writer(STREAM).write_event(b"event")
    with open_store(folder) as store:
        assert read(store) == [b"event"]


@pytest.mark.parametrize("address", ["", None, 7, "http://host:1"])
def test_a_bad_address_is_refused(address: str) -> None:
    """With what would do instead."""
    with pytest.raises(BadArgument, match="folder"):
        penstock.connect(address)


def test_connect_opens_a_folder_and_memory(tmp_path: Path) -> None:
    """The two commands of the README."""
    for address in (tmp_path / "new" / "folder", str(tmp_path / "other"), "memory:"):
        with penstock.connect(address) as store:
            store.create_stream(STREAM)
            assert [one.name for one in store.streams()] == [STREAM]


def test_the_catalog_is_read_again_from_a_snapshot(clock: ManualClock, folder: Path) -> None:
    """However often streams change, opening reads what there is, not what there was."""
    sizes = PlogSizes(first=64 << 10, largest=64 << 10)
    with open_store(folder, clock=clock, sizes=sizes) as store:
        store.create_stream(STREAM)
        config = [StreamConfig(tags=tuple(f"{'x' * 200}{turn}{tag}" for tag in range(100))) for turn in range(2)]
        for number in range(200):
            store.update_stream(STREAM, config[number % 2])
        log = store.catalog._log
        assert log.length > 4_000_000
        assert log.length - log.start < 1_500_000
    with open_store(folder, clock=clock, sizes=sizes) as store:
        assert store.stream(STREAM).config == config[1]


def test_consumers_can_be_looked_up(store: Engine) -> None:
    """A consumer that holds events back can be found, and forgotten."""
    store.create_stream("a/b", segments=2)
    assert store.consumers("a/b") == {}
    store.register_consumer("a/b", "two")
    store.register_consumer("a/b", "one", store.tail("a/b"))
    assert store.consumers("a/b") == {"one": store.tail("a/b"), "two": store.head("a/b")}
    store.unregister_consumer("a/b", "one")
    assert list(store.consumers("a/b")) == ["two"]
    with pytest.raises(NoSuchStream):
        store.consumers("a/c")


def test_consumer_has_the_time_at_which_it_moved(folder: Path, clock: ManualClock) -> None:
    """A dead one is told from one that is only behind by its age, also after a restart."""
    with open_store(folder, clock=clock) as store:
        store.create_stream("a/b")
        store.register_consumer("a/b", "dead")
        before = int(clock.now() * 1000)
        clock.advance(60)
        store.register_consumer("a/b", "alive")
        store.catalog._write_snapshot()
    with open_store(folder, clock=clock) as store:
        assert store.consumer_times("a/b") == {"alive": before + 60_000, "dead": before}


def test_a_consumer_with_a_lease_is_forgotten_unless_it_comes_back(store: Engine, clock: ManualClock) -> None:
    """A consumer that never comes back must not hold events for ever; one that renews, or has no lease, is kept."""
    store.create_stream("a/b", config=StreamConfig(retention=ByConsumption()))
    with store.writer("a/b") as writer:
        writer.write_batch([b"1", b"2"], keys=["k", "k"])
    begin, end = store.head("a/b"), store.tail("a/b")
    store.register_consumer("a/b", "gone", begin, lease_s=60)
    store.register_consumer("a/b", "renewed", end, lease_s=60)
    store.register_consumer("a/b", "named", end)
    clock.advance(59)
    store.register_consumer("a/b", "renewed", end, lease_s=60)
    store.maintain()
    assert [*store.consumers("a/b")] == ["gone", "named", "renewed"]
    clock.advance(1)
    store.maintain()
    assert [*store.consumers("a/b")] == ["named", "renewed"]
    with pytest.raises(BadArgument, match="lease_s"):
        store.register_consumer("a/b", "c", lease_s=0)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_lease_goes_on_when_the_store_is_opened_again(folder: Path, clock: ManualClock, snapshot: bool) -> None:
    """Its end is on record, in the catalog's log and in its snapshot."""
    with open_store(folder, clock=clock) as store:
        store.create_stream("a/b")
        store.register_consumer("a/b", "gone", lease_s=60)
        if snapshot:
            store.catalog._write_snapshot()
    clock.advance(59)
    with open_store(folder, clock=clock) as store:
        store.maintain()
        assert [*store.consumers("a/b")] == ["gone"]
        clock.advance(1)
        store.maintain()
        assert [*store.consumers("a/b")] == []
