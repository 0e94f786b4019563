"""A process that copies one folder to another in small steps, and prints a line for each part that it has read."""

from __future__ import annotations

import sys
from unittest.mock import patch

import penstock
from penstock.copying import _step, copy_streams


def main(source: str, target: str) -> None:
    """Copy, until the end or until killed."""
    small = patch.object(_step, "_SIZE_MAX", 4096)
    with small, penstock.connect(source) as ours, penstock.connect(target) as theirs:
        copy_streams(ours, theirs, on_progress=tell)
    tell("done")


def tell(*words: object) -> None:
    """Print a line, now."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
