"""Logs whose plogs lose replicas: what was acknowledged is there, once, in order, where it was promised."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.errors import CpoUnavailable, GroupUnavailable, LogUnavailable, PenstockError, ReplicaLost, WrongPosition
from penstock.frames import FrameConnection, pack_frame
from penstock.log import LogPosition, MetadataManager
from penstock.log._appends import PlogSwitch
from penstock.log._end import LogEnd
from penstock.plog import FilePlogs
from penstock.testing import FlakyGroups, MemoryDisk
from tests.log.conftest import TINY
from tests.log.harness import content
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cpo import Cpo
    from penstock.log import LogStream, PendingLogAppend
    from penstock.log._appends import PendingLogAppend as Append
    from penstock.model import PlogId
    from penstock.testing._flaky_groups import GroupCall

LOSSES: Final[tuple[GroupCall, ...]] = ("create", "append", "result")
CALLS: Final[tuple[GroupCall, ...]] = (*LOSSES, "seal", "info", "delete")


class Oracle:
    """A real oracle that is away for some calls, of which some were carried out."""

    def __init__(self, cpo: Cpo) -> None:
        self._cpo, self.where = cpo, cpo.where
        self.away = 0  # calls

    def metadata_plog(self, partition: str) -> object:
        """Ask, unless it is away."""
        self._check()
        return self._cpo.metadata_plog(partition)

    def set_metadata_plog(self, partition: str, plog_id: PlogId, *, expected: int) -> int:
        """Change it; every other call that fails was carried out."""
        if self.away % 2:
            self._cpo.set_metadata_plog(partition, plog_id, expected=expected)
        self._check()
        return self._cpo.set_metadata_plog(partition, plog_id, expected=expected)

    def _check(self) -> None:
        if self.away:
            self.away -= 1
            raise CpoUnavailable("memory:", reason="it is away", outcome_unknown=True)


@dataclass
class Sent:
    """An append of a test: its bytes, which no other has, where it was promised to be, and how it ended."""

    data: bytes
    pending: PendingLogAppend | None = None
    start: int | None = None
    acked: bool = False
    refused: bool = False  # nothing of it is kept, said the error

    def end(self, error: PenstockError) -> None:
        """Note an error; the oracle is asked at nothing but records, without which nothing is part of a log."""
        self.pending, self.refused = None, isinstance(error, LogUnavailable | CpoUnavailable)


@dataclass
class World:
    """A partition in groups that fail, and everything that was appended to its logs."""

    plogs: FilePlogs
    oracle: Oracle
    seed: int = 0
    owners: int = 0
    sent: dict[str, list[Sent]] = field(default_factory=dict)
    errors: list[PenstockError] = field(default_factory=list)
    groups: FlakyGroups = field(init=False)
    manager: MetadataManager = field(init=False)

    def open(self) -> None:
        """Open the partition as the next owner does; the one before is gone without a word."""
        if self.owners:
            self.manager.fence()
            self.manager.close()
        self.owners += 1
        self.groups = FlakyGroups(self.plogs, seed=self.seed + self.owners)
        self.manager = MetadataManager.open(self.groups, self.oracle, "p0", sizes=TINY)  # type: ignore[arg-type]

    def submit(self, name: str, size: int) -> None:
        """Append something without waiting, if the log lets us."""
        sent = self.sent.setdefault(name, [])
        append = Sent(f"{name}:{len(sent):06}:".encode().ljust(size, b"."))
        sent.append(append)
        try:
            append.pending = self.manager.log(name).submit(append.data)
            append.start = append.pending.start
        except PenstockError as error:
            self.errors.append(error)
            append.end(error)

    def wait(self, sent: Sent) -> None:
        """Wait for an append; note whether it was acknowledged."""
        try:
            if sent.pending is not None:
                assert sent.pending.result() - len(sent.data) == sent.start
                sent.acked, sent.pending = True, None
        except PenstockError as error:
            self.errors.append(error)
            sent.end(error)

    def wait_for_all(self) -> None:
        for sent in self.sent.values():
            for append in sent:
                self.wait(append)

    def check(self) -> None:
        """Check every log against what was appended to it."""
        for name, sent in self.sent.items():
            if not self.manager.has_log(name):
                assert not any(append.acked for append in sent)
                continue
            log = self.manager.log(name)
            there = [(start, bytes(view)) for start, view in log.blocks(log.start, log.length)]
            known = {append.data: append for append in sent}
            assert len({data for _, data in there}) == len(there), "nothing is there twice"
            assert all(known[data].start in {None, start} for start, data in there), "all is where it was promised"
            for append in sent:
                assert not append.acked or (append.start, append.data) in there, "what was acknowledged is there"
            assert not any(known[data].refused for _, data in there), "what was refused is not there"

    def crash(self) -> None:
        """Let the owner go without a word, and open the partition again."""
        for sent in self.sent.values():
            for append in sent:
                append.pending, append.refused = None, False  # records in doubt may be there for the next owner
        self.heal()
        self.open()

    def heal(self) -> None:
        """Let everything answer again."""
        self.groups.heal()
        self.oracle.away = 0

    def free(self, name: str, *, rolls: bool) -> None:
        """Release a log, or let it go on in a new plog, if it lets us."""
        try:
            log = self.manager.log(name)
            (log.roll if rolls else log.release)()
        except PenstockError as error:
            self.errors.append(error)


@contextmanager
def new_world(seed: int) -> Iterator[World]:
    with open_cpo("memory:") as cpo, FilePlogs(MemoryDisk(), journal_size=1 << 16, direct_size_min=100) as plogs:
        world = World(plogs, Oracle(cpo), seed)
        world.open()
        yield world
        world.manager.close()


def live(world: World, random: Random, calls: tuple[GroupCall, ...], *, steps: int, crashes: bool) -> None:
    """Append to logs with many appends in flight, while groups fail at the calls given."""
    for _ in range(steps):
        names = [name for name in ("a", "b") if random.random() < 0.7]
        kind = random.randrange(12)
        if kind == 0:
            world.groups.fail(random.choice(calls), call=random.randrange(1, 6), after=random.random() < 0.5)
        elif kind == 1:
            world.groups.heal()
        elif kind == 2 and crashes:
            trouble(world, random)
        for name in names:
            if kind == 3:
                world.free(name, rolls=random.random() < 0.5)
            elif kind in {4, 5}:
                for append in world.sent.get(name, [])[-random.randrange(1, 8) :]:
                    world.wait(append)
            elif kind > 5:
                world.submit(name, random.randrange(12, 150))


def trouble(world: World, random: Random) -> None:
    """Let something go away that callers notice."""
    match random.randrange(5):
        case 0:
            world.crash()
        case 1:
            world.groups.stop(random.choice(("g0", "g1", "g2")))
        case _:
            world.oracle.away = random.randrange(4)


def end(world: World) -> None:
    world.wait_for_all()
    world.heal()
    world.check()
    world.crash()
    world.check()


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 1 << 30))
def test_callers_do_not_notice_that_plogs_lose_replicas(seed: int) -> None:
    """A dead server is the daily case: every append is acknowledged, and is there after the next crash, once."""
    with new_world(seed) as world:
        live(world, Random(seed), LOSSES, steps=60, crashes=False)
        end(world)
        assert not world.errors
        assert all(append.acked for sent in world.sent.values() for append in sent)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 30))
def test_nothing_acknowledged_is_lost_whatever_fails(seed: int) -> None:
    """With groups, the oracle and the owner gone at any moment, errors are allowed; losses and repetitions are not."""
    with new_world(seed) as world:
        live(world, Random(seed), CALLS, steps=60, crashes=True)
        end(world)


def maintain(log: LogStream, random: Random) -> None:
    """Change the plogs of a log while others append to it."""
    match random.randrange(4):
        case 0:
            log.release()
        case 1:
            log.roll()
        case 2 if (run := log.small_plogs(largest=256)) is not None:
            log.merge(*run)
        case 3 if len(plogs := log.plogs()) > 20:
            log.truncate(plogs[2][0])


def test_threads_append_while_replicas_are_lost() -> None:
    """The thread that gets the error moves the appends of the others; plogs are merged and truncated meanwhile."""
    with new_world(1) as world:
        world.groups = FlakyGroups(world.plogs, chance=0.03, seed=7)
        world.manager.close()
        with MetadataManager.open(world.groups, world.oracle, "p0", sizes=TINY) as manager:  # type: ignore[arg-type]
            log = manager.log("log")

            def run(thread: int) -> list[tuple[int, bytes]]:
                places = []
                for number in range(0, 60, 3):
                    appends = [(data := f"{thread}:{number + index};".encode(), log.submit(data)) for index in range(3)]
                    places += [(append.result() - len(data), data) for data, append in appends]
                return places

            with ThreadPoolExecutor(6) as pool:
                runs, random = [pool.submit(run, thread) for thread in range(6)], Random(7)
                while not all(run.done() for run in runs):
                    maintain(log, random)
                acked = sorted(place for run in runs for place in run.result())
            assert world.groups.losses
            there = [(start, bytes(view)) for start, view in log.blocks(log.start, log.length)]
            assert [place for place in acked if place[0] >= log.start] == there
            assert len({start for start, _ in acked}) == len(acked) == 6 * 60


@contextmanager
def open_log(world: World, name: str = "log") -> Iterator[LogStream]:
    """A log with something in it, on three groups that are well."""
    log = world.manager.log(name)
    log.append(b"before")
    yield log


def test_an_append_that_moves_has_the_bytes_of_its_submission() -> None:
    """A caller that has given up waiting reuses its buffer; what nobody can change is not copied for that."""
    with new_world(1) as world, open_log(world) as log:
        world.groups.fail("result")
        buffer, other, fixed = bytearray(b"lost"), bytearray(b" and "), memoryview(b"found")
        append = log.submit(buffer, memoryview(other).toreadonly(), fixed)
        assert memoryview(append.data[2]).obj is fixed.obj
        buffer[:], other[:] = b"next", b" one "
        append.result()
        assert content(log) == b"beforelost and found"


def lose_what_was_sent(world: World) -> None:
    """Lose a replica under appends of which the seal keeps none: what was sent has to be sent again."""
    with open_log(world) as log:
        world.groups.fail("append")  # before it reaches any replica
        append = log.submit(b"lost")
        assert append.result() == 10
        assert content(log) == b"beforelost"


def fail_the_switch(world: World) -> None:
    """Lose a replica, move, and then fail to record the switch: the metadata loses one, too, and the oracle is away."""
    with open_log(world) as log:
        chain = world.manager.partition.metadata.logs["log"]
        is_next_replaced = chain.next.group == chain.active.group  # by a record before that of the switch
        world.groups.fail("append")
        world.groups.fail("append", call=3 if is_next_replaced else 2)
        world.oracle.away = 100
        with pytest.raises(CpoUnavailable):
            log.append(b"lost")
    world.crash()
    assert content(world.manager.log("log")) == b"before"


def move_with_an_empty_payload(self: LogEnd, append: Append) -> None:
    """Switch without sending the data again, and acknowledge it: the first mistake of the original."""
    append.settle(self._begin_switch(self._current_tail(), 1))


def complete_anyway(self: PlogSwitch) -> bool:
    """Acknowledge those that wait for a switch although it failed: the second mistake of the original."""
    self.is_done = True
    return True


@pytest.mark.parametrize(
    ("scenario", "owner", "name", "mistake"),
    [
        (lose_what_was_sent, LogEnd, "_place", move_with_an_empty_payload),
        (fail_the_switch, PlogSwitch, "complete", complete_anyway),
    ],
)
def test_the_two_mistakes_of_the_original_are_not_made(
    scenario: Callable[[World], None], owner: type, name: str, mistake: object
) -> None:
    """Both acknowledged data that was lost. Planted, each is found."""
    with new_world(2) as world:
        scenario(world)
    with pytest.MonkeyPatch.context() as patch, new_world(2) as world:
        patch.setattr(owner, name, mistake)
        with pytest.raises((AssertionError, PenstockError, pytest.fail.Exception)):
            scenario(world)


def test_positions_promised_before_a_move_are_good_after_it() -> None:
    """The stream layer says where it expects the log to end; a dead server must not look like another writer."""
    with new_world(3) as world, open_log(world) as log:
        place = log.next_append(4).position
        first = log.submit(b"1st.", expected=place)
        promised = first.position
        world.groups.fail("result")
        first.result()
        assert promised.plog_id == place.plog_id
        world.groups.fail("append")
        second = log.submit(b"2nd.", expected=promised)
        third = log.submit(b"3rd.", expected=second.position)
        assert third.result() == 18
        with pytest.raises(WrongPosition):
            log.submit(b"4th.", expected=LogPosition(promised.plog_id, promised.offset + 4))
        assert content(log) == b"before1st.2nd.3rd."


class NoReplicas:
    """Plogs whose appends are all lost."""

    def submit(self, plog_id: PlogId, offset: int, *data: bytes) -> None:
        raise ReplicaLost(plog_id, server="s", reason=f"{offset} {len(data)}")


def test_a_log_without_a_group_says_so_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry for ever would hide that no server answers; after the last try, nothing of the append is kept."""
    with new_world(4) as world, open_log(world) as log:
        with monkeypatch.context() as patch:
            patch.setattr(log, "_plogs", NoReplicas())
            with pytest.raises(LogUnavailable, match="8 plogs in a row have lost a replica"):
                log.append(b"never")
        world.groups.fail("append", call=None)  # to metadata plogs, too
        with pytest.raises(LogUnavailable, match="planned"):
            log.append(b"never")
        world.groups.heal()
        world.groups.fail("create", call=None)
        with pytest.raises(LogUnavailable, match="planned before create"):
            log.append(b"never")
        world.groups.heal()
        log.append(b"later")
        assert content(log) == b"beforelater"


def test_an_append_whose_outcome_cannot_be_decided_ends_with_what_began_it() -> None:
    """No server of the group answers: an error, not a guess; and a refusal would say that nothing was kept."""
    with new_world(5) as world, open_log(world) as log:
        world.groups.fail("result")
        world.groups.fail("seal")
        append = log.submit(b"perhaps")
        with pytest.raises(ReplicaLost):
            append.result()
        with pytest.raises(ReplicaLost):
            append.result()
        log.append(b"later")
        assert content(log) in {b"beforelater", b"beforeperhapslater"}


@pytest.mark.parametrize("after", [False, True])
def test_records_in_doubt_are_decided_before_anything_is_acknowledged(*, after: bool) -> None:
    """A deletion may be on record although it failed: an append acknowledged then could be gone after a crash."""
    with new_world(6) as world, open_log(world) as log:
        metadata = world.manager.partition.plog_id.group
        world.groups.fail("append", group=metadata, after=after)
        world.groups.fail("seal", group=metadata)
        with pytest.raises(GroupUnavailable):
            world.manager.delete_log("log")
        assert world.manager.partition.in_doubt
        world.groups.fail("seal", group=metadata)
        with pytest.raises(ReplicaLost):
            log.append(b"unknown")
        log.append(b"certain")
        world.open()
        assert content(world.manager.log("log")) == b"beforeunknowncertain"


def test_data_is_kept_up_to_a_limit_and_not_longer_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that never waits must not fill the memory, nor one that has waited."""
    monkeypatch.setattr("penstock.log._end.IN_FLIGHT_SIZE_MAX", 40)
    with new_world(7) as world, open_log(world) as log:
        appends = [log.submit(bytes(8)) for _ in range(30)]
        assert sum(1 for append in appends if append.data) <= 5
        appends[-1].result()
        assert not any(append.data for append in appends)


def test_a_splice_takes_over_logs_that_have_to_move_first() -> None:
    """A splice waits for what is under way, which may have lost a replica by then."""
    with new_world(8) as world, open_log(world) as log, open_log(world, "source") as source:
        appends = [log.submit(b"-target"), source.submit(b"-source")]
        world.groups.fail("result", call=1)
        world.groups.fail("result", call=2)
        log.splice(source)
        assert content(log) == b"before-targetbefore-source"
        assert appends[0].result() == 13


def test_an_append_that_a_move_has_settled_is_acknowledged_only_if_its_log_was_not_deleted() -> None:
    """Records in doubt may have deleted the log; an append is not acknowledged into a log that is gone."""
    tried = 0
    for seed in range(40):
        with new_world(seed) as world, open_log(world) as log:
            partition = world.manager.partition
            chain = partition.metadata.logs["log"]
            if len({partition.plog_id.group, chain.active.group, chain.next.group}) < 3:
                continue
            world.groups.fail("append", group=partition.plog_id.group, after=True)
            world.groups.fail("seal", group=partition.plog_id.group)
            with suppress(PenstockError):
                world.manager.delete_log("log")
            if not partition.in_doubt:
                continue
            tried += 1
            world.groups.fail("result", group=chain.active.group, after=True)
            is_acknowledged = False
            with suppress(PenstockError):
                is_acknowledged = bool(log.submit(b"acked").result())
            world.open()
            is_there = world.manager.has_log("log") and b"acked" in content(world.manager.log("log"))
            assert is_there or not is_acknowledged, seed
    assert tried > 3, "else this shows nothing"


def test_the_data_of_a_received_message_is_not_copied_for_an_append_that_may_move() -> None:
    """An owner on plog servers gets all that it appends as messages: a copy of each is a tenth of its work."""
    near, far = socket.socketpair()
    with new_world(1) as world, open_log(world) as log, closing(near), closing(FrameConnection(far)) as connection:
        sent = b"".join(pack_frame(b"header", b"from afar" * 5))
        frame = None
        for part in (sent[:-3], sent[-3:]):  # in two pieces, as large ones come
            near.sendall(part)
            frame = connection.receive()
        assert frame is not None
        assert memoryview(frame.payload).readonly
        append = log.submit(memoryview(frame.payload))
        assert memoryview(append.data[0]).obj is memoryview(frame.payload).obj
        append.result()
        assert content(log) == b"before" + b"from afar" * 5
