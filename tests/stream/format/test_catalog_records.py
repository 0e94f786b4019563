"""Catalog records of any size, and stores that cannot be used: closed, or owned by another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

import penstock
from penstock.embedded import open_store
from penstock.errors import StoreClosed, StoreLocked
from penstock.log import PlogSizes
from penstock.model import StreamConfig
from penstock.stream.catalog import GroupState, _catalog
from penstock.stream.catalog._catalog_state import snapshot_appends
from penstock.stream.format import ConsumerMoved, GroupCreated, GroupFull, decode_records
from tests.stream.write.test_writer import STREAM

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

SECONDS_MAX = 30.0


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


def test_records_from_before_there_were_owners_are_read() -> None:
    """Stores of that time open; their groups and consumers belong to no user."""
    places: dict[str, dict[int, int]] = {STREAM: {0: 7}}
    full = ["group-full", "g", {}, [STREAM], {}, places, {}, {}, None, {}, [], {}, 5, [], {}, places]
    old = [["consumer", STREAM, "spark", {0: 7}, None], ["group", "g", places, {}, 5], full]
    consumer, group, snapshot = decode_records(msgspec.msgpack.encode(old))
    assert consumer == ConsumerMoved(STREAM, "spark", {0: 7})
    assert group == GroupCreated("g", places, {}, 5)
    assert isinstance(snapshot, GroupFull)
    assert GroupState.restore(snapshot).owner is None


def test_a_snapshot_that_is_cut_short_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash, or a full disk, in the middle of it; records behind it say things about streams that it had not said."""
    sizes = PlogSizes(first=64 << 10, largest=64 << 10)
    with open_store(folder, sizes=sizes) as store:
        for number in range(1500):
            store.create_stream(f"a/s{number}", config=StreamConfig(tags=("x" * 250,)))
        with monkeypatch.context() as patch:
            patch.setattr(_catalog, "snapshot_appends", lambda state: [next(iter(snapshot_appends(state)))])
            patch.setattr(type(store.catalog._log), "truncate", lambda *_: None)
            store.catalog._write_snapshot()
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
    """The next process to open the store gets an error."""
    with penstock.connect(folder, exclusive=True), pytest.raises(StoreLocked):
        penstock.connect(folder, exclusive=True)
