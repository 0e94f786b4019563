"""The chart of the demo, an HTML page: when readings arrived, against when they were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.spark.demo import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.demo import Story

__all__ = ["chart"]

_WIDTH: Final = 960
_HEIGHT: Final = 540
_LEFT: Final = 70
_TOP: Final = 20
_DOTS: Final = 2500
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Penstock: what the watermark decides</title>
<style>
  :root {{ color-scheme: light dark; --ink: #1b1f24; --soft: #8b949e; --grid: #d0d7de; --kept: #2f81f7; --lost: #e5534b;
           --exact: #2da44e; --guess: #bf8700; --paper: #ffffff; }}
  @media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6edf3; --grid: #30363d; --paper: #0d1117; }} }}
  body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem;
          color: var(--ink); background: var(--paper); }}
  svg {{ width: 100%; height: auto; }} text {{ fill: var(--soft); font-size: 12px; }}
  .grid {{ stroke: var(--grid); stroke-width: .5; }} .line {{ fill: none; stroke-width: 2.5; }}
  .key {{ display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin: 0 .3em 0 1em; }}
  table {{ border-collapse: collapse; margin: 1rem 0; }} td, th {{ padding: .2rem 1rem .2rem 0; text-align: right; }}
  th:first-child, td:first-child {{ text-align: left; }}
</style>
<h1>Which readings are late?</h1>
<p>Every dot is a reading: the horizontal axis shows when it arrived, the vertical axis when it was measured. A line is
a watermark: a reading below it is late, and a window of {window} seconds below it is closed. Spark's own watermark
stays ten seconds behind the latest reading and overtakes the readings of the plant that is offline: <b>{lost:,} of
{total:,} are lost</b>. The writers' watermark waits for them: <b>{exact_lost:,} are lost</b>.</p>
<p><span class="key" style="background: var(--kept)"></span>counted by both
<span class="key" style="background: var(--lost)"></span>lost with Spark's own watermark
<span class="key" style="background: var(--exact)"></span>the writers' watermark
<span class="key" style="background: var(--guess)"></span>Spark's own watermark</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="readings by arrival and by time, with both watermarks">
{grid}
<g fill="var(--kept)" opacity=".35">{kept}</g>
<g fill="var(--lost)" opacity=".8">{late}</g>
<polyline class="line" stroke="var(--exact)" points="{exact_line}"/>
<polyline class="line" stroke="var(--guess)" points="{guess_line}"/>
</svg>
</html>
"""


def chart(story: Story) -> str:
    """Return the HTML page."""
    last = max(reading.came for reading in story.readings)
    step = len(story.readings) // _DOTS + 1
    shown = [reading for reading in story.readings if reading.number % step == 0]
    places = {reading.number: (reading.came, reading.at) for reading in shown}
    return _PAGE.format(
        width=_WIDTH,
        height=_HEIGHT,
        window=WINDOW_S,
        total=sum(story.windows.values()),
        lost=sum((story.windows - story.guessed).values()),
        exact_lost=sum((story.windows - story.exact).values()),
        grid="".join(_grid(last)),
        kept="".join(_dot(place, last) for number, place in places.items() if number not in story.lost),
        late="".join(_dot(place, last) for number, place in places.items() if number in story.lost),
        exact_line=_points(story.exact_line, last),
        guess_line=_points(story.guessed_line, last),
    )


def _x(came: float, last: float) -> float:
    return _LEFT + min(max(came, 0), last) / last * (_WIDTH - _LEFT - 10)


def _y(at: float, last: float) -> float:
    return _HEIGHT - 40 - min(max(at, 0), last) / last * (_HEIGHT - 40 - _TOP)


def _dot(place: tuple[float, float], last: float) -> str:
    came, at = place
    return f'<circle cx="{_x(came, last):.1f}" cy="{_y(at, last):.1f}" r="2"/>'


def _points(line: Iterable[tuple[float, float]], last: float) -> str:
    """Return the points of a step function."""
    points: list[str] = []
    before: float | None = None
    for came, at in line:
        if before is not None:
            points.append(f"{_x(came, last):.1f},{_y(before, last):.1f}")
        points.append(f"{_x(came, last):.1f},{_y(at, last):.1f}")
        before = at
    return " ".join(points)


def _grid(last: float) -> Iterable[str]:
    for minute in range(int(last // 60) + 1):
        x, y = _x(minute * 60, last), _y(minute * 60, last)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - 40}"/>'
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{minute}</text>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{minute}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">minute of arrival</text>'
    turned = f'x="14" y="{_HEIGHT / 2}" transform="rotate(-90 14 {_HEIGHT / 2})"'
    yield f'<text {turned} text-anchor="middle">minute of measurement</text>'
