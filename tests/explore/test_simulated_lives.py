"""Lives of plogs on three servers in virtual time, and the search for planted mistakes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.testing.simulate import SetBackWorld, run_life
from tests.testing.simulate.first_seeds import SEARCHED
from tests.testing.simulate.planted import MISTAKES, first_seed

if TYPE_CHECKING:
    from tests.explore.conftest import Lives
    from tests.testing.simulate.planted import Mistake


def test_simulated_lives_break_no_promise(lives: Lives) -> None:
    """The rarest failures need the most lives: each has other faults at other times."""
    for dice in lives(sampled=10, explored=20_000):
        run_life(dice.getrandbits(48))


def test_folders_that_are_set_back_break_no_promise(lives: Lives) -> None:
    """An administrator restores a backup of one server: that is a lost disk with more pitfalls."""
    for dice in lives(sampled=10, explored=20_000):
        run_life(dice.getrandbits(48), SetBackWorld)


@pytest.mark.skipif(not os.environ.get("PENSTOCK_EXPLORE"), reason="make test runs the known seeds alone")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found_after_so_many_seeds(mistake: Mistake) -> None:
    """It says how many lives it takes to see a mistake of this kind, which is how much a life is worth."""
    if mistake.seed not in SEARCHED:
        pytest.skip("that many lives take hours; make test runs the one that shows it")
    assert first_seed(mistake, range(mistake.seed + 1)) == mistake.seed
