"""A plan that takes no time, and reports that were never measured."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from penstock.bench import QUICK, BenchReport
from penstock.bench._report import MeasuredSystem, Measurement, SkippedSystem
from penstock.bench._system import SystemMissing
from penstock.bench._works import Metric

if TYPE_CHECKING:
    from penstock.bench._system import SystemUnderTest

__all__ = ["DELAY", "SPEED", "TINY", "is_missing", "report_of"]

TINY: Final = dataclasses.replace(
    QUICK,
    mode="tiny",
    rounds=2,
    round_s=0.001,
    count_min=20,
    count_max=20,
    samples_min=3,
    large_size=100_000,
    streams=3,
    restart_events=20,
)
SPEED: Final = Metric(name="rate", title="write <fast>", unit="events/s", is_rate=True)
DELAY: Final = Metric(name="p50", title="wait", unit="ms", is_rate=False)


def is_missing(system: type[SystemUnderTest]) -> str | None:
    """Return why a system cannot run here; None if it can."""
    try:
        system.check()
    except SystemMissing as missing:
        return str(missing)
    return None


def _system(key: str, *, is_synced: bool = True) -> MeasuredSystem:
    return MeasuredSystem(
        key=key,
        title=key.title(),
        is_penstock=key.startswith("penstock"),
        is_synced=is_synced,
        is_default=True,
        settings={"client": "a & b"},
    )


def report_of(figures: dict[str, tuple[Metric, dict[str, float | str]]]) -> BenchReport:
    """Return a report: by work, a metric and the value of each system, or the reason why it has none.

    The systems are ``penstock-served``, ``penstock-embedded``, ``synced`` and ``unsynced``; and ``penstock-sent``,
    where a work has it.
    """
    found = {key for _, values in figures.values() for key in values}
    sent = ("penstock-sent",) if "penstock-sent" in found else ()
    keys = ("penstock-embedded", "penstock-served", *sent, "synced", "unsynced")
    return BenchReport(
        mode="tiny",
        version="1",
        started="2026-11-18T09:00:00+00:00",
        seconds=1.0,
        machine={"cores": 2},
        systems=tuple(_system(key, is_synced=key != "unsynced") for key in keys),
        skipped=(SkippedSystem(key="gone", title="Gone", reason="the program gone is missing: get <it>"),),
        measurements=tuple(
            Measurement(work=work, metric=metric, system=key, reason=value)
            if isinstance(value, str)
            else Measurement(work=work, metric=metric, system=key, values=(value * 0.9, value, value * 1.2))
            for work, (metric, values) in figures.items()
            for key, value in values.items()
        ),
    )
