"""The simulator finds mistakes that were made on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.testing.simulate import Violation, run_life
from tests.testing.simulate.first_seeds import DOCUMENT, table_of
from tests.testing.simulate.planted import MISTAKES, first_seed, planted

if TYPE_CHECKING:
    from tests.testing.simulate.planted import Mistake


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_simulator_finds_a_planted_mistake(mistake: Mistake) -> None:
    """A check that no mistake can fail checks nothing; the same life without it shows that it is the mistake.

    If a seed shows its mistake no more after a change, find the seeds again: see :mod:`first_seeds`.
    """
    run_life(mistake.seed)
    with planted(mistake), pytest.raises(Violation, match=f"^seed {mistake.seed}, after") as found:
        run_life(mistake.seed)
    assert found.type is Violation


def test_only_a_broken_promise_counts_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assertion of the simulator itself that fails is a mistake of ours, and not the planted one."""

    def fail(_seed: int) -> None:
        raise AssertionError("the simulator is wrong")

    monkeypatch.setattr("tests.testing.simulate.planted.run_life", fail)
    with pytest.raises(AssertionError, match="the simulator is wrong"):
        first_seed(MISTAKES[0], range(3))


def test_the_documented_seeds_are_those_of_the_list() -> None:
    """Whoever looks for the life of a mistake replays the seed that the document names."""
    assert table_of(DOCUMENT.read_text()) == {mistake.name: mistake.seed for mistake in MISTAKES}
