"""The tables of a report: where Penstock stands, worst first, and how its kinds compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.bench._report import EVEN

if TYPE_CHECKING:
    from penstock.bench._report import BenchReport, Comparison, Measurement

__all__ = ["SUMMARY_COLUMNS", "figure_text", "kind_rows", "speed_text", "summary_rows"]

SUMMARY_COLUMNS: Final = (
    "work",
    "Penstock",
    "fastest peer that syncs",
    "the same to Penstock embedded",
    "fastest peer that does not",
)
_NO_FIGURE: Final = "-"


def summary_rows(report: BenchReport) -> list[tuple[str, ...]]:
    """Return a heading and a row for each figure; where Penstock loses, served or embedded, comes first."""
    titles = {system.key: system.title for system in report.systems}
    baseline = report.baseline
    main = baseline.key if baseline else ""
    heading = (SUMMARY_COLUMNS[0], baseline.title if baseline else SUMMARY_COLUMNS[1], *SUMMARY_COLUMNS[2:])
    return [
        heading,
        *(
            (
                comparison.metric.title,
                figure_text(comparison.baseline) + (", sent" if comparison.baseline.system != main else ""),
                _peer_text(comparison, comparison.synced_peer, titles),
                _embedded_text(comparison),
                _peer_text(comparison, comparison.unsynced_peer, titles),
            )
            for comparison in report.comparisons()
        ),
    ]


def kind_rows(report: BenchReport) -> list[tuple[str, ...]]:
    """Return a heading and a row for each figure, with a column for each kind of Penstock."""
    ours = [system for system in report.systems if system.is_penstock]
    found = {(each.work, each.metric.name, each.system): each for each in report.measurements}
    figures = dict.fromkeys((each.work, each.metric.name, each.metric.title) for each in report.measurements)
    return [
        ("work", *(system.title for system in ours)),
        *(
            (title, *(_kind_text(found.get((work, metric, system.key))) for system in ours))
            for work, metric, title in figures
        ),
    ]


def _kind_text(measurement: Measurement | None) -> str:
    return _NO_FIGURE if measurement is None else figure_text(measurement)


def _peer_text(comparison: Comparison, peer: str | None, titles: dict[str, str]) -> str:
    if peer is None:
        return _NO_FIGURE
    return f"{titles[peer]}: {speed_text(comparison.speeds[peer])}"


def _embedded_text(comparison: Comparison) -> str:
    speed = comparison.embedded_speed_of(comparison.synced_peer)
    return _NO_FIGURE if speed is None else speed_text(speed)


def speed_text(speed: float) -> str:
    """Return a multiple of Penstock's speed in words."""
    if speed >= EVEN:
        return f"{_digits(speed)} times as fast"
    if speed <= 1 / EVEN:
        return f"{_digits(1 / speed)} times slower"
    return "as fast"


def figure_text(measurement: Measurement) -> str:
    """Return a median with its unit, and half of its spread; a dash if there is none."""
    if measurement.median is None:
        return _NO_FIGURE
    spread = measurement.spread
    share = "" if spread is None or len(measurement.values) == 1 else f" ± {spread * 50:.0f} %"
    return f"{_digits(measurement.median)} {measurement.metric.unit}{share}"


def _digits(value: float) -> str:
    """Return a number with about three digits, and with thousands as k or M."""
    for limit, unit in ((999_500, "M"), (9_995, "k")):
        if value >= limit:
            return f"{_digits(value / (1e6 if unit == 'M' else 1e3))} {unit}"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"
