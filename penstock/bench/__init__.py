"""One benchmark: Penstock and its peers do the same work in the same run.

:func:`run_bench` starts the systems that this machine has, on loopback in a temporary folder, and measures them in
turns; the report that it returns becomes a table, JSON and a page with one chart. ``penstock bench`` is its command.
The programs in the folder ``bench`` of a clone measure parts of Penstock in more depth.
"""

from penstock.bench._page import page_of
from penstock.bench._report import BenchReport
from penstock.bench._run import choose_systems, choose_works, run_bench
from penstock.bench._table import kind_rows, summary_rows
from penstock.bench._works import FULL, QUICK

__all__ = [
    "FULL",
    "QUICK",
    "BenchReport",
    "choose_systems",
    "choose_works",
    "kind_rows",
    "page_of",
    "run_bench",
    "summary_rows",
]
