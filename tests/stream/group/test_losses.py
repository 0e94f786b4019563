"""What a group cannot read any more is told: by one of its readers, now or later."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.embedded import open_store
from penstock.errors import DataTruncated, DiskFailed, DiskFull, NoSuchStream, WrongCut
from penstock.model import StreamCut
from penstock.stream.read import _batches
from penstock.stream.read._batches import batch_of
from penstock.stream.read._held_segments import HeldSegments
from penstock.stream.segment._segment import Segment
from tests.stream.group.test_groups import OTHER, STREAM, killed, new_group, put, rest, take
from tests.stream.harness import embedded_only, inside
from tests.stream.wire_harness import come_to_rest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.stream import Engine
    from penstock.stream.read import Reader


def in_batches(reader: Reader) -> list[bytes]:
    """Return all events that are there now."""
    found: list[bytes] = []
    while (batch := reader.read_batch(timeout=0)) is not None:
        found += batch["event"].to_pylist()
    return found


def one_event(reader: Reader) -> list[bytes]:
    read = reader.read_next_event(timeout=0)
    return [] if read is None else [read.event]


def one_batch(reader: Reader) -> list[bytes]:
    batch = reader.read_batch(timeout=0)
    return [] if batch is None else batch["event"].to_pylist()


def one_file(reader: Reader) -> list[bytes]:
    file = reader.read_next_event_as_stream(timeout=0)
    while file is not None:
        with suppress(DiskFailed):
            return [file.readall() or b""]
    return []


LARGE: Final = b"x" * (3 << 19)  # of two chunks
READS: Final[dict[str, Callable[[Reader], list[bytes]]]] = {"event": one_event, "batch": one_batch, "file": one_file}


def merge(store: Engine, first: int, second: int) -> None:
    store.scale_stream(STREAM, [first, second], [(0.0, 1.0)])


def cut(places: dict[int, int]) -> StreamCut:
    return StreamCut.of(STREAM, places)


# Segments


def test_a_segment_that_waited_for_others_and_was_truncated_away_is_told(store: Engine) -> None:
    """One of the segments before it was read to the end, so no reader had it yet, and none noticed the loss."""
    group = new_group(store, segments=2)
    put(store, b"a", segment=0)
    put(store, b"b", segment=1)
    merge(store, 0, 1)
    put(store, b"c", segment=2)
    with group.reader("r") as reader:
        assert sorted(take(reader, 2)) == [b"a", b"b"]
        store.scale_stream(STREAM, [2], [(0.0, 1.0)])
        put(store, b"d", segment=3)
        store.truncate_stream(STREAM, cut({3: 0}))
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == [b"d"]


def test_a_segment_between_the_last_one_read_and_the_head_is_told(store: Engine) -> None:
    """The reader had read its own segment to the end: what followed was never its own, and is lost all the same."""
    group = new_group(store)
    put(store, b"a")
    with group.reader("r") as reader:
        assert rest(reader) == [b"a"]
        for segment, event in ((0, b"b"), (1, b"c")):
            store.scale_stream(STREAM, [segment], [(0.0, 1.0)])
            put(store, event, segment=segment + 1)
        store.truncate_stream(STREAM, cut({2: 0}))
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == [b"c"]


def test_the_beginning_of_a_segment_that_follows_the_last_one_read_is_told(store: Engine) -> None:
    """As above, where the stream begins in the middle of it."""
    group = new_group(store)
    put(store, b"a")
    with group.reader("r") as reader:
        assert rest(reader) == [b"a"]
        store.scale_stream(STREAM, [0], [(0.0, 1.0)])
        put(store, b"b", segment=1)
        behind = store.tail(STREAM)
        put(store, b"c", segment=1)
        store.truncate_stream(STREAM, behind)
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == [b"c"]


def test_what_a_group_with_an_end_can_no_longer_read_is_told(store: Engine) -> None:
    """Its end lies in a segment that it had not come to, and before the head."""
    store.create_stream(STREAM)
    put(store, b"a")
    store.scale_stream(STREAM, [0], [(0.0, 1.0)])
    put(store, b"b", segment=1)
    group = store.create_reader_group("g", [STREAM], end=store.tail(STREAM))
    with group.reader("r") as reader:
        assert take(reader, 1) == [b"a"]
        put(store, b"c", segment=1)
        store.truncate_stream(STREAM, store.tail(STREAM))
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == []
        assert group.finished


# Which reader is told


def test_a_loss_that_a_reader_did_not_come_to_tell_is_told_by_the_next(folder: Path) -> None:
    """Also after the store was opened again; and not twice."""
    with open_store(folder) as store:
        group = new_group(store)
        put(store, b"a", b"b")
        one = group.reader("r1")
        assert take(one, 1) == [b"a"]
        other = group.reader("r2")
        store.scale_stream(STREAM, [0], [(0.0, 1.0)])
        put(store, b"c", segment=1)
        store.truncate_stream(STREAM, cut({1: 0}))
        assert take(other, 1) == [b"c"]  # it looks at the group, and r1 is to be told
        one.close()
        store.seal_stream(STREAM)
        assert not group.finished
        other.close()
    with open_store(folder) as store, store.reader_group("g").reader("r3") as reader:
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == []
        assert reader.finished
    with killed(folder) as store, store.reader_group("g").reader("r4") as reader:
        assert rest(reader) == []


def test_a_loss_found_behind_a_batch_is_told_by_the_next_reader_if_the_first_is_closed(store: Engine) -> None:
    """The reader had gone on beyond it in silence."""
    group = new_group(store, segments=2)
    put(store, b"a", segment=0)
    put(store, b"b", segment=1)
    put(store, b"c", segment=1)
    with group.reader("r1") as reader:
        store.truncate_stream(STREAM, cut({0: 0, 1: 69}))
        assert reader.read_batch(timeout=0)["event"].to_pylist() == [b"a"]  # type: ignore[index]
    with group.reader("r2") as reader:
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == [b"c"]


def test_a_stream_that_is_deleted_while_a_group_has_no_reader_is_told_to_the_next(store: Engine) -> None:
    """It had events that were not read; where all were, there is nothing to tell."""
    store.create_stream(STREAM)
    store.create_stream(OTHER)
    group = store.create_reader_group("g", [STREAM, OTHER])
    put(store, b"a")
    put(store, b"b", stream=OTHER)
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    with group.reader("r") as reader:
        with pytest.raises(NoSuchStream, match=STREAM):
            rest(reader)
        assert rest(reader) == [b"b"]
        store.seal_stream(OTHER)
        assert rest(reader) == []
    assert group.finished
    store.delete_stream(OTHER)
    with group.reader("r") as reader:
        assert rest(reader) == []
    assert group.finished


def test_a_reset_takes_back_what_was_to_be_told_of_truncations(store: Engine) -> None:
    """A caller that says where to read on knows what lies before."""
    group = new_group(store)
    put(store, b"a", b"b")
    with group.reader("r1") as reader:
        assert take(reader, 1) == [b"a"]
        store.scale_stream(STREAM, [0], [(0.0, 1.0)])
        store.truncate_stream(STREAM, store.tail(STREAM))
        group.reset("head")
    with group.reader("r2") as reader:
        assert rest(reader) == []


# Batches


@pytest.mark.parametrize("error", [DiskFull("too many open files"), NoSuchStream(STREAM), OSError(24, "EMFILE")])
def test_an_error_while_a_batch_is_put_together_skips_nothing(
    store: Engine, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch comes with the next call; it was neither returned nor read."""
    group = new_group(store, segments=2)
    put(store, b"a", b"b", segment=0)
    put(store, b"c", segment=1)
    times_of: Callable[..., object] = HeldSegments.times_of
    errors = [error]

    def fail_once(held: HeldSegments, key: object) -> object:
        if errors:
            raise errors.pop()
        return times_of(held, key)

    monkeypatch.setattr(HeldSegments, "times_of", fail_once)
    with group.reader("r") as reader:
        with pytest.raises(type(error)):
            reader.read_batch(timeout=0)
        assert sorted(in_batches(reader)) == [b"a", b"b", b"c"]


def test_a_stream_that_is_deleted_while_a_batch_is_put_together_costs_no_event_of_the_others(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch had events of both."""
    embedded_only(store)
    for name in (STREAM, OTHER):
        store.create_stream(name)
    put(store, b"a")
    put(store, b"b", stream=OTHER)
    deletions = [OTHER]

    def delete_before(*args: Any) -> object:  # noqa: ANN401
        for name in [deletions.pop()] if deletions else []:
            store.seal_stream(name)
            store.delete_stream(name)
        return batch_of(*args)

    monkeypatch.setattr(_batches, "batch_of", delete_before)
    with store.create_reader_group("g", [STREAM, OTHER]).reader("r") as reader:
        with pytest.raises(NoSuchStream):
            in_batches(reader)
        with pytest.raises(NoSuchStream):  # once by the batch, once by the group
            in_batches(reader)
        assert in_batches(reader) == [b"a"]


@pytest.mark.parametrize("way", READS)
def test_a_disk_that_refuses_now_and_then_costs_no_event(
    store: Engine, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files is nothing that an event is to blame for: the next call returns it."""
    embedded_only(store)
    group = new_group(store, segments=2)
    for number in range(20):
        put(store, b"%02d" % number, segment=number % 2)
    with store.writer(STREAM) as writer, writer.begin_write_event("k") as large:
        large.write(LARGE)
    views: Callable[..., object] = Segment.views
    dice = Random(1)

    def refuse(segment: Segment, *span: int) -> object:
        if dice.random() < 0.5:
            raise DiskFailed("plog", reason="Too many open files", stopped=False)
        return views(segment, *span)

    monkeypatch.setattr(Segment, "views", refuse)
    found: list[bytes] = []
    with group.reader("r", max_event_size=4 << 20) as reader:
        while len(found) < 21:
            with suppress(DiskFailed):
                found += READS[way](reader)
    assert sorted(found) == [*(b"%02d" % number for number in range(20)), LARGE]


# Places that are gone


def test_a_group_is_not_reset_behind_an_end_that_was_truncated_away(store: Engine) -> None:
    """It would read for ever what it was never to read."""
    store.create_stream(STREAM)
    put(store, b"a")
    group = store.create_reader_group("g", [STREAM], end=store.tail(STREAM))
    store.scale_stream(STREAM, [0], [(0.0, 1.0)])
    put(store, b"b", segment=1)
    store.truncate_stream(STREAM, cut({1: 0}))
    with pytest.raises(WrongCut, match="the group ends before"):
        group.reset("head")


@pytest.mark.parametrize("head", [{0: 138}, {1: 0}])
def test_a_reader_is_taken_offline_at_a_position_that_was_truncated_away(store: Engine, head: dict[int, int]) -> None:
    """The reader that reads on gets the error; the caller that takes it offline can do nothing about it."""
    group = new_group(store)
    for event in (b"a", b"b", b"c"):
        put(store, event)
    reader = group.reader("r1")
    read = reader.read_next_event(timeout=0)
    assert read is not None
    store.scale_stream(STREAM, [0], [(0.0, 1.0)])
    store.truncate_stream(STREAM, cut(head))
    group.reader_offline("r1", read.position)
    with group.reader("r2") as other:
        with pytest.raises(DataTruncated):
            rest(other)
        assert rest(other) == ([b"c"] if 0 in head else [])


@pytest.mark.parametrize("counts", [True, False])
def test_a_batch_that_does_not_count_and_is_truncated_away_is_told(store: Engine, *, counts: bool) -> None:
    """Its reader was given all of it and never came back, so no reader can get it again."""
    embedded_only(store)
    group = new_group(store)
    put(store, b"a")
    one = group.reader("r1")
    assert one_batch(one) == [b"a"]
    store.scale_stream(STREAM, [0], [(0.0, 1.0)])
    store.truncate_stream(STREAM, cut({1: 0}))
    other = group.reader("r2")
    assert rest(other) == []
    if counts:
        one.close()
        assert rest(other) == []
    else:
        group.reader_offline("r1")
        with pytest.raises(DataTruncated):
            rest(other)


def test_who_comes_back_after_the_truncation_has_read_it(store: Engine) -> None:
    """Then nothing is lost, and nothing is told."""
    embedded_only(store)
    group = new_group(store)
    put(store, b"a")
    one = group.reader("r1")
    assert one_batch(one) == [b"a"]
    store.scale_stream(STREAM, [0], [(0.0, 1.0)])
    store.truncate_stream(STREAM, cut({1: 0}))
    other = group.reader("r2")
    assert rest(other) == []
    assert rest(one) == []
    store.seal_stream(STREAM)
    assert rest(other) == rest(one) == []
    assert group.finished


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("is_read", [True, False])
def test_what_a_reader_has_read_is_not_told_as_lost_because_another_looks_first(
    store: Engine, monkeypatch: pytest.MonkeyPatch, *, is_read: bool, leaves: bool
) -> None:
    """A client says where it is only from time to time: for events that it has, an error would be a false alarm."""
    monkeypatch.setattr(
        "penstock.client._membership.RemoteMembership.report_if_due", lambda _: None
    )  # it is not time yet
    group = new_group(store, segments=2)
    with group.reader("r1") as first, group.reader("r2") as second:
        while [len(reader._member.places(returned=True)) for reader in (first, second)] != [1, 1]:
            assert rest(first) + rest(second) == []
        [(_, of_first)] = first._member.places(returned=True)
        put(store, b"a", segment=of_first)
        put(store, b"b", segment=1 - of_first)
        if is_read:
            assert next_event(first) == b"a"
            assert first.read_next_event(timeout=0) is None
        store.scale_stream(STREAM, [0, 1], [(0.0, 1.0)])
        put(store, b"c", segment=2)
        assert next_event(second) == b"b"
        store.truncate_stream(STREAM, cut({2: 0}))
        assert next_event(second) == b"c"
        come_to_rest(store)
        if leaves:
            first.close()
        with nullcontext() if is_read else pytest.raises(DataTruncated, match=f"{STREAM}:{of_first}@0 "):
            assert rest(second if leaves else first) == []
        assert inside(store).catalog.group("g").untold == {}


def next_event(reader: Reader) -> bytes:
    read = reader.read_next_event(timeout=10)
    assert read is not None
    return bytes(read.event)
