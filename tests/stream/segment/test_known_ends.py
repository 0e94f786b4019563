"""Ends of segments that a closed store has noted: what they save, and when they must not be believed."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.embedded import open_store
from penstock.errors import StoreClosed
from penstock.stream.format import StreamBlockHeader
from tests.stream.harness import STREAM

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

KEYS = [f"key {number}" for number in range(40)]


def write(store: Engine, name: str = STREAM, times: int = 1) -> None:
    """Write an event for each key."""
    with store.writer(name) as writer:
        for _ in range(times):
            writer.write_batch([b"event"] * len(KEYS), KEYS)


def figures(store: Engine) -> list[tuple[str, int, int, str]]:
    """Return what listing says of each stream."""
    return [(info.name, info.events, info.size_bytes, str(info.tail)) for info in store.streams()]


def looked_at(store: Engine) -> list[tuple[str, int, int, str]]:
    """Return the same, as it is found where no end is known."""
    store.segments._known_ends._ends.clear()
    return figures(store)


def test_listing_a_store_that_was_closed_opens_no_segment(folder: Path) -> None:
    """With ten segments each, a thousand streams took seconds to list, for a file and a block of each segment."""
    with open_store(folder) as store:
        for number in range(3):
            store.create_stream(f"a/s{number}", 4)
            write(store, f"a/s{number}", times=number)
        expected = figures(store)
    with open_store(folder, maintenance_interval_s=3600) as store:
        assert figures(store) == expected
        opened = {uid for uid, _ in store.segments.at_work()}
        assert opened <= {store.stream("a/s0").uid}, "only a stream without events has no end to be noted"
    with open_store(folder, maintenance_interval_s=3600) as store:
        assert figures(store) == expected, "what was not used since is still known"
        assert store.segments._known_ends._ends
        assert looked_at(store) == expected


def test_what_was_noted_is_true_after_more_was_written_and_cut_off(folder: Path) -> None:
    """An end that is out of date would hide events, or show a stream as longer than it is."""
    with open_store(folder) as store:
        store.create_stream(STREAM, 3)
        write(store)
    for number in range(3):
        with open_store(folder) as store:
            write(store)
            if number == 1:
                store.truncate_stream(STREAM, store.tail(STREAM))
                write(store)
            if number == 2:
                store.scale_stream(STREAM, [0], [(0.0, 0.1), (0.1, 1 / 3)])
                write(store)
            expected = figures(store)
        with open_store(folder) as store:
            assert figures(store) == expected
            assert sum(batch.num_rows for batch in store.read(STREAM)) == store.stream(STREAM).events
        with open_store(folder) as store:
            assert looked_at(store) == expected


def test_commits_and_large_events_count_in_what_is_noted(folder: Path) -> None:
    """They become part of a segment by a record, not by a block that the segment appends."""
    with open_store(folder) as store:
        store.create_stream(STREAM)
        write(store)
        with store.transactional_writer(STREAM).begin() as transaction:
            transaction.write_batch([b"event"] * 5)
        with store.writer(STREAM) as writer:
            writer.write_event(os.urandom(3 << 20))
        expected = figures(store)
    with open_store(folder) as store:
        assert figures(store) == expected
    with open_store(folder) as store:
        assert looked_at(store) == expected


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_store_that_was_not_closed_is_looked_at(folder: Path, crashes: int) -> None:
    """What a process noted before the one that crashed is not true any more."""
    with open_store(folder) as store:
        store.create_stream(STREAM, 2)
        write(store)
    for number in range(crashes):
        after = folder.with_name(f"crashed-{number}")
        with open_store(folder, maintenance_interval_s=3600) as store:
            write(store, times=2)
            shutil.copytree(folder, after)  # as it was when the process was killed
        folder = after
    with open_store(folder) as store:
        assert not store.segments._known_ends._ends
        assert store.stream(STREAM).events == (1 + 2 * crashes) * len(KEYS)


def test_nothing_is_noted_of_streams_that_are_gone(folder: Path) -> None:
    """What is noted would grow with every stream that there ever was."""
    with open_store(folder) as store:
        store.create_stream(STREAM)
        store.create_stream("a/gone")
        write(store)
        write(store, "a/gone")
    with open_store(folder) as store:
        assert len(store.segments._known_ends._ends) == 2
        store.seal_stream("a/gone")
        store.delete_stream("a/gone")
    with open_store(folder) as store:
        assert len(store.segments._known_ends._ends) == 1


def test_many_ends_are_noted_in_several_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append has a limit; a store may have more segments than fit into one."""
    monkeypatch.setattr("penstock.stream.segment._known_ends._IN_RECORD_MAX", 3)
    with open_store(folder) as store:
        for number in range(5):
            store.create_stream(f"a/s{number}", 2)
            write(store, f"a/s{number}")
        expected = figures(store)
    with open_store(folder) as store:
        assert len(store.segments._known_ends._ends) == 5
        assert figures(store) == expected


def test_no_block_gets_behind_an_end_that_was_noted(folder: Path) -> None:
    """It would be acknowledged, and no reader would find it in the store that is opened next."""
    with open_store(folder) as store:
        store.create_stream(STREAM)
        write(store)
        segment, header = store.segments.get(STREAM, 0), StreamBlockHeader(count=1)
        store.segments.note_ends()
        with pytest.raises(StoreClosed):
            segment.submit(header, b"\0\0\0\5", b"event")
        with pytest.raises(StoreClosed):
            segment.held().__enter__()  # as a commit does
    with open_store(folder) as store:
        assert store.stream(STREAM).events == len(KEYS)


def test_an_end_is_not_known_while_a_block_is_under_way(folder: Path) -> None:
    """The last answer may be on the tail that readers still see."""
    with open_store(folder) as store:
        store.create_stream(STREAM)
        write(store)
        segment = store.segments.get(STREAM, 0)
        segment._lookup.tail_counted = segment.tail, len(KEYS)
        before = segment.known_end
        pending = segment.submit(StreamBlockHeader(count=1), b"\0\0\0\5", b"event")
        meanwhile = segment.known_end
        assert (before, meanwhile) == ((segment.tail, len(KEYS)), None)
        assert segment.count_before(segment.tail) == len(KEYS)
        pending.result()
        assert segment.known_end == (segment.tail, len(KEYS) + 1)
