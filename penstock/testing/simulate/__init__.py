"""A simulator of plogs on three servers, in virtual time: one seed replays one run.

Theory of operation: the decisions of servers, owners and logs are the real code; the disks, the network, the oracle and
the clocks are simulated, and fail in every way that the seed chooses. After every step the invariants are checked
(:class:`Violation`). A short life takes milliseconds.

>>> from penstock.testing.simulate import run_life
>>> report = run_life(seed=7)
"""

from penstock.testing.simulate._life import SetBackWorld, run_life
from penstock.testing.simulate._truth import Violation

__all__ = ["SetBackWorld", "Violation", "run_life"]
