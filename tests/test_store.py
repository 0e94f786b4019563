"""The methods of a store, as ``help`` shows them to its users."""

from __future__ import annotations

import inspect

import pytest

from penstock import Store
from penstock.client import RemoteStore
from penstock.stream import Engine

METHODS = {name for name, method in vars(Store).items() if inspect.isfunction(method) and not name.startswith("_")}


@pytest.mark.parametrize("store", [Engine, RemoteStore])
def test_a_method_has_the_same_help_wherever_the_store_is_open(store: type[Store]) -> None:
    """A user reads the help of the object at hand; a second text for the same method would promise something else."""
    assert len(METHODS) > 20
    for name in METHODS:
        assert inspect.getdoc(getattr(store, name)) == inspect.getdoc(getattr(Store, name)), name


@pytest.mark.parametrize("store", [Engine, RemoteStore])
def test_every_public_method_has_help_and_an_implementation(store: type[Store]) -> None:
    """Docstrings may be inherited from the protocol here, a body must not be: it does nothing."""
    for name, method in inspect.getmembers(store, inspect.isroutine):
        if not name.startswith("_"):
            assert inspect.getdoc(method), name
    assert vars(store).keys() >= METHODS
    assert store.__enter__ is not Store.__enter__
    assert store.__exit__ is not Store.__exit__
