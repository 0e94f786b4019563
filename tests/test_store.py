"""Stores, groups, transactions, writers and readers, as ``help`` and tab completion show them to their users."""

from __future__ import annotations

import inspect
import io
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import OpenTransaction, ReaderGroup, Store, Transaction, TransactionalWriter
from penstock.client import RemoteStore
from penstock.client._group import RemoteGroup
from penstock.client._transaction import RemoteTransaction, RemoteTransactionalWriter
from penstock.stream import Engine, LocalReaderGroup, LocalTransactionalWriter
from penstock.stream.transaction import BegunTransaction, TransactionById

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMPLEMENTATIONS = [
    (Store, Engine),
    (Store, RemoteStore),
    (ReaderGroup, LocalReaderGroup),
    (ReaderGroup, RemoteGroup),
    (TransactionalWriter, LocalTransactionalWriter),
    (TransactionalWriter, RemoteTransactionalWriter),
    (OpenTransaction, BegunTransaction),
    (OpenTransaction, RemoteTransaction),
    (Transaction, TransactionById),
]
STREAM = "plant/readings"
WRITER = {
    "begin_write_event",
    "close",
    "flush",
    "last_number",
    "note_time",
    "stream",
    "write_batch",
    "write_event",
    "writer_id",
}
READER = {
    "close",
    "commit",
    "current_time_window",
    "finished",
    "keep_alive",
    "read_batch",
    "read_next_event",
    "read_next_event_as_stream",
    "reader_id",
}


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(("protocol", "kind"), IMPLEMENTATIONS, ids=lambda kind: kind.__name__)
def test_help_is_the_same_wherever_the_store_is_open(protocol: type, kind: type) -> None:
    """A user reads the help of the object at hand; a second text for the same method would promise something else."""
    assert public(protocol)
    for name in public(protocol):
        assert inspect.getdoc(getattr(kind, name)) == inspect.getdoc(getattr(protocol, name)), name


@pytest.mark.parametrize(("protocol", "kind"), IMPLEMENTATIONS, ids=lambda kind: kind.__name__)
def test_every_public_method_has_help_and_an_implementation(protocol: Any, kind: Any) -> None:  # noqa: ANN401 - classes
    """Docstrings may be inherited from the protocol here, a body must not be: it does nothing."""
    for name in public(kind):
        assert inspect.getdoc(getattr(kind, name)), name
    for name in public(protocol) | ({"__enter__", "__exit__"} & set(dir(protocol))):
        assert getattr(kind, name) is not getattr(protocol, name), name


@pytest.fixture(params=["embedded", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with penstock.connect(tmp_path) as owner:
        if request.param == "embedded":
            yield owner
        else:
            with penstock.connect(tmp_path) as client:
                assert isinstance(client, RemoteStore)
                yield client


def test_users_see_what_is_documented_and_nothing_of_the_inside(store: Store) -> None:
    """Tab completion is the first documentation: a method of the engine's own would be called, and break something."""
    assert public(store) == public(Store)
    store.create_stream(STREAM)
    group = store.create_reader_group("g", [STREAM])
    with store.writer(STREAM) as writer, group.reader("r") as reader:
        assert public(writer) == WRITER
        assert public(reader) == READER
        with writer.begin_write_event() as output:
            assert public(output) == public(io.RawIOBase) | {"abort", "pointer", "readinto", "write"}
    assert public(group) == public(ReaderGroup)
    with store.transactional_writer(STREAM) as transactions:
        assert public(transactions) == public(TransactionalWriter)
        with transactions.begin() as transaction:
            assert public(transaction) == public(OpenTransaction)
        assert public(transactions.get(transaction.id)) == public(Transaction)
