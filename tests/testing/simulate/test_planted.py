"""The simulator finds mistakes that were made on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.testing.simulate import Violation, run_life
from tests.testing.simulate.planted import MISTAKES, planted

if TYPE_CHECKING:
    from tests.testing.simulate.planted import Mistake


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_simulator_finds_a_planted_mistake(mistake: Mistake) -> None:
    """A check that no mistake can fail checks nothing; the seed is the first whose life shows it."""
    with planted(mistake), pytest.raises(AssertionError):
        run_life(mistake.seed)


def test_a_violation_names_the_seed_that_replays_it() -> None:
    """A life that fails among thousands has to be found again."""
    mistake = next(mistake for mistake in MISTAKES if mistake.seed == 0)
    with planted(mistake), pytest.raises(Violation, match="seed 0, after"):
        run_life(0)
