"""The report of a run, and its JSON: every value that was measured, and why one is missing."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.bench._works import Metric

__all__ = ["EVEN", "BenchReport", "Comparison", "MeasuredSystem", "Measurement", "SkippedSystem"]

JSON_VERSION: Final = 1
EVEN: Final = 1.05
"""Up to here, two speeds are called the same."""
_LOAD_MAX: Final = 1.0
_SENT: Final = "penstock-sent"
_EMBEDDED: Final = "penstock-embedded"
_BASELINES: Final = ("penstock-served", _EMBEDDED)
"""Peers are servers, so Penstock is one, too, where it was measured as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSystem:
    """A system that took part, and its settings."""

    key: str
    title: str
    is_penstock: bool
    is_synced: bool
    is_default: bool
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedSystem:
    """A system that did not take part, and why."""

    key: str
    title: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One figure of one system: a value from each round, or the reason why there is none."""

    work: str
    metric: Metric
    system: str
    values: tuple[float, ...] = ()
    reason: str | None = None

    @property
    def median(self) -> float | None:
        """The middle of the rounds."""
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """How far the rounds are apart, as a share of the median."""
        middle = self.median
        return None if not middle else (max(self.values) - min(self.values)) / middle

    def speed_of(self, baseline: float) -> float | None:
        """How many times as fast it is as a baseline: above 1 it is faster, whatever the unit is."""
        middle = self.median
        if not middle or not baseline:
            return None
        return middle / baseline if self.metric.is_rate else baseline / middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure of all systems beside that of Penstock.

    Peers send what is read over a socket. So the baseline of a figure of reading is Penstock that does the same, and
    not the one whose clients map its files because they are on the same machine.
    """

    work: str
    metric: Metric
    baseline: Measurement
    measurements: tuple[Measurement, ...]
    speeds: Mapping[str, float]
    """By system, in multiples of the baseline's speed."""
    synced_peer: str | None
    """The fastest peer that syncs before it acknowledges, too."""
    unsynced_peer: str | None
    """The fastest peer that does not."""

    @property
    def rank(self) -> tuple[int, float]:
        """The order of a list: losses at equal durability, losses to peers that do not sync, the rest; worst first.

        A loss of Penstock embedded counts like one of the baseline; the larger one decides.
        """
        synced, unsynced = (
            self.speeds.get(peer or "", 0.0) / min(1.0, self.speeds.get(_EMBEDDED, 1.0))
            for peer in (self.synced_peer, self.unsynced_peer)
        )
        if synced >= EVEN:
            return 0, -synced
        if unsynced >= EVEN:
            return 1, -unsynced
        return 2, -max(synced, unsynced)

    def is_lost(self, *, is_synced: bool) -> bool:
        """Whether a peer of this durability is faster than the baseline."""
        return self.speeds.get((self.synced_peer if is_synced else self.unsynced_peer) or "", 0.0) >= EVEN

    def embedded_speed_of(self, peer: str | None) -> float | None:
        """How many times as fast as Penstock embedded a peer is; None if that is the baseline, or not measured."""
        embedded, speed = self.speeds.get(_EMBEDDED), self.speeds.get(peer or "")
        if embedded is None or speed is None or self.baseline.system == _EMBEDDED:
            return None
        return speed / embedded


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """All of a run."""

    mode: str
    version: str
    started: str
    seconds: float
    machine: Mapping[str, str | int | float]
    systems: tuple[MeasuredSystem, ...]
    skipped: tuple[SkippedSystem, ...]
    measurements: tuple[Measurement, ...]

    @property
    def baseline(self) -> MeasuredSystem | None:
        """The Penstock that others are compared with."""
        ours = [system for system in self.systems if system.is_penstock]
        named = {system.key: system for system in ours}
        return next((named[key] for key in _BASELINES if key in named), ours[0] if ours else None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the figures are worth less than they seem."""
        load = self.machine.get("load_before", 0.0)
        if not isinstance(load, str) and load > _LOAD_MAX:
            return (f"the load was {load} before the run: something else used the machine, so measure again when idle",)
        return ()

    def comparisons(self) -> list[Comparison]:
        """Compare every figure that Penstock has; where it loses comes first."""
        baseline = self.baseline
        if baseline is None:
            return []
        figures: dict[tuple[str, str], list[Measurement]] = {}
        for measurement in self.measurements:
            figures.setdefault((measurement.work, measurement.metric.name), []).append(measurement)
        found = [self._compare(baseline.key, group) for group in figures.values()]
        return sorted((comparison for comparison in found if comparison is not None), key=lambda each: each.rank)

    def _compare(self, baseline_key: str, group: list[Measurement]) -> Comparison | None:
        found = {each.system: each for each in group if each.median}
        baseline = found.get(_SENT) or found.get(baseline_key)
        if baseline is None or baseline.median is None:
            return None
        middle = baseline.median
        speeds = {each.system: speed for each in group if (speed := each.speed_of(middle)) is not None}
        return Comparison(
            work=baseline.work,
            metric=baseline.metric,
            baseline=baseline,
            measurements=tuple(group),
            speeds=speeds,
            synced_peer=self._fastest_peer(speeds, is_synced=True),
            unsynced_peer=self._fastest_peer(speeds, is_synced=False),
        )

    def _fastest_peer(self, speeds: Mapping[str, float], *, is_synced: bool) -> str | None:
        peers = [each.key for each in self.systems if not each.is_penstock and each.is_synced == is_synced]
        return max((key for key in peers if key in speeds), key=lambda key: speeds[key], default=None)

    def to_json(self) -> dict[str, Any]:
        """Return what ``--json`` writes."""
        baseline = self.baseline
        return {
            "format": JSON_VERSION,
            "mode": self.mode,
            "penstock": self.version,
            "started": self.started,
            "seconds": round(self.seconds, 1),
            "machine": dict(self.machine),
            "warnings": list(self.warnings),
            "baseline": None if baseline is None else baseline.key,
            "systems": [_system_json(system) for system in self.systems],
            "skipped": [{"key": each.key, "title": each.title, "reason": each.reason} for each in self.skipped],
            "results": [_measurement_json(each) for each in self.measurements],
        }


def _system_json(system: MeasuredSystem) -> dict[str, Any]:
    return {
        "key": system.key,
        "title": system.title,
        "penstock": system.is_penstock,
        "synced": system.is_synced,
        "default": system.is_default,
        "settings": dict(system.settings),
    }


def _measurement_json(measurement: Measurement) -> dict[str, Any]:
    metric = measurement.metric
    head = {
        "work": measurement.work,
        "metric": metric.name,
        "title": metric.title,
        "system": measurement.system,
        "unit": metric.unit,
        "more_is_better": metric.is_rate,
    }
    if not measurement.values:
        return {**head, "reason": measurement.reason}
    figures = {"median": measurement.median, "low": min(measurement.values), "high": max(measurement.values)}
    return {**head, **figures, "values": list(measurement.values)}
