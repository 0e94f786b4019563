"""Find the first seed of each planted mistake again, and write it into planted.py and docs/testing.md.

Run ``.venv/bin/python -m tests.testing.simulate.first_seeds`` when a change has given the seeds other lives. A mistake
that neither one of the seeds searched nor its present seed shows is an error: either the simulator has become blind,
or the mistake is none any more. Mistakes that are rarer than that were found by days of ``make explore``.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.testing.simulate import planted
from tests.testing.simulate.planted import MISTAKES, first_seed

__all__ = ["DOCUMENT", "SEARCHED", "table_of"]

SEARCHED: Final = range(20_000)
DOCUMENT: Final = Path(__file__).parents[3] / "docs/testing.md"
_HEAD: Final = "| mistake | seed |\n|---|---|\n"
_PROCESSES: Final = 2


def table_of(text: str) -> dict[str, int]:
    """Return the table of planted mistakes in the document: the seed of each."""
    rows = text.split(_HEAD)[1].split("\n\n", maxsplit=1)[0].splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows]
    return {name: int(seed) for name, seed in cells}


def _search(number: int) -> int | None:
    mistake = MISTAKES[number]
    return first_seed(mistake, SEARCHED if mistake.seed in SEARCHED else [mistake.seed, *SEARCHED])


def _main() -> None:
    seeds: dict[str, int] = {}
    with ProcessPoolExecutor(_PROCESSES) as processes:
        for mistake, seed in zip(MISTAKES, processes.map(_search, range(len(MISTAKES))), strict=True):
            print(f"{mistake.name}: {seed}, before {mistake.seed}", flush=True)  # noqa: T201 - it is a command
            if seed is None:
                sys.exit(f"no seed below {SEARCHED.stop} shows it")
            seeds[mistake.name] = seed
    source = Path(planted.__file__)
    text = source.read_text()
    for name, seed in seeds.items():
        text, count = re.subn(rf'(Mistake\(\s*"{re.escape(name)}",\s*)\d+', rf"\g<1>{seed}", text)
        assert count == 1, f"{name!r} is there {count} times"
    source.write_text(text)
    before, rest = DOCUMENT.read_text().split(_HEAD)
    behind = rest.split("\n\n", 1)[1]
    rows = "\n".join(f"| {name} | {seed} |" for name, seed in seeds.items())
    DOCUMENT.write_text(f"{before}{_HEAD}{rows}\n\n{behind}")


if __name__ == "__main__":
    _main()
