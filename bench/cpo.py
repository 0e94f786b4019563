"""The calls of the oracle, on SQLite and on PostgreSQL, next to one statement of each database alone.

Run it on an otherwise idle machine: ``python -m bench.cpo [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench._measure import Figure, compare, median_us, report
from penstock.cpo import open_cpo
from tests import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cpo import Cpo

TIMES = 200
ROUNDS = 20
READS = ("get", "lease")


def calls_of(cpo: Cpo) -> dict[str, Callable[[], object]]:
    """Return the calls, each of which may be made again and again."""
    versions, lease = {"key": cpo.cas("key", b"value", expected=0)}, cpo.acquire("renewed", "bench", seconds=3600)
    numbers = count()

    def change() -> None:
        versions["key"] = cpo.cas("key", b"value", expected=versions["key"])

    return {
        "get": lambda: cpo.get("key"),
        "lease": lambda: cpo.lease("renewed"),
        "cas": change,
        "cas of a new key, of 200": lambda: cpo.cas(f"new/{next(numbers)}", b"value", expected=0),
        "acquire": lambda: cpo.acquire("acquired", "bench", seconds=60),
        "renew": lambda: cpo.renew(lease, seconds=3600),
    }


def figures(name: str, cpo: Cpo, execute: Callable[[str], object]) -> Iterator[Figure]:
    """Return how long each call takes, and the share of it that one bare statement would take."""
    execute("CREATE TABLE bare (n int)")
    execute("INSERT INTO bare VALUES (0)")
    for call, work in calls_of(cpo).items():
        statement = "SELECT n FROM bare" if call in READS else "UPDATE bare SET n = n + 1"
        ratio, ours, theirs, spread = compare(
            partial(calls_a_second, work), partial(calls_a_second, execute, statement), rounds=ROUNDS
        )
        detail = {"us": 1e6 / ours, "bare statement us": 1e6 / theirs}
        yield Figure(f"{name}: {call}", ratio, None, detail, spread)


def calls_a_second(work: Callable[..., object], *arguments: str) -> float:
    """Return the rate of a call, by its median."""
    return 1e6 / median_us(partial(work, *arguments), TIMES // ROUNDS)


def main(folder: Path) -> None:
    """Measure and print."""
    if reason := postgres.missing():
        sys.exit(reason)
    found: list[Figure] = []
    with ExitStack() as stack:
        file = folder / "bare.db"
        table = stack.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
        table.execute("PRAGMA synchronous=EXTRA")
        cpo = stack.enter_context(open_cpo(f"sqlite:{folder / 'cpo.db'}"))
        found += figures("SQLite", cpo, lambda statement: table.execute(statement).fetchall())
        server = stack.enter_context(postgres.postgres_server(is_durable=True))
        plain = stack.enter_context(psycopg.connect(f"host={server.folder} user=postgres", autocommit=True))
        cpo = stack.enter_context(open_cpo(server.url))
        found += figures("PostgreSQL", cpo, lambda statement: plain.execute(statement.encode()))
    report("The control plane oracle", found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        main(Path(made))
