"""One run: start what is there, do every work in rounds that the systems take in turn, end everything.

Rounds in turn let noise hit all systems alike. A system that fails at a work has the reason instead of a figure, and
the others go on.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock._version import __version__
from penstock.bench._kafka import KafkaMock
from penstock.bench._nats import NatsDefault, NatsSynced
from penstock.bench._penstock import (
    BucketPenstock,
    EmbeddedPenstock,
    PenstockSystem,
    ReplicatedPenstock,
    SentPenstock,
    ServedPenstock,
    SharedPenstock,
)
from penstock.bench._postgresql import PostgreSQL
from penstock.bench._process import run_folder
from penstock.bench._rabbitmq import RabbitMQStreams
from penstock.bench._redis import RedisDefault, RedisSynced
from penstock.bench._report import BenchReport, MeasuredSystem, Measurement, SkippedSystem
from penstock.bench._system import NotOffered, SystemMissing
from penstock.bench._works import WORKS
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from penstock.bench._system import SystemUnderTest
    from penstock.bench._works import BenchPlan, BenchWork, Round

__all__ = ["choose_systems", "choose_works", "run_bench"]

_KINDS: Final[tuple[type[PenstockSystem], ...]] = (
    EmbeddedPenstock,
    SharedPenstock,
    ServedPenstock,
    SentPenstock,
    ReplicatedPenstock,
    BucketPenstock,
)
_PEERS: Final[tuple[type[SystemUnderTest], ...]] = (
    NatsSynced,
    NatsDefault,
    RedisSynced,
    RedisDefault,
    RabbitMQStreams,
    PostgreSQL,
    KafkaMock,
)
_NONE: Final = "none"
_STARTS: Final = 4  # systems that start at the same time
_SYNCS: Final = 50
_ROUNDS_SHARE: Final = 0.5  # of the time of a work; what comes before finds out how large a round is
_REASON_MAX: Final = 200


def choose_systems(*, kinds: Sequence[str] | None, peers: Sequence[str] | None) -> list[type[SystemUnderTest]]:
    """Return the systems with these names, all for None; raise BadArgument for a name that none has."""
    return [*_named("kinds", _KINDS, kinds), *_named("peers", _PEERS, peers)]


def _named(
    argument: str, systems: Sequence[type[SystemUnderTest]], names: Sequence[str] | None
) -> list[type[SystemUnderTest]]:
    known = list(dict.fromkeys(system.name for system in systems))
    if names is None:
        return list(systems)
    if list(names) == [_NONE]:
        return []
    for name in names:
        if name not in known:
            raise BadArgument(f"invalid {argument} {name!r}: use {', '.join(known)}, or {_NONE} alone")
    return [system for system in systems if system.name in names]


def choose_works(names: Sequence[str] | None, *, is_full: bool) -> list[BenchWork]:
    """Return the works with these names, all for None; raise BadArgument for a name that none has."""
    known = [work.name for work in WORKS]
    for name in names or ():
        if name not in known:
            raise BadArgument(f"invalid only {name!r}: use {', '.join(known)}")
    chosen = [work for work in WORKS if names is None or work.name in names]
    if names is not None and not is_full and (late := [work.name for work in chosen if work.is_full_only]):
        raise BadArgument(f"invalid only {late[0]!r}: it is a work of --full")
    return [work for work in chosen if is_full or not work.is_full_only]


def run_bench(
    systems: Sequence[type[SystemUnderTest]],
    works: Sequence[BenchWork],
    plan: BenchPlan,
    *,
    parent: Path | None = None,
    on_progress: Callable[[str, int, int], object] = lambda *_: None,
) -> BenchReport:
    """Measure; ``on_progress`` is called with what is done now, how many steps are done, and how many there are."""
    if not any(issubclass(system, PenstockSystem) for system in systems):
        raise BadArgument("invalid kinds: name at least one kind of Penstock, which the peers are compared with")
    started, start = datetime.now(UTC), time.monotonic()
    steps = 1 + len(works)
    with run_folder(parent) as folder, ExitStack() as stack:
        machine = _machine(folder)
        on_progress(f"starting {len(systems)} systems", 0, steps)
        running, skipped = _start_all(systems, folder, stack)
        deadline = start + plan.seconds_max
        measurements: list[Measurement] = []
        for number, work in enumerate(works, 1):
            on_progress(work.name, number, steps)
            share_s = (deadline - time.monotonic()) * work.share / sum(each.share for each in works[number - 1 :])
            measurements += _measure(work, [each for each in running if work.suits(each)], plan, share_s=share_s)
        on_progress("stopping", steps, steps)
    return BenchReport(
        mode=plan.mode,
        version=__version__,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - start,
        machine=machine,
        systems=tuple(_describe(system) for system in running),
        skipped=tuple(skipped),
        measurements=tuple(measurements),
    )


def _describe(system: SystemUnderTest) -> MeasuredSystem:
    return MeasuredSystem(
        key=system.key,
        title=system.title,
        is_penstock=isinstance(system, PenstockSystem),
        is_synced=system.is_synced,
        is_default=system.is_default,
        settings=system.settings,
    )


def _start_all(
    kinds: Iterable[type[SystemUnderTest]], folder: Path, stack: ExitStack
) -> tuple[list[SystemUnderTest], list[SkippedSystem]]:
    """Start the systems, some at the same time, to be ended by the stack; return those that run, and the others."""
    found: list[SystemUnderTest] = []
    skipped = []
    for kind in kinds:
        try:
            kind.check()
        except SystemMissing as missing:
            skipped.append(SkippedSystem(key=kind.key, title=kind.title, reason=str(missing)))
            continue
        own = folder / kind.key
        own.mkdir()
        found.append(kind(own))
    stack.callback(_close_all, found)
    running = []
    for system, failure in zip(found, _start_each(found), strict=True):
        if failure is None:
            running.append(system)
        else:
            skipped.append(SkippedSystem(key=system.key, title=system.title, reason=_reason(failure)))
    return running, skipped


def _start_each(systems: Sequence[SystemUnderTest]) -> list[Exception | None]:
    """Start systems, and return the error of each that has failed; Ctrl-C waits for those that are being started."""

    def start(system: SystemUnderTest) -> Exception | None:
        try:
            system.start()
        except Exception as error:  # noqa: BLE001 - of any client; it becomes part of the report
            return error
        return None

    pool = ThreadPoolExecutor(_STARTS, thread_name_prefix="penstock-bench-start")
    try:
        return list(pool.map(start, systems))
    finally:
        pool.shutdown(cancel_futures=True)


def _close_all(systems: Sequence[SystemUnderTest]) -> None:
    """End all systems at the same time, whether they have started or not; raise the first error in the end."""
    with ThreadPoolExecutor(max(1, len(systems)), thread_name_prefix="penstock-bench-stop") as pool:
        ends = [pool.submit(system.close) for system in systems]
    for end in ends:
        end.result()


def _measure(
    work: BenchWork, systems: Sequence[SystemUnderTest], plan: BenchPlan, *, share_s: float
) -> list[Measurement]:
    """Measure one work: a round of each system at least, and one more of each whose round fits into the share."""
    reasons: dict[str, str] = {}
    values: dict[str, list[Mapping[str, float]]] = {system.key: [] for system in systems}
    readers = {each.key for each in systems if each.is_reader}
    if share_s <= 0:
        reasons = dict.fromkeys(values, "the time was up: use --seconds or --full")
        return _measurements(work, values, reasons, readers)
    end = time.monotonic() + share_s
    ready = _prepare_each(work, systems, plan, reasons, end=end - share_s * _ROUNDS_SHARE)
    longest_s = dict.fromkeys(ready, 0.0)
    for number in range(plan.rounds):
        for key, run in list(ready.items()):
            begun = time.monotonic()
            if number and begun + longest_s[key] > end:
                continue
            try:
                values[key].append(run())
            except NotOffered as limit:
                reasons[key] = str(limit)
            except Exception as error:  # noqa: BLE001 - of any client; it becomes part of the report
                reasons[key] = _reason(error)
            longest_s[key] = max(longest_s[key], time.monotonic() - begun)
            if key in reasons:
                del ready[key]
    return _measurements(work, values, reasons, readers)


def _prepare_each(
    work: BenchWork, systems: Sequence[SystemUnderTest], plan: BenchPlan, reasons: dict[str, str], *, end: float
) -> dict[str, Round]:
    """Prepare a work for each system, in an equal part of the time; note the reasons of those that cannot do it."""
    ready: dict[str, Round] = {}
    for number, system in enumerate(systems):
        part_s = max(0.0, end - time.monotonic()) / (len(systems) - number)
        try:
            ready[system.key] = work.prepare(system, plan, seconds_max=part_s)
        except NotOffered as limit:
            reasons[system.key] = str(limit)
        except Exception as error:  # noqa: BLE001 - of any client; it becomes part of the report
            reasons[system.key] = _reason(error)
    return ready


def _measurements(
    work: BenchWork,
    values: Mapping[str, list[Mapping[str, float]]],
    reasons: Mapping[str, str],
    readers: Collection[str],
) -> list[Measurement]:
    """Return a measurement for each figure; a system that failed in a later round has no figure, either."""
    return [
        Measurement(
            work=work.name,
            metric=metric,
            system=key,
            values=() if key in reasons else tuple(found[metric.name] for found in rounds),
            reason=reasons.get(key),
        )
        for metric in work.metrics
        for key, rounds in values.items()
        if metric.is_read or key not in readers
    ]


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, SystemMissing) else f"failed: {type(error).__name__}: "
    return f"{kind}{text}"[:_REASON_MAX].rstrip(": ")


def _machine(folder: Path) -> dict[str, str | int | float]:
    """Return what a reader needs to know about the machine to judge the figures."""
    return {
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "file_system": _file_system(folder),
        "sync_ms": round(_sync_s(folder) * 1e3, 3),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on, from the longest mount point above it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(len(place), kind) for place, kind in mounts if folder.is_relative_to(place)]
    return max(above, default=(0, "unknown"))[1]


def _sync_s(folder: Path) -> float:
    """Return what one bare write of 4 KiB and its fdatasync take: the floor of a durable event."""
    path, times = folder / "sync", []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for number in range(_SYNCS):
            start = time.perf_counter()
            os.pwrite(descriptor, bytes(4096), number * 4096)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times)
