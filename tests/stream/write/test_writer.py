"""The writer: order, acknowledgements, numbers, scaling under its hands, failures."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    DiskFull,
    NoSuchStream,
    StoreClosed,
    StreamSealed,
    WriterFailed,
    WriterFenced,
)
from penstock.stream import EVENT_SIZE_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

STREAM = "plant/readings"


def all_events(store: Engine, stream: str = STREAM) -> list[bytes]:
    return [event for batch in store.read(stream) for event in batch["event"].to_pylist()]


def of_key(events: list[bytes], key: str) -> list[bytes]:
    return [event for event in events if event.startswith(f"{key}:".encode())]


def halves(store: Engine) -> None:
    """Split the first segment in two."""
    first = store.stream(STREAM).segments[0]
    middle = (first.low + first.high) / 2
    store.scale_stream(STREAM, [first.segment_id], [(first.low, middle), (middle, first.high)])


def test_an_acknowledgement_gives_the_place_of_its_event(store: Engine) -> None:
    """A program that keeps the pointer finds the event again, without reading the stream."""
    store.create_stream(STREAM, segments=3)
    with store.writer(STREAM) as writer:
        acks = [writer.write_event(f"event {number}".encode(), key=f"key {number % 7}") for number in range(50)]
        writer.flush()
    for number, ack in enumerate(acks):
        assert ack.done()
        pointer = ack.result()
        assert pointer is not None
        assert store.fetch_event(pointer) == f"event {number}".encode()


def test_nothing_is_acknowledged_before_a_flush_and_then_all_of_it(store: Engine) -> None:
    """Waiting for one event sends off all that were written before it, so one sync serves them all."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        first, second = writer.write_event(b"1"), writer.write_event(b"2")
        second.result()
        assert first.done()


def test_the_pump_flushes_events_without_a_waiting_caller(store: Engine) -> None:
    """An event that was written is on its way, though the writer neither waits nor flushes."""
    store.create_stream(STREAM)
    done = threading.Event()
    with store.writer(STREAM) as writer:
        writer.write_event(b"alone").add_done_callback(lambda _: done.set())
        assert done.wait(30)


def test_a_callback_on_what_is_done_comes_at_once(store: Engine) -> None:
    """It must not depend on who was faster."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        ack = writer.write_event(b"event")
        ack.result()
        found: list[object] = []
        ack.add_done_callback(found.append)
    assert found == [ack]


@pytest.mark.parametrize("kind", ["list", "arrow", "chunked", "large", "texts"])
def test_a_batch_is_its_events(store: Engine, kind: str) -> None:
    """Whatever the caller has is taken as it is."""
    texts = [f"event {number}" for number in range(300)] + [""]
    events = [text.encode() for text in texts]
    given_events = {
        "list": events,
        "arrow": pa.array(events, pa.binary()).slice(0),
        "chunked": pa.chunked_array([events[:100], events[100:]], pa.binary()),
        "large": pa.array(events, pa.large_binary()),
        "texts": pa.array(texts),
    }[kind]
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = writer.write_batch(given_events).result()
    assert all_events(store) == events
    assert [store.fetch_event(pointer) for pointer in pointers[::50]] == events[::50]
    assert len(pointers) == len(events)


def test_an_array_without_values_needs_no_offsets(store: Engine) -> None:
    """Arrow permits it, and others make such arrays."""
    store.create_stream(STREAM)
    nothing = pa.Array.from_buffers(pa.binary(), 0, [None, None, pa.py_buffer(b"")])
    with store.writer(STREAM) as writer, store.transactional_writer(STREAM).begin() as transaction:
        assert len(writer.write_batch(nothing).result()) == 0
        assert len(writer.write_batch(nothing, nothing).result()) == 0
        transaction.write_batch(nothing, nothing)
    assert all_events(store) == []


@pytest.mark.parametrize("size", [10, 3000])
def test_a_batch_with_keys_goes_where_its_keys_belong(store: Engine, size: int) -> None:
    """Small and large batches take different ways; a key's events must meet on both."""
    store.create_stream(STREAM, segments=4)
    keys = [f"k{number % 11}" for number in range(400)]
    events = [f"{key}:{number}".encode().ljust(size) for number, key in enumerate(keys)]
    with store.writer(STREAM) as writer:
        writer.write_event(b"k3:before", key="k3")
        pointers = writer.write_batch(events, keys).result()
        writer.write_event(b"k3:after", key="k3")
    assert [store.fetch_event(pointer) for pointer in pointers] == events
    found = all_events(store)
    for key in set(keys):
        expected = [event for event, own in zip(events, keys, strict=True) if own == key]
        if key == "k3":
            expected = [b"k3:before", *expected, b"k3:after"]
        assert of_key(found, key) == expected
    assert len({pointer.segment_id for pointer in pointers}) == 4


def test_batches_and_events_mix_in_order(store: Engine) -> None:
    """A large batch is not copied, but it keeps its place between the events around it."""
    store.create_stream(STREAM)
    large = [bytes([number]) * 1000 for number in range(100)]
    with store.writer(STREAM) as writer:
        writer.write_event(b"first", key="k")
        writer.write_batch(large, ["k"] * 100)
        writer.write_event(b"middle", key="k")
        writer.write_batch([b"small"], ["k"])
        writer.write_batch(large, ["k"] * 100)
    assert all_events(store) == [b"first", *large, b"middle", b"small", *large]


def test_a_batch_larger_than_a_block_lies_in_several(store: Engine) -> None:
    """There is no limit to a batch but the caller's memory."""
    store.create_stream(STREAM)
    events = [number.to_bytes(4, "big") * 25_000 for number in range(60)]
    with store.writer(STREAM) as writer:
        pointers = writer.write_batch(events).result()
    assert all_events(store) == events
    assert [store.fetch_event(pointer) for pointer in pointers] == events


def test_a_million_empty_events_fit(store: Engine) -> None:
    """An event without bytes still has a length word, which counts for the size of a block."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = writer.write_batch([b""] * 1_000_000).result()
    assert sum(map(len, store.read(STREAM))) == 1_000_000
    assert store.fetch_event(pointers[-1]) == b""


def test_events_without_a_key_are_spread(store: Engine) -> None:
    """No segment gets all of them."""
    store.create_stream(STREAM, segments=4)
    with store.writer(STREAM) as writer:
        pointers = [writer.write_event(b"event").result() for _ in range(16)]
    assert {pointer.segment_id for pointer in pointers if pointer} == {0, 1, 2, 3}


def test_a_split_keeps_the_order_of_every_key(store: Engine) -> None:
    """The stream is scaled while events wait in the writer: they go to the successors, before later ones."""
    store.create_stream(STREAM)
    keys = [f"k{number}" for number in range(10)]
    acks = []
    with store.writer(STREAM) as writer:
        for number in range(300):
            if number in (100, 150, 250):
                halves(store)
            acks.append(writer.write_event(f"{keys[number % 10]}:{number}".encode(), key=keys[number % 10]))
    found = all_events(store)
    assert len(found) == 300
    for key in keys:
        numbers = [int(event.split(b":")[1]) for event in of_key(found, key)]
        assert numbers == sorted(numbers)
        assert len(numbers) == 30
    for number, ack in enumerate(acks):
        pointer = ack.result()
        assert pointer is not None
        assert store.fetch_event(pointer) == f"{keys[number % 10]}:{number}".encode()


def test_a_merge_keeps_the_order_of_every_key(store: Engine) -> None:
    """Two segments become one while both have events waiting."""
    store.create_stream(STREAM, segments=2)
    with store.writer(STREAM) as writer:
        for number in range(200):
            if number == 100:
                store.scale_stream(STREAM, [0, 1], [(0.0, 1.0)])
            writer.write_event(f"k{number % 10}:{number}".encode(), key=f"k{number % 10}")
    found = all_events(store)
    assert sorted(found) == sorted(f"k{number % 10}:{number}".encode() for number in range(200))
    for which in range(10):
        numbers = [int(event.split(b":")[1]) for event in of_key(found, f"k{which}")]
        assert numbers == sorted(numbers)


def test_a_large_batch_survives_a_split(store: Engine) -> None:
    """Batches wait as they came, so they are taken apart only then."""
    store.create_stream(STREAM)
    keys = [f"k{number % 8}" for number in range(200)]
    events = [f"{key}:{number}".encode().ljust(1000) for number, key in enumerate(keys)]
    with store.writer(STREAM) as writer:
        ack = writer.write_batch(events, keys)
        halves(store)
        pointers = ack.result()
    assert [store.fetch_event(pointer) for pointer in pointers] == events
    found = all_events(store)
    for key in set(keys):
        assert of_key(found, key) == [event for event, own in zip(events, keys, strict=True) if own == key]


def test_the_numbers_of_a_flush_that_met_a_scale_are_known_before_it_is_acknowledged(store: Engine) -> None:
    """A writer that goes on after a kill would write all of them again, or believe that none is there."""
    store.create_stream(STREAM)
    writer = store.writer(STREAM, "w")
    for number in range(100):
        writer.write_event(b"%d" % number, key=str(number))
    halves(store)
    writer.flush()
    with store.writer(STREAM, "w") as again:  # the first one did not come to say anything more
        assert again.last_number == 99
        halves(store)
        again.write_event(b"100", key="a").result()
        assert again.last_number == 100
    with store.writer(STREAM, "w") as last:
        assert last.last_number == 100


def test_threads_share_a_writer_while_the_stream_is_scaled(store: Engine) -> None:
    """Nothing is lost, doubled or out of order, whichever thread flushes whose events."""
    store.create_stream(STREAM, segments=2)
    writer = store.writer(STREAM)

    def work(name: str) -> None:
        for number in range(400):
            ack = writer.write_event(f"{name}:{number}".encode(), key=name)
            if number % 50 == 0:
                ack.result()

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        halves(store)
    for thread in threads:
        thread.join()
    writer.close()
    found = all_events(store)
    assert len(found) == 2400
    for number in range(6):
        assert of_key(found, f"t{number}") == [f"t{number}:{event}".encode() for event in range(400)]


def test_the_last_number_is_known_after_a_restart(folder: Path) -> None:
    """A source that replays asks for it and goes on behind it."""
    with open_store(folder) as store:
        store.create_stream(STREAM, segments=3)
        with store.writer(STREAM, "w1") as writer:
            before = writer.last_number
            assert before is None
            for number in range(10):
                writer.write_event(b"event", key=f"k{number}")
            writer.flush()
            assert writer.last_number == 9
    with open_store(folder) as store, store.writer(STREAM, "w1") as writer:
        assert writer.last_number == 9
        writer.write_event(b"event").result()
        assert writer.last_number == 10
        with store.writer(STREAM, "w2") as other:
            assert other.last_number is None


@given(
    st.lists(st.sampled_from(["split", "merge", "restart", "flush", "none"]), min_size=4, max_size=12),
    st.integers(min_value=1, max_value=3),
)
def test_a_source_that_replays_is_written_exactly_once(steps: list[str], segments: int) -> None:
    """Whatever happens in between, writing everything again under the same numbers changes nothing."""
    source = [(number, f"k{number % 5}", f"k{number % 5}:{number}".encode()) for number in range(10 * len(steps))]
    with open_store("memory:") as store:
        store.create_stream(STREAM, segments=segments)
        writer = store.writer(STREAM, "source")
        for index, step in enumerate(steps):
            if step == "restart":
                writer = store.writer(STREAM, "source")
            start = 0 if step == "restart" else 10 * index
            for number, key, event in source[start : 10 * index + 10]:
                writer.write_event(event, key=key, number=number)
            if step == "split":
                halves(store)
            elif step == "merge" and len(store.stream(STREAM).segments) > 1:
                low, high = store.stream(STREAM).segments[:2]
                store.scale_stream(STREAM, [low.segment_id, high.segment_id], [(low.low, high.high)])
            elif step == "flush":
                writer.flush()
        writer.close()
        found = all_events(store)
        for which in range(5):
            assert of_key(found, f"k{which}") == [event for _, own, event in source if own == f"k{which}"]


def test_numbers_without_keys_find_their_place_again(store: Engine) -> None:
    """Without a key the number decides where an event goes, or it could not be found to be there."""
    store.create_stream(STREAM, segments=4)
    for _ in range(2):
        with store.writer(STREAM, "w") as writer:
            for number in range(40):
                writer.write_event(str(number).encode(), number=number)
    assert sorted(all_events(store), key=int) == [str(number).encode() for number in range(40)]


def test_half_a_flush_is_found_however_slowly_the_other_half_is_written_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer notes after each event how far its numbers are durable; that hides no higher number of its segment."""
    with open_store(folder) as store:
        store.create_stream(STREAM, segments=2)
        second = store.stream(STREAM).segments[1].segment_id

        class Refused:
            def result(self) -> None:
                raise DiskFull("no space")

        monkeypatch.setattr(store.segments.get(STREAM, second), "submit", lambda *_: Refused())
        failing = store.writer(STREAM, "w")
        with pytest.raises((DiskFull, WriterFailed)):  # noqa: PT012 - the pump may be quicker than the loop
            for number in range(20):
                failing.write_event(str(number).encode(), number=number)
            failing.flush()
        half = len(all_events(store))
        assert 0 < half < 20, "the first segment has its part"
        monkeypatch.undo()
        for _ in range(2):
            with store.writer(STREAM, "w") as writer:
                for number in range(20):
                    writer.write_event(str(number).encode(), number=number).result()
        assert sorted(all_events(store), key=int) == [str(number).encode() for number in range(20)]


def test_an_event_that_is_there_already_is_done_at_once(store: Engine) -> None:
    """Its place is not known any more, and a source that replays does not need it."""
    store.create_stream(STREAM)
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"one", number=1)
    with store.writer(STREAM, "w") as writer:
        ack = writer.write_event(b"one", number=1)
        assert ack.done()
        assert ack.result() is None
        found: list[object] = []
        ack.add_done_callback(found.append)
        assert found == [ack]


def test_a_callback_of_a_writer_that_is_fenced_may_open_a_writer(store: Engine) -> None:
    """A program whose events failed opens a writer to write them again; that must not wait for itself."""
    store.create_stream(STREAM)
    first, opened = store.writer(STREAM, "w"), threading.Event()

    def open_another(_: object) -> None:
        store.writer(STREAM, "another").close()
        opened.set()

    with first._flusher.flush_lock:  # so that the event still waits when the next writer comes
        first.write_event(b"waits").add_done_callback(open_another)
        second = threading.Thread(target=lambda: store.writer(STREAM, "w").close())
        second.start()
    assert opened.wait(30)
    second.join(30)
    assert not second.is_alive()


def test_a_second_writer_under_one_id_fences_the_first(store: Engine) -> None:
    """Two would make nonsense of the numbers; the older one is told, and nothing it has waiting is kept."""
    store.create_stream(STREAM)
    first = store.writer(STREAM, "w")
    first.write_event(b"kept").result()
    second = store.writer(STREAM, "w")
    with pytest.raises(WriterFenced, match="'w'"):
        first.write_event(b"refused")
    with pytest.raises(WriterFenced):
        first.flush()
    with pytest.raises(WriterFenced):
        first.close()
    second.write_event(b"goes on").result()
    second.close()
    assert all_events(store) == [b"kept", b"goes on"]


def test_writers_without_an_id_do_not_disturb_each_other(store: Engine) -> None:
    """Only an id can be the same."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as first, store.writer(STREAM) as second:
        first.write_event(b"1").result()
        second.write_event(b"2").result()
        first.write_event(b"3").result()
    assert all_events(store) == [b"1", b"2", b"3"]


def test_a_closed_writer_writes_no_more(store: Engine) -> None:
    """Closing again is harmless, writing is an error."""
    store.create_stream(STREAM)
    writer = store.writer(STREAM)
    writer.close()
    writer.close()
    with pytest.raises(StoreClosed):
        writer.write_event(b"late")
    with pytest.raises(StoreClosed):
        writer.write_batch([b"late"])


def test_sealing_a_stream_stops_its_writers(store: Engine) -> None:
    """What was acknowledged is in it, what was not is told so."""
    store.create_stream(STREAM)
    writer = store.writer(STREAM)
    writer.write_event(b"in").result()
    store.seal_stream(STREAM)
    ack = writer.write_event(b"out")
    with pytest.raises(StreamSealed):
        ack.result()
    with pytest.raises(StreamSealed):
        writer.write_event(b"out, too")
    with pytest.raises(StreamSealed):
        store.writer(STREAM)
    assert all_events(store) == [b"in"]


@pytest.mark.parametrize("size", [EVENT_SIZE_MAX, EVENT_SIZE_MAX + 1])
def test_a_batch_takes_events_up_to_the_size_of_a_block_and_above(store: Engine, size: int) -> None:
    """Where events begin to be large is our concern, not the caller's."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = writer.write_batch([b"small", bytes(size)], ["k", "k"]).result()
    assert [store.fetch_event(pointer) for pointer in pointers] == [b"small", bytes(size)]


@pytest.mark.parametrize("event", ["text", 17, None, [b"list"]])
def test_what_is_no_event_is_refused(store: Engine, event: object) -> None:
    """At once, and not when it is too late to tell which one it was."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        with pytest.raises(BadArgument, match="invalid event"):
            writer.write_event(event)
        writer.write_event(bytearray(b"fine"))
        writer.write_event(memoryview(b"fine, too"))
    assert all_events(store) == [b"fine", b"fine, too"]


def test_a_buffer_that_changes_later_does_not_change_the_event(store: Engine) -> None:
    """The caller may use its buffer again at once."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        buffer = bytearray(b"before")
        writer.write_event(buffer)
        buffer[:] = b"after!"
    assert all_events(store) == [b"before"]


@pytest.mark.parametrize(
    ("events", "keys"),
    [
        ([b"a", None], None),
        (["text"], [1]),
        ([b"a"], ["k", "l"]),
        ([1, 2], None),
        (pa.array([1, 2]), None),
        (7, None),
        ([b"a"], ["\udcff"]),
        ([b"a"], [1 << 70]),
        (["\udcff"], None),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(store: Engine, events: list[bytes], keys: list[str]) -> None:
    """Nothing of it is written."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer, pytest.raises(BadArgument):
        writer.write_batch(events, keys)
    assert all_events(store) == []


@pytest.mark.parametrize("number", [-1, 1.5, "1", 1 << 63])
def test_what_is_no_number_is_refused(store: Engine, number: int) -> None:
    """A number is stored in eight bytes and compared for ever after."""
    store.create_stream(STREAM)
    with store.writer(STREAM, "w") as writer, pytest.raises(BadArgument):
        writer.write_event(b"event", number=number)


def test_a_number_that_the_writer_gave_itself_is_taken(store: Engine) -> None:
    """It was written a second time under the same number, and the writer's numbers went back."""
    store.create_stream(STREAM, segments=2)
    with store.writer(STREAM, "w") as writer:
        for number in range(10):
            writer.write_event(b"%d" % number, key="k")
        writer.flush()
        with pytest.raises(BadArgument, match="number 3 comes after 9: numbers only grow"):
            writer.write_event(b"again", key="k", number=3)
        writer.write_event(b"10", key="k", number=10)
    with store.writer(STREAM, "w") as writer:
        assert writer.write_event(b"again", key="k", number=3).result() is None
    assert all_events(store) == [b"%d" % number for number in range(11)]


def test_numbers_only_grow(store: Engine) -> None:
    """One that comes twice in one session is a mistake of the source, not a replay."""
    store.create_stream(STREAM)
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"five", number=5)
        with pytest.raises(BadArgument, match="only grow"):
            writer.write_event(b"five again", number=5)
        writer.write_event(b"next")
        writer.flush()
        assert writer.last_number == 6
    with store.writer(STREAM) as nameless, pytest.raises(BadArgument, match="id"):
        nameless.write_event(b"event", number=1)


@pytest.mark.parametrize("key", [1.5, 7, ["k"]])
def test_what_is_no_key_is_refused(store: Engine, key: str) -> None:
    """A key is text or bytes, so that every language can hash it alike."""
    store.create_stream(STREAM, segments=2)
    with store.writer(STREAM) as writer, pytest.raises(BadArgument, match="routing key"):
        writer.write_event(b"event", key=key)


def test_a_writer_of_no_stream_and_with_a_bad_id_is_refused(store: Engine) -> None:
    """The error names what is wrong."""
    with pytest.raises(NoSuchStream, match="plant/none"):
        store.writer("plant/none")
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match="writer"):
        store.writer(STREAM, writer_id="a b")


def test_an_exception_in_the_block_is_not_replaced(store: Engine) -> None:
    """The first error is the one that matters."""
    store.create_stream(STREAM)
    with pytest.raises(ZeroDivisionError), store.writer(STREAM) as writer:  # noqa: PT012
        store.seal_stream(STREAM)
        writer.write_event(b"event")
        raise ZeroDivisionError


def test_a_table_is_refused_with_the_columns_to_pass(store: Engine) -> None:
    """A table is what read() yields; its content does not belong in a message."""
    store.create_stream(STREAM)
    table = pa.table({"event": [b"secret"], "key": ["k"]})
    with store.writer(STREAM) as writer:
        for events in (table, table.to_batches()[0]):
            with pytest.raises(BadArgument, match=r"pass table\['event'\], keys=table\['key'\]$") as refused:
                writer.write_batch(events)
            assert "secret" not in str(refused.value)
        writer.write_batch(table["event"], keys=table["key"])
    assert store.stream(STREAM).events == 1
