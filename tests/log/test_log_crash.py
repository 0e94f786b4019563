"""Every crash point of a partition's life, and every disk that a power loss may leave at each."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from penstock.cpo import Cpo, open_cpo
from penstock.log import LogStream, MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.testing import CrashState, RecordingDisk, SeededRandom
from tests.log.harness import Published, RecordedOracle, leftovers
from tests.sampling import EXPLORES, crash_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.ports import Disk

SIZES = PlogSizes(first=64, largest=64)


@dataclass(frozen=True)
class Done:
    """Step ``number`` of the history has returned to its caller."""

    number: int


@dataclass
class Model:
    """What the logs hold: all bytes a log ever had, and how many of them were truncated away."""

    logs: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def copy(self) -> Model:
        """Return a model that does not change with this one."""
        return Model(dict(self.logs))


@contextmanager
def partition_on(disk: Disk, cpo: Cpo, name: str, *, seed: int) -> Iterator[MetadataManager]:
    """Open a partition with a journal so small that checkpoints are part of the history."""
    random = SeededRandom(seed)
    with (
        FilePlogs(disk, journal_size=1536, direct_size_min=300, random=random) as plogs,
        MetadataManager.open(plogs, cpo, name, sizes=SIZES) as manager,
    ):
        yield manager


def truncate_at_second(log: LogStream, model: Model) -> None:
    """Drop the first plog of a log, in the log and in the model."""
    (_, length, _), (second, _, _) = log.plogs()[:2]
    log.truncate(second)
    start, data = model.logs[log.name]
    model.logs[log.name] = (start + length, data)


def append(log: LogStream, data: bytes, model: Model) -> None:
    """Append to a log and to the model."""
    start, before = model.logs.get(log.name, (0, b""))
    log.append(data)
    model.logs[log.name] = (start, before + data)


def splice(log: LogStream, source: LogStream, model: Model) -> None:
    """Splice one log into another, in the partition and in the model."""
    log.splice(source)
    start, data = model.logs[log.name]
    _, more = model.logs.pop(source.name)
    model.logs[log.name] = (start, data + more)


def merge_first(log: LogStream, count: int) -> None:
    """Merge the first plogs of a log, which holds the same as before."""
    plogs = log.plogs()
    assert log.merge(plogs[0][0], count)
    assert len(log.plogs()) == len(plogs) - count + 1


def drop(manager: MetadataManager, name: str, model: Model) -> None:
    """Delete a log, in the partition and in the model."""
    manager.delete_log(name)
    del model.logs[name]


NextCut: TypeAlias = "Callable[[MetadataManager, Model], None]"


def write(name: str, data: bytes) -> NextCut:
    """Return the step of appending ``data``; the first one to a log creates it."""
    return lambda manager, model: append(manager.log(name), data, model)


HISTORY: list[NextCut] = [
    write("a", b"a" * 30),
    write("a", b"b" * 30),
    write("b", b"1" * 40),
    write("a", b"c" * 20),  # switches
    write("b", b"2" * 40),  # switches
    write("c", b"x" * 10),
    lambda manager, model: splice(manager.log("a"), manager.log("b"), model),
    write("a", b"d" * 60),
    write("a", b"e" * 400),  # larger than any plog so far, and so large that the journal is passed by
    lambda manager, model: truncate_at_second(manager.log("a"), model),
    lambda manager, _: manager.log("a").release(),
    lambda manager, _: merge_first(manager.log("a"), 3),
    lambda manager, model: drop(manager, "c", model),
    write("a", b"f" * 30),
]


def record_history() -> tuple[RecordingDisk, list[Model]]:
    """Live through the history on a recording disk; return the disk and the model after each step."""
    disk, model = RecordingDisk(), Model()
    models = [model.copy()]
    with open_cpo("memory:") as cpo, partition_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as manager:  # type: ignore[arg-type]
        for number, step in enumerate(HISTORY):
            step(manager, model)
            models.append(model.copy())
            disk.note(Done(number))
    return disk, models


def contents(manager: MetadataManager) -> dict[str, tuple[int, bytes]]:
    """Return what each log begins with and holds."""
    found = {}
    for name in manager.logs():
        log = manager.log(name)
        first = log.plogs()[0][0]
        found[name] = (log.start, b"".join(log.read(first, 0, log.length - log.start)))
    return found


def allowed(models: list[Model], done: int) -> list[dict[str, tuple[int, bytes]]]:
    """Return what the logs may hold: all that was acknowledged; the step under way wholly or not at all."""
    return [
        {name: (start, data[start:]) for name, (start, data) in model.logs.items()} for model in models[done : done + 2]
    ]


def without_empty(logs: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """Leave out logs that were created for an append that is not there."""
    return {name: held for name, held in logs.items() if held != (0, b"")}


def check(state: CrashState, models: list[Model], cpo: Cpo) -> None:
    """Recover from one crash, see that nothing is lost or invented, and go on working."""
    done = sum(isinstance(note, Done) for note in state.notes)
    published = [note.plog_id for note in state.notes if isinstance(note, Published)]
    partition = "begun" if published else f"new-{hash(state.describe)}"
    if published:
        newest = cpo.metadata_plog(partition)
        cpo.set_metadata_plog(partition, published[-1], expected=newest.version if newest else 0)
    with partition_on(state.disk, cpo, partition, seed=2) as manager:
        recovered = contents(manager)
        assert without_empty(recovered) in allowed(models, done), state.describe
        manager.log("a").append(b"after the crash")
    with partition_on(state.disk, cpo, partition, seed=3) as manager:
        start, held = recovered.get("a", (0, b""))
        assert contents(manager)["a"] == (start, held + b"after the crash"), state.describe
    if published:
        assert not leftovers(manager, state.disk), state.describe


def test_a_crash_at_any_point_loses_nothing_acknowledged_and_invents_nothing() -> None:
    """This is the promise of the store."""
    disk, models = record_history()
    states = 0
    with open_cpo("memory:") as cpo:
        for state in disk.every_crash_state(power_set_max=3) if EXPLORES else crash_states(disk):
            check(state, models, cpo)
            states += 1
    assert states > (1500 if EXPLORES else 20), "the history has become too short to prove anything"
