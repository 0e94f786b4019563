"""Copies of streams: the same events, in the same order, at the same times, in any two stores."""

from __future__ import annotations

import random
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

import argon2
import pytest

from penstock import ByConsumption, ByEventRate, StreamConfig, StreamCut, Watermark
from penstock.copying import _step, copy_streams, translate_cut
from penstock.copying._records import log_name
from penstock.cpo import open_cpo
from penstock.embedded import open_store, open_store_at
from penstock.errors import (
    CopyDiffers,
    CopyFailed,
    DiskFull,
    EventAborted,
    NoSuchStream,
    NoSuchTransaction,
    NotPermitted,
    PenstockError,
    WriterFenced,
)
from penstock.log import PlogSizes
from penstock.repo import Repository
from penstock.server._users import USERS_FILE, Users
from penstock.testing import ManualClock, MemoryDisk
from tests.copying.harness import STREAM, Crash, History, Mortal, by_segment, check_copy
from tests.explore.small_disk import SmallDisk
from tests.repo.streams import history
from tests.sampling import examples, in_case
from tests.server.owned import as_user, serving
from tests.stream.harness import store_on
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model import SegmentRange
    from penstock.stream import Engine

SIZES = PlogSizes(first=4096, largest=64 << 10)
LOG = log_name(STREAM)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(clock: ManualClock) -> Iterator[Engine]:
    with open_store("memory:", clock=clock, sizes=SIZES) as store:
        yield store


@pytest.fixture
def target(clock: ManualClock) -> Iterator[Engine]:
    with open_store("memory:", clock=clock, sizes=SIZES) as store:
        yield store


def write(store: Engine, *events: bytes, key: str | None = None) -> None:
    with store.writer(STREAM) as writer:
        writer.write_batch(events, key)


def events_of(store: Engine) -> list[bytes]:
    return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


@pytest.mark.parametrize("seed", range(examples(24)))
def test_a_copy_has_the_events_the_watermarks_and_the_cuts_of_its_source(
    seed: int, source: Engine, target: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened to a stream, and whenever the copying ends, nothing is lost, doubled or out of order."""
    dice = random.Random(seed)
    monkeypatch.setattr(_step, "_SIZE_MAX", dice.choice([1, 500, 64 << 20]))
    past = History(source, clock, dice)
    for truncates in (True, False):  # the second time, the copy is continued
        past.run(25, truncates=truncates)
        while True:
            mortal = Mortal(target, [dice.randrange(1, 60) if dice.random() < 0.8 else 0])
            try:
                copy_streams(source, mortal)
                break
            except Crash:
                continue
        with in_case(f"seed {seed}"):
            check_copy(source, target, past.cuts)


@pytest.mark.parametrize(
    "error", [NoSuchTransaction("x"), EventAborted(cause=OSError())], ids=["transaction", "large event"]
)
def test_a_copy_goes_on_by_itself_when_the_target_gets_another_owner(
    source: Engine, target: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A hand-over ends open transactions. A copy takes hours, and nobody sits beside it to begin it again."""
    monkeypatch.setattr(_step, "_SIZE_MAX", 500)
    past = History(source, clock, random.Random(19))
    past.run(25, truncates=False)
    for countdown in (9, 14, 21):
        copy_streams(source, Mortal(target, [countdown], error))
        check_copy(source, target, past.cuts)
        for name in (STREAM, LOG):
            target.seal_stream(name)
            target.delete_stream(name)


def test_a_copy_from_a_bucket_to_a_bucket_is_the_same(clock: ManualClock, tmp_path: Path, s3_address: str) -> None:
    """Stores move from one bucket to another one; where a put fails or is late, it is made again."""
    places = [(f"{s3_address}/{name}", f"sqlite:{tmp_path}/{name}.db") for name in "ab"]
    source, target = (open_store_at(*place, address="bucket", clock=clock, sizes=SIZES) for place in places)
    with source, target:
        past = History(source, clock, random.Random(3))
        past.run(8, truncates=True)
        copy_streams(source, target)
        check_copy(source, target, past.cuts)


def test_a_copy_over_the_wire_is_the_same(source: Engine, target: Engine, clock: ManualClock) -> None:
    """Folders and servers are moved into each other; both sides have the wire between them here."""
    past = History(source, clock, random.Random(7))
    past.run(20, truncates=False)
    with over_the_wire(source, clock) as theirs, over_the_wire(target, clock) as ours:
        copy_streams(theirs, ours)
    check_copy(source, target, past.cuts)


def test_configuration_readers_and_seals_are_copied(source: Engine, target: Engine) -> None:
    """Who reads goes on where it was, and retention waits for it as it did."""
    config = StreamConfig(scaling=ByEventRate(100), retention=ByConsumption(), tags=("hot",))
    source.create_stream(STREAM, config=config)
    write(source, b"1", b"2", b"3", b"4")
    group = source.create_reader_group("g", [STREAM])
    with group.reader("r") as reader:
        for _ in range(3):
            reader.read_next_event(timeout=0)
    cut = StreamCut.of(STREAM, {0: next(iter(source.read(STREAM)))["offset"][2].as_py()})
    source.register_consumer(STREAM, "c", cut)
    source.seal_stream(STREAM)
    result = copy_streams(source, target)
    assert (result.groups, result.streams[0].events) == (("g",), 4)
    info = target.stream(STREAM)
    assert (info.config, info.state) == (config, "sealed")
    assert target.reader_group("g").lag().events == 1
    with target.reader_group("g").reader("r") as reader:
        read = reader.read_next_event(timeout=1)
    assert read is not None
    assert read.event == b"4"
    assert translate_cut(source, target, cut) == target.consumers(STREAM)["c"]
    again = copy_streams(source, target)
    assert (again.groups, again.kept_groups, again.streams[0].events) == ((), ("g",), 0)


def test_a_source_that_is_written_meanwhile_is_copied_up_to_its_tail_and_continued(
    source: Engine, target: Engine
) -> None:
    """A copy of a busy stream has an end, and its next run takes what came later, once."""
    source.create_stream(STREAM)
    write(source, b"1", b"2")
    tail = source.tail(STREAM)
    result = copy_streams(source, target, on_progress=lambda *_: write(source, b"3"))
    assert result.streams[0].end == tail
    assert events_of(target) == [b"1", b"2"]
    copy_streams(source, target)
    assert events_of(target) == events_of(source)


def test_an_event_of_any_size_is_copied_in_a_few_chunks_of_memory(tmp_path: Path) -> None:
    """An event may be larger than the memory of the machine that copies it."""
    with open_store(tmp_path / "a") as source, open_store(tmp_path / "b") as target:
        source.create_stream(STREAM)
        with source.writer(STREAM) as writer, writer.begin_write_event("cam") as output:
            for number in range(32):
                output.write(bytes([number]) * (1 << 20))
        tracemalloc.start()
        try:
            copy_streams(source, target)
            assert tracemalloc.get_traced_memory()[1] < 12 << 20
        finally:
            tracemalloc.stop()
        assert target.stream(STREAM).events == 1


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        ("other stream", CopyFailed, "is not a copy of it"),
        ("other log", CopyFailed, "another stream of this name"),
        ("more events", CopyFailed, "has other events behind"),
        ("scaled", CopyFailed, "was scaled by others"),
        ("sealed", CopyFailed, "was sealed"),
        ("deleted", CopyFailed, "was deleted"),
        ("truncated", CopyFailed, "truncated away"),
        ("recreated", CopyFailed, "a copy of another stream"),
    ],
)
def test_a_target_that_is_no_copy_any_more_is_refused(
    source: Engine, target: Engine, damage: str, error: type[PenstockError], words: str
) -> None:
    """To go on would mix events of two streams, or leave some out; the error says which it is."""
    source.create_stream(STREAM)
    write(source, b"1", b"2")
    if damage.startswith("other"):
        target.create_stream(STREAM if damage == "other stream" else LOG)
    else:
        copy_streams(source, target)
    before = target.streams()
    match damage:
        case "more events":
            write(target, b"x")
        case "scaled":
            target.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        case "sealed" | "deleted":
            target.seal_stream(STREAM)
            if damage == "deleted":
                target.delete_stream(STREAM)
        case "truncated":
            write(source, b"3")
            source.truncate_stream(STREAM, "tail")
        case "recreated":
            source.seal_stream(STREAM)
            source.delete_stream(STREAM)
            source.create_stream(STREAM)
        case _:
            pass
    with pytest.raises(error, match=words):
        copy_streams(source, target)
    if damage.startswith("other"):
        assert target.streams() == before


class Shrinking:
    """A store whose stream is truncated in the moment in which it is read, some times."""

    def __init__(self, store: Engine, times: int) -> None:
        self._store, self._times = store, times

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    def read_range(self, part: SegmentRange, *, max_event_size: int = 1 << 20) -> Any:  # noqa: ANN401
        if self._times:
            self._times -= 1
            first, *_ = (batch["offset"].to_pylist() for batch in self._store.read_range(part))
            self._store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: first[1]}))
        return self._store.read_range(part, max_event_size=max_event_size)


def test_a_source_whose_head_moves_is_copied_from_where_it_is(source: Engine, target: Engine) -> None:
    """Retention moves the head of a busy stream every second; a copy that began before that begins again."""
    source.create_stream(STREAM)
    write(source, *(b"%d" % number for number in range(9)))
    copy_streams(Shrinking(source, 3), target)
    assert events_of(target) == events_of(source) == [b"%d" % number for number in range(3, 9)]
    write(source, b"9", b"10", b"11")
    with pytest.raises(CopyFailed, match="truncated away"):
        copy_streams(Shrinking(source, 1), target)


def test_a_stream_that_others_use_is_not_changed_by_a_copy_that_is_refused(source: Engine, target: Engine) -> None:
    """After the move a copy is a stream like any other; to run the command again must not switch off its retention."""
    source.create_stream(STREAM, config=StreamConfig(retention=ByConsumption()))
    write(source, b"1")
    copy_streams(source, target)
    write(target, b"2")
    before = target.stream(STREAM)
    with pytest.raises(CopyFailed):
        copy_streams(source, target)
    assert target.stream(STREAM) == before


def test_watermarks_without_events_between_them_are_copied_in_steps(
    source: Engine, target: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle stream has a watermark of every second, and what is noted about a step has a limit."""
    monkeypatch.setattr(_step, "_MARKS_MAX", 7)
    source.create_stream(STREAM)
    source.add_watermarks(STREAM, [Watermark(time, time + 1, source.head(STREAM)) for time in range(20)])
    assert copy_streams(source, target).streams[0].watermarks == 20
    assert target.watermarks(STREAM) == source.watermarks(STREAM)
    assert sum(map(len, target.read(LOG))) == 5, "the beginning, three steps and the check"


def test_a_copy_that_differs_is_found_at_the_end(source: Engine, target: Engine) -> None:
    """The events of another writer among the copied ones would be taken for some of the source."""
    source.create_stream(STREAM)
    write(source, b"1", b"2")
    with pytest.raises(CopyDiffers, match="differs from its source"):
        copy_streams(source, target, on_progress=lambda _, act, *__: write(target, b"x") if act == "copying" else None)


def test_a_second_copy_of_the_same_stream_ends_the_first(source: Engine, target: Engine) -> None:
    """Both together would do each step twice."""
    source.create_stream(STREAM)
    write(source, b"1", b"2")
    is_first = [True]

    def meanwhile(*_: object) -> None:
        if is_first.pop() if is_first else False:
            copy_streams(source, target)

    with pytest.raises(WriterFenced):
        copy_streams(source, target, on_progress=meanwhile)
    assert events_of(target) == events_of(source)


def test_a_target_without_space_gets_the_rest_later(source: Engine) -> None:
    """What was copied before the disk was full is not copied again."""
    disk = SmallDisk(MemoryDisk())
    source.create_stream(STREAM, 2)
    write(source, *(b"%04d" % number + b"." * 500 for number in range(40)))
    with open_cpo("memory:") as cpo:
        with store_on(disk, cpo, "p", seed=1) as target:
            copy_streams(source, target)
            write(source, *(b"%05d" % number + b"." * 500 for number in range(200)))
            disk.limit = disk.used + 30_000
            with pytest.raises(DiskFull):
                copy_streams(source, target)
            disk.limit = float("inf")
        with store_on(disk, cpo, "p", seed=2) as target:
            assert copy_streams(source, target).streams[0].events == 200
            assert sorted(map(repr, by_segment(target).values())) == sorted(map(repr, by_segment(source).values()))


def test_a_user_without_the_permission_is_told_which(
    source: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy makes streams, so its user administers them; one who may only write is refused before anything is made."""
    cheap = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", cheap)
    source.create_stream(STREAM)
    write(source, b"1")
    folder = tmp_path / "data"
    with open_store(folder):
        users = Users.open(folder / USERS_FILE)
        for user, permission in (("ann", "admin"), ("bob", "write")):
            users.add(user, "secret")
            users.grant(user, permission, "plant/*")  # type: ignore[arg-type]
            users.grant(user, "read", "plant/*")
    with serving(folder) as server:
        with as_user(server, "bob") as target, pytest.raises(NotPermitted, match="administer"):
            copy_streams(source, target)
        with as_user(server, "ann") as target:
            copy_streams(source, target)
            assert target.stream(STREAM).events == 1


def test_what_is_no_stream_is_refused(source: Engine, target: Engine) -> None:
    """A name that is misspelled leaves nothing behind."""
    with pytest.raises(NoSuchStream):
        copy_streams(source, target, [STREAM])
    with pytest.raises(PenstockError, match="names"):
        copy_streams(source, target, STREAM)
    assert target.streams() == []


def test_repositories_are_copied_as_repositories(source: Engine, target: Engine) -> None:
    """Their events contain addresses, so a copy event by event could not be read."""
    Repository.open(source, "code/project", create=True).insert_stream(history(5))
    assert [repository.revisions for repository in copy_streams(source, target).repositories] == [5]
    assert Repository.open(target, "code/project").text((b"revisions", b"r4"))


def test_a_cut_that_is_not_copied_is_refused(source: Engine, target: Engine) -> None:
    """A reader that continued at the end of the copy would skip what comes there next."""
    source.create_stream(STREAM)
    write(source, b"1")
    with pytest.raises(CopyFailed, match="copy it first"):
        translate_cut(source, target, source.head(STREAM))
    copy_streams(source, target)
    write(source, b"2")
    with pytest.raises(CopyFailed, match="copy it first"):
        translate_cut(source, target, source.tail(STREAM))
