"""How benchmarks measure and print: a round to warm up, then rounds taken in turn, so that noise hits both sides alike.

Every ratio is a median, and is printed with the lowest and the highest one of its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Compared", "Figure", "compare", "median_us", "middle", "rate", "report", "run_parts"]

Spread = tuple[float, float]
"""The lowest and the highest."""


@dataclass
class Figure:
    """One line of a report: what was measured, the ratio and its spread, what it should be at least, other figures."""

    name: str
    ratio: float | None = None
    floor: float | None = None
    detail: Mapping[str, float] = field(default_factory=dict)
    spread: Spread | None = None

    @property
    def verdict(self) -> str:
        """What the ratio is worth."""
        if self.ratio is None or self.floor is None:
            return ""
        return "ok" if self.ratio >= self.floor else "below"


class Compared(NamedTuple):
    """The median of the rounds' ratios, both median rates, and the lowest and the highest ratio."""

    ratio: float
    ours: float
    theirs: float
    spread: Spread


def compare(ours: Callable[[], float], theirs: Callable[[], float], *, rounds: int) -> Compared:
    """Run both in turn; each returns its rate. The first of the rounds warms up both, and does not count."""
    _, *pairs = [(ours(), theirs()) for _ in range(rounds)]
    ratio, spread = middle([mine / other for mine, other in pairs])
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Compared(ratio, mine, other, spread)


def middle(ratios: Sequence[float]) -> tuple[float, Spread]:
    """Return the median of the rounds' ratios, and their spread."""
    return statistics.median(ratios), (min(ratios), max(ratios))


def rate(work: Callable[[], int]) -> float:
    """Return how many of what ``work`` counts it does in a second."""
    start = time.perf_counter()
    done = work()
    return done / (time.perf_counter() - start)


def median_us(work: Callable[[], object], times: int = 300) -> float:
    """Return the median of how long the work takes, in microseconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def report(title: str, figures: list[Figure]) -> None:
    """Print the figures as a table for people and as JSON for programs."""
    table = Table(title=title)
    for column in ("what", "ratio", "low-high", "floor", "", "figures"):
        table.add_column(column, justify="right" if column in ("ratio", "low-high", "floor") else "left")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        spread = "" if figure.spread is None else f"{figure.spread[0]:.2f}-{figure.spread[1]:.2f}"
        floor = "" if figure.floor is None else f"{figure.floor:.2f}"
        detail = ", ".join(f"{key} {value:,.5g}" for key, value in figure.detail.items())
        table.add_row(figure.name, ratio, spread, floor, figure.verdict, detail)
    Console(width=160).print(table)
    print(json.dumps([asdict(figure) for figure in figures]))


def run_parts(title: str, parts: Sequence[Callable[[Path], Iterator[Figure]]]) -> None:
    """Measure the parts that the command line names, or all, in a folder that is made and removed; print them."""
    parser = argparse.ArgumentParser(description=f"Measure {title}.")
    parser.add_argument("folder", nargs="?", type=Path, help="made, filled and removed; on the disk that is measured")
    names = [part.__name__ for part in parts]
    parser.add_argument("--part", action="append", choices=names, help="measure this part only; may be repeated")
    arguments = parser.parse_args()
    chosen = [part for part in parts if arguments.part is None or part.__name__ in arguments.part]
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=Path.cwd()))
    folder.mkdir(exist_ok=True, parents=True)
    load = os.getloadavg()[0]
    try:
        report(f"{title}, load before {load:.1f}", [figure for part in chosen for figure in part(folder)])
    finally:
        shutil.rmtree(folder)
