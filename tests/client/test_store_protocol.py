"""The store as its users see it: the engine and the remote store both implement it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock import store
from penstock.client import RemoteStore
from penstock.client._group import RemoteGroup
from penstock.client._transaction import RemoteTransaction, RemoteTransactionalWriter
from penstock.stream import Engine, LocalReaderGroup, LocalTransactionalWriter
from penstock.stream.transaction import BegunTransaction, TransactionById

if TYPE_CHECKING:  # mypy proves that arguments and results fit, too
    _stores: tuple[type[store.Store], ...] = (Engine, RemoteStore)
    _groups: tuple[type[store.ReaderGroup], ...] = (LocalReaderGroup, RemoteGroup)
    _writers: tuple[type[store.TransactionalWriter], ...] = (LocalTransactionalWriter, RemoteTransactionalWriter)
    _begun: tuple[type[store.OpenTransaction], ...] = (BegunTransaction, RemoteTransaction)
    _by_id: tuple[type[store.Transaction], ...] = (TransactionById,)

PAIRS = [
    (store.Store, Engine),
    (store.Store, RemoteStore),
    (store.ReaderGroup, LocalReaderGroup),
    (store.ReaderGroup, RemoteGroup),
    (store.TransactionalWriter, LocalTransactionalWriter),
    (store.TransactionalWriter, RemoteTransactionalWriter),
    (store.OpenTransaction, BegunTransaction),
    (store.OpenTransaction, RemoteTransaction),
]


def parameters(method: object) -> list[tuple[str, object, object]]:
    """Return what a method takes: names, defaults, and whether they may be left unnamed."""
    assert callable(method)
    return [(one.name, one.default, one.kind) for one in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(("protocol", "kind"), PAIRS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_method_has_the_names_and_defaults_of_the_protocol(protocol: type, kind: type) -> None:
    """A program must not care where its store is; types alone would let a default differ."""
    methods = {name: one for name, one in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"}
    assert methods
    for name, method in methods.items():
        assert parameters(getattr(kind, name)) == parameters(method), name


def test_what_methods_return_is_exported_at_the_top() -> None:
    """Users annotate with it, and must not look for a private module."""
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None, name
    assert penstock.Store is store.Store
    with penstock.connect("memory:") as opened:
        opened.create_stream("plant/readings")
        group: penstock.ReaderGroup = opened.create_reader_group("g", ["plant/readings"])
        with opened.writer("plant/readings") as writer, group.reader("r") as reader:
            assert isinstance(writer, penstock.StreamWriter)
            ack = writer.write_event(b"event")
            assert isinstance(ack, penstock.Ack)
            assert isinstance(ack.result(10.0), penstock.EventPointer)
            assert isinstance(reader, penstock.Reader)
            assert isinstance(reader.read_next_event(timeout=10.0), penstock.EventRead)
        assert isinstance(group.lag(), penstock.Lag)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """Names are imported when they are first used, and a typing mistake must look as it always does."""
    with pytest.raises(AttributeError, match="no attribute 'Stores'"):
        penstock.Stores  # type: ignore[attr-defined] # noqa: B018
