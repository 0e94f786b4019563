"""The page of a report: one chart, drawn by us as SVG inside of one HTML file that needs nothing else.

Every figure has a block of bars. The middle line is Penstock; a bar to the right is faster than Penstock, one to the
left slower, each on the same scale of powers of ten. Where Penstock loses comes first.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

from penstock.bench._report import EVEN
from penstock.bench._table import figure_text, speed_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.bench._report import BenchReport, Comparison, MeasuredSystem, Measurement

__all__ = ["page_of"]

_WIDTH: Final = 1080
_LABEL: Final = 210  # of a system, left of its bar
_FIGURE: Final = 310  # its figures, right of its bar
_BAR: Final = 14
_GAP: Final = 5
_HEAD: Final = 34  # of a block
_DECADES: Final = 3  # in each direction; a longer bar ends in an arrow
_GROUPS: Final = (
    "Where Penstock loses: a peer that syncs as well is faster",
    "Where only a peer is faster that acknowledges before the disk has it",
    "Where no peer is faster",
)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Penstock and its peers</title>
<style>
  :root {{ color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --grid: #d0d7de; --paper: #ffffff;
           --ours: #2f81f7; --faster: #d1242f; --slower: #6e7781; }}
  @media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6edf3; --soft: #9198a1; --grid: #30363d; --paper: #0d1117;
           --faster: #f85149; --slower: #8b949e; }} }}
  body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1120px; margin: 2rem auto; padding: 0 1rem;
          color: var(--ink); background: var(--paper); }}
  svg {{ width: 100%; height: auto; }} text {{ fill: var(--ink); font-size: 12px; }}
  .soft {{ fill: var(--soft); }} .title {{ font-size: 14px; font-weight: 600; }}
  .group {{ font-size: 17px; font-weight: 700; }}
  .grid {{ stroke: var(--grid); stroke-width: 1; }} .middle {{ stroke: var(--ink); stroke-width: 1.5; }}
  .ours {{ fill: var(--ours); }} .faster {{ fill: var(--faster); }} .slower {{ fill: var(--slower); }}
  .unsynced {{ fill-opacity: .35; stroke-width: 1; stroke-dasharray: 3 2; }}
  .unsynced.ours {{ stroke: var(--ours); }} .unsynced.faster {{ stroke: var(--faster); }}
  .unsynced.slower {{ stroke: var(--slower); }}
  .warning {{ border-left: 4px solid var(--faster); padding-left: .7rem; }}
  .key {{ display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em; vertical-align: -.1em; }}
  table {{ border-collapse: collapse; font-size: 13px; }} td, th {{ padding: .2rem 1rem .2rem 0; text-align: left;
          vertical-align: top; }}
</style></head><body>
<h1>Penstock and its peers</h1>
{warnings}
<p>The middle line is {baseline}. A bar to the <b>right</b> is <b>faster</b> than that, a bar to the left slower; a
step of the grid is ten times. {verdict} {reading}</p>
<p><span class="key" style="background: var(--ours); margin-left: 0"></span>Penstock
<span class="key" style="background: var(--faster)"></span>a peer that is faster
<span class="key" style="background: var(--slower)"></span>a peer that is slower
<span class="key" style="border: 1px dashed var(--soft)"></span>pale: acknowledges before the disk has it</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="speed of every system in multiples of Penstock's">
{chart}
</svg>
<h2>What was measured</h2>
<p>{machine}</p>
<table><tr><th>system</th><th>settings</th></tr>
{systems}
</table>
{skipped}
</body></html>
"""


def page_of(report: BenchReport) -> str:
    """Return the HTML page."""
    comparisons = report.comparisons()
    chart, height = _chart(comparisons, {system.key: system for system in report.systems})
    baseline = report.baseline
    return _PAGE.format(
        baseline=escape(baseline.title if baseline else "Penstock"),
        verdict=escape(_verdict(comparisons)),
        reading=escape(_reading(report, comparisons)),
        warnings="".join(f'<p class="warning">Warning: {escape(warning)}.</p>' for warning in report.warnings),
        width=_WIDTH,
        height=height,
        chart=chart,
        machine=escape(_machine(report)),
        systems="\n".join(_settings(system) for system in report.systems),
        skipped="".join(_skipped(report)),
    )


def _verdict(comparisons: list[Comparison]) -> str:
    """Say in a sentence how often Penstock loses, and how often without a server."""
    lost = sum(comparison.is_lost(is_synced=True) for comparison in comparisons)
    only_unsynced = sum(
        comparison.is_lost(is_synced=False) and not comparison.is_lost(is_synced=True) for comparison in comparisons
    )
    verdict = (
        f"Of {len(comparisons)} figures, Penstock loses {lost} to a peer that syncs as well, and {only_unsynced} more "
        "only to a peer that does not."
    )
    if all(comparison.embedded_speed_of(comparison.synced_peer) is None for comparison in comparisons):
        return verdict
    embedded = sum(_is_lost_embedded(comparison) for comparison in comparisons)
    return f"{verdict} Penstock embedded, which needs no server, loses {embedded} to a peer that syncs."


def _reading(report: BenchReport, comparisons: list[Comparison]) -> str:
    """Say which figures have another middle line."""
    baseline = report.baseline
    others = {each.baseline.system for each in comparisons} - {baseline.key if baseline else ""}
    titles = [system.title for system in report.systems if system.key in others]
    return f"Where events are read, it is {titles[0]}: peers send over a socket, too." if titles else ""


def _is_lost_embedded(comparison: Comparison) -> bool:
    return (comparison.embedded_speed_of(comparison.synced_peer) or 0.0) >= EVEN


def _chart(comparisons: list[Comparison], systems: dict[str, MeasuredSystem]) -> tuple[str, int]:
    """Return the inside of the drawing, and its height."""
    parts = list(_axis(12))
    y, group = 10, -1
    for comparison in comparisons:
        if comparison.rank[0] != group:
            group = comparison.rank[0]
            y += 30
            parts.append(f'<text class="group" x="0" y="{y}">{escape(_GROUPS[group])}</text>')
            y += 12
        block, y = _block(comparison, systems, y)
        parts.append(block)
    return "\n".join(parts), y + 10


def _block(comparison: Comparison, systems: dict[str, MeasuredSystem], y: int) -> tuple[str, int]:
    """Draw one figure of all systems, the fastest first; those without a value say why."""
    speeds = comparison.speeds
    rows = sorted(comparison.measurements, key=lambda each: -speeds.get(each.system, 0.0))
    bottom = y + _HEAD + len(rows) * (_BAR + _GAP)
    unit = comparison.metric.unit
    better = "more is better" if comparison.metric.is_rate else "less is better"
    too = ", too" if comparison.is_lost(is_synced=True) else ""
    embedded = f"Penstock embedded loses{too}; " if _is_lost_embedded(comparison) else ""
    parts = [
        f'<g data-work="{comparison.work}" data-metric="{comparison.metric.name}">',
        f'<text class="title" x="0" y="{y + 22}">{escape(comparison.metric.title)}</text>',
        f'<text class="soft" x="{_WIDTH}" y="{y + 22}" text-anchor="end">{embedded}{escape(unit)}, {better}</text>',
        *_grid(y + _HEAD - 4, bottom),
    ]
    for number, measurement in enumerate(rows):
        place = y + _HEAD + number * (_BAR + _GAP)
        parts.append(_row(measurement, systems[measurement.system], speeds.get(measurement.system), place))
    return "".join([*parts, "</g>"]), bottom


def _axis(y: int) -> Iterator[str]:
    """Say what the lines of the grid stand for."""
    for power in range(-_DECADES, _DECADES + 1):
        way = "slower" if power < 0 else "faster"
        label = "Penstock" if power == 0 else f"{10 ** abs(power):,} × {way}"  # noqa: RUF001 - a multiplication
        yield f'<text class="soft" x="{_x(10.0**power):.1f}" y="{y}" text-anchor="middle">{label}</text>'


def _grid(top: int, bottom: int) -> Iterator[str]:
    for power in range(-_DECADES, _DECADES + 1):
        x = _x(10.0**power)
        kind = "middle" if power == 0 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom - _GAP}"/>'


def _x(speed: float) -> float:
    """Return where a multiple of Penstock's speed is drawn."""
    power = max(-_DECADES, min(_DECADES, math.log10(speed)))
    return _LABEL + (power + _DECADES) / (2 * _DECADES) * (_WIDTH - _LABEL - _FIGURE)


def _row(measurement: Measurement, system: MeasuredSystem, speed: float | None, y: int) -> str:
    label = f'<text x="{_LABEL - 10}" y="{y + 11}" text-anchor="end">{escape(system.title)}</text>'
    right = _WIDTH - _FIGURE + 10
    if speed is None:
        reason = escape(measurement.reason or "no figure")
        note = f'<text class="soft" x="{_LABEL + 4}" y="{y + 11}">{reason}</text>'
        return f'<g data-system="{system.key}">{label}{note}</g>'
    kind = "ours" if system.is_penstock else "faster" if speed >= EVEN else "slower"
    pale = "" if system.is_synced else " unsynced"
    left, end = sorted((_x(1.0), _x(speed)))
    bar = f'<rect class="{kind}{pale}" x="{left:.1f}" y="{y}" width="{max(end - left, 1.5):.1f}" height="{_BAR}"/>'
    text = f"{figure_text(measurement)} · {speed_text(speed)}"
    figure = f'<text x="{right}" y="{y + 11}">{escape(text)}</text>'
    tip = f"<title>{escape(system.title)}: {escape(text)}; {len(measurement.values)} rounds</title>"
    return f'<g data-system="{system.key}" data-median="{measurement.median!r}">{tip}{label}{bar}{figure}</g>'


def _machine(report: BenchReport) -> str:
    machine = report.machine
    return (
        f"Penstock {report.version}, {report.mode} mode, {report.started}, {report.seconds:.0f} s. "
        f"{machine.get('cores')} cores, {machine.get('memory_gib')} GiB, {machine.get('system')}, "
        f"Python {machine.get('python')}; file system {machine.get('file_system')}, a bare write of 4 KiB and its "
        f"fdatasync {machine.get('sync_ms')} ms; load before the run {machine.get('load_before')}. "
        "All on one machine: clients and servers share its cores and its disk. Figures are medians of rounds that the "
        "systems take in turn, ± half of the distance between the lowest and the highest round."
    )


def _settings(system: MeasuredSystem) -> str:
    settings = "; ".join(f"{name}: {value}" for name, value in system.settings.items())
    return f"<tr><td>{escape(system.title)}</td><td>{escape(settings)}</td></tr>"


def _skipped(report: BenchReport) -> Iterator[str]:
    if report.skipped:
        items = "".join(f"<li>{escape(each.title)}: {escape(each.reason)}</li>" for each in report.skipped)
        yield f"<h2>What was skipped</h2><ul>{items}</ul>"
