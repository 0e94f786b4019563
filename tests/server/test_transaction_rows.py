"""Events of a transaction on the port for blocks: what goes there, what is refused, and a connection that is lost."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from penstock.client._block_sockets import BlockSocket, _opened
from penstock.client._store import RemoteStore
from penstock.embedded import open_store
from penstock.errors import BadArgument, NotPermitted, StoreUnreachable, TransactionEnded
from penstock.server._service import FlightService
from penstock.wire import PutRows
from tests.server.owned import STREAM as OWNED
from tests.server.owned import as_user, new_folder
from tests.stream.wire_harness import Fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.client._transaction import RemoteTransaction
    from penstock.ports import Bytes
    from penstock.server import Server
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
HOST: Final = "127.0.0.1"
EVENT: Final = struct.pack(">I", 5) + bytes(4) + b"event"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with open_store(tmp_path / "data") as store:
        store.create_stream(STREAM, 2)
        yield store


@pytest.fixture
def service(store: Engine) -> Iterator[FlightService]:
    service = FlightService(store, f"grpc://{HOST}:0", block_listener=socket.create_server((HOST, 0)))
    yield service
    service.shutdown()


@pytest.fixture
def far(service: FlightService) -> Iterator[RemoteStore]:
    with RemoteStore(Fixed(f"grpc://{HOST}:{service.port}")) as far:
        yield far


@pytest.fixture
def transaction(far: RemoteStore) -> RemoteTransaction:
    return far.transactional_writer(STREAM).begin()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_folder(tmp_path, anna="write", berta="write")


def socket_of(far: RemoteStore) -> BlockSocket:
    """Open another connection for blocks of the client's session."""
    access = far.connection.channel.sockets._place
    assert access is not None
    return BlockSocket(_opened(*access), lambda _: None)


def events_of(store: Engine) -> list[tuple[bytes, bytes | None]]:
    batches = list(store.read(STREAM))
    return [
        row for batch in batches for row in zip(*(batch[name].to_pylist() for name in ("event", "key")), strict=True)
    ]


def test_batches_go_over_the_port_with_their_keys_and_headers(
    store: Engine, transaction: RemoteTransaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call would copy a megabyte four times on each side, and two threads of gRPC with it."""
    sent: list[int] = []
    put_rows = BlockSocket.put_rows

    def record(self: BlockSocket, head: PutRows, parts: Sequence[Bytes]) -> None:
        sent.append(head.count)
        put_rows(self, head, parts)

    monkeypatch.setattr(BlockSocket, "put_rows", record)
    events = [b"%d" % number * 500 for number in range(4_000)]
    transaction.write_batch(pa.array(events, pa.binary()), "key", [{"unit": b"C"}] * len(events))
    transaction.write_batch([b"last"], ["key"])
    transaction.commit()
    assert events_of(store) == [(event, b"key") for event in [*events, b"last"]]
    assert sum(sent) == 4_001
    assert len(sent) < 10, "a request has as many events as a block"
    [headers] = {str(row) for batch in store.read(STREAM) for row in batch["headers"].to_pylist()[:4_000] if row}
    assert headers == "[('unit', b'C')]"


def test_batches_go_over_flight_where_the_port_cannot_be_reached(
    store: Engine, service: FlightService, transaction: RemoteTransaction
) -> None:
    """With TLS there is no such port, and a firewall may close it."""
    assert service._block_port is not None
    service._block_port.close()
    transaction.write_batch([b"a", b"b"], ["key", "key"])
    transaction.commit()
    assert events_of(store) == [(b"a", b"key"), (b"b", b"key")]


@pytest.mark.parametrize(
    ("batch", "payload"),
    [((1, 0), b""), ((2, 0), EVENT), ((1, 0), EVENT[:-1]), ((1, 0), EVENT + b"x"), ((1, 4), EVENT), ((1, 1), EVENT)],
    ids=["nothing", "too few", "event cut off", "bytes behind", "unknown column", "no keys"],
)
def test_a_batch_whose_parts_do_not_match_is_refused_and_the_connection_goes_on(
    store: Engine, far: RemoteStore, transaction: RemoteTransaction, batch: tuple[int, int], payload: bytes
) -> None:
    """Whatever a client sends, its transaction has the events of good batches only."""
    connection = socket_of(far)
    with pytest.raises(BadArgument, match="invalid batch"):
        connection.put_rows(PutRows(transaction.id, *batch), [payload])
    connection.put_rows(PutRows(transaction.id, 1, 0), [EVENT])
    connection.close()
    transaction.commit()
    assert events_of(store) == [(b"event", None)]


def test_a_batch_for_a_transaction_that_has_ended_is_refused(far: RemoteStore, transaction: RemoteTransaction) -> None:
    """A task of Spark begins a new one then, and sends its rows again."""
    far.transactional_writer(STREAM).get(transaction.id).abort()
    with pytest.raises(TransactionEnded):
        transaction.write_batch([b"late"])
    with pytest.raises(TransactionEnded):
        transaction.commit()


def test_after_a_lost_connection_nothing_can_be_committed(
    service: FlightService, transaction: RemoteTransaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a batch may have arrived: a commit would make it visible without the rest."""
    transaction.write_batch([b"first"])

    def lose(self: BlockSocket) -> Bytes:
        self._frames.shut_down()
        raise ConnectionResetError

    monkeypatch.setattr(BlockSocket, "_acknowledgement", lose)
    with pytest.raises(StoreUnreachable, match="whether events of a transaction were added is not known"):
        transaction.write_batch([b"second"])
    with pytest.raises(TransactionEnded):
        transaction.commit()
    assert service._sessions


def test_a_batch_is_refused_in_a_transaction_of_another_user(server: Server) -> None:
    """The port asks for the same permissions as a call."""
    with as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        transaction = mine.transactional_writer(OWNED, "boiler").begin()
        connection = socket_of(theirs)
        with pytest.raises(NotPermitted, match=r"use the transaction .*, which belongs to another user"):
            connection.put_rows(PutRows(transaction.id, 1, 0), [EVENT])
        connection.close()
