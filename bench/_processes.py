"""The processor time of a process and of all that it has started."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["TICKS_S", "family", "times_of"]

TICKS_S: Final = os.sysconf("SC_CLK_TCK")
"""How many ticks of the processor's clock a second has."""


def family(pid: int) -> list[int]:
    """Return a process and its descendants; the lists of children in ``/proc`` are incomplete while threads end."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found


def times_of(pid: int) -> tuple[str, list[int]]:
    """Return the name of a process and its ticks: its own, those in the system, and those of ended children."""
    head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], list(map(int, rest.split()[11:15]))
