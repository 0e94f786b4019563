"""The works: what every system does, how often, and what is counted.

A work is prepared once for a system, which warms it up and finds out how many events take about as long as a round
should, for as long as it may; the function that comes back does one round. Where Penstock loses most comes first, so
that it is not what is left out on a slow machine.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.bench._system import EventLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from penstock.bench._system import SystemUnderTest

    Round = Callable[[], Mapping[str, float]]

    class PrepareWork(Protocol):
        """Prepares a work, in about so many seconds at most."""

        def __call__(self, system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
            """Return what does one round."""
            ...


__all__ = ["FULL", "QUICK", "WORKS", "BenchPlan", "BenchWork", "Metric"]

_EVENT: Final = bytes(range(100))
_EVENT_10K: Final = _EVENT * 102 + bytes(40)
assert len(_EVENT_10K) == 10 << 10
_GROWTH_MIN: Final = 1.5
_GROWTH_MAX: Final = 20
_SLOW_ROUNDS: Final = 20
_FILL_ROUNDS: Final = 5
_PERCENTILES: Final = (50, 90, 99)
_WARM_UP_SHARE: Final = 10  # of a large event, and of the streams of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How much is done."""

    mode: str
    seconds_max: float
    """After so long no round begins, except that a work that has begun has one of each system."""
    rounds: int
    round_s: float
    """How long a round of a system should take, where the number of events can be chosen."""
    count_min: int
    """The smallest number of events of a round, if they have 100 bytes."""
    count_max: int
    """The largest number of events of a round."""
    samples_min: int
    """The smallest number of events that are timed one by one."""
    bytes_max: int
    """The largest number of bytes of a round."""
    large_size: int
    huge_size: int | None
    streams: int
    streams_s: float
    """How long a system may create streams in a round."""
    restart_events: int
    """How many events are there when a system starts again."""


QUICK: Final = BenchPlan(
    mode="quick",
    seconds_max=140.0,
    rounds=3,
    round_s=0.1,
    count_min=2_000,
    count_max=200_000,
    samples_min=50,
    bytes_max=64 << 20,
    large_size=100_000_000,
    huge_size=None,
    streams=1000,
    streams_s=0.25,
    restart_events=10_000,
)
FULL: Final = BenchPlan(
    mode="full",
    seconds_max=3600.0,
    rounds=7,
    round_s=1.0,
    count_min=10_000,
    count_max=2_000_000,
    samples_min=200,
    bytes_max=512 << 20,
    large_size=100_000_000,
    huge_size=1 << 30,
    streams=1000,
    streams_s=10.0,
    restart_events=100_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a work."""

    name: str
    title: str
    unit: str
    is_rate: bool
    """Whether more is better; otherwise it is a time, and less is better."""
    is_read: bool = False
    """Whether reading is what takes the time, or a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWork:
    """One work, and its figures."""

    name: str
    metrics: tuple[Metric, ...]
    prepare: PrepareWork
    share: float = 1.0
    """How much of the time it gets, in multiples of what most works get."""
    is_full_only: bool = False

    def suits(self, system: SystemUnderTest) -> bool:
        """Whether a system takes part in it."""
        return not system.is_reader or any(metric.is_read for metric in self.metrics)


def _calibrated(run: Callable[[int], float], plan: BenchPlan, *, least: int, most: int, seconds_max: float) -> int:
    """Warm up, and return how many events take about as long as a round should, as far as time allows to find out.

    Fewer than ``least`` would measure what a call costs, not what an event costs. The first call finds everything cold,
    and decides nothing, unless it is so slow that there will be no more events anyway. The second one counts also when
    time is up: a first call that something else has delayed must not leave a system with few events.
    """
    end = time.monotonic() + seconds_max
    count = min(least, most)
    if run(count) > _SLOW_ROUNDS * plan.round_s:
        return count
    while count < most:
        took = run(count)
        if took * _GROWTH_MIN > plan.round_s and time.monotonic() < end:
            took = min(took, run(count))  # something else may have delayed it
        factor = plan.round_s / max(took, 1e-6)
        if factor < _GROWTH_MIN:
            break
        count = min(most, math.ceil(count * min(factor, _GROWTH_MAX)))
        if time.monotonic() > end:
            break
    return count


def _count_min(plan: BenchPlan, event: bytes) -> int:
    return max(1, plan.count_min // 10, plan.count_min * len(_EVENT) // len(event))


def _count_max(plan: BenchPlan, event: bytes) -> int:
    return max(1, min(plan.count_max, plan.bytes_max // len(event)))


def _write(call: str, event: bytes) -> PrepareWork:
    def prepare(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
        def run(count: int) -> float:
            took: float = getattr(system, call)(EventLoad(event=event, count=count))
            return took

        least = max(_count_min(plan, event), system.written_events_min * len(_EVENT) // len(event))
        count = _calibrated(run, plan, least=least, most=_count_max(plan, event), seconds_max=seconds_max)
        return lambda: {"rate": count / run(count)}

    return prepare


def _read(call: str, event: bytes) -> PrepareWork:
    def prepare(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
        start = time.monotonic()
        stream, load = _filled(system, plan, event, seconds_max=seconds_max / 2)

        def run(count: int) -> float:
            took: float = getattr(system, call)(stream, EventLoad(event=event, count=count))
            return took

        left = start + seconds_max - time.monotonic()
        count = _calibrated(run, plan, least=_count_min(plan, event), most=load.count, seconds_max=left)
        return lambda: {"rate": count / run(count)}

    return prepare


def _filled(system: SystemUnderTest, plan: BenchPlan, event: bytes, *, seconds_max: float) -> tuple[str, EventLoad]:
    """Return a stream with as many events as are written in a moment; works that read share it."""
    if event not in system.filled:
        stored_max = _count_max(plan, event)
        if system.stored_bytes_max is not None:
            stored_max = min(stored_max, system.stored_bytes_max // len(event))
        first = EventLoad(event=event, count=min(_count_min(plan, event), stored_max))
        rate = first.count / max(system.write_batches(first), 1e-6)
        fill_s = min(_FILL_ROUNDS * plan.round_s, seconds_max)
        load = EventLoad(event=event, count=max(first.count, min(stored_max, int(rate * fill_s))))
        system.filled[event] = system.fill(load), load
    return system.filled[event]


def _times(call: str) -> PrepareWork:
    def prepare(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
        def run(count: int) -> list[float]:
            times: list[float] = getattr(system, call)(EventLoad(event=_EVENT, count=count))
            return times

        most = max(plan.samples_min, plan.count_max)
        count = _calibrated(
            lambda number: sum(run(number)), plan, least=plan.samples_min, most=most, seconds_max=seconds_max
        )
        return lambda: percentiles_ms(run(count))

    return prepare


def percentiles_ms(times: list[float]) -> dict[str, float]:
    """Return the percentiles of times in milliseconds; each is one of the times, not a mean of two."""
    ranked = sorted(times)
    return {f"p{share}": ranked[math.ceil(len(ranked) * share / 100) - 1] * 1e3 for share in _PERCENTILES}


def _large(size_of: Callable[[BenchPlan], int | None]) -> PrepareWork:
    def prepare(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
        del seconds_max
        size = size_of(plan)
        assert size is not None, "a work of the full mode only"

        def run() -> dict[str, float]:
            written, read = system.large(size)
            return {"write": size / written / 1e6, "read": size / read / 1e6}

        system.large(size // _WARM_UP_SHARE)
        return run

    return prepare


def _streams(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
    del seconds_max
    system.create_streams(max(1, plan.streams // _WARM_UP_SHARE), seconds_max=plan.streams_s / _WARM_UP_SHARE)

    def run() -> dict[str, float]:
        done, took = system.create_streams(plan.streams, seconds_max=plan.streams_s)
        return {"rate": done / took}

    return run


def _restart(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
    del seconds_max
    load = EventLoad(event=_EVENT, count=plan.restart_events)
    if system.stored_bytes_max is not None:
        load = EventLoad(event=_EVENT, count=min(load.count, system.stored_bytes_max // len(_EVENT)))
    stream = system.fill(load)
    return lambda: {"seconds": system.restart(stream, load)}


def _rate(title: str, unit: str = "events/s", *, is_read: bool = False) -> tuple[Metric, ...]:
    return (Metric(name="rate", title=title, unit=unit, is_rate=True, is_read=is_read),)


def _percentiles(title: str, *, is_read: bool = False) -> tuple[Metric, ...]:
    names = [f"p{share}" for share in _PERCENTILES]
    return tuple(
        Metric(name=name, title=f"{title}, {name}", unit="ms", is_rate=False, is_read=is_read) for name in names
    )


def _both_ways(title: str) -> tuple[Metric, ...]:
    ways = ("write", "read")
    return tuple(
        Metric(name=way, title=f"{way} {title}", unit="MB/s", is_rate=True, is_read=way == "read") for way in ways
    )


WORKS: Final = (
    BenchWork(
        name="restart",
        metrics=(Metric(name="seconds", title="restart, to the first event read", unit="s", is_rate=False),),
        prepare=_restart,
        share=2.0,
    ),
    BenchWork(
        name="streams",
        metrics=_rate("create up to 1,000 streams, an event each", "streams/s"),
        prepare=_streams,
        share=1.5,
    ),
    BenchWork(
        name="durable",
        metrics=_percentiles("write one event and wait"),
        prepare=_times("write_singly"),
    ),
    BenchWork(
        name="tail",
        metrics=_percentiles("from write to another reader", is_read=True),
        prepare=_times("tail"),
    ),
    BenchWork(
        name="write-each",
        metrics=_rate("write 100 B, event by event"),
        prepare=_write("write_each", _EVENT),
    ),
    BenchWork(
        name="write-batch",
        metrics=_rate("write 100 B, batched"),
        prepare=_write("write_batches", _EVENT),
    ),
    BenchWork(
        name="read-each",
        metrics=_rate("read 100 B, event by event", is_read=True),
        prepare=_read("read_each", _EVENT),
    ),
    BenchWork(
        name="read-batch",
        metrics=_rate("read 100 B, batched", is_read=True),
        prepare=_read("read_batches", _EVENT),
    ),
    BenchWork(
        name="write-10k",
        metrics=_rate("write 10 KiB, batched"),
        prepare=_write("write_batches", _EVENT_10K),
    ),
    BenchWork(
        name="read-10k",
        metrics=_rate("read 10 KiB, batched", is_read=True),
        prepare=_read("read_batches", _EVENT_10K),
    ),
    BenchWork(
        name="large",
        metrics=_both_ways("an event of 100 MB"),
        prepare=_large(lambda plan: plan.large_size),
    ),
    BenchWork(
        name="huge",
        metrics=_both_ways("an event of 1 GiB"),
        prepare=_large(lambda plan: plan.huge_size),
        is_full_only=True,
    ),
)
