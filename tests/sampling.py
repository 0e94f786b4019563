"""Which crash states, failing calls and random examples are tried: a fixed sample in every run, all when exploring.

The sample has a power loss after the first or the last operation of each kind in each step of a history. ``make
explore`` tries every point, and more of the disks that a power loss may leave there.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.testing import Fault
from penstock.testing._operations import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing import CrashState, RecordingDisk

EXPLORES: Final = bool(os.environ.get("PENSTOCK_EXPLORE"))
only_exploring: Final = pytest.mark.skipif(
    not EXPLORES, reason="takes long, and another test proves most of it: make explore"
)


def examples(explored: int) -> int:
    """Return how many examples of a property to try: a quarter of those that exploring tries."""
    return explored if EXPLORES else -(-explored // 4)


@contextmanager
def in_case(name: str) -> Iterator[None]:
    """Name the case of a loop in whatever fails in it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name}")
        raise


def crash_points(disk: RecordingDisk) -> list[int]:
    """Return where to try a power loss: at one operation of each kind in each step, by turns the first and the last.

    A step ends with its note.
    """
    if EXPLORES:
        return list(disk.crash_points())
    step, first, last = "", dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for point, operation in enumerate(disk._record.operations, start=1):
        kind = (step, type(operation).__name__)
        first.setdefault(kind, point)
        last[kind] = point
        if isinstance(operation, Note):
            step = f"{type(operation.payload).__name__} {getattr(operation.payload, 'name', '')}"
    return sorted({(last if number % 2 else first)[kind] for number, kind in enumerate(first)})


def crash_states(disk: RecordingDisk) -> Iterator[CrashState]:
    """Return the disks to try: at each point one, which more often than not has lost something, or three."""
    for point in crash_points(disk):
        states = list(disk.crash_states(point, power_set_max=1))
        chosen = {0, point * 7 % len(states), len(states) - 1} if EXPLORES else {point * 7 % len(states)}
        yield from (states[index] for index in sorted(chosen))


def failing_calls(count: int, fault: Fault) -> range:
    """Return which of so many calls fail: about three of them, and other ones for each fault."""
    step = 1 if EXPLORES else -(-count // 3)
    return range(1 + (count % step if fault is Fault.EIO else 0), count + 1, step)
