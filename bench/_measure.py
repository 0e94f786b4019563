"""How benchmarks measure and print: rounds taken in turn, so that noise hits both sides alike; ratios, then a table."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Figure", "compare", "median_us", "rate", "report"]


@dataclass
class Figure:
    """One line of a report: what was measured, the ratio, what it should be at least, and the figures behind it."""

    name: str
    ratio: float | None = None
    floor: float | None = None
    detail: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What the ratio is worth."""
        if self.ratio is None or self.floor is None:
            return ""
        return "ok" if self.ratio >= self.floor else "below"


def compare(ours: Callable[[], float], theirs: Callable[[], float], *, rounds: int) -> tuple[float, float, float]:
    """Run both in turn; each returns its rate. Return the median of the rounds' ratios and both median rates."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    ratio = statistics.median(mine / other for mine, other in pairs)
    return ratio, statistics.median(mine for mine, _ in pairs), statistics.median(other for _, other in pairs)


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
    for column in ("what", "ratio", "floor", "", "figures"):
        table.add_column(column, justify="right" if column in ("ratio", "floor") else "left")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        floor = "" if figure.floor is None else f"{figure.floor:.2f}"
        detail = ", ".join(f"{key} {value:,.5g}" for key, value in figure.detail.items())
        table.add_row(figure.name, ratio, floor, figure.verdict, detail)
    Console(width=160).print(table)
    print(json.dumps([asdict(figure) for figure in figures]))
