"""Many threads at once, and any order of operations: nothing lost, nothing twice, each in its order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.cpo import open_cpo
from penstock.errors import LogFenced, NoSuchLog, NotInLog
from penstock.log import MetadataManager
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk
from tests.log.conftest import TINY
from tests.log.harness import SECONDS_MAX, content, contents, leftovers
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import AbstractContextManager

    from penstock.log import LogStream

WRITERS: Final = 8
APPENDS: Final = 120


def piece(writer: int, number: int) -> bytes:
    return b"<%d:%d:%s>" % (writer, number, b"." * (number * 7 % 45))


def write(log: LogStream, writer: int, count: int = APPENDS) -> None:
    for number in range(count):
        end = log.append(data := piece(writer, number))
        assert end.offset >= len(data)


def parsed(data: bytes) -> dict[int, list[int]]:
    """Return the numbers of each writer's pieces, in the order of the log."""
    found: dict[int, list[int]] = {}
    for text in filter(None, data.split(b"<")):
        assert text.endswith(b">"), "no piece is cut"
        writer, number, _ = text.split(b":")
        found.setdefault(int(writer), []).append(int(number))
    return found


def test_many_writers_of_one_log_each_keep_their_order(
    manager: MetadataManager, pool: ThreadPoolExecutor, reopen: Callable[[], AbstractContextManager[MetadataManager]]
) -> None:
    """Plogs of 256 bytes: there is a switch with every few appends, and all threads are in it."""
    log = manager.log("log")
    for future in [pool.submit(write, log, writer) for writer in range(WRITERS)]:
        future.result(SECONDS_MAX)
    assert parsed(content(log)) == {writer: list(range(APPENDS)) for writer in range(WRITERS)}
    manager.close()
    manager.plogs.close()
    with reopen() as after:
        assert parsed(content(after.log("log"))) == {writer: list(range(APPENDS)) for writer in range(WRITERS)}


def test_many_logs_are_written_at_once(manager: MetadataManager, pool: ThreadPoolExecutor) -> None:
    """They share the journal and the metadata log, and nothing else."""
    for future in [pool.submit(write, manager.log(f"log{writer}"), writer) for writer in range(WRITERS)]:
        future.result(SECONDS_MAX)
    for writer in range(WRITERS):
        assert parsed(content(manager.log(f"log{writer}"))) == {writer: list(range(APPENDS))}


def test_readers_see_a_prefix_that_only_grows(manager: MetadataManager, pool: ThreadPoolExecutor) -> None:
    """What was read once is never taken back, whatever switch is under way."""
    log = manager.log("log")
    log.append(piece(0, 0))
    first, done = log.plogs()[0][0], threading.Event()

    def read() -> int:
        seen, rounds = b"", 0
        while not done.is_set() or not rounds:
            found = b"".join(log.read(first, 0, log.length))
            assert found.startswith(seen)
            assert found.endswith(b">"), "an append is there wholly or not at all"
            seen, rounds = found, rounds + 1
        return rounds

    readers = [pool.submit(read) for _ in range(3)]
    for future in [pool.submit(write, log, writer, 60) for writer in range(1, 5)]:
        future.result(SECONDS_MAX)
    done.set()
    assert all(reader.result(SECONDS_MAX) for reader in readers)


def test_truncations_race_with_writers_and_readers(
    manager: MetadataManager, pool: ThreadPoolExecutor, disk: MemoryDisk
) -> None:
    """A reader gets the right bytes or is told that they are gone; writers do not notice."""
    log = manager.log("log")
    done = threading.Event()

    def truncate() -> None:
        while not done.is_set():
            plogs = log.plogs()
            log.truncate(plogs[len(plogs) // 2][0])

    def read() -> None:
        while not done.is_set():
            try:
                found = content(log)
            except NotInLog:
                continue
            for numbers in parsed(found[found.find(b"<") :]).values():
                assert numbers == sorted(numbers)

    others = [pool.submit(truncate), pool.submit(read)]
    for future in [pool.submit(write, log, writer, 60) for writer in range(4)]:
        future.result(SECONDS_MAX)
    done.set()
    for other in others:
        other.result(SECONDS_MAX)
    left = parsed(content(log))
    assert all(numbers == list(range(numbers[0], 60)) for numbers in left.values())
    manager.close()
    assert not leftovers(manager, disk)


def test_splices_race_with_writers_of_the_target(manager: MetadataManager, pool: ThreadPoolExecutor) -> None:
    """A commit puts its pieces into the log one behind another, with nothing of others between them."""
    log = manager.log("log")

    def commit(writer: int) -> None:
        for number in range(15):
            part = manager.log(f"part{writer}")
            part.append(piece(writer, 2 * number))
            part.append(piece(writer, 2 * number + 1))
            log.splice(part)

    futures = [pool.submit(write, log, writer, 60) for writer in range(3)]
    futures += [pool.submit(commit, writer) for writer in range(3, 6)]
    for future in futures:
        future.result(SECONDS_MAX)
    assert manager.logs() == ["log"]
    held = content(log)
    expected = {writer: list(range(60 if writer < 3 else 30)) for writer in range(6)}
    assert parsed(held) == expected
    for writer in range(3, 6):
        for number in range(15):
            assert piece(writer, 2 * number) + piece(writer, 2 * number + 1) in held


def test_splices_in_opposite_directions_do_not_wait_for_each_other(
    manager: MetadataManager, pool: ThreadPoolExecutor
) -> None:
    """Two logs that take each other over at once: one of them wins, none hangs."""
    for number in range(30):
        a, b = manager.log("a"), manager.log("b")
        a.append(b"a%d" % number)
        b.append(b"b%d" % number)
        outcomes = [future.exception(SECONDS_MAX) for future in (pool.submit(a.splice, b), pool.submit(b.splice, a))]
        assert sum(isinstance(outcome, NoSuchLog) for outcome in outcomes) == 1
        assert sum(outcome is None for outcome in outcomes) == 1
    held = b"".join(contents(manager).values())
    assert all(held.count(b"%c%d" % (letter, number)) >= 1 for letter in b"ab" for number in range(30))


def test_an_append_that_races_with_the_splice_of_its_log_is_in_or_refused(
    manager: MetadataManager, pool: ThreadPoolExecutor
) -> None:
    """It is acknowledged and spliced with the others, or the writer is told that the log is gone."""
    for number in range(20):
        log, source = manager.log("log"), manager.log(f"source{number}")
        source.append(b"begin")

        def write_on(source: LogStream = source, number: int = number) -> int:
            for count in range(1000):
                try:
                    source.append(b"<%d:%d:>" % (number, count))
                except NoSuchLog:
                    return count
            return 1000

        writer = pool.submit(write_on)
        log.splice(source)
        acknowledged = writer.result(SECONDS_MAX)
        held = content(log).replace(b"begin", b"")
        assert parsed(held).get(number, []) == list(range(acknowledged))


def test_deletions_race_with_writers(
    manager: MetadataManager, pool: ThreadPoolExecutor, reopen: Callable[[], AbstractContextManager[MetadataManager]]
) -> None:
    """Whatever the writer of a deleted log was about to record, the partition can be opened again."""

    def write_until_gone(log: LogStream) -> None:
        while True:
            try:
                log.append(b"x" * 40)
            except NoSuchLog:
                return
            except LogFenced:
                continue

    for number in range(25):
        names = [f"log{number}-{writer}" for writer in range(3)]
        logs = [manager.log(name) for name in names]
        writers = [pool.submit(write_until_gone, log) for log in logs]
        for name in names:
            manager.delete_log(name)
        for writer in writers:
            writer.result(SECONDS_MAX)
    manager.log("last").append(b"works")
    manager.close()
    manager.plogs.close()
    with reopen() as after:
        assert contents(after) == {"last": b"works"}


NAMES: Final = st.sampled_from(["a", "b", "c"])


class Partition(RuleBasedStateMachine):
    """A partition and its logs as plain bytes, through any history."""

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.cpo = MemoryDisk(), open_cpo("memory:")
        self.model: dict[str, tuple[int, bytes]] = {}
        self.count = 0
        self.open()

    def open(self) -> None:
        self.plogs = FilePlogs(self.disk, journal_size=1 << 15, direct_size_min=1 << 10)
        self.manager = MetadataManager.open(self.plogs, self.cpo, "p0", sizes=TINY)

    def close(self) -> None:
        self.manager.close()
        self.plogs.close()

    @rule(name=NAMES, size=st.sampled_from([0, 1, 20, 63, 64, 65, 300, 2000]))
    def append(self, name: str, size: int) -> None:
        self.count += 1
        data = bytes([self.count % 251]) * size
        end = self.manager.log(name).append(data)
        start, before = self.model.get(name, (0, b""))
        self.model[name] = (start, before + data)
        assert end.offset >= size

    @rule(name=NAMES, wrong=st.booleans())
    def append_expecting(self, name: str, wrong: bool) -> None:
        log = self.manager.log(name)
        self.model.setdefault(name, (0, b""))
        if not wrong:
            log.append(b"expected", expected=log.tail)
            start, before = self.model[name]
            self.model[name] = (start, before + b"expected")

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data())
    def splice(self, data: st.DataObject) -> None:
        target, source = data.draw(st.permutations(sorted(self.model)))[:2]
        self.manager.log(target).splice(self.manager.log(source))
        start, before = self.model[target]
        source_start, more = self.model.pop(source)
        self.model[target] = (start, before + more[source_start:])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        log = self.manager.log(name)
        plogs = log.plogs()
        place = data.draw(st.integers(0, len(plogs) - 1))
        log.truncate(plogs[place][0])
        start, held = self.model[name]
        self.model[name] = (start + sum(length for _, length, _ in plogs[:place]), held)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.manager.delete_log(name)
        del self.model[name]

    @rule(cleanly=st.booleans())
    def reopen(self, cleanly: bool) -> None:
        if cleanly:
            self.close()
            assert not leftovers(self.manager, self.disk)
            self.open()
        else:
            self.manager.close()
            self.manager = MetadataManager.open(self.plogs, self.cpo, "p0", sizes=TINY)

    @invariant()
    def the_logs_are_the_model(self) -> None:
        assert self.manager.logs() == sorted(self.model)
        for name, (start, held) in self.model.items():
            log = self.manager.log(name)
            assert (log.start, log.length) == (start, len(held))
            assert content(log) == held[start:]

    def teardown(self) -> None:
        self.close()
        self.cpo.close()


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
