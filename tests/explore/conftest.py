"""Explorations: random lives of a store, a few of them in the suite, many in ``make explore``.

A life is told by its seed alone. A test that fails prints the seed of the life that failed:
``PENSTOCK_SEED=<seed> .venv/bin/pytest tests/explore -k <test>`` lives it again, and no other.
"""

from __future__ import annotations

import os
import secrets
import sys
from random import Random
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lives(Protocol):
    """Return the randomness of each life: so many in the suite, and so many when exploring."""

    def __call__(self, *, sampled: int, explored: int) -> Iterator[Random]: ...


@pytest.fixture
def lives() -> Lives:
    """``PENSTOCK_EXPLORE=1`` lives many lives from new seeds, ``PENSTOCK_LIVES`` says how many."""

    def lived(*, sampled: int, explored: int) -> Iterator[Random]:
        explores = bool(os.environ.get("PENSTOCK_EXPLORE"))
        count = int(os.environ.get("PENSTOCK_LIVES") or (explored if explores else sampled))
        first, replayed = secrets.randbits(40) if explores else 0, os.environ.get("PENSTOCK_SEED")
        for seed in range(first, first + count) if replayed is None else [int(replayed)]:
            sys.stdout.write(f"to live this again: PENSTOCK_SEED={seed}\n")  # shown when it fails
            yield Random(seed)

    return lived
