"""What every event carries: its key, its headers, and when it was appended, on every way in and out."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.embedded import open_store
from penstock.errors import BadArgument
from penstock.log import PlogSizes
from penstock.model import ByTime, StreamConfig, StreamCut
from penstock.testing import ManualClock
from tests.stream.harness import STREAM, inside

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model import StreamPosition
    from penstock.stream import Engine

Row = tuple[bytes | None, bytes | None, dict[str, bytes]]
LARGE = bytes(2 << 20)


def rows_of(store: Engine, **bounds: Any) -> list[Row]:  # noqa: ANN401 - as read() takes them
    return [
        (row["event"], row["key"], dict(row["headers"] or ()))
        for batch in store.read(STREAM, max_event_size=4 << 20, **bounds)
        for row in batch.to_pylist()
    ]


def reads_of(store: Engine) -> list[Row]:
    group = store.create_reader_group("g", [STREAM])
    with group.reader("r", max_event_size=4 << 20) as reader:
        found = []
        while (read := reader.read_next_event(timeout=0)) is not None:
            found.append((read.event, read.key, read.headers))
    group.delete()
    return found


def test_every_way_in_and_out_keeps_key_and_headers(store: Engine) -> None:
    """Before, an event came back without its key: who reads it could not tell whose it is."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_event(b"1", key="text", headers={"trace": b"\0\xff", "": b""})
        writer.write_event(b"2", key=b"\xff\0bytes")
        writer.write_event(b"3")
        writer.write_batch([b"4", b"5"], keys=["x", None], headers=[None, {"h": b"v"}])
        writer.write_batch([bytes(60_000)] * 2, keys=pa.array(["big", "batch"]))
        writer.write_event(LARGE, key="large", headers={"kind": b"film"})
        with writer.begin_write_event("file", headers={"name": b"a"}) as out:
            out.write(LARGE)
        with writer.begin_write_event("small file", headers={"name": b"b"}) as out:
            out.write(b"6")
    with store.transactional_writer(STREAM) as other, other.begin() as transaction:
        transaction.write_event(b"7", key="t", headers={"h": b"1"})
        transaction.write_batch([b"8", b"9"], keys="all", headers=[{"h": b"2"}, None])
        transaction.write_event(LARGE, key="tl", headers={"h": b"3"})
        with transaction.begin_write_event("tf", headers={"h": b"4"}) as out:
            out.write(LARGE)
    expected: list[Row] = [
        (b"1", b"text", {"trace": b"\0\xff", "": b""}),
        (b"2", b"\xff\0bytes", {}),
        (b"3", None, {}),
        (b"4", b"x", {}),
        (b"5", None, {"h": b"v"}),
        (bytes(60_000), b"big", {}),
        (bytes(60_000), b"batch", {}),
        (LARGE, b"large", {"kind": b"film"}),
        (LARGE, b"file", {"name": b"a"}),
        (b"6", b"small file", {"name": b"b"}),
        (b"7", b"t", {"h": b"1"}),
        (b"8", b"all", {"h": b"2"}),
        (b"9", b"all", {}),
        (LARGE, b"tl", {"h": b"3"}),
        (LARGE, b"tf", {"h": b"4"}),
    ]
    assert rows_of(store) == expected
    assert reads_of(store) == expected
    group = store.create_reader_group("files", [STREAM])
    with group.reader("r") as reader:
        for event, key, headers in expected:
            file = reader.read_next_event_as_stream(timeout=0)
            assert file is not None
            assert (file.read(), file.key, file.headers) == (event, key, headers)
            again = store.fetch_event_as_stream(file.pointer)
            assert (again.key, again.headers, again.timestamp) == (key, headers, file.timestamp)
    with store.create_reader_group("batches", [STREAM]).reader("r", max_event_size=4 << 20) as reader:
        batches = list(iter(lambda: reader.read_batch(timeout=0), None))
    assert [key for batch in batches for key in batch["key"].to_pylist()] == [key for _, key, _ in expected]
    found = [dict(one or ()) for batch in batches for one in batch["headers"].to_pylist()]
    assert found == [headers for _, _, headers in expected]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_dictionary_of_keys_may_hold_null(store: Engine, *, chunked: bool) -> None:
    """Other tools encode a missing value as one of the dictionary, or of the indices; both are events without a key."""
    store.create_stream(STREAM)
    dictionary: Any = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0]), pa.array(["a", None, "b"]))
    with store.writer(STREAM) as writer:
        writer.write_batch(
            [b"%d" % n for n in range(5)], keys=pa.chunked_array([dictionary]) if chunked else dictionary
        )
    assert [(event, key) for event, key, _ in rows_of(store)] == [
        (b"0", b"a"), (b"1", None), (b"2", None), (b"3", b"b"), (b"4", b"a"),
    ]  # fmt: skip


def test_a_header_may_be_repeated_on_every_way_in_and_out(store: Engine) -> None:
    """As in HTTP and Kafka: a name that is there twice has two values, and none of them is lost."""
    store.create_stream(STREAM)
    pairs = (("d", b"1"), ("e", b""), ("d", b"2"), ("d", b"1"))
    with store.writer(STREAM) as writer:
        writer.write_event(b"1", key="k", headers=pairs)
        writer.write_batch([b"2", b"3"], headers=[list(pairs), None])
        writer.write_event(LARGE, headers=pairs)
        with writer.begin_write_event("k", headers=pairs) as out:
            out.write(LARGE)
    with store.writer(STREAM, "numbered") as writer:
        writer.write_event(b"4", number=1, headers=pairs)
    with store.transactional_writer(STREAM) as other, other.begin() as transaction:
        transaction.write_event(b"5", headers=pairs)
        transaction.write_batch([b"6"], headers=[pairs])
        transaction.write_event(LARGE, headers=pairs)
        with transaction.begin_write_event(headers=pairs) as out:
            out.write(LARGE)
    found = [row["headers"] for batch in store.read(STREAM) for row in batch.to_pylist()]
    assert found == [list(pairs)] * 2 + [None] + [list(pairs)] * 7
    with store.create_reader_group("events", [STREAM]).reader("r", max_event_size=4 << 20) as reader:
        reads = list(iter(lambda: reader.read_next_event(timeout=0), None))
    assert [read.header_pairs for read in reads] == [tuple(one or ()) for one in found]
    assert [read.headers for read in reads] == [dict(one or ()) for one in found], "the last value of a name"
    with store.create_reader_group("files", [STREAM]).reader("r") as reader:
        files = list(iter(lambda: reader.read_next_event_as_stream(timeout=0), None))
    assert [(file.header_pairs, file.headers) for file in files] == [
        (read.header_pairs, read.headers) for read in reads
    ]


def test_a_range_that_begins_at_a_large_event_has_its_key(store: Engine) -> None:
    """Parallel readers get parts of a segment, which are cut where the chunks of a large event begin."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        for number in range(3):
            writer.write_event(LARGE, key=f"k{number}", headers={"n": b"%d" % number})
    parts = store.segment_ranges(STREAM, approx_bytes=1 << 20)
    assert len(parts) > 2
    rows = [row for part in parts for batch in store.read_range(part) for row in batch.to_pylist()]
    assert [(row["key"], row["headers"]) for row in rows] == [(b"k%d" % n, [("n", b"%d" % n)]) for n in range(3)]


def test_keys_and_headers_survive_a_scale_that_overtakes_them(store: Engine) -> None:
    """Events whose segment ended are placed again, one by one, with all they carry."""
    store.create_stream(STREAM)
    with store.writer(STREAM, writer_id="w") as writer:
        writer.write_event(b"0", key="a").result()
        store.scale_stream(STREAM, seal=[0], ranges=[(0.0, 0.5), (0.5, 1.0)])
        writer.write_event(b"1", key="a", headers={"h": b"1"})
        writer.write_batch([bytes(40_000)] * 3, keys=["a", "b", None], headers=[{"h": b"2"}, None, None])
    found = sorted(rows_of(store), key=lambda row: (row[0] or b"", row[1] or b""))
    assert [(key, headers) for _, key, headers in found] == [
        (None, {}),
        (b"a", {"h": b"2"}),
        (b"b", {}),
        (b"a", {}),
        (b"a", {"h": b"1"}),
    ]


def test_numbered_events_keep_their_keys(store: Engine) -> None:
    """A source with its own numbers goes another way through the writer."""
    store.create_stream(STREAM, segments=4)
    for _ in range(2):
        with store.writer(STREAM, writer_id="w") as writer:
            for number in range(8):
                key = None if number % 2 else f"k{number}"
                writer.write_event(b"%d" % number, key=key, number=number, headers={"n": b"%d" % number})
            writer.write_event(LARGE, key="large", number=8, headers={"n": b"8"})
    rows = sorted(rows_of(store), key=lambda row: row[2]["n"])
    assert [key for _, key, _ in rows] == [b"k0", None, b"k2", None, b"k4", None, b"k6", None, b"large"]


def test_stream_that_does_not_keep_keys_still_goes_by_them(store: Engine) -> None:
    """Keys may be personal data, or longer than the events: then they decide the segment, and are not stored."""
    store.create_stream(STREAM, segments=2, config=StreamConfig(keep_keys=False))
    with store.writer(STREAM) as writer:
        for number in range(10):
            writer.write_event(b"%d" % number, key="same", headers={"h": b"1"})
        writer.write_batch([b"10", b"11"], keys=["same", "same"])
        writer.write_event(LARGE, key="same")
    with store.transactional_writer(STREAM) as other, other.begin() as transaction:
        transaction.write_event(b"12", key="same")
        transaction.write_batch([b"13"], keys=["same"])
        transaction.write_event(LARGE, key="same")
    rows = rows_of(store)
    assert len(rows) == 16
    assert all(key is None for _, key, _ in rows)
    assert len({row["segment_id"] for batch in store.read(STREAM) for row in batch.to_pylist()}) == 1
    with pytest.raises(BadArgument, match="keep_keys"):
        StreamConfig(keep_keys=1)  # type: ignore[arg-type]


def test_wrong_keys_and_headers_leave_nothing_behind(store: Engine) -> None:
    """A refusal comes before anything is written, for events and for batches alike."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer, store.transactional_writer(STREAM) as other, other.begin() as transaction:
        targets: list[Any] = [writer, transaction]
        for target in targets:
            for bad in ({"key": 1}, {"key": "x" * 70_000}, {"headers": {"a": "b"}}, {"headers": [("a", "b")]}):
                with pytest.raises(BadArgument):
                    target.write_event(b"e", **bad)
                with pytest.raises(BadArgument):
                    target.write_event(LARGE, **bad)
                with pytest.raises(BadArgument):
                    target.begin_write_event(**bad)
            wrongs: list[dict[str, Any]] = [
                {"keys": [1, 2]},
                {"keys": ["a"]},
                {"headers": [{}]},
                {"headers": [{"a": 1}, {}]},
            ]
            for wrong in wrongs:
                with pytest.raises(BadArgument):
                    target.write_batch([b"1", b"2"], **wrong)
    assert rows_of(store) == []


def test_timestamp_is_the_owners_time_of_appending(store: Engine, clock: ManualClock) -> None:
    """A client's clock may be wrong; the owner's is one for all events of a store."""
    store.create_stream(STREAM)
    moments = []
    with store.writer(STREAM) as writer:
        for _ in range(3):
            moments.append(int(clock.now() * 1000))
            writer.write_event(b"e").result()
            clock.advance(10)
        moments.append(int(clock.now() * 1000))
        writer.write_event(LARGE)
    found = [row["timestamp"] for batch in store.read(STREAM) for row in batch.to_pylist()]
    assert [int(one.timestamp() * 1000) for one in found] == moments
    group = store.create_reader_group("g", [STREAM])
    with group.reader("r", max_event_size=4 << 20) as reader:
        assert [reader.read_next_event(timeout=0).timestamp for _ in range(4)] == moments  # type: ignore[union-attr]


# Places by time


def test_time_is_a_place_to_start_and_to_end(store: Engine, clock: ManualClock) -> None:
    """A user who looks for what came in since this morning has a time, not a cut."""
    store.create_stream(STREAM, segments=2)
    cuts: dict[int, StreamCut] = {}
    with store.writer(STREAM) as writer:
        for hour in range(6):
            cuts[int(clock.now() * 1000)] = store.tail(STREAM)
            for number in range(40):
                writer.write_event(b"%d.%d" % (hour, number), key=str(number))
            writer.flush()
            if hour == 2:
                store.scale_stream(STREAM, seal=[0], ranges=[(0.0, 0.25), (0.25, 0.5)])
            clock.advance(3600)
    for hour, (time_ms, cut) in enumerate(cuts.items()):
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
        later = {event for event, *_ in rows_of(store, start=moment)}
        assert later == {b"%d.%d" % (one, number) for one in range(hour, 6) for number in range(40)}
        assert {event for event, *_ in rows_of(store, end=time_ms)}.isdisjoint(later)
        assert len(rows_of(store, end=time_ms)) == 40 * hour
        assert rows_of(store, start=store.cut_at_time(STREAM, time_ms)) == rows_of(store, start=cut)
        assert store.cut_at_time(STREAM, moment - timedelta(seconds=1)) == store.cut_at_time(STREAM, time_ms)
        group = store.create_reader_group(f"g{hour}", [STREAM], start=moment)
        assert group.lag().events == len(later)
        group.reset(moment + timedelta(hours=1))
        assert group.lag().events == max(0, len(later) - 40)
    assert store.cut_at_time(STREAM, 0) == store.head(STREAM)
    assert rows_of(store, start=datetime.now(UTC) + timedelta(days=365 * 100)) == []
    local = datetime.fromtimestamp(list(cuts)[3] / 1000)  # noqa: DTZ006 - without a zone it is local time
    assert len(rows_of(store, start=local)) == 120


def test_every_place_is_accepted_to_truncate_and_to_register(store: Engine, clock: ManualClock) -> None:
    """No caller should have to look up the cut of a time, or of the tail, only to pass it on."""
    store.create_stream(STREAM)
    cuts: list[StreamCut] = []
    with store.writer(STREAM) as writer:
        for _ in range(4):
            cuts.append(store.tail(STREAM))
            writer.write_event(b"event").result()
            clock.advance(3600)
    now_ms = int(clock.now() * 1000)
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    places: list[tuple[StreamPosition, StreamCut]] = [
        ("head", cuts[0]),
        (cuts[1], cuts[1]),
        (moment - timedelta(hours=2), cuts[2]),
        (now_ms - 3_600_000, cuts[3]),
        ("tail", store.tail(STREAM)),
    ]
    for place, cut in places:
        store.register_consumer(STREAM, "consumer", place)
        assert store.consumers(STREAM) == {"consumer": cut}
        assert store.truncate_stream(STREAM, place).head == cut


def test_transaction_counts_from_its_commit(store: Engine, clock: ManualClock) -> None:
    """No reader could see it before; a reader that has read up to a time must not miss what was committed later."""
    store.create_stream(STREAM)
    with store.transactional_writer(STREAM) as writer, store.writer(STREAM) as other:
        transaction = writer.begin(lease=3600)
        transaction.write_batch([bytes(100_000)] * 4)  # which is written to a log of its own
        transaction.write_event(LARGE)
        clock.advance(60)
        other.write_event(b"meanwhile").result()
        between = int(clock.now() * 1000) + 1
        clock.advance(60)
        transaction.commit()
        clock.advance(60)
        other.write_event(b"afterwards").result()
    assert [event for event, *_ in rows_of(store, end=between)] == [b"meanwhile"]
    assert len(rows_of(store, start=between)) == 6
    assert len(rows_of(store, start=int(clock.now() * 1000))) == 1


def test_time_of_writers_and_of_appending_are_told_apart(store: Engine, clock: ManualClock) -> None:
    """With watermarks cut_at_time goes by the writers' time, unless it is asked for the other."""
    store.create_stream(STREAM)
    with store.writer(STREAM, writer_id="w") as writer:
        writer.write_event(b"1").result()
        writer.note_time(1000)
        writer.flush()
        for _ in range(3):
            clock.advance(2)
            inside(store).maintain()
        writer.write_event(b"2").result()
        assert store.watermark(STREAM) is not None
        now = int(clock.now() * 1000)
        assert store.cut_at_time(STREAM, 1000) != store.head(STREAM)
        assert store.cut_at_time(STREAM, 1000, by="append") == store.head(STREAM)
        assert [event for event, *_ in rows_of(store, start=now)] == [b"2"]
    with pytest.raises(BadArgument, match="invalid by"):
        store.cut_at_time(STREAM, 1, by="moon")  # type: ignore[arg-type]
    for wrong in ("10:00", 1.5, -1, True, datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(BadArgument):
            store.cut_at_time(STREAM, wrong)  # type: ignore[arg-type]
        with pytest.raises(BadArgument):
            store.read(STREAM, start=wrong)  # type: ignore[arg-type]


def test_seconds_are_refused_where_milliseconds_of_appending_are_meant(store: Engine) -> None:
    """``time.time()`` is in seconds: as milliseconds it lies in 1970, and the whole stream would be read again."""
    store.create_stream(STREAM)
    group = store.create_reader_group("g", [STREAM])
    seconds = 1_794_803_987
    with store.writer(STREAM, writer_id="w") as writer:
        writer.note_time(seconds)  # writers choose their own unit
    for place in (
        lambda: store.read(STREAM, start=seconds),
        lambda: store.segment_ranges(STREAM, end=seconds),
        lambda: store.cut_at_time(STREAM, seconds, by="append"),
        lambda: store.create_reader_group("h", [STREAM], start=seconds),
        lambda: group.reset(seconds),
    ):
        with pytest.raises(BadArgument, match=r"1794803987: it looks like seconds, use milliseconds since 1970"):
            place()
    assert store.cut_at_time(STREAM, seconds, by="watermark") == store.head(STREAM)


def test_a_start_behind_the_end_is_refused(store: Engine) -> None:
    """No rows and no word would look like an empty stream."""
    store.create_stream(STREAM, segments=2)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"a", b"b"], keys=["1", "2"]).result()
    with pytest.raises(BadArgument, match="is behind the end"):
        store.read(STREAM, start="tail", end="head")
    store.scale_stream(STREAM, seal=[0, 1], ranges=[(0.0, 1.0)])
    with pytest.raises(BadArgument, match="is behind the end"):
        store.read(STREAM, start=store.tail(STREAM), end=store.head(STREAM))
    assert len(rows_of(store, start="head", end="tail")) == 2
    group = store.create_reader_group("g", [STREAM], start="tail")
    assert group.lag().events == 0
    group.reset("head")
    assert group.lag().events == 2


def test_timestamps_go_up_whoever_writes(tmp_path: Path) -> None:
    """Writers and transactions of many threads meet at a segment: the time is taken when one of them has its turn."""
    with open_store(tmp_path) as store:
        store.create_stream(STREAM)

        def write(number: int) -> None:
            with store.writer(STREAM) as writer:
                for _ in range(60):
                    writer.write_event(b"%d" % number).result()

        def commit() -> None:
            with store.transactional_writer(STREAM) as writer:
                for size in (10, 300_000) * 15:
                    with writer.begin() as transaction:
                        transaction.write_event(bytes(size))

        tasks = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        tasks += [threading.Thread(target=commit) for _ in range(2)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        assert sum(map(len, times_of(store).values())) == 180


def test_timestamps_are_the_same_while_plogs_are_merged(tmp_path: Path) -> None:
    """A reader that is under way may get a block from before and ask for its time afterwards."""
    clock = ManualClock()
    with open_store(tmp_path, clock=clock, sizes=PlogSizes(first=4096, largest=64 << 10)) as store:
        store.create_stream(STREAM)
        with store.transactional_writer(STREAM) as writer:
            transactions = [writer.begin(lease=10_000) for _ in range(12)]
            for transaction in transactions:
                transaction.write_event(b"e")
                transaction.prepare()
            clock.advance(1800)
            committed = int(clock.now() * 1000)
            for transaction in transactions:
                transaction.commit()
        segment = store.segments.get(STREAM, 0)
        plogs = len(segment.plog_starts())
        reading = segment.blocks(0)
        times = [next(reading).time_ms for _ in range(2)]
        clock.advance(60)
        store.maintain()
        assert len(segment.plog_starts()) < plogs, "they were merged"
        times += [block.time_ms for block in reading]
        assert times == [committed] * 12
        assert [block.time_ms for block in segment.blocks(0)] == times


def test_a_stream_that_is_told_not_to_keep_keys_any_more_keeps_none(store: Engine) -> None:
    """Writers that are open go on, without the keys."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_event(b"1", key="k").result()
        inside(store).update_stream(STREAM, StreamConfig(keep_keys=False))
        writer.write_event(b"2", key="k", headers={"h": b"v"}).result()
        writer.write_batch([bytes(100_000)], keys=["k"]).result()
        writer.write_event(LARGE, key="k").result()
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        writer.write_event(b"3", key="k").result()
    rows = rows_of(store)
    assert [key for _, key, _ in rows] == [b"k", None, None, None, None]
    assert rows[1] == (b"2", None, {"h": b"v"})


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("is_prepared", [True, False])
def test_an_open_transaction_keeps_no_keys_of_events_that_wait_when_its_stream_is_told_so(
    store: Engine, segments: int, *, is_prepared: bool
) -> None:
    """A transaction may be open for hours: what it has not written yet, it writes without keys."""
    store.create_stream(STREAM, segments=segments)
    with store.transactional_writer(STREAM) as writer:
        transaction = writer.begin()
        for number in range(8):
            transaction.write_event(b"%d" % number, key=f"k{number}")
        inside(store).update_stream(STREAM, StreamConfig(keep_keys=False))
        transaction.write_event(b"8", key="k8")
        if is_prepared:
            transaction.write_event(LARGE, key="large")
            transaction.prepare()
        transaction.commit()
    assert [key for _, key, _ in rows_of(store)] == [None] * (9 + is_prepared)


def test_keys_that_a_transaction_has_in_its_logs_stay(store: Engine) -> None:
    """The limit that the documents tell: these blocks are the stream's, as they are, at the commit."""
    store.create_stream(STREAM)
    with store.transactional_writer(STREAM) as writer, writer.begin() as transaction:
        transaction.write_batch([bytes(300_000)], keys=["before"])
        inside(store).update_stream(STREAM, StreamConfig(keep_keys=False))
        transaction.write_batch([bytes(300_000)], keys=["behind"])
    assert [key for _, key, _ in rows_of(store)] == [b"before", None]


# Counts


def life(store: Engine, clock: ManualClock, chance: random.Random) -> None:
    """Do anything that changes how many events there are."""
    kind = chance.randrange(10)
    key = str(chance.randrange(10))
    if kind < 3:
        with store.writer(STREAM) as writer:
            for _ in range(chance.randrange(30)):
                writer.write_event(bytes(chance.randrange(200)), key=chance.choice([None, key]))
            writer.write_batch([bytes(50)] * chance.randrange(2000), keys=None)
    elif kind < 5:
        with store.transactional_writer(STREAM) as tw, tw.begin() as transaction:
            transaction.write_batch([bytes(80)] * chance.choice([1, 10, 5000]), keys=key)
            if chance.random() < 0.3:
                transaction.write_event(bytes((1 << 20) + 5), key=key)
                transaction.write_event(b"behind", key=key)
    elif kind < 6:
        with store.writer(STREAM) as writer:
            writer.write_event(bytes((1 << 20) + 1), key=key)
    elif kind < 7:
        segments = store.stream(STREAM).segments
        one = chance.choice(segments)
        middle = (one.low + one.high) / 2
        store.scale_stream(STREAM, seal=[one.segment_id], ranges=[(one.low, middle), (middle, one.high)])
    elif kind < 8:
        store.truncate_stream(STREAM, any_cut(store, chance))
    else:
        before = times_of(store)
        clock.advance(60)
        store.maintain()  # which merges small plogs
        assert times_of(store) == before
    clock.advance(chance.random() * 10)


def times_of(store: Engine) -> dict[int, list[datetime]]:
    """Return the timestamps of each segment, which go up."""
    found: dict[int, list[datetime]] = {}
    for batch in store.read(STREAM):
        for row in batch.select(["segment_id", "timestamp"]).to_pylist():
            found.setdefault(row["segment_id"], []).append(row["timestamp"])
    assert all(times == sorted(times) for times in found.values())
    return found


def any_cut(store: Engine, chance: random.Random) -> StreamCut:
    """Return a cut somewhere in the stream, where an event begins."""
    cut = store.head(STREAM)
    for _ in range(chance.randrange(3)):
        cut = store.next_cut(STREAM, cut, max_events=chance.randrange(1, 800)).cut
    return cut


def events_between(store: Engine, start: StreamCut, end: StreamCut) -> int:
    return sum(map(len, store.read(STREAM, start, end)))


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_exact_whatever_happened_to_the_stream(seed: int, tmp_path: Path) -> None:
    """Counting is one read a segment: it must agree with reading everything, also after the store was opened again."""
    chance, clock = random.Random(seed), ManualClock()
    for _ in range(3):
        with open_store(tmp_path, clock=clock, sizes=PlogSizes(first=4096, largest=64 << 10)) as store:
            store.create_stream(STREAM, segments=2, exist_ok=True)
            group = store.create_reader_group(f"g{chance.random()}", [STREAM])
            for _ in range(8):
                life(store, clock, chance)
                head, tail = store.head(STREAM), store.tail(STREAM)
                assert store.stream(STREAM).events == events_between(store, head, tail)
                cut = any_cut(store, chance)
                group.reset(cut)
                assert group.lag().events == events_between(store, cut, tail)
            group.delete()


def test_count_goes_on_behind_events_that_are_all_gone(tmp_path: Path) -> None:
    """Where even the last block was truncated away, somebody still has to know how many there were."""
    clock = ManualClock()
    for _ in range(3):
        with open_store(tmp_path, clock=clock, sizes=PlogSizes(first=4096, largest=4096)) as store:
            store.create_stream(STREAM, config=StreamConfig(retention=ByTime(1.0)), exist_ok=True)
            group = store.create_reader_group(f"g{clock.now()}", [STREAM])
            with store.writer(STREAM) as writer:
                writer.write_batch([bytes(100)] * 1000).result()
                assert group.lag().events == store.stream(STREAM).events
                store.truncate_stream(STREAM, store.tail(STREAM))
                assert (store.stream(STREAM).events, group.lag().events) == (0, 0)
                writer.write_batch([bytes(100)] * 7).result()
                assert (store.stream(STREAM).events, group.lag().events) == (7, 7)
            store.truncate_stream(STREAM, store.tail(STREAM))
            clock.advance(10)
