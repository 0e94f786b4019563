"""The log stream as its users see it: append, read, truncate, splice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import (
    AppendTooLarge,
    BadArgument,
    LogFenced,
    NoSuchLog,
    NotInLog,
    ReadOutOfRange,
    StoreClosed,
    WrongPosition,
)
from penstock.log import LogPosition, LogStream, MetadataManager, PlogSizes
from penstock.log._records import Init, Splice
from penstock.model import PlogId
from penstock.plog import APPEND_SIZE_MAX, FilePlogs, open_plogs
from penstock.testing import MemoryDisk
from tests.log.conftest import open_manager
from tests.log.harness import content, contents, leftovers, plog_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from penstock.cpo import Cpo

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]

UNKNOWN: Final = PlogId("local", "main", "f" * 32)


@pytest.fixture
def log(manager: MetadataManager) -> LogStream:
    return manager.log("log")


def grown(log: LogStream, count: int = 8, size: int = 60) -> bytes:
    """Append so much that the log has several plogs; return what."""
    pieces = [bytes([65 + number]) * size for number in range(count)]
    for piece in pieces:
        log.append(piece)
    return b"".join(pieces)


def ids(log: LogStream) -> list[PlogId]:
    return [plog_id for plog_id, _, _ in log.plogs()]


def test_append_returns_the_end_behind_the_data(log: LogStream) -> None:
    """A caller that keeps the position finds its data right before it."""
    for number in range(12):
        data = b"%02d" % number * (number + 1)
        end = log.append(data)
        assert b"".join(log.read(end.plog_id, end.offset - len(data), len(data))) == data
        assert end == log.tail


def test_an_append_where_the_caller_expects_the_end_is_taken(log: LogStream) -> None:
    """The position one append returns is what the next one expects."""
    position = log.tail
    for _ in range(10):
        position = log.append(b"x" * 30, expected=position)
    assert log.length == 300


def test_an_append_elsewhere_than_expected_writes_nothing(log: LogStream) -> None:
    """Somebody else appended in between; the caller decides what to do about it."""
    first = log.append(b"first")
    log.append(b"second")
    with pytest.raises(WrongPosition, match="ends at") as refused:
        log.append(b"third", expected=first)
    assert refused.value.tail == log.tail
    with pytest.raises(WrongPosition):
        log.append(b"third", expected=LogPosition(UNKNOWN, 11))
    assert content(log) == b"firstsecond"


def test_a_refused_append_does_not_switch_plogs(log: LogStream) -> None:
    """Nothing was written means nothing at all."""
    log.append(b"x" * 60)
    before = log.plogs()
    with pytest.raises(WrongPosition):
        log.append(b"y" * 60, expected=LogPosition(before[0][0], 59))
    assert log.plogs() == before


def test_the_end_of_a_plog_is_the_start_of_the_next_for_who_expects_it(manager: MetadataManager) -> None:
    """After a switch or a splice the caller's position names the old plog, and is right all the same."""
    log, other = manager.log("log"), manager.log("other")
    end = log.append(b"x" * 64)
    other.append(b"y")
    old = LogPosition(end.plog_id, 64)
    assert log.append(b"z" * 10, expected=old).offset == 10
    source_end = other.tail
    log.splice(other)
    assert log.append(b"!", expected=LogPosition(source_end.plog_id, source_end.offset)).offset == 1
    assert content(log) == b"x" * 64 + b"z" * 10 + b"y!"


def test_the_expected_position_holds_over_a_restart(reopen: Reopen) -> None:
    """Writers keep positions; a restart is not somebody else."""
    with reopen() as manager:
        end = manager.log("log").append(b"x" * 64)
    with reopen() as manager:
        end = manager.log("log").append(b"y" * 10, expected=end)
    with reopen() as manager:
        manager.log("log").append(b"z", expected=end)
        assert content(manager.log("log")) == b"x" * 64 + b"y" * 10 + b"z"


def test_an_empty_append_changes_nothing(log: LogStream) -> None:
    """It says where the log ends, and is no piece of it."""
    assert log.append(b"").offset == 0
    end = log.append(b"data")
    assert log.append(b"") == end
    assert log.append(b"", expected=end) == end
    assert log.length == 4


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_anything_with_bytes_in_it_is_appended(log: LogStream, kind: type) -> None:
    """Callers have buffers of all kinds; none of them should have to copy first."""
    log.append(kind(b"some bytes"))
    assert content(log) == b"some bytes"


def test_a_read_goes_over_as_many_plogs_as_it_takes(log: LogStream) -> None:
    """Where one plog ends and the next begins is no concern of a reader."""
    data = grown(log)
    assert len(log.plogs()) >= 3
    for plog_id, _, _ in log.plogs():
        start = sum(length for other, length, _ in log.plogs()[: ids(log).index(plog_id)])
        for offset in (0, 1, 59):
            for size in (0, 1, 100, len(data) - start - offset):
                if start + offset + size <= len(data):
                    found = b"".join(log.read(plog_id, offset, size))
                    assert found == data[start + offset : start + offset + size]


def test_views_are_given_as_they_were_appended_and_read_only(log: LogStream) -> None:
    """No byte is copied on the way out, and a view cannot be used to change what is stored."""
    log.append(b"one")
    log.append(b"two")
    views = list(log.read(ids(log)[0], 1, 4))
    assert [bytes(view) for view in views] == [b"ne", b"tw"]
    assert all(view.readonly for view in views)


def test_reads_share_the_memory_of_the_file(log: LogStream) -> None:
    """Two reads of the same bytes are the same bytes, not two copies."""
    log.append(b"x" * 50)
    first, second = (next(log.read(ids(log)[0], 0, 50)) for _ in range(2))
    assert first.obj is second.obj


def test_a_read_out_of_range_says_how_much_there_is(log: LogStream) -> None:
    """A reader at the tail needs to know where the tail is."""
    data = grown(log)
    first, *_, last = log.plogs()
    with pytest.raises(ReadOutOfRange):
        log.read(last[0], last[1], 1)
    with pytest.raises(ReadOutOfRange):
        log.read(first[0], 0, len(data) + 1)
    with pytest.raises(ReadOutOfRange) as refused:
        log.read(first[0], first[1] + 1, 0)
    assert refused.value.length == first[1]
    assert list(log.read(last[0], last[1], 0)) == []
    assert list(log.read(first[0], first[1], 0)) == []


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, -1), (-5, -5)])
def test_a_negative_read_is_refused(log: LogStream, offset: int, size: int) -> None:
    """Python would count from the end; a log does not."""
    log.append(b"data")
    with pytest.raises(BadArgument, match="use 0 or more"):
        log.read(ids(log)[0], offset, size)


def test_a_huge_read_is_refused_before_anything_is_done(log: LogStream) -> None:
    """Sizes come from the network."""
    log.append(b"data")
    with pytest.raises(ReadOutOfRange):
        log.read(ids(log)[0], 1 << 70, 1 << 80)


def test_a_plog_of_another_log_cannot_be_read_through_this_one(manager: MetadataManager) -> None:
    """A position is of one log; mixing them up must not give data."""
    log, other = manager.log("log"), manager.log("other")
    other.append(b"secret")
    with pytest.raises(NotInLog):
        log.read(ids(other)[0], 0, 1)
    with pytest.raises(NotInLog):
        log.read(UNKNOWN, 0, 0)
    with pytest.raises(NotInLog):
        log.read(manager.partition.metadata.logs["log"].next, 0, 0)


def test_an_append_above_the_limit_is_refused(log: LogStream) -> None:
    """One append is one block, and a block has a limit."""
    with pytest.raises(AppendTooLarge, match="split it"):
        log.append(bytes(APPEND_SIZE_MAX + 1))
    assert log.length == 0


def test_the_largest_append_fits_whatever_plog_the_log_has(log: LogStream) -> None:
    """The first plogs of a log are small; that is the log's business, not the caller's."""
    data = bytes(range(256)) * (APPEND_SIZE_MAX // 256)
    assert log.append(data).offset == APPEND_SIZE_MAX
    log.append(b"x" * 10)
    log.append(data)
    assert log.length == 2 * APPEND_SIZE_MAX + 10
    assert content(log) == data + b"x" * 10 + data


def test_plogs_start_and_length_describe_the_log(log: LogStream) -> None:
    """Garbage collection and planning of reads go by them."""
    data = grown(log)
    plogs = log.plogs()
    assert sum(length for _, length, _ in plogs) == log.length == len(data)
    assert [sealed for _, _, sealed in plogs] == [True] * (len(plogs) - 1) + [False]
    assert log.start == 0
    assert log.tail == LogPosition(plogs[-1][0], plogs[-1][1])


def test_truncate_frees_the_files_and_keeps_offsets(reopen: Reopen, disk: MemoryDisk) -> None:
    """Offsets of a log are for ever; what was truncated is gone, what was not stays where it was."""
    with reopen() as manager:
        log = manager.log("log")
        data = grown(log)
        before = log.plogs()
        log.truncate(before[1][0])
        assert log.plogs() == before[1:]
        assert (log.start, log.length) == (before[0][1], len(data))
        with pytest.raises(NotInLog):
            log.read(before[0][0], 0, 1)
        with pytest.raises(NotInLog):
            log.truncate(before[0][0])
    assert f"{before[0][0].uid}.plog" not in disk.names()
    assert not leftovers(manager, disk)
    with reopen() as manager:
        log = manager.log("log")
        assert (log.start, log.length) == (before[0][1], len(data))
        assert content(log) == data[before[0][1] :]
        log.append(b"on")
        assert log.length == len(data) + 2


def test_truncate_at_the_active_plog_leaves_only_what_it_holds(manager: MetadataManager) -> None:
    """The active plog is always part of the log: it takes the next append."""
    log = manager.log("log")
    data = grown(log)
    active, length, _ = log.plogs()[-1]
    log.truncate(active)
    log.truncate(active)
    assert log.plogs() == [(active, length, False)]
    log.append(b"!")
    assert content(log) == data[-length:] + b"!"


def test_truncate_at_a_plog_that_is_not_the_logs_changes_nothing(log: LogStream) -> None:
    """A truncation that guessed would delete data."""
    grown(log)
    before = log.plogs()
    with pytest.raises(NotInLog):
        log.truncate(UNKNOWN)
    assert log.plogs() == before


def test_a_reader_of_a_plog_that_is_truncated_away_meanwhile_is_told(manager: MetadataManager) -> None:
    """What it holds stays good; what it has not reached yet is gone, and must not look like the end."""
    log = manager.log("log")
    data = grown(log)
    reader = log.read(ids(log)[0], 0, len(data))
    held = next(reader)
    log.truncate(ids(log)[-1])
    manager.close()
    assert bytes(held) == data[: len(held)]
    with pytest.raises(NotInLog):
        list(reader)


def test_splice_puts_all_bytes_of_another_log_behind(reopen: Reopen, disk: MemoryDisk) -> None:
    """This is how a large event or a transaction is committed."""
    with reopen() as manager:
        log, source = manager.log("log"), manager.log("source")
        data, more = grown(log, 3), grown(source, 7)
        log.splice(source)
        assert content(log) == data + more
        assert log.length == len(data) + len(more)
        log.append(b"after")
        assert manager.logs() == ["log"]
    with reopen() as manager:
        assert contents(manager) == {"log": data + more + b"after"}
    assert not leftovers(manager, disk)


def test_a_spliced_log_is_gone_for_who_has_it_still_open(manager: MetadataManager) -> None:
    """Its bytes are another log's now; an append to it would have nowhere to go."""
    log, source = manager.log("log"), manager.log("source")
    source.append(b"data")
    log.splice(source)
    for use in (lambda: source.append(b"x"), lambda: source.length, lambda: source.tail, source.plogs,
                lambda: log.splice(source)):  # fmt: skip
        with pytest.raises(NoSuchLog):
            use()
    assert content(log) == b"data"


def test_a_new_log_under_an_old_name_is_not_the_old_one(manager: MetadataManager) -> None:
    """Two writers at one log would get into each other's way; the one that holds the old log must find out."""
    log = manager.log("log")
    for end in ("splice", "delete"):
        old = manager.log("name")
        old.append(b"old" * 10)
        if end == "splice":
            log.splice(old)
        else:
            manager.delete_log("name")
        new = manager.log("name")
        assert new is not old
        new.append(b"new")
        for size in (1, 60, 300):
            with pytest.raises(NoSuchLog):
                old.append(b"x" * size)
        new.append(b"more" * 20)
        assert content(new) == b"new" + b"more" * 20
        with pytest.raises(NoSuchLog):
            log.splice(old)
        manager.delete_log("name")


def test_an_empty_log_is_spliced_by_forgetting_it(manager: MetadataManager) -> None:
    """A transaction that wrote nothing commits nothing."""
    log = manager.log("log")
    log.append(b"data")
    before = log.plogs()
    log.splice(manager.log("empty"))
    assert log.plogs() == before
    assert manager.logs() == ["log"]


def test_a_log_is_spliced_into_an_empty_one(reopen: Reopen, disk: MemoryDisk) -> None:
    """The first event of a segment may be a large one."""
    with reopen() as manager:
        source = manager.log("source")
        data = grown(source)
        log = manager.log("log")
        log.splice(source)
        assert content(log) == data
        log.append(b"!")
    with reopen() as manager:
        assert contents(manager) == {"log": data + b"!"}
    assert not leftovers(manager, disk)


def test_splices_in_a_row_keep_the_order_of_the_calls(reopen: Reopen) -> None:
    """The order of events is the order of commits."""
    with reopen() as manager:
        log = manager.log("log")
        expected = b""
        for number in range(6):
            source = manager.log(f"source{number}")
            expected += grown(source, count=1 + number % 3)
            log.splice(source)
        assert content(log) == expected
    with reopen() as manager:
        assert contents(manager) == {"log": expected}


def test_a_spliced_log_can_be_spliced_on(manager: MetadataManager) -> None:
    """Parts of parts are parts."""
    one, two, three = (manager.log(name) for name in ("one", "two", "three"))
    one.append(b"1" * 60)
    two.append(b"2" * 60)
    three.append(b"3" * 60)
    two.splice(three)
    one.splice(two)
    assert content(one) == b"1" * 60 + b"2" * 60 + b"3" * 60


def test_the_rest_of_a_truncated_log_is_spliced(manager: MetadataManager) -> None:
    """What was truncated away is no part of any log."""
    log, source = manager.log("log"), manager.log("source")
    log.append(b"data")
    data = grown(source)
    cut = source.plogs()[0][1]
    source.truncate(ids(source)[1])
    log.splice(source)
    assert content(log) == b"data" + data[cut:]


def test_a_log_cannot_be_spliced_into_itself_or_over_partitions(manager: MetadataManager, cpo: Cpo) -> None:
    """One record in one metadata log makes it happen, or it does not happen."""
    log = manager.log("log")
    log.append(b"data")
    with pytest.raises(BadArgument):
        log.splice(log)
    with open_manager(MemoryDisk(), cpo, partition="p1") as elsewhere:
        foreign = elsewhere.log("log")
        foreign.append(b"foreign")
        with pytest.raises(BadArgument):
            log.splice(foreign)
        assert content(foreign) == b"foreign"
    assert content(log) == b"data"


def metadata_cost_of_splice(plogs_of_source: int) -> tuple[int, int]:
    """Return how many records and bytes of metadata it takes to splice a log of so many plogs."""
    with (
        open_cpo("memory:") as cpo,
        open_plogs("memory:") as plogs,
        MetadataManager.open(plogs, cpo, "p0", sizes=PlogSizes(first=1 << 20, largest=1 << 20)) as manager,
    ):
        manager.partition.sizes = PlogSizes(first=64, largest=64)
        log, source = manager.log("log"), manager.log("source")
        log.append(b"x")
        for _ in range(plogs_of_source):
            source.append(b"y" * 60)
        assert len(source.plogs()) == plogs_of_source
        assert manager._background is not None
        manager._background.submit(lambda: None).result()
        records, length = len(list(manager.read_all())), manager.partition.length
        log.splice(source)
        assert isinstance(list(manager.read_all())[-1], Splice)
        return len(list(manager.read_all())) - records, manager.partition.length - length


def test_the_cost_of_a_splice_does_not_grow_with_the_source() -> None:
    """A hundred gigabytes commit as fast as ten megabytes."""
    (records, size), (more_records, more_size) = metadata_cost_of_splice(2), metadata_cost_of_splice(200)
    assert records == more_records == 1
    assert size == more_size


def test_a_deleted_log_is_gone_with_its_files(reopen: Reopen, disk: MemoryDisk) -> None:
    """A caller that deletes wants the space back."""
    with reopen() as manager:
        log = manager.log("log")
        grown(log)
        manager.delete_log("log")
        assert manager.logs() == []
        for use in (lambda: log.append(b"x"), lambda: log.append(b"x" * 400), lambda: log.length, lambda: log.tail):
            with pytest.raises(NoSuchLog):
                use()
        with pytest.raises(NoSuchLog):
            manager.delete_log("log")
    assert len(plog_files(disk)) == 2, "the metadata log's, and the partition's mark"
    with reopen() as manager:
        assert manager.logs() == []
        manager.log("log").append(b"another one")
        assert contents(manager) == {"log": b"another one"}


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a/b", "a b", "ä", "x" * 256, "a\n", "a\0", "../a"])
def test_a_name_that_could_be_trouble_is_refused(manager: MetadataManager, name: str) -> None:
    """Names go into messages, records and other people's systems."""
    with pytest.raises(BadArgument):
        manager.log(name)
    assert manager.logs() == []


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-d", "x" * 255])
def test_an_ordinary_name_is_taken(reopen: Reopen, name: str) -> None:
    """Also the longest, in every kind of record."""
    with reopen() as manager:
        for _ in range(4):
            manager.log(name).append(b"x" * 200)
    with reopen() as manager:
        assert contents(manager) == {name: b"x" * 800}


def test_logs_are_created_at_first_use_and_remembered(reopen: Reopen) -> None:
    """Also a log without any append."""
    with reopen() as manager:
        assert manager.log("b") is manager.log("b")
        manager.log("a")
        assert manager.logs() == ["a", "b"]
    with reopen() as manager:
        assert manager.logs() == ["a", "b"]
        assert manager.log("a").length == 0
        assert content(manager.log("b")) == b""


def test_read_all_gives_what_a_recovery_would_read(manager: MetadataManager) -> None:
    """The metadata log can be looked at with its own tools."""
    manager.log("a")
    first, *others = manager.read_all()
    assert type(first).__name__ == "Chain"
    assert [record.log for record in others if isinstance(record, Init)] == ["a"]


def test_reopening_again_and_again_keeps_everything(reopen: Reopen, disk: MemoryDisk) -> None:
    """Every reopening is a recovery."""
    expected = dict.fromkeys(("a", "b", "c"), b"")
    for number in range(12):
        with reopen() as manager:
            for name in expected:
                data = f"{name}{number}".encode() * (5 + number)
                manager.log(name).append(data)
                expected[name] += data
            assert contents(manager) == expected
        assert not leftovers(manager, disk)


def test_plogs_grow_from_small_to_large(cpo: Cpo) -> None:
    """Ten thousand idle logs must not fill a disk, and a busy one must not switch all the time."""
    with FilePlogs(MemoryDisk()) as plogs, MetadataManager.open(plogs, cpo, "p0") as manager:
        log = manager.log("log")
        seen: dict[PlogId, int] = {}
        for _ in range(45):
            position = log.append(bytes(1 << 20))
            seen[position.plog_id] = plogs.info(position.plog_id).size
        sizes = [plogs.info(plog_id).size for plog_id in ids(log)]
        assert sizes[0] == 64 << 10
        assert sizes[1:4] == [1 << 20, 4 << 20, 16 << 20]
        assert set(sizes[4:]) <= {16 << 20}


@pytest.mark.parametrize(("first", "largest"), [(0, 1), (-1, 5), (10, 9), (1, (1 << 30) + 1)])
def test_sizes_that_cannot_be_are_refused(first: int, largest: int) -> None:
    """Better at once than at the first switch."""
    with pytest.raises(BadArgument, match="invalid plog sizes"):
        PlogSizes(first=first, largest=largest)


def test_sizes_follow_each_other_up_to_the_largest() -> None:
    """Each is four times the one before."""
    sizes = PlogSizes()
    found = [sizes.first]
    while found[-1] < sizes.largest:
        found.append(sizes.after(found[-1]))
    assert found == [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
    assert sizes.after(16 << 20) == 16 << 20
    assert sizes.after(1) == 64 << 10, "after an odd one, not below the first"
    assert sizes.after(1 << 29) == 16 << 20


def test_a_metadata_plog_is_never_larger_than_a_plog_can_be() -> None:
    """Of a partition with very much to remember, the metadata log must still find its next plog."""
    assert PlogSizes().for_metadata(300 << 20) == 1 << 30
    assert PlogSizes().for_metadata(1 << 20) == 4 << 20
    assert PlogSizes().for_metadata(10) == 64 << 10


def test_an_idle_log_takes_one_small_plog(cpo: Cpo) -> None:
    """The next one is made when there is something to write."""
    disk = MemoryDisk()
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "p0") as manager:
        before = len(plog_files(disk))
        for number in range(50):
            manager.log(f"log{number}")
        assert len(plog_files(disk)) == before + 50
        assert all(plogs.info(manager.log(f"log{number}").plogs()[0][0]).size <= 64 << 10 for number in range(50))
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "p0") as manager:
        assert [manager.log(f"log{number}").length for number in range(50)] == [0] * 50
    assert len(plog_files(disk)) == before + 50


def test_a_closed_manager_takes_nothing_more(reopen: Reopen) -> None:
    """The process that opens the partition next must be the only one that writes."""
    with reopen() as manager:
        log, other = manager.log("log"), manager.log("other")
        grown(log)
        other.append(b"x")
        manager.close()
        manager.close()
        for use in (lambda: manager.log("new"), lambda: manager.log("log"), lambda: log.append(b"x"),
                    lambda: log.append(b"x" * 300), lambda: log.tail, lambda: log.splice(other),
                    lambda: log.truncate(ids(log)[-1]), lambda: manager.delete_log("log"),
                    lambda: list(manager.read_all())):  # fmt: skip
            with pytest.raises(StoreClosed):
                use()
    with pytest.raises(StoreClosed):
        log.plogs()


def test_a_log_that_another_manager_wrote_to_is_fenced_and_goes_on(disk: MemoryDisk, cpo: Cpo) -> None:
    """The offset check of the plog notices; neither may overwrite the other."""
    with FilePlogs(disk) as plogs:
        first = MetadataManager.open(plogs, cpo, "p0")
        first.log("log").append(b"first")
        second = MetadataManager.open(plogs, cpo, "p0")
        second.log("log").append(b"second")
        with pytest.raises(LogFenced):
            first.log("log").append(b"lost")
        assert content(second.log("log")) == b"firstsecond"
        second.close()
        first.close()
