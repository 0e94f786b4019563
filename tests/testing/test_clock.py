"""Time and chance under a test's control."""

from __future__ import annotations

from penstock.testing import ManualClock, SeededRandom


def test_clock_stands_still_until_advanced() -> None:
    """A lease test must not depend on how fast the machine is."""
    clock = ManualClock(start=100.0)
    assert clock.now() == clock.now() == 100.0
    clock.advance(2.5)
    assert clock.now() == 102.5


def test_clock_can_be_set_back() -> None:
    """Real clocks are corrected backwards too, and what counts on them has to bear it."""
    clock = ManualClock()
    clock.advance(-1.0)
    assert clock.now() == 1_699_999_999.0


def test_random_repeats_with_its_seed_and_only_then() -> None:
    """One seed replays a failure; two seeds must be two different runs."""
    assert [SeededRandom(7).token(16), SeededRandom(7).token(16)] == [SeededRandom(7).token(16)] * 2
    assert SeededRandom(7).token(16) != SeededRandom(8).token(16)


def test_random_goes_on() -> None:
    """Ids made one after another must differ."""
    random = SeededRandom(7)
    assert random.token(16) != random.token(16)
