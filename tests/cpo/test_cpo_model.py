"""Keys against a model: whatever the order of calls, the oracle does what a dict would."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.cpo import Versioned, open_cpo
from penstock.errors import CasConflict
from tests.sampling import examples

if TYPE_CHECKING:
    from penstock.cpo import Cpo

keys = st.sampled_from(["a", "ab", "b", "lease/a"])
values = st.binary(max_size=8)


def version_of(cpo: Cpo, key: str) -> int:
    row = cpo.get(key)
    assert row is not None
    return row.version


class OracleMachine(RuleBasedStateMachine):
    def __init__(self, url: str = "memory:") -> None:
        super().__init__()
        self.cpo = open_cpo(url)
        for key in list(self.cpo.keys()):
            self.cpo.delete(key, expected=version_of(self.cpo, key))
        self.model: dict[str, Versioned] = {}
        self.newest = 0

    def version_of(self, key: str) -> int:
        return self.model[key].version if key in self.model else 0

    @rule(key=keys, value=values)
    def set(self, key: str, value: bytes) -> None:
        version = self.cpo.cas(key, value, expected=self.version_of(key))
        assert version > self.newest
        self.newest = version
        self.model[key] = Versioned(value, version)

    @rule(key=keys, value=values, off=st.integers(1, 5))
    def set_too_late(self, key: str, value: bytes, off: int) -> None:
        with pytest.raises(CasConflict) as raised:
            self.cpo.cas(key, value, expected=self.version_of(key) + off)
        assert raised.value.actual == self.version_of(key)

    @rule(key=keys)
    def delete(self, key: str) -> None:
        if key in self.model:
            self.cpo.delete(key, expected=self.version_of(key))
            del self.model[key]
        else:
            with pytest.raises(CasConflict):
                self.cpo.delete(key, expected=1)

    @rule(prefix=st.sampled_from(["", "a", "b", "c"]))
    def list(self, prefix: str) -> None:
        assert self.cpo.keys(prefix) == sorted(key for key in self.model if key.startswith(prefix))

    @invariant()
    def every_key_reads_as_in_the_model(self) -> None:
        for key in ("a", "ab", "b", "lease/a"):
            assert self.cpo.get(key) == self.model.get(key)

    def teardown(self) -> None:
        self.cpo.close()


TestOracle = OracleMachine.TestCase
TestOracle.settings = settings(max_examples=examples(30), stateful_step_count=20)


def test_an_oracle_on_postgresql_does_the_same(postgresql: str) -> None:
    """It runs the same code on other types, another isolation of transactions and another driver."""
    machine: Any = partial(OracleMachine, postgresql)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(5), stateful_step_count=15))
