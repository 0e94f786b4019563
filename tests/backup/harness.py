"""A store with something of every kind in it, and what a restored one must have in common with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock import ByTime, StreamConfig, Watermark
from penstock.log import PlogSizes

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store

STREAM: Final = "plant/readings"
OTHER: Final = "plant/alarms"
SMALL: Final = PlogSizes(first=4096, largest=16384)


def fill(store: Store, *, events: int = 60) -> str:
    """Write events of every kind, scale, note time, begin groups; return the id of a prepared transaction."""
    store.create_stream(STREAM, 2, StreamConfig(retention=ByTime(1e9)))
    store.create_stream(OTHER, 1)
    with store.writer(STREAM, "sensor") as writer:
        for number in range(events):
            writer.write_event(b"%04d" % number * 20, f"k{number % 7}", headers={"n": b"1"})
        writer.flush()
        store.add_watermarks(STREAM, [Watermark(10, 20, store.tail(STREAM))])
        first, second = store.stream(STREAM).segments
        store.scale_stream(STREAM, [first.segment_id, second.segment_id], [(0.0, 1.0)])
        with writer.begin_write_event("cam") as output:
            output.write(bytes(range(256)) * 9000)
        writer.write_batch([b"batch %d" % number for number in range(events)], ["b"] * events)
    transactions = store.transactional_writer(STREAM, "job")
    with transactions.begin() as transaction:
        transaction.write_event(b"in a transaction", "t")
    with store.transactional_writer(OTHER).begin() as other:
        other.write_event(b"alarm")
    left = transactions.begin(lease=3600)
    left.write_event(b"prepared", "t")
    left.prepare()
    store.create_reader_group("readers", [STREAM])
    with store.reader_group("readers").reader("r") as reader:
        for _ in range(5):
            reader.read_next_event(timeout=5)
    store.register_consumer(OTHER, "archive", "tail")
    return left.id


def contents(store: Store) -> dict[str, Any]:
    """Return everything that users rely on."""
    found: dict[str, Any] = {}
    for info in store.streams():
        segments = store.stream_segments(info.name)
        batches = store.read(info.name, max_event_size=4 << 20)
        found[info.name] = {
            "config": info.config,
            "segments": segments,
            "head": info.head,
            "tail": info.tail,
            "count": info.events,
            "events": [row for batch in batches for row in batch.to_pylist()],
            "watermarks": store.watermarks(info.name),
            "consumers": store.consumers(info.name),
        }
    found["groups"] = {name: store.reader_group(name).position for name in store.reader_groups()}
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
