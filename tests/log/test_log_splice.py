"""Several logs take over several others in one step: all of it or nothing, whatever happens in between."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.errors import BadArgument, DiskFailed, DiskFull, LogFenced, NoSuchLog, PenstockError, StoreClosed
from penstock.log import MetadataManager, PlogSizes
from penstock.log._partition import open_partition
from penstock.log._protocols import Splicing, splice_logs
from penstock.log._records import Splice
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk, RecordingDisk
from tests.log.conftest import TINY, open_manager
from tests.log.harness import SECONDS_MAX, GatedPlogs, RecordedOracle, content, contents, leftovers
from tests.log.test_log_crash import Done, Model, append, check, partition_on
from tests.log.test_log_protocols import (
    INJECTED,
    UNFINISHED,
    World,
    check_consistent,
    check_works_on,
    failures,
    forced,
    new_world,
    run_failing,
    run_to,
    tail_of,
)
from tests.sampling import in_case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import AbstractContextManager

    from penstock.log import LogStream
    from penstock.log._actions import Steps
    from penstock.log._partition import Partition
    from penstock.testing import CrashState

    Reopen = Callable[[], AbstractContextManager[MetadataManager]]
    Plan = Mapping[str, list[str]]

TARGETS: Final = {"long": 5, "short": 1, "empty": 0, "hollow": 0}
SOURCES: Final = {"many": 6, "one": 1, "none": 0, "void": 0, "more": 4, "rest": 5}
"""How many appends each log has, of a size that two of them fill a plog."""

PLANS: Final[dict[str, Plan]] = {
    "several into several": {"long": ["many", "one"], "short": ["more"], "empty": ["rest"]},
    "empty ones among others": {"long": ["none", "many", "void"], "empty": ["rest", "more"]},
    "only empty ones": {"long": ["none"], "empty": ["void"]},
    "into empty ones": {"empty": ["many", "one", "more"], "hollow": ["rest"]},
    "into one": {"short": ["rest", "one", "none", "many", "more"]},
    "nothing": {"long": [], "empty": []},
}


def fill(manager: MetadataManager) -> None:
    """Make logs with and without sealed plogs, empty ones, and one whose beginning was truncated away."""
    for name, count in (TARGETS | SOURCES).items():
        log = manager.log(name)
        for number in range(count):
            log.append(f"{name}{number};".encode().ljust(40, b"."))
    rest = manager.log("rest")
    rest.truncate(rest.plogs()[1][0])


def spliced(before: Mapping[str, bytes], plan: Plan) -> dict[str, bytes]:
    """Return what the logs hold afterwards."""
    taken = {source for sources in plan.values() for source in sources}
    grown = {target: before[target] + b"".join(before[source] for source in plan[target]) for target in plan}
    return {name: grown.get(name, data) for name, data in before.items() if name not in taken}


def start(world: World) -> Partition:
    """Fill a partition and take it over, as the process that is going to crash."""
    with world.manager() as manager:
        fill(manager)
    return world.run(open_partition("p0", TINY))  # type: ignore[no-any-return]


def steps_of(world: World, partition: Partition, plan: Plan, *, force: bool = False) -> Steps[Any]:
    splicings = [
        Splicing(name, tail_of(world, partition, name), [(one, tail_of(world, partition, one), b"") for one in sources])
        for name, sources in plan.items()
    ]
    return splice_logs(forced(partition) if force else partition, splicings)


@cache
def before() -> dict[str, bytes]:
    with new_world() as world:
        start(world)
        with world.manager() as manager:
            return contents(manager)


def test_a_plan_does_what_it_says() -> None:
    """The model, which the tests below go by, is right about each plan."""
    for plan in PLANS.values():
        with new_world() as world:
            world.run(steps_of(world, start(world), plan))
            with world.manager() as manager:
                assert contents(manager) == spliced(before(), plan)


@pytest.mark.parametrize(
    ("deliver", "force"),
    [(True, False), (False, False), (True, True)],
    ids=["result delivered", "result lost", "metadata switch"],
)
@pytest.mark.parametrize("name", PLANS)
def test_a_crash_after_any_action_leaves_all_or_nothing_in_all_logs(name: str, deliver: bool, force: bool) -> None:
    """One of several segments that took over its part of a transaction would be half a transaction."""
    allowed = [before(), spliced(before(), PLANS[name])]
    result: object = UNFINISHED
    count = 0
    while result is UNFINISHED:
        with new_world() as world:
            steps = steps_of(world, start(world), PLANS[name], force=force)
            done, result = run_to(world, steps, count=count, deliver=deliver)
            check_works_on(world, allowed, where=(count, done[-1:]))
        count += 1
    assert count > 1 or name == "nothing"


@pytest.mark.parametrize("name", PLANS)
def test_an_action_that_fails_leaves_all_or_nothing_in_all_logs(name: str) -> None:
    """An error may be raised before or after the action took effect; the partition must know what it knows."""
    allowed = [before(), spliced(before(), PLANS[name])]
    with new_world() as world:
        done, _ = run_to(world, steps_of(world, start(world), PLANS[name]), count=None)
    assert done or name == "nothing"
    for at, injected in failures(len(done)):
        with in_case(f"action {at}, {injected}"), new_world() as world:
            partition = start(world)
            outcome = run_failing(world, steps_of(world, partition, PLANS[name]), at=at, injected=injected)
            assert outcome is not UNFINISHED
            check_consistent(world, partition)
            check_works_on(world, allowed, where=(at, injected))


@pytest.mark.parametrize("name", PLANS)
def test_a_splice_that_found_the_disk_full_succeeds_when_tried_again(name: str) -> None:
    """DiskFull says: free some space and try again."""
    at = 0
    while True:
        with new_world() as world:
            partition = start(world)
            done = run_failing(world, steps_of(world, partition, PLANS[name]), at=at, injected=INJECTED[0])
            if not isinstance(done, DiskFull):
                break
            assert not partition.failed
            world.run(steps_of(world, partition, PLANS[name]))
            with world.manager() as manager:
                assert contents(manager) == spliced(before(), PLANS[name]), at
        at += 1
    assert at or name == "nothing"


# As its users see it


def as_logs(manager: MetadataManager, plan: Plan) -> dict[LogStream, list[LogStream]]:
    return {manager.log(target): [manager.log(source) for source in sources] for target, sources in plan.items()}


@pytest.mark.parametrize("name", PLANS)
def test_logs_go_on_behind_what_they_took_over(reopen: Reopen, disk: MemoryDisk, name: str) -> None:
    """Appends, offsets and later splices take no notice of where the bytes came from, after a restart neither."""
    with reopen() as manager:
        fill(manager)
        held = spliced(contents(manager), PLANS[name])
        manager.splice(as_logs(manager, PLANS[name]))
        assert contents(manager) == held
        for target in PLANS[name]:
            log = manager.log(target)
            length = log.length
            log.append(b"behind")
            assert log.length == length + 6
            assert [(offset, bytes(view)) for offset, view in log.blocks(length, length + 6)] == [(length, b"behind")]
            held[target] += b"behind"
    with reopen() as manager:
        assert contents(manager) == held
        for target in PLANS[name]:
            manager.log(target).append(b"again" * 20)
            held[target] += b"again" * 20
        assert contents(manager) == held
    assert not leftovers(manager, disk)


def test_appends_keep_their_borders_and_get_places_without_gaps(manager: MetadataManager) -> None:
    """A block is found again whole, at the sum of what lies before it, whatever log it was written to."""
    fill(manager)
    log, places = manager.log("short"), []
    manager.splice({log: [manager.log("many"), manager.log("one")], manager.log("empty"): [manager.log("more")]})
    for offset, view in log.blocks(0, log.length):
        places.append((offset, bytes(view)))
    assert [offset for offset, _ in places] == list(range(0, 8 * 40, 40))
    assert [data.split(b";")[0] for _, data in places] == [b"short0", *(b"many%d" % n for n in range(6)), b"one0"]


def test_all_of_it_is_one_append_of_metadata(manager: MetadataManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what makes it atomic, and its cost that of one record a log."""
    fill(manager)
    metadata, appended = manager.partition.plog_id, []
    plan = as_logs(manager, PLANS["several into several"])
    for target in plan:
        target.prepare_next()
    submit = manager.plogs.append

    def noted(plog_id: Any, offset: int, *data: Any) -> int:  # noqa: ANN401
        if plog_id == metadata:
            appended.append(data)
        return submit(plog_id, offset, *data)

    monkeypatch.setattr(manager.plogs, "append", noted)
    manager.splice(plan)
    assert len(appended) == 1
    assert sum(isinstance(record, Splice) for record in manager.read_all()) == 4


def test_nothing_is_written_for_a_plan_that_says_nothing(manager: MetadataManager) -> None:
    """Finishing a commit that was finished before leads to this; it need not cost a sync."""
    fill(manager)
    length = manager.partition.length
    manager.splice({})
    manager.splice({manager.log("long"): [], manager.log("empty"): []})
    assert manager.partition.length == length


def test_what_is_under_way_is_taken_over_too(reopen: Reopen) -> None:
    """A caller that splices need not wait for the disk first."""
    with reopen() as manager:
        fill(manager)
        plan = as_logs(manager, {"long": ["many"], "short": ["one"]})
        pending = [log.submit(b"late" * 20) for target, sources in plan.items() for log in (target, *sources)]
        manager.splice(plan)
        for append_under_way in pending:
            append_under_way.result()
        held = contents(manager)
        assert held["long"].count(b"late") == held["short"].count(b"late") == 40
    with reopen() as manager:
        assert contents(manager) == held


def test_logs_that_were_taken_over_are_gone_and_their_names_are_free(manager: MetadataManager) -> None:
    """A forgotten writer must not write into what is another log's now."""
    fill(manager)
    old = manager.log("many")
    manager.splice(as_logs(manager, {"long": ["many"], "empty": ["none", "one"]}))
    assert not {"many", "none", "one"} & set(manager.logs())
    for refused in (
        lambda: old.append(b"x"),
        lambda: old.length,
        lambda: manager.splice({manager.log("short"): [old]}),
    ):
        with pytest.raises(NoSuchLog, match="many"):
            refused()
    manager.log("many").append(b"new")
    assert content(manager.log("many")) == b"new"
    assert content(manager.log("short")).startswith(b"short0")


def plans_that_cannot_be(manager: MetadataManager, foreign: LogStream) -> list[dict[LogStream, list[LogStream]]]:
    long, short, many, one = (manager.log(name) for name in ("long", "short", "many", "one"))
    return [
        {long: [long]},
        {long: [many, many]},
        {long: [many], short: [one, many]},
        {long: [short], short: [one]},
        {long: [many], many: []},
        {long: [foreign]},
        {foreign: [many], long: [one]},
    ]


def test_a_plan_that_cannot_be_is_refused_and_changes_nothing(manager: MetadataManager, cpo: Cpo) -> None:
    """Each log is in it once, on one side, and all are of one partition."""
    fill(manager)
    held, length = contents(manager), manager.partition.length
    with open_manager(MemoryDisk(), cpo, partition="p1") as other:
        foreign = other.log("foreign")
        foreign.append(b"foreign")
        for plan in plans_that_cannot_be(manager, foreign):
            with pytest.raises(BadArgument, match="use different logs of this partition"):
                manager.splice(plan)
        assert content(foreign) == b"foreign"
    assert (contents(manager), manager.partition.length) == (held, length)
    for name in held:
        manager.log(name).append(b"on")


def test_a_plan_with_a_deleted_log_is_refused_and_changes_nothing(manager: MetadataManager) -> None:
    """Also if it is the last of many."""
    fill(manager)
    gone = manager.log("one")
    manager.delete_log("one")
    held = contents(manager)
    with pytest.raises(NoSuchLog, match="one"):
        manager.splice({manager.log("long"): [manager.log("many")], manager.log("short"): [gone]})
    assert contents(manager) == held
    for name in held:
        manager.log(name).append(b"on")


def test_a_closed_manager_splices_nothing(reopen: Reopen) -> None:
    """As with everything else."""
    with reopen() as manager:
        fill(manager)
        plan = as_logs(manager, {"long": ["many"]})
    with pytest.raises(StoreClosed):
        manager.splice(plan)
    with reopen() as manager:
        assert "many" in manager.logs()


@pytest.mark.parametrize("call", ["seal", "create", "append"])
@pytest.mark.parametrize("error", [DiskFull("x"), DiskFailed("x", reason="EIO", stopped=False)])
def test_a_splice_that_fails_leaves_logs_that_go_on(cpo: Cpo, call: str, error: PenstockError) -> None:
    """Each of them finds out anew where it ends; nothing is in two logs, nothing in none."""
    with FilePlogs(disk := MemoryDisk()) as plogs:
        gated = GatedPlogs(plogs)
        with MetadataManager.open(gated, cpo, "p0", sizes=TINY) as manager:
            fill(manager)
            held = contents(manager)
            gated.fail(call, error)
            with suppress(type(error), LogFenced):
                manager.splice(as_logs(manager, PLANS["several into several"]))
                held = spliced(held, PLANS["several into several"])  # the fault met somebody in the background
            gated.heal()
            assert contents(manager) == held
            if manager.partition.failed:
                return
            for name in held:
                manager.log(name).append(b"on")
                held[name] += b"on"
            assert contents(manager) == held
        with MetadataManager.open(gated, cpo, "p0", sizes=TINY) as manager:
            assert contents(manager) == held
        assert not leftovers(manager, disk)


def test_splices_of_many_threads_do_not_wait_for_each_other_forever(
    manager: MetadataManager, pool: ThreadPoolExecutor
) -> None:
    """Whatever the order in which their plans name the logs."""
    names = ["a", "b", "c"]
    for name in names:
        manager.log(name)

    def splice_some(number: int) -> None:
        plan = {}
        for turn in range(3):
            source = manager.log(f"s{number}.{turn}")
            source.append(b"%d.%d;" % (number, turn))
            plan[manager.log(names[(number + turn * (1 + number % 2)) % 3])] = [source]
        manager.splice(plan)

    for future in [pool.submit(splice_some, number) for number in range(24)]:
        future.result(SECONDS_MAX)
    held = contents(manager)
    assert set(held) == set(names)
    found = sorted(b"".join(held.values()).split(b";")[:-1])
    assert found == sorted(b"%d.%d" % (number, turn) for number in range(24) for turn in range(3))


def test_a_log_may_have_plogs_of_its_own_sizes(reopen: Reopen) -> None:
    """Large events want few plogs; who takes them over goes on with its own sizes."""
    with reopen() as manager:
        log, large = manager.log("log"), manager.log("large", sizes=PlogSizes(first=1000, largest=3000))
        log.append(b"x" * 30)
        for _ in range(10):
            large.append(b"l" * 500)
        assert [manager.plogs.info(plog_id).size for plog_id, _, _ in large.plogs()] == [1000, 3000, 3000]
        log.splice(large)
        log.append(b"y" * 30)
        sizes = [manager.plogs.info(plog_id).size for plog_id, _, _ in log.plogs()]
        assert (sizes[0], sizes[-1]) == (TINY.first, TINY.largest)
        manager.log("large").append(b"a new one")
        assert manager.plogs.info(manager.log("large").plogs()[0][0]).size == TINY.first


# On a disk that loses what was not synced


SPLICE: Final = 7  # steps before it


def splice_model(model: Model, target: str, sources: list[str]) -> None:
    start, data = model.logs[target]
    model.logs[target] = (start, data + b"".join(model.logs.pop(source)[1] for source in sources))


def record_splices() -> tuple[RecordingDisk, list[Model]]:
    """Write some logs, let two of them take over four others, go on; return the disk and the model after each step."""
    disk, model = RecordingDisk(), Model()
    models = [model.copy()]

    def note() -> None:
        disk.note(Done(len(models) - 1))
        models.append(model.copy())

    with open_cpo("memory:") as cpo, partition_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as manager:  # type: ignore[arg-type]
        for name, size in [("a", 30), ("s1", 50), ("s1", 50), ("b", 20), ("s2", 10), ("s3", 400), ("s4", 40)]:
            append(manager.log(name), name.encode() * (size // len(name)), model)
            note()
        plan = {"a": ["s2", "s1"], "b": ["s3", "s4"]}
        manager.splice(as_logs(manager, plan))
        for target, sources in plan.items():
            splice_model(model, target, sources)
        note()
        for name in ("a", "b"):
            append(manager.log(name), b"end" * 10, model)
            note()
    return disk, models


def under_way(state: CrashState) -> bool:
    """Whether the power went while the splice was under way, or right after it."""
    return SPLICE <= sum(isinstance(note, Done) for note in state.notes) <= SPLICE + 1


def test_a_power_loss_at_any_point_leaves_all_or_nothing_of_a_splice() -> None:
    """Every crash point of it, and the disks that each may leave; other steps are another test's."""
    disk, models = record_splices()
    found = set()
    with open_cpo("memory:") as cpo:
        for point in disk.crash_points():
            states = list(filter(under_way, disk.crash_states(point, power_set_max=1)))
            for state in states[point % 3 :: 3]:
                check(state, models, cpo)
                found.add((point, state.describe))
    assert len(found) > 100, "the history has become too short to prove anything"
