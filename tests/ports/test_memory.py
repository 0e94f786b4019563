"""What a server keeps of the memory that it has freed."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

PROGRAM: Final = """
import resource, sys
import numpy as np
from penstock.ports import keep_freed_memory

def receive():
    blocks = [np.ones(1 << 20, np.uint8) for _ in range(8)]
    del blocks

if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    receive()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    receive()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(option: str) -> int:
    """Return how many pages a process gets while it receives and frees 80 MiB."""
    command = [sys.executable, "-c", PROGRAM, option]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_memory_that_is_freed_is_not_fetched_anew_for_the_next_message() -> None:
    """Each page would be cleared by the system again: a tenth of what an owner does for a batch."""
    without = pages("-")
    if without < 1000:
        pytest.skip("this C library keeps it by itself")
    assert pages("keep") < without / 10
