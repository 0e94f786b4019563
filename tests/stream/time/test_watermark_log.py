"""The mark log: watermarks one behind another, found again by halving."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.embedded import open_store
from penstock.errors import BadArgument, DiskFull, LogFenced, StreamCorrupt, WrongPosition
from penstock.log import MetadataManager, PlogSizes
from penstock.model import TIME_MAX, Watermark
from penstock.plog import FilePlogs
from penstock.stream.time._watermark_log import Border, WatermarkLog, pack_watermark, unpack_watermark
from penstock.testing import MemoryDisk
from tests.log.harness import GatedPlogs
from tests.sampling import examples
from tests.stream.time.mark_harness import STREAM, as_cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.cpo import Cpo

SIZES = PlogSizes(first=96, largest=96)  # a few watermarks each


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as cpo:
        yield cpo


@contextmanager
def managed(disk: MemoryDisk, cpo: Cpo) -> Iterator[MetadataManager]:
    plogs = FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12)
    with plogs, MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as manager:
        yield manager


@pytest.fixture
def manager(disk: MemoryDisk, cpo: Cpo) -> Iterator[MetadataManager]:
    with managed(disk, cpo) as manager:
        yield manager


def opened(manager: MetadataManager) -> WatermarkLog:
    return WatermarkLog(manager.log("m0"), STREAM)


def watermark(time: int, *, width: int = 1) -> Watermark:
    """Return one whose size differs from that of others, so that halving meets all of their bytes."""
    return Watermark(time, time + 5, as_cut(dict.fromkeys(range(width), time * 100)))


def filled(manager: MetadataManager, times: Iterable[int]) -> WatermarkLog:
    log = opened(manager)
    for time in times:
        log.append(watermark(time, width=1 + time % 4))
    return log


def lowers(log: WatermarkLog) -> list[int]:
    return [mark.lower for _, mark in log.after(log.start)]


# One watermark


@given(
    lower=st.integers(0, TIME_MAX),
    more=st.integers(0, TIME_MAX),
    cut=st.dictionaries(st.integers(0, 10**17), st.integers(0, 10**17), min_size=1, max_size=5),
)
def test_what_is_packed_is_unpacked_again(lower: int, more: int, cut: dict[int, int]) -> None:
    """Any times and any cut."""
    mark = Watermark(lower, lower + more, as_cut(cut))
    assert unpack_watermark(memoryview(pack_watermark(mark)), stream=STREAM, offset=0) == mark


def test_the_bytes_of_a_watermark_are_these() -> None:
    """They are on disk: another form needs another name."""
    mark = Watermark(1_700_000_000_000, 1_700_000_000_500, as_cut({3: 70, 12: 70_000}))
    assert pack_watermark(mark).hex() == "93cf0000018bcfe56800cf0000018bcfe569f48203460cce00011170"


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x93\x01", b"\x92\x01\x02", b"\x93\x01\xa1a\x80", b"\x93\x01\x02\x81\xa10\x01"],
    ids=["empty", "no code", "cut short", "no cut", "text", "text as segment"],
)
def test_bytes_that_are_no_watermark_are_reported_with_their_place(data: bytes) -> None:
    """Not as whatever they happen to look like."""
    with pytest.raises(StreamCorrupt, match=f"watermarks of stream {STREAM}") as caught:
        unpack_watermark(memoryview(data), stream=STREAM, offset=77)
    assert "77" in str(caught.value)


def test_every_byte_that_is_cut_off_is_noticed() -> None:
    """No part of a watermark is one."""
    data = pack_watermark(watermark(1_700_000_000_000, width=3))
    for size in range(len(data)):
        with pytest.raises(StreamCorrupt):
            unpack_watermark(memoryview(data[:size]), stream=STREAM, offset=0)


def test_damage_in_the_log_is_reported_where_it_is_read(manager: MetadataManager) -> None:
    """The last one is read when the log is opened."""
    manager.log("m0").append(b"\xc1 no watermark")
    with pytest.raises(StreamCorrupt):
        opened(manager)


# Many of them


def test_a_new_log_has_none(manager: MetadataManager) -> None:
    """There is no last one, and nothing holds."""
    log = opened(manager)
    assert log.last is None
    assert log.border(lambda _: True) == Border(None, None, 0)
    assert lowers(log) == []
    log.truncate(lambda _: True)
    assert (log.start, log.end) == (0, 0)


def test_the_last_one_is_known_after_opening_it_again(disk: MemoryDisk, cpo: Cpo) -> None:
    """Time goes on from there."""
    with managed(disk, cpo) as manager:
        end = filled(manager, range(1, 40)).end
    with managed(disk, cpo) as manager:
        log = opened(manager)
        assert log.last == watermark(39, width=4)
        assert log.end == end
        log.append(watermark(40))
        assert lowers(log) == list(range(1, 41))


def test_each_is_read_with_where_the_next_begins(manager: MetadataManager) -> None:
    """So a reader that has read some can continue."""
    log = filled(manager, range(1, 20))
    entries = list(log.after(0))
    assert [mark.lower for _, mark in entries] == list(range(1, 20))
    for number, (end, mark) in enumerate(entries):
        assert [later for _, later in log.after(end)] == [later for _, later in entries[number + 1 :]]
        begin = entries[number - 1][0] if number else 0
        for offset in range(begin, end):
            assert log.at(offset) == (begin, mark, end)


def test_a_border_is_found_by_halving_as_by_looking_at_all(manager: MetadataManager) -> None:
    """For every border there is, before the first and behind the last included."""
    log = filled(manager, range(10, 400, 10))
    marks = list(log.after(log.start))
    for time in range(0, 410, 5):
        holds = [mark for _, mark in marks if mark.lower <= time]
        rest = [mark for _, mark in marks if mark.lower > time]
        offset = marks[len(holds) - 1][0] if holds else 0
        expected = Border(holds[-1] if holds else None, rest[0] if rest else None, offset)
        assert log.border(lambda mark, time=time: mark.lower <= time) == expected  # type: ignore[misc]


def test_a_border_takes_few_looks(manager: MetadataManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may have a million of them."""
    log = filled(manager, range(1, 600))
    looks: list[int] = []
    at = WatermarkLog.at

    def counted(self: WatermarkLog, offset: int) -> tuple[int, Watermark, int]:
        looks.append(offset)
        return at(self, offset)

    monkeypatch.setattr(WatermarkLog, "at", counted)
    for time in (0, 1, 300, 598, 599):
        looks.clear()
        log.border(lambda mark, time=time: mark.lower <= time)  # type: ignore[misc]
        assert len(looks) <= 15


@settings(max_examples=examples(20))
@given(
    times=st.sets(st.integers(1, 300), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 300), max_size=3),
    wanted=st.lists(st.integers(0, 300), min_size=1, max_size=8),
)
def test_truncating_takes_whole_plogs_and_never_the_last_that_is_to_go(
    times: set[int], cuts: list[int], wanted: list[int]
) -> None:
    """What the time at the head is stands in the last one before it; all behind it stay, and are found."""
    disk = MemoryDisk()
    with open_cpo("memory:") as cpo:
        with managed(disk, cpo) as manager:
            log = filled(manager, sorted(times))
            for cut in cuts:
                log.truncate(lambda mark, cut=cut: mark.lower <= cut)  # type: ignore[misc]
        with managed(disk, cpo) as manager:
            log = opened(manager)
            left = lowers(log)
            before = [time for time in sorted(times) if time <= max(cuts, default=0)]
            assert left == sorted(times)[len(times) - len(left) :]
            assert left[0] <= (before[-1] if before else min(times))
            assert log.last is not None
            assert log.last.lower == max(times)
            for time in wanted:
                border = log.border(lambda mark, time=time: mark.lower <= time)  # type: ignore[misc]
                found = [one for one in left if one <= time]
                assert (border.last.lower if border.last else None) == (found[-1] if found else None)


def test_truncating_frees_room(manager: MetadataManager) -> None:
    """Else a stream with retention would keep its watermarks for ever."""
    log = filled(manager, range(1, 200))
    log.truncate(lambda mark: mark.lower <= 150)
    assert 140 < lowers(log)[0] <= 150
    log.truncate(lambda mark: mark.lower <= 100)
    assert lowers(log)[0] > 140, "what is gone stays gone, and nothing fails"
    log.append(watermark(200))
    assert lowers(log)[-1] == 200


# Who may append


def test_time_does_not_go_back(manager: MetadataManager) -> None:
    """Halving would find nothing any more."""
    log = filled(manager, [5])
    for time in (5, 4):
        with pytest.raises(AssertionError):
            log.append(watermark(time))


def test_of_two_that_append_at_once_one_writes_nothing(manager: MetadataManager) -> None:
    """Each watermark follows the one that its writer has seen."""
    one, other = opened(manager), opened(manager)
    one.append(watermark(1))
    with pytest.raises(WrongPosition):
        other.append(watermark(1))
    assert lowers(opened(manager)) == [1]


def test_a_former_owner_writes_no_watermark(disk: MemoryDisk, cpo: Cpo) -> None:
    """The one who has the partition now goes on where the other was, and is not disturbed."""
    plogs = FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12)
    with plogs, MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as former:
        old = filled(former, [1, 2])
        with MetadataManager.open(plogs, cpo, "main", sizes=SIZES) as present:
            new = opened(present)
            new.append(watermark(3))
            with pytest.raises(LogFenced):
                old.append(watermark(4))
            new.append(watermark(5))
            assert lowers(opened(present)) == [1, 2, 3, 5]


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done"])
def test_an_append_that_failed_is_looked_for_when_the_log_is_opened_again(
    disk: MemoryDisk, cpo: Cpo, *, after: bool
) -> None:
    """Whether it is there or not, the next one follows."""
    gated = GatedPlogs(FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12))
    with gated, MetadataManager.open(gated, cpo, "main", sizes=SIZES) as manager:
        log = filled(manager, [1])
        gated.fail("result", DiskFull("memory:"), after=after)
        with pytest.raises(DiskFull):
            log.append(watermark(2))
        log = opened(manager)
        assert log.last is not None
        assert log.last.lower in (1, 2)
        log.append(watermark(3))
        assert lowers(opened(manager))[-1] == 3


def test_many_watermarks_are_read_without_the_lock_of_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others who create, commit or register anything would wait: for a second if there are 100,000."""
    monkeypatch.setattr("penstock.stream.time._watermarks._RETURNED_MAX", 20)
    with open_store("memory:") as store, ThreadPoolExecutor() as threads:
        store.create_stream("plant/readings")
        head = store.head("plant/readings")
        store.add_watermarks("plant/readings", [Watermark(time, time, head) for time in range(1, 22)])
        after, was_free = WatermarkLog.after, list[bool]()

        def look_at_lock() -> bool:
            is_free = store.catalog.lock.acquire(timeout=0.2)
            if is_free:
                store.catalog.lock.release()
            return is_free

        def watched(log: WatermarkLog, offset: int) -> Iterator[tuple[int, Watermark]]:
            was_free.append(threads.submit(look_at_lock).result())
            return after(log, offset)

        monkeypatch.setattr(WatermarkLog, "after", watched)
        assert [mark.lower for mark in store.watermarks("plant/readings", 2)] == [*range(2, 22)]
        with pytest.raises(BadArgument, match="more than 20 watermarks: use a later start or an earlier end"):
            store.watermarks("plant/readings")
        assert was_free == [True, True]
