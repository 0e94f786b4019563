"""Every protocol, ended after every action as a crash would end it, and with every action failing."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.errors import (
    CasConflict,
    CpoUnavailable,
    DiskFailed,
    DiskFull,
    LogFenced,
    PenstockError,
    PlogCorrupt,
    PlogSealed,
    WrongOffset,
)
from penstock.log import MetadataManager, PlogSizes
from penstock.log._actions import Append, Create, Host, Publish, Seal
from penstock.log._partition import append_records, open_partition
from penstock.log._protocols import (
    Splicing,
    create_log,
    create_logs,
    ensure_next,
    record_switch,
    recover_tail,
    release_log,
    replace_plogs,
    splice_logs,
)
from penstock.log._records import Drop, Next, Truncate
from penstock.model import PlogId
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk
from tests.log.conftest import TINY
from tests.log.harness import contents, leftovers, plog_files
from tests.sampling import EXPLORES, in_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.log._actions import Action, Steps
    from penstock.log._metadata import Metadata
    from penstock.log._partition import Partition
    from penstock.log._protocols import LogTail

ID: Final = PlogId("local", "main", "0" * 32)


class World:
    """Plogs and an oracle that outlive the process that runs protocols on them."""

    def __init__(self, disk: MemoryDisk, plogs: FilePlogs, cpo: Cpo) -> None:
        self.disk, self.plogs, self.cpo = disk, plogs, cpo
        self.host = Host(plogs, cpo, "p0")

    def manager(self) -> MetadataManager:
        """Open the partition as the next process would."""
        return MetadataManager.open(self.plogs, self.cpo, "p0", sizes=TINY)

    def run(self, steps: Steps[Any]) -> Any:  # noqa: ANN401
        """Run a protocol to its end."""
        return run_to(self, steps, count=None)[1]


class _Unfinished:
    """What a protocol returned that was ended before it returned."""


UNFINISHED: Final = _Unfinished()


def run_to(world: World, steps: Steps[Any], *, count: int | None, deliver: bool = True) -> tuple[list[Action], Any]:
    """Do the first ``count`` actions; return the actions done and what the protocol returned, if it did."""
    done: list[Action] = []
    try:
        action = next(steps)
        while count is None or len(done) < count:
            done.append(action)
            try:
                result = world.host.perform(action, None)
            except PenstockError as error:
                action = steps.throw(error)
                continue
            if len(done) == count and not deliver:
                break
            action = steps.send(result)
    except StopIteration as end:
        return done, end.value
    steps.close()
    return done, UNFINISHED


def finish(world: World, steps: Steps[Any], action: Action) -> Any:  # noqa: ANN401
    """Run a protocol to its end that has asked for ``action`` already."""
    try:
        while True:
            try:
                result = world.host.perform(action, None)
            except PenstockError as error:
                action = steps.throw(error)
            else:
                action = steps.send(result)
    except StopIteration as end:
        return end.value


@contextmanager
def new_world() -> Iterator[World]:
    disk = MemoryDisk()
    with open_cpo("memory:") as cpo, FilePlogs(disk, journal_size=1 << 15, direct_size_min=1 << 12) as plogs:
        yield World(disk, plogs, cpo)


def fill(manager: MetadataManager) -> None:
    """Make logs with and without sealed plogs, and an empty one."""
    for number in range(8):
        manager.log("long").append(b"%d" % number * 50)
        manager.log("other").append(b"%c" % (97 + number) * 45)
    manager.log("short").append(b"s" * 10)
    manager.log("empty")


def forced(partition: Partition) -> Partition:
    """Let the next record not fit into the metadata plog."""
    partition.size = partition.length
    return partition


def tail_of(world: World, partition: Partition, name: str, *, fence: bool = False) -> LogTail:
    tail = world.run(recover_tail(partition, name, fence=fence))
    tail.written = world.plogs.info(tail.plog_id).length
    return tail  # type: ignore[no-any-return]


def begun_switch(world: World, partition: Partition, data: bytes = b"behind the switch") -> tuple[LogTail, LogTail]:
    """Write into the pre-allocated plog of the log ``long`` as an append does whose switch is not recorded yet."""
    old = tail_of(world, partition, "long")
    world.run(ensure_next(partition, "long", old, needed=1))
    new = old.moved(partition.metadata.logs["long"].next)
    new.written = world.plogs.append(new.plog_id, 0, data)
    return old, new


def second_plog(partition: Partition, name: str) -> str:
    return str(partition.metadata.logs[name].sealed[1][0])


def do_truncate(_: World, partition: Partition) -> Steps[Any]:
    return append_records(partition, [Truncate("long", second_plog(partition, "long"))])


def do_drop(_: World, partition: Partition) -> Steps[Any]:
    return append_records(forced(partition), [Drop("other"), Truncate("long", second_plog(partition, "long"))])


def do_create(_: World, partition: Partition) -> Steps[Any]:
    return create_log(partition, "created")


def do_create_forced(_: World, partition: Partition) -> Steps[Any]:
    return create_log(forced(partition), "created")


def do_create_together(_: World, partition: Partition) -> Steps[Any]:
    return create_logs(partition, ["created", "created.too", "created.last"])


def do_create_together_again(world: World, partition: Partition) -> Steps[Any]:
    world.run(create_logs(partition, ["first", "second"]))
    return create_logs(forced(partition), ["created", "created.too", "created.last"])


def do_recover(world: World, partition: Partition) -> Steps[Any]:
    begun_switch(world, partition)
    return recover_tail(partition, "long", fence=False)


def do_recover_fenced(world: World, partition: Partition) -> Steps[Any]:
    begun_switch(world, partition)
    return recover_tail(partition, "long", fence=True)


def do_recover_forced(world: World, partition: Partition) -> Steps[Any]:
    begun_switch(world, partition)
    return recover_tail(forced(partition), "long", fence=True)


def do_ensure_next(world: World, partition: Partition) -> Steps[Any]:
    return ensure_next(partition, "empty", tail_of(world, partition, "empty"), needed=1)


def do_ensure_larger(world: World, partition: Partition) -> Steps[Any]:
    tail = tail_of(world, partition, "short")
    world.run(ensure_next(partition, "short", tail, needed=1))
    return ensure_next(partition, "short", tail, needed=5000)


def do_switch(world: World, partition: Partition) -> Steps[Any]:
    old, new = begun_switch(world, partition)
    return record_switch(partition, "long", old=old, new=new)


def do_switch_forced(world: World, partition: Partition) -> Steps[Any]:
    old, new = begun_switch(world, partition)
    return record_switch(forced(partition), "long", old=old, new=new)


def do_release(world: World, partition: Partition) -> Steps[Any]:
    tail = tail_of(world, partition, "short")
    world.run(ensure_next(partition, "short", tail, needed=1))
    return release_log(partition, "short", tail)


def do_replace(world: World, partition: Partition) -> Steps[Any]:
    chain = partition.metadata.logs["long"]
    data = b"".join(view for plog_id, length in chain.sealed[:2] for view in world.plogs.views(plog_id, 0, length))
    partition.own_sizes["~merge"] = PlogSizes(first=len(data), largest=len(data))
    world.run(create_log(partition, "~merge"))
    world.plogs.append(partition.metadata.logs["~merge"].active, 0, data)
    tail = tail_of(world, partition, "~merge")
    return replace_plogs(partition, "long", chain.sealed[0][0], 2, source="~merge", tail=tail)


def splice_into(name: str, source: str, *, force: bool = False) -> Callable[[World, Partition], Steps[Any]]:
    def make(world: World, partition: Partition) -> Steps[Any]:
        tail, source_tail = tail_of(world, partition, name), tail_of(world, partition, source)
        if force:
            forced(partition)
        return splice_logs(partition, [Splicing(name, tail, [(source, source_tail, b"")])])

    return make


PROTOCOLS: Final[dict[str, Callable[[World, Partition], Steps[Any]]]] = {
    "records": do_truncate,
    "records, metadata switch": do_drop,
    "create": do_create,
    "create, metadata switch": do_create_forced,
    "create together": do_create_together,
    "create together again, metadata switch": do_create_together_again,
    "recover the tail": do_recover,
    "recover and fence the tail": do_recover_fenced,
    "recover the tail, metadata switch": do_recover_forced,
    "pre-allocate": do_ensure_next,
    "pre-allocate a larger one": do_ensure_larger,
    "switch": do_switch,
    "switch, metadata switch": do_switch_forced,
    "release": do_release,
    "replace": do_replace,
    "splice": splice_into("long", "other"),
    "splice, metadata switch": splice_into("long", "other", force=True),
    "splice into an empty log": splice_into("empty", "other"),
    "splice an empty log": splice_into("long", "empty"),
    "splice a log of one plog": splice_into("other", "short"),
}


def start(world: World) -> Partition:
    """Fill a partition and take it over, as the process that is going to crash."""
    with world.manager() as manager:
        fill(manager)
    return world.run(open_partition("p0", TINY))  # type: ignore[no-any-return]


@cache
def before_and_after(name: str) -> list[dict[str, bytes]]:
    """Return what the logs hold when a protocol has done nothing, and when it has done all."""
    make, found = PROTOCOLS[name], []
    for is_run in (False, True):
        with new_world() as world:
            partition = start(world)
            steps = make(world, partition)
            if is_run:
                world.run(steps)
            with world.manager() as manager:
                found.append(contents(manager))
    return found


def check_works_on(world: World, allowed: list[dict[str, bytes]], where: object) -> None:
    """Open the partition anew: all that may be there is there, nothing is left over, and it takes appends."""
    with world.manager() as manager:
        found = contents(manager)
        assert found in allowed, where
        for name in [*manager.logs(), "fresh"]:
            manager.log(name).append(f"on with {name}".encode())
    with world.manager() as manager:
        grown = {name: data + f"on with {name}".encode() for name, data in found.items()}
        assert contents(manager) == grown | {"fresh": b"on with fresh"}, where
    assert not leftovers(manager, world.disk), where


@pytest.mark.parametrize("deliver", [True, False], ids=["result delivered", "result lost"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_crash_after_any_action_leaves_all_or_nothing_and_no_plog_over(name: str, deliver: bool) -> None:
    """A process may end anywhere; the next one must find a partition that it can go on with."""
    make = PROTOCOLS[name]
    allowed = before_and_after(name)
    result: object = UNFINISHED
    count = 0
    while result is UNFINISHED:
        with new_world() as world:
            done, result = run_to(world, make(world, start(world)), count=count, deliver=deliver)
            check_works_on(world, allowed, where=(count, done[-1:]))
        count += 1
    assert count > 1, "the protocol does nothing"


@pytest.mark.parametrize("sealed", [False, True], ids=["whole", "with an interrupted metadata switch"])
def test_a_crash_at_any_action_of_a_recovery_is_recovered_from(sealed: bool) -> None:
    """Machines that crash once crash again, and most often while they recover."""
    result: object = UNFINISHED
    count = 0
    while result is UNFINISHED:
        with new_world() as world:
            partition = start(world)
            begun_switch(world, partition)
            if sealed:
                world.plogs.seal(partition.plog_id, partition.length)
            with world.manager() as manager:
                before = contents(manager)
            if sealed:
                newest = world.cpo.metadata_plog("p0")
                assert newest is not None
                world.plogs.seal(newest.plog_id, 1 << 20)
            done, result = run_to(world, open_partition("p0", TINY), count=count)
            check_works_on(world, [before], where=(count, done[-1:]))
        count += 1


def test_a_crash_at_any_action_of_the_first_start_lets_the_partition_begin_again() -> None:
    """Nothing is there to be lost yet; at most one plog is left over, which is on no record."""
    result: object = UNFINISHED
    count = 0
    while result is UNFINISHED:
        with new_world() as world:
            done, result = run_to(world, open_partition("p0", TINY), count=count)
            published = any(isinstance(action, Publish) for action in done)
            created = any(isinstance(action, Create) for action in done)
            with world.manager() as manager:
                assert contents(manager) == {}
                manager.log("a").append(b"works")
            assert len(leftovers(manager, world.disk)) == int(created and not published)
        count += 1


def test_of_two_that_begin_a_partition_at_once_one_wins_and_the_other_joins() -> None:
    """Both find no partition; two metadata logs would be two truths."""
    with new_world() as world:
        first = open_partition("p0", TINY)
        action = next(first)
        while not isinstance(action, Publish):
            action = first.send(world.host.perform(action, None))
        with world.manager() as winner:
            winner.log("a").append(b"the winner's")
            with pytest.raises(CasConflict) as conflict:
                world.host.perform(action, None)
            action = first.throw(conflict.value)
            partition = finish(world, first, action)
            assert partition.plog_id == winner.partition.plog_id
            assert list(partition.metadata.logs) == ["a"]
        assert not leftovers(winner, world.disk)


@dataclass(frozen=True)
class Injected:
    """An error, and whether what it is raised for was done all the same."""

    error: PenstockError
    after: bool

    def __str__(self) -> str:
        return f"{type(self.error).__name__} {'after' if self.after else 'before'}"


INJECTED: Final = [
    Injected(DiskFull("x"), after=False),
    Injected(DiskFailed("x", reason="EIO", stopped=False), after=False),
    Injected(DiskFailed("x", reason="EIO", stopped=False), after=True),
    Injected(PlogSealed(ID, sealed_offset=1), after=False),
    Injected(WrongOffset(ID, offset=2, expected=1), after=False),
    Injected(CasConflict("metadata/p0", expected=1, actual=2), after=False),
    Injected(CpoUnavailable("memory:", reason="away"), after=True),
    Injected(PlogCorrupt("x.plog", offset=4, reason="flipped"), after=False),
]


def run_failing(world: World, steps: Steps[Any], *, at: int, injected: Injected) -> PenstockError | _Unfinished | None:
    """Fail the action number ``at``; return the error that the protocol ends with, None if it got over it."""
    count = 0
    try:
        action = next(steps)
        while True:
            try:
                if count == at and not injected.after:
                    raise injected.error
                result = world.host.perform(action, None)
                if count == at:
                    raise injected.error
            except PenstockError as error:
                action = steps.throw(error)
            else:
                action = steps.send(result)
            count += 1
    except StopIteration:
        return None if count >= at else UNFINISHED
    except PenstockError as error:
        return error


def check_consistent(world: World, partition: Partition) -> None:
    """What the process believes is what a recovery would find, or it knows that it does not know."""
    if partition.failed:
        with pytest.raises(LogFenced):
            world.run(append_records(partition, [Drop("short")]))
        return
    world.run(append_records(partition, [Next("long", str(world.plogs.new_id()))]))
    recovered = world.run(open_partition("p0", TINY)).metadata
    assert described(recovered) == described(partition.metadata)


def described(metadata: Metadata) -> dict[str, object]:
    return {name: (log.start, log.sealed, log.active, log.next) for name, log in metadata.logs.items()}


def failures(count: int) -> list[tuple[int, Injected]]:
    """Return which of so many actions fail, and how: each in one way, or in every way when exploring."""
    return [
        (at, injected)
        for at in range(count)
        for number, injected in enumerate(INJECTED)
        if EXPLORES or (at * 3 + count + number) % len(INJECTED) == 0
    ]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_action_that_fails_ends_the_protocol_without_losing_or_inventing_anything(name: str) -> None:
    """An error may be raised before or after the action took effect; the partition must know what it knows."""
    make = PROTOCOLS[name]
    allowed = before_and_after(name)
    with new_world() as world:
        done, _ = run_to(world, make(world, start(world)), count=None)
    assert done, "the protocol does nothing"
    for at, injected in failures(len(done)):
        with in_case(f"action {at}, {injected}"), new_world() as world:
            partition = start(world)
            outcome = run_failing(world, make(world, partition), at=at, injected=injected)
            assert not isinstance(outcome, _Unfinished)
            check_consistent(world, partition)
            check_works_on(world, allowed, where=(at, injected))


def do_recover_only(_: World, partition: Partition) -> Steps[Any]:
    return recover_tail(partition, "long", fence=True)


AGAIN: Final = {"switch": do_recover_only, "switch, metadata switch": do_recover_only}
"""A switch that failed is not tried again: the log's end is recovered without what was in the new plog."""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_that_found_the_disk_full_succeeds_when_tried_again(name: str) -> None:
    """DiskFull says: free some space and try again. It must not take a restart."""
    make, at = PROTOCOLS[name], 0
    while True:
        with new_world() as world:
            partition = start(world)
            done = run_failing(world, make(world, partition), at=at, injected=INJECTED[0])
            if isinstance(done, _Unfinished):
                break
            if isinstance(done, DiskFull):
                assert not partition.failed
                world.run(AGAIN.get(name, make)(world, partition))
                with world.manager() as manager:
                    assert contents(manager) == before_and_after(name)[0 if name in AGAIN else 1], at
        at += 1


def test_a_small_record_goes_through_after_a_larger_one_found_no_room_for_a_new_metadata_plog() -> None:
    """The old metadata plog is sealed by then; taking that for a new owner would stop a healthy partition."""
    with new_world() as world:
        partition = start(world)
        room = partition.size - partition.length
        large = Drop("x" * max(room, 255))
        steps = append_records(partition, [large])
        action = next(steps)
        while not isinstance(action, Create):
            action = steps.send(world.host.perform(action, None))
        with pytest.raises(DiskFull):
            steps.throw(DiskFull("x"))
        world.run(append_records(partition, [Drop("short")]))
        with world.manager() as manager:
            assert "short" not in contents(manager)


def test_a_metadata_log_that_another_owner_writes_is_fenced_not_merely_at_a_wrong_offset() -> None:
    """WrongOffset invites to try again at another offset; a partition with another owner must stop."""
    with new_world() as world:
        partition = start(world)
        world.run(append_records(world.run(open_partition("p0", TINY)), [Drop("short")]))
        with pytest.raises(LogFenced):
            world.run(append_records(partition, [Drop("other")]))
        with pytest.raises(LogFenced):
            world.run(append_records(partition, [Drop("other")]))
        with world.manager() as manager:
            assert manager.logs() == ["empty", "long", "other"]


def test_fencing_keeps_what_became_durable_after_the_plog_was_looked_at() -> None:
    """An append that was under way may be acknowledged just before the seal: it must not be cut off by it."""
    with new_world() as world:
        partition = start(world)
        active = partition.metadata.logs["short"].active
        steps = recover_tail(partition, "short", fence=True)
        action = next(steps)
        while not isinstance(action, Seal):
            action = steps.send(world.host.perform(action, None))
        world.plogs.append(active, 10, b"acknowledged")
        tail = finish(world, steps, action)
        assert tail.position.offset == 22
        with world.manager() as manager:
            assert contents(manager)["short"] == b"s" * 10 + b"acknowledged"


def test_fencing_takes_another_plog_in_place_of_one_that_a_late_append_may_still_reach() -> None:
    """The pre-allocated plog looks empty while an append to it is under way: going on there would collide with it."""
    with new_world() as world:
        partition = start(world)
        chain = partition.metadata.logs["long"]
        world.run(ensure_next(partition, "long", tail_of(world, partition, "long"), needed=1))
        before = chain.next
        world.plogs.seal(chain.active, world.plogs.info(chain.active).length)
        late = world.plogs.submit(before, 0, b"late")
        tail = world.run(recover_tail(partition, "long", fence=True))
        assert chain.next != before
        assert tail.next_size == 0
        late.result()
        check_works_on(world, before_and_after("records")[:1], where="late append")


def test_a_torn_pre_allocated_plog_is_replaced() -> None:
    """Its creation was not acknowledged, so nothing was lost with it; the log must go on."""
    with new_world() as world:
        partition = start(world)
        chain = partition.metadata.logs["long"]
        world.run(ensure_next(partition, "long", tail_of(world, partition, "long"), needed=1))
        torn = chain.next
        file = world.disk.open(f"{torn.uid}.plog")
        file.pwritev([b"garbage"], 0)
        world.plogs.close()
        world.plogs = FilePlogs(world.disk, journal_size=1 << 15, direct_size_min=1 << 12)
        world.host = Host(world.plogs, world.cpo, "p0")
        tail = world.run(recover_tail(partition, "long", fence=False))
        assert tail.next_size == 0
        assert chain.next != torn
        assert torn in partition.metadata.doomed
        world.plogs.close()


def test_a_switch_of_a_log_that_was_deleted_meanwhile_writes_no_record() -> None:
    """A record about a log that is gone could not be replayed: the whole partition would be unreadable."""
    with new_world() as world:
        partition = start(world)
        old, new = begun_switch(world, partition)
        world.run(append_records(partition, [Drop("long")]))
        with pytest.raises(PenstockError, match="long"):
            world.run(record_switch(partition, "long", old=old, new=new))
        with world.manager() as manager:
            assert manager.logs() == ["empty", "other", "short"]


def test_a_metadata_switch_writes_the_whole_plog_before_it_publishes_it() -> None:
    """From the moment it is published, recovery reads nothing else."""
    with new_world() as world:
        partition = start(world)
        done, _ = run_to(world, do_drop(world, partition), count=None)
        kinds = [type(action) for action in done if isinstance(action, Seal | Create | Append | Publish)]
        assert kinds == [Seal, Create, *[Append] * (len(kinds) - 4), Publish, Append]
        assert len(plog_files(world.disk)) > 1
